/* SPDX-License-Identifier: MIT */
/*
 * Copy queues of the simulated GPU and the marks in them. By default copy() does the copying; with
 * PEERLANE_SIM_ASYNC each queue has a thread, so that memory used again too early shows.
 */
#include "gpu_sim.h"
#include <errno.h>

struct pl_queue {
	struct pl_sim_object object;
	struct pl_sim_fifo fifo;
	const void *owner; /* GPU context whose memory it copies, and no other's */
	bool threaded;	   /* @fifo copies, not copy() */
	atomic_uint hung;  /* generation of the hang a copy met; used without a thread */
};

struct pl_mark {
	struct pl_sim_object object;
	atomic_uint refs;    /* one of the owner, one of each task that will pass it */
	atomic_uint pending; /* tasks that have not passed it; released after err and result */
	atomic_uint hung;    /* generation of the hang it waits for */
	atomic_int err;
	atomic_int result;
};

struct piece {
	struct pl_copy copy;
	const void *owner; /* of the queue */
	bool fails;	   /* injected */
	bool queued;	   /* what follows holds */
	uint64_t ids[2]; /* GPU and host memory when it was queued: later it may be other memory */
	bool careful;	 /* the host memory was registered */
};

struct task {
	struct pl_sim_task task;
	struct pl_sim_gpu *sim;
	struct pl_mark *mark;
	enum pl_dir dir;
	unsigned int hang; /* generation this task hangs in, 0: does not */
	unsigned int nr;
	struct piece pieces[];
};

static void mark_put(struct pl_mark *mark)
{
	if (mark && atomic_fetch_sub(&mark->refs, 1) == 1)
		pl_sim_object_destroy(mark);
}

static bool mark_waits(struct pl_sim_gpu *sim, struct pl_mark *mark)
{
	return atomic_load(&mark->pending) || atomic_load(&mark->hung) == atomic_load(&sim->hang);
}

/* Gets both sides of a copy, and finds that they are what was queued, in a queue of theirs. */
static int get_sides(const struct piece *p, enum pl_dir dir, struct pl_sim_side sides[2])
{
	const void *gpu = dir == PL_TO_GPU ? p->copy.dst : p->copy.src;
	const void *host = dir == PL_TO_GPU ? p->copy.src : p->copy.dst;
	int err;

	err = pl_sim_mem_get(gpu, p->copy.bytes, PL_SIM_WANT_GPU, &sides[0]);
	if (err)
		return err;
	err = pl_sim_mem_get(host, p->copy.bytes, PL_SIM_WANT_HOST, &sides[1]);
	if (err)
		goto err_put_gpu;
	if (sides[0].owner != p->owner ||
	    (p->queued && (sides[0].id != p->ids[0] || sides[1].id != p->ids[1]))) {
		err = pl_sim_refuse(-EFAULT, PL_SIM_INVALID_VALUE);
		goto err_put_host;
	}
	sides[1].careful |= p->careful;
	return 0;

err_put_host:
	pl_sim_mem_put(&sides[1]);
err_put_gpu:
	pl_sim_mem_put(&sides[0]);
	return err;
}

static void put_sides(struct pl_sim_side sides[2])
{
	pl_sim_mem_put(&sides[1]);
	pl_sim_mem_put(&sides[0]);
}

static int copy_piece(const struct piece *p, enum pl_dir dir)
{
	struct pl_sim_side sides[2]; /* GPU, host */
	int err;

	if (p->fails)
		return pl_sim_refuse(-EREMOTEIO, PL_SIM_LAUNCH_FAILED);
	if (!p->copy.bytes)
		return 0;
	err = get_sides(p, dir, sides);
	if (err)
		return err;
	err = pl_sim_mem_move(&sides[dir == PL_TO_GPU ? 0 : 1], &sides[dir == PL_TO_GPU ? 1 : 0],
			      p->copy.bytes);
	put_sides(sides);
	return err;
}

static int copy_now(struct pl_sim_gpu *sim, const struct pl_queue *queue, enum pl_dir dir,
		    const struct pl_copy *list, unsigned int nr)
{
	int err = 0;

	for (unsigned int i = 0; i < nr && !err; i++) {
		struct piece p = { .copy = list[i], .owner = queue->owner };

		p.fails = pl_sim_fault_hit(sim, PL_SIM_FAULT_COPY);
		err = copy_piece(&p, dir);
	}
	return err;
}

/* Waits while the hang lasts; false if the queue is destroyed first. */
static bool wait_hang(struct pl_sim_fifo *fifo, const struct task *t)
{
	while (t->hang && t->hang == atomic_load(&t->sim->hang)) {
		if (fifo->stopping)
			return false;
		pl_sim_fifo_sleep(100);
	}
	return true;
}

/* Runs in the queue's thread. What waits behind a hang when the queue is destroyed is dropped. */
static void run_task(struct pl_sim_fifo *fifo, struct pl_sim_task *task)
{
	struct task *t = (struct task *)task;
	int err = 0;

	if (!fifo->gave_up && !wait_hang(fifo, t))
		fifo->gave_up = true;
	if (fifo->gave_up)
		err = pl_sim_refuse(-EREMOTEIO, PL_SIM_LAUNCH_FAILED);
	else if (t->sim->delay_us)
		pl_sim_fifo_sleep(t->sim->delay_us);
	for (unsigned int i = 0; i < t->nr && !err; i++)
		err = copy_piece(&t->pieces[i], t->dir);
	if (!t->mark)
		return;
	if (err) {
		atomic_store(&t->mark->result, pl_gpu_sim.result());
		atomic_store(&t->mark->err, err);
	}
	atomic_fetch_sub(&t->mark->pending, 1);
	mark_put(t->mark);
}

/* Checks a copy as it is queued, and notes what will be checked again when it runs. */
static int check_piece(struct pl_sim_gpu *sim, enum pl_dir dir, struct piece *p)
{
	struct pl_sim_side sides[2];
	int err;

	p->fails = pl_sim_fault_hit(sim, PL_SIM_FAULT_COPY);
	if (!p->copy.bytes)
		return 0;
	err = get_sides(p, dir, sides);
	if (err)
		return err;
	p->ids[0] = sides[0].id;
	p->ids[1] = sides[1].id;
	p->careful = sides[1].careful;
	p->queued = true;
	put_sides(sides);
	return 0;
}

/* Queues the copies up to the first bad one, and the mark behind them. */
static int copy_later(struct pl_sim_gpu *sim, struct pl_queue *queue, struct task *t,
		      const struct pl_copy *list, unsigned int nr)
{
	int err = 0;

	for (t->nr = 0; t->nr < nr; t->nr++) {
		struct piece *p = &t->pieces[t->nr];

		p->copy = list[t->nr];
		p->owner = queue->owner;
		err = check_piece(sim, t->dir, p);
		if (err)
			break;
	}
	if (t->mark) {
		atomic_fetch_add(&t->mark->refs, 1);
		atomic_fetch_add(&t->mark->pending, 1);
	}
	pl_sim_fifo_push(&queue->fifo, &t->task);
	return err;
}

int pl_sim_queue_copy(struct pl_gpu *gpu, struct pl_queue *queue, enum pl_dir dir,
		      const struct pl_copy *list, unsigned int nr, struct pl_mark *mark)
{
	struct pl_sim_gpu *sim = pl_sim_of(gpu);
	unsigned int hang = atomic_load(&sim->hang);
	struct task *t;

	if (mark && mark_waits(sim, mark))
		return pl_sim_refuse(-EBUSY, PL_SIM_INVALID_VALUE);
	if (mark)
		atomic_store(&mark->err, 0);
	if (!pl_sim_fault_hit(sim, PL_SIM_FAULT_HANG) && atomic_load(&queue->hung) != hang)
		hang = 0;
	if (!queue->threaded) {
		/* The data moves all the same: only the end of it is never seen. */
		atomic_store(&queue->hung, hang);
		if (mark)
			atomic_store(&mark->hung, hang);
		return copy_now(sim, queue, dir, list, nr);
	}
	t = pl_sim_object_create(PL_SIM_TASK, sim, sizeof(*t) + nr * sizeof(t->pieces[0]));
	if (!t)
		return pl_sim_refuse(-ENOMEM, PL_SIM_OUT_OF_MEMORY);
	t->task.run = run_task;
	t->sim = sim;
	t->mark = mark;
	t->dir = dir;
	t->hang = hang;
	return copy_later(sim, queue, t, list, nr);
}

int pl_sim_queue_create(struct pl_gpu *gpu, void *owner, struct pl_queue **out)
{
	struct pl_sim_gpu *sim = pl_sim_of(gpu);
	struct pl_queue *q;
	int err;

	if (!owner)
		return pl_sim_refuse(-EINVAL, PL_SIM_INVALID_VALUE);
	q = pl_sim_object_create(PL_SIM_QUEUE, sim, sizeof(*q));
	if (!q)
		return pl_sim_refuse(-ENOMEM, PL_SIM_OUT_OF_MEMORY);
	q->owner = owner;
	q->threaded = sim->async;
	if (q->threaded) {
		err = pl_sim_fifo_start(&q->fifo);
		if (err)
			goto err_destroy;
	}
	*out = q;
	return 0;

err_destroy:
	pl_sim_object_destroy(q);
	return pl_sim_refuse(err, PL_SIM_OUT_OF_MEMORY);
}

void pl_sim_queue_destroy(struct pl_gpu *gpu, struct pl_queue *queue)
{
	(void)gpu;
	if (!queue)
		return;
	if (queue->threaded)
		pl_sim_fifo_stop(&queue->fifo);
	pl_sim_object_destroy(queue);
}

int pl_sim_mark_create(struct pl_gpu *gpu, struct pl_queue *queue, struct pl_mark **out)
{
	struct pl_mark *m = pl_sim_object_create(PL_SIM_MARK, pl_sim_of(gpu), sizeof(*m));

	(void)queue;
	if (!m)
		return pl_sim_refuse(-ENOMEM, PL_SIM_OUT_OF_MEMORY);
	m->refs = 1;
	*out = m;
	return 0;
}

void pl_sim_mark_destroy(struct pl_gpu *gpu, struct pl_mark *mark)
{
	(void)gpu;
	mark_put(mark);
}

int pl_sim_mark_done(struct pl_gpu *gpu, struct pl_mark *mark)
{
	struct pl_sim_gpu *sim = pl_sim_of(gpu);
	int err;

	if (pl_sim_fault_hit(sim, PL_SIM_FAULT_EVENT))
		return pl_sim_refuse(-EREMOTEIO, PL_SIM_LAUNCH_FAILED);
	if (mark_waits(sim, mark))
		return 0;
	err = atomic_load(&mark->err);
	if (err)
		return pl_sim_refuse(err, (enum pl_sim_result)atomic_load(&mark->result));
	return 1;
}
