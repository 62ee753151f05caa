/* SPDX-License-Identifier: MIT */
/* One thread of a load. */
#include "loader.h"

#include "progress.h"
#include "stop.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ALIGN 4096u
#define POISON 0xa5

struct call {
	uint64_t offset;
	size_t bytes; /* what must come or go */
};

struct pl_loader_slot {
	struct call call;
	uint64_t start_ns;
	char *memory;
};

size_t pl_loader_stride(const struct pl_load *load)
{
	return (load->call_bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

__attribute__((format(printf, 3, 4))) static void fail(struct pl_loader_pass *pass, int err,
						       const char *fmt, ...)
{
	int none = 0;
	va_list ap;

	if (!__atomic_compare_exchange_n(&pass->err, &none, err, 0, __ATOMIC_RELAXED,
					 __ATOMIC_RELAXED))
		return;
	va_start(ap, fmt);
	vsnprintf(pass->error, sizeof(pass->error), fmt, ap);
	va_end(ap);
}

/* The next call of the pass; false when there is none, time is up or something failed. */
static bool take(struct pl_loader_pass *pass, uint64_t now_ns, struct call *call)
{
	const struct pl_load *load = pass->load;
	uint64_t i, blocks;

	if (pl_stop_requested() || __atomic_load_n(&pass->err, __ATOMIC_RELAXED) ||
	    (pass->deadline_ns && now_ns >= pass->deadline_ns))
		return false;
	i = __atomic_fetch_add(&pass->next, 1, __ATOMIC_RELAXED);
	if (i >= pass->nr_calls)
		return false;
	if (load->random) {
		blocks = load->file_bytes / load->call_bytes;
		i = pl_pattern_hash(i ^ load->seed) % (blocks ? blocks : 1);
	} else {
		i %= (load->file_bytes + load->call_bytes - 1) / load->call_bytes;
	}
	call->offset = i * load->call_bytes;
	call->bytes = (size_t)load->call_bytes;
	if (load->file_bytes - call->offset < call->bytes)
		call->bytes = (size_t)(load->file_bytes - call->offset);
	return true;
}

static bool account(struct pl_loader *l, const struct call *call, ssize_t result, uint64_t ns)
{
	const char *what = l->pass->load->op == PEERLANE_READ ? "read" : "write";
	unsigned long long at = call->offset;

	if (result < 0) {
		fail(l->pass, (int)result, "%s of %zu bytes at %llu: %s", what, call->bytes, at,
		     l->pass->load->plain ? strerror((int)-result)
					  : pl_session_reason((int)result).text);
		return false;
	}
	if ((size_t)result < call->bytes) {
		fail(l->pass, -EIO, "%s of %zu bytes at %llu: only %zd came through", what,
		     call->bytes, at, result);
		return false;
	}
	pl_latency_add(&l->latency, ns);
	l->calls++;
	__atomic_store_n(&l->bytes, l->bytes + call->bytes, __ATOMIC_RELAXED);
	return true;
}

/* Makes sure that right data cannot be left over from before. */
static void poison(struct pl_loader *l, char *memory, const struct call *call)
{
	const struct pl_load *load = l->pass->load;
	int err;

	if (!load->verify || load->op != PEERLANE_READ)
		return;
	memset(l->scratch, POISON, call->bytes);
	err = peerlane_gpu_copy(load->session->ctx, memory, l->scratch, call->bytes);
	if (err)
		fail(l->pass, err, "verify: copy to the GPU: %s", pl_session_reason(err).text);
}

static void verify(struct pl_loader *l, char *memory, const struct call *call)
{
	const struct pl_load *load = l->pass->load;
	const char *want = load->pattern->host + pl_pattern_start(call->offset);
	size_t i = 0;
	int err;

	if (!load->verify || load->op != PEERLANE_READ)
		return;
	err = peerlane_gpu_copy(load->session->ctx, l->scratch, memory, call->bytes);
	if (err) {
		fail(l->pass, err, "verify: copy from the GPU: %s", pl_session_reason(err).text);
		return;
	}
	if (!memcmp(l->scratch, want, call->bytes))
		return;
	while (l->scratch[i] == want[i])
		i++;
	fail(l->pass, -EBADMSG, "verify: wrong data at byte %llu of the file",
	     (unsigned long long)call->offset + i);
}

static ssize_t plain_call(const struct pl_load *load, char *memory, const struct call *call)
{
	size_t want = call->bytes, done = 0;

	/* O_DIRECT takes whole blocks; the file ends where it ends. */
	if (load->direct)
		want = (want + ALIGN - 1) & ~(size_t)(ALIGN - 1);
	while (done < call->bytes) {
		off_t at = (off_t)(call->offset + done);
		ssize_t n = load->op == PEERLANE_READ
				    ? pread(load->fd, memory + done, want - done, at)
				    : pwrite(load->fd, memory + done, want - done, at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (!n)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

static char *memory_of(const struct pl_loader *l, const struct call *call, char *own)
{
	const struct pl_load *load = l->pass->load;
	char *image = load->plain ? load->pattern->host : load->pattern->gpu;

	return load->op == PEERLANE_READ ? own : image + pl_pattern_start(call->offset);
}

static void run_calls(struct pl_loader *l)
{
	const struct pl_load *load = l->pass->load;
	unsigned int flags = load->durable ? PEERLANE_DURABLE : 0;
	uint64_t now = pl_progress_now();
	struct call call;

	while (take(l->pass, now, &call)) {
		char *memory = memory_of(l, &call, l->memory);
		uint64_t start = now;
		ssize_t n;

		if (load->verify) {
			poison(l, memory, &call);
			start = pl_progress_now();
		}
		if (load->plain)
			n = plain_call(load, memory, &call);
		else if (load->op == PEERLANE_READ)
			n = peerlane_read(load->file, memory, call.bytes, (off_t)call.offset);
		else
			n = peerlane_write(load->file, memory, call.bytes, (off_t)call.offset,
					   flags);
		now = pl_progress_now();
		if (!account(l, &call, n, now - start))
			return;
		verify(l, memory, &call);
	}
}

/* Fills idle slots with calls; returns how many requests that makes. */
static unsigned int fill(struct pl_loader *l, unsigned int *idle, unsigned int *nr_idle,
			 struct peerlane_io *ios, uint64_t now)
{
	const struct pl_load *load = l->pass->load;
	unsigned int nr = 0;
	struct call call;

	while (*nr_idle && take(l->pass, now, &call)) {
		unsigned int i = idle[--*nr_idle];
		struct pl_loader_slot *s = &l->slots[i];

		s->call = call;
		s->start_ns = now;
		ios[nr++] = (struct peerlane_io){
			.file = load->file,
			.addr = memory_of(l, &call, s->memory),
			.bytes = call.bytes,
			.offset = (off_t)call.offset,
			.op = load->op,
			.flags = load->durable ? PEERLANE_DURABLE : 0,
			.cookie = (void *)(uintptr_t)i,
		};
		poison(l, s->memory, &call);
	}
	return nr;
}

static void run_batch(struct pl_loader *l, unsigned int *idle, struct peerlane_io *ios,
		      struct peerlane_event *events)
{
	unsigned int depth = l->pass->load->batch, nr_idle = depth, nr;
	uint64_t now = pl_progress_now();
	int got;

	for (unsigned int i = 0; i < depth; i++)
		idle[i] = i;
	for (;;) {
		nr = fill(l, idle, &nr_idle, ios, now);
		got = nr ? peerlane_batch_submit(l->batch, ios, nr) : 0;
		if (!got && nr_idle == depth)
			return;
		if (!got)
			got = peerlane_batch_wait(l->batch, depth - nr_idle, events, depth, NULL);
		if (got < 0) {
			fail(l->pass, got, "batch: %s", pl_session_reason(got).text);
			return;
		}
		now = pl_progress_now();
		for (int i = 0; i < got; i++) {
			unsigned int done = (unsigned int)(uintptr_t)events[i].cookie;
			struct pl_loader_slot *s = &l->slots[done];

			if (account(l, &s->call, events[i].result, now - s->start_ns))
				verify(l, s->memory, &s->call);
			idle[nr_idle++] = done;
		}
	}
}

static void run_batches(struct pl_loader *l)
{
	size_t depth = l->pass->load->batch;
	unsigned int *idle = calloc(depth, sizeof(*idle));
	struct peerlane_io *ios = calloc(depth, sizeof(*ios));
	struct peerlane_event *events = calloc(depth, sizeof(*events));

	if (idle && ios && events)
		run_batch(l, idle, ios, events);
	else
		fail(l->pass, -ENOMEM, "out of memory");
	free(idle);
	free(ios);
	free(events);
}

/* Touches new GPU memory, so that a simulated one does not come page by page while timed. */
static int touch(const struct pl_load *load, char *memory, size_t bytes)
{
	int err = 0;

	for (size_t at = 0; at < bytes && !err; at += load->pattern->bytes) {
		size_t left = bytes - at;

		err = peerlane_gpu_copy(load->session->ctx, memory + at, load->pattern->host,
					left < load->pattern->bytes ? left : load->pattern->bytes);
	}
	return err;
}

/* Memory that reads go to, in the host for plain ones. */
static int prepare_memory(struct pl_loader *l)
{
	const struct pl_load *load = l->pass->load;
	size_t bytes = pl_loader_stride(load) * (load->batch && !load->plain ? load->batch : 1);
	void *memory = NULL;
	int err;

	if (load->op != PEERLANE_READ)
		return 0;
	if (load->plain) {
		err = posix_memalign(&memory, ALIGN, bytes) ? -ENOMEM : 0;
		if (!err)
			memset(memory, 0, bytes);
	} else {
		err = peerlane_gpu_alloc(load->session->ctx, load->session->gpu, bytes, &memory);
		if (!err)
			err = peerlane_buffer_register(load->session->ctx, memory, bytes, 0);
		if (!err)
			err = touch(load, memory, bytes);
	}
	l->memory = memory;
	if (err)
		fail(l->pass, err, "no memory for %zu bytes to read: %s", bytes,
		     pl_session_reason(err).text);
	return err;
}

static void prepare(struct pl_loader *l)
{
	const struct pl_load *load = l->pass->load;
	void *scratch = NULL;
	int err = prepare_memory(l);

	if (err)
		return;
	if (load->verify) {
		err = posix_memalign(&scratch, ALIGN, pl_loader_stride(load)) ? -ENOMEM : 0;
		l->scratch = scratch;
	}
	if (!err && load->batch && !load->plain) {
		l->slots = calloc(load->batch, sizeof(*l->slots));
		err = l->slots ? peerlane_batch_create(load->session->ctx, load->batch, &l->batch)
			       : -ENOMEM;
	}
	for (unsigned int i = 0; !err && l->slots && l->memory && i < load->batch; i++)
		l->slots[i].memory = l->memory + i * pl_loader_stride(load);
	if (err)
		fail(l->pass, err, "cannot prepare a thread: %s", pl_session_reason(err).text);
}

static void clean_up(struct pl_loader *l)
{
	const struct pl_load *load = l->pass->load;

	peerlane_batch_destroy(l->batch);
	if (load->plain) {
		free(l->memory);
	} else if (l->memory) {
		peerlane_buffer_release(load->session->ctx, l->memory);
		peerlane_gpu_free(load->session->ctx, l->memory);
	}
	free(l->scratch);
	free(l->slots);
}

void *pl_loader_main(void *loader)
{
	struct pl_loader *l = loader;

	pthread_mutex_lock(&l->pass->gate);
	pthread_mutex_unlock(&l->pass->gate);
	prepare(l);
	pthread_barrier_wait(&l->pass->ready);
	pthread_barrier_wait(&l->pass->go);
	if (!__atomic_load_n(&l->pass->err, __ATOMIC_RELAXED)) {
		if (l->batch)
			run_batches(l);
		else
			run_calls(l);
	}
	l->end_ns = pl_progress_now();
	pthread_mutex_lock(&l->pass->gate);
	if (!--l->pass->running)
		pthread_cond_signal(&l->pass->idle);
	pthread_mutex_unlock(&l->pass->gate);
	pthread_barrier_wait(&l->pass->over);
	clean_up(l);
	return NULL;
}
