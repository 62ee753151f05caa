// SPDX-License-Identifier: MIT
/*
 * Measures what the machine itself can do: pinned copies to and from the GPU, plain O_DIRECT and
 * plain buffered file access into host memory. Other figures are ratios to these.
 * One JSON object a line on stdout.
 */
#include "cuda_min.h"
#include "shape.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NR_SIZES_MAX 16u
#define NR_STREAMS_MAX 2u
#define NR_LATENCY 200u
#define COPY_BUFFER_BYTES ((size_t)256 << 20)

enum kind { KIND_COPY, KIND_DIRECT, KIND_BUFFERED };

static const char *const kind_names[] = { "copy", "direct", "buffered" };

static struct pl_shape shape = { .batch = 1, .repeat = 3, .seconds = 10 };

static struct {
	enum kind kind;
	size_t size_bytes[NR_SIZES_MAX];
	unsigned int nr_sizes;
} opt;

/* The file and the memory of the threads. */
static struct {
	int fd;
	void *buffers[PL_SHAPE_THREADS_MAX];
} io;

/* The object without its closing brace: callers add what only they know. */
static void print_figures(const struct pl_shape_figures *f, size_t size_bytes,
			  unsigned int nr_threads)
{
	printf("{\"who\":\"%s\",\"op\":\"%s\",\"size\":%zu,\"threads\":%u,\"batch\":%u,"
	       "\"random\":%s,\"cold\":%s,",
	       kind_names[opt.kind], shape.write ? "write" : "read", size_bytes, nr_threads,
	       shape.batch, shape.random ? "true" : "false", shape.cold ? "true" : "false");
	pl_shape_print(&shape, f);
}

/* Files */

/* shape.batch calls one after the other */
static int do_group(struct pl_shape_worker *w, size_t first_op)
{
	size_t bytes = w->run->size_bytes;
	unsigned int i;
	int err = 0;

	for (i = 0; !err && i < shape.batch; i++)
		err = pl_shape_move(shape.write, io.fd, io.buffers[w->id], bytes,
				    (off_t)(pl_shape_pick(w, first_op + i) * bytes));
	return err;
}

static void free_buffers(void)
{
	unsigned int i;

	for (i = 0; i < PL_SHAPE_THREADS_MAX; i++) {
		free(io.buffers[i]);
		io.buffers[i] = NULL;
	}
}

static int alloc_buffers(size_t size_bytes, unsigned int nr_threads)
{
	unsigned int i;

	/* all memory is touched here, so that no first page fault falls inside the clock */
	for (i = 0; i < nr_threads; i++) {
		if (posix_memalign(&io.buffers[i], (size_t)2 << 20, size_bytes)) {
			io.buffers[i] = NULL;
			return -ENOMEM;
		}
		memset(io.buffers[i], (int)(i + 1), size_bytes);
	}
	return 0;
}

static int run_repeats(struct pl_shape_run *run)
{
	unsigned int i;
	int err = 0;

	for (i = 0; !err && i < shape.repeat; i++) {
		if (shape.cold || !i)
			err = pl_shape_prepare_cache(&shape, run->nr_slots * run->size_bytes);
		if (err)
			break;
		err = pl_shape_run_repeat(run);
		if (err)
			pl_shape_complain("%s: %s", shape.file, strerror(-err));
	}
	return err;
}

static int measure_file(struct pl_shape_figures *f, size_t size_bytes, unsigned int nr_threads)
{
	struct pl_shape_run run = { .shape = &shape, .nr_threads = nr_threads, .group = do_group };
	struct stat st;
	int err;

	if (fstat(io.fd, &st))
		return pl_shape_complain_errno(shape.file);
	err = pl_shape_plan(&run, st.st_size, size_bytes);
	if (err)
		return err;
	err = pl_shape_run_init(&run);
	if (!err)
		err = alloc_buffers(size_bytes, nr_threads);
	if (err)
		pl_shape_complain("no memory for %u buffers of %zu bytes", nr_threads, size_bytes);
	else
		err = run_repeats(&run);
	if (!err)
		pl_shape_summarise(&shape, f, run.repeats, run.lat_ns, atomic_load(&run.nr_lat));
	free_buffers();
	pl_shape_run_fini(&run);
	return err;
}

/* The best number of threads for one size of call; the others are told beside it. */
static int limit_of_size(size_t size_bytes)
{
	static const unsigned int sweep[] = { 1, 4, 16 };
	const unsigned int *threads = shape.nr_threads ? &shape.nr_threads : sweep;
	struct pl_shape_figures f[3];
	unsigned int i, best = 0, nr = shape.nr_threads ? 1 : 3;
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
	int flags = (shape.write ? O_WRONLY : O_RDONLY) | O_CLOEXEC, err = 0;
	unsigned int i;

	if (opt.kind == KIND_DIRECT)
		flags |= O_DIRECT;
	io.fd = open(shape.file, flags);
	if (io.fd < 0)
		return pl_shape_complain_errno(shape.file);
	for (i = 0; !err && i < opt.nr_sizes; i++)
		err = limit_of_size(opt.size_bytes[i]);
	close(io.fd);
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
	pl_shape_complain("%s: CUDA %d (%s)", call, result, pl_cuda_min_name(&c->cuda, result));
	return -EIO;
}

static int copy_one(struct copier *c, size_t at, size_t bytes, void *stream)
{
	if (shape.write)
		return c->cuda.memcpy_dtoh_async(c->host + at, c->device + at, bytes, stream);
	return c->cuda.memcpy_htod_async(c->device + at, c->host + at, bytes, stream);
}

static int copy_repeat(struct copier *c, struct pl_shape_repeat *rep, size_t piece,
		       unsigned int nr_streams)
{
	size_t i, nr = (shape.total_bytes ? shape.total_bytes : (size_t)4 << 30) / piece;
	size_t nr_places = COPY_BUFFER_BYTES / piece;
	double cpu = pl_shape_cpu_seconds();
	uint64_t start = pl_shape_now_ns();
	int r = 0;

	if (!nr)
		nr = 1;
	for (i = 0; !r && i < nr; i++)
		r = copy_one(c, i % nr_places * piece, piece, c->streams[i % nr_streams]);
	for (i = 0; !r && i < nr_streams; i++)
		r = c->cuda.stream_synchronize(c->streams[i]);
	if (r)
		return check_cuda(c, "asynchronous copy", r);
	pl_shape_repeat_finish(rep, nr, piece, 1e-9 * (double)(pl_shape_now_ns() - start),
			       pl_shape_cpu_seconds() - cpu);
	return 0;
}

static int measure_copy(struct copier *c, struct pl_shape_figures *f, size_t piece,
			unsigned int nr_streams)
{
	struct pl_shape_repeat rep[PL_SHAPE_REPEAT_MAX];
	uint64_t lat_ns[NR_LATENCY], from;
	unsigned int i;
	int r = 0, err = 0;

	/* the latency is that of a lone copy, the rate that of a full queue */
	for (i = 0; !r && i < NR_LATENCY; i++) {
		from = pl_shape_now_ns();
		r = copy_one(c, 0, piece, c->streams[0]);
		if (!r)
			r = c->cuda.stream_synchronize(c->streams[0]);
		lat_ns[i] = pl_shape_now_ns() - from;
	}
	err = check_cuda(c, "synchronous copy", r);
	for (i = 0; !err && i < shape.repeat; i++)
		err = copy_repeat(c, &rep[i], piece, nr_streams);
	if (!err)
		pl_shape_summarise(&shape, f, rep, lat_ns, NR_LATENCY);
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
	struct pl_shape_figures f, best = { 0 };
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
		pl_shape_complain("skipped: no GPU: %s (%s)", c.cuda.why,
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

enum { OPTION_SIZE = PL_SHAPE_OWN };

static const struct option options[] = {
	PL_SHAPE_OPTIONS,
	{ "size", 1, NULL, OPTION_SIZE },
	{ NULL, 0, NULL, 0 },
};

static int parse_value(int c, const char *text)
{
	if (c != OPTION_SIZE || opt.nr_sizes == NR_SIZES_MAX)
		return -EINVAL;
	return pl_shape_parse_size(text, &opt.size_bytes[opt.nr_sizes++]);
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
	pl_shape_complain("%s: not copy, direct or buffered", text);
	return -EINVAL;
}

/* What the options mean together. */
static int settle(void)
{
	unsigned int i;

	if (opt.kind != KIND_COPY && !shape.file) {
		pl_shape_complain("--file is needed; --help tells more");
		return -EINVAL;
	}
	if (shape.cached && (shape.cold || opt.kind == KIND_DIRECT)) {
		pl_shape_complain("--cached excludes --cold and direct");
		return -EINVAL;
	}
	for (i = 0; opt.kind == KIND_COPY && i < opt.nr_sizes; i++) {
		if (opt.size_bytes[i] > COPY_BUFFER_BYTES) {
			pl_shape_complain("copy takes sizes up to %zu", COPY_BUFFER_BYTES);
			return -EINVAL;
		}
	}
	if (opt.kind != KIND_COPY && !opt.nr_sizes)
		opt.size_bytes[opt.nr_sizes++] = 1 << 20;
	shape.cold |= opt.kind == KIND_DIRECT;
	return 0;
}

/* Return: 0, 1 when only help was asked for, -EINVAL */
static int parse(int argc, char **argv)
{
	int err = pl_shape_parse(&shape, argc, argv, options, parse_value, NULL);

	if (err)
		return err;
	if (argc - optind != 1) {
		pl_shape_complain("one of copy, direct and buffered is needed; --help tells more");
		return -EINVAL;
	}
	if (parse_kind(argv[optind]))
		return -EINVAL;
	return settle();
}

int main(int argc, char **argv)
{
	int err = parse(argc, argv);

	if (err) {
		fputs(err > 0 ? help : "", stdout);
		return err > 0 ? EXIT_SUCCESS : PL_SHAPE_EXIT_USAGE;
	}
	err = opt.kind == KIND_COPY ? limit_copy() : limit_files();
	if (opt.kind == KIND_COPY && err == -ENODEV)
		return PL_SHAPE_EXIT_SKIP;
	return err ? EXIT_FAILURE : EXIT_SUCCESS;
}
