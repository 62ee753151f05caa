/* SPDX-License-Identifier: MIT */
/*
 * How pins end: memory that is freed while a drive writes it, processes that are killed, handles
 * that end in another process. Nobody else may notice, and the module must let go of everything.
 */
#include "prove.h"

#include "progress.h"
#include "stop.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1u << 20)
#define SMALL (64u << 10)
/* Frees come within this time of a first read, or about that. */
#define FREE_US 3000
#define KILL_US 50000
/* The start of a process and of its GPU. */
#define START_US 250000

/* A context of its own, so that the module can be looked at when it is closed. */
static bool begin(struct pl_prove_run *r, struct pl_prove *p, const char *name)
{
	int err = pl_prove_context(p, 0, &p->ctx);

	if (!err)
		return pl_prove_run_begin(r, p, name);
	p->ctx = NULL;
	pl_prove_report_line(&p->report, PL_PROVE_FAIL, name, NULL, "no context: %s",
			     pl_session_reason(err).text);
	return false;
}

static void finish(struct pl_prove_run *r, const char *what, const char *settled)
{
	struct pl_prove *p = r->prove;

	if (!p->ctx)
		return;
	pl_prove_run_end(r, what);
	peerlane_close(p->ctx);
	p->ctx = NULL;
	pl_prove_settled(p, settled);
}

void pl_prove_settled(struct pl_prove *p, const char *name)
{
	char text[320];

	if (pl_prove_module_settled(p, text, sizeof(text)))
		pl_prove_report_line(&p->report, PL_PROVE_PASS, name, NULL,
				     "the module holds what it held at the start");
	else
		pl_prove_report_line(&p->report, PL_PROVE_FAIL, name, NULL, "%s", text);
}

/* A read of @bytes into new memory goes by p2p and is right. */
static bool read_new(struct pl_prove_run *r, unsigned char *want, unsigned char *seen, size_t bytes)
{
	uint64_t at = pl_prove_random(r->prove, pl_prove_half(r->prove) / bytes) * bytes;
	void *gpu = NULL;
	bool good = false;

	if (peerlane_gpu_alloc(r->ctx, (int)r->prove->args->gpu, bytes, &gpu))
		return pl_prove_run_wrong(r, "no GPU memory afterwards");
	pl_prove_file_pattern(want, bytes, at, PL_PROVE_SEED);
	if (peerlane_read(r->file, gpu, bytes, (off_t)at) != (ssize_t)bytes ||
	    peerlane_gpu_copy(r->ctx, seen, gpu, bytes))
		pl_prove_run_wrong(r, "a read afterwards failed");
	else
		good = pl_prove_run_same(r, "a read afterwards", seen, want, bytes);
	pl_prove_run_count(r, gpu, bytes, at);
	if (peerlane_gpu_free(r->ctx, gpu))
		good = pl_prove_run_wrong(r, "GPU memory cannot be freed afterwards");
	return good;
}

/* That, and the run's memory is as it was. */
static bool others_fine(struct pl_prove_run *r)
{
	unsigned char *room = malloc(2 * MIB);
	bool good = room ? read_new(r, room, room + MIB, MIB)
			 : pl_prove_run_wrong(r, "out of memory");

	free(room);
	return good && pl_prove_run_look(r, "other GPU memory", SIZE_MAX, 0, 0);
}

/* ------------------------------------------------------------------ revocations */

struct victim {
	struct pl_prove_run *run;
	char *gpu;
	size_t bytes;
	unsigned int nr; /* reads that ended well; atomic */
	ssize_t last;
};

static void *read_until_gone(void *arg)
{
	struct victim *v = arg;

	do {
		v->last = peerlane_read(v->run->file, v->gpu, v->bytes, 0);
		if (v->last == (ssize_t)v->bytes)
			__atomic_add_fetch(&v->nr, 1, __ATOMIC_RELAXED);
	} while (v->last == (ssize_t)v->bytes);
	return NULL;
}

/* Frees memory at any moment of a read into it. */
static bool free_under_reads(struct pl_prove_run *r, bool registered)
{
	struct victim v = { .run = r, .bytes = 2 * MIB };
	bool over = false;
	pthread_t thread;
	void *gpu;
	int err;

	if (peerlane_gpu_alloc(r->ctx, (int)r->prove->args->gpu, v.bytes, &gpu))
		return pl_prove_run_wrong(r, "no GPU memory");
	v.gpu = gpu;
	if (registered)
		peerlane_buffer_register(r->ctx, gpu, v.bytes, 0);
	if (pthread_create(&thread, NULL, read_until_gone, &v)) {
		peerlane_gpu_free(r->ctx, gpu);
		return pl_prove_run_wrong(r, "no thread");
	}
	while (!over && !__atomic_load_n(&v.nr, __ATOMIC_RELAXED)) {
		usleep(100);
		over = !pthread_tryjoin_np(thread, NULL);
	}
	usleep((useconds_t)pl_prove_random(r->prove, FREE_US));
	err = peerlane_gpu_free(r->ctx, gpu);
	if (!over)
		pthread_join(thread, NULL);
	if (registered)
		peerlane_buffer_release(r->ctx, gpu);
	r->nr += v.nr;
	r->bytes += v.nr * v.bytes;
	if (err)
		return pl_prove_run_wrong(r, "memory in use cannot be freed: %s",
					  pl_session_reason(err).text);
	if (!v.nr)
		return pl_prove_run_wrong(r, "reads fail before the memory is freed: %zd", v.last);
	if (v.last < 0 && v.last != -EFAULT && v.last != -EREMOTEIO)
		return pl_prove_run_wrong(r, "a read into freed memory ended with: %s",
					  peerlane_strerror((int)v.last));
	return true;
}

void pl_prove_revocations(struct pl_prove *p)
{
	uint64_t before = pl_prove_module_counters(p).nr_revoke, times;
	struct pl_prove_run r = { .prove = p };
	unsigned int done = 0;
	char what[128];
	bool good = begin(&r, p, "revocations");

	for (; done < p->args->rounds && good && !pl_stop_requested(); done++) {
		good = free_under_reads(&r, done % 2) && others_fine(&r);
		pl_progress_count(r.name, done, p->args->rounds);
	}
	times = pl_prove_module_counters(p).nr_revoke - before;
	if (good && done && !times)
		pl_prove_run_wrong(&r,
				   "memory was freed %u times under reads, and the GPU's driver "
				   "never told the module",
				   done);
	snprintf(what, sizeof(what), "memory freed under reads %u times, %llu pins revoked", done,
		 (unsigned long long)times);
	finish(&r, what, "revocations_settled");
}

/* ------------------------------------------------------------------ kills */

static bool judge_child(struct pl_prove_run *r, int status)
{
	static const char *const ends[] = { "could not start", "failed in a read",
					    "found WRONG DATA", "failed in a write" };
	int code;

	if (status >= 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
		return true;
	code = status >= 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 0;
	if (code >= 3 && code <= 6)
		return pl_prove_run_wrong(r, "a process %s before it was killed", ends[code - 3]);
	return pl_prove_run_wrong(r, "a process ended in an unexpected way: %d", status);
}

static bool kill_one(struct pl_prove_run *r, unsigned int i)
{
	struct pl_prove *p = r->prove;
	int err = pl_prove_nursery_begin(p, PL_PROVE_CHILD_READ, -1, i + 1);

	if (err)
		return pl_prove_run_wrong(r, "no process: %s", strerror(-err));
	/* Half of them at work, half of them at any moment of their start. */
	if (i % 2 == 0) {
		err = pl_prove_nursery_ready(p);
		usleep((useconds_t)pl_prove_random(p, KILL_US));
	} else {
		usleep((useconds_t)pl_prove_random(p, START_US));
	}
	if (!judge_child(r, pl_prove_nursery_kill(p)))
		return false;
	return !err || pl_prove_run_wrong(r, "a process did not get to work");
}

void pl_prove_kills(struct pl_prove *p)
{
	struct pl_prove_run r = { .prove = p };
	uint64_t start = pl_prove_half(p) / 2 * 3;
	unsigned int done = 0;
	int64_t where;
	char what[96];
	bool good = begin(&r, p, "kills");

	for (; done < p->args->rounds && good && !pl_stop_requested(); done++) {
		good = kill_one(&r, done) && others_fine(&r);
		pl_progress_count(r.name, done, p->args->rounds);
	}
	/* They wrote what was there. */
	pl_prove_file_drop(&p->file, start, p->file.bytes - start);
	if (good && !pl_prove_file_holds(&p->file, start, p->file.bytes - start, &where))
		pl_prove_run_wrong(&r, "WRONG DATA in the file, at byte %lld", (long long)where);
	snprintf(what, sizeof(what), "%u processes killed while they read and wrote", done);
	finish(&r, what, "kills_settled");
}

/* ------------------------------------------------------------------ handles */

struct handle {
	struct pl_prove_run *run;
	int dev, direct;
	void *gpu;
	struct peerlane_pin pin;
	char *map;
};

/* A plain O_DIRECT read into the mapping: straight to the GPU. */
static bool read_by_map(struct handle *h)
{
	unsigned char want[SMALL], seen[SMALL];

	if (pread(h->direct, h->map + h->pin.skip_bytes, SMALL, MIB) != SMALL)
		return pl_prove_run_wrong(h->run, "O_DIRECT read into the mapping: %s",
					  strerror(errno));
	if (peerlane_gpu_copy(h->run->ctx, seen, h->gpu, SMALL))
		return pl_prove_run_wrong(h->run, "copy from the GPU failed");
	pl_prove_file_pattern(want, SMALL, MIB, PL_PROVE_SEED);
	h->run->nr++;
	h->run->bytes += SMALL;
	return pl_prove_run_same(h->run, "a read into the mapping", seen, want, SMALL);
}

static bool free_memory(struct handle *h)
{
	int err = h->gpu ? peerlane_gpu_free(h->run->ctx, h->gpu) : 0;

	h->gpu = NULL;
	return !err || pl_prove_run_wrong(h->run, "GPU memory cannot be freed");
}

/* Unpinned or held in another process, with the memory there or freed before. */
static bool pass_on(struct handle *h, unsigned int i)
{
	enum pl_prove_child kind = i % 3 == 1 ? PL_PROVE_CHILD_HOLD : PL_PROVE_CHILD_UNPIN;
	struct pl_prove *p = h->run->prove;
	bool good = i % 3 != 2 || free_memory(h);
	int err = pl_prove_nursery_begin(p, kind, h->dev, h->pin.handle);

	if (err)
		return pl_prove_run_wrong(h->run, "no process: %s", strerror(-err));
	err = pl_prove_nursery_ready(p);
	if (err && err != -EINPROGRESS)
		good = pl_prove_run_wrong(h->run, "UNPIN in another process: %s", strerror(-err));
	if (kind == PL_PROVE_CHILD_UNPIN &&
	    (pread(h->direct, h->map + h->pin.skip_bytes, SMALL, MIB) >= 0 || errno != EFAULT))
		good = pl_prove_run_wrong(h->run,
					  "a read into a mapping without a pin did not fail "
					  "with EFAULT");
	munmap(h->map, h->pin.map_bytes);
	close(h->dev);
	h->dev = -1;
	return judge_child(h->run, pl_prove_nursery_kill(p)) && good;
}

static bool handle_round(struct pl_prove_run *r, int direct, unsigned int i)
{
	struct handle h = { .run = r, .direct = direct, .dev = pl_prove_module_open() };
	bool good;
	int err = peerlane_gpu_alloc(r->ctx, (int)r->prove->args->gpu, MIB, &h.gpu);

	if (err || h.dev < 0)
		return pl_prove_run_wrong(r, "no GPU memory, or no module");
	err = pl_prove_module_pin(h.dev, h.gpu, MIB, i / 3 % 2 ? PEERLANE_PIN_PERSISTENT : 0,
				  &h.pin, &h.map);
	if (err)
		good = pl_prove_run_wrong(r, "PIN: %s", strerror(-err));
	else
		good = read_by_map(&h) && pass_on(&h, i);
	if (h.dev >= 0)
		close(h.dev);
	return free_memory(&h) && good;
}

void pl_prove_handles(struct pl_prove *p)
{
	int direct = open(p->file.path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	struct pl_prove_run r = { .prove = p };
	unsigned int done = 0;
	char what[128];
	bool good = begin(&r, p, "handles");

	if (good && direct < 0)
		good = pl_prove_run_wrong(&r, "the file cannot be opened with O_DIRECT");
	for (; done < p->args->rounds && good && !pl_stop_requested(); done++) {
		good = handle_round(&r, direct, done) && others_fine(&r);
		pl_progress_count(r.name, done, p->args->rounds);
	}
	snprintf(what, sizeof(what),
		 "%u descriptors passed to processes that unpin, hold and are "
		 "killed",
		 done);
	finish(&r, what, "handles_settled");
	if (direct >= 0)
		close(direct);
}
