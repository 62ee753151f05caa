// SPDX-License-Identifier: MIT
/* The context: options, opening, closing, the log and the check every call begins with. */
#include "context.h"

#include "file.h"
#include "ring.h"
#include "stream.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MIB (1024ul * 1024)
#define KNOWN_FLAGS                                                                                \
	(PEERLANE_NO_IO_URING | PEERLANE_NO_IN_PLACE | PEERLANE_NO_DIRECT | PEERLANE_NO_MAPPED |   \
	 PEERLANE_SAVE_CPU | PEERLANE_NO_KERNELS | PEERLANE_NO_MAPPED_WRITE | PEERLANE_NO_AHEAD |  \
	 PEERLANE_NO_P2P | PEERLANE_WAIT_DEFAULT | PEERLANE_NO_WAIT_DEFAULT)

uint64_t pl_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

void pl_log(struct peerlane *ctx, int level, const char *fmt, ...)
{
	char text[256];
	va_list ap;

	if (!ctx->opt.log || level > ctx->opt.log_level)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	ctx->opt.log(ctx->opt.log_arg, level, text);
}

int pl_context_check(const struct peerlane *ctx)
{
	if (!ctx)
		return pl_fail(-EINVAL, "the context is NULL");
	if (!*ctx->alive)
		return pl_fail(
			-EOWNERDEAD,
			"the context belongs to the parent process: open a new one after fork");
	return 0;
}

/* --- options --- */

static const struct {
	const char *word;
	unsigned int flag;
} flag_words[] = {
	{ "no-io-uring", PEERLANE_NO_IO_URING },
	{ "no-in-place", PEERLANE_NO_IN_PLACE },
	{ "no-direct", PEERLANE_NO_DIRECT },
	{ "no-mapped", PEERLANE_NO_MAPPED },
	{ "save-cpu", PEERLANE_SAVE_CPU },
	{ "no-kernels", PEERLANE_NO_KERNELS },
	{ "no-mapped-write", PEERLANE_NO_MAPPED_WRITE },
	{ "no-ahead", PEERLANE_NO_AHEAD },
	{ "no-p2p", PEERLANE_NO_P2P },
	{ "wait-default", PEERLANE_WAIT_DEFAULT },
	{ "no-wait-default", PEERLANE_NO_WAIT_DEFAULT },
};

static int flags_from_env(unsigned int *flags)
{
	const char *p = getenv("PEERLANE_FLAGS");

	while (p && *p) {
		size_t len = strcspn(p, ","), i;

		for (i = 0; i < sizeof(flag_words) / sizeof(flag_words[0]); i++)
			if (strlen(flag_words[i].word) == len &&
			    !strncmp(p, flag_words[i].word, len))
				break;
		if (len && i == sizeof(flag_words) / sizeof(flag_words[0]))
			return pl_fail(-EINVAL, "PEERLANE_FLAGS: unknown word \"%.*s\"", (int)len,
				       p);
		if (len)
			*flags |= flag_words[i].flag;
		p += len;
		p += *p == ',';
	}
	return 0;
}

/* A number of the environment with an optional K, M or G, if @value is still 0. */
static int number_from_env(const char *name, uint64_t *value)
{
	const char *text = getenv(name);
	unsigned int shift = 0;
	char *end;

	if (*value || !text || !*text)
		return 0;
	errno = 0;
	*value = strtoull(text, &end, 10);
	switch (*end) {
	case 'K':
		shift = 10;
		break;
	case 'M':
		shift = 20;
		break;
	case 'G':
		shift = 30;
		break;
	default:
		break;
	}
	end += shift != 0;
	if (errno || *end || !*value || *text == '-' || *value > UINT64_MAX >> shift)
		return pl_fail(-EINVAL, "%s: \"%s\" is not a positive number", name, text);
	*value <<= shift;
	return 0;
}

static int limit(const char *what, uint64_t value, uint64_t min, uint64_t max)
{
	if (value < min || value > max)
		return pl_fail(-EINVAL, "%s is %llu; it must be %llu to %llu", what,
			       (unsigned long long)value, (unsigned long long)min,
			       (unsigned long long)max);
	return 0;
}

static unsigned int default_threads(void)
{
	unsigned int cpus = pl_nr_cpus();

	/* Calling threads work too, and where there are several they must not be kept from their CPUs: what one of them
	 * waits for, others do. More than a dozen only get in each other's way. */
	if (cpus <= 2)
		return 1;
	if (cpus < 10)
		return cpus * 3 / 4 < 6 ? cpus * 3 / 4 : 6;
	return cpus * 5 / 8 < 12 ? cpus * 5 / 8 : 12;
}

static int fill_options(struct peerlane_options *o)
{
	uint64_t pool = o->pool_bytes, slot = o->slot_bytes, threads = o->nr_threads,
		 depth = o->queue_depth, timeout = o->timeout_ms;
	bool any_slot = !slot && !getenv("PEERLANE_SLOT_BYTES");
	int err = flags_from_env(&o->flags);

	if (!err && (o->flags & ~KNOWN_FLAGS))
		err = pl_fail(-EINVAL, "unknown flags %#x in the options", o->flags & ~KNOWN_FLAGS);
	if (!err)
		err = number_from_env("PEERLANE_POOL_BYTES", &pool);
	if (!err)
		err = number_from_env("PEERLANE_SLOT_BYTES", &slot);
	if (!err)
		err = number_from_env("PEERLANE_THREADS", &threads);
	if (!err)
		err = number_from_env("PEERLANE_QUEUE_DEPTH", &depth);
	if (!err)
		err = number_from_env("PEERLANE_TIMEOUT_MS", &timeout);
	if (err)
		return err;
	pool = pool ? pool : 128 * MIB;
	slot = slot ? slot : 512 * 1024;
	threads = threads ? threads : default_threads();
	depth = depth ? depth : 32;
	timeout = timeout ? timeout : 60000;
	if ((err = limit("pool_bytes", pool, MIB, 1ull << 40)) ||
	    (err = limit("slot_bytes", slot, 64 * 1024, 16 * MIB)) ||
	    (err = limit("nr_threads", threads, 1, 256)) ||
	    (err = limit("queue_depth", depth, 1, 4096)) ||
	    (err = limit("timeout_ms", timeout, 1, 86400000)))
		return err;
	if (slot & (slot - 1))
		return pl_fail(-EINVAL, "slot_bytes is %llu; it must be a power of two",
			       (unsigned long long)slot);
	if (any_slot)
		while (slot > pool / 16 && slot > 64 * 1024)
			slot /= 2;
	o->pool_bytes = pool;
	o->slot_bytes = slot;
	o->nr_threads = (unsigned int)threads;
	o->queue_depth = (unsigned int)depth;
	o->timeout_ms = (unsigned int)timeout;
	if (!o->log_level)
		o->log_level = 1;
	if (!o->backend || !*o->backend)
		o->backend = getenv("PEERLANE_BACKEND");
	return 0;
}

/* --- opening and closing --- */

static int open_parts(struct peerlane *ctx)
{
	int err;

	ctx->alive = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (ctx->alive == MAP_FAILED) {
		ctx->alive = NULL;
		return pl_fail(-ENOMEM, "no memory for a context");
	}
	madvise(ctx->alive, 4096, MADV_WIPEONFORK);
	*ctx->alive = 1;
	err = pl_gpu_open(&ctx->gpu, ctx->opt.backend, ctx->gpu_why, sizeof(ctx->gpu_why));
	if (err)
		return pl_fail(err, "%s", ctx->gpu_why);
	ctx->opt.backend = ctx->gpu->ops->name;
	ctx->gpu->no_kernels = ctx->opt.flags & PEERLANE_NO_KERNELS;
	err = pl_stats_init(&ctx->stats, ctx->gpu->ops->name);
	if (err)
		goto err_gpu;
	err = pl_pool_init(&ctx->pool, ctx->opt.pool_bytes, ctx->opt.slot_bytes);
	if (err) {
		pl_fail(err, "slot_bytes is more than half of pool_bytes");
		goto err_stats;
	}
	err = pl_workers_init(ctx, &ctx->workers, ctx->opt.nr_threads, "peerlane");
	if (err)
		goto err_pool;
	err = pl_workers_init(ctx, &ctx->stream_workers, pl_stream_threads(), "peerlane-stream");
	if (err)
		goto err_workers;
	err = pl_buffers_init(&ctx->buffers);
	if (err)
		goto err_stream_workers;
	if (ctx->gpu->ops->prepare)
		ctx->gpu->ops->prepare(ctx->gpu, NULL);
	pl_ctx_stats(ctx)->pool_limit = ctx->opt.pool_bytes;
	ctx->ring_why = ctx->opt.flags & PEERLANE_NO_IO_URING
				? "io_uring was switched off by the options"
				: pl_ring_refused();
	if (ctx->ring_why && !(ctx->opt.flags & PEERLANE_NO_IO_URING))
		pl_log(ctx, 1, "%s: using threads instead", ctx->ring_why);
	pl_p2p_init(&ctx->p2p);
	pl_watcher_init(&ctx->watcher);
	pl_convoys_init(&ctx->convoys);
	pthread_mutex_init(&ctx->files_lock, NULL);
	pthread_mutex_init(&ctx->streams_lock, NULL);
	return 0;

err_stream_workers:
	pl_workers_fini(&ctx->stream_workers);
err_workers:
	pl_workers_fini(&ctx->workers);
err_pool:
	pl_pool_fini(ctx);
err_stats:
	pl_stats_fini(&ctx->stats);
err_gpu:
	ctx->gpu->ops->close(ctx->gpu);
	return err;
}

int peerlane_open(struct peerlane **out, const struct peerlane_options *opt)
{
	PL_KEEP_ERRNO;
	struct peerlane *ctx;
	int err;

	if (!out)
		return pl_fail(-EINVAL, "the result pointer is NULL");
	if (opt && opt->size != sizeof(*opt))
		return pl_fail(-EINVAL, "the options' size is %zu; this library knows %zu",
			       opt->size, sizeof(*opt));
	ctx = calloc(1, sizeof(*ctx));
	if (!ctx)
		return pl_fail(-ENOMEM, "no memory for a context");
	if (opt)
		ctx->opt = *opt;
	err = fill_options(&ctx->opt);
	if (!err)
		err = open_parts(ctx);
	if (err || !ctx->gpu) {
		if (ctx->alive)
			munmap(ctx->alive, 4096);
		free(ctx);
		return err;
	}
	pl_log(ctx, 2, "context open: back end %s, pool %zu MiB, %u threads, %s",
	       ctx->gpu->ops->name, ctx->opt.pool_bytes / MIB, ctx->opt.nr_threads,
	       ctx->ring_why ? "no io_uring" : "io_uring");
	*out = ctx;
	return 0;
}

/* In a forked child: threads and driver are the parent's, only memory is ours to free. */
static void abandon(struct peerlane *ctx)
{
	pl_files_fini(ctx);
	pl_watcher_fini(&ctx->watcher);
	pl_pool_abandon(&ctx->pool);
	pl_convoys_fini(ctx, true);
	pl_p2p_abandon(&ctx->p2p);
	pl_buffers_fini(&ctx->buffers);
	pl_stats_fini(&ctx->stats);
	ctx->gpu->ops->abandon(ctx->gpu);
	free(ctx->workers.threads);
	free(ctx->stream_workers.threads);
	munmap(ctx->alive, 4096);
	free(ctx);
}

/*
 * A stream has still to come to a request of a context that is being closed. It will look at the
 * request, its file and the context, and then wait for a word in pinned memory: those stay for
 * ever. The list only keeps them in sight of leak checkers.
 */
static void leave_behind(struct peerlane *ctx)
{
	static struct peerlane *left;

	__atomic_store_n(&ctx->closed, true, __ATOMIC_RELEASE);
	pl_log(ctx, 0, "closed with requests left on a stream: they will be cancelled");
	pl_workers_stop(&ctx->stream_workers);
	pl_workers_stop(&ctx->workers);
	ctx->next = __atomic_exchange_n(&left, ctx, __ATOMIC_ACQ_REL);
}

void peerlane_close(struct peerlane *ctx)
{
	PL_KEEP_ERRNO;
	if (!ctx)
		return;
	if (!*ctx->alive) {
		abandon(ctx);
		return;
	}
	if (!pl_streams_fini(ctx)) {
		leave_behind(ctx);
		return;
	}
	pl_workers_stop(&ctx->stream_workers);
	pl_workers_stop(&ctx->workers);
	/* Files may still have crews among them. */
	pl_files_fini(ctx);
	pl_workers_fini(&ctx->stream_workers);
	pl_workers_fini(&ctx->workers);
	pl_watcher_fini(&ctx->watcher);
	pl_pool_fini(ctx);
	pl_convoys_fini(ctx, false);
	/* Buffers before the module: they may be pinned for NVMe controllers. */
	pl_buffers_fini(&ctx->buffers);
	pl_p2p_fini(&ctx->p2p);
	ctx->gpu->ops->close(ctx->gpu);
	pl_stats_fini(&ctx->stats);
	pthread_mutex_destroy(&ctx->streams_lock);
	pthread_mutex_destroy(&ctx->files_lock);
	munmap(ctx->alive, 4096);
	free(ctx);
}

const char *peerlane_backend(const struct peerlane *ctx)
{
	return ctx ? ctx->gpu->ops->name : "none";
}

int peerlane_stats_get(struct peerlane *ctx, struct peerlane_stats *out)
{
	PL_KEEP_ERRNO;
	int err = pl_context_check(ctx);

	if (err)
		return err;
	if (!out || out->size != sizeof(*out))
		return pl_fail(-EINVAL, "the statistics struct is NULL or of an unknown size");
	/* Counters move meanwhile; each 64-bit word is read whole. */
	for (size_t i = 0; i < sizeof(*out) / sizeof(uint64_t); i++)
		((uint64_t *)out)[i] =
			__atomic_load_n((uint64_t *)pl_ctx_stats(ctx) + i, __ATOMIC_RELAXED);
	out->size = sizeof(*out);
	return 0;
}
