/* SPDX-License-Identifier: MIT */
/*
 * Memory of the simulated GPUs. The address a user gets is reserved and never accessible, so host
 * code that touches it faults as it should; the bytes are in a second mapping, the shadow, that
 * copies and kernels use. Freed addresses stay reserved for a while, to catch late users.
 */
#include "gpu_sim.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define QUARANTINE 64u		       /* freed allocations kept at most, */
#define QUARANTINE_BYTES (64ull << 30) /* and their size */

/* All guarded by the table's lock. */
static uint64_t used[PL_SIM_MAX_GPUS];
static struct pl_sim_range *oldest, **newest = &oldest; /* quarantine */
static unsigned int nr_freed;
static uint64_t freed_bytes;

static char owners[PL_SIM_MAX_GPUS]; /* their addresses stand for the GPUs' contexts */

size_t pl_sim_mem_round(size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return (bytes + page - 1) / page * page;
}

size_t pl_sim_mem_span(size_t bytes)
{
	return pl_sim_mem_round(bytes) + pl_sim_mem_round(1);
}

int pl_sim_mem_reserve(size_t bytes, bool populate, uintptr_t *out)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS;
	size_t span = pl_sim_mem_span(bytes);
	void *p;

	p = mmap(NULL, span, PROT_NONE, flags | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return -ENOMEM;
	if (populate && mmap(p, pl_sim_mem_round(bytes), PROT_READ | PROT_WRITE,
			     flags | MAP_FIXED | MAP_POPULATE, -1, 0) == MAP_FAILED)
		goto err_unmap;
	/* A bare reservation stays one in a forked child: nothing else may get the address. */
	if (populate && madvise(p, span, MADV_DONTFORK))
		goto err_unmap;
	*out = (uintptr_t)p;
	return 0;

err_unmap:
	munmap(p, span);
	return -ENOMEM;
}

void pl_sim_mem_unmap(uintptr_t base, size_t bytes)
{
	munmap((void *)base, pl_sim_mem_span(bytes));
}

static int map_shadow(size_t bytes, uintptr_t *out)
{
	uintptr_t p;
	int err;

	err = pl_sim_mem_reserve(bytes, false, &p);
	if (err)
		return err;
	if (mprotect((void *)p, pl_sim_mem_round(bytes), PROT_READ | PROT_WRITE) ||
	    madvise((void *)p, pl_sim_mem_span(bytes), MADV_DONTFORK)) {
		pl_sim_mem_unmap(p, bytes);
		return -ENOMEM;
	}
	*out = p;
	return 0;
}

/* Enters new memory, if the GPU has that much left. */
static int enter(struct pl_sim_gpu *sim, int ordinal, uintptr_t base, size_t bytes,
		 uintptr_t shadow)
{
	size_t need = pl_sim_mem_round(bytes);
	int err = -ENOMEM;

	pl_sim_table_write();
	if (used[ordinal] > sim->memory_bytes || need > sim->memory_bytes - used[ordinal])
		goto out;
	if (!pl_sim_table_add(PL_SIM_LIVE, base, bytes, shadow, ordinal))
		goto out;
	used[ordinal] += need;
	err = 0;
out:
	pl_sim_table_unlock();
	return err;
}

int pl_sim_mem_alloc(struct pl_gpu *gpu, int ordinal, size_t bytes, void **out)
{
	struct pl_sim_gpu *sim = pl_sim_of(gpu);
	uintptr_t base, shadow;

	if (ordinal < 0 || ordinal >= sim->nr_gpus)
		return pl_sim_refuse(-ENODEV, PL_SIM_INVALID_DEVICE);
	if (!bytes)
		return pl_sim_refuse(-EINVAL, PL_SIM_INVALID_VALUE);
	if (pl_sim_fault_hit(sim, PL_SIM_FAULT_ALLOC) || bytes > PL_SIM_MAX_BYTES ||
	    bytes > sim->memory_bytes)
		goto err;
	if (pl_sim_mem_reserve(bytes, false, &base))
		goto err;
	if (map_shadow(bytes, &shadow))
		goto err_unmap;
	if (enter(sim, ordinal, base, bytes, shadow))
		goto err_shadow;
	*out = (void *)base;
	return 0;

err_shadow:
	pl_sim_mem_unmap(shadow, bytes);
err_unmap:
	pl_sim_mem_unmap(base, bytes);
err:
	return pl_sim_refuse(-ENOMEM, PL_SIM_OUT_OF_MEMORY);
}

/* Lets go of what has been in quarantine longest. A copy may still hold one: that one stays. */
static void shrink_quarantine(void)
{
	while (oldest && oldest->released &&
	       (nr_freed > QUARANTINE || freed_bytes > QUARANTINE_BYTES)) {
		struct pl_sim_range *r = oldest;

		oldest = r->next;
		if (!oldest)
			newest = &oldest;
		nr_freed--;
		freed_bytes -= r->bytes;
		pl_sim_mem_unmap(r->shadow, r->bytes);
		pl_sim_mem_unmap(r->base, r->bytes);
		pl_sim_table_remove(r);
	}
}

void pl_sim_mem_drop(struct pl_sim_range *r)
{
	size_t bytes = pl_sim_mem_round(r->bytes);

	if (r->state == PL_SIM_UNPINNED) {
		pl_sim_mem_unmap(r->base, r->bytes);
		pl_sim_pin_uncount(bytes);
		pl_sim_table_remove(r);
		return;
	}
	/* The shadow's addresses stay reserved too: kernels may have kept them. Closed first: in
	 * between a late user would find zeros. */
	mprotect((void *)r->shadow, bytes, PROT_NONE);
	madvise((void *)r->shadow, bytes, MADV_DONTNEED);
	used[r->gpu] -= bytes;
	r->released = true;
}

int pl_sim_mem_free(struct pl_gpu *gpu, void *addr)
{
	struct pl_sim_range *r;

	(void)gpu;
	if (!addr)
		return 0;
	pl_sim_table_write();
	r = pl_sim_table_find((uintptr_t)addr);
	if (!r || r->base != (uintptr_t)addr || r->state != PL_SIM_LIVE) {
		pl_sim_table_unlock();
		return pl_sim_refuse(-EINVAL, PL_SIM_INVALID_VALUE);
	}
	r->state = PL_SIM_FREED;
	*newest = r;
	newest = &r->next;
	nr_freed++;
	freed_bytes += r->bytes;
	if (atomic_fetch_sub(&r->refs, 1) == 1)
		pl_sim_mem_drop(r);
	shrink_quarantine();
	pl_sim_table_unlock();
	return 0;
}

int pl_sim_mem_query(struct pl_gpu *gpu, const void *addr, struct pl_mem *out)
{
	struct pl_mem mem = { .kind = PL_MEM_HOST, .gpu = -1 };
	struct pl_sim_range *r;
	int err = 0;

	pl_sim_table_read();
	r = pl_sim_table_find((uintptr_t)addr);
	if (!r || r->base > (uintptr_t)addr)
		goto out;
	switch (atomic_load(&r->state)) {
	case PL_SIM_LIVE:
		mem.kind = PL_MEM_DEVICE;
		mem.gpu = r->gpu;
		mem.owner = &owners[r->gpu];
		mem.base = r->base;
		mem.bytes = r->bytes;
		mem.host = pl_sim_of(gpu)->bar ? (char *)r->shadow : NULL;
		break;
	case PL_SIM_PINNED:
		mem.kind = PL_MEM_PINNED;
		mem.base = r->base;
		mem.bytes = r->bytes;
		mem.host = (char *)r->base;
		break;
	case PL_SIM_FREED:
		err = pl_sim_refuse(-EFAULT, PL_SIM_INVALID_VALUE);
		break;
	}
out:
	pl_sim_table_unlock();
	if (!err)
		*out = mem;
	return err;
}

/* The part of get() that needs the table's lock. */
static int get_locked(uintptr_t addr, size_t bytes, enum pl_sim_want want, struct pl_sim_side *side)
{
	struct pl_sim_range *r = pl_sim_table_find(addr);
	bool inside;

	if (!r || r->base >= addr + bytes)
		return want == PL_SIM_WANT_GPU ? -EFAULT : 0;
	inside = r->base <= addr && addr + bytes <= r->base + r->bytes;
	switch (atomic_load(&r->state)) {
	case PL_SIM_LIVE:
		if (!inside || want == PL_SIM_WANT_HOST)
			return -EFAULT;
		side->host = (char *)r->shadow + (addr - r->base);
		side->owner = &owners[r->gpu];
		break;
	case PL_SIM_PINNED:
		if (!inside || want == PL_SIM_WANT_GPU)
			return -EFAULT;
		side->pinned = true;
		break;
	case PL_SIM_REGISTERED:
		side->careful = true;
		return want == PL_SIM_WANT_GPU ? -EFAULT : 0;
	default:
		return -EFAULT;
	}
	atomic_fetch_add(&r->refs, 1);
	side->range = r;
	side->id = r->id;
	return 0;
}

int pl_sim_mem_get(const void *addr, size_t bytes, enum pl_sim_want want, struct pl_sim_side *out)
{
	struct pl_sim_side side = { .host = (char *)addr };
	int err = -EFAULT;

	if (addr && bytes && bytes <= PL_SIM_MAX_BYTES && (uintptr_t)addr <= UINTPTR_MAX - bytes) {
		pl_sim_table_read();
		err = get_locked((uintptr_t)addr, bytes, want, &side);
		pl_sim_table_unlock();
	}
	if (err)
		return pl_sim_refuse(err, PL_SIM_INVALID_VALUE);
	*out = side;
	return 0;
}

void pl_sim_mem_put(struct pl_sim_side *side)
{
	struct pl_sim_range *r = side->range;

	side->range = NULL;
	if (!r || atomic_fetch_sub(&r->refs, 1) != 1)
		return;
	/* It was freed meanwhile, and nobody but the last holder may drop it. */
	pl_sim_table_write();
	pl_sim_mem_drop(r);
	shrink_quarantine();
	pl_sim_table_unlock();
}

/* A file mapping whose file was truncated raises a signal where it is touched; the kernel, asked
 * to copy, gives an error instead. */
static int move_careful(char *dst, const char *src, size_t bytes)
{
	pid_t pid = getpid();

	while (bytes) {
		struct iovec to = { .iov_base = dst, .iov_len = bytes };
		struct iovec from = { .iov_base = (void *)src, .iov_len = bytes };
		ssize_t n = process_vm_readv(pid, &to, 1, &from, 1, 0);

		if (n <= 0)
			return pl_sim_refuse(-EFAULT, PL_SIM_INVALID_VALUE);
		dst += n;
		src += n;
		bytes -= (size_t)n;
	}
	return 0;
}

int pl_sim_mem_move(const struct pl_sim_side *dst, const struct pl_sim_side *src, size_t bytes)
{
	if (dst->careful || src->careful)
		return move_careful(dst->host, src->host, bytes);
	memmove(dst->host, src->host, bytes);
	return 0;
}

int pl_sim_mem_copy(void *dst, const void *src, size_t bytes)
{
	struct pl_sim_side to, from;
	int err;

	err = pl_sim_mem_get(dst, bytes, PL_SIM_WANT_ANY, &to);
	if (err)
		return err;
	err = pl_sim_mem_get(src, bytes, PL_SIM_WANT_ANY, &from);
	if (!err) {
		err = pl_sim_mem_move(&to, &from, bytes);
		pl_sim_mem_put(&from);
	}
	pl_sim_mem_put(&to);
	return err;
}

void pl_sim_mem_forget(void)
{
	memset(used, 0, sizeof(used));
	oldest = NULL;
	newest = &oldest;
	nr_freed = 0;
	freed_bytes = 0;
	pl_sim_pin_forget();
	pl_sim_table_forget();
}

void *peerlane_sim_host(const void *addr)
{
	struct pl_sim_range *r;
	void *host = NULL;

	pl_sim_table_read();
	r = pl_sim_table_find((uintptr_t)addr);
	if (r && r->state == PL_SIM_LIVE && r->base <= (uintptr_t)addr)
		host = (char *)r->shadow + ((uintptr_t)addr - r->base);
	pl_sim_table_unlock();
	return host;
}
