/* SPDX-License-Identifier: MIT */
/*
 * A thread that runs tasks in order: the engine behind a simulated stream or copy queue.
 */
#include "gpu_sim.h"
#include <errno.h>
#include <signal.h>
#include <time.h>

void pl_sim_fifo_sleep(unsigned int us)
{
	struct timespec ts = { .tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000L };

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

static void *fifo_main(void *arg)
{
	struct pl_sim_fifo *f = arg;
	struct pl_sim_task *t;

	pthread_mutex_lock(&f->lock);
	for (;;) {
		while (!f->head && !f->stopping)
			pthread_cond_wait(&f->more, &f->lock);
		t = f->head;
		if (!t)
			break;
		f->head = t->next;
		if (!f->head)
			f->tail = &f->head;
		pthread_mutex_unlock(&f->lock);

		t->run(f, t);
		pl_sim_object_destroy(t);

		pthread_mutex_lock(&f->lock);
		f->nr_finished++;
		pthread_cond_broadcast(&f->less);
	}
	pthread_mutex_unlock(&f->lock);
	return NULL;
}

/* Starts the thread with all signals blocked but those a fault of its own raises: handlers of the
 * program must not run here. */
static int start_thread(struct pl_sim_fifo *f)
{
	static const int own[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT };
	sigset_t set, old;
	int err;

	sigfillset(&set);
	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		sigdelset(&set, own[i]);
	pthread_sigmask(SIG_SETMASK, &set, &old);
	err = pthread_create(&f->thread, NULL, fifo_main, f);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -err;
}

int pl_sim_fifo_start(struct pl_sim_fifo *f)
{
	int err;

	f->tail = &f->head;
	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->more, NULL);
	pthread_cond_init(&f->less, NULL);
	err = start_thread(f);
	if (err)
		goto err_destroy;
	return 0;

err_destroy:
	pthread_cond_destroy(&f->less);
	pthread_cond_destroy(&f->more);
	pthread_mutex_destroy(&f->lock);
	return err == -EAGAIN ? -ENOMEM : err;
}

void pl_sim_fifo_stop(struct pl_sim_fifo *f)
{
	pthread_mutex_lock(&f->lock);
	f->stopping = true;
	pthread_cond_signal(&f->more);
	pthread_mutex_unlock(&f->lock);
	pthread_join(f->thread, NULL);
	pthread_cond_destroy(&f->less);
	pthread_cond_destroy(&f->more);
	pthread_mutex_destroy(&f->lock);
}

uint64_t pl_sim_fifo_push(struct pl_sim_fifo *f, struct pl_sim_task *task)
{
	uint64_t ticket;

	task->next = NULL;
	pthread_mutex_lock(&f->lock);
	*f->tail = task;
	f->tail = &task->next;
	ticket = ++f->nr_queued;
	pthread_cond_signal(&f->more);
	pthread_mutex_unlock(&f->lock);
	return ticket;
}

void pl_sim_fifo_wait(struct pl_sim_fifo *f, uint64_t ticket)
{
	pthread_mutex_lock(&f->lock);
	while (f->nr_finished < ticket)
		pthread_cond_wait(&f->less, &f->lock);
	pthread_mutex_unlock(&f->lock);
}

void pl_sim_fifo_sync(struct pl_sim_fifo *f)
{
	uint64_t ticket;

	pthread_mutex_lock(&f->lock);
	ticket = f->nr_queued;
	pthread_mutex_unlock(&f->lock);
	pl_sim_fifo_wait(f, ticket);
}
