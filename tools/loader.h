/* SPDX-License-Identifier: MIT */
/* One thread of a load. */
#ifndef PL_LOADER_H
#define PL_LOADER_H

#include "load.h"

#include <pthread.h>

/* What the threads of a pass share. */
struct pl_loader_pass {
	const struct pl_load *load;
	pthread_mutex_t gate; /* held until the barriers exist; guards running */
	pthread_cond_t idle;  /* running became 0 */
	pthread_barrier_t ready, go, over;
	uint64_t nr_calls;
	uint64_t deadline_ns; /* 0: none; set before go */
	uint64_t next;	      /* atomic: first call nobody has taken */
	unsigned int running; /* threads still at work */
	int err;	      /* atomic: the first failure */
	char error[400];      /* of the thread that set err */
};

struct pl_loader {
	struct pl_loader_pass *pass;
	pthread_t thread;
	struct pl_latency latency;
	uint64_t calls;
	uint64_t bytes; /* atomic: watched for progress */
	uint64_t end_ns;
	char *memory;  /* destination of reads: one call, or one per request of the batch */
	char *scratch; /* host memory of one call, to verify */
	struct peerlane_batch *batch;
	struct pl_loader_slot *slots;
};

/* Memory of one call, rounded so that the next one is aligned too. */
size_t pl_loader_stride(const struct pl_load *load);

/* Body of the thread: prepares, meets the three barriers, cleans up. */
void *pl_loader_main(void *loader);

#endif
