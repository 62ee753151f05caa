// SPDX-License-Identifier: MIT
/*
 * Adds up a file of 64-bit numbers by a kernel that reads the file itself: through an array whose pages are
 * cached in GPU memory, served by threads of this process, without privileges. Where there is no GPU, the same
 * kernel runs on the CPU.
 */
#include "array_sum.h"
#include "array_sum_ptx.h"

#include <peerlane/device.h>
#include <peerlane/device_array.h>
#include <peerlane/gpu.h>

#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CACHE_PAGES 64u
#define PAGE 4096u
#define NR_WARPS 4u

struct example {
	struct peerlane *ctx;
	bool on_gpu;
	struct peerlane_device *dev;
	char *memory; /* of kernels: the sum and an error, then frames, then metadata */
	struct sum_args args;
};

static int complain(const char *what, int err)
{
	struct peerlane_error_info info = { .size = sizeof(info) };
	const bool has_words = !peerlane_error(&info) && info.err == err && *info.text;

	fprintf(stderr, "array_sum: %s: %s\n", what, has_words ? info.text : strerror(-err));
	return err;
}

/* Memory of kernels, zeroed. */
static int alloc(struct example *e, size_t bytes)
{
	void *zeroes = calloc(1, bytes), *memory = NULL;
	int err = zeroes ? 0 : -ENOMEM;

	if (!err && e->on_gpu)
		err = peerlane_gpu_alloc(e->ctx, 0, bytes, &memory);
	else if (!err)
		err = posix_memalign(&memory, PAGE, bytes) ? -ENOMEM : 0;
	e->memory = memory;
	if (!err && e->on_gpu)
		err = peerlane_gpu_copy(e->ctx, memory, zeroes, bytes);
	else if (!err)
		memset(memory, 0, bytes);
	free(zeroes);
	return err;
}

/* Queues that are served from the file, and an array over them. */
static int set_up(struct example *e, int fd, uint64_t nr)
{
	struct peerlane_device_options opt = { .size = sizeof(opt),
					       .ctx = e->ctx,
					       .nr_queues = NR_WARPS };
	struct peerlane_device_info info = { .size = sizeof(info) };
	struct pld_target target = { .nsid = 1, .log_block = 9 };
	struct pld_path path = { 0 };
	struct peerlane_array_options array = {
		.size = sizeof(array),
		.bytes = nr * 8,
		.page_bytes = PAGE,
		.frames_bytes = CACHE_PAGES * PAGE,
		.targets = &target,
		.nr_targets = 1,
		.paths = &path,
		.nr_paths = 1,
	};
	int err = peerlane_device_open_files(&e->dev, &opt, &fd, 1);

	if (!err)
		err = peerlane_device_get_info(e->dev, &info);
	if (err)
		return complain("queues", err);
	e->on_gpu = info.on_gpu;
	path.queues = info.queues;
	path.nr_queues = info.nr_queues;
	path.slots_per_queue = info.ports_per_queue * info.slots_per_port;
	err = alloc(e, (1 + CACHE_PAGES) * PAGE + peerlane_array_metadata_bytes(&array));
	array.frames = e->memory + PAGE;
	array.metadata = e->memory + (1 + CACHE_PAGES) * PAGE;
	if (!err)
		err = peerlane_array_init(&e->args.cache, &array);
	if (err)
		return complain("array", err);
	e->args.nr = nr;
	e->args.sum = (uint64_t *)e->memory;
	e->args.error = e->args.sum + 1;
	e->args.nr_warps = NR_WARPS;
	e->args.lanes = e->on_gpu ? ~0u : 0x3;
	return 0;
}

static void on_cpu(unsigned int warp, void *arg)
{
	sum_kernel(arg, warp);
}

static int run(struct example *e, uint64_t results[2])
{
	const struct peerlane_kernel kernel = { .name = "array_sum", .ptx = array_sum_ptx };
	const size_t bytes = sizeof(e->args);
	void *arg = &e->args, *stream;
	int err;

	if (!e->on_gpu) {
		err = peerlane_cpu_run(NR_WARPS, 2, on_cpu, &e->args);
		memcpy(results, e->args.sum, 2 * sizeof(*results));
		return err ? complain("kernel", err) : 0;
	}
	err = peerlane_gpu_stream_create(e->ctx, 0, &stream);
	if (err)
		return complain("stream", err);
	err = peerlane_gpu_launch(e->ctx, stream, &kernel, 1, NR_WARPS * PLD_WARP, &arg, &bytes, 1);
	if (!err)
		err = peerlane_gpu_stream_sync(e->ctx, stream);
	if (!err)
		err = peerlane_gpu_copy(e->ctx, results, e->args.sum, 2 * sizeof(*results));
	peerlane_gpu_stream_destroy(e->ctx, stream);
	return err ? complain("kernel", err) : 0;
}

static int sum_on_cpu(int fd, uint64_t nr, uint64_t *sum)
{
	uint64_t x;

	*sum = 0;
	for (uint64_t i = 0; i < nr; i++) {
		if (pread(fd, &x, sizeof(x), (off_t)(i * sizeof(x))) != sizeof(x))
			return complain("reading", -EIO);
		*sum += x;
	}
	return 0;
}

static int work(struct example *e, const char *path, int fd)
{
	const off_t end = lseek(fd, 0, SEEK_END);
	const uint64_t nr = end > 0 ? (uint64_t)end / 8 : 0;
	uint64_t results[2] = { 0 }, expected;
	int err = nr ? set_up(e, fd, nr) : complain(path, -ENODATA);

	if (!err)
		err = run(e, results);
	if (!err && results[1])
		err = complain("a page did not come", -(int)results[1]);
	if (!err)
		err = sum_on_cpu(fd, nr, &expected);
	if (err)
		return err;
	printf("%" PRIu64 " numbers, sum %" PRIu64 ", by a kernel on the %s\n", nr, results[0],
	       e->on_gpu ? "GPU" : "CPU");
	if (results[0] != expected)
		return complain("the CPU found another sum", -EBADMSG);
	puts("the CPU found the same");
	return 0;
}

int main(int argc, char **argv)
{
	struct example e = { 0 };
	int fd, err;

	if (argc != 2) {
		fputs("usage: array_sum FILE\nAdds up the 64-bit numbers of FILE by a kernel.\n",
		      stderr);
		return 1;
	}
	fd = open(argv[1], O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return complain(argv[1], -errno) != 0;
	err = peerlane_open(&e.ctx, NULL);
	if (err)
		complain("cannot start", err);
	else
		err = work(&e, argv[1], fd);
	peerlane_device_close(e.dev);
	if (e.on_gpu)
		peerlane_gpu_free(e.ctx, e.memory);
	else
		free(e.memory);
	if (e.ctx)
		peerlane_close(e.ctx);
	close(fd);
	return err != 0;
}
