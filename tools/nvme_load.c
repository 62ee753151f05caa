/* SPDX-License-Identifier: MIT */
/* A measured pass over a namespace: threads with a queue pair each, that keep it full. */
#include "nvme_load.h"

#include "message.h"
#include "nvme_memory.h"
#include "pattern.h"
#include "progress.h"
#include "stop.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BATCH 64u
#define WAIT_MS 200 /* signals are seen that often */

struct pass {
	const struct pl_drive_load *load;
	uint64_t nr_slots; /* places for I/O in the range */
	uint64_t deadline_ns;
	uint64_t next;	       /* atomic: number of the next I/O */
	unsigned int nr_ended; /* atomic: threads that are through */
	int err;	       /* atomic: first failure */
	pthread_mutex_t gate;  /* held until all threads may begin */
};

struct worker {
	struct pass *pass;
	pthread_t thread;
	struct pl_drive_memory memory;
	struct peerlane_nvme_queue *queue;
	uint64_t *start_ns; /* of each place in the memory */
	uint64_t *lba;
	unsigned int *idle; /* places that are free */
	unsigned int nr_idle;
	uint64_t ios; /* atomic, for the progress line */
	uint64_t end_ns, least_ns, most_ns;
	struct pl_latency latency;
};

/* The first failure ends the pass; true for the caller who may say it. */
static bool fail(struct pass *p, int err)
{
	int none = 0;

	return __atomic_compare_exchange_n(&p->err, &none, err, 0, __ATOMIC_RELAXED,
					   __ATOMIC_RELAXED);
}

/* The first block of the next I/O; false when there is none. */
static bool take(struct pass *p, uint64_t now, uint64_t *lba)
{
	const struct pl_drive_load *load = p->load;
	uint64_t i, blocks = load->io_bytes / load->drive->ns_info.block_bytes;

	if (pl_stop_requested() || __atomic_load_n(&p->err, __ATOMIC_RELAXED) ||
	    (p->deadline_ns && now >= p->deadline_ns))
		return false;
	i = __atomic_fetch_add(&p->next, 1, __ATOMIC_RELAXED);
	if (load->nr_ios && i >= load->nr_ios)
		return false;
	i = load->random ? pl_pattern_hash(i) % p->nr_slots : i % p->nr_slots;
	*lba = load->block + i * blocks;
	return true;
}

/* Submits until the queue or the work is at its end; how many, or a negative errno: -EAGAIN if there is work
 * but the queue takes none now. */
static int submit(struct worker *w, uint64_t now)
{
	const struct pl_drive_load *load = w->pass->load;
	struct peerlane_nvme_io ios[BATCH];
	unsigned int nr = 0, left;
	uint64_t lba;
	int taken;

	while (nr < BATCH && nr < w->nr_idle && take(w->pass, now, &lba)) {
		unsigned int slot = w->idle[w->nr_idle - 1 - nr];

		w->start_ns[slot] = now;
		w->lba[slot] = lba;
		ios[nr++] = (struct peerlane_nvme_io){
			.opcode = load->opcode,
			.nr_blocks = (uint32_t)(load->io_bytes / load->drive->ns_info.block_bytes),
			.lba = lba,
			.ns = load->drive->ns,
			.map = w->memory.map,
			.offset = (size_t)slot * load->io_bytes,
			.user = slot,
		};
	}
	for (left = nr; left; left -= (unsigned int)taken) {
		taken = peerlane_nvme_submit(w->queue, ios + nr - left, left);
		if (taken == -EAGAIN)
			break;
		if (taken < 0)
			return taken;
	}
	/* What did not fit is for another turn. */
	__atomic_fetch_sub(&w->pass->next, left, __ATOMIC_RELAXED);
	w->nr_idle -= nr - left;
	return left && left == nr ? -EAGAIN : (int)(nr - left);
}

static int account(struct worker *w, const struct peerlane_nvme_completion *cpl, uint64_t now)
{
	const struct pl_drive_load *load = w->pass->load;
	uint64_t ns = now - w->start_ns[cpl->user];

	if (cpl->err) {
		if (fail(w->pass, cpl->err))
			pl_drive_complain(load->drive, load->what, w->lba[cpl->user],
					  load->io_bytes / load->drive->ns_info.block_bytes, cpl);
		return cpl->err;
	}
	pl_latency_add(&w->latency, ns);
	w->least_ns = ns < w->least_ns ? ns : w->least_ns;
	w->most_ns = ns > w->most_ns ? ns : w->most_ns;
	w->idle[w->nr_idle++] = (unsigned int)cpl->user;
	__atomic_store_n(&w->ios, w->ios + 1, __ATOMIC_RELAXED);
	return 0;
}

/* Keeps the queue full until there is no more to do. */
static int drive(struct worker *w)
{
	struct peerlane_nvme_completion cpl[BATCH];
	unsigned int depth = w->pass->load->depth;
	uint64_t now = pl_progress_now();
	int nr, err = 0;

	for (;;) {
		nr = w->nr_idle ? submit(w, now) : 0;
		if (nr < 0 && nr != -EAGAIN)
			return nr;
		if (!nr && w->nr_idle == depth)
			return 0;
		nr = peerlane_nvme_wait(w->queue, cpl, 1, BATCH, WAIT_MS);
		if (nr < 0)
			return nr;
		/* What a signal leaves under way ends with the queue. */
		if (!nr && pl_stop_requested())
			return 0;
		now = pl_progress_now();
		for (int i = 0; i < nr && !err; i++)
			err = account(w, &cpl[i], now);
		if (err)
			return err;
	}
}

static void *work(void *arg)
{
	struct worker *w = arg;
	struct pass *p = w->pass;
	int err;

	pthread_mutex_lock(&p->gate);
	pthread_mutex_unlock(&p->gate);
	err = __atomic_load_n(&p->err, __ATOMIC_RELAXED) ? 0 : drive(w);
	if (err && fail(p, err))
		pl_message_error("%s: %s: %s", p->load->drive->address, p->load->what,
				 strerror(-err));
	w->end_ns = pl_progress_now();
	__atomic_fetch_add(&p->nr_ended, 1, __ATOMIC_RELEASE);
	return NULL;
}

/* Commands that one I/O becomes. */
static uint64_t parts_of(const struct pl_drive_load *load, size_t most)
{
	uint64_t limit = load->drive->info.max_transfer_bytes;

	if (!limit || limit > most)
		limit = most;
	return (load->io_bytes + limit - 1) / limit;
}

static int prepare(struct worker *w)
{
	const struct pl_drive_load *load = w->pass->load;
	uint32_t longest = load->drive->info.max_entries;
	struct peerlane_nvme_queue_options opt = { .size = sizeof(opt),
						   .max_transfer_bytes = load->io_bytes };
	uint64_t entries;
	int err;

	if (opt.max_transfer_bytes < load->drive->info.page_bytes)
		opt.max_transfer_bytes = load->drive->info.page_bytes;
	if (opt.max_transfer_bytes > 1u << 20)
		opt.max_transfer_bytes = 1u << 20;
	entries = load->depth * parts_of(load, opt.max_transfer_bytes) + 1;
	opt.depth = entries < longest ? (unsigned int)entries : longest;
	if (load->depth >= longest) {
		pl_message_error("--depth: the longest queue of %s takes %u", load->drive->address,
				 longest - 1);
		return -EINVAL;
	}
	w->least_ns = UINT64_MAX;
	w->start_ns = calloc(load->depth, sizeof(*w->start_ns));
	w->lba = calloc(load->depth, sizeof(*w->lba));
	w->idle = calloc(load->depth, sizeof(*w->idle));
	if (!w->start_ns || !w->lba || !w->idle) {
		pl_message_error("out of memory");
		return -ENOMEM;
	}
	while (w->nr_idle < load->depth) {
		w->idle[w->nr_idle] = w->nr_idle;
		w->nr_idle++;
	}
	err = pl_drive_memory_init(&w->memory, load->drive, load->session,
				   load->depth * load->io_bytes);
	if (err)
		return err;
	err = peerlane_nvme_queue_create(load->drive->nvme, &opt, &w->queue);
	if (err)
		pl_message_error("%s: no queue of %u entries: %s", load->drive->address, opt.depth,
				 strerror(-err));
	return err;
}

static void clean_up(struct worker *w)
{
	/* First the queue: what is still under way uses the memory. */
	peerlane_nvme_queue_destroy(w->queue);
	pl_drive_memory_fini(&w->memory);
	free(w->start_ns);
	free(w->lba);
	free(w->idle);
}

static uint64_t done_ios(const struct worker *workers, unsigned int nr)
{
	uint64_t ios = 0;

	for (unsigned int i = 0; i < nr; i++)
		ios += __atomic_load_n(&workers[i].ios, __ATOMIC_RELAXED);
	return ios;
}

/* Draws the progress line until all threads are through. */
static void watch(struct pass *p, struct worker *workers, unsigned int nr, uint64_t start_ns)
{
	const struct timespec nap = { .tv_nsec = 20000000 };
	const struct pl_drive_load *load = p->load;
	struct pl_progress progress;

	pl_progress_start(&progress, load->what, load->nr_ios * load->io_bytes);
	while (pl_progress_wanted() && __atomic_load_n(&p->nr_ended, __ATOMIC_ACQUIRE) < nr) {
		uint64_t bytes = done_ios(workers, nr) * load->io_bytes;
		double part = load->seconds > 0
				      ? (double)(pl_progress_now() - start_ns) / 1e9 / load->seconds
				      : 0;

		/* Where the time ends it, the bytes are what they will be at this speed. */
		if (part > 0 && (!load->nr_ios ||
				 (double)bytes / part < (double)(load->nr_ios * load->io_bytes)))
			progress.total_bytes = (uint64_t)((double)bytes / part);
		pl_progress_show(&progress, bytes);
		nanosleep(&nap, NULL);
	}
	pl_progress_clear();
}

static void collect(struct pl_drive_result *result, const struct pass *p,
		    const struct worker *workers, unsigned int nr, uint64_t start_ns)
{
	uint64_t end_ns = start_ns + 1;

	result->least_ns = UINT64_MAX;
	for (unsigned int i = 0; i < nr; i++) {
		const struct worker *w = &workers[i];

		result->ios += w->ios;
		pl_latency_merge(&result->latency, &w->latency);
		end_ns = w->end_ns > end_ns ? w->end_ns : end_ns;
		if (w->least_ns < result->least_ns)
			result->least_ns = w->least_ns;
		if (w->most_ns > result->most_ns)
			result->most_ns = w->most_ns;
	}
	if (!result->ios)
		result->least_ns = 0;
	result->bytes = result->ios * p->load->io_bytes;
	result->seconds = (double)(end_ns - start_ns) / 1e9;
}

/* Starts the threads, all at once, and waits for them. */
static void run(struct pass *p, struct worker *workers, struct pl_drive_result *result)
{
	unsigned int nr = 0, wanted = p->load->nr_queues;
	uint64_t start_ns;

	pthread_mutex_lock(&p->gate);
	while (nr < wanted && !pthread_create(&workers[nr].thread, NULL, work, &workers[nr]))
		nr++;
	if (nr < wanted && fail(p, -EAGAIN))
		pl_message_error("only %u threads could be started", nr);
	start_ns = pl_progress_now();
	if (p->load->seconds > 0)
		p->deadline_ns = start_ns + (uint64_t)(p->load->seconds * 1e9);
	pthread_mutex_unlock(&p->gate);
	watch(p, workers, nr, start_ns);
	for (unsigned int i = 0; i < nr; i++)
		pthread_join(workers[i].thread, NULL);
	collect(result, p, workers, nr, start_ns);
}

int pl_drive_load_run(const struct pl_drive_load *load, struct pl_drive_result *result)
{
	struct pass p = { .load = load, .gate = PTHREAD_MUTEX_INITIALIZER };
	struct worker *workers = calloc(load->nr_queues, sizeof(*workers));
	unsigned int nr = 0;

	memset(result, 0, sizeof(*result));
	if (!workers) {
		pl_message_error("out of memory");
		return -ENOMEM;
	}
	p.nr_slots = load->nr_blocks / (load->io_bytes / load->drive->ns_info.block_bytes);
	for (; nr < load->nr_queues && !p.err; nr++) {
		workers[nr].pass = &p;
		workers[nr].memory.pin_fd = -1;
		p.err = prepare(&workers[nr]);
	}
	if (!p.err)
		run(&p, workers, result);
	while (nr)
		clean_up(&workers[--nr]);
	free(workers);
	return p.err;
}
