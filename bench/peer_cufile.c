// SPDX-License-Identifier: MIT
/*
 * Measures a libcufile.so.0 (NVIDIA's, or any other of its ABI) in a process of its own.
 * One run is one shape; the result is one JSON object on stdout.
 */
#define _GNU_SOURCE
#include "cuda_min.h"
#include "cufile_min.h"

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
#define CHUNK_BYTES ((size_t)8 << 20)

static struct pl_cufile_min cf;

static struct {
	const char *file, *lib, *who;
	size_t size_bytes, total_bytes, create_bytes;
	unsigned int nr_threads, batch, repeat;
	double seconds;
	bool write, op_given, random, cold, direct, unregistered, verify, udev_record;
} opt = { .who = "libcufile",
	  .size_bytes = 1 << 20,
	  .nr_threads = 1,
	  .batch = 1,
	  .repeat = 3,
	  .seconds = 10 };

/* What all threads of one repeat share. A slot is one call's place in the file and the buffer. */
static struct {
	struct pl_cuda_min cuda;
	int fd;
	void *handle;
	uint64_t base, salt;
	size_t nr_slots, nr_groups;
	unsigned char *touched; /* a byte per slot: moved at least once */
	uint64_t *lat_ns;	/* a latency per group, in order of the repeats */
	size_t nr_lat;
	uint64_t start_ns;
	unsigned int repeat_no;
	pthread_barrier_t ready, go;
	atomic_size_t next;
	atomic_bool failed;
} run;

struct worker {
	pthread_t thread;
	size_t nr_groups;
	uint64_t rng, end_ns;
	uint64_t *lat_ns;
	void *batch;
	struct pl_cufile_io *io;
	struct pl_cufile_event *events;
};

static void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void complain(const char *format, ...)
{
	va_list args;

	fputs("peer_cufile: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
}

/* 0, or -EIO after saying which call failed and how */
static int check(const char *call, struct pl_cufile_error e)
{
	if (!e.err)
		return 0;
	complain("%s: %d (%s)", call, e.err, pl_cufile_min_name(e.err));
	if (e.err == 5011)
		complain("  behind it CUDA's %d (%s)", e.cu_err,
			 pl_cuda_min_name(&run.cuda, e.cu_err));
	return -EIO;
}

static int check_cuda(const char *call, int result)
{
	if (!result)
		return 0;
	complain("%s: CUDA %d (%s)", call, result, pl_cuda_min_name(&run.cuda, result));
	return -EIO;
}

static int check_errno(const char *what)
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

/* The content of a file of ours: word i is a mixed i, so a piece in a wrong place is seen. */
static uint64_t mix(uint64_t i)
{
	i = (i + 1) * 0x9e3779b97f4a7c15u;
	i ^= i >> 32;
	i *= 0xd6e8feb86659fd93u;
	return i ^ i >> 29;
}

static void fill(void *buffer, size_t bytes, off_t at, uint64_t salt)
{
	uint64_t *word = buffer;
	size_t i;

	for (i = 0; i < bytes / sizeof(*word); i++)
		word[i] = mix(((uint64_t)at / sizeof(*word) + i) ^ salt);
}

static int move(bool write, int fd, void *buffer, size_t bytes, off_t at)
{
	while (bytes) {
		ssize_t n = write ? pwrite(fd, buffer, bytes, at) : pread(fd, buffer, bytes, at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return check_errno(opt.file);
		if (!n) {
			complain("%s ends early, at %lld", opt.file, (long long)at);
			return -EIO;
		}
		buffer = (char *)buffer + n;
		bytes -= (size_t)n;
		at += n;
	}
	return 0;
}

static int create_file(void)
{
	size_t at, bytes = opt.create_bytes & ~(size_t)7;
	void *buffer = malloc(CHUNK_BYTES);
	int fd, err = buffer ? 0 : -ENOMEM;

	fd = open(opt.file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0)
		err = check_errno(opt.file);
	for (at = 0; !err && at < bytes; at += CHUNK_BYTES) {
		size_t n = bytes - at < CHUNK_BYTES ? bytes - at : CHUNK_BYTES;

		fill(buffer, n, (off_t)at, 0);
		err = move(true, fd, buffer, n, (off_t)at);
	}
	if (!err && fsync(fd))
		err = check_errno(opt.file);
	if (fd >= 0)
		close(fd);
	free(buffer);
	return err;
}

static int write_udev_record(void)
{
	char record[PL_CUFILE_MIN_RECORD_BYTES] = "";
	int err = pl_cufile_min_udev_record(opt.file, record);

	if (!err)
		complain("%s written", record);
	else if (err == -EEXIST)
		complain("%s is there already, left as it is", record);
	else if (err == -ENOTSUP)
		complain("%s is not on ext4 or xfs on a disk: no udev record written", opt.file);
	else
		complain("%s: %s", *record ? record : opt.file, strerror(-err));
	return err == -EEXIST ? 0 : err;
}

static size_t pick_slot(struct worker *w, size_t op)
{
	if (!opt.random)
		return op % run.nr_slots;
	w->rng += 0x9e3779b97f4a7c15u;
	return (size_t)(mix(w->rng) % run.nr_slots);
}

/* A registered buffer is named by its base, any other by the address itself. */
static void aim(size_t slot, void **base, off_t *buffer_offset)
{
	uint64_t at = (uint64_t)slot * opt.size_bytes;

	*base = (void *)(uintptr_t)(opt.unregistered ? run.base + at : run.base);
	*buffer_offset = opt.unregistered ? 0 : (off_t)at;
}

static int do_call(size_t slot)
{
	off_t at = (off_t)(slot * opt.size_bytes), buffer_offset;
	void *base;
	ssize_t n;

	aim(slot, &base, &buffer_offset);
	n = opt.write ? cf.write(run.handle, base, opt.size_bytes, at, buffer_offset)
		      : cf.read(run.handle, base, opt.size_bytes, at, buffer_offset);
	if (n == (ssize_t)opt.size_bytes) {
		run.touched[slot] = 1;
		return 0;
	}
	if (n >= 0) {
		complain("cuFile%s at %lld: moved %zd of %zu bytes", opt.write ? "Write" : "Read",
			 (long long)at, n, opt.size_bytes);
		return -EIO;
	}
	/* a code of the library comes negated, or as -1 with the code in errno */
	n = n == -1 ? errno : -n;
	complain("cuFile%s at %lld: %zd (%s)", opt.write ? "Write" : "Read", (long long)at, n,
		 pl_cufile_min_name((int)n));
	return -EIO;
}

static int do_batch(struct worker *w, size_t first_op)
{
	unsigned int i, nr, left = opt.batch;
	size_t slot;

	for (i = 0; i < opt.batch; i++) {
		slot = pick_slot(w, first_op + i);
		w->io[i] = (struct pl_cufile_io){ .mode = PL_CUFILE_MODE_BATCH,
						  .handle = run.handle,
						  .opcode = opt.write ? PL_CUFILE_WRITE
								      : PL_CUFILE_READ,
						  .cookie = (void *)slot };
		aim(slot, &w->io[i].batch.base, &w->io[i].batch.buffer_offset);
		w->io[i].batch.file_offset = (off_t)(slot * opt.size_bytes);
		w->io[i].batch.size = opt.size_bytes;
	}
	if (check("cuFileBatchIOSubmit", cf.batch_submit(w->batch, opt.batch, w->io, 0)))
		return -EIO;
	while (left) {
		nr = left;
		if (check("cuFileBatchIOGetStatus",
			  cf.batch_status(w->batch, left, &nr, w->events, NULL)))
			return -EIO;
		for (i = 0; i < nr; i++) {
			const struct pl_cufile_event *ev = &w->events[i];

			if (ev->status != PL_CUFILE_COMPLETE || ev->ret != opt.size_bytes) {
				complain("a batch entry ended with status 0x%x, result %zd",
					 ev->status, (ssize_t)ev->ret);
				return -EIO;
			}
			run.touched[(size_t)ev->cookie] = 1;
		}
		left -= nr < left ? nr : left;
	}
	return 0;
}

static int worker_setup(struct worker *w)
{
	if (check_cuda("cuCtxSetCurrent", pl_cuda_min_enter(&run.cuda)))
		return -EIO;
	if (opt.batch == 1)
		return 0;
	w->io = calloc(opt.batch, sizeof(*w->io));
	w->events = calloc(opt.batch, sizeof(*w->events));
	if (!w->io || !w->events) {
		complain("out of memory");
		return -ENOMEM;
	}
	return check("cuFileBatchIOSetUp", cf.batch_setup(&w->batch, opt.batch));
}

static void *work(void *arg)
{
	struct worker *w = arg;
	uint64_t from, deadline;
	size_t group;
	int err = worker_setup(w);

	if (err)
		atomic_store(&run.failed, true);
	pthread_barrier_wait(&run.ready);
	pthread_barrier_wait(&run.go);
	from = run.start_ns;
	deadline = from + (uint64_t)(opt.seconds * 1e9);
	while (!atomic_load(&run.failed) && from < deadline &&
	       (group = atomic_fetch_add(&run.next, 1)) < run.nr_groups) {
		from = now_ns();
		err = opt.batch > 1 ? do_batch(w, group * opt.batch) : do_call(pick_slot(w, group));
		if (err) {
			atomic_store(&run.failed, true);
			break;
		}
		w->end_ns = now_ns();
		w->lat_ns[w->nr_groups++] = w->end_ns - from;
		from = w->end_ns;
	}
	if (w->batch)
		cf.batch_destroy(w->batch);
	free(w->io);
	free(w->events);
	return NULL;
}

/* Cold: written back and out of the page cache. Cached: read once through the page cache. */
static int prepare_cache(void)
{
	int fd = open(opt.file, O_RDONLY | O_CLOEXEC), err = 0;
	size_t at, bytes = run.nr_slots * opt.size_bytes;
	void *buffer = malloc(CHUNK_BYTES);

	if (fd < 0) {
		err = check_errno(opt.file);
	} else if (opt.cold) {
		sync();
		err = -posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		if (err)
			complain("%s: posix_fadvise: %s", opt.file, strerror(-err));
	} else {
		for (at = 0; buffer && !err && at < bytes; at += CHUNK_BYTES)
			err = move(false, fd, buffer,
				   bytes - at < CHUNK_BYTES ? bytes - at : CHUNK_BYTES, (off_t)at);
	}
	if (fd >= 0)
		close(fd);
	free(buffer);
	return err;
}

struct result {
	double gbps, ops_per_s, cpu_s_per_gb;
	uint64_t bytes;
};

/* Starts the threads of a repeat and returns when all stand at the start line. */
static void run_threads(struct worker *w)
{
	unsigned int i;

	pthread_barrier_init(&run.ready, NULL, opt.nr_threads + 1);
	pthread_barrier_init(&run.go, NULL, opt.nr_threads + 1);
	atomic_store(&run.next, 0);
	for (i = 0; i < opt.nr_threads; i++) {
		w[i].rng = mix((uint64_t)run.repeat_no << 32 | i);
		if (pthread_create(&w[i].thread, NULL, work, &w[i])) {
			/* the barriers cannot be completed any more: nothing to unwind to */
			complain("cannot start thread %u", i);
			exit(EXIT_FAILURE);
		}
	}
	pthread_barrier_wait(&run.ready);
}

static int measure(struct result *res)
{
	struct worker w[NR_THREADS_MAX] = { 0 };
	uint64_t end = 0, ops = 0;
	double cpu, seconds;
	unsigned int i;

	for (i = 0; i < opt.nr_threads; i++) {
		size_t bytes = run.nr_groups * sizeof(*w[i].lat_ns);

		/* touched here, so that no page fault falls inside the clock */
		w[i].lat_ns = malloc(bytes);
		if (w[i].lat_ns)
			memset(w[i].lat_ns, 0xff, bytes);
		else
			atomic_store(&run.failed, true);
	}
	run_threads(w);
	cpu = cpu_seconds();
	run.start_ns = now_ns();
	pthread_barrier_wait(&run.go);
	for (i = 0; i < opt.nr_threads; i++)
		pthread_join(w[i].thread, NULL);
	cpu = cpu_seconds() - cpu;
	for (i = 0; i < opt.nr_threads; i++) {
		memcpy(run.lat_ns + run.nr_lat, w[i].lat_ns, w[i].nr_groups * sizeof(*w[i].lat_ns));
		run.nr_lat += w[i].nr_groups;
		ops += w[i].nr_groups * opt.batch;
		end = w[i].end_ns > end ? w[i].end_ns : end;
		free(w[i].lat_ns);
	}
	pthread_barrier_destroy(&run.ready);
	pthread_barrier_destroy(&run.go);
	if (atomic_load(&run.failed) || !ops)
		return -EIO;
	seconds = 1e-9 * (double)(end - run.start_ns);
	res->bytes = ops * opt.size_bytes;
	res->gbps = 1e-9 * (double)res->bytes / seconds;
	res->ops_per_s = (double)ops / seconds;
	res->cpu_s_per_gb = cpu / (1e-9 * (double)res->bytes);
	return 0;
}

/* Fills the GPU's buffer: with what is to be written, or with what no read may leave there. */
static int prepare_buffer(void *host)
{
	size_t at, bytes = run.nr_slots * opt.size_bytes;

	run.salt = opt.write ? mix(now_ns()) : 0;
	if (check_cuda("cuMemAlloc", run.cuda.mem_alloc(&run.base, bytes)) ||
	    check_cuda("cuMemsetD8", run.cuda.memset_d8(run.base, 0x5a, bytes)))
		return -EIO;
	for (at = 0; opt.write && at < bytes; at += CHUNK_BYTES) {
		size_t n = bytes - at < CHUNK_BYTES ? bytes - at : CHUNK_BYTES;

		fill(host, n, (off_t)at, run.salt);
		if (check_cuda("cuMemcpyHtoD", run.cuda.memcpy_htod(run.base + at, host, n)))
			return -EIO;
	}
	return check_cuda("cuCtxSynchronize", run.cuda.ctx_synchronize());
}

/* Read: the buffer against the file. Write: the file against what the buffer was filled with. */
static int verify_piece(int fd, void *host, void *other, off_t at, size_t bytes)
{
	if (move(false, fd, other, bytes, at))
		return -EIO;
	if (opt.write)
		fill(host, bytes, at, run.salt);
	else if (check_cuda("cuMemcpyDtoH",
			    run.cuda.memcpy_dtoh(host, run.base + (uint64_t)at, bytes)))
		return -EIO;
	if (memcmp(host, other, bytes)) {
		complain("wrong data in the %zu bytes at %lld", bytes, (long long)at);
		return -EILSEQ;
	}
	return 0;
}

static int verify(void *host)
{
	int fd = open(opt.file, O_RDONLY | O_CLOEXEC), err = 0;
	void *other = malloc(CHUNK_BYTES);
	size_t slot, at;

	if (fd < 0)
		err = check_errno(opt.file);
	else if (!other)
		err = -ENOMEM;
	for (slot = 0; !err && slot < run.nr_slots; slot++) {
		for (at = 0; !err && run.touched[slot] && at < opt.size_bytes; at += CHUNK_BYTES) {
			size_t left = opt.size_bytes - at;

			err = verify_piece(fd, host, other, (off_t)(slot * opt.size_bytes + at),
					   left < CHUNK_BYTES ? left : CHUNK_BYTES);
		}
	}
	if (fd >= 0)
		close(fd);
	free(other);
	return err;
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

static double median(const struct result *res, size_t offset, double *best)
{
	double v[NR_REPEAT_MAX] = { 0 };
	unsigned int i;

	for (i = 0; i < opt.repeat; i++)
		memcpy(&v[i], (const char *)&res[i] + offset, sizeof(v[i]));
	qsort(v, opt.repeat, sizeof(v[0]), by_value);
	if (best)
		*best = v[opt.repeat - 1];
	return opt.repeat % 2 ? v[opt.repeat / 2] : (v[opt.repeat / 2] + v[opt.repeat / 2 - 1]) / 2;
}

static void report(const struct result *res, int version)
{
	static const char *const bools[] = { "false", "true" };
	double gbps, best, ops, cpu;

	gbps = median(res, offsetof(struct result, gbps), &best);
	ops = median(res, offsetof(struct result, ops_per_s), NULL);
	cpu = median(res, offsetof(struct result, cpu_s_per_gb), NULL);
	qsort(run.lat_ns, run.nr_lat, sizeof(run.lat_ns[0]), by_ns);
	printf("{\"who\":\"%s\",\"version\":%d,\"op\":\"%s\",\"size\":%zu,\"threads\":%u,"
	       "\"batch\":%u,\"random\":%s,\"cold\":%s,\"direct\":%s,\"registered\":%s,",
	       opt.who, version, opt.write ? "write" : "read", opt.size_bytes, opt.nr_threads,
	       opt.batch, bools[opt.random], bools[opt.cold], bools[opt.direct],
	       bools[!opt.unregistered]);
	printf("\"gbps\":%.3f,\"gbps_best\":%.3f,\"ops_per_s\":%.1f,\"lat_us_p50\":%.2f,"
	       "\"lat_us_p99\":%.2f,\"cpu_s_per_gb\":%.4f,\"bytes\":%llu,\"repeat\":%u,"
	       "\"verified\":%s}\n",
	       gbps, best, ops, 1e-3 * (double)run.lat_ns[run.nr_lat / 2],
	       1e-3 * (double)run.lat_ns[run.nr_lat * 99 / 100], cpu,
	       (unsigned long long)res[0].bytes, opt.repeat, bools[opt.verify]);
}

/* The calls of one shape on an open handle; a first call outside the clock lets it warm up. */
static int run_shape(int version)
{
	struct result res[NR_REPEAT_MAX];
	void *host = malloc(CHUNK_BYTES);
	int err = host ? prepare_buffer(host) : -ENOMEM;
	void *base = (void *)(uintptr_t)run.base;

	if (!err && !opt.unregistered)
		err = check("cuFileBufRegister",
			    cf.buf_register(base, run.nr_slots * opt.size_bytes, 0));
	if (err)
		goto out;
	err = opt.cold ? 0 : prepare_cache();
	if (!err)
		err = do_call(0);
	for (run.repeat_no = 0; !err && run.repeat_no < opt.repeat; run.repeat_no++) {
		if (opt.cold)
			err = prepare_cache();
		if (!err)
			err = measure(&res[run.repeat_no]);
	}
	if (!err && opt.verify)
		err = verify(host);
	if (!err)
		report(res, version);
	if (!opt.unregistered)
		cf.buf_deregister(base);
out:
	free(host);
	return err;
}

static int open_handle(void)
{
	struct pl_cufile_descr descr = { .type = PL_CUFILE_TYPE_FD };
	int flags = (opt.write ? O_RDWR : O_RDONLY) | O_CLOEXEC | (opt.direct ? O_DIRECT : 0);
	struct pl_cufile_error e;

	run.fd = open(opt.file, flags);
	if (run.fd < 0)
		return check_errno(opt.file);
	descr.handle.fd = run.fd;
	e = cf.handle_register(&run.handle, &descr);
	if (e.err == 5027)
		complain("5027 here mostly means that the udev database does not know the disk:\n"
			 "  /run/udev/data/bMAJOR:MINOR of the disk must hold the lines\n"
			 "  E:ID_FS_TYPE=ext4 (or xfs) and E:ID_FS_USAGE=filesystem;\n"
			 "  as root, --udev-record writes them where the record is missing");
	return check("cuFileHandleRegister", e);
}

/* Slots and groups of the shape, and the arrays sized by them. */
static int plan(void)
{
	size_t region;
	struct stat st;

	if (stat(opt.file, &st))
		return check_errno(opt.file);
	region = (size_t)st.st_size;
	if (!opt.total_bytes)
		opt.total_bytes = region;
	if (!opt.random && opt.total_bytes < region)
		region = opt.total_bytes;
	run.nr_slots = region / opt.size_bytes;
	run.nr_groups = opt.total_bytes / opt.size_bytes / opt.batch;
	if (!run.nr_slots || !run.nr_groups) {
		complain("%s of %lld bytes and --bytes %zu do not hold one call of %zu x %u",
			 opt.file, (long long)st.st_size, opt.total_bytes, opt.size_bytes,
			 opt.batch);
		return -EINVAL;
	}
	run.touched = calloc(run.nr_slots, 1);
	run.lat_ns = malloc(run.nr_groups * opt.repeat * sizeof(*run.lat_ns));
	if (!run.touched || !run.lat_ns) {
		complain("out of memory");
		return -ENOMEM;
	}
	return 0;
}

static const char help[] =
	"usage: peer_cufile --file PATH [--op read|write] [options]\n"
	"Measures libcufile.so.0 between a file and GPU memory; prints one JSON object.\n"
	"Sizes take K, M and G. A write overwrites the file.\n"
	"  --file PATH       the file\n"
	"  --create BYTES    write the file first (alone: do only that)\n"
	"  --op read|write   direction (read)\n"
	"  --size BYTES      size of one call, a multiple of 8 (1M)\n"
	"  --threads N       threads that call (1)\n"
	"  --batch N         N calls at once through cuFileBatchIO*; latencies are a batch's (1)\n"
	"  --random          calls at random places instead of in order\n"
	"  --cold            O_DIRECT, the page cache dropped before each repeat\n"
	"  --cached          the file read into the page cache first (this is the default)\n"
	"  --direct          O_DIRECT also when cached\n"
	"  --bytes TOTAL     bytes of one repeat (the file's size)\n"
	"  --seconds MAX     longest time of one repeat (10)\n"
	"  --repeat R        repeats; gbps is their median (3)\n"
	"  --unregistered    no cuFileBufRegister\n"
	"  --verify          compare the data after the timing\n"
	"  --udev-record     as root: write the disk's udev record if it is missing\n"
	"  --lib PATH        the library to measure (libcufile.so.0 where it is usually found)\n"
	"  --who NAME        the name in the result (libcufile)\n"
	"  --config PATH     its cufile.json; without one the library takes built-in settings\n"
	"Exit: 0 measured, 1 a call failed or wrong data, 2 usage, 77 no GPU or no library.\n"
	"The library writes its log to the working directory; CUFILE_LOGFILE_PATH moves it.\n";

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

static const struct option options[] = {
	{ "file", 1, NULL, 'f' },    { "create", 1, NULL, 'c' },
	{ "op", 1, NULL, 'o' },	     { "size", 1, NULL, 's' },
	{ "threads", 1, NULL, 't' }, { "batch", 1, NULL, 'b' },
	{ "random", 0, NULL, 'r' },  { "cold", 0, NULL, 'C' },
	{ "cached", 0, NULL, 'K' },  { "direct", 0, NULL, 'D' },
	{ "bytes", 1, NULL, 'B' },   { "seconds", 1, NULL, 'S' },
	{ "repeat", 1, NULL, 'R' },  { "unregistered", 0, NULL, 'U' },
	{ "verify", 0, NULL, 'v' },  { "udev-record", 0, NULL, 'u' },
	{ "lib", 1, NULL, 'l' },     { "who", 1, NULL, 'w' },
	{ "config", 1, NULL, 'j' },  { "help", 0, NULL, 'h' },
	{ NULL, 0, NULL, 0 }
};

/* the options that take a value */
static int parse_value(int c, const char *text)
{
	char *end;

	switch (c) {
	case 'f':
		opt.file = text;
		return 0;
	case 'l':
		opt.lib = text;
		return 0;
	case 'w':
		opt.who = text;
		return strpbrk(text, "\"\\") ? -EINVAL : 0;
	case 'j':
		return setenv("CUFILE_ENV_PATH_JSON", text, 1) ? -ENOMEM : 0;
	case 'c':
		return parse_size(text, &opt.create_bytes);
	case 's':
		return parse_size(text, &opt.size_bytes) || opt.size_bytes % 8 ? -EINVAL : 0;
	case 'B':
		return parse_size(text, &opt.total_bytes);
	case 't':
		return parse_count(text, NR_THREADS_MAX, &opt.nr_threads);
	case 'b':
		return parse_count(text, 4096, &opt.batch);
	case 'R':
		return parse_count(text, NR_REPEAT_MAX, &opt.repeat);
	case 'S':
		opt.seconds = strtod(text, &end);
		return end != text && !*end && opt.seconds > 0 && opt.seconds < 1e6 ? 0 : -EINVAL;
	case 'o':
		opt.op_given = true;
		opt.write = !strcmp(text, "write");
		return opt.write || !strcmp(text, "read") ? 0 : -EINVAL;
	}
	return -EINVAL;
}

/* Return: 0, 1 when only help was asked for, -EINVAL */
static int parse(int argc, char **argv)
{
	bool cached = false;
	int c, index = 0;

	while ((c = getopt_long(argc, argv, "", options, &index)) != -1) {
		if (c == '?')
			return -EINVAL;
		if (c == 'h')
			return 1;
		opt.random |= c == 'r';
		opt.cold |= c == 'C';
		cached |= c == 'K';
		opt.direct |= c == 'D' || c == 'C';
		opt.unregistered |= c == 'U';
		opt.verify |= c == 'v';
		opt.udev_record |= c == 'u';
		if (optarg && parse_value(c, optarg)) {
			complain("--%s %s: not understood", options[index].name, optarg);
			return -EINVAL;
		}
	}
	if (optind < argc)
		complain("%s: not understood", argv[optind]);
	else if (cached && opt.cold)
		complain("--cold and --cached exclude each other");
	else if (!opt.file)
		complain("--file is needed; --help tells more");
	else
		return 0;
	return -EINVAL;
}

int main(int argc, char **argv)
{
	int version = 0, err = parse(argc, argv);
	const char *why;

	if (err) {
		fputs(err > 0 ? help : "", stdout);
		return err > 0 ? EXIT_SUCCESS : EXIT_USAGE;
	}
	if ((opt.create_bytes && create_file()) || (opt.udev_record && write_udev_record()))
		return EXIT_FAILURE;
	if ((opt.create_bytes || opt.udev_record) && !opt.op_given)
		return EXIT_SUCCESS;
	if (pl_cuda_min_open(&run.cuda, 0)) {
		complain("skipped: no GPU: %s (%s)", run.cuda.why,
			 pl_cuda_min_name(&run.cuda, run.cuda.result));
		return EXIT_SKIP;
	}
	if (pl_cufile_min_open(&cf, opt.lib, &why)) {
		complain("skipped: no usable libcufile: %s", why);
		return EXIT_SKIP;
	}
	err = plan();
	if (err)
		goto out;
	err = check("cuFileDriverOpen", cf.driver_open());
	if (err)
		goto out;
	err = check("cuFileGetVersion", cf.get_version(&version));
	if (!err)
		err = open_handle();
	if (err)
		goto close_driver;
	err = run_shape(version);
	cf.handle_deregister(run.handle);
close_driver:
	cf.driver_close();
out:
	free(run.touched);
	free(run.lat_ns);
	return err ? EXIT_FAILURE : EXIT_SUCCESS;
}
