// SPDX-License-Identifier: MIT
/*
 * The library on a drive that fails here and there: each request says what it did, or why not, and a
 * process with another drive notices nothing.
 */
#include "engine.h"

/* Where the drive bad0 fails, in reads and in writes; see outside.py. */
#define BAD_READ MIB
#define BAD_WRITE (2 * MIB)
#define BAD_BYTES (4 * MIB)

static bool drive_error(ssize_t n)
{
	/* Which of them depends on what the drive says was wrong. */
	return n == -EIO || n == -ENODATA;
}

struct bad {
	struct engine e;
	struct peerlane_file *file;
	int fd;
	unsigned char *disk; /* what is on it */
};

/* A read that may meet the bad block: what it says was read is right. */
static ssize_t read_bad(struct bad *b, size_t offset, size_t bytes)
{
	ssize_t n = peerlane_read(b->file, b->e.gpu, bytes, (off_t)offset);

	if (n > 0) {
		expect(peerlane_gpu_copy(b->e.ctx, b->e.seen, b->e.gpu, (size_t)n) == 0);
		expect(memcmp(b->e.seen, b->disk + offset, (size_t)n) == 0);
	}
	return n;
}

static void read_errors(struct bad *b)
{
	size_t before;
	ssize_t n;

	n = read_bad(b, 0, 2 * MIB);
	if (n <= 0 || n > (ssize_t)BAD_READ)
		fail("a read across the bad block: %zd", n);
	n = read_bad(b, BAD_READ, 64 * KIB);
	if (!drive_error(n))
		fail("a read of the bad block: %zd", n);
	n = read_bad(b, BAD_READ - 4096, 8192);
	if (n != 4096 && !drive_error(n))
		fail("a small read across the bad block: %zd", n);
	/* A drive that fails is no reason to leave the path. */
	before = p2p_bytes(&b->e);
	n = read_bad(b, BAD_READ + 4096, MIB);
	if (n != (ssize_t)MIB || p2p_bytes(&b->e) != before + MIB)
		fail("a read behind the bad block: %zd, %zu by p2p", n, p2p_bytes(&b->e) - before);
}

/* A write that may meet the bad block: what it says was written is on the drive. */
static ssize_t write_bad(struct bad *b, size_t offset, size_t bytes, uint64_t seed)
{
	ssize_t n;

	fill(b->e.model, bytes, seed);
	expect(peerlane_gpu_copy(b->e.ctx, b->e.gpu, b->e.model, bytes) == 0);
	n = peerlane_write(b->file, b->e.gpu, bytes, (off_t)offset, 0);
	expect(pread(b->fd, b->disk + offset, bytes, (off_t)offset) == (ssize_t)bytes);
	if (n > 0 && memcmp(b->disk + offset, b->e.model, (size_t)n) != 0)
		fail("%zd bytes written at %zu are not there", n, offset);
	return n;
}

static void write_errors(struct bad *b, uint64_t seed)
{
	size_t before;
	ssize_t n;

	n = write_bad(b, BAD_WRITE - 512 * KIB, MIB, seed);
	if (n <= 0 || n > (ssize_t)(512 * KIB))
		fail("a write across the bad block: %zd", n);
	n = write_bad(b, BAD_WRITE, 64 * KIB, seed + 1);
	if (!drive_error(n))
		fail("a write of the bad block: %zd", n);
	before = p2p_bytes(&b->e);
	n = write_bad(b, BAD_WRITE + 64 * KIB, MIB, seed + 2);
	if (n != (ssize_t)MIB || p2p_bytes(&b->e) != before + MIB)
		fail("a write behind the bad block: %zd, %zu by p2p", n, p2p_bytes(&b->e) - before);
}

/* Many at once: those that fail say so, the others are right. */
static void batch_errors(struct bad *b)
{
	enum { NR = 16 };
	size_t piece = 2 * MIB / NR;
	struct peerlane_event events[NR];
	struct peerlane_batch *batch;
	struct peerlane_io io[NR];
	int got, failed = 0;

	expect(peerlane_batch_create(b->e.ctx, NR, &batch) == 0);
	for (size_t i = 0; i < NR; i++)
		io[i] = (struct peerlane_io){ .file = b->file,
					      .op = PEERLANE_READ,
					      .addr = b->e.gpu + i * piece,
					      .bytes = piece,
					      .offset = (off_t)(i * piece),
					      .cookie = &io[i] };
	expect(peerlane_batch_submit(batch, io, NR) == 0);
	for (int left = NR; left; left -= got) {
		got = peerlane_batch_wait(batch, 1, events, NR, NULL);
		expect(got > 0);
		for (int i = 0; i < got; i++) {
			const struct peerlane_io *r = events[i].cookie;

			if (events[i].result == (ssize_t)piece) {
				expect(peerlane_gpu_copy(b->e.ctx, b->e.seen, r->addr, piece) == 0);
				expect(memcmp(b->e.seen, b->disk + r->offset, piece) == 0);
			} else if (drive_error(events[i].result)) {
				failed++;
			} else {
				fail("batch: %zd", events[i].result);
			}
		}
	}
	peerlane_batch_destroy(batch);
	/* Staged again one by one, so that neighbours of the bad block do not suffer with it. */
	expect(failed == 1);
}

/* The memory goes while the drive fails. */
static void freed_meanwhile(struct bad *b)
{
	struct later later;
	ssize_t n;

	later_start(&later, &b->e, 4000);
	n = peerlane_read(b->file, b->e.gpu, 2 * MIB, 0);
	later_wait(&later);
	if (n > (ssize_t)BAD_READ || (n <= 0 && !drive_error(n) && n != -EFAULT))
		fail("a read of a bad drive into memory that was freed: %zd", n);
	engine_renew(&b->e);
}

int test_engine_errors(void)
{
	struct bystander other;
	unsigned int nr = rounds(12);
	struct bad b;

	bystander_start(&other);
	b.fd = drive_open("bad0", O_RDWR | O_DIRECT);
	b.disk = host_alloc(BAD_BYTES);
	expect(pread(b.fd, b.disk, BAD_READ, 0) == (ssize_t)BAD_READ);
	expect(pread(b.fd, b.disk + BAD_READ + 4096, BAD_BYTES - BAD_READ - 4096,
		     (off_t)(BAD_READ + 4096)) == (ssize_t)(BAD_BYTES - BAD_READ - 4096));
	engine_open(&b.e);
	expect(peerlane_file_from_fd(b.e.ctx, b.fd, &b.file) == 0);
	expect(verdict(&b.e, b.file, PEERLANE_READ, MIB).usable);
	for (unsigned int i = 0; i < nr; i++) {
		if (i % 2)
			expect(peerlane_buffer_register(b.e.ctx, b.e.gpu, ROOM, 0) == 0);
		read_errors(&b);
		write_errors(&b, 3 * i);
		batch_errors(&b);
		if (i % 2)
			expect(peerlane_buffer_release(b.e.ctx, b.e.gpu) == 0);
		freed_meanwhile(&b);
	}
	printf("%u rounds\n", nr);
	expect(peerlane_file_close(b.file) == 0);
	engine_close(&b.e);
	close(b.fd);
	free(b.disk);
	bystander_end(&other);
	return 0;
}
