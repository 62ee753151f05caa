/* SPDX-License-Identifier: MIT */
/* Threads of the CPU that read a file by pread: what proxies are compared with. */
#include "gpu_pread.h"

#include "message.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct load {
	int fd;
	size_t io_bytes;
	uint64_t nr_ios; /* of the file */
	uint64_t per_thread;
	char *memory;
	uint64_t nr_buffers;  /* of a thread, used in turn */
	pthread_mutex_t gate; /* held until all threads are there */
	bool cancelled;
};

struct reader {
	struct load *load;
	pthread_t thread;
	unsigned int index;
	int err;
};

static void *work(void *arg)
{
	struct reader *r = arg;
	const struct load *l = r->load;
	const uint64_t seed = (uint64_t)r->index << 40;
	char *memory = l->memory + r->index * l->nr_buffers * l->io_bytes;

	pthread_mutex_lock(&r->load->gate);
	r->err = l->cancelled ? -ECANCELED : 0;
	pthread_mutex_unlock(&r->load->gate);
	for (uint64_t i = 0; !r->err && i < l->per_thread; i++) {
		const uint64_t place = plk_below_(plk_mix(seed + i), l->nr_ios);
		char *to = memory + i % l->nr_buffers * l->io_bytes;
		const ssize_t n = pread(l->fd, to, l->io_bytes, (off_t)(place * l->io_bytes));

		if (n != (ssize_t)l->io_bytes)
			r->err = n < 0 ? -errno : -EIO;
	}
	return NULL;
}

/* All threads exist before any begins. */
static int run(struct load *l, unsigned int nr_threads, double *seconds)
{
	struct reader *readers = calloc(nr_threads, sizeof(*readers));
	unsigned int nr = 0;
	uint64_t start;
	int err = readers ? 0 : -ENOMEM;

	l->cancelled = false;
	pthread_mutex_lock(&l->gate);
	for (; !err && nr < nr_threads; nr += !err) {
		readers[nr].load = l;
		readers[nr].index = nr;
		err = -pthread_create(&readers[nr].thread, NULL, work, &readers[nr]);
	}
	l->cancelled = err;
	start = pld_clock_ns();
	pthread_mutex_unlock(&l->gate);
	for (unsigned int i = 0; i < nr; i++) {
		pthread_join(readers[i].thread, NULL);
		err = err ? err : readers[i].err;
	}
	*seconds = (double)(pld_clock_ns() - start) / 1e9;
	free(readers);
	return err;
}

/* The middle of some runs, as reads a second. */
static int measure(struct load *l, unsigned int repeat, unsigned int nr_threads, double *iops)
{
	const size_t bytes = (size_t)nr_threads * l->nr_buffers * l->io_bytes;
	double times[101];
	int err = 0;

	l->memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
	if (!l->memory)
		return -ENOMEM;
	memset(l->memory, 0, bytes);
	/* The first does not count. */
	for (unsigned int i = 0; !err && i <= repeat; i++)
		err = run(l, nr_threads, &times[i]);
	if (!err)
		*iops = (double)(l->per_thread * nr_threads) /
			pl_gpu_bench_middle(times + 1, repeat);
	free(l->memory);
	return err;
}

int pl_gpu_pread_measure(struct pl_gpu_bench *b, struct pl_gpu_row *row, int fd, size_t io_bytes,
			 uint64_t nr_ios, unsigned int nr_threads)
{
	const uint64_t slots = (uint64_t)row->queues * row->ports * row->slots;
	struct load l = { .fd = fd, .io_bytes = io_bytes, .nr_ios = nr_ios, .nr_buffers = 1 };
	int err;

	pthread_mutex_init(&l.gate, NULL);
	l.per_thread = (row->ios + nr_threads - 1) / nr_threads;
	err = measure(&l, b->args.repeat, nr_threads, &row->limit);
	l.nr_buffers = (slots + nr_threads - 1) / nr_threads;
	if (!err)
		err = measure(&l, b->args.repeat, nr_threads, &row->spread);
	pthread_mutex_destroy(&l.gate);
	if (err)
		pl_message_error("pread: %s", strerror(-err));
	return err;
}
