/* SPDX-License-Identifier: MIT */
/* Vectors, batches and threads of prove: many transfers at once; every byte is compared. */
#include "prove.h"

#include "stop.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define KIB 1024u
#define NR_IOV 7
#define NR_BATCH 32u
#define PIECE (64 * KIB)
#define NR_THREADS 4u
#define NR_READS 50u

/* ------------------------------------------------------------------ vectors */

static bool vectors(struct pl_prove_run *r)
{
	static const size_t sizes[NR_IOV] = { 64 * KIB, 4 * KIB, 512,	  128 * KIB,
					      1000,	3 * KIB, 60 * KIB };
	uint64_t offset = 128 * KIB;
	struct iovec iov[NR_IOV];
	size_t at = 0, sum = 0;
	ssize_t n;

	for (int i = 0; i < NR_IOV; i++) {
		at = (at + sizes[i] + 2 * PIECE - 1) / PIECE * PIECE;
		iov[i] = (struct iovec){ r->gpu + at, sizes[i] };
		pl_prove_file_pattern(r->model + at, sizes[i], offset + sum, PL_PROVE_SEED);
		pl_prove_run_count(r, iov[i].iov_base, sizes[i], offset + sum);
		sum += sizes[i];
	}
	n = peerlane_readv(r->file, iov, NR_IOV, (off_t)offset);
	if (n != (ssize_t)sum)
		return pl_prove_run_wrong(r, "readv of %zu bytes gave %zd", sum, n);
	if (!pl_prove_run_look(r, "GPU memory after readv", SIZE_MAX, 0, 0))
		return false;
	/* The same pieces to the part that is written, where this is read back. */
	offset = pl_prove_half(r->prove);
	n = peerlane_writev(r->file, iov, NR_IOV, (off_t)offset, 0);
	if (n != (ssize_t)sum)
		return pl_prove_run_wrong(r, "writev of %zu bytes gave %zd", sum, n);
	pl_prove_file_drop(&r->prove->file, offset, sum);
	if (pl_prove_file_read(&r->prove->file, r->seen, sum, offset))
		return pl_prove_run_wrong(r, "the file cannot be read back");
	pl_prove_file_pattern(r->model, sum, 128 * KIB, PL_PROVE_SEED);
	if (!pl_prove_run_same(r, "the file after writev", r->seen, r->model, sum))
		return false;
	return !pl_prove_file_restore(&r->prove->file, offset, sum) ||
	       pl_prove_run_wrong(r, "the file cannot be written");
}

/* ------------------------------------------------------------------ batches */

static bool collect(struct pl_prove_run *r, struct peerlane_batch *batch,
		    const struct peerlane_io *io)
{
	struct peerlane_event events[NR_BATCH];

	for (unsigned int got = 0; got < NR_BATCH;) {
		int n = peerlane_batch_wait(batch, 1, events, NR_BATCH, NULL);

		if (n <= 0)
			return pl_prove_run_wrong(r, "waiting for a batch: %s",
						  pl_session_reason(n).text);
		for (int i = 0; i < n; i++) {
			const struct peerlane_io *one = events[i].cookie;

			if (events[i].result != (ssize_t)one->bytes)
				return pl_prove_run_wrong(r, "request %zd of a batch gave %zd",
							  one - io, events[i].result);
		}
		got += (unsigned int)n;
	}
	return true;
}

static bool batches(struct pl_prove_run *r)
{
	struct peerlane_io io[NR_BATCH];
	struct peerlane_batch *batch;
	int err = peerlane_batch_create(r->ctx, NR_BATCH, &batch);
	bool good = !err;

	for (unsigned int round = 0; round < 4 && good; round++) {
		for (unsigned int i = 0; i < NR_BATCH; i++) {
			size_t at = (size_t)i * PIECE, odd = i % 4 == 3 ? 700 : 0;
			size_t bytes = 56 * KIB + odd;
			uint64_t offset = (uint64_t)(NR_BATCH - 1 - i + round) * PIECE + odd;

			io[i] = (struct peerlane_io){ .file = r->file,
						      .addr = r->gpu + at + odd,
						      .bytes = bytes,
						      .offset = (off_t)offset,
						      .op = PEERLANE_READ,
						      .cookie = &io[i] };
			pl_prove_file_pattern(r->model + at + odd, bytes, offset, PL_PROVE_SEED);
			pl_prove_run_count(r, io[i].addr, bytes, offset);
		}
		err = peerlane_batch_submit(batch, io, NR_BATCH);
		good = !err && collect(r, batch, io) &&
		       pl_prove_run_look(r, "GPU memory after a batch", SIZE_MAX, 0, 0);
	}
	if (err)
		pl_prove_run_wrong(r, "batch: %s", pl_session_reason(err).text);
	else
		peerlane_batch_destroy(batch);
	return good;
}

/* ------------------------------------------------------------------ threads */

struct reader {
	struct pl_prove_run run; /* with a slice of the GPU memory */
	uint64_t random;
	pthread_t thread;
	bool started;
};

static void *read_often(void *arg)
{
	struct reader *t = arg;
	struct pl_prove_run *r = &t->run;
	uint64_t half = pl_prove_half(r->prove);
	bool good = true;

	for (unsigned int i = 0; i < NR_READS && good && !pl_stop_requested(); i++) {
		uint64_t offset;
		ssize_t n;

		t->random = t->random * 6364136223846793005ull + 1442695040888963407ull;
		offset = (t->random >> 20) % ((half - r->room) / 4096 + 1) * 4096;
		n = peerlane_read(r->file, r->gpu, r->room, (off_t)offset);
		pl_prove_run_count(r, r->gpu, r->room, offset);
		pl_prove_file_pattern(r->model, r->room, offset, PL_PROVE_SEED);
		good = n == (ssize_t)r->room
			       ? pl_prove_run_look(r, "GPU memory of a thread", 0, r->room, offset)
			       : pl_prove_run_wrong(r, "a read of a thread gave %zd", n);
	}
	return NULL;
}

/* Each with a quarter of the memory, up to 256 KiB, of one allocation and one file. */
static void threads(struct pl_prove_run *r)
{
	struct reader readers[NR_THREADS];

	for (unsigned int i = 0; i < NR_THREADS; i++) {
		struct reader *t = &readers[i];
		size_t at = r->room / NR_THREADS * i;

		t->run = *r;
		t->run.gpu = r->gpu + at;
		t->run.model = r->model + at;
		t->run.seen = r->seen + at;
		t->run.room = 256 * KIB;
		t->random = i + 1;
		t->started = !pthread_create(&t->thread, NULL, read_often, t);
	}
	for (unsigned int i = 0; i < NR_THREADS; i++) {
		struct reader *t = &readers[i];

		if (!t->started || pthread_join(t->thread, NULL)) {
			pl_prove_run_wrong(r, "no thread");
			continue;
		}
		r->nr += t->run.nr;
		r->bytes += t->run.bytes;
		r->must += t->run.must;
		if (t->run.wrong[0])
			pl_prove_run_wrong(r, "%s", t->run.wrong);
	}
}

void pl_prove_many(struct pl_prove *p)
{
	struct pl_prove_run r;

	if (pl_prove_run_begin(&r, p, "vectors"))
		vectors(&r);
	pl_prove_run_end(&r, "pieces of seven sizes in one call, both ways");
	if (pl_prove_run_begin(&r, p, "batches"))
		batches(&r);
	pl_prove_run_end(&r, "32 reads at once, some odd");
	if (pl_prove_run_begin(&r, p, "threads"))
		threads(&r);
	pl_prove_run_end(&r, "4 threads at once");
}
