// SPDX-License-Identifier: MIT
/*
 * Thousands of random reads and writes against a model of plain POSIX files: a byte array for each
 * part of the file, and one for each piece of memory. Every count and every byte is compared, also
 * those around what was asked for.
 *
 * PEERLANE_TEST_SEED repeats a run, as far as threads allow; PEERLANE_TEST_SECONDS makes it longer.
 */
#include <peerlane/gpu.h>
#include <peerlane/peerlane.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define KIB 1024ul
#define MIB (1024 * KIB)
#define THREADS 4
#define SHARED_BYTES (2 * MIB + 12288) /* at the start: written by nobody */
#define REGION_BYTES (3 * MIB)	       /* of the file, for each thread */
#define MEM_BYTES (REGION_BYTES + 64 * KIB)
#define MAX_PIECES 9
#define TURNS 4

/* One way to open a context. */
struct setting {
	const char *name;
	const char *env[2]; /* name, value */
	struct peerlane_options opt;
};

static const struct setting settings[] = {
	{ .name = "default" },
	{ .name = "no-io-uring", .opt = { .flags = PEERLANE_NO_IO_URING } },
	{ .name = "no-direct", .opt = { .flags = PEERLANE_NO_DIRECT } },
	{ .name = "mapped GPU memory", .env = { "PEERLANE_SIM_BAR", "1" } },
	{ .name = "slow copies", .env = { "PEERLANE_SIM_ASYNC", "100" } },
	{ .name = "1 MiB pool", .opt = { .pool_bytes = MIB, .nr_threads = 4 } },
	{ .name = "64 KiB slots",
	  .env = { "PEERLANE_SIM_ASYNC", "1" },
	  .opt = { .slot_bytes = 64 * KIB, .nr_threads = 3, .queue_depth = 4 } },
};

/* A piece of memory and what should be in it. */
struct mem {
	char *addr; /* for the library */
	char *see;  /* for us */
	char *model;
};

struct worker {
	unsigned int id;
	uint64_t rng;
	uint64_t ops;
	struct peerlane *ctx;
	struct peerlane_file *files[2]; /* buffered, O_DIRECT */
	struct peerlane_batch *batch;
	void *stream;
	int fd;		    /* plain */
	struct mem mems[2]; /* GPU, host */
	char *file;	    /* what should be in our part of the file */
	size_t size;	    /* how much of it is there; less than the whole only in the last part */
	bool last;
	char what[200];
	pthread_t thread;
};

/* One request and what it should give. */
struct want {
	struct mem *mem;
	size_t at; /* in the memory */
	size_t bytes;
	size_t offset; /* in our part, or in the shared part */
	bool shared;
	enum peerlane_op op;
	ssize_t count;
};

static char dir[128], path[160];
static uint64_t seed;
static double until;
static char *shared;
static struct worker workers[THREADS];
static const char *setting_name;
static bool no_direct; /* the file system has none */
/* Which handle all threads use now. Linux does not keep the page cache and O_DIRECT together where
 * one program writes both ways at the same time, so the two take turns. */
static int direct_now;
static bool never_direct; /* in this setting */

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void clean_up(void)
{
	unlink(path);
	rmdir(dir);
}

static void too_long(int sig)
{
	static const char text[] = "FAIL: hangs\n";

	(void)sig;
	(void)!write(1, text, sizeof(text) - 1);
	for (int i = 0; i < THREADS; i++) {
		(void)!write(1, workers[i].what, strlen(workers[i].what));
		(void)!write(1, "\n", 1);
	}
	clean_up();
	_exit(1);
}

static void fail(struct worker *w, const char *text, long long a, long long b)
{
	struct peerlane_error_info info = { .size = sizeof(info) };

	peerlane_error(&info);
	printf("FAIL thread %u, request %llu, setting \"%s\": %s: %lld, not %lld\n  %s\n"
	       "  last error: %d %s\nPEERLANE_TEST_SEED=%llu\n",
	       w->id, (unsigned long long)w->ops, setting_name, text, a, b, w->what, info.err,
	       info.text, (unsigned long long)seed);
	fflush(stdout);
	clean_up();
	_exit(1);
}

/* --- chance --- */

static uint32_t roll(struct worker *w)
{
	w->rng ^= w->rng << 13;
	w->rng ^= w->rng >> 7;
	w->rng ^= w->rng << 17;
	return (uint32_t)(w->rng >> 32);
}

static size_t below(struct worker *w, size_t n)
{
	return n ? roll(w) % n : 0;
}

/* A length up to @max: often small, often near something round. */
static size_t some_bytes(struct worker *w, size_t max)
{
	static const size_t round[] = { 512, 4096, 8192, 65536, 131072, 524288, MIB };
	size_t n;

	switch (roll(w) % 8) {
	case 0:
		n = below(w, 10);
		break;
	case 1:
	case 2:
		n = round[below(w, 7)];
		break;
	case 3:
		n = round[below(w, 7)] + below(w, 5) - 2;
		break;
	case 4:
		n = below(w, max + 1);
		break;
	case 5:
		n = below(w, 64 * KIB);
		break;
	default:
		n = below(w, 6000);
		break;
	}
	return n < max ? n : max;
}

static size_t some_place(struct worker *w, size_t max)
{
	size_t at = below(w, max + 1);

	switch (roll(w) % 4) {
	case 0:
		return at & ~4095ul;
	case 1:
		return at & ~511ul;
	default:
		return at;
	}
}

static void fill(struct worker *w, char *mem, size_t bytes)
{
	uint64_t x = (uint64_t)roll(w) << 32 | roll(w);

	for (size_t i = 0; i < bytes; i += 8) {
		x = x * 6364136223846793005u + 1442695040888963407u;
		memcpy(mem + i, &x, bytes - i < 8 ? bytes - i : 8);
	}
}

/* --- the model --- */

static off_t region(const struct worker *w)
{
	return (off_t)(SHARED_BYTES + w->id * REGION_BYTES);
}

static off_t position(const struct worker *w, const struct want *q)
{
	return (q->shared ? 0 : region(w)) + (off_t)q->offset;
}

/* Does to the model what the request should do. In the last part the file may end. */
static void apply(struct worker *w, struct want *q)
{
	char *m = q->mem->model + q->at;

	if (q->op == PEERLANE_READ) {
		const char *from = q->shared ? shared : w->file;
		size_t size = q->shared ? SHARED_BYTES : w->size;
		size_t n = q->offset >= size ? 0 : size - q->offset;

		n = n < q->bytes ? n : q->bytes;
		memcpy(m, from + q->offset, n);
		q->count = (ssize_t)n;
		return;
	}
	if (q->bytes && q->offset > w->size)
		memset(w->file + w->size, 0, q->offset - w->size);
	memcpy(w->file + q->offset, m, q->bytes);
	if (q->bytes && q->offset + q->bytes > w->size)
		w->size = q->offset + q->bytes;
	q->count = (ssize_t)q->bytes;
}

static void check_memory(struct worker *w)
{
	for (int i = 0; i < 2; i++) {
		const struct mem *m = &w->mems[i];

		if (!memcmp(m->see, m->model, MEM_BYTES))
			continue;
		for (size_t k = 0;; k++)
			if (m->see[k] != m->model[k])
				fail(w, i ? "host memory differs at" : "GPU memory differs at",
				     (long long)k, -1);
	}
}

static void check_count(struct worker *w, const struct want *q, ssize_t got)
{
	if (got != q->count)
		fail(w, "count", got, q->count);
}

/* A request somewhere; [from, to) of the file part and of the memory are free for it. */
static void choose(struct worker *w, struct want *q, size_t from, size_t to, size_t m_from,
		   size_t m_to)
{
	size_t room = to - from < m_to - m_from ? to - from : m_to - m_from;

	q->mem = &w->mems[roll(w) % 3 == 0];
	q->op = roll(w) % 2 ? PEERLANE_READ : PEERLANE_WRITE;
	q->shared = q->op == PEERLANE_READ && roll(w) % 4 == 0;
	q->bytes = some_bytes(w, room);
	if (q->shared) {
		/* The shared part is no end of the file: reads stay inside it. */
		q->bytes = q->bytes < SHARED_BYTES ? q->bytes : SHARED_BYTES;
		q->offset = some_place(w, SHARED_BYTES - q->bytes);
	} else {
		q->offset = from + some_place(w, to - from - q->bytes);
		if (q->offset < from || q->offset + q->bytes > to)
			q->offset = from;
	}
	q->at = m_from + some_place(w, m_to - m_from - q->bytes);
	if (q->at < m_from)
		q->at = m_from;
	if (q->op == PEERLANE_WRITE) {
		fill(w, q->mem->model + q->at, q->bytes);
		memcpy(q->mem->see + q->at, q->mem->model + q->at, q->bytes);
	}
}

static void describe(struct worker *w, const char *how, const struct want *q, int file)
{
	snprintf(w->what, sizeof(w->what),
		 "%s %s%s of %zu bytes at %lld, %s memory + %zu, size %zu", how,
		 file ? "direct " : "", q->op == PEERLANE_READ ? "read" : "write", q->bytes,
		 (long long)position(w, q), q->mem == &w->mems[0] ? "GPU" : "host", q->at, w->size);
}

/* --- the kinds of requests --- */

static struct peerlane_file *some_file(struct worker *w, int *which)
{
	(void)roll(w);
	*which = direct_now;
	return w->files[*which];
}

/* Rarely, for it is slow. Not where O_DIRECT was used: where its unaligned ends meet another
 * thread's transfer in one large page, Linux reports -EIO once, to whoever syncs next. That has a
 * test of its own, tests/fault/test_direct_neighbours.c. */
static unsigned int durable(struct worker *w)
{
	return never_direct && roll(w) % 64 == 0 ? PEERLANE_DURABLE : 0;
}

static void do_sync(struct worker *w)
{
	struct peerlane_file *f;
	struct want q;
	int which;
	ssize_t n;

	f = some_file(w, &which);
	choose(w, &q, 0, REGION_BYTES, 0, MEM_BYTES);
	describe(w, "sync", &q, which);
	apply(w, &q);
	n = q.op == PEERLANE_READ
		    ? peerlane_read(f, q.mem->addr + q.at, q.bytes, position(w, &q))
		    : peerlane_write(f, q.mem->addr + q.at, q.bytes, position(w, &q), durable(w));
	check_count(w, &q, n);
}

/* Consecutive file bytes, pieces of both memories. */
static void do_vector(struct worker *w)
{
	unsigned int nr = 1 + (unsigned int)below(w, MAX_PIECES);
	struct iovec iov[MAX_PIECES];
	struct peerlane_file *f;
	size_t offset, total = 0, asked = 0;
	enum peerlane_op op = roll(w) % 2 ? PEERLANE_READ : PEERLANE_WRITE;
	ssize_t expect = 0, n;
	int which;

	f = some_file(w, &which);
	offset = some_place(w, REGION_BYTES - 1);
	for (unsigned int i = 0; i < nr; i++) {
		size_t slice = MEM_BYTES / MAX_PIECES;
		struct want q = { .mem = &w->mems[roll(w) % 2], .op = op };
		size_t room = REGION_BYTES - offset - asked;

		q.bytes = some_bytes(w, room < slice ? room : slice);
		q.at = i * slice + below(w, slice - q.bytes + 1);
		q.offset = offset + asked;
		asked += q.bytes;
		if (op == PEERLANE_WRITE) {
			fill(w, q.mem->model + q.at, q.bytes);
			memcpy(q.mem->see + q.at, q.mem->model + q.at, q.bytes);
		}
		iov[i].iov_base = q.mem->addr + q.at;
		iov[i].iov_len = q.bytes;
		apply(w, &q);
		/* Like readv(): what follows a short piece is not reached; at the end of the file
		 * that is so by itself. */
		expect += q.count;
		total += q.bytes;
	}
	snprintf(w->what, sizeof(w->what), "%s%s of %u pieces, %zu bytes at %lld, size %zu",
		 which ? "direct " : "", op == PEERLANE_READ ? "readv" : "writev", nr, total,
		 (long long)(region(w) + (off_t)offset), w->size);
	n = op == PEERLANE_READ ? peerlane_readv(f, iov, (int)nr, region(w) + (off_t)offset)
				: peerlane_writev(f, iov, (int)nr, region(w) + (off_t)offset, 0);
	if (n != expect)
		fail(w, "count", n, expect);
}

/* Requests in any order: their places in file and memory do not touch. */
static void do_batch(struct worker *w)
{
	enum { MOST = 16 };
	unsigned int nr = 1 + (unsigned int)below(w, MOST), seen = 0;
	struct want q[MOST];
	struct peerlane_io io[MOST];
	struct peerlane_event e[MOST];
	/* In the last part a write can move the end a read of the same batch meets. */
	size_t piece = (REGION_BYTES - 4096) / MOST, m_piece = MEM_BYTES / MOST;
	size_t lag = roll(w) % 2 ? below(w, 4096) : 0;
	int which, err;

	for (unsigned int i = 0; i < nr; i++) {
		struct peerlane_file *f = some_file(w, &which);

		choose(w, &q[i], i * piece + (i ? lag : 0), (i + 1) * piece + lag, i * m_piece,
		       (i + 1) * m_piece);
		if (w->last && q[i].op == PEERLANE_WRITE && q[i].offset + q[i].bytes > w->size)
			q[i].bytes = 0;
		apply(w, &q[i]);
		io[i] = (struct peerlane_io){ .file = f,
					      .addr = q[i].mem->addr + q[i].at,
					      .bytes = q[i].bytes,
					      .offset = position(w, &q[i]),
					      .op = q[i].op,
					      .flags = q[i].op == PEERLANE_WRITE ? durable(w) : 0,
					      .cookie = &q[i] };
	}
	snprintf(w->what, sizeof(w->what), "batch of %u, size %zu", nr, w->size);
	err = peerlane_batch_submit(w->batch, io, nr);
	if (err)
		fail(w, "submit", err, 0);
	while (seen < nr) {
		const struct timespec ts = { .tv_sec = 20 };
		int n = peerlane_batch_wait(w->batch, roll(w) % (nr - seen + 1), e, MOST,
					    roll(w) % 2 ? &ts : NULL);

		if (n < 0)
			fail(w, "wait", n, 0);
		for (int i = 0; i < n; i++) {
			describe(w, "batched", e[i].cookie, direct_now);
			check_count(w, e[i].cookie, e[i].result);
		}
		seen += (unsigned int)n;
	}
}

/* Several in the order of a stream: each sees what those before did. */
static void do_stream(struct worker *w)
{
	enum { MOST = 5 };
	unsigned int nr = 1 + (unsigned int)below(w, MOST);
	struct want q[MOST];
	size_t bytes[MOST];
	off_t offset[MOST];
	ssize_t result[MOST];
	int which, err;

	for (unsigned int i = 0; i < nr; i++) {
		unsigned int fixed = roll(w) % 2 ? PEERLANE_FIXED : 0;
		struct peerlane_file *f = some_file(w, &which);

		/* Sources are filled here and now: each has memory of its own. */
		choose(w, &q[i], 0, REGION_BYTES, i * (MEM_BYTES / MOST),
		       (i + 1) * (MEM_BYTES / MOST));
		apply(w, &q[i]);
		describe(w, "stream-ordered", &q[i], which);
		bytes[i] = q[i].bytes;
		offset[i] = position(w, &q[i]);
		result[i] = -12345;
		err = q[i].op == PEERLANE_READ
			      ? peerlane_read_async(f, q[i].mem->addr + q[i].at, &bytes[i],
						    &offset[i], &result[i], w->stream, fixed)
			      : peerlane_write_async(f, q[i].mem->addr + q[i].at, &bytes[i],
						     &offset[i], &result[i], w->stream, fixed);
		if (err)
			fail(w, "queueing", err, 0);
		if (fixed)
			bytes[i] = 1, offset[i] = 3;
	}
	err = peerlane_gpu_stream_sync(w->ctx, w->stream);
	if (err)
		fail(w, "stream", err, 0);
	for (unsigned int i = 0; i < nr; i++)
		check_count(w, &q[i], result[i]);
}

/* What a program does to its file beside us. */
static void do_outside(struct worker *w)
{
	size_t at, n;

	snprintf(w->what, sizeof(w->what), "outside");
	switch (roll(w) % 4) {
	case 0:
		fdatasync(w->fd);
		__attribute__((fallthrough));
	case 1:
		posix_fadvise(w->fd, region(w), REGION_BYTES, POSIX_FADV_DONTNEED);
		posix_fadvise(w->fd, 0, SHARED_BYTES, POSIX_FADV_DONTNEED);
		return;
	case 2:
		at = some_place(w, w->size);
		n = some_bytes(w, w->size - at);
		if (pread(w->fd, w->mems[1].see, n, region(w) + (off_t)at) != (ssize_t)n)
			fail(w, "plain read", -errno, (long long)n);
		memcpy(w->mems[1].model, w->file + at, n);
		return;
	default:
		if (!w->last)
			return;
		n = some_place(w, REGION_BYTES);
		if (n > w->size)
			memset(w->file + w->size, 0, n - w->size);
		w->size = n;
		snprintf(w->what, sizeof(w->what), "truncate to %zu", n);
		if (ftruncate(w->fd, region(w) + (off_t)n))
			fail(w, "truncate", -errno, 0);
	}
}

static void *work(void *arg)
{
	struct worker *w = arg;

	while (now() < until) {
		switch (roll(w) % 12) {
		case 0:
		case 1:
			do_vector(w);
			break;
		case 2:
		case 3:
			do_batch(w);
			break;
		case 4:
			do_stream(w);
			break;
		case 5:
			do_outside(w);
			break;
		default:
			do_sync(w);
			break;
		}
		check_memory(w);
		w->ops++;
	}
	return NULL;
}

/* --- one setting --- */

static void must(int err, const char *what)
{
	struct peerlane_error_info info = { .size = sizeof(info) };

	if (!err)
		return;
	peerlane_error(&info);
	printf("FAIL %s: %d %s\n", what, err, info.text);
	clean_up();
	exit(1);
}

static char *allocate(size_t bytes)
{
	char *p = calloc(1, bytes);

	must(p ? 0 : -ENOMEM, "memory");
	return p;
}

static void start(struct worker *w, unsigned int id, struct peerlane *ctx)
{
	void *gpu;

	memset(w, 0, sizeof(*w));
	w->id = id;
	w->rng = (seed + 1) * 0x9e3779b97f4a7c15 ^ (uint64_t)(id + 1) << 40;
	w->last = id == THREADS - 1;
	w->ctx = ctx;
	must(peerlane_file_open(ctx, path, O_RDWR, 0, &w->files[0]), "open");
	must(peerlane_file_open(ctx, path, O_RDWR | O_DIRECT, 0, &w->files[1]), "open direct");
	must(peerlane_batch_create(ctx, 16, &w->batch), "batch");
	must(peerlane_gpu_stream_create(ctx, 0, &w->stream), "stream");
	w->fd = open(path, O_RDWR);
	must(w->fd < 0 ? -errno : 0, "plain open");
	w->file = allocate(REGION_BYTES);
	w->size = REGION_BYTES;
	for (int i = 0; i < 2; i++)
		w->mems[i].model = allocate(MEM_BYTES);
	must(peerlane_gpu_alloc(ctx, 0, MEM_BYTES, &gpu), "GPU memory");
	w->mems[0].addr = gpu;
	w->mems[0].see = peerlane_sim_host(gpu);
	w->mems[1].addr = w->mems[1].see = allocate(MEM_BYTES);
	for (int i = 0; i < 2; i++) {
		fill(w, w->mems[i].see, MEM_BYTES);
		memcpy(w->mems[i].model, w->mems[i].see, MEM_BYTES);
	}
	if (id % 2)
		must(peerlane_buffer_register(ctx, gpu, MEM_BYTES, 0), "registration");
}

static void finish(struct worker *w)
{
	char *mem = allocate(REGION_BYTES);

	snprintf(w->what, sizeof(w->what), "the file at the end");
	if (pread(w->fd, mem, w->size, region(w)) != (ssize_t)w->size)
		fail(w, "plain read at the end", -errno, (long long)w->size);
	for (size_t i = 0; i < w->size; i++)
		if (mem[i] != w->file[i])
			fail(w, "the file differs at", (long long)region(w) + (long long)i, -1);
	free(mem);
	peerlane_batch_destroy(w->batch);
	peerlane_gpu_stream_destroy(w->ctx, w->stream);
	must(peerlane_file_close(w->files[0]), "close");
	must(peerlane_file_close(w->files[1]), "close direct");
	if (w->id % 2)
		must(peerlane_buffer_release(w->ctx, w->mems[0].addr), "release");
	must(peerlane_gpu_free(w->ctx, w->mems[0].addr), "GPU memory");
	free(w->mems[1].addr);
	free(w->mems[0].model);
	free(w->mems[1].model);
	free(w->file);
	close(w->fd);
}

static void make_file(struct worker *w)
{
	int fd = open(path, O_CREAT | O_TRUNC | O_RDWR, 0600), direct;

	must(fd < 0 ? -errno : 0, "file");
	fill(w, shared, SHARED_BYTES);
	if (pwrite(fd, shared, SHARED_BYTES, 0) != (ssize_t)SHARED_BYTES ||
	    ftruncate(fd, (off_t)(SHARED_BYTES + THREADS * REGION_BYTES)))
		must(-errno, "file");
	close(fd);
	direct = open(path, O_RDONLY | O_DIRECT);
	no_direct = direct < 0;
	if (direct >= 0)
		close(direct);
}

static uint64_t run(const struct setting *s, double seconds)
{
	struct peerlane_options opt = s->opt;
	struct peerlane_stats st = { .size = sizeof(st) };
	struct worker maker = { .rng = seed * 2 + 1 };
	struct peerlane *ctx;
	uint64_t ops = 0;

	setting_name = s->name;
	never_direct = s->opt.flags & PEERLANE_NO_DIRECT;
	if (s->env[0])
		setenv(s->env[0], s->env[1], 1);
	opt.size = sizeof(opt);
	opt.backend = "sim";
	must(peerlane_open(&ctx, &opt), s->name);
	if (s->env[0])
		unsetenv(s->env[0]);
	make_file(&maker);
	for (unsigned int i = 0; i < THREADS; i++)
		start(&workers[i], i, ctx);
	for (int turn = 0; turn < TURNS; turn++) {
		direct_now = !no_direct && turn % 2;
		until = now() + seconds / TURNS;
		for (unsigned int i = 0; i < THREADS; i++)
			must(-pthread_create(&workers[i].thread, NULL, work, &workers[i]),
			     "thread");
		for (unsigned int i = 0; i < THREADS; i++)
			pthread_join(workers[i].thread, NULL);
	}
	for (unsigned int i = 0; i < THREADS; i++) {
		finish(&workers[i]);
		ops += workers[i].ops;
	}
	must(peerlane_stats_get(ctx, &st), "statistics");
	if (st.in_flight || st.files || st.buffers || st.batches || st.read.failed ||
	    st.write.failed || st.pool_peak > st.pool_limit)
		fail(&workers[0], "something is left; requests in flight", (long long)st.in_flight,
		     0);
	peerlane_close(ctx);
	return ops;
}

int main(void)
{
	const char *text = getenv("PEERLANE_TEST_SECONDS"), *base = getenv("TMPDIR");
	const size_t nr = sizeof(settings) / sizeof(settings[0]);
	double seconds = text ? atof(text) : 5;

	setvbuf(stdout, NULL, _IOLBF, 0);
	text = getenv("PEERLANE_TEST_SEED");
	seed = text ? strtoull(text, NULL, 10) : (uint64_t)(now() * 1e6) ^ (uint64_t)getpid() << 32;
	printf("PEERLANE_TEST_SEED=%llu\n", (unsigned long long)seed);
	signal(SIGALRM, too_long);
	signal(SIGTERM, too_long);
	signal(SIGINT, too_long);
	alarm((unsigned int)seconds * 4 + 50);
	snprintf(dir, sizeof(dir), "%s/peerlane-model.XXXXXX", base ? base : "/tmp");
	if (!mkdtemp(dir)) {
		printf("FAIL no temporary directory\n");
		return 1;
	}
	snprintf(path, sizeof(path), "%s/file", dir);
	shared = allocate(SHARED_BYTES);
	for (size_t i = 0; i < nr; i++)
		printf("%s: %llu requests\n", settings[i].name,
		       (unsigned long long)run(&settings[i], seconds / (double)nr));
	free(shared);
	clean_up();
	return 0;
}
