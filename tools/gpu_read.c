/* SPDX-License-Identifier: MIT */
/* peerlane bench gpu read: random reads from an emulated drive, beside reading its memory directly. */
#include "commands.h"
#include "gpu_reads.h"
#include "stop.h"

#include <errno.h>

struct read_args {
	struct pl_gpu_args common;
	uint64_t size, bytes, spoil;
};

#define AT(member) offsetof(struct read_args, member)

static const struct pl_option options[] = {
	{ "size", PL_OPTION_SIZE, AT(size), "SIZE",
	  "Bytes of one read: 512, 1K, 2K or a multiple of 4K (default 4K).", 512, 2 << 20 },
	{ "bytes", PL_OPTION_SIZE, AT(bytes), "SIZE",
	  "Bytes of the emulated drive (default 1G for a GPU, else 1M).", 4096, 0x1p40 },
	{ "spoil", PL_OPTION_SIZE, AT(spoil), "N",
	  "Change a byte of block N first, to see that it is found.", 0, 0x1p40 },
	PL_GPU_COUNT_OPTION(struct read_args),
	PL_GPU_SECONDS_OPTION(struct read_args),
	PL_GPU_OPTIONS(struct read_args),
	{ 0 },
};

/* Everything of one row that needs its device. */
static int measure_row(struct pl_gpu_bench *b, const struct read_args *a, struct pl_gpu_row *row,
		       struct peerlane_device *dev, char *memory)
{
	const uint32_t size = (uint32_t)a->size;
	struct pl_gpu_reads r;
	int err;

	pl_gpu_pattern(memory, 0, a->bytes);
	if (a->spoil != UINT64_MAX)
		memory[a->spoil * 512 + 511] ^= 1;
	pl_gpu_bench_describe(b, dev);
	err = pl_gpu_reads_init(&r, b, row, dev, size);
	if (!err)
		err = pl_gpu_reads_verify(&r);
	if (!err)
		err = pl_gpu_reads_measure(&r);
	/* CUDA has one address for pinned memory, for the CPU and for kernels. */
	if (!err)
		err = pl_gpu_reads_direct(&r, memory);
	if (!err && b->result.nr_rows == 1)
		err = pl_gpu_reads_latency(&r);
	pl_gpu_reads_fini(&r);
	return err;
}

static int measure(struct pl_gpu_bench *b, const struct read_args *a)
{
	int err = 0;

	for (unsigned int i = 0; !err && i < b->args.threads.nr; i++) {
		struct pl_gpu_row *row =
			pl_gpu_bench_row(b, (unsigned int)b->args.threads.values[i]);
		struct peerlane_device_options opt;
		struct peerlane_device *dev;
		void *memory;

		if (!row)
			return -ENOSPC;
		opt = pl_gpu_bench_options(b, row, a->size);
		err = peerlane_device_open_memory(&dev, &opt, a->bytes, &memory);
		if (err)
			return pl_gpu_bench_complain("emulated drive", err);
		err = pl_gpu_bench_shut(dev, measure_row(b, a, row, dev, memory));
	}
	return err;
}

/* They take about 0.1 s on a fast bus. */
static uint64_t most_reads(uint64_t size)
{
	return size > 1024 ? ((uint64_t)4 << 30) / size : (uint64_t)4 << 20;
}

static int run(const struct pl_command *self, int argc, char **argv)
{
	struct read_args args = { .size = 4096, .spoil = UINT64_MAX };
	struct pl_gpu_bench b;
	int status, err, first = pl_option_parse(self, argc, argv, &args, &status);

	if (first < 0)
		return status;
	pl_stop_catch();
	err = pl_gpu_bench_open(&b, &args.common, "read", most_reads(args.size), 4000);
	if (!err && pl_gpu_reads_check(&b, &args.bytes, args.size, args.spoil)) {
		pl_gpu_bench_close(&b, -EINVAL);
		return PL_EXIT_USAGE;
	}
	if (err)
		return pl_gpu_bench_close(&b, err);
	b.result.limit_name = "direct IOPS";
	b.result.limit =
		"kernels that read the same pinned host memory themselves, one warp a read";
	pl_gpu_reads_tell(&b, (uint32_t)args.size, args.bytes, false);
	return pl_gpu_bench_close(&b, measure(&b, &args));
}

const struct pl_command pl_command_gpu_read = {
	.name = "bench gpu read",
	.summary = "Random reads from an emulated drive.",
	.args = "[options]",
	.detail = "Kernels read blocks at random places of an emulated drive, whose blocks lie in "
		  "pinned host memory: a completion says where, and the warp that reads fetches "
		  "them over the bus. Before each row every block is read through its queues and "
		  "compared; the passes that are timed check that each read succeeds. Beside it "
		  "stand kernels that read the same memory without any queue, and the time of one "
		  "read alone. What is measured is an emulation, not a drive.",
	.exits = PL_GPU_EXITS,
	.options = options,
	.run = run,
};
