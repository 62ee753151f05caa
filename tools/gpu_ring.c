/* SPDX-License-Identifier: MIT */
/* peerlane bench gpu ring: commands a second without data, beside the least that a ring can be. */
#include "commands.h"
#include "gpu_bare.h"
#include "gpu_bench.h"
#include "stop.h"

struct ring_args {
	struct pl_gpu_args common;
};

static const struct pl_option options[] = {
	PL_GPU_COUNT_OPTION(struct ring_args),
	PL_GPU_SECONDS_OPTION(struct ring_args),
	PL_GPU_OPTIONS(struct ring_args),
	{ 0 },
};

static int measure_queues(struct pl_gpu_bench *b, struct pl_gpu_row *row)
{
	struct peerlane_device_options opt = pl_gpu_bench_options(b, row, 512);
	struct peerlane_device_info info = { .size = sizeof(info) };
	struct peerlane_device *dev;
	int err = peerlane_device_open_instant(&dev, &opt);
	struct plk_ring k;

	if (err)
		return pl_gpu_bench_complain("queues", err);
	pl_gpu_bench_describe(b, dev);
	peerlane_device_get_info(dev, &info);
	k = (struct plk_ring){
		.queues = info.queues,
		.counts = b->run.counts,
		.per_lane = pl_gpu_bench_per_lane(b, row),
		.timeout_ns = PL_GPU_TIMEOUT_NS,
		.nr_warps = pl_gpu_bench_warps(b, row),
		.nr_queues = row->queues,
		.lanes = b->run.lanes,
	};
	err = pl_gpu_bench_fit(b, &pl_gpu_kernel_ring, k.nr_warps, &k, &k.per_lane, row->threads);
	row->ios = k.per_lane * row->threads;
	if (!err)
		err = pl_gpu_bench_passes(b, &pl_gpu_kernel_ring, k.nr_warps, &k, row->ios,
					  &row->seconds);
	return pl_gpu_bench_shut(dev, err);
}

static int measure(struct pl_gpu_bench *b)
{
	int err = 0;

	for (unsigned int i = 0; !err && i < b->args.threads.nr; i++) {
		struct pl_gpu_row *row =
			pl_gpu_bench_row(b, (unsigned int)b->args.threads.values[i]);

		err = row ? measure_queues(b, row) : -ENOSPC;
		if (!err)
			err = pl_gpu_bare_measure(b, row);
	}
	return err;
}

static int run(const struct pl_command *self, int argc, char **argv)
{
	struct ring_args args = { 0 };
	struct pl_gpu_bench b;
	int status, err, first = pl_option_parse(self, argc, argv, &args, &status);

	if (first < 0)
		return status;
	pl_stop_catch();
	err = pl_gpu_bench_open(&b, &args.common, "ring", 16000000, 20000);
	if (err)
		return pl_gpu_bench_close(&b, err);
	b.result.limit_name = "bare IOPS";
	b.result.limit = "a bare ring: 64 B there, 16 B back, one warp each, as many threads of "
			 "the CPU";
	pl_report_value(&b.report, "registers",
			json_object_new_int64(pl_gpu_run_registers(&pl_gpu_kernel_ring)),
			"registers", "%u a thread (ptxas for sm_90)",
			pl_gpu_run_registers(&pl_gpu_kernel_ring));
	return pl_gpu_bench_close(&b, measure(&b));
}

const struct pl_command pl_command_gpu_ring = {
	.name = "bench gpu ring",
	.summary = "Commands a second without data.",
	.args = "[options]",
	.detail =
		"Kernels send commands that a server completes at once and that move nothing: the "
		"cost of the queues alone. Beside it stands the best of a bare ring in pinned host "
		"memory that knows no errors, no time-outs and no sharing, served by as many "
		"threads of the CPU, measured in the same run.",
	.exits = PL_GPU_EXITS,
	.options = options,
	.run = run,
};
