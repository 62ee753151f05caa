// SPDX-License-Identifier: MIT
/* A controller from open to close. */
#include "ctrl.h"
#include "queue.h"
#include "why.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

uint64_t pl_nvme_now_ns(struct peerlane_nvme *nvme)
{
	struct timespec ts;

	if (nvme->t->ops->now_ns)
		return nvme->t->ops->now_ns(nvme->t);
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void pl_nvme_relax(struct peerlane_nvme *nvme, unsigned int *turns)
{
	static const struct timespec moment = { .tv_nsec = 50000 };

	++*turns;
	if (nvme->t->ops->idle)
		nvme->t->ops->idle(nvme->t);
	else if (*turns < 64)
		pl_nvme_pause();
	else if (*turns < 4096)
		sched_yield();
	else
		nanosleep(&moment, NULL);
}

bool pl_nvme_ctrl_stopped(struct peerlane_nvme *nvme)
{
	return nvme->t->ops->stopped && nvme->t->ops->stopped(nvme->t);
}

int pl_nvme_ctrl_check(struct peerlane_nvme *nvme)
{
	uint32_t csts;

	if (nvme->t->ops->gone(nvme->t))
		return -ENODEV;
	if (pl_nvme_ctrl_stopped(nvme))
		return -EIO;
	csts = pl_nvme_read32(nvme->bar, PL_NVME_REG_CSTS);
	if (csts == UINT32_MAX)
		return -ENODEV;
	return csts & PL_NVME_CSTS_CFS ? -EIO : 0;
}

static int set_options(struct peerlane_nvme *nvme, const struct peerlane_nvme_options *opt)
{
	static const struct peerlane_nvme_options defaults = { .size = sizeof(defaults) };

	if (!opt)
		opt = &defaults;
	if (opt->size != sizeof(*opt) ||
	    opt->flags & ~(PEERLANE_NVME_NO_DBBUF | PEERLANE_NVME_NO_EVENTS) ||
	    opt->nr_queues > PL_NVME_MAX_QUEUES)
		return -EINVAL;
	nvme->flags = opt->flags;
	nvme->nr_queues_asked = opt->nr_queues ? opt->nr_queues : 64;
	nvme->timeout_ns = (opt->timeout_ms ? opt->timeout_ms : 30000u) * (uint64_t)1000000;
	nvme->admin_timeout_ns =
		(opt->admin_timeout_ms ? opt->admin_timeout_ms : 60000u) * (uint64_t)1000000;
	return 0;
}

static int bring_up(struct peerlane_nvme *nvme)
{
	int rc = pl_nvme_ctrl_probe(nvme);

	if (!rc)
		rc = pl_nvme_ctrl_disable(nvme);
	if (!rc)
		rc = pl_nvme_admin_init(nvme);
	if (!rc)
		rc = pl_nvme_ctrl_enable(nvme);
	return rc;
}

/* Undo all but the queues. The controller is stopped, or there is nothing more that could stop it. */
static void release(struct peerlane_nvme *nvme)
{
	struct peerlane_nvme_ns *ns;

	pl_nvme_admin_fini(nvme);
	while (nvme->maps)
		pl_nvme_unmap_locked(nvme->maps);
	while ((ns = nvme->namespaces)) {
		nvme->namespaces = ns->next;
		free(ns);
	}
	free(nvme->cmb_used);
	nvme->t->ops->close(nvme->t);
	pthread_mutex_destroy(&nvme->lock);
	free(nvme);
}

int pl_nvme_ctrl_open(struct pl_nvme_transport *t, const struct peerlane_nvme_options *opt,
		      struct peerlane_nvme **out)
{
	struct peerlane_nvme *nvme = calloc(1, sizeof(*nvme));
	int rc;

	if (!nvme) {
		t->ops->close(t);
		return -ENOMEM;
	}
	nvme->t = t;
	nvme->bar = t->bar0.ptr;
	nvme->generation = 1;
	nvme->resetting = true; /* a command that fails now is not recovered from */
	pthread_mutex_init(&nvme->lock, NULL);
	rc = set_options(nvme, opt);
	if (rc) {
		release(nvme);
		return rc;
	}
	pthread_mutex_lock(&nvme->lock);
	rc = bring_up(nvme);
	if (rc && rc != -ENODEV && nvme->cap)
		pl_nvme_ctrl_disable(nvme);
	nvme->resetting = false;
	pthread_mutex_unlock(&nvme->lock);
	if (rc) {
		release(nvme);
		return rc;
	}
	*out = nvme;
	return 0;
}

int peerlane_nvme_open(struct peerlane_nvme **out, const char *address,
		       const struct peerlane_nvme_options *opt)
{
	struct pl_nvme_transport *t;
	int rc;

	pl_nvme_why("%s", "");
	if (!out || !address)
		return pl_nvme_why_opened(-EINVAL);
	rc = pl_nvme_transport_open(address, &t);
	return pl_nvme_why_opened(rc ? rc : pl_nvme_ctrl_open(t, opt, out));
}

void peerlane_nvme_close(struct peerlane_nvme *nvme)
{
	if (!nvme)
		return;
	while (nvme->queues)
		peerlane_nvme_queue_destroy(nvme->queues);
	pthread_mutex_lock(&nvme->lock);
	pl_nvme_ctrl_shutdown(nvme);
	pthread_mutex_unlock(&nvme->lock);
	release(nvme);
}

/* Text padded with spaces, perhaps with bytes that are no text. */
static void text(char *to, const char *from, size_t bytes)
{
	while (bytes && (from[bytes - 1] == ' ' || !from[bytes - 1]))
		bytes--;
	for (size_t i = 0; i < bytes; i++)
		to[i] = from[i] >= ' ' && from[i] <= '~' ? from[i] : '?';
	to[bytes] = '\0';
}

int peerlane_nvme_get_info(struct peerlane_nvme *nvme, struct peerlane_nvme_info *info)
{
	struct peerlane_nvme_queue *q;

	if (!nvme || !info || info->size != sizeof(*info))
		return -EINVAL;
	pthread_mutex_lock(&nvme->lock);
	*info = (struct peerlane_nvme_info){
		.size = sizeof(*info),
		.version = nvme->id.ver,
		.page_bytes = 1u << nvme->page_shift,
		.max_entries = PL_NVME_CAP_MQES(nvme->cap) + 1,
		.nr_queues = nvme->nr_queues,
		.max_namespaces = nvme->id.nn,
		.max_transfer_bytes = nvme->max_transfer_bytes,
		.oncs = nvme->id.oncs,
		.has_write_cache = nvme->id.vwc & 1,
		.has_dbbuf = nvme->has_dbbuf,
		.has_sgl = (nvme->id.sgls & PL_NVME_SGLS_MASK) != 0,
		.cmb_bytes = (uint64_t)nvme->nr_cmb_pages << nvme->page_shift,
		.nr_resets = nvme->nr_resets,
		.nr_bad_completions = nvme->nr_bad + nvme->admin.nr_bad,
		.nr_lost_events = nvme->nr_lost_events,
		.dead = nvme->dead,
	};
	for (q = nvme->queues; q; q = q->next)
		info->nr_bad_completions += __atomic_load_n(&q->ring.nr_bad, __ATOMIC_RELAXED);
	text(info->serial, nvme->id.sn, sizeof(nvme->id.sn));
	text(info->model, nvme->id.mn, sizeof(nvme->id.mn));
	text(info->firmware, nvme->id.fr, sizeof(nvme->id.fr));
	pthread_mutex_unlock(&nvme->lock);
	return 0;
}
