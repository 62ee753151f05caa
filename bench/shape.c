// SPDX-License-Identifier: MIT
/* What the measuring programs share: see shape.h. */
#include "shape.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

void pl_shape_complain(const char *format, ...)
{
	va_list args;

	fprintf(stderr, "%s: ", program_invocation_short_name);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
}

int pl_shape_complain_errno(const char *what)
{
	int err = errno;

	pl_shape_complain("%s: %s", what, strerror(err));
	return -err;
}

uint64_t pl_shape_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

double pl_shape_cpu_seconds(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

uint64_t pl_shape_mix(uint64_t i)
{
	i = (i + 1) * 0x9e3779b97f4a7c15u;
	i ^= i >> 32;
	i *= 0xd6e8feb86659fd93u;
	return i ^ i >> 29;
}

/* Files */

int pl_shape_move(bool write, int fd, void *buffer, size_t bytes, off_t at)
{
	while (bytes) {
		ssize_t n = write ? pwrite(fd, buffer, bytes, at) : pread(fd, buffer, bytes, at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -ENODATA;
		buffer = (char *)buffer + n;
		bytes -= (size_t)n;
		at += n;
	}
	return 0;
}

static int warm(int fd, size_t bytes)
{
	void *buffer = malloc(PL_SHAPE_CHUNK_BYTES);
	size_t at, n;
	int err = buffer ? 0 : -ENOMEM;

	for (at = 0; !err && at < bytes; at += n) {
		n = bytes - at < PL_SHAPE_CHUNK_BYTES ? bytes - at : PL_SHAPE_CHUNK_BYTES;
		err = pl_shape_move(false, fd, buffer, n, (off_t)at);
	}
	free(buffer);
	return err;
}

int pl_shape_prepare_cache(const struct pl_shape *s, size_t bytes)
{
	int fd = open(s->file, O_RDONLY | O_CLOEXEC), err;

	if (fd < 0)
		return pl_shape_complain_errno(s->file);
	if (s->cold) {
		sync();
		err = -posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	} else {
		err = warm(fd, bytes);
	}
	if (err)
		pl_shape_complain("%s: %s: %s", s->file, s->cold ? "posix_fadvise" : "pread",
				  strerror(-err));
	close(fd);
	return err;
}

/* Threads */

int pl_shape_plan(struct pl_shape_run *run, off_t file_bytes, size_t size_bytes)
{
	const struct pl_shape *s = run->shape;
	size_t region = (size_t)file_bytes, total = s->total_bytes ? s->total_bytes : region;

	if (!s->random && total < region)
		region = total;
	run->size_bytes = size_bytes;
	run->nr_slots = region / size_bytes;
	run->nr_groups = total / size_bytes / s->batch;
	if (run->nr_slots && run->nr_groups)
		return 0;
	pl_shape_complain("%s of %lld bytes and --bytes %zu do not hold one call of %zu x %u",
			  s->file, (long long)file_bytes, total, size_bytes, s->batch);
	return -EINVAL;
}

int pl_shape_run_init(struct pl_shape_run *run)
{
	size_t bytes = run->nr_groups * run->shape->repeat * sizeof(*run->lat_ns);

	run->repeat_no = 0;
	atomic_store(&run->nr_lat, 0);
	atomic_store(&run->err, 0);
	run->lat_ns = malloc(bytes);
	if (!run->lat_ns)
		return -ENOMEM;
	/* touched here, so that no first page fault falls inside the clock */
	memset(run->lat_ns, 0xff, bytes);
	return 0;
}

void pl_shape_run_fini(struct pl_shape_run *run)
{
	free(run->lat_ns);
	run->lat_ns = NULL;
}

size_t pl_shape_pick(struct pl_shape_worker *w, size_t op)
{
	if (!w->run->shape->random)
		return op % w->run->nr_slots;
	return (size_t)(pl_shape_mix(w->rng++) % w->run->nr_slots);
}

static void *work(void *arg)
{
	struct pl_shape_worker *w = arg;
	struct pl_shape_run *run = w->run;
	uint64_t from, deadline;
	size_t group;
	int err = run->setup ? run->setup(w) : 0;

	if (err)
		atomic_store(&run->err, err);
	pthread_barrier_wait(&run->ready);
	pthread_barrier_wait(&run->go);
	from = run->start_ns;
	deadline = from + (uint64_t)(run->shape->seconds * 1e9);
	while (!atomic_load(&run->err) && from < deadline &&
	       (group = atomic_fetch_add(&run->next, 1)) < run->nr_groups) {
		from = pl_shape_now_ns();
		err = run->group(w, group * run->shape->batch);
		if (err) {
			atomic_store(&run->err, err);
			break;
		}
		w->end_ns = pl_shape_now_ns();
		run->lat_ns[atomic_fetch_add(&run->nr_lat, 1)] = w->end_ns - from;
		w->nr_groups++;
		from = w->end_ns;
	}
	if (run->teardown)
		run->teardown(w);
	return NULL;
}

/* Starts the threads of a repeat and returns when all stand at the start line. */
static void start_threads(struct pl_shape_run *run, struct pl_shape_worker *w)
{
	unsigned int i;

	pthread_barrier_init(&run->ready, NULL, run->nr_threads + 1);
	pthread_barrier_init(&run->go, NULL, run->nr_threads + 1);
	atomic_store(&run->next, 0);
	for (i = 0; i < run->nr_threads; i++) {
		w[i].run = run;
		w[i].id = i;
		w[i].rng = pl_shape_mix((uint64_t)run->repeat_no << 32 | i);
		if (pthread_create(&w[i].thread, NULL, work, &w[i])) {
			/* the barriers cannot be completed any more: nothing to unwind to */
			pl_shape_complain("cannot start thread %u", i);
			exit(EXIT_FAILURE);
		}
	}
	pthread_barrier_wait(&run->ready);
}

int pl_shape_run_repeat(struct pl_shape_run *run)
{
	struct pl_shape_worker w[PL_SHAPE_THREADS_MAX] = { 0 };
	uint64_t end = 0, nr_ops = 0;
	unsigned int i;
	double cpu;

	start_threads(run, w);
	cpu = pl_shape_cpu_seconds();
	run->start_ns = pl_shape_now_ns();
	pthread_barrier_wait(&run->go);
	for (i = 0; i < run->nr_threads; i++) {
		pthread_join(w[i].thread, NULL);
		nr_ops += w[i].nr_groups * run->shape->batch;
		end = w[i].end_ns > end ? w[i].end_ns : end;
	}
	cpu = pl_shape_cpu_seconds() - cpu;
	pthread_barrier_destroy(&run->ready);
	pthread_barrier_destroy(&run->go);
	if (atomic_load(&run->err))
		return atomic_load(&run->err);
	pl_shape_repeat_finish(&run->repeats[run->repeat_no++], nr_ops, run->size_bytes,
			       1e-9 * (double)(end - run->start_ns), cpu);
	return 0;
}

int pl_shape_run_warm(struct pl_shape_run *run)
{
	size_t nr_lat = atomic_load(&run->nr_lat);
	int err = pl_shape_run_repeat(run);

	if (err)
		return err;
	run->repeat_no--;
	atomic_store(&run->nr_lat, nr_lat);
	return 0;
}

/* Figures */

void pl_shape_repeat_finish(struct pl_shape_repeat *rep, uint64_t nr_ops, size_t size_bytes,
			    double seconds, double cpu)
{
	rep->bytes = nr_ops * size_bytes;
	rep->gbps = 1e-9 * (double)rep->bytes / seconds;
	rep->ops_per_s = (double)nr_ops / seconds;
	rep->cpu_s_per_gb = cpu / (1e-9 * (double)rep->bytes);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static int by_ns(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static double median(const struct pl_shape_repeat *rep, unsigned int nr, size_t offset,
		     double *best)
{
	double v[PL_SHAPE_REPEAT_MAX] = { 0 };
	unsigned int i, mid = nr / 2;

	for (i = 0; i < nr; i++)
		memcpy(&v[i], (const char *)&rep[i] + offset, sizeof(v[i]));
	qsort(v, nr, sizeof(v[0]), by_value);
	if (best)
		*best = v[nr - 1];
	return nr % 2 ? v[mid] : (v[mid] + v[mid - 1]) / 2;
}

void pl_shape_summarise(const struct pl_shape *s, struct pl_shape_figures *f,
			const struct pl_shape_repeat *rep, uint64_t *lat_ns, size_t nr_lat)
{
	unsigned int nr = s->repeat;

	f->gbps = median(rep, nr, offsetof(struct pl_shape_repeat, gbps), &f->gbps_best);
	f->ops_per_s = median(rep, nr, offsetof(struct pl_shape_repeat, ops_per_s), NULL);
	f->cpu_s_per_gb = median(rep, nr, offsetof(struct pl_shape_repeat, cpu_s_per_gb), NULL);
	f->bytes = rep[0].bytes;
	qsort(lat_ns, nr_lat, sizeof(*lat_ns), by_ns);
	f->lat_us_p50 = 1e-3 * (double)lat_ns[nr_lat / 2];
	f->lat_us_p99 = 1e-3 * (double)lat_ns[nr_lat * 99 / 100];
}

void pl_shape_print(const struct pl_shape *s, const struct pl_shape_figures *f)
{
	printf("\"gbps\":%.6f,\"gbps_best\":%.6f,\"ops_per_s\":%.1f,\"lat_us_p50\":%.2f,"
	       "\"lat_us_p99\":%.2f,\"cpu_s_per_gb\":%.4f,\"bytes\":%llu,\"repeat\":%u",
	       f->gbps, f->gbps_best, f->ops_per_s, f->lat_us_p50, f->lat_us_p99, f->cpu_s_per_gb,
	       (unsigned long long)f->bytes, s->repeat);
}

/* Command line */

int pl_shape_parse_size(const char *text, size_t *out)
{
	unsigned long long v, unit;
	char *end;

	errno = 0;
	v = strtoull(text, &end, 10);
	unit = *end == 'K' ? 1ull << 10 : *end == 'M' ? 1ull << 20 : *end == 'G' ? 1ull << 30 : 1;
	if (unit > 1)
		end++;
	if (errno || end == text || *end || *text == '-' || v > (1ull << 62) / unit || !v)
		return -EINVAL;
	*out = (size_t)(v * unit);
	return 0;
}

static int parse_count(const char *text, unsigned int max, unsigned int *out)
{
	size_t v;

	if (pl_shape_parse_size(text, &v) || v > max)
		return -EINVAL;
	*out = (unsigned int)v;
	return 0;
}

/* the common options that take a value */
static int parse_value(struct pl_shape *s, int c, const char *text)
{
	char *end;

	switch (c) {
	case PL_SHAPE_FILE:
		s->file = text;
		return 0;
	case PL_SHAPE_OP:
		s->op_given = true;
		s->write = !strcmp(text, "write");
		return s->write || !strcmp(text, "read") ? 0 : -EINVAL;
	case PL_SHAPE_BYTES:
		return pl_shape_parse_size(text, &s->total_bytes);
	case PL_SHAPE_THREADS:
		return parse_count(text, PL_SHAPE_THREADS_MAX, &s->nr_threads);
	case PL_SHAPE_BATCH:
		return parse_count(text, 4096, &s->batch);
	case PL_SHAPE_REPEAT:
		return parse_count(text, PL_SHAPE_REPEAT_MAX, &s->repeat);
	case PL_SHAPE_SECONDS:
		s->seconds = strtod(text, &end);
		return end != text && !*end && s->seconds > 0 && s->seconds < 1e6 ? 0 : -EINVAL;
	}
	return -EINVAL;
}

int pl_shape_parse(struct pl_shape *s, int argc, char **argv, const struct option *options,
		   int (*own_value)(int option, const char *text), void (*own_flag)(int option))
{
	int c, index = 0, err;

	while ((c = getopt_long(argc, argv, "", options, &index)) != -1) {
		if (c == '?')
			return -EINVAL;
		if (c == PL_SHAPE_HELP)
			return 1;
		s->random |= c == PL_SHAPE_RANDOM;
		s->cold |= c == PL_SHAPE_COLD;
		s->cached |= c == PL_SHAPE_CACHED;
		if (!optarg) {
			if (own_flag)
				own_flag(c);
			continue;
		}
		err = c < PL_SHAPE_OWN ? parse_value(s, c, optarg) : own_value(c, optarg);
		if (err) {
			pl_shape_complain("--%s %s: not understood", options[index].name, optarg);
			return -EINVAL;
		}
	}
	return 0;
}
