// SPDX-License-Identifier: MIT
/* Worker threads: made when first needed, spinning briefly between pieces of work, then asleep. */
#include "worker.h"

#include "context.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

/* A worker that just had work looks for more this long: a caller in a loop of reads comes back
 * within it, and waking a sleeping thread costs as much as copying 300 KiB. */
#define SPIN_NS 200000u
/* Spinning pays only where there are cores to spare. */
#define SPIN_MIN_CPUS 6u

unsigned int pl_nr_cpus(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set))
		return 1;
	return (unsigned int)CPU_COUNT(&set);
}

void pl_lock_init(pthread_mutex_t *lock)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
	pthread_mutex_init(lock, &attr);
	pthread_mutexattr_destroy(&attr);
}

int pl_workers_init(struct peerlane *ctx, struct pl_workers *w, unsigned int max, const char *name)
{
	memset(w, 0, sizeof(*w));
	w->ctx = ctx;
	w->name = name;
	w->threads = calloc(max, sizeof(w->threads[0]));
	if (!w->threads)
		return -ENOMEM;
	w->max = max;
	w->tasks_end = &w->tasks;
	w->spin_ns = pl_nr_cpus() >= SPIN_MIN_CPUS ? SPIN_NS : 0;
	pl_lock_init(&w->lock);
	pthread_cond_init(&w->wake, NULL);
	pthread_cond_init(&w->left, NULL);
	return 0;
}

static struct pl_crew *find_crew(struct pl_workers *w)
{
	for (struct pl_crew *c = w->crews; c; c = c->next)
		if (c->want)
			return c;
	return NULL;
}

/* Looks for a post without the lock for a short time; lock held on entry and return. */
static void spin(struct pl_workers *w)
{
	uint32_t seen = __atomic_load_n(&w->posts, __ATOMIC_RELAXED);
	uint64_t end;

	pthread_mutex_unlock(&w->lock);
	end = pl_now_ns() + w->spin_ns;
	do {
		for (int i = 0; i < 32; i++)
			pl_cpu_relax();
	} while (__atomic_load_n(&w->posts, __ATOMIC_RELAXED) == seen && pl_now_ns() < end);
	pthread_mutex_lock(&w->lock);
}

/* Lock held, in this and the next. */
static void enter(struct pl_workers *w, struct pl_crew *crew)
{
	crew->want--;
	__atomic_store_n(&crew->inside, crew->inside + 1, __ATOMIC_RELAXED);
	/* Each that comes wakes two more, so the caller need not wake them all. */
	for (unsigned int i = 0; i < 2 && i < crew->want && i < w->sleeping; i++)
		pthread_cond_signal(&w->wake);
}

static void leave(struct pl_workers *w, struct pl_crew *crew)
{
	__atomic_store_n(&crew->inside, crew->inside - 1, __ATOMIC_RELEASE);
	if (!crew->inside && w->dismissing)
		pthread_cond_broadcast(&w->left);
}

/* Lock held. */
static void count_task(struct pl_workers *w, const struct pl_task *task, int change)
{
	unsigned int *nr = task->patient ? &w->patient : &w->waiting;

	__atomic_store_n(nr, *nr + (unsigned int)change, __ATOMIC_RELAXED);
}

/* Does one piece of work; lock held on entry and return. Returns false when there is none. */
static bool work(struct pl_workers *w)
{
	struct pl_crew *crew = find_crew(w);
	struct pl_task *task = w->tasks;

	if (crew) {
		enter(w, crew);
		pthread_mutex_unlock(&w->lock);
		crew->help(crew);
		pthread_mutex_lock(&w->lock);
		leave(w, crew);
		return true;
	}
	if (task) {
		w->tasks = task->next;
		if (!w->tasks)
			w->tasks_end = &w->tasks;
		count_task(w, task, -1);
		pthread_mutex_unlock(&w->lock);
		task->run(task);
		pthread_mutex_lock(&w->lock);
		return true;
	}
	return false;
}

static void *worker(void *arg)
{
	struct pl_workers *w = arg;
	bool rested = false;

	prctl(PR_SET_NAME, w->name);
	prctl(PR_SET_TIMERSLACK, 1000ul);
	pthread_mutex_lock(&w->lock);
	w->idle--;
	while (!w->stop) {
		if (work(w)) {
			rested = false;
			continue;
		}
		w->idle++;
		if (!rested && w->spin_ns) {
			spin(w);
			rested = true;
		} else {
			w->sleeping++;
			pthread_cond_wait(&w->wake, &w->lock);
			w->sleeping--;
			rested = false;
		}
		w->idle--;
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

/* Adds a thread; lock held. It counts as idle at once. */
static bool hire(struct pl_workers *w)
{
	sigset_t all, old;
	int err;

	if (w->nr == w->max)
		return false;
	/* Signals of the program are for the program's threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&w->threads[w->nr], NULL, worker, w);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (err)
		return false;
	w->nr++;
	w->idle++;
	pl_stat_add(&pl_ctx_stats(w->ctx)->threads, 1);
	return true;
}

/* Makes sure @n workers will look; lock held. */
static void call(struct pl_workers *w, unsigned int n)
{
	unsigned int awake = w->idle - w->sleeping;

	__atomic_fetch_add(&w->posts, 1, __ATOMIC_RELAXED);
	while (w->idle < n && hire(w))
		;
	for (unsigned int i = awake; i < n && i < w->idle && i < awake + 2; i++)
		pthread_cond_signal(&w->wake);
}

/* Lock held. */
static void add_crew(struct pl_workers *w, struct pl_crew *crew)
{
	crew->want = 0;
	crew->inside = 0;
	crew->posted = true;
	crew->next = w->crews;
	w->crews = crew;
}

void pl_crew_post(struct peerlane *ctx, struct pl_crew *crew, unsigned int want)
{
	struct pl_workers *w = &ctx->workers;

	pthread_mutex_lock(&w->lock);
	add_crew(w, crew);
	crew->want = want;
	call(w, want);
	pthread_mutex_unlock(&w->lock);
}

void pl_crew_renew(struct peerlane *ctx, struct pl_crew *crew, void (*help)(struct pl_crew *),
		   unsigned int want, unsigned int most)
{
	struct pl_workers *w = &ctx->workers;

	pthread_mutex_lock(&w->lock);
	if (!crew->posted) {
		crew->help = help;
		add_crew(w, crew);
	}
	/* Several may have something to do before the first helper comes. */
	crew->want += want;
	if (crew->want + crew->inside > most)
		crew->want = most > crew->inside ? most - crew->inside : 0;
	/* Who finds nothing to do looks for more for a while, on a CPU that others may need. */
	if (crew->want)
		call(w, want < crew->want ? want : crew->want);
	pthread_mutex_unlock(&w->lock);
}

bool pl_crew_enter(struct peerlane *ctx, struct pl_crew *crew)
{
	struct pl_workers *w = &ctx->workers;
	bool wanted;

	pthread_mutex_lock(&w->lock);
	wanted = crew->posted && crew->want;
	if (wanted)
		enter(w, crew);
	pthread_mutex_unlock(&w->lock);
	return wanted;
}

void pl_crew_help(struct peerlane *ctx, struct pl_crew *crew)
{
	struct pl_workers *w = &ctx->workers;

	crew->help(crew);
	pthread_mutex_lock(&w->lock);
	leave(w, crew);
	pthread_mutex_unlock(&w->lock);
}

void pl_crew_dismiss(struct peerlane *ctx, struct pl_crew *crew)
{
	struct pl_workers *w = &ctx->workers;

	if (!crew->posted)
		return;
	pthread_mutex_lock(&w->lock);
	for (struct pl_crew **p = &w->crews; *p; p = &(*p)->next) {
		if (*p == crew) {
			*p = crew->next;
			break;
		}
	}
	crew->want = 0;
	if (crew->inside && w->spin_ns) {
		/* They are about to leave: looking is quicker than sleeping. */
		pthread_mutex_unlock(&w->lock);
		for (int i = 0; i < 2000 && __atomic_load_n(&crew->inside, __ATOMIC_ACQUIRE); i++)
			pl_cpu_relax();
		pthread_mutex_lock(&w->lock);
	}
	w->dismissing++;
	while (crew->inside)
		pthread_cond_wait(&w->left, &w->lock);
	w->dismissing--;
	crew->posted = false;
	pthread_mutex_unlock(&w->lock);
}

int pl_task_post(struct pl_workers *w, struct pl_task *task)
{
	int err = 0;

	pthread_mutex_lock(&w->lock);
	if (w->stop) {
		pthread_mutex_unlock(&w->lock);
		return -ECANCELED;
	}
	task->next = NULL;
	*w->tasks_end = task;
	w->tasks_end = &task->next;
	count_task(w, task, 1);
	call(w, 1);
	if (!w->nr) {
		/* Nobody will ever come for it. */
		count_task(w, task, -1);
		w->tasks = NULL;
		w->tasks_end = &w->tasks;
		err = -EAGAIN;
	}
	pthread_mutex_unlock(&w->lock);
	return err;
}

void pl_workers_stop(struct pl_workers *w)
{
	struct pl_task *task;

	pthread_mutex_lock(&w->lock);
	w->stop = true;
	pthread_cond_broadcast(&w->wake);
	__atomic_fetch_add(&w->posts, 1, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&w->lock);
	for (unsigned int i = 0; i < w->nr; i++)
		pthread_join(w->threads[i], NULL);
	w->nr = 0;
	while ((task = w->tasks)) {
		w->tasks = task->next;
		if (task->drop)
			task->drop(task);
	}
	w->tasks_end = &w->tasks;
}

void pl_workers_fini(struct pl_workers *w)
{
	pl_workers_stop(w);
	pthread_cond_destroy(&w->left);
	pthread_cond_destroy(&w->wake);
	pthread_mutex_destroy(&w->lock);
	free(w->threads);
}
