// SPDX-License-Identifier: MIT
/*
 * Reads and writes in the order of a stream, by the path p2p: on streams that a kernel serves, and
 * on those that are held.
 */
#include "engine.h"

#define PART (512 * KIB)

struct chain {
	struct engine e;
	struct peerlane_file *file;
	unsigned char *data; /* what the file must hold */
	void *stream;
	unsigned int seed;
};

static void queue_read(struct chain *c, size_t at, const size_t *bytes, const off_t *offset,
		       ssize_t *result, unsigned int flags)
{
	expect(peerlane_read_async(c->file, c->e.gpu + at, bytes, offset, result, c->stream,
				   flags) == 0);
}

static void queue_write(struct chain *c, size_t at, const size_t *bytes, const off_t *offset,
			ssize_t *result, unsigned int flags)
{
	expect(peerlane_write_async(c->file, c->e.gpu + at, bytes, offset, result, c->stream,
				    flags) == 0);
}

static void check_file(struct chain *c)
{
	int fd = open("/mnt/stream", O_RDONLY);

	expect(fd >= 0 && pread(fd, c->e.seen, FILE_BYTES, 0) == (ssize_t)FILE_BYTES);
	if (memcmp(c->e.seen, c->data, FILE_BYTES) != 0)
		fail("the file is wrong");
	close(fd);
}

/*
 * Each step needs the one before: write a part of GPU memory, read it back to another place,
 * write that elsewhere, read the unaligned whole. Lengths and places may be set after queueing.
 */
static void run_chain(struct chain *c, bool fixed)
{
	unsigned int flags = fixed ? PEERLANE_FIXED : 0;
	size_t part = fixed ? PART : 0, odd = fixed ? 300 * KIB + 77 : 0;
	off_t first = 0, second = MIB, odd_at = 4096 * 3 + 1000;
	ssize_t results[4] = { -1, -1, -1, -1 };
	size_t before = p2p_bytes(&c->e);

	fill(c->e.model, ROOM, ++c->seed);
	expect(peerlane_gpu_copy(c->e.ctx, c->e.gpu, c->e.model, ROOM) == 0);
	queue_write(c, 0, &part, &first, &results[0], flags);
	queue_read(c, 2 * MIB, &part, &first, &results[1], flags);
	queue_write(c, 2 * MIB, &part, &second, &results[2], flags | PEERLANE_DURABLE);
	queue_read(c, 3 * MIB + 1000, &odd, &odd_at, &results[3], flags);
	if (!fixed) {
		/* Too late for what has begun: then nothing is moved, and the rest is as before. */
		expect(peerlane_gpu_stream_sync(c->e.ctx, c->stream) == 0);
		for (int i = 0; i < 4; i++)
			expect(results[i] == 0);
		part = PART;
		odd = 300 * KIB + 77;
		queue_write(c, 0, &part, &first, &results[0], flags);
		queue_read(c, 2 * MIB, &part, &first, &results[1], flags);
		queue_write(c, 2 * MIB, &part, &second, &results[2], flags | PEERLANE_DURABLE);
		queue_read(c, 3 * MIB + 1000, &odd, &odd_at, &results[3], flags);
	}
	expect(peerlane_gpu_stream_sync(c->e.ctx, c->stream) == 0);
	for (int i = 0; i < 3; i++)
		if (results[i] != (ssize_t)PART)
			fail("step %d: %zd", i, results[i]);
	expect(results[3] == (ssize_t)odd);
	memcpy(c->data, c->e.model, PART);
	memcpy(c->e.model + 2 * MIB, c->e.model, PART);
	memcpy(c->data + second, c->e.model, PART);
	memcpy(c->e.model + 3 * MIB + 1000, c->data + odd_at, odd);
	check_gpu(&c->e, "stream", c->seed);
	check_file(c);
	/* All but the ends of the last. */
	before = p2p_bytes(&c->e) - before;
	if (before < 3 * PART + 290 * KIB || before > 3 * PART + odd)
		fail("%zu bytes by p2p", before);
}

/* Transfers that fail by p2p go another way, also without a call of the driver. */
static void run_fallback(struct chain *c)
{
	size_t bytes = PART, before;
	off_t offset = 2 * MIB;
	ssize_t results[2] = { -1, -1 };

	fill(c->e.model, ROOM, ++c->seed);
	expect(peerlane_gpu_copy(c->e.ctx, c->e.gpu, c->e.model, ROOM) == 0);
	expect(spoil_mappings() > 0);
	before = p2p_bytes(&c->e);
	queue_write(c, MIB, &bytes, &offset, &results[0], 0);
	queue_read(c, 4096, &bytes, &offset, &results[1], 0);
	expect(peerlane_gpu_stream_sync(c->e.ctx, c->stream) == 0);
	expect(results[0] == (ssize_t)bytes && results[1] == (ssize_t)bytes);
	memcpy(c->data + offset, c->e.model + MIB, bytes);
	memcpy(c->e.model + 4096, c->data + offset, bytes);
	check_gpu(&c->e, "fallback", c->seed);
	check_file(c);
	/* The write found out; the read may have got a new mapping. */
	expect(p2p_bytes(&c->e) - before <= bytes);
}

static void on_stream(bool served, bool own_stream)
{
	struct chain c = { .seed = 100 };

	setenv("PEERLANE_FLAGS", served ? "" : "no-kernels", 1);
	c.data = make_file("/mnt/stream", FILE_BYTES, 91);
	engine_open(&c.e);
	c.file = open_file(&c.e, "/mnt/stream", O_RDWR | O_DIRECT);
	if (own_stream)
		expect(peerlane_gpu_stream_create(c.e.ctx, 0, &c.stream) == 0);
	run_chain(&c, true);
	run_chain(&c, false);
	expect(peerlane_buffer_register(c.e.ctx, c.e.gpu, ROOM, 0) == 0);
	run_chain(&c, true);
	run_fallback(&c);
	run_chain(&c, false);
	expect(peerlane_buffer_release(c.e.ctx, c.e.gpu) == 0);
	peerlane_gpu_stream_destroy(c.e.ctx, c.stream);
	expect(peerlane_file_close(c.file) == 0);
	printf("%s: p2p bytes %zu\n", served ? "served" : "held", p2p_bytes(&c.e));
	say_direct(p2p_bytes(&c.e) + TEST_BYTES);
	engine_close(&c.e);
	free(c.data);
	unlink("/mnt/stream");
}

int test_engine_stream(void)
{
	on_stream(true, true);
	on_stream(false, true);
	on_stream(true, false);
	return 0;
}
