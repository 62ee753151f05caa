/* SPDX-License-Identifier: MIT */
/*
 * Worker threads of a context. A request that could use help posts a crew; idle workers join it,
 * run its function once and leave. Tasks are whole pieces of work a worker does by itself.
 */
#ifndef PL_WORKER_H
#define PL_WORKER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct peerlane;

struct pl_crew {
	struct pl_crew *next;
	void (*help)(struct pl_crew *crew); /* called by each helper, at the same time */
	unsigned int want;		    /* helpers still wanted */
	unsigned int inside;		    /* helpers running; also read without the lock */
	bool posted;
};

struct pl_task {
	struct pl_task *next;
	void (*run)(struct pl_task *task);
	void (*drop)(struct pl_task *task); /* instead, when the workers end first; may be NULL */
	bool patient;			    /* nobody need hurry for it */
};

struct pl_workers {
	pthread_mutex_t lock; /* guards all below, and the crews posted */
	pthread_cond_t wake;  /* something was posted, or stop */
	pthread_cond_t left;  /* a helper left a crew */
	struct pl_crew *crews;
	struct pl_task *tasks, **tasks_end;
	unsigned int waiting, patient; /* of those; also read without the lock */
	struct peerlane *ctx;
	const char *name; /* of the threads */
	pthread_t *threads;
	unsigned int nr, max;
	unsigned int idle;	 /* threads that wait for work, spinning or asleep */
	unsigned int sleeping;	 /* of those, asleep */
	unsigned int dismissing; /* callers that wait for helpers to leave */
	unsigned int spin_ns;	 /* how long an idle worker looks before it sleeps */
	bool stop;
	/* Counts posts; spinning workers watch it, so it has a cache line to itself; atomic. */
	uint32_t posts __attribute__((aligned(64)));
};

int pl_workers_init(struct peerlane *ctx, struct pl_workers *w, unsigned int max, const char *name);
/* Ends all threads and drops the tasks nobody has begun; what is posted after is refused. */
void pl_workers_stop(struct pl_workers *w);
/* The same; nothing may be posted any more. */
void pl_workers_fini(struct pl_workers *w);

/* Asks for up to @want helpers. */
void pl_crew_post(struct peerlane *ctx, struct pl_crew *crew, unsigned int want);
/* The same for a crew that stays: there is something to do again for @want helpers more, of @most in all. */
void pl_crew_renew(struct peerlane *ctx, struct pl_crew *crew, void (*help)(struct pl_crew *),
		   unsigned int want, unsigned int most);
/* Takes a helper's place in a crew for the calling thread, which must help then; false if there is
 * none to take. The crew may not have been posted, but its memory must be there until it helped. */
bool pl_crew_enter(struct peerlane *ctx, struct pl_crew *crew);
void pl_crew_help(struct peerlane *ctx, struct pl_crew *crew);
/* No more helpers; returns when the last one has left. */
void pl_crew_dismiss(struct peerlane *ctx, struct pl_crew *crew);

/* Has @task run by a worker. -EAGAIN when no thread could be made at all; -ECANCELED when the
 * workers have ended. */
int pl_task_post(struct pl_workers *w, struct pl_task *task);

/* Whether there are tasks that no worker has begun; patient ones, if @patient. */
static inline bool pl_tasks_waiting(const struct pl_workers *w, bool patient)
{
	return __atomic_load_n(patient ? &w->patient : &w->waiting, __ATOMIC_RELAXED);
}

/* A mutex whose waiters look again for a moment before they sleep: for locks held very shortly. */
void pl_lock_init(pthread_mutex_t *lock);

/* CPUs this process may use. */
unsigned int pl_nr_cpus(void);

static inline void pl_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

#endif
