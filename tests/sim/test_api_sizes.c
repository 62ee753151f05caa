// SPDX-License-Identifier: MIT
/* Reads and writes of every awkward size and alignment, in every mode of the engine. */
#include "sim/sim_fixture.h"

#define FILE_BYTES (4 * MIB + 1234)
#define ROOM (4 * MIB)
#define GUARD 64u
#define FILLER 0xa5

static const size_t sizes[] = {
	0,
	1,
	2,
	511,
	512,
	513,
	4095,
	4096,
	4097,
	64 * KIB - 1,
	64 * KIB,
	64 * KIB + 1,
	128 * KIB - 1,
	128 * KIB,
	128 * KIB + 1,
	512 * KIB - 1,
	512 * KIB,
	512 * KIB + 1,
	MIB - 1,
	MIB,
	MIB + 1,
	3 * MIB + 5,
};
static const off_t offsets[] = { 0, 1, 511, 512, 4095, 4096, 65535, 65537, 524287, 1048577 };
static const unsigned int skews[] = { 0, 1, 255, 512, 4096, 4097 };

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

enum memory { GPU, HOST };

struct mode {
	const char *env;
	unsigned int flags; /* of the context */
	int file_flags;
	size_t pool_bytes;
	bool cold;
	enum memory memory;
};

struct rig {
	const struct mode *mode;
	struct peerlane *ctx;
	struct peerlane_file *file;
	const char *path;
	char *mem, *shadow;
};

static void setup(struct rig *r, const struct mode *m)
{
	struct peerlane_options opt = { .flags = m->flags, .pool_bytes = m->pool_bytes };

	sim_env(m->env);
	r->mode = m;
	r->ctx = sim_open_with(&opt);
	r->path = sim_make_file("sizes", FILE_BYTES, 1);
	r->file = sim_file(r->ctx, r->path, O_RDWR | m->file_flags);
	r->shadow = malloc(ROOM + 8 * KIB);
	r->mem = m->memory == GPU ? sim_alloc(r->ctx, ROOM + 8 * KIB)
				  : aligned_alloc(4096, ROOM + 8 * KIB);
	assert_non_null(r->mem);
	assert_non_null(r->shadow);
}

static void teardown(struct rig *r)
{
	assert_int_equal(sim_stats(r->ctx).in_flight, 0);
	assert_int_equal(peerlane_file_close(r->file), 0);
	if (r->mode->memory == GPU)
		assert_int_equal(peerlane_gpu_free(r->ctx, r->mem), 0);
	else
		free(r->mem);
	free(r->shadow);
	peerlane_close(r->ctx);
}

/* The bytes around the destination stay what they were. */
static void check_guards(const char *before, const char *after, size_t bytes, off_t offset)
{
	for (unsigned int i = 0; i < GUARD; i++)
		if ((unsigned char)before[i] != FILLER || (unsigned char)after[i] != FILLER)
			fail_msg("a read of %zu at %lld wrote outside (%u)", bytes,
				 (long long)offset, i);
}

static void read_one(struct rig *r, size_t bytes, off_t offset, unsigned int skew)
{
	char *at = r->mem + GUARD + skew;
	ssize_t want = (ssize_t)bytes, n;

	if (offset >= (off_t)FILE_BYTES)
		want = 0;
	else if (offset + want > (off_t)FILE_BYTES)
		want = (off_t)FILE_BYTES - offset;
	memset(r->shadow, FILLER, bytes + 2 * GUARD);
	assert_int_equal(peerlane_gpu_copy(r->ctx, at - GUARD, r->shadow, bytes + 2 * GUARD), 0);
	if (r->mode->cold)
		sim_chill(r->path);
	n = peerlane_read(r->file, at, bytes, offset);
	if (n != want)
		fail_msg("a read of %zu at %lld, memory off by %u: %zd", bytes, (long long)offset,
			 skew, n);
	assert_int_equal(peerlane_gpu_copy(r->ctx, r->shadow, at - GUARD, bytes + 2 * GUARD), 0);
	if (sim_differs(r->shadow + GUARD, (size_t)want, offset, 1) != (size_t)want)
		fail_msg("a read of %zu at %lld, memory off by %u: wrong bytes", bytes,
			 (long long)offset, skew);
	check_guards(r->shadow, r->shadow + GUARD + bytes, bytes, offset);
}

/* Writes other bytes, looks at them and around them, and puts the pattern back. */
static void write_one(struct rig *r, size_t bytes, off_t offset, unsigned int skew)
{
	char *at = r->mem + GUARD + skew;
	ssize_t n;

	sim_pattern(r->shadow, bytes, offset, 2);
	assert_int_equal(peerlane_gpu_copy(r->ctx, at, r->shadow, bytes), 0);
	if (r->mode->cold)
		sim_chill(r->path);
	n = peerlane_write(r->file, at, bytes, offset, 0);
	if (n != (ssize_t)bytes)
		fail_msg("a write of %zu at %lld, memory off by %u: %zd", bytes, (long long)offset,
			 skew, n);
	sim_assert_file(r->path, offset, bytes, 2);
	if (offset >= 100)
		sim_assert_file(r->path, offset - 100, 100, 1);
	sim_assert_file(r->path, offset + (off_t)bytes, 100, 1);
	sim_pattern(r->shadow, bytes, offset, 1);
	assert_int_equal(peerlane_gpu_copy(r->ctx, at, r->shadow, bytes), 0);
	assert_int_equal(peerlane_write(r->file, at, bytes, offset, 0), bytes);
}

/* Not the whole product of the three lists, but every value of each with changing others. */
static void sweep(const struct mode *m)
{
	unsigned int k = 0;
	struct rig r;

	setup(&r, m);
	for (size_t i = 0; i < COUNT(sizes); i++) {
		for (size_t o = 0; o < COUNT(offsets); o++, k++) {
			if (sizes[i] > 128 * KIB + 1 && (o + i) % 3)
				continue;
			read_one(&r, sizes[i], offsets[o], skews[k % COUNT(skews)]);
			if (!sim_slow() || k % 5 == 0)
				write_one(&r, sizes[i], offsets[o] / 3,
					  skews[(k + 1) % COUNT(skews)]);
		}
		/* Ends before, at and after the end of the file. */
		for (off_t d = -1; d <= 1; d++)
			if (sizes[i] <= FILE_BYTES - 1)
				read_one(&r, sizes[i], (off_t)(FILE_BYTES - sizes[i]) + d,
					 skews[i % COUNT(skews)]);
	}
	assert_int_equal(sim_file_size(r.path), FILE_BYTES);
	sim_assert_file(r.path, 0, FILE_BYTES, 1);
	teardown(&r);
}

static void run(void **state, const struct mode m)
{
	(void)state;
	sweep(&m);
}

#define MODE(name, ...)                                                                            \
	static void name(void **state)                                                             \
	{                                                                                          \
		run(state, (struct mode){ __VA_ARGS__ });                                          \
	}

MODE(plain, .env = "")
MODE(host, .env = "", .memory = HOST)
MODE(mapped, .env = "SIM_BAR=1")
MODE(mapped_off, .env = "SIM_BAR=1", .flags = PEERLANE_NO_MAPPED)
MODE(async, .env = "SIM_ASYNC=200")
MODE(no_ring, .env = "", .flags = PEERLANE_NO_IO_URING)
MODE(no_direct, .env = "", .flags = PEERLANE_NO_DIRECT)
MODE(small_pool, .env = "", .pool_bytes = MIB)
MODE(small_pool_async, .env = "SIM_ASYNC=50", .pool_bytes = MIB)
MODE(not_pinned, .env = "SIM_PINNED=0")
MODE(many_threads, .env = "THREADS=16")
MODE(direct, .env = "", .file_flags = O_DIRECT)
MODE(direct_host, .env = "", .file_flags = O_DIRECT, .memory = HOST)
MODE(direct_mapped, .env = "SIM_BAR=1", .file_flags = O_DIRECT)
MODE(direct_no_ring, .env = "", .flags = PEERLANE_NO_IO_URING, .file_flags = O_DIRECT)
MODE(direct_off, .env = "", .flags = PEERLANE_NO_DIRECT, .file_flags = O_DIRECT)

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(plain),       sim_test(host),		sim_test(mapped),
		sim_test(mapped_off),  sim_test(async),		sim_test(no_ring),
		sim_test(no_direct),   sim_test(small_pool),	sim_test(small_pool_async),
		sim_test(not_pinned),  sim_test(many_threads),	sim_test(direct),
		sim_test(direct_host), sim_test(direct_mapped), sim_test(direct_no_ring),
		sim_test(direct_off),
	};

	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown) ? 1 : 0;
}
