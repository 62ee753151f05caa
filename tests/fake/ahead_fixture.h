/* SPDX-License-Identifier: MIT */
/* What tests of streams whose reads are done ahead need, beside what serve_fixture.h has. */
#ifndef TESTS_FAKE_AHEAD_FIXTURE_H
#define TESTS_FAKE_AHEAD_FIXTURE_H

#include "fake/serve_fixture.h"

#define CALL (256 * KIB) /* shorter ones are not read ahead */
#define NR_CALLS (ROOM / CALL)

/* The file once more; it has no name. */
static inline int open_again(int flags)
{
	char path[32];
	int again;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, flags | O_CLOEXEC);
	assert_true(again >= 0);
	return again;
}

/* A file that was last changed a while ago, and that nobody has open for writing. */
static inline void open_quiet_for(unsigned int flags, size_t pool, unsigned int timeout_ms)
{
	int again;

	setenv("PEERLANE_THREADS", "6", 1);
	open_context(flags, pool, timeout_ms);
	again = open_again(O_RDONLY);
	assert_int_equal(peerlane_file_close(file), 0);
	close(fd);
	fd = again;
	assert_int_equal(peerlane_file_from_fd(ctx, fd, &file), 0);
	nap_ms(120);
}

static inline void open_quiet(unsigned int flags, size_t pool)
{
	open_quiet_for(flags, pool, 0);
}

static inline void read_call(uint64_t addr, const off_t *offset, ssize_t *result, void *stream)
{
	static const size_t bytes = CALL;

	assert_int_equal(
		peerlane_read_async(file, to(addr), &bytes, offset, result, stream, PEERLANE_FIXED),
		0);
}

/* All calls spread over @nr streams, queued at once, from the last to the first: nobody could guess that. Returns what
 * was read ahead of it. */
static inline uint64_t read_all(unsigned int nr, uint64_t addr)
{
	uint64_t before = stats().ahead_bytes;
	ssize_t results[NR_CALLS];
	struct gate gate = { 0 };
	void *streams[8];

	assert_int_equal(cu.cuMemsetD8Async(addr, 0xee, NR_CALLS * CALL, NULL), 0);
	sync_stream(NULL);
	for (unsigned int i = 0; i < nr; i++) {
		streams[i] = stream_make();
		assert_int_equal(cu.cuLaunchHostFunc(streams[i], wait_at_gate, &gate), 0);
	}
	for (unsigned int i = 0; i < NR_CALLS; i++) {
		off_t at = (off_t)((NR_CALLS - 1 - i) * CALL);

		results[i] = -1;
		read_call(addr + (uint64_t)at, &at, &results[i], streams[i % nr]);
	}
	gate_open(&gate);
	for (unsigned int i = 0; i < nr; i++) {
		sync_stream(streams[i]);
		assert_int_equal(cu.cuStreamDestroy_v2(streams[i]), 0);
	}
	for (unsigned int i = 0; i < NR_CALLS; i++)
		assert_int_equal(results[i], CALL);
	assert_like_file(addr, 0, NR_CALLS * CALL);
	return stats().ahead_bytes - before;
}

/* The same as open_quiet(); false, and nothing is open, where no file is read ahead. */
static inline bool open_ahead(void)
{
	uint64_t addr = gpu_alloc(NR_CALLS * CALL), got;

	open_quiet(0, 0);
	got = read_all(1, addr);
	assert_int_equal(cu.cuMemFree_v2(addr), 0);
	if (!got)
		close_context();
	return got;
}

#endif
