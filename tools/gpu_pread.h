/* SPDX-License-Identifier: MIT */
/* Threads of the CPU that read a file by pread: what proxies are compared with. */
#ifndef PL_GPU_PREAD_H
#define PL_GPU_PREAD_H

#include "gpu_bench.h"

/* Random reads by so many threads, as many as the row has: into one buffer of each thread, for the limit of the
 * row, and into as many buffers as it has slots. */
int pl_gpu_pread_measure(struct pl_gpu_bench *b, struct pl_gpu_row *row, int fd, size_t io_bytes,
			 uint64_t nr_ios, unsigned int nr_threads);

#endif
