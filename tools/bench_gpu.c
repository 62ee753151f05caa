/* SPDX-License-Identifier: MIT */
/* peerlane bench gpu: I/O that kernels start themselves. */
#include "commands.h"

static const struct pl_command *const subs[] = {
	&pl_command_gpu_ring,  &pl_command_gpu_read,  &pl_command_gpu_file,
	&pl_command_gpu_array, &pl_command_gpu_mixed, &pl_command_gpu_sum,
	&pl_command_gpu_scan,  &pl_command_gpu_bfs,   NULL,
};

const struct pl_command pl_command_bench_gpu = {
	.name = "bench gpu",
	.summary = "Measure I/O that kernels start themselves.",
	.args = "WHAT [options]",
	.detail = "Measures I/O that the threads of a kernel start themselves, beside the limit of "
		  "what it is made of, in the same run. Without a GPU the same kernels run as "
		  "threads of the CPU: that shows that all works, and nothing of the speed.",
	.subs = subs,
};
