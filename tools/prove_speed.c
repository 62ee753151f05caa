/* SPDX-License-Identifier: MIT */
/* GB/s and processor time of p2p, beside the staged path in the same run. No verdict by time. */
#include "prove.h"

#include "human.h"
#include "progress.h"
#include "stop.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define MIB (1u << 20)
#define MAX_THREADS 4u

struct shape {
	unsigned int threads;
	size_t call_bytes;
	const char *names[2], *text; /* of reads, of writes */
};

static const struct shape shapes[] = {
	{ 1, 4 * MIB, { "speed_read_1x4M", "speed_write_1x4M" }, "1 thread, calls of 4 MiB" },
	{ 4, MIB, { "speed_read_4x1M", "speed_write_4x1M" }, "4 threads, calls of 1 MiB" },
};

struct figures {
	double gb_per_s, cpu_s_per_gb, first_s;
	uint64_t bytes, p2p;
};

struct speed {
	struct pl_prove *prove;
	struct peerlane *ctx;
	struct peerlane_file *file;
	char *gpu;
	size_t span;	/* of @gpu: a quarter of the file */
	uint64_t start; /* of the part of the file, */
	uint64_t bytes; /* and its length */
	enum peerlane_op op;
	const struct shape *shape;
	uint64_t next;	/* call; atomic */
	uint64_t until; /* in ns */
	int err;
};

static ssize_t call(struct speed *s, uint64_t number)
{
	size_t bytes = s->shape->call_bytes;
	uint64_t at = number * bytes % s->bytes;
	char *gpu = s->gpu + at % s->span;

	return s->op == PEERLANE_READ
		       ? peerlane_read(s->file, gpu, bytes, (off_t)(s->start + at))
		       : peerlane_write(s->file, gpu, bytes, (off_t)(s->start + at), 0);
}

static void *work(void *arg)
{
	struct speed *s = arg;

	while (pl_progress_now() < s->until && !pl_stop_requested()) {
		ssize_t n = call(s, __atomic_fetch_add(&s->next, 1, __ATOMIC_RELAXED));

		if (n == (ssize_t)s->shape->call_bytes)
			continue;
		__atomic_store_n(&s->err, n < 0 ? (int)n : -EIO, __ATOMIC_RELAXED);
		break;
	}
	return NULL;
}

static double cpu_seconds(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void steady(struct speed *s, struct figures *f)
{
	pthread_t threads[MAX_THREADS];
	unsigned int nr = 0;
	uint64_t from = pl_progress_now();
	double cpu = cpu_seconds(), seconds;

	s->next = 0;
	s->until = from + (uint64_t)(s->prove->args->seconds * 1e9);
	while (nr < s->shape->threads && !pthread_create(&threads[nr], NULL, work, s))
		nr++;
	for (unsigned int i = 0; i < nr; i++)
		pthread_join(threads[i], NULL);
	seconds = (double)(pl_progress_now() - from) / 1e9;
	f->bytes = s->next * s->shape->call_bytes;
	f->gb_per_s = (double)f->bytes / seconds / 1e9;
	f->cpu_s_per_gb = f->bytes ? (cpu_seconds() - cpu) * 1e9 / (double)f->bytes : 0;
}

static uint64_t p2p_bytes(struct peerlane *ctx)
{
	struct peerlane_stats st = { .size = sizeof(st) };

	peerlane_stats_get(ctx, &st);
	return st.read.path_bytes[PEERLANE_PATH_P2P] + st.write.path_bytes[PEERLANE_PATH_P2P];
}

/* The last quarter is written with what it holds. */
static int upload(struct speed *s)
{
	unsigned char *piece = malloc(MIB);
	int err = piece ? 0 : -ENOMEM;

	for (size_t at = 0; at < s->span && !err; at += MIB) {
		pl_prove_file_pattern(piece, MIB, s->start + at, PL_PROVE_SEED);
		err = peerlane_gpu_copy(s->ctx, s->gpu + at, piece, MIB);
	}
	free(piece);
	return err;
}

static int prepare(struct speed *s, unsigned int flags)
{
	const struct pl_prove *p = s->prove;
	bool write = s->op == PEERLANE_WRITE;
	void *gpu = NULL;
	int err = pl_prove_context(p, flags, &s->ctx);

	if (err) {
		s->ctx = NULL;
		return err;
	}
	s->span = (size_t)(p->file.bytes / 4);
	s->start = write ? p->file.bytes - s->span : 0;
	s->bytes = write ? s->span : pl_prove_half(p);
	err = peerlane_gpu_alloc(s->ctx, (int)p->args->gpu, s->span, &gpu);
	s->gpu = gpu;
	if (!err)
		err = peerlane_file_open(s->ctx, p->file.path, O_RDWR | O_DIRECT, 0, &s->file);
	return err ? err : write ? upload(s) : 0;
}

static int measure(struct speed *s, unsigned int flags, struct figures *f)
{
	uint64_t from;
	int err = prepare(s, flags);

	memset(f, 0, sizeof(*f));
	if (!err) {
		from = pl_progress_now();
		if (call(s, 0) < 0)
			err = -EIO;
		f->first_s = (double)(pl_progress_now() - from) / 1e9;
		f->p2p = p2p_bytes(s->ctx);
		steady(s, f);
		f->p2p = p2p_bytes(s->ctx) - f->p2p;
		err = err ? err : s->err;
	}
	if (s->file)
		peerlane_file_close(s->file);
	if (s->gpu)
		peerlane_gpu_free(s->ctx, s->gpu);
	peerlane_close(s->ctx);
	return err;
}

static void keep(struct pl_prove *p, const struct speed *s, const char *path,
		 const struct figures *f)
{
	struct json_object *o = json_object_new_object();

	pl_jsonout_add_text(o, "op", s->op == PEERLANE_READ ? "read" : "write");
	pl_jsonout_add_text(o, "path", path);
	pl_jsonout_add_count(o, "threads", s->shape->threads);
	pl_jsonout_add_count(o, "io_bytes", s->shape->call_bytes);
	pl_jsonout_add_number(o, "gb_per_s", f->gb_per_s);
	pl_jsonout_add_number(o, "cpu_s_per_gb", f->cpu_s_per_gb);
	pl_jsonout_add_number(o, "first_call_seconds", f->first_s);
	json_object_array_add(p->measured, o);
}

static double ratio(double a, double b)
{
	return b > 0 ? a / b : 0;
}

static void compare(struct pl_prove *p, enum peerlane_op op, const struct shape *shape)
{
	struct speed s[2] = { { .prove = p, .op = op, .shape = shape },
			      { .prove = p, .op = op, .shape = shape } };
	const char *name = shape->names[op == PEERLANE_WRITE];
	struct figures f[2];
	int err = measure(&s[0], 0, &f[0]);

	if (!err)
		err = measure(&s[1], PEERLANE_NO_P2P, &f[1]);
	if (err || pl_stop_requested()) {
		pl_prove_report_line(&p->report, err ? PL_PROVE_FAIL : PL_PROVE_NOTE, name, NULL,
				     "%s: %s", shape->text,
				     err ? peerlane_strerror(err) : "interrupted");
		return;
	}
	keep(p, &s[0], "p2p", &f[0]);
	keep(p, &s[1], "staged", &f[1]);
	pl_prove_report_line(
		&p->report, PL_PROVE_NOTE, name, NULL,
		"%s: p2p %.3f GB/s, %.4f CPU s/GB, first call %.2f ms; staged %.3f "
		"GB/s, %.4f CPU s/GB, first call %.2f ms; p2p/staged %.2fx GB/s, %.2fx "
		"CPU",
		shape->text, f[0].gb_per_s, f[0].cpu_s_per_gb, f[0].first_s * 1e3, f[1].gb_per_s,
		f[1].cpu_s_per_gb, f[1].first_s * 1e3, ratio(f[0].gb_per_s, f[1].gb_per_s),
		ratio(f[0].cpu_s_per_gb, f[1].cpu_s_per_gb));
	if (f[0].p2p < f[0].bytes || f[1].p2p)
		pl_prove_report_line(&p->report, PL_PROVE_FAIL, name, NULL,
				     "these are not the speeds of the two paths: %s of %s went by "
				     "p2p where all should, %s where nothing should",
				     pl_human_size(f[0].p2p).text, pl_human_size(f[0].bytes).text,
				     pl_human_size(f[1].p2p).text);
}

void pl_prove_speed(struct pl_prove *p)
{
	for (size_t i = 0; i < 2 * sizeof(shapes) / sizeof(shapes[0]) && !pl_stop_requested(); i++)
		compare(p, i % 2 ? PEERLANE_WRITE : PEERLANE_READ, &shapes[i / 2]);
}
