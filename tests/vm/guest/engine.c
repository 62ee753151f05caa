// SPDX-License-Identifier: MIT
/*
 * The library on the test GPU: its path p2p moves the bytes it says it moves, and every byte is
 * where it belongs, whatever way it took.
 */
#include "engine.h"

static const struct {
	size_t at, bytes, offset;
	bool some; /* a part goes by p2p */
} cases[] = {
	{ 0, 4 * MIB, 0, true },
	{ 0, 512, 512, false },
	{ 4096, 8192, 8192, true },
	{ 65536 - 4096, 128 * KIB, 4096, true },
	{ 1000, 300 * KIB, 1000, true },
	{ 1000 + 4096, 300 * KIB + 77, 4096 * 7 + 1000, true },
	{ 3, 200 * KIB, 0, false },
	{ 100, 100, 5, false },
	{ 100, 5000, 8100, false },
	{ 65536 + 999, 1 * MIB + 1, 3 * 4096 + 999, true },
	{ 8192, 1 * MIB, 3 * MIB + 4096 * 3, true },
	{ 8192, 2 * MIB, 3 * MIB, true }, /* past the end */
	{ 1000, 1000, 4 * MIB, false },
	{ 0, 4096, 8 * MIB, false },
};

#define NR_CASES (sizeof(cases) / sizeof(*cases))

void read_cases(struct engine *e, const char *path)
{
	unsigned char *data = make_file(path, FILE_BYTES, 21);
	struct peerlane_file *file = open_file(e, path, O_RDONLY | O_DIRECT);

	expect(verdict(e, file, PEERLANE_READ, FILE_BYTES).usable == !e->no_p2p);
	for (size_t i = 0; i < NR_CASES; i++) {
		size_t off = cases[i].offset, before = p2p_bytes(e), want = cases[i].bytes;
		ssize_t n = peerlane_read(file, e->gpu + cases[i].at, want, (off_t)off);

		if (off + want > FILE_BYTES)
			want = off < FILE_BYTES ? FILE_BYTES - off : 0;
		if (n != (ssize_t)want)
			fail("read case %zu: %zd and not %zu", i, n, want);
		memcpy(e->model + cases[i].at, data + (want ? off : 0), want);
		check_gpu(e, "read", i);
		if ((cases[i].some && !e->no_p2p) != (p2p_bytes(e) > before) &&
		    cases[i].bytes > 4096)
			fail("read case %zu: %zu bytes by p2p", i, p2p_bytes(e) - before);
	}
	expect(peerlane_file_close(file) == 0);
	free(data);
}

void write_cases(struct engine *e, const char *path)
{
	unsigned char *data = make_file(path, FILE_BYTES, 22), *seen = host_alloc(16 * MIB);
	struct peerlane_file *file = open_file(e, path, O_RDWR | O_DIRECT);
	size_t size = FILE_BYTES;
	int fd = open(path, O_RDONLY);

	data = realloc(data, 16 * MIB);
	memset(data + size, 0, 16 * MIB - size);
	expect(verdict(e, file, PEERLANE_WRITE, 4 * MIB).usable == !e->no_p2p);
	for (size_t i = 0; i < NR_CASES; i++) {
		size_t off = cases[i].offset, bytes = cases[i].bytes, before = p2p_bytes(e);
		ssize_t n;

		/* Other bytes each time. */
		fill(e->model, ROOM, 100 + i);
		expect(peerlane_gpu_copy(e->ctx, e->gpu, e->model, ROOM) == 0);
		n = peerlane_write(file, e->gpu + cases[i].at, bytes, (off_t)off,
				   i % 2 ? PEERLANE_DURABLE : 0);
		if (n != (ssize_t)bytes)
			fail("write case %zu: %zd", i, n);
		memcpy(data + off, e->model + cases[i].at, bytes);
		if (off + bytes > size)
			size = off + bytes;
		expect(pread(fd, seen, 16 * MIB, 0) == (ssize_t)size);
		if (memcmp(seen, data, size) != 0)
			fail("write case %zu: the file is wrong", i);
		if (cases[i].some && (p2p_bytes(e) == before) != e->no_p2p)
			fail("write case %zu: %zu bytes by p2p", i, p2p_bytes(e) - before);
	}
	close(fd);
	expect(peerlane_file_close(file) == 0);
	free(data);
	free(seen);
}

/* A file opened without O_DIRECT: from the drive when cold, from the page cache when there. */
static void plain_cases(struct engine *e, const char *path)
{
	unsigned char *data = make_file(path, FILE_BYTES, 23);
	struct peerlane_file *file = open_file(e, path, O_RDONLY);
	int fd = open(path, O_RDONLY);
	size_t before = p2p_bytes(e);

	expect(peerlane_read(file, e->gpu, 2 * MIB, 0) == (ssize_t)(2 * MIB));
	expect(p2p_bytes(e) == before + 2 * MIB);
	memcpy(e->model, data, 2 * MIB);
	fill(e->model + 2 * MIB, ROOM - 2 * MIB, 5);
	expect(peerlane_gpu_copy(e->ctx, e->gpu + 2 * MIB, e->model + 2 * MIB, ROOM - 2 * MIB) ==
	       0);
	check_gpu(e, "plain", 0);
	expect(pread(fd, e->seen, 2 * MIB, 0) == (ssize_t)(2 * MIB));
	before = p2p_bytes(e);
	expect(peerlane_read(file, e->gpu, 2 * MIB, 0) == (ssize_t)(2 * MIB));
	expect(p2p_bytes(e) == before);
	check_gpu(e, "plain", 1);
	close(fd);
	expect(peerlane_file_close(file) == 0);
	free(data);
}

static int on_directory(const char *dir)
{
	char path[64];
	struct engine e;

	engine_open(&e);
	snprintf(path, sizeof(path), "%s/engine", dir);
	read_cases(&e, path);
	write_cases(&e, path);
	plain_cases(&e, path);
	/* The same with a registered buffer, which has a pin of its own. */
	expect(peerlane_buffer_register(e.ctx, e.gpu, ROOM, 0) == 0);
	fill(e.model, ROOM, 12);
	expect(peerlane_gpu_copy(e.ctx, e.gpu, e.model, ROOM) == 0);
	read_cases(&e, path);
	expect(peerlane_buffer_release(e.ctx, e.gpu) == 0);
	printf("p2p bytes %zu\n", p2p_bytes(&e));
	expect(p2p_bytes(&e) > 16 * MIB);
	say_direct(p2p_bytes(&e) + TEST_BYTES);
	engine_close(&e);
	unlink(path);
	return 0;
}

int test_engine_ext4(void)
{
	return on_directory("/mnt");
}

int test_engine_xfs(void)
{
	return on_directory("/xfs");
}

/* Many requests at once, of several sizes and alignments. */
void batch_cases(struct engine *e, const char *path)
{
	enum { NR = 64 };
	unsigned char *data = make_file(path, FILE_BYTES, 31), *seen = host_alloc(FILE_BYTES);
	struct peerlane_event events[NR];
	struct peerlane_batch *batch;
	struct peerlane_io io[NR];
	struct peerlane_file *file;
	int fd, got = 0;

	file = open_file(e, path, O_RDWR | O_DIRECT);
	expect(peerlane_batch_create(e->ctx, NR, &batch) == 0);
	for (int round = 0; round < 2; round++) {
		enum peerlane_op op = round ? PEERLANE_WRITE : PEERLANE_READ;

		if (round) {
			fill(e->model, ROOM, 32);
			expect(peerlane_gpu_copy(e->ctx, e->gpu, e->model, ROOM) == 0);
		}
		for (size_t i = 0; i < NR; i++) {
			size_t at = i * 64 * KIB, odd = i % 4 == 3 ? 700 : 0;

			io[i] = (struct peerlane_io){ .file = file,
						      .op = op,
						      .addr = e->gpu + at + odd,
						      .bytes = 60 * KIB + odd,
						      .offset = (off_t)(at + odd),
						      .cookie = &io[i] };
			if (round)
				memcpy(data + at + odd, e->model + at + odd, 60 * KIB + odd);
			else
				memcpy(e->model + at + odd, data + at + odd, 60 * KIB + odd);
		}
		expect(peerlane_batch_submit(batch, io, NR) == 0);
		for (got = 0; got < NR;) {
			int n = peerlane_batch_wait(batch, 1, events, NR, NULL);

			expect(n > 0);
			for (int i = 0; i < n; i++) {
				const struct peerlane_io *r = events[i].cookie;

				if (events[i].result != (ssize_t)r->bytes)
					fail("request %zd: %zd", r - io, events[i].result);
			}
			got += n;
		}
		check_gpu(e, "batch", (size_t)round);
	}
	fd = open(path, O_RDONLY);
	expect(pread(fd, seen, FILE_BYTES, 0) == (ssize_t)FILE_BYTES);
	expect(memcmp(seen, data, FILE_BYTES) == 0);
	close(fd);
	peerlane_batch_destroy(batch);
	expect(peerlane_file_close(file) == 0);
	free(data);
	free(seen);
}

int test_engine_batch(void)
{
	struct engine e;

	engine_open(&e);
	batch_cases(&e, "/mnt/batch");
	printf("p2p bytes %zu\n", p2p_bytes(&e));
	expect(p2p_bytes(&e) > 6 * MIB);
	say_direct(p2p_bytes(&e) + TEST_BYTES);
	engine_close(&e);
	unlink("/mnt/batch");
	return 0;
}

/* What the CPU fills in without the drive, and other users of the file: no DMA is counted. */
int test_engine_holes(void)
{
	unsigned char *data = host_alloc(FILE_BYTES), *seen = host_alloc(ROOM);
	int fd = open("/mnt/holes", O_RDWR | O_CREAT | O_TRUNC, 0600);
	struct peerlane_file *file;
	struct engine e;

	engine_open(&e);
	fill(data, 8192, 41);
	fill(data + MIB, 128 * KIB, 42);
	expect(pwrite(fd, data, 8192, 0) == 8192);
	expect(pwrite(fd, data + MIB, 128 * KIB, MIB) == 128 * (ssize_t)KIB);
	expect(ftruncate(fd, FILE_BYTES) == 0);
	/* Still dirty in the page cache. */
	file = open_file(&e, "/mnt/holes", O_RDWR | O_DIRECT);
	expect(peerlane_read(file, e.gpu, ROOM, 0) == (ssize_t)FILE_BYTES);
	memcpy(e.model, data, FILE_BYTES);
	check_gpu(&e, "holes", 0);
	/* A buffered write is seen, and so is ours by buffered readers; past the end as well. */
	for (size_t i = 0; i < 40; i++) {
		size_t at = i * 100 * KIB, off = i * 96 * KIB + 3 * MIB;

		fill(data + at, 64, i);
		expect(pwrite(fd, data + at, 64, (off_t)at) == 64);
		expect(peerlane_read(file, e.gpu, FILE_BYTES, 0) == (ssize_t)FILE_BYTES);
		expect(peerlane_gpu_copy(e.ctx, e.seen, e.gpu, FILE_BYTES) == 0);
		expect(memcmp(e.seen, data, FILE_BYTES) == 0);
		if (off + 64 * KIB > FILE_BYTES)
			continue;
		fill(data + off, 64 * KIB, i + 50);
		expect(peerlane_gpu_copy(e.ctx, e.gpu, data + off, 64 * KIB) == 0);
		expect(peerlane_write(file, e.gpu, 64 * KIB, (off_t)off, 0) == 64 * (ssize_t)KIB);
		expect(pread(fd, seen, ROOM, 0) == (ssize_t)FILE_BYTES);
		expect(memcmp(seen, data, FILE_BYTES) == 0);
	}
	expect(p2p_bytes(&e) > 100 * MIB);
	expect(peerlane_file_close(file) == 0);
	engine_close(&e);
	unlink("/mnt/holes");
	return 0;
}
