// SPDX-License-Identifier: MIT
/* GPU memory that NVMe controllers reach: pins, maps, and the test of a controller and a GPU. */
#include "nvme_reach.h"

#include "context.h"
#include "p2p.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What could not be mapped is not tried again at once. */
#define RETRY_NS 1000000000ull

/* A registered buffer and a controller. */
struct pl_nvme_ref {
	struct pl_nvme_ref *next_of_buf, *next_of_ctrl;
	struct pl_nvme_shared *shared;
	struct peerlane *ctx;
	struct pl_buffer *buf;
	struct pl_p2p_pin pin;	       /* of memory of a real GPU */
	struct peerlane_nvme_map *map; /* NULL: it cannot be mapped */
	bool lost;
	uint64_t tried_ns;
	struct peerlane_verdict words;
};

/* What a test has found, or nothing so far. */
struct pl_nvme_route {
	struct pl_nvme_route *next;
	uint64_t gpu_pci;
	bool good;
};

#define SAY(ref, fix_text, ...)                                                                    \
	do {                                                                                       \
		pl_text((ref)->words.reason, sizeof((ref)->words.reason), __VA_ARGS__);            \
		pl_text((ref)->words.fix, sizeof((ref)->words.fix), "%s", fix_text);               \
	} while (0)

static bool is_simulated(const struct peerlane *ctx)
{
	return !strcmp(ctx->gpu->ops->name, "sim");
}

static bool by_module(const struct pl_nvme_shared *s)
{
	return !strncmp(s->address, "kmod:", strlen("kmod:"));
}

/* --- the test --- */

struct reader {
	struct peerlane *ctx;
	const struct pl_nvme_file *f;
	struct pl_nvme_lane *lane;
};

static int read_host(void *arg, void *to, size_t bytes, off_t offset)
{
	const struct reader *r = arg;

	if (pl_nvme_file_run(r->f, r->lane, PL_NVME_READ, r->lane->map, 0, (uint64_t)offset, bytes))
		return 0;
	memcpy(to, r->lane->mem, bytes);
	return 1;
}

static int map_pin(struct peerlane *ctx, const struct pl_nvme_file *f, const struct pl_p2p_pin *pin,
		   struct peerlane_nvme_map **out)
{
	struct peerlane_nvme_memory memory = {
		.size = sizeof(memory),
		.flags = PEERLANE_NVME_MEMORY_GPU,
		.ptr = (void *)pin->addr,
		.bytes = pin->bytes,
		.pin_fd = ctx->p2p.fd,
		.handle = pin->handle,
	};

	return peerlane_nvme_map(f->shared->nvme, &memory, out);
}

static int read_gpu(void *arg, const struct pl_p2p_pin *pin, size_t bytes, off_t offset)
{
	const struct reader *r = arg;
	struct peerlane_nvme_map *map;
	int err = map_pin(r->ctx, r->f, pin, &map);

	if (err)
		return -1;
	err = pl_nvme_file_run(r->f, r->lane, PL_NVME_READ, map, 0, (uint64_t)offset, bytes);
	peerlane_nvme_unmap(map);
	/* Other memory was freed meanwhile, or the controller is gone. */
	if (err == -EFAULT || err == -ECONNRESET || err == -ENODEV)
		return -1;
	return !err;
}

/* 1: what the controller reads arrives in the GPU's memory; 0: it does not; -1: that cannot be told. */
static int test(struct peerlane *ctx, const struct pl_nvme_file *f, int gpu)
{
	struct reader reader = { .ctx = ctx, .f = f };
	struct pl_p2p_trial trial = { .read_host = read_host,
				      .read_gpu = read_gpu,
				      .arg = &reader,
				      .size = (int64_t)f->bytes,
				      .align = f->block_bytes,
				      .zeros_tell = true };
	int result;

	if (pl_nvme_lane_take(f->shared, &reader.lane))
		return -1;
	result = pl_p2p_trial_run(ctx, &trial, gpu);
	pl_nvme_lane_give(f->shared, reader.lane);
	pl_log(ctx, result ? 2 : 0, "p2p: test of %s and GPU %d: %s", f->shared->address, gpu,
	       pl_p2p_trial_word(result));
	return result;
}

/* Whether the way to the GPU of @pin is good; -1: that cannot be told now. */
static int good_way(struct peerlane *ctx, const struct pl_nvme_file *f,
		    const struct pl_p2p_pin *pin, int gpu)
{
	struct pl_nvme_route *r = f->shared->routes;
	int result;

	while (r && r->gpu_pci != pin->gpu_pci)
		r = r->next;
	if (r)
		return r->good;
	result = test(ctx, f, gpu);
	r = result < 0 ? NULL : malloc(sizeof(*r));
	if (!r)
		return result;
	*r = (struct pl_nvme_route){ .next = f->shared->routes,
				     .gpu_pci = pin->gpu_pci,
				     .good = result };
	f->shared->routes = r;
	return result;
}

/* --- maps of buffers --- */

static void say_map(struct pl_nvme_ref *ref, int err)
{
	if (err != -EOPNOTSUPP)
		SAY(ref, "see dmesg", "the memory could not be mapped for the controller: %s",
		    strerrordesc_np(-err));
	else if (!by_module(ref->shared))
		SAY(ref, "give it to the module: peerlane nvme bind --driver kmod",
		    "the module peerlane_nvme does not have the controller: so it reaches no GPU "
		    "memory");
	else
		SAY(ref, "put both below one switch, or load peerlane with pages=generic",
		    "the kernel does not allow transfers between this controller and GPU, or "
		    "bounces them");
}

/* Simulated memory is host memory, for a controller that is simulated, too. */
static void reach_simulated(struct pl_nvme_ref *ref)
{
	struct peerlane_nvme_memory memory = {
		.size = sizeof(memory),
		.flags = PEERLANE_NVME_MEMORY_GPU,
		.ptr = (void *)ref->buf->addr,
		.bytes = ref->buf->bytes,
		.cpu = peerlane_sim_host((void *)ref->buf->addr),
		.pin_fd = -1,
	};

	if (!memory.cpu || peerlane_nvme_map(ref->shared->nvme, &memory, &ref->map)) {
		ref->map = NULL;
		SAY(ref, "", "the transport cannot map this memory for the controller");
	}
}

static void unmap(struct pl_nvme_ref *ref)
{
	peerlane_nvme_unmap(ref->map);
	ref->map = NULL;
	pl_p2p_pin_undo(&ref->ctx->p2p, &ref->pin);
}

static void reach_pinned(struct pl_nvme_ref *ref, const struct pl_nvme_file *f)
{
	struct peerlane *ctx = ref->ctx;
	int err, good;

	if (pl_p2p_pin_apart(ctx, ref->buf, &ref->pin, &ref->words))
		return;
	err = map_pin(ctx, f, &ref->pin, &ref->map);
	if (err) {
		ref->map = NULL;
		say_map(ref, err);
		unmap(ref);
		return;
	}
	good = good_way(ctx, f, &ref->pin, ref->buf->mem.gpu);
	if (good > 0 || (good < 0 && ref->pin.page_kind != PEERLANE_PAGES_GENERIC))
		return;
	if (good == 0)
		SAY(ref, PL_P2P_TRIAL_FIX, PL_P2P_TRIAL_FAILED);
	else
		SAY(ref, "", "this controller and GPU could not be tested yet");
	unmap(ref);
}

static void reach(struct pl_nvme_ref *ref, const struct pl_nvme_file *f)
{
	ref->lost = false;
	ref->tried_ns = pl_now_ns();
	SAY(ref, "", "the controller moves the data by DMA");
	if (is_simulated(ref->ctx))
		reach_simulated(ref);
	else
		reach_pinned(ref, f);
}

static struct pl_nvme_ref *find(const struct pl_nvme_file *f, const struct pl_buffer *buf)
{
	struct pl_nvme_ref *ref = buf->nvme;

	while (ref && ref->shared != f->shared)
		ref = ref->next_of_buf;
	return ref;
}

static struct pl_nvme_ref *make(struct peerlane *ctx, const struct pl_nvme_file *f,
				struct pl_buffer *buf)
{
	struct pl_nvme_ref *ref = calloc(1, sizeof(*ref));

	if (!ref)
		return NULL;
	ref->shared = f->shared;
	ref->ctx = ctx;
	ref->buf = buf;
	reach(ref, f);
	ref->next_of_buf = buf->nvme;
	buf->nvme = ref;
	ref->next_of_ctrl = f->shared->refs;
	f->shared->refs = ref;
	return ref;
}

/* Makes anew what is lost, if only the caller uses it, and what could not be had some time ago. */
static void refresh(struct pl_nvme_ref *ref, const struct pl_nvme_file *f)
{
	if (ref->lost && __atomic_load_n(&ref->buf->users, __ATOMIC_ACQUIRE) > 1)
		return;
	if (!ref->lost && (ref->map || pl_now_ns() - ref->tried_ns < RETRY_NS))
		return;
	unmap(ref);
	reach(ref, f);
}

struct peerlane_nvme_map *pl_nvme_reach(struct peerlane *ctx, const struct pl_nvme_file *f,
					struct pl_buffer *buf, struct peerlane_verdict *out)
{
	struct peerlane_nvme_map *map = NULL;
	struct pl_nvme_ref *ref;

	pthread_mutex_lock(&pl_nvme_table_lock);
	ref = find(f, buf);
	if (ref)
		refresh(ref, f);
	else
		ref = make(ctx, f, buf);
	if (ref && !ref->lost)
		map = ref->map;
	if (ref && out) {
		pl_text(out->reason, sizeof(out->reason), "%s",
			ref->lost ? "memory of the GPU was freed: it must be mapped anew"
				  : ref->words.reason);
		pl_text(out->fix, sizeof(out->fix), "%s", ref->lost ? "" : ref->words.fix);
	}
	pthread_mutex_unlock(&pl_nvme_table_lock);
	return map;
}

void pl_nvme_reach_lost(const struct pl_nvme_file *f, struct pl_buffer *buf)
{
	struct pl_nvme_ref *ref;

	pthread_mutex_lock(&pl_nvme_table_lock);
	ref = find(f, buf);
	if (ref)
		ref->lost = true;
	pthread_mutex_unlock(&pl_nvme_table_lock);
}

static void unlink_from_buf(struct pl_nvme_ref *ref)
{
	struct pl_nvme_ref **at = &ref->buf->nvme;

	while (*at != ref)
		at = &(*at)->next_of_buf;
	*at = ref->next_of_buf;
}

static void unlink_from_ctrl(struct pl_nvme_ref *ref)
{
	struct pl_nvme_ref **at = &ref->shared->refs;

	while (*at != ref)
		at = &(*at)->next_of_ctrl;
	*at = ref->next_of_ctrl;
}

static void drop(struct pl_nvme_ref *ref)
{
	unmap(ref);
	free(ref);
}

void pl_nvme_reach_forget(struct pl_buffer *buf)
{
	struct pl_nvme_ref *ref;

	if (!buf->nvme || buf->nvme->shared->pid != getpid())
		return;
	pthread_mutex_lock(&pl_nvme_table_lock);
	while ((ref = buf->nvme)) {
		buf->nvme = ref->next_of_buf;
		unlink_from_ctrl(ref);
		drop(ref);
	}
	pthread_mutex_unlock(&pl_nvme_table_lock);
}

void pl_nvme_reach_end(struct pl_nvme_shared *s)
{
	struct pl_nvme_ref *ref;
	struct pl_nvme_route *r;

	while ((ref = s->refs)) {
		s->refs = ref->next_of_ctrl;
		unlink_from_buf(ref);
		drop(ref);
	}
	while ((r = s->routes)) {
		s->routes = r->next;
		free(r);
	}
}
