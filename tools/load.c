/* SPDX-License-Identifier: MIT */
/* One measured pass over a file: threads that read or write calls of one size. */
#include "load.h"

#include "loader.h"
#include "progress.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define TICK_NS 100000000

static double cpu_seconds(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void show(struct pl_progress *progress, const struct pl_loader *loaders, unsigned int nr)
{
	uint64_t bytes = 0;

	for (unsigned int i = 0; i < nr; i++)
		bytes += __atomic_load_n(&loaders[i].bytes, __ATOMIC_RELAXED);
	pl_progress_show(progress, bytes);
}

/* Waits until the threads are done, and shows how far they are. */
static void watch(struct pl_loader_pass *pass, const struct pl_loader *loaders, unsigned int nr)
{
	struct pl_progress progress;
	struct timespec until;

	pl_progress_start(&progress, pass->load->what, pass->load->pass_bytes);
	pthread_mutex_lock(&pass->gate);
	while (pass->running) {
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += TICK_NS;
		if (until.tv_nsec >= 1000000000) {
			until.tv_nsec -= 1000000000;
			until.tv_sec++;
		}
		pthread_cond_timedwait(&pass->idle, &pass->gate, &until);
		show(&progress, loaders, nr);
	}
	pthread_mutex_unlock(&pass->gate);
	pl_progress_clear();
}

static void collect(const struct pl_loader *loaders, unsigned int nr, uint64_t start_ns,
		    struct pl_load_result *result)
{
	uint64_t end_ns = start_ns + 1;

	for (unsigned int i = 0; i < nr; i++) {
		result->bytes += loaders[i].bytes;
		result->calls += loaders[i].calls;
		pl_latency_merge(&result->latency, &loaders[i].latency);
		if (loaders[i].end_ns > end_ns)
			end_ns = loaders[i].end_ns;
	}
	result->seconds = (double)(end_ns - start_ns) / 1e9;
}

/* The threads exist: times the pass. */
static void measure(struct pl_loader_pass *pass, struct pl_loader *loaders, unsigned int nr,
		    struct pl_load_result *result)
{
	const struct pl_load *load = pass->load;
	struct pl_route route;
	uint64_t start_ns;
	double cpu;

	pthread_barrier_wait(&pass->ready);
	route = pl_route_now(load->session->ctx, load->op);
	cpu = cpu_seconds();
	start_ns = pl_progress_now();
	if (load->seconds > 0)
		pass->deadline_ns = start_ns + (uint64_t)(load->seconds * 1e9);
	pthread_barrier_wait(&pass->go);
	watch(pass, loaders, nr);
	pthread_barrier_wait(&pass->over);
	result->cpu_seconds = cpu_seconds() - cpu;
	result->route = pl_route_since(load->session->ctx, load->op, route);
	collect(loaders, nr, start_ns, result);
}

/*
 * Starts the threads; returns how many. They wait behind the gate until the number to wait for
 * is known, so that one that cannot be made ends the pass instead of leaving the others waiting.
 */
static unsigned int start(struct pl_loader_pass *pass, struct pl_loader *loaders)
{
	unsigned int nr = 0;

	pthread_mutex_lock(&pass->gate);
	for (; nr < pass->load->nr_threads; nr++) {
		loaders[nr].pass = pass;
		if (pthread_create(&loaders[nr].thread, NULL, pl_loader_main, &loaders[nr]))
			break;
	}
	if (nr < pass->load->nr_threads) {
		pass->err = -EAGAIN;
		snprintf(pass->error, sizeof(pass->error), "only %u threads could be started", nr);
	}
	pass->running = nr;
	pthread_barrier_init(&pass->ready, NULL, nr + 1);
	pthread_barrier_init(&pass->go, NULL, nr + 1);
	pthread_barrier_init(&pass->over, NULL, nr + 1);
	pthread_mutex_unlock(&pass->gate);
	return nr;
}

static int run(struct pl_loader_pass *pass, struct pl_loader *loaders,
	       struct pl_load_result *result)
{
	unsigned int nr = start(pass, loaders);

	measure(pass, loaders, nr, result);
	for (unsigned int i = 0; i < nr; i++)
		pthread_join(loaders[i].thread, NULL);
	pthread_barrier_destroy(&pass->ready);
	pthread_barrier_destroy(&pass->go);
	pthread_barrier_destroy(&pass->over);
	return pass->err;
}

int pl_load_run(const struct pl_load *load, struct pl_load_result *result)
{
	struct pl_loader_pass pass = {
		.load = load,
		.gate = PTHREAD_MUTEX_INITIALIZER,
		.idle = PTHREAD_COND_INITIALIZER,
		.nr_calls = (load->pass_bytes + load->call_bytes - 1) / load->call_bytes,
	};
	struct pl_loader *loaders = calloc(load->nr_threads, sizeof(*loaders));
	int err;

	memset(result, 0, sizeof(*result));
	if (!loaders) {
		snprintf(result->error, sizeof(result->error), "out of memory");
		return -ENOMEM;
	}
	err = run(&pass, loaders, result);
	if (err)
		snprintf(result->error, sizeof(result->error), "%s", pass.error);
	free(loaders);
	return err;
}
