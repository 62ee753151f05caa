// SPDX-License-Identifier: MIT
/* Reads and writes that cannot be: each is refused with its code and moves nothing. */
#include "sim/sim_fixture.h"

#include <limits.h>
#include <sys/mman.h>

#define BYTES (256 * KIB)

static struct peerlane *ctx;
static struct peerlane_file *file;
static char *gpu;

static int setup(void **state)
{
	sim_test_setup(state);
	ctx = sim_open(0);
	file = sim_file(ctx, sim_make_file("bad", BYTES, 1), O_RDWR);
	gpu = sim_alloc(ctx, BYTES);
	sim_gpu_set(ctx, gpu, 0x11, BYTES);
	return 0;
}

/* The file is as it was, GPU memory too, and good requests still work. */
static int teardown(void **state)
{
	(void)state;
	sim_assert_file(sim_path("bad"), 0, BYTES, 1);
	assert_int_equal(sim_file_size(sim_path("bad")), BYTES);
	sim_assert_gpu_is(ctx, gpu, 0x11, BYTES);
	assert_int_equal(peerlane_read(file, gpu, BYTES, 0), BYTES);
	sim_assert_gpu(ctx, gpu, BYTES, 0, 1);
	sim_close(ctx, file, gpu);
	return 0;
}

/* Both directions give the same. */
static void refused(void *addr, size_t bytes, off_t offset, ssize_t err)
{
	assert_int_equal(peerlane_read(file, addr, bytes, offset), err);
	assert_int_equal(peerlane_write(file, addr, bytes, offset, 0), err);
}

static void nulls(void **state)
{
	(void)state;
	refused(NULL, 1, 0, -EINVAL);
	refused(NULL, MIB, 0, -EINVAL);
	assert_int_equal(peerlane_read(NULL, gpu, 1, 0), -EINVAL);
	assert_int_equal(peerlane_write(NULL, gpu, 1, 0, 0), -EINVAL);
}

static void offsets(void **state)
{
	(void)state;
	refused(gpu, 1, -1, -EINVAL);
	refused(gpu, 1, INT64_MIN, -EINVAL);
	refused(gpu, 0, -1, -EINVAL);
	refused(gpu, 1, INT64_MAX, -EOVERFLOW);
	refused(gpu, BYTES, INT64_MAX - (off_t)BYTES + 1, -EOVERFLOW);
	refused(gpu, SIZE_MAX, 0, -EOVERFLOW);
	refused(gpu, (size_t)SSIZE_MAX + 1, 0, -EOVERFLOW);
	/* The last offsets there are: nothing to read, too far to write. */
	assert_int_equal(peerlane_read(file, gpu, BYTES, INT64_MAX - (off_t)BYTES), 0);
	assert_int_equal(peerlane_read(file, gpu, 1, INT64_MAX - 1), 0);
	assert_int_equal(peerlane_write(file, gpu, 1, INT64_MAX - 1, 0), -EFBIG);
}

static void ranges(void **state)
{
	(void)state;
	refused(gpu, BYTES + 1, 0, -EFAULT);
	refused(gpu + BYTES - 1, 2, 0, -EFAULT);
	refused(gpu + 1, BYTES, 0, -EFAULT);
	refused(gpu, SSIZE_MAX, 0, -EFAULT);
	refused((void *)(UINTPTR_MAX - 4095), 8192, 0, -EOVERFLOW);
	assert_int_equal(peerlane_buffer_register(ctx, gpu + 4096, 4096, 0), 0);
	refused(gpu + 4096, 4097, 0, -ERANGE);
	refused(gpu + 8191, 2, 0, -ERANGE);
	/* Behind its end it is the allocation that counts. */
	refused(gpu + 8192, BYTES, 0, -EFAULT);
	assert_int_equal(peerlane_buffer_release(ctx, gpu + 4096), 0);
}

static void freed(void **state)
{
	char *gone = sim_alloc(ctx, BYTES);

	(void)state;
	assert_int_equal(peerlane_gpu_free(ctx, gone), 0);
	refused(gone, 1, 0, -EFAULT);
	refused(gone + 5, BYTES - 5, 0, -EFAULT);
}

/* Host memory that is not there is the kernel's to find. */
static void not_mapped(void **state)
{
	char *hole = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)state;
	refused((void *)8, 100, 0, -EFAULT);
	refused((void *)4096, BYTES, 0, -EFAULT);
	assert_int_equal(munmap(hole, BYTES), 0);
	refused(hole, 100, 0, -EFAULT);
	refused(hole, BYTES, 0, -EFAULT);
	/* Memory that may not be written cannot be read into. */
	hole = mmap(NULL, BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_int_equal(peerlane_read(file, hole, BYTES, 0), -EFAULT);
	assert_int_equal(peerlane_read(file, hole, 10, 0), -EFAULT);
	assert_int_equal(munmap(hole, BYTES), 0);
}

/* Memory that ends in the middle: what went before is counted, as with read(2). */
static void half_mapped(void **state)
{
	char *mem = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ssize_t n;

	(void)state;
	assert_int_equal(munmap(mem + BYTES / 2, BYTES / 2), 0);
	n = peerlane_read(file, mem, BYTES, 0);
	assert_in_range(n, 1, BYTES / 2);
	assert_int_equal(sim_differs(mem, (size_t)n, 0, 1), n);
	n = peerlane_write(file, mem, BYTES, 0, 0);
	assert_in_range(n, 1, BYTES / 2);
	assert_int_equal(munmap(mem, BYTES / 2), 0);
}

static void flags(void **state)
{
	(void)state;
	assert_int_equal(peerlane_write(file, gpu, 1, 0, 2), -EINVAL);
	sim_assert_error(-EINVAL, "0x2");
	assert_int_equal(peerlane_write(file, gpu, 1, 0, 0x80000000u), -EINVAL);
	assert_int_equal(peerlane_write(file, gpu, 1, 0, PEERLANE_FIXED | PEERLANE_DURABLE),
			 -EINVAL);
}

static void nothing(void **state)
{
	(void)state;
	assert_int_equal(peerlane_read(file, gpu, 0, 0), 0);
	assert_int_equal(peerlane_read(file, gpu, 0, INT64_MAX), 0);
	assert_int_equal(peerlane_write(file, gpu, 0, 5, 0), 0);
	assert_int_equal(peerlane_write(file, gpu, 0, 5, PEERLANE_DURABLE), 0);
}

/* A file larger than the process may write. The signal for it is the program's affair. */
static void in_small_memory(void **state)
{
	(void)state;
	/* More than the simulated GPU or the machine has. */
	refused(gpu, 1ul << 46, 0, -EFAULT);
}

#define io_test(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		io_test(nulls), io_test(offsets),    io_test(ranges),
		io_test(freed), io_test(not_mapped), io_test(half_mapped),
		io_test(flags), io_test(nothing),    io_test(in_small_memory),
	};

	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown) ? 1 : 0;
}
