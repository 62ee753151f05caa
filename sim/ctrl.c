// SPDX-License-Identifier: MIT
/* The controller as a whole: made, run turn by turn, taken down. */
#include "ctrl.h"

#include "doorbell.h"
#include "feature.h"
#include "held.h"
#include "queue.h"
#include "regs.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Even a busy controller looks at everything once in so many turns. */
#define SCAN_TURNS 256u

static int open_namespaces(struct pl_simnvme *c, char *why, size_t why_bytes)
{
	for (uint32_t i = 0; i < c->config.nr_ns; i++) {
		int rc = pl_sn_ns_open(&c->ns[i], i + 1, c->config.file[i], c->config.size[i],
				       c->config.bs[i]);

		if (rc) {
			snprintf(why, why_bytes, "sim: namespace %u: %s", i + 1, strerror(-rc));
			return rc;
		}
	}
	return 0;
}

static int load_faults(struct pl_simnvme *c, char *why, size_t why_bytes)
{
	int rc = 0;

	if (*c->config.fault)
		rc = pl_sn_faults_load(&c->faults, c->config.fault, why, why_bytes);
	if (!rc && *c->config.rule)
		rc = pl_sn_faults_add(&c->faults, c->config.rule, why, why_bytes);
	return rc;
}

int pl_simnvme_create(const char *config, struct pl_simnvme **out, char *why, size_t why_bytes)
{
	struct pl_simnvme *c = calloc(1, sizeof(*c));
	int rc;

	if (!c)
		return -ENOMEM;
	c->bar_fd = -1;
	c->turn = 1;
	pthread_mutex_init(&c->lock, NULL);
	rc = pl_sn_config_parse(&c->config, config, why, why_bytes);
	if (rc)
		goto err_destroy;
	c->sqs = calloc(c->config.queues + 1, sizeof(*c->sqs));
	c->cqs = calloc(c->config.queues + 1, sizeof(*c->cqs));
	c->order = calloc(c->config.queues + 1, sizeof(*c->order));
	if (!c->sqs || !c->cqs || !c->order) {
		rc = -ENOMEM;
		goto err_destroy;
	}
	rc = pl_sn_regs_init(c);
	if (!rc)
		rc = open_namespaces(c, why, why_bytes);
	if (!rc)
		rc = load_faults(c, why, why_bytes);
	if (rc)
		goto err_destroy;
	pl_sn_feature_reset(c);
	*out = c;
	return 0;

err_destroy:
	pl_simnvme_destroy(c);
	return rc;
}

void pl_simnvme_destroy(struct pl_simnvme *c)
{
	if (!c)
		return;
	pl_simnvme_stop(c);
	if (c->sqs && c->cqs)
		pl_sn_queues_clear(c);
	for (uint32_t i = 0; i < PL_SN_MAX_NS; i++)
		pl_sn_ns_close(&c->ns[i]);
	pl_sn_regs_fini(c);
	pl_sn_faults_fini(&c->faults);
	pl_sn_dma_fini(&c->dma);
	pthread_mutex_destroy(&c->lock);
	free(c->segs);
	free(c->order);
	free(c->cqs);
	free(c->sqs);
	free(c);
}

void pl_sn_lock(struct pl_simnvme *c)
{
	/* The controller's thread would take the lock again before we wake up. */
	atomic_fetch_add(&c->waiters, 1);
	pthread_mutex_lock(&c->lock);
	atomic_fetch_sub(&c->waiters, 1);
}

void pl_sn_unlock(struct pl_simnvme *c)
{
	pthread_mutex_unlock(&c->lock);
}

/* The submission queues, one after the other, beginning where the last turn ended. */
static unsigned int serve_queues(struct pl_simnvme *c)
{
	unsigned int done = 0;

	for (uint32_t i = c->nr_order; i && pl_sn_regs_ready(c); i--) {
		if (c->next_order >= c->nr_order)
			c->next_order = 0;
		done += pl_sn_sq_serve(c, c->sqs[c->order[c->next_order++]]);
	}
	return done;
}

static void scan(struct pl_simnvme *c)
{
	pl_sn_regs_scan(c);
	if (!pl_sn_regs_ready(c))
		return;
	for (uint32_t qid = 0; qid <= c->config.queues; qid++)
		if (c->cqs[qid])
			pl_sn_cq_serve(c, c->cqs[qid]);
	pl_sn_doorbell_scan(c);
}

unsigned int pl_simnvme_step(struct pl_simnvme *c)
{
	unsigned int done = 0;

	while (atomic_load_explicit(&c->waiters, memory_order_relaxed))
		sched_yield();
	pthread_mutex_lock(&c->lock);
	c->turn++;
	if (!c->removed)
		pl_sn_regs_serve(c);
	if (pl_sn_regs_ready(c)) {
		done = serve_queues(c);
		if (c->nr_held > c->nr_event_requests)
			pl_sn_held_run(c);
	}
	if (!done || c->turn % SCAN_TURNS == 0)
		scan(c);
	pthread_mutex_unlock(&c->lock);
	return done;
}

void *pl_simnvme_bar(struct pl_simnvme *c, size_t *bytes)
{
	*bytes = c->bar_bytes;
	return c->bar;
}

int pl_simnvme_bar_fd(struct pl_simnvme *c)
{
	return c->bar_fd;
}

int pl_simnvme_map(struct pl_simnvme *c, uint64_t iova, void *memory, size_t bytes,
		   unsigned int access)
{
	struct pl_sn_mapping mapping = {
		.iova = iova, .bytes = bytes, .memory = memory, .access = access
	};
	int rc;

	if (!memory || (uintptr_t)memory % PL_SN_DMA_PAGE)
		return -EINVAL;
	pl_sn_lock(c);
	rc = pl_sn_dma_add(&c->dma, &mapping);
	pl_sn_unlock(c);
	return rc;
}

int pl_simnvme_unmap(struct pl_simnvme *c, uint64_t iova, size_t bytes)
{
	int rc;

	pl_sn_lock(c);
	rc = pl_sn_dma_remove(&c->dma, iova, bytes, 0, NULL);
	pl_sn_unlock(c);
	return rc;
}

void pl_simnvme_reset(struct pl_simnvme *c)
{
	pl_sn_lock(c);
	pl_sn_regs_reset(c);
	pl_sn_unlock(c);
}

int pl_simnvme_inject(struct pl_simnvme *c, const char *script, char *why, size_t why_bytes)
{
	int rc;

	pl_sn_lock(c);
	rc = pl_sn_faults_add(&c->faults, script, why, why_bytes);
	pl_sn_unlock(c);
	return rc;
}

void pl_simnvme_counters(struct pl_simnvme *c, struct pl_simnvme_counters *out)
{
	pl_sn_lock(c);
	*out = c->counters;
	out->dma_faults = c->dma.faults;
	out->faults_injected = c->faults.injected;
	out->mappings = c->dma.nr - c->cmb_mapped;
	out->io_queues = c->nr_io_queues;
	out->held = c->nr_held;
	out->ready = c->csts & PL_NVME_CSTS_RDY && !c->removed;
	out->fatal = c->csts & PL_NVME_CSTS_CFS && !c->removed;
	out->removed = c->removed;
	pl_sn_unlock(c);
}
