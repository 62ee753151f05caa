// SPDX-License-Identifier: MIT
/* The CUDA back end: pinned host memory, our own and what others made. */
#include "gpu_cuda.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#define HUGE_BYTES ((size_t)2 << 20)
#define MAX_PARTS 16u

/*
 * In huge pages. What the driver allocates is scattered once the machine has been up for a while, and then a
 * request to a disk is a list of single pages: one of 512 KiB is cut into several, or costs the disk of a virtual
 * machine twice the time. See docs/measured.md.
 */
static int alloc_huge(struct pl_cuda *c, size_t bytes, void **out)
{
	pl_cu_ptr there = 0;
	char *map, *mem;

	if (!bytes || bytes & (HUGE_BYTES - 1))
		return -EINVAL;
	map = mmap(NULL, bytes + HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		   -1, 0);
	if (map == MAP_FAILED)
		return -ENOMEM;
	mem = (char *)(((uintptr_t)map + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1));
	if (mem > map)
		munmap(map, (size_t)(mem - map));
	if (map + HUGE_BYTES > mem)
		munmap(mem + bytes, (size_t)(map + HUGE_BYTES - mem));
	/* Only a wish: without huge pages it is pinned all the same. A forked child is left out as it is with what
	 * the driver allocates. */
	madvise(mem, bytes, MADV_HUGEPAGE);
	if (madvise(mem, bytes, MADV_DONTFORK) ||
	    c->api.host_register(mem, bytes, PL_CU_REGISTER_PORTABLE | PL_CU_REGISTER_DEVICEMAP))
		goto err_unmap;
	/* Kernels are given the CPU's address. That of what the driver allocates is theirs, too; that of registered
	 * memory is not everywhere. */
	if (c->api.host_device_pointer(&there, mem, 0) || there != (uintptr_t)mem)
		goto err_unregister;
	*out = mem;
	return 0;

err_unregister:
	c->api.host_unregister(mem);
err_unmap:
	munmap(mem, bytes);
	return -ENOMEM;
}

static int free_huge(struct pl_cuda *c, void *addr, size_t bytes)
{
	int err = c->api.host_unregister(addr);

	return err ? err : munmap(addr, bytes);
}

/* ------------------------------------------------------------------ parts of a huge page */

/* A huge page that was cut into parts of one size. */
struct pl_cuda_chunk {
	struct pl_cuda_chunk *next;
	char *mem;
	size_t part;
	uint32_t used; /* a bit each */
};

static bool is_part(size_t bytes)
{
	return bytes < HUGE_BYTES && bytes >= HUGE_BYTES / MAX_PARTS && !(bytes & (bytes - 1));
}

static void *take_part(struct pl_cuda_chunk *chunk)
{
	unsigned int i = (unsigned int)__builtin_ctz(~chunk->used);

	chunk->used |= 1u << i;
	return chunk->mem + i * chunk->part;
}

static bool take_from_chunks(struct pl_cuda *c, size_t bytes, void **out)
{
	struct pl_cuda_chunk *chunk;

	pthread_mutex_lock(&c->lock);
	for (chunk = c->chunks; chunk; chunk = chunk->next)
		if (chunk->part == bytes && chunk->used != (1u << HUGE_BYTES / bytes) - 1)
			break;
	if (chunk)
		*out = take_part(chunk);
	pthread_mutex_unlock(&c->lock);
	return chunk;
}

static int alloc_part(struct pl_cuda *c, size_t bytes, void **out)
{
	struct pl_cuda_chunk *chunk;
	void *mem;

	if (take_from_chunks(c, bytes, out))
		return 0;
	chunk = calloc(1, sizeof(*chunk));
	if (!chunk)
		return -ENOMEM;
	if (alloc_huge(c, HUGE_BYTES, &mem)) {
		free(chunk);
		return -ENOMEM;
	}
	chunk->mem = mem;
	chunk->part = bytes;
	*out = take_part(chunk);
	pthread_mutex_lock(&c->lock);
	chunk->next = c->chunks;
	c->chunks = chunk;
	pthread_mutex_unlock(&c->lock);
	return 0;
}

/* Takes the part at @addr out of @chunk; false if it is in another one. */
static bool put_part(struct pl_cuda_chunk *chunk, const char *addr)
{
	if (addr < chunk->mem || addr >= chunk->mem + HUGE_BYTES)
		return false;
	chunk->used &= ~(1u << (size_t)(addr - chunk->mem) / chunk->part);
	return true;
}

/* The chunk goes with the last of its parts. Returns false if @addr is in none. */
static bool free_part(struct pl_cuda *c, const char *addr)
{
	struct pl_cuda_chunk **p = &c->chunks, *last = NULL;
	bool found = false;

	pthread_mutex_lock(&c->lock);
	while (*p && !found) {
		struct pl_cuda_chunk *chunk = *p;

		found = put_part(chunk, addr);
		if (found && !chunk->used) {
			*p = chunk->next;
			last = chunk;
		} else {
			p = &chunk->next;
		}
	}
	pthread_mutex_unlock(&c->lock);
	if (last) {
		free_huge(c, last->mem, HUGE_BYTES);
		free(last);
	}
	return found;
}

void pl_cuda_chunks_forget(struct pl_cuda *c)
{
	while (c->chunks) {
		struct pl_cuda_chunk *chunk = c->chunks;

		c->chunks = chunk->next;
		free(chunk);
	}
}

/* ------------------------------------------------------------------ */

int pl_cuda_pin_alloc(struct pl_gpu *gpu, size_t bytes, void **out)
{
	struct pl_cuda *c = pl_cuda_of(gpu);
	void *owner;
	int err = pl_cuda_primary(c, 0, &owner);

	if (err)
		return err;
	err = pl_cuda_enter(c, owner);
	if (err)
		return err;
	err = is_part(bytes) ? alloc_part(c, bytes, out) : alloc_huge(c, bytes, out);
	if (err)
		err = pl_cuda_check(c->api.host_alloc(
			out, bytes, PL_CU_HOST_ALLOC_PORTABLE | PL_CU_HOST_ALLOC_DEVICEMAP));
	pl_cuda_leave(c);
	return err;
}

void pl_cuda_pin_free(struct pl_gpu *gpu, void *addr, size_t bytes)
{
	struct pl_cuda *c = pl_cuda_of(gpu);
	void *owner;
	bool done;

	if (!addr || pl_cuda_primary(c, 0, &owner) || pl_cuda_enter(c, owner))
		return;
	done = is_part(bytes) ? free_part(c, addr)
			      : !(bytes & (HUGE_BYTES - 1)) && !free_huge(c, addr, bytes);
	if (!done)
		c->api.host_free(addr);
	pl_cuda_leave(c);
}

int pl_cuda_pin_register(struct pl_gpu *gpu, int ordinal, void *addr, size_t bytes)
{
	struct pl_cuda *c = pl_cuda_of(gpu);
	void *ctx;
	int err = pl_cuda_pin_context(c, ordinal, &ctx);

	if (!err)
		err = pl_cuda_enter_raw(c, ctx);
	if (err)
		return err;
	err = pl_cuda_check(c->api.host_register(
		addr, bytes, PL_CU_REGISTER_READ_ONLY | PL_CU_REGISTER_PORTABLE));
	pl_cuda_leave(c);
	return c->gpu.ops->result() == PL_CU_NOT_SUPPORTED ? -EOPNOTSUPP : err;
}

void pl_cuda_pin_unregister(struct pl_gpu *gpu, int ordinal, void *addr)
{
	struct pl_cuda *c = pl_cuda_of(gpu);
	void *ctx;

	if (pl_cuda_pin_context(c, ordinal, &ctx) || pl_cuda_enter_raw(c, ctx))
		return;
	c->api.host_unregister(addr);
	pl_cuda_leave(c);
}

/* The context is current. */
static int device_pointer(struct pl_cuda *c, void *addr, void **out)
{
	pl_cu_ptr at = 0;
	int err = pl_cuda_check(c->api.host_device_pointer(&at, addr, 0));

	if (!err)
		*out = (void *)(uintptr_t)at;
	return err;
}

static int enter_primary(struct pl_cuda *c, int ordinal)
{
	void *owner;
	int err = pl_cuda_primary(c, ordinal, &owner);

	return err ? err : pl_cuda_enter(c, owner);
}

int pl_cuda_pin_address(struct pl_gpu *gpu, int ordinal, void *addr, void **out)
{
	struct pl_cuda *c = pl_cuda_of(gpu);
	int err = enter_primary(c, ordinal);

	if (err)
		return err;
	err = device_pointer(c, addr, out);
	pl_cuda_leave(c);
	return err;
}

int pl_cuda_io_register(struct pl_gpu *gpu, int ordinal, void *addr, size_t bytes, void **out)
{
	const unsigned int plain = PL_CU_REGISTER_PORTABLE | PL_CU_REGISTER_DEVICEMAP;
	struct pl_cuda *c = pl_cuda_of(gpu);
	int err = enter_primary(c, ordinal);

	if (err)
		return err;
	err = pl_cuda_check(c->api.host_register(addr, bytes, plain | PL_CU_REGISTER_IO_MEMORY));
	/* The registers of a software controller are ordinary memory, which is refused as I/O memory. */
	if (err)
		err = pl_cuda_check(c->api.host_register(addr, bytes, plain));
	if (!err) {
		err = device_pointer(c, addr, out);
		if (err)
			c->api.host_unregister(addr);
	}
	pl_cuda_leave(c);
	return err;
}

void pl_cuda_io_unregister(struct pl_gpu *gpu, int ordinal, void *addr)
{
	struct pl_cuda *c = pl_cuda_of(gpu);

	if (enter_primary(c, ordinal))
		return;
	c->api.host_unregister(addr);
	pl_cuda_leave(c);
}
