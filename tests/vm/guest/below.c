// SPDX-License-Identifier: MIT
/*
 * The library on a file or block device, whatever lies below it: every byte is where it belongs,
 * and what goes by p2p is what may.
 */
#include <linux/fiemap.h>
#include <linux/fs.h>

#include "engine.h"

/* Longest that anything grows to. */
#define MOST (5 * MIB)

struct state {
	const struct below *b;
	struct engine e;
	struct peerlane_file *file;
	int fd;		     /* through the page cache */
	unsigned char *data; /* what the file must hold */
	size_t size;
};

struct span {
	size_t at, bytes;
	size_t back; /* from the file's end */
	size_t offset;
};

static const struct span spans[] = {
	{ 0, MIB, 0, 0 },
	{ 4096, 64 * KIB, 0, 8192 },
	{ 512, 8192, 0, 512 },
	{ 1000, 300 * KIB, 0, 1000 },
	{ 4096 + 777, 200 * KIB + 77, 0, 7 * 4096 + 777 },
	{ 3, 100 * KIB, 0, 4096 },
	{ 100, 100, 0, 5 },
	{ 100, 5000, 0, 8100 },
	{ 65536 + 999, 500 * KIB + 1, 0, 3 * 4096 + 999 },
	{ 0, 4096, 4096, 0 },
	{ 512, 1000, 1000, 0 },
};

#define NR_SPANS (sizeof(spans) / sizeof(*spans))

static size_t offset_of(const struct state *s, const struct span *span)
{
	return span->back ? s->size - span->back : span->offset;
}

/* As everybody sees the file now. */
static void check_file(struct state *s, const char *what, size_t n)
{
	static unsigned char *seen;

	if (!seen)
		seen = host_alloc(MOST);
	expect(s->size <= MOST);
	expect(pread(s->fd, seen, s->b->grows ? MOST : s->size, 0) == (ssize_t)s->size);
	if (!memcmp(seen, s->data, s->size))
		return;
	for (size_t i = 0; i < s->size; i++)
		if (seen[i] != s->data[i])
			fail("%s: %s %zu: byte %zu of the file is wrong", s->b->path, what, n, i);
}

static void read_one(struct state *s, size_t at, size_t bytes, size_t offset, size_t n)
{
	size_t want = offset + bytes > s->size ? s->size - offset : bytes;
	ssize_t got = peerlane_read(s->file, s->e.gpu + at, bytes, (off_t)offset);

	if (got != (ssize_t)want)
		fail("%s: read %zu: %zd and not %zu", s->b->path, n, got, want);
	memcpy(s->e.model + at, s->data + offset, want);
	check_gpu(&s->e, "read", n);
}

static void write_one(struct state *s, size_t at, size_t bytes, size_t offset, size_t n)
{
	ssize_t got;
	size_t used = (at + bytes + 7) & ~7ul;

	fill(s->e.model, used, 1000 + n + offset);
	expect(peerlane_gpu_copy(s->e.ctx, s->e.gpu, s->e.model, used) == 0);
	got = peerlane_write(s->file, s->e.gpu + at, bytes, (off_t)offset,
			     n % 3 == 2 ? PEERLANE_DURABLE : 0);
	if (got != (ssize_t)bytes)
		fail("%s: write %zu: %zd", s->b->path, n, got);
	memcpy(s->data + offset, s->e.model + at, bytes);
	if (offset + bytes > s->size)
		s->size = offset + bytes;
	check_file(s, "after write", n);
}

static void reads(struct state *s)
{
	for (size_t i = 0; i < NR_SPANS; i++)
		read_one(s, spans[i].at, spans[i].bytes, offset_of(s, &spans[i]), i);
	/* What is asked for past the end stays as it was. */
	read_one(s, 4096, 512 * KIB, s->size - 100 * KIB, NR_SPANS);
	read_one(s, 0, MIB, s->size & ~4095ul, NR_SPANS + 1);
}

static void writes(struct state *s)
{
	for (size_t i = 0; i < NR_SPANS; i++)
		write_one(s, spans[i].at, spans[i].bytes, offset_of(s, &spans[i]), i);
	if (!s->b->grows)
		return;
	write_one(s, 4096, 300 * KIB + 5, s->size & ~4095ul, 50);
	write_one(s, 777, 130 * KIB, s->size, 51);
	write_one(s, 0, 256 * KIB, (s->size - 64 * KIB) & ~4095ul, 52);
	write_one(s, 9, 9, s->size, 53);
}

/* Others read and write through the page cache meanwhile. */
static void shared(struct state *s)
{
	for (size_t i = 0; i < 6; i++) {
		size_t at = i * 99 * KIB + 77;

		fill(s->data + at, 64, i);
		expect(pwrite(s->fd, s->data + at, 64, (off_t)at) == 64);
		read_one(s, 0, s->size, 0, 100 + i);
		write_one(s, i * 4096, 60 * KIB + i, i * 160 * KIB, 100 + i);
	}
	expect(fsync(s->fd) == 0);
}

/* Cold, by a handle without O_DIRECT. */
static void plain(struct state *s)
{
	struct peerlane_file *direct = s->file;

	expect(posix_fadvise(s->fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
	s->file = open_file(&s->e, s->b->path, O_RDONLY);
	read_one(s, 0, s->size, 0, 200);
	expect(peerlane_file_close(s->file) == 0);
	s->file = direct;
}

/* A copy within it, which is compared from outside. */
static void copy_for_host(struct state *s)
{
	if (!s->b->drive)
		return;
	expect(peerlane_read(s->file, s->e.gpu, MIB, 0) == (ssize_t)MIB);
	expect(peerlane_write(s->file, s->e.gpu, MIB, MIB, PEERLANE_DURABLE) == (ssize_t)MIB);
	printf("EXPECT %s %zu %lu %s %zu\n", s->b->drive, s->b->start + MIB, MIB, s->b->drive,
	       s->b->start);
}

static void check_verdict(struct state *s, enum peerlane_op op)
{
	struct peerlane_verdict v = verdict(&s->e, s->file, op, MIB);
	const struct below *b = s->b;

	if (!b->reason)
		expect(v.usable);
	else if (v.usable || !strstr(v.reason, b->reason) || !strstr(v.fix, b->fix))
		fail("%s: not the words that were expected: %s (%s)", b->path, b->reason, b->fix);
}

void below_check(const struct below *b)
{
	struct state s = { .b = b, .size = b->bytes };

	printf("%s:\n", b->path);
	s.fd = open(b->path, O_RDWR | O_CLOEXEC);
	expect(s.fd >= 0);
	s.data = host_alloc(MOST);
	expect(b->bytes <= MOST && pread(s.fd, s.data, b->bytes, 0) == (ssize_t)b->bytes);
	expect(posix_fadvise(s.fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
	engine_open(&s.e);
	s.file = open_file(&s.e, b->path, O_RDWR | O_DIRECT);
	check_verdict(&s, PEERLANE_READ);
	check_verdict(&s, PEERLANE_WRITE);
	reads(&s);
	writes(&s);
	reads(&s);
	shared(&s);
	plain(&s);
	copy_for_host(&s);
	printf("p2p bytes %zu\n", p2p_bytes(&s.e));
	expect(b->reason ? !p2p_bytes(&s.e) : p2p_bytes(&s.e) > 6 * s.size);
	if (b->mirrored)
		say_direct(p2p_written(&s.e));
	say_direct(b->reason ? 0 : p2p_bytes(&s.e) + (1 + b->members) * TEST_BYTES);
	expect(peerlane_file_close(s.file) == 0);
	engine_close(&s.e);
	close(s.fd);
	free(s.data);
}

unsigned int extent_flags(const char *path)
{
	struct {
		struct fiemap map;
		struct fiemap_extent extents[256];
	} call = {
		.map = { .fm_length = ~0ull, .fm_flags = FIEMAP_FLAG_SYNC, .fm_extent_count = 256 }
	};
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	unsigned int flags = 0;

	expect(fd >= 0 && ioctl(fd, FS_IOC_FIEMAP, &call) == 0);
	for (unsigned int i = 0; i < call.map.fm_mapped_extents; i++)
		flags |= call.extents[i].fe_flags;
	close(fd);
	return flags;
}
