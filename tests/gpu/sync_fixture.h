/* SPDX-License-Identifier: MIT */
/* For test_cuda_sync.c: CUDA calls that return early, ways to write, and kinds of memory. */
#ifndef SYNC_FIXTURE_H
#define SYNC_FIXTURE_H

#include "gpu/cuda_fixture.h"

#define PIECE ((size_t)64 << 10)
#define SMALL ((size_t)4096)
#define SPACE ((size_t)2 << 20)

/* On a GPU it takes many tries to see a race; the fake always shows it. */
static unsigned int nr_tries(void)
{
	return fake ? 4 : 200;
}

/* ------------------------------------------------------------------ calls */

static unsigned char host[PIECE];
static uint64_t other; /* GPU memory to copy from */

static int copy_64k(uint64_t addr, unsigned char value)
{
	memset(host, value, PIECE);
	return cu.cuMemcpyHtoD_v2(addr, host, PIECE);
}

/* In pieces, of which each may come late. */
static int copy_4k(uint64_t addr, unsigned char value)
{
	int result = 0;

	memset(host, value, SMALL);
	for (size_t i = 0; i < PIECE && !result; i += SMALL)
		result = cu.cuMemcpyHtoD_v2(addr + i, host, SMALL);
	return result;
}

static int copy_thread(uint64_t addr, unsigned char value)
{
	memset(host, value, PIECE);
	return cu.cuMemcpyHtoD_v2_ptds(addr, host, PIECE);
}

static int set_64k(uint64_t addr, unsigned char value)
{
	return cu.cuMemsetD8_v2(addr, value, PIECE);
}

static int set_thread(uint64_t addr, unsigned char value)
{
	return cu.cuMemsetD8_v2_ptds(addr, value, PIECE);
}

static int copy_inside(uint64_t addr, unsigned char value)
{
	int result = cu.cuMemsetD8_v2(other, value, PIECE);

	if (!result)
		result = cu.cuCtxSynchronize();
	return result ? result : cu.cuMemcpyDtoD_v2(addr, other, PIECE);
}

static const struct {
	const char *name;
	int (*call)(uint64_t addr, unsigned char value);
} calls[] = {
	{ "cuMemcpyHtoD 64 KiB", copy_64k },
	{ "cuMemcpyHtoD 4 KiB", copy_4k },
	{ "cuMemcpyHtoD 64 KiB, per thread", copy_thread },
	{ "cuMemsetD8", set_64k },
	{ "cuMemsetD8, per thread", set_thread },
	{ "cuMemcpyDtoD", copy_inside },
};

/* ------------------------------------------------------------------ interfaces */

static struct peerlane *used;	     /* the context under test */
static struct peerlane_file *target; /* of it */
static void *stream;		     /* does not wait for the default stream */

static ssize_t by_write(char *addr)
{
	return peerlane_write(target, addr, PIECE, 0, 0);
}

static ssize_t by_vector(char *addr)
{
	struct iovec iov[] = { { addr, 1000 }, { addr + 1000, PIECE - 1000 } };

	return peerlane_writev(target, iov, 2, 0, 0);
}

static ssize_t by_batch(char *addr)
{
	struct peerlane_io io = {
		.file = target, .op = PEERLANE_WRITE, .addr = addr, .bytes = PIECE
	};
	struct peerlane_event event = { .result = -1 };
	struct peerlane_batch *batch;

	assert_int_equal(peerlane_batch_create(used, 1, &batch), 0);
	if (!peerlane_batch_submit(batch, &io, 1))
		assert_int_equal(peerlane_batch_wait(batch, 1, &event, 1, NULL), 1);
	peerlane_batch_destroy(batch);
	return event.result;
}

static ssize_t by_stream(char *addr)
{
	size_t bytes = PIECE;
	off_t offset = 0;
	ssize_t result = -1;

	assert_int_equal(peerlane_write_async(target, addr, &bytes, &offset, &result, stream, 0),
			 0);
	assert_int_equal(cu.cuStreamSynchronize(stream), 0);
	return result;
}

static const struct {
	const char *name;
	ssize_t (*write)(char *addr);
} ways[] = {
	{ "peerlane_write", by_write },
	{ "peerlane_writev", by_vector },
	{ "batch", by_batch },
	{ "peerlane_write_async", by_stream },
};

#define NR_CALLS (sizeof(calls) / sizeof(calls[0]))
#define NR_WAYS (sizeof(ways) / sizeof(ways[0]))

/* ------------------------------------------------------------------ memory */

static char *take_device(void)
{
	uint64_t addr;

	assert_int_equal(cu.cuMemAlloc_v2(&addr, SPACE), 0);
	return (char *)(uintptr_t)addr;
}

static void give_back(char *addr)
{
	assert_int_equal(cu.cuMemFree_v2((uintptr_t)addr), 0);
}

static char *take_managed(void)
{
	uint64_t addr;

	assert_int_equal(cu.cuMemAllocManaged(&addr, SPACE, CU_MEM_ATTACH_GLOBAL), 0);
	return (char *)(uintptr_t)addr;
}

static char *take_pool(void)
{
	uint64_t addr;

	assert_int_equal(cu.cuMemAllocAsync(&addr, SPACE, NULL), 0);
	assert_int_equal(cu.cuCtxSynchronize(), 0);
	return (char *)(uintptr_t)addr;
}

static uint64_t vmm_handle;
static size_t vmm_bytes;

static char *take_vmm(void)
{
	struct cu_alloc_prop prop = { .type = 1, .location = { 1, 0 } };
	struct cu_access access = { .location = { 1, 0 }, .flags = 3 };
	uint64_t addr;

	assert_int_equal(cu.cuMemGetAllocationGranularity(&vmm_bytes, &prop, 0), 0);
	vmm_bytes = (SPACE + vmm_bytes - 1) / vmm_bytes * vmm_bytes;
	assert_int_equal(cu.cuMemAddressReserve(&addr, vmm_bytes, 0, 0, 0), 0);
	assert_int_equal(cu.cuMemCreate(&vmm_handle, vmm_bytes, &prop, 0), 0);
	assert_int_equal(cu.cuMemMap(addr, vmm_bytes, 0, vmm_handle, 0), 0);
	assert_int_equal(cu.cuMemSetAccess(addr, vmm_bytes, &access, 1), 0);
	return (char *)(uintptr_t)addr;
}

static void give_back_vmm(char *addr)
{
	assert_int_equal(cu.cuMemUnmap((uintptr_t)addr, vmm_bytes), 0);
	assert_int_equal(cu.cuMemRelease(vmm_handle), 0);
	assert_int_equal(cu.cuMemAddressFree((uintptr_t)addr, vmm_bytes), 0);
}

#endif
