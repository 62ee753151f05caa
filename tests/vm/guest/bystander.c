// SPDX-License-Identifier: MIT
/*
 * A second process that reads and writes another drive while things go wrong elsewhere. It must
 * notice nothing: all data is right, and all of it goes by p2p.
 */
#include <poll.h>

#include "engine.h"

#define PIECE (256 * KIB)
/* Where it writes on the drive raw0; no other test does there. */
#define PLACE (RAW_WRITE + 64 * MIB)

static bool told_to_stop(int fd)
{
	struct pollfd poll_fd = { .fd = fd, .events = POLLIN };

	return poll(&poll_fd, 1, 5) != 0;
}

static void look_at(struct engine *e, int drive, size_t offset, const char *what, unsigned int n)
{
	expect(peerlane_gpu_copy(e->ctx, e->seen, e->gpu, PIECE) == 0);
	expect(pread(drive, e->model, PIECE, (off_t)offset) == (ssize_t)PIECE);
	if (memcmp(e->seen, e->model, PIECE) != 0)
		fail("bystander: %s %u is wrong", what, n);
}

static unsigned int stand_by(int stop, int ready)
{
	int drive = drive_open("raw0", O_RDWR | O_DIRECT);
	struct peerlane_file *file;
	struct engine e;
	unsigned int n;

	engine_open(&e);
	expect(peerlane_file_from_fd(e.ctx, drive, &file) == 0);
	for (n = 0; !n || !told_to_stop(stop); n++) {
		size_t from = n % 200 * PIECE, to = PLACE + n % 40 * PIECE;
		ssize_t got = peerlane_read(file, e.gpu, PIECE, (off_t)from);

		if (got != (ssize_t)PIECE)
			fail("bystander: read %u: %zd", n, got);
		look_at(&e, drive, from, "read", n);
		fill(e.model, PIECE, n);
		expect(peerlane_gpu_copy(e.ctx, e.gpu, e.model, PIECE) == 0);
		got = peerlane_write(file, e.gpu, PIECE, (off_t)to, 0);
		if (got != (ssize_t)PIECE)
			fail("bystander: write %u: %zd", n, got);
		look_at(&e, drive, to, "write", n);
		if (!n)
			expect(write(ready, "", 1) == 1);
	}
	if (p2p_bytes(&e) != 2 * n * PIECE)
		fail("bystander: %zu bytes by p2p, and not %zu", p2p_bytes(&e), 2 * n * PIECE);
	expect(peerlane_file_close(file) == 0);
	engine_close(&e);
	close(drive);
	return n;
}

void bystander_start(struct bystander *b)
{
	int stop[2], ready[2];
	char byte;

	expect(pipe2(stop, O_CLOEXEC) == 0 && pipe2(ready, O_CLOEXEC) == 0);
	fflush(stdout);
	b->pid = fork();
	expect(b->pid >= 0);
	if (!b->pid) {
		close(stop[1]);
		close(ready[0]);
		printf("bystander: %u rounds\n", stand_by(stop[0], ready[1]));
		fflush(stdout);
		_exit(0);
	}
	close(stop[0]);
	close(ready[1]);
	b->stop = stop[1];
	/* Not before it is at work. */
	expect(read(ready[0], &byte, 1) == 1);
	close(ready[0]);
}

void bystander_end(struct bystander *b)
{
	int status;

	close(b->stop);
	expect(waitpid(b->pid, &status, 0) == b->pid);
	expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
