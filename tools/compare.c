/* SPDX-License-Identifier: MIT */
/* Whether two files hold the same bytes. */
#include "compare.h"

#include "progress.h"
#include "stop.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE_BYTES (1u << 20)
#define THREADS_MAX 8

struct work {
	int fd_a, fd_b;
	uint64_t bytes;
	uint64_t next;	/* atomic: first byte no thread has taken */
	int err;	/* atomic: first failure */
	uint64_t where; /* of the thread that set err */
};

static void fail(struct work *w, int err, uint64_t where)
{
	int none = 0;

	if (__atomic_compare_exchange_n(&w->err, &none, err, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		w->where = where;
}

/* Reads it all; a file that ends too early is an error. */
static int read_all(int fd, char *buf, size_t bytes, uint64_t at)
{
	while (bytes) {
		ssize_t n = pread(fd, buf, bytes, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -ENODATA;
		buf += n;
		bytes -= (size_t)n;
		at += (uint64_t)n;
	}
	return 0;
}

static size_t first_difference(const char *a, const char *b, size_t bytes)
{
	size_t i = 0;

	while (i < bytes && a[i] == b[i])
		i++;
	return i;
}

static void compare_pieces(struct work *w, char *a, char *b, struct pl_progress *progress)
{
	while (!__atomic_load_n(&w->err, __ATOMIC_RELAXED)) {
		uint64_t at = __atomic_fetch_add(&w->next, PIECE_BYTES, __ATOMIC_RELAXED);
		size_t len;
		int err;

		if (at >= w->bytes)
			return;
		len = w->bytes - at < PIECE_BYTES ? (size_t)(w->bytes - at) : PIECE_BYTES;
		err = read_all(w->fd_a, a, len, at);
		if (!err)
			err = read_all(w->fd_b, b, len, at);
		if (!err && pl_stop_requested())
			err = -ECANCELED;
		if (err)
			fail(w, err, at);
		else if (memcmp(a, b, len) != 0)
			fail(w, -EBADMSG, at + first_difference(a, b, len));
		if (progress)
			pl_progress_show(progress, at);
	}
}

static void run(struct work *w, struct pl_progress *progress)
{
	char *a = malloc(PIECE_BYTES);
	char *b = malloc(PIECE_BYTES);

	if (a && b)
		compare_pieces(w, a, b, progress);
	else
		fail(w, -ENOMEM, 0);
	free(a);
	free(b);
}

static void *thread(void *arg)
{
	run(arg, NULL);
	return NULL;
}

int pl_compare_files(int fd_a, int fd_b, uint64_t bytes, uint64_t *where)
{
	struct work w = { .fd_a = fd_a, .fd_b = fd_b, .bytes = bytes };
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	pthread_t threads[THREADS_MAX];
	struct pl_progress progress;
	int nr = 0;

	pl_progress_start(&progress, "verify", bytes);
	while (nr < THREADS_MAX && nr + 1 < cpus && (uint64_t)nr * PIECE_BYTES * 4 < bytes &&
	       !pthread_create(&threads[nr], NULL, thread, &w))
		nr++;
	run(&w, &progress);
	for (int i = 0; i < nr; i++)
		pthread_join(threads[i], NULL);
	pl_progress_clear();
	*where = w.where;
	return w.err;
}
