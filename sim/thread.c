// SPDX-License-Identifier: MIT
/* The thread that runs a controller. */
#include "ctrl.h"

#include <errno.h>
#include <sched.h>
#include <time.h>

/* Turns without work after which the thread lets others run, and after which it sleeps. */
#define YIELD_TURNS 256u
#define SLEEP_TURNS 1024u
#define SHORTEST_SLEEP_NS 10000L
#define LONGEST_SLEEP_NS 1000000L

static void rest(unsigned int idle, long *sleep_ns)
{
	struct timespec ts = { .tv_nsec = *sleep_ns };

	if (idle < YIELD_TURNS)
		return;
	if (idle < SLEEP_TURNS) {
		sched_yield();
		return;
	}
	nanosleep(&ts, NULL);
	if (*sleep_ns < LONGEST_SLEEP_NS)
		*sleep_ns *= 2;
}

static void *run(void *arg)
{
	struct pl_simnvme *c = arg;
	long sleep_ns = SHORTEST_SLEEP_NS;
	unsigned int idle = 0;

	while (!atomic_load_explicit(&c->stop, memory_order_acquire)) {
		if (pl_simnvme_step(c)) {
			idle = 0;
			sleep_ns = SHORTEST_SLEEP_NS;
		} else if (!c->config.spin) {
			idle++;
			rest(idle, &sleep_ns);
		}
	}
	return NULL;
}

int pl_simnvme_start(struct pl_simnvme *c)
{
	int rc;

	if (c->running)
		return -EBUSY;
	atomic_store(&c->stop, false);
	rc = pthread_create(&c->thread, NULL, run, c);
	if (rc)
		return -rc;
	c->running = true;
	return 0;
}

void pl_simnvme_stop(struct pl_simnvme *c)
{
	if (!c->running)
		return;
	atomic_store_explicit(&c->stop, true, memory_order_release);
	pthread_join(c->thread, NULL);
	c->running = false;
}
