// SPDX-License-Identifier: MIT
/* Vectored reads and writes: pieces of GPU and host memory, empty ones, and bad ones. */
#include "sim/sim_fixture.h"

#include <limits.h>

#define FILE_BYTES (4 * MIB + 321)
#define FILLER 0x3c

static struct peerlane *ctx;
static struct peerlane_file *file;
static const char *path;

static void open_all(const char *env, unsigned int flags, int file_flags)
{
	sim_env(env);
	ctx = sim_open(flags);
	path = sim_make_file("vector", FILE_BYTES, 1);
	file = sim_file(ctx, path, O_RDWR | file_flags);
}

static void close_all(void)
{
	sim_close(ctx, file, NULL);
}

/* The pieces hold the pattern from @offset on, up to @bytes. */
static void check_pieces(const struct iovec *iov, int nr, size_t bytes, off_t offset,
			 unsigned int seed)
{
	for (int i = 0; i < nr; i++) {
		size_t n = iov[i].iov_len < bytes ? iov[i].iov_len : bytes;

		if (n && sim_gpu_differs(ctx, iov[i].iov_base, n, offset, seed) != n)
			fail_msg("piece %d is wrong", i);
		if (iov[i].iov_len > n)
			sim_assert_gpu_is(ctx, (char *)iov[i].iov_base + n, FILLER,
					  iov[i].iov_len - n);
		bytes -= n;
		offset += (off_t)n;
	}
}

static void set_pieces(const struct iovec *iov, int nr)
{
	for (int i = 0; i < nr; i++)
		if (iov[i].iov_len)
			sim_gpu_set(ctx, iov[i].iov_base, FILLER, iov[i].iov_len);
}

static void fill_pieces(const struct iovec *iov, int nr, off_t offset, unsigned int seed)
{
	for (int i = 0; i < nr; i++) {
		if (iov[i].iov_len)
			sim_gpu_pattern(ctx, iov[i].iov_base, iov[i].iov_len, offset, seed);
		offset += (off_t)iov[i].iov_len;
	}
}

/* Pieces of both kinds and of sizes that fit nothing. */
static void mixed(const char *env, unsigned int flags, int file_flags)
{
	static const off_t offsets[] = { 0, 1, 4096, 70001, FILE_BYTES - 100000, FILE_BYTES };
	char *gpu, *gpu2, *host = aligned_alloc(4096, MIB);
	struct iovec iov[8];
	size_t total = 0;

	open_all(env, flags, file_flags);
	gpu = sim_alloc(ctx, 2 * MIB);
	gpu2 = sim_alloc(ctx, MIB);
	iov[0] = (struct iovec){ gpu + 1, 100 };
	iov[1] = (struct iovec){ host, 4096 };
	iov[2] = (struct iovec){ NULL, 0 };
	iov[3] = (struct iovec){ gpu + 4096, MIB + 7 };
	iov[4] = (struct iovec){ host + 5000, 300001 };
	iov[5] = (struct iovec){ gpu2, 65536 };
	iov[6] = (struct iovec){ gpu2 + 65536, 0 };
	iov[7] = (struct iovec){ gpu2 + 100000, 1 };
	for (int i = 0; i < 8; i++)
		total += iov[i].iov_len;
	for (size_t k = 0; k < 2 * sizeof(offsets) / sizeof(offsets[0]); k++) {
		off_t at = offsets[k / 2];
		size_t want = FILE_BYTES - (size_t)at < total ? FILE_BYTES - (size_t)at : total;

		if (k % 2)
			sim_chill(path);
		set_pieces(iov, 8);
		assert_int_equal(peerlane_readv(file, iov, 8, at), want);
		check_pieces(iov, 8, want, at, 1);
	}
	fill_pieces(iov, 8, 70001, 2);
	assert_int_equal(peerlane_writev(file, iov, 8, 70001, 0), total);
	sim_assert_file(path, 0, 70001, 1);
	sim_assert_file(path, 70001, total, 2);
	sim_assert_file(path, 70001 + (off_t)total, 1000, 1);
	assert_int_equal(peerlane_writev(file, iov, 8, 70001, PEERLANE_DURABLE), total);
	free(host);
	assert_int_equal(peerlane_gpu_free(ctx, gpu), 0);
	assert_int_equal(peerlane_gpu_free(ctx, gpu2), 0);
	close_all();
}

static void mixed_modes(void **state)
{
	(void)state;
	mixed("", 0, 0);
	mixed("SIM_ASYNC=100", 0, 0);
	mixed("SIM_BAR=1", 0, 0);
	mixed("", PEERLANE_NO_IO_URING, 0);
	mixed("POOL_BYTES=1M", 0, 0);
	mixed("", 0, O_DIRECT);
	mixed("", PEERLANE_NO_DIRECT, O_DIRECT);
}

/* As many pieces as there may be. */
static void most(void **state)
{
	struct iovec *iov = calloc(IOV_MAX + 1, sizeof(*iov));
	char *gpu, *host = malloc(IOV_MAX * 1001ul);

	(void)state;
	open_all("", 0, 0);
	gpu = sim_alloc(ctx, IOV_MAX * 1001ul);
	for (size_t i = 0; i < IOV_MAX; i++)
		iov[i] = (struct iovec){ (i % 3 ? gpu : host) + i * 1001, i % 1001 };
	set_pieces(iov, IOV_MAX);
	{
		size_t total = 0;

		for (size_t i = 0; i < IOV_MAX; i++)
			total += iov[i].iov_len;
		assert_int_equal(peerlane_readv(file, iov, IOV_MAX, 3), total);
		check_pieces(iov, IOV_MAX, total, 3, 1);
	}
	assert_int_equal(peerlane_readv(file, iov, IOV_MAX + 1, 0), -EINVAL);
	sim_assert_error(-EINVAL, "1025");
	free(iov);
	free(host);
	assert_int_equal(peerlane_gpu_free(ctx, gpu), 0);
	close_all();
}

static void bad_counts(void **state)
{
	char host[16];
	struct iovec iov = { host, sizeof(host) };

	(void)state;
	open_all("", 0, 0);
	assert_int_equal(peerlane_readv(file, &iov, 0, 0), -EINVAL);
	assert_int_equal(peerlane_readv(file, &iov, -1, 0), -EINVAL);
	assert_int_equal(peerlane_readv(file, &iov, INT_MIN, 0), -EINVAL);
	assert_int_equal(peerlane_readv(file, NULL, 1, 0), -EINVAL);
	assert_int_equal(peerlane_readv(NULL, &iov, 1, 0), -EINVAL);
	assert_int_equal(peerlane_writev(file, &iov, 0, 0, 0), -EINVAL);
	assert_int_equal(peerlane_writev(file, &iov, 1, 0, 2), -EINVAL);
	assert_int_equal(peerlane_writev(file, NULL, 1, 0, 0), -EINVAL);
	assert_int_equal(peerlane_writev(NULL, &iov, 1, 0, 0), -EINVAL);
	assert_int_equal(peerlane_writev(file, &iov, IOV_MAX + 1, 0, 0), -EINVAL);
	close_all();
}

/* One bad piece among good ones: nothing is touched, no reference is kept. */
static void bad_pieces(void **state)
{
	char *gpu, host[64];
	struct iovec iov[3];

	(void)state;
	open_all("", 0, 0);
	gpu = sim_alloc(ctx, 4096);
	assert_int_equal(peerlane_buffer_register(ctx, gpu, 4096, 0), 0);
	memset(host, FILLER, sizeof(host));
	iov[0] = (struct iovec){ host, sizeof(host) };
	iov[1] = (struct iovec){ gpu, 4096 };
	iov[2] = (struct iovec){ NULL, 1 };
	assert_int_equal(peerlane_readv(file, iov, 3, 0), -EINVAL);
	iov[2] = (struct iovec){ gpu + 4095, 2 };
	assert_int_equal(peerlane_readv(file, iov, 3, 0), -ERANGE);
	iov[2] = (struct iovec){ (void *)(UINTPTR_MAX - 10), 100 };
	assert_int_equal(peerlane_readv(file, iov, 3, 0), -EOVERFLOW);
	iov[2] = (struct iovec){ host, SIZE_MAX - 100 };
	assert_int_equal(peerlane_readv(file, iov, 3, 0), -EOVERFLOW);
	iov[2] = (struct iovec){ host, SSIZE_MAX - 100 };
	assert_int_equal(peerlane_readv(file, iov, 3, 0), -EOVERFLOW);
	iov[2] = (struct iovec){ host, 8 };
	assert_int_equal(peerlane_readv(file, iov, 3, -1), -EINVAL);
	assert_int_equal(peerlane_readv(file, iov, 3, INT64_MAX - 1), -EOVERFLOW);
	for (size_t i = 0; i < sizeof(host); i++)
		assert_int_equal(host[i], FILLER);
	/* Nothing is held. */
	assert_int_equal(peerlane_buffer_release(ctx, gpu), 0);
	assert_int_equal(peerlane_gpu_free(ctx, gpu), 0);
	close_all();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(mixed_modes),
		sim_test(most),
		sim_test(bad_counts),
		sim_test(bad_pieces),
	};

	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown) ? 1 : 0;
}
