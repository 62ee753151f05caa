// SPDX-License-Identifier: MIT
/*
 * What a bare loop makes of cached reads: each thread reads a piece into pinned memory of its own,
 * copies it to the GPU, waits, and takes the next. No engine: what the machine's cores and memory
 * allow for calls of this size. Prints one line of JSON per number of threads and way of reading:
 * plain; past the CPU's caches as the engine does (lib/nt_copy.c); or not at all, the copy alone, which
 * nobody who copies and waits once a call can be faster than.
 */
#include "cuda_min.h"
#include "nt_copy.h"
#include "shape.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BOUNCE_BYTES ((size_t)64 << 10)

static struct pl_shape shape = { .batch = 1, .repeat = 3, .seconds = 10 };
static struct pl_cuda_min cuda;
static size_t size_bytes = (size_t)1 << 20;
static enum how {
	PLAIN,
	PAST_CACHES,
	COPY_ONLY,
	NR_HOW,
} how;
static int fd;

static const char *const how_names[NR_HOW] = { "plain", "past the caches", "copy only" };

/* What one thread has. */
struct lane {
	char *pinned, *bounce;
	uint64_t gpu;
	void *stream;
};

static int lane_open(struct pl_shape_worker *w)
{
	struct lane *l = calloc(1, sizeof(*l));
	void *mem = NULL;

	w->own = l;
	if (!l || pl_cuda_min_enter(&cuda) || cuda.mem_alloc(&l->gpu, size_bytes) ||
	    cuda.mem_host_alloc(&mem, size_bytes, PL_CUDA_MIN_HOST_PORTABLE) ||
	    cuda.stream_create(&l->stream, PL_CUDA_MIN_STREAM_NON_BLOCKING, 0))
		return -ENOMEM;
	l->pinned = mem;
	memset(l->pinned, 1, size_bytes);
	if (posix_memalign(&mem, 4096, BOUNCE_BYTES))
		return -ENOMEM;
	l->bounce = mem;
	memset(l->bounce, 1, BOUNCE_BYTES);
	return 0;
}

static void lane_close(struct pl_shape_worker *w)
{
	struct lane *l = w->own;

	if (!l)
		return;
	if (l->stream)
		cuda.stream_destroy(l->stream);
	if (l->pinned)
		cuda.mem_free_host(l->pinned);
	if (l->gpu)
		cuda.mem_free(l->gpu);
	free(l->bounce);
	free(l);
}

static int fill(struct lane *l, off_t at)
{
	int err = 0;

	if (how == COPY_ONLY)
		return 0;
	if (how == PLAIN)
		return pl_shape_move(false, fd, l->pinned, size_bytes, at);
	for (size_t i = 0; !err && i < size_bytes; i += BOUNCE_BYTES) {
		size_t n = size_bytes - i < BOUNCE_BYTES ? size_bytes - i : BOUNCE_BYTES;

		err = pl_shape_move(false, fd, l->bounce, n, at + (off_t)i);
		pl_nt_copy(l->pinned + i, l->bounce, n);
	}
	pl_nt_fence();
	return err;
}

static int call(struct pl_shape_worker *w, size_t first_op)
{
	struct lane *l = w->own;
	int err = fill(l, (off_t)(pl_shape_pick(w, first_op) * size_bytes));

	if (err)
		return err;
	if (cuda.memcpy_htod_async(l->gpu, l->pinned, size_bytes, l->stream) ||
	    cuda.stream_synchronize(l->stream))
		return -EIO;
	return 0;
}

static int measure(unsigned int nr_threads)
{
	struct pl_shape_run run = { .shape = &shape,
				    .nr_threads = nr_threads,
				    .setup = lane_open,
				    .group = call,
				    .teardown = lane_close };
	struct pl_shape_figures f;
	struct stat st;
	int err;

	if (fstat(fd, &st))
		return pl_shape_complain_errno(shape.file);
	err = pl_shape_plan(&run, st.st_size, size_bytes);
	if (!err)
		err = pl_shape_run_init(&run);
	for (unsigned int i = 0; !err && i < shape.repeat; i++) {
		if (!i)
			err = pl_shape_prepare_cache(&shape, run.nr_slots * size_bytes);
		if (!err)
			err = pl_shape_run_repeat(&run);
	}
	if (!err) {
		pl_shape_summarise(&shape, &f, run.repeats, run.lat_ns, atomic_load(&run.nr_lat));
		printf("{\"who\":\"bare\",\"how\":\"%s\",\"op\":\"read\",\"size\":%zu,\"threads\":%"
		       "u,",
		       how_names[how], size_bytes, nr_threads);
		pl_shape_print(&shape, &f);
		printf("}\n");
	} else {
		pl_shape_complain("%s: %s", shape.file, strerror(-err));
	}
	pl_shape_run_fini(&run);
	return err;
}

static const char help[] =
	"usage: bare --file PATH [options]\n"
	"Cached reads by a bare loop: each thread reads into pinned memory and copies it to the "
	"GPU,\n"
	"or only copies.\n"
	"Prints one JSON object a number of threads and way of reading. Sizes take K, M and G.\n"
	"  --file PATH       the file\n"
	"  --size BYTES      size of one call (1M)\n"
	"  --threads N       threads (1, 8 and as many as there are CPUs)\n"
	"  --bytes TOTAL     bytes of one repeat (the file's size)\n"
	"  --seconds MAX     longest time of one repeat (10)\n"
	"  --repeat R        repeats; gbps is their median (3)\n"
	"Exit: 0 measured, 1 failed, 2 usage, 77 without a GPU.\n";

enum { OPTION_SIZE = PL_SHAPE_OWN };

static const struct option options[] = {
	PL_SHAPE_OPTIONS,
	{ "size", 1, NULL, OPTION_SIZE },
	{ NULL, 0, NULL, 0 },
};

static int parse_value(int c, const char *text)
{
	if (c != OPTION_SIZE)
		return -EINVAL;
	return pl_shape_parse_size(text, &size_bytes);
}

static int measure_all(void)
{
	unsigned int cpus = (unsigned int)sysconf(_SC_NPROCESSORS_ONLN);
	unsigned int sweep[] = { 1, 8, cpus < PL_SHAPE_THREADS_MAX ? cpus : PL_SHAPE_THREADS_MAX };
	int err = 0;

	for (unsigned int i = 0; !err && i < (shape.nr_threads ? 1 : 3); i++) {
		for (how = PLAIN; !err && how < NR_HOW; how++)
			err = measure(shape.nr_threads ? shape.nr_threads : sweep[i]);
	}
	return err;
}

int main(int argc, char **argv)
{
	int err = pl_shape_parse(&shape, argc, argv, options, parse_value, NULL);

	if (!err && (!shape.file || !size_bytes || shape.write || shape.cold || shape.batch != 1)) {
		pl_shape_complain("%s; --help tells more",
				  shape.file ? "cached reads only" : "--file is needed");
		err = -EINVAL;
	}
	if (err) {
		fputs(err > 0 ? help : "", stdout);
		return err > 0 ? 0 : PL_SHAPE_EXIT_USAGE;
	}
	fd = open(shape.file, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		pl_shape_complain_errno(shape.file);
		return 1;
	}
	if (pl_cuda_min_open(&cuda, 0)) {
		pl_shape_complain("skipped: no GPU: %s (%s)", cuda.why,
				  pl_cuda_min_name(&cuda, cuda.result));
		return PL_SHAPE_EXIT_SKIP;
	}
	err = measure_all();
	pl_cuda_min_close(&cuda);
	close(fd);
	return err ? 1 : 0;
}
