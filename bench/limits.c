// SPDX-License-Identifier: MIT
/*
 * Measures what the machine itself can do: pinned copies to and from the GPU, plain O_DIRECT and
 * plain buffered file access into host memory. Other figures are ratios to these.
 * One JSON object a line on stdout.
 */
#define _GNU_SOURCE
#include "cuda_min.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define EXIT_SKIP 77
#define EXIT_USAGE 2
#define NR_REPEAT_MAX 100u
#define NR_THREADS_MAX 256u
#define NR_SIZES_MAX 16u
#define NR_STREAMS_MAX 2u
#define NR_LATENCY 200u
#define COPY_BUFFER_BYTES ((size_t)256 << 20)
#define WARM_BYTES ((size_t)8 << 20)

enum kind { KIND_COPY, KIND_DIRECT, KIND_BUFFERED };

static const char *const kind_names[] = { "copy", "direct", "buffered" };

static struct {
	enum kind kind;
	const char *file;
	size_t size_bytes[NR_SIZES_MAX], total_bytes;
	unsigned int nr_sizes, nr_threads, batch, repeat;
	double seconds;
	bool write, random, cold;
} opt = { .batch = 1, .repeat = 3, .seconds = 10 };

/* What the threads of one repeat share. A slot is one call's place in the file. */
static struct {
	int fd;
	size_t size_bytes, nr_slots, nr_groups;
	unsigned int nr_threads, repeat_no;
	void *buffers[NR_THREADS_MAX];
	uint64_t *lat_ns; /* room for all groups of all repeats */
	atomic_size_t nr_lat;
	uint64_t start_ns;
	pthread_barrier_t ready, go;
	atomic_size_t next;
	atomic_int err; /* the first failure, a negative errno */
} run;

struct worker {
	pthread_t thread;
	unsigned int id;
	uint64_t end_ns, nr_ops;
};

/* Medians of the repeats, and the best of them for the rate. */
struct figures {
	double gbps, gbps_best, ops_per_s, cpu_s_per_gb, lat_us_p50, lat_us_p99;
	uint64_t bytes;
};

struct repeat {
	double gbps, ops_per_s, cpu_s_per_gb;
	uint64_t bytes;
};

static void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void complain(const char *format, ...)
{
	va_list args;

	fputs("limits: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
}

static int complain_errno(const char *what)
{
	int err = errno;

	complain("%s: %s", what, strerror(err));
	return -err;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static double cpu_seconds(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static uint64_t mix(uint64_t i)
{
	i = (i + 1) * 0x9e3779b97f4a7c15u;
	i ^= i >> 32;
	i *= 0xd6e8feb86659fd93u;
	return i ^ i >> 29;
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

static double median(const struct repeat *rep, size_t offset, double *best)
{
	double v[NR_REPEAT_MAX] = { 0 };
	unsigned int i, mid = opt.repeat / 2;

	for (i = 0; i < opt.repeat; i++)
		memcpy(&v[i], (const char *)&rep[i] + offset, sizeof(v[i]));
	qsort(v, opt.repeat, sizeof(v[0]), by_value);
	if (best)
		*best = v[opt.repeat - 1];
	return opt.repeat % 2 ? v[mid] : (v[mid] + v[mid - 1]) / 2;
}

static void summarise(struct figures *f, const struct repeat *rep, uint64_t *lat_ns, size_t nr_lat)
{
	f->gbps = median(rep, offsetof(struct repeat, gbps), &f->gbps_best);
	f->ops_per_s = median(rep, offsetof(struct repeat, ops_per_s), NULL);
	f->cpu_s_per_gb = median(rep, offsetof(struct repeat, cpu_s_per_gb), NULL);
	f->bytes = rep[0].bytes;
	qsort(lat_ns, nr_lat, sizeof(*lat_ns), by_ns);
	f->lat_us_p50 = 1e-3 * (double)lat_ns[nr_lat / 2];
	f->lat_us_p99 = 1e-3 * (double)lat_ns[nr_lat * 99 / 100];
}

static void finish_repeat(struct repeat *rep, uint64_t nr_ops, size_t size_bytes, double seconds,
			  double cpu)
{
	rep->bytes = nr_ops * size_bytes;
	rep->gbps = 1e-9 * (double)rep->bytes / seconds;
	rep->ops_per_s = (double)nr_ops / seconds;
	rep->cpu_s_per_gb = cpu / (1e-9 * (double)rep->bytes);
}

/* The object without its closing brace: callers add what only they know. */
static void print_figures(const struct figures *f, size_t size_bytes, unsigned int nr_threads)
{
	printf("{\"who\":\"%s\",\"op\":\"%s\",\"size\":%zu,\"threads\":%u,\"batch\":%u,"
	       "\"random\":%s,\"cold\":%s,",
	       kind_names[opt.kind], opt.write ? "write" : "read", size_bytes, nr_threads,
	       opt.batch, opt.random ? "true" : "false", opt.cold ? "true" : "false");
	printf("\"gbps\":%.3f,\"gbps_best\":%.3f,\"ops_per_s\":%.1f,\"lat_us_p50\":%.2f,"
	       "\"lat_us_p99\":%.2f,\"cpu_s_per_gb\":%.4f,\"bytes\":%llu,\"repeat\":%u",
	       f->gbps, f->gbps_best, f->ops_per_s, f->lat_us_p50, f->lat_us_p99, f->cpu_s_per_gb,
	       (unsigned long long)f->bytes, opt.repeat);
}

/* Files */

static int move(bool write, int fd, void *buffer, size_t bytes, off_t at)
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

/* opt.batch calls one after the other; the group's time is its latency */
static int do_group(struct worker *w, size_t group, uint64_t *rng)
{
	unsigned int i;
	size_t slot;
	int err = 0;

	for (i = 0; !err && i < opt.batch; i++) {
		slot = (group * opt.batch + i) % run.nr_slots;
		if (opt.random)
			slot = (size_t)(mix((*rng)++) % run.nr_slots);
		err = move(opt.write, run.fd, run.buffers[w->id], run.size_bytes,
			   (off_t)(slot * run.size_bytes));
	}
	return err;
}

static void *work(void *arg)
{
	struct worker *w = arg;
	uint64_t rng = mix((uint64_t)run.repeat_no << 32 | w->id), from, deadline;
	size_t group;
	int err;

	pthread_barrier_wait(&run.ready);
	pthread_barrier_wait(&run.go);
	from = run.start_ns;
	deadline = from + (uint64_t)(opt.seconds * 1e9);
	while (!atomic_load(&run.err) && from < deadline &&
	       (group = atomic_fetch_add(&run.next, 1)) < run.nr_groups) {
		from = now_ns();
		err = do_group(w, group, &rng);
		if (err) {
			atomic_store(&run.err, err);
			break;
		}
		w->end_ns = now_ns();
		run.lat_ns[atomic_fetch_add(&run.nr_lat, 1)] = w->end_ns - from;
		w->nr_ops += opt.batch;
		from = w->end_ns;
	}
	return NULL;
}

static int run_repeat(struct repeat *rep)
{
	struct worker w[NR_THREADS_MAX] = { 0 };
	uint64_t end = 0, nr_ops = 0;
	unsigned int i;
	double cpu;

	pthread_barrier_init(&run.ready, NULL, run.nr_threads + 1);
	pthread_barrier_init(&run.go, NULL, run.nr_threads + 1);
	atomic_store(&run.next, 0);
	for (i = 0; i < run.nr_threads; i++) {
		w[i].id = i;
		if (pthread_create(&w[i].thread, NULL, work, &w[i])) {
			/* the barriers cannot be completed any more: nothing to unwind to */
			complain("cannot start thread %u", i);
			exit(EXIT_FAILURE);
		}
	}
	pthread_barrier_wait(&run.ready);
	cpu = cpu_seconds();
	run.start_ns = now_ns();
	pthread_barrier_wait(&run.go);
	for (i = 0; i < run.nr_threads; i++) {
		pthread_join(w[i].thread, NULL);
		nr_ops += w[i].nr_ops;
		end = w[i].end_ns > end ? w[i].end_ns : end;
	}
	cpu = cpu_seconds() - cpu;
	pthread_barrier_destroy(&run.ready);
	pthread_barrier_destroy(&run.go);
	if (atomic_load(&run.err)) {
		complain("%s: %s", opt.file, strerror(-atomic_load(&run.err)));
		return atomic_load(&run.err);
	}
	finish_repeat(rep, nr_ops, run.size_bytes, 1e-9 * (double)(end - run.start_ns), cpu);
	return 0;
}

/* Cold: written back and out of the page cache. Cached: read once through the page cache. */
static int prepare_cache(void)
{
	int fd = open(opt.file, O_RDONLY | O_CLOEXEC), err = 0;
	size_t at, bytes = run.nr_slots * run.size_bytes;
	void *buffer;

	if (fd < 0)
		return complain_errno(opt.file);
	if (opt.cold) {
		sync();
		err = -posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		if (err)
			complain("%s: posix_fadvise: %s", opt.file, strerror(-err));
		close(fd);
		return err;
	}
	buffer = malloc(WARM_BYTES);
	if (!buffer)
		err = -ENOMEM;
	for (at = 0; !err && at < bytes; at += WARM_BYTES)
		err = move(false, fd, buffer, bytes - at < WARM_BYTES ? bytes - at : WARM_BYTES,
			   (off_t)at);
	free(buffer);
	close(fd);
	return err;
}

static void free_buffers(void)
{
	unsigned int i;

	for (i = 0; i < NR_THREADS_MAX; i++) {
		free(run.buffers[i]);
		run.buffers[i] = NULL;
	}
	free(run.lat_ns);
	run.lat_ns = NULL;
}

static int alloc_buffers(void)
{
	size_t nr_lat = run.nr_groups * opt.repeat;
	unsigned int i;

	run.lat_ns = malloc(nr_lat * sizeof(*run.lat_ns));
	if (!run.lat_ns)
		return -ENOMEM;
	/* all memory is touched here, so that no first page fault falls inside the clock */
	memset(run.lat_ns, 0xff, nr_lat * sizeof(*run.lat_ns));
	for (i = 0; i < run.nr_threads; i++) {
		if (posix_memalign(&run.buffers[i], (size_t)2 << 20, run.size_bytes)) {
			run.buffers[i] = NULL;
			return -ENOMEM;
		}
		memset(run.buffers[i], (int)(i + 1), run.size_bytes);
	}
	return 0;
}

/* Slots and groups for one size of call and a number of threads. */
static int plan(size_t size_bytes, unsigned int nr_threads)
{
	struct stat st;
	size_t region, total;

	if (fstat(run.fd, &st))
		return complain_errno(opt.file);
	region = (size_t)st.st_size;
	total = opt.total_bytes ? opt.total_bytes : region;
	if (!opt.random && total < region)
		region = total;
	run.size_bytes = size_bytes;
	run.nr_threads = nr_threads;
	run.nr_slots = region / size_bytes;
	run.nr_groups = total / size_bytes / opt.batch;
	atomic_store(&run.nr_lat, 0);
	if (run.nr_slots && run.nr_groups)
		return 0;
	complain("%s of %lld bytes and --bytes %zu do not hold one call of %zu x %u", opt.file,
		 (long long)st.st_size, total, size_bytes, opt.batch);
	return -EINVAL;
}

static int measure_file(struct figures *f, size_t size_bytes, unsigned int nr_threads)
{
	struct repeat rep[NR_REPEAT_MAX];
	int err = plan(size_bytes, nr_threads);

	if (err)
		return err;
	err = alloc_buffers();
	if (err)
		complain("no memory for %u buffers of %zu bytes", nr_threads, size_bytes);
	for (run.repeat_no = 0; !err && run.repeat_no < opt.repeat; run.repeat_no++) {
		if (opt.cold || !run.repeat_no)
			err = prepare_cache();
		if (!err)
			err = run_repeat(&rep[run.repeat_no]);
	}
	if (!err)
		summarise(f, rep, run.lat_ns, atomic_load(&run.nr_lat));
	free_buffers();
	return err;
}

/* The best number of threads for one size of call; the others are told beside it. */
static int limit_of_size(size_t size_bytes)
{
	static const unsigned int sweep[] = { 1, 4, 16 };
	const unsigned int *threads = opt.nr_threads ? &opt.nr_threads : sweep;
	struct figures f[3];
	unsigned int i, best = 0, nr = opt.nr_threads ? 1 : 3;
	int err;

	for (i = 0; i < nr; i++) {
		err = measure_file(&f[i], size_bytes, threads[i]);
		if (err)
			return err;
		if (f[i].gbps > f[best].gbps)
			best = i;
	}
	print_figures(&f[best], size_bytes, threads[best]);
	printf(",\"gbps_by_threads\":{");
	for (i = 0; i < nr; i++)
		printf("%s\"%u\":%.3f", i ? "," : "", threads[i], f[i].gbps);
	printf("}}\n");
	fflush(stdout);
	return 0;
}

static int limit_files(void)
{
	int flags = (opt.write ? O_WRONLY : O_RDONLY) | O_CLOEXEC, err = 0;
	unsigned int i;

	if (opt.kind == KIND_DIRECT)
		flags |= O_DIRECT;
	run.fd = open(opt.file, flags);
	if (run.fd < 0)
		return complain_errno(opt.file);
	for (i = 0; !err && i < opt.nr_sizes; i++)
		err = limit_of_size(opt.size_bytes[i]);
	close(run.fd);
	return err;
}

/* Pinned copies */

struct copier {
	struct pl_cuda_min cuda;
	uint64_t device;
	char *host;
	void *streams[NR_STREAMS_MAX];
};

static int check_cuda(const struct copier *c, const char *call, int result)
{
	if (!result)
		return 0;
	complain("%s: CUDA %d (%s)", call, result, pl_cuda_min_name(&c->cuda, result));
	return -EIO;
}

static int copy_one(struct copier *c, size_t at, size_t bytes, void *stream)
{
	if (opt.write)
		return c->cuda.memcpy_dtoh_async(c->host + at, c->device + at, bytes, stream);
	return c->cuda.memcpy_htod_async(c->device + at, c->host + at, bytes, stream);
}

static int copy_repeat(struct copier *c, struct repeat *rep, size_t piece, unsigned int nr_streams)
{
	size_t i, nr = (opt.total_bytes ? opt.total_bytes : (size_t)4 << 30) / piece;
	size_t nr_places = COPY_BUFFER_BYTES / piece;
	double cpu = cpu_seconds();
	uint64_t start = now_ns();
	int r = 0;

	if (!nr)
		nr = 1;
	for (i = 0; !r && i < nr; i++)
		r = copy_one(c, i % nr_places * piece, piece, c->streams[i % nr_streams]);
	for (i = 0; !r && i < nr_streams; i++)
		r = c->cuda.stream_synchronize(c->streams[i]);
	if (r)
		return check_cuda(c, "asynchronous copy", r);
	finish_repeat(rep, nr, piece, 1e-9 * (double)(now_ns() - start), cpu_seconds() - cpu);
	return 0;
}

static int measure_copy(struct copier *c, struct figures *f, size_t piece, unsigned int nr_streams)
{
	struct repeat rep[NR_REPEAT_MAX];
	uint64_t lat_ns[NR_LATENCY], from;
	unsigned int i;
	int r = 0, err = 0;

	/* the latency is that of a lone copy, the rate that of a full queue */
	for (i = 0; !r && i < NR_LATENCY; i++) {
		from = now_ns();
		r = copy_one(c, 0, piece, c->streams[0]);
		if (!r)
			r = c->cuda.stream_synchronize(c->streams[0]);
		lat_ns[i] = now_ns() - from;
	}
	err = check_cuda(c, "synchronous copy", r);
	for (i = 0; !err && i < opt.repeat; i++)
		err = copy_repeat(c, &rep[i], piece, nr_streams);
	if (!err)
		summarise(f, rep, lat_ns, NR_LATENCY);
	return err;
}

static int copier_init(struct copier *c)
{
	void *host = NULL;
	unsigned int i;

	if (check_cuda(c, "cuMemAlloc", c->cuda.mem_alloc(&c->device, COPY_BUFFER_BYTES)) ||
	    check_cuda(c, "cuMemHostAlloc",
		       c->cuda.mem_host_alloc(&host, COPY_BUFFER_BYTES, PL_CUDA_MIN_HOST_PORTABLE)))
		return -EIO;
	c->host = host;
	memset(c->host, 1, COPY_BUFFER_BYTES);
	for (i = 0; i < NR_STREAMS_MAX; i++)
		if (check_cuda(c, "cuStreamCreate",
			       c->cuda.stream_create(&c->streams[i],
						     PL_CUDA_MIN_STREAM_NON_BLOCKING, 0)))
			return -EIO;
	return 0;
}

static void copier_fini(struct copier *c)
{
	unsigned int i;

	for (i = 0; i < NR_STREAMS_MAX; i++)
		if (c->streams[i])
			c->cuda.stream_destroy(c->streams[i]);
	if (c->host)
		c->cuda.mem_free_host(c->host);
	if (c->device)
		c->cuda.mem_free(c->device);
	pl_cuda_min_close(&c->cuda);
}

/* The best piece and number of streams; the sizes given, or a sweep of them. */
static int sweep_copy(struct copier *c)
{
	static const size_t sweep[] = { 128u << 10, 256u << 10, 512u << 10, 1u << 20,
					2u << 20,   4u << 20,	8u << 20,   32u << 20 };
	const size_t *pieces = opt.nr_sizes ? opt.size_bytes : sweep;
	size_t i, best_piece = 0, nr = opt.nr_sizes ? opt.nr_sizes : sizeof(sweep) / sizeof(*sweep);
	struct figures f, best = { 0 };
	unsigned int streams, best_streams = 0;

	for (i = 0; i < nr; i++) {
		for (streams = 1; streams <= NR_STREAMS_MAX; streams++) {
			if (measure_copy(c, &f, pieces[i], streams))
				return -EIO;
			if (f.gbps <= best.gbps)
				continue;
			best = f;
			best_piece = pieces[i];
			best_streams = streams;
		}
	}
	print_figures(&best, best_piece, 1);
	printf(",\"streams\":%u}\n", best_streams);
	return 0;
}

static int limit_copy(void)
{
	struct copier c = { 0 };
	int err;

	if (pl_cuda_min_open(&c.cuda, 0)) {
		complain("skipped: no GPU: %s (%s)", c.cuda.why,
			 pl_cuda_min_name(&c.cuda, c.cuda.result));
		pl_cuda_min_close(&c.cuda);
		return -ENODEV;
	}
	err = copier_init(&c);
	if (!err)
		err = sweep_copy(&c);
	copier_fini(&c);
	return err;
}

/* Command line */

static const char help[] =
	"usage: limits copy|direct|buffered [--file PATH] [options]\n"
	"  copy      pinned host memory to the GPU (read) or back (write); the best piece size\n"
	"  direct    O_DIRECT pread or pwrite, always cold; the best number of threads\n"
	"  buffered  pread or pwrite through the page cache; the best number of threads\n"
	"Prints one JSON object a size of call (copy: one in all). Sizes take K, M and G.\n"
	"A write overwrites the file.\n"
	"  --file PATH       the file (not for copy)\n"
	"  --op read|write   direction (read)\n"
	"  --size BYTES      size of one call; may be given up to 16 times (1M; copy: a sweep)\n"
	"  --threads N       threads (1, 4 and 16 are tried and the best is told)\n"
	"  --batch N         calls one thread makes in a row as one unit of latency (1)\n"
	"  --random          calls at random places instead of in order\n"
	"  --cold            buffered: the page cache dropped before each repeat\n"
	"  --cached          buffered: the file read into the page cache first (the default)\n"
	"  --bytes TOTAL     bytes of one repeat (the file's size; copy: 4G)\n"
	"  --seconds MAX     longest time of one repeat (10; not for copy)\n"
	"  --repeat R        repeats; gbps is their median (3)\n"
	"Exit: 0 measured, 1 failed, 2 usage, 77 copy without a GPU.\n";

enum {
	O_FILE = 256,
	O_OP,
	O_SIZE,
	O_THREADS,
	O_BATCH,
	O_RANDOM,
	O_COLD,
	O_CACHED,
	O_BYTES,
	O_SECONDS,
	O_REPEAT,
	O_HELP
};

static const struct option options[] = {
	{ "file", 1, NULL, O_FILE },
	{ "op", 1, NULL, O_OP },
	{ "size", 1, NULL, O_SIZE },
	{ "threads", 1, NULL, O_THREADS },
	{ "batch", 1, NULL, O_BATCH },
	{ "random", 0, NULL, O_RANDOM },
	{ "cold", 0, NULL, O_COLD },
	{ "cached", 0, NULL, O_CACHED },
	{ "bytes", 1, NULL, O_BYTES },
	{ "seconds", 1, NULL, O_SECONDS },
	{ "repeat", 1, NULL, O_REPEAT },
	{ "help", 0, NULL, O_HELP },
	{ NULL, 0, NULL, 0 },
};

static int parse_size(const char *text, size_t *out)
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

	if (parse_size(text, &v) || v > max)
		return -EINVAL;
	*out = (unsigned int)v;
	return 0;
}

static int parse_seconds(const char *text)
{
	char *end;

	opt.seconds = strtod(text, &end);
	return end != text && !*end && opt.seconds > 0 && opt.seconds < 1e6 ? 0 : -EINVAL;
}

/* the options that take a value */
static int parse_value(int c, const char *text)
{
	switch (c) {
	case O_FILE:
		opt.file = text;
		return 0;
	case O_OP:
		opt.write = !strcmp(text, "write");
		return opt.write || !strcmp(text, "read") ? 0 : -EINVAL;
	case O_SIZE:
		if (opt.nr_sizes == NR_SIZES_MAX)
			return -EINVAL;
		return parse_size(text, &opt.size_bytes[opt.nr_sizes++]);
	case O_BYTES:
		return parse_size(text, &opt.total_bytes);
	case O_THREADS:
		return parse_count(text, NR_THREADS_MAX, &opt.nr_threads);
	case O_BATCH:
		return parse_count(text, 4096, &opt.batch);
	case O_REPEAT:
		return parse_count(text, NR_REPEAT_MAX, &opt.repeat);
	case O_SECONDS:
		return parse_seconds(text);
	}
	return -EINVAL;
}

static int parse_kind(const char *text)
{
	unsigned int i;

	for (i = 0; i < sizeof(kind_names) / sizeof(kind_names[0]); i++) {
		if (!strcmp(text, kind_names[i])) {
			opt.kind = (enum kind)i;
			return 0;
		}
	}
	complain("%s: not copy, direct or buffered", text);
	return -EINVAL;
}

/* What the options mean together. */
static int settle(bool cached)
{
	unsigned int i;

	if (opt.kind != KIND_COPY && !opt.file) {
		complain("--file is needed; --help tells more");
		return -EINVAL;
	}
	if (cached && (opt.cold || opt.kind == KIND_DIRECT)) {
		complain("--cached excludes --cold and direct");
		return -EINVAL;
	}
	for (i = 0; opt.kind == KIND_COPY && i < opt.nr_sizes; i++) {
		if (opt.size_bytes[i] > COPY_BUFFER_BYTES) {
			complain("copy takes sizes up to %zu", COPY_BUFFER_BYTES);
			return -EINVAL;
		}
	}
	if (opt.kind != KIND_COPY && !opt.nr_sizes)
		opt.size_bytes[opt.nr_sizes++] = 1 << 20;
	opt.cold |= opt.kind == KIND_DIRECT;
	return 0;
}

/* Return: 0, 1 when only help was asked for, -EINVAL */
static int parse(int argc, char **argv)
{
	bool cached = false;
	int c, index = 0;

	while ((c = getopt_long(argc, argv, "", options, &index)) != -1) {
		if (c == '?')
			return -EINVAL;
		if (c == O_HELP)
			return 1;
		opt.random |= c == O_RANDOM;
		opt.cold |= c == O_COLD;
		cached |= c == O_CACHED;
		if (optarg && parse_value(c, optarg)) {
			complain("--%s %s: not understood", options[index].name, optarg);
			return -EINVAL;
		}
	}
	if (argc - optind != 1) {
		complain("one of copy, direct and buffered is needed; --help tells more");
		return -EINVAL;
	}
	if (parse_kind(argv[optind]))
		return -EINVAL;
	return settle(cached);
}

int main(int argc, char **argv)
{
	int err = parse(argc, argv);

	if (err) {
		fputs(err > 0 ? help : "", stdout);
		return err > 0 ? EXIT_SUCCESS : EXIT_USAGE;
	}
	err = opt.kind == KIND_COPY ? limit_copy() : limit_files();
	if (opt.kind == KIND_COPY && err == -ENODEV)
		return EXIT_SKIP;
	return err ? EXIT_FAILURE : EXIT_SUCCESS;
}
