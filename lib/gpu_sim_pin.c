/* SPDX-License-Identifier: MIT */
/*
 * Host memory the simulated driver knows: pinned memory of its own, and registered ranges of
 * others.
 */
#include "gpu_sim.h"
#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

static uint64_t pinned; /* bytes; guarded by the table's lock */

void pl_sim_pin_uncount(size_t bytes)
{
	pinned -= bytes;
}

void pl_sim_pin_forget(void)
{
	pinned = 0;
}

/* Takes @bytes off what may be pinned, so that two callers cannot both get the last of it. */
static int count(struct pl_sim_gpu *sim, size_t bytes)
{
	int err = -ENOMEM;

	pl_sim_table_write();
	if (pinned <= sim->pinned_limit && bytes <= sim->pinned_limit - pinned) {
		pinned += bytes;
		err = 0;
	}
	pl_sim_table_unlock();
	return err;
}

static int enter(uintptr_t base, size_t bytes)
{
	struct pl_sim_range *r;

	pl_sim_table_write();
	r = pl_sim_table_add(PL_SIM_PINNED, base, bytes, 0, -1);
	pl_sim_table_unlock();
	return r ? 0 : -ENOMEM;
}

int pl_sim_pin_alloc(struct pl_gpu *gpu, size_t bytes, void **out)
{
	struct pl_sim_gpu *sim = pl_sim_of(gpu);
	uintptr_t base;

	if (!bytes)
		return pl_sim_refuse(-EINVAL, PL_SIM_INVALID_VALUE);
	if (pl_sim_fault_hit(sim, PL_SIM_FAULT_PIN) || bytes > PL_SIM_MAX_BYTES)
		goto err;
	if (count(sim, pl_sim_mem_round(bytes)))
		goto err;
	if (pl_sim_mem_reserve(bytes, true, &base))
		goto err_uncount;
	if (enter(base, bytes))
		goto err_unmap;
	*out = (void *)base;
	return 0;

err_unmap:
	pl_sim_mem_unmap(base, bytes);
err_uncount:
	pl_sim_table_write();
	pl_sim_pin_uncount(pl_sim_mem_round(bytes));
	pl_sim_table_unlock();
err:
	return pl_sim_refuse(-ENOMEM, PL_SIM_OUT_OF_MEMORY);
}

void pl_sim_pin_free(struct pl_gpu *gpu, void *addr, size_t bytes)
{
	struct pl_sim_range *r;

	(void)gpu;
	(void)bytes;
	if (!addr)
		return;
	pl_sim_table_write();
	r = pl_sim_table_find((uintptr_t)addr);
	if (r && r->base == (uintptr_t)addr && r->state == PL_SIM_PINNED) {
		r->state = PL_SIM_UNPINNED;
		if (atomic_fetch_sub(&r->refs, 1) == 1)
			pl_sim_mem_drop(r);
	}
	pl_sim_table_unlock();
}

/* Copies of registered memory need this call, which containers may forbid. */
static bool careful_works(void)
{
	char a = 0, b = 1;
	struct iovec to = { .iov_base = &a, .iov_len = 1 };
	struct iovec from = { .iov_base = &b, .iov_len = 1 };

	return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1;
}

int pl_sim_pin_register(struct pl_gpu *gpu, int ordinal, void *addr, size_t bytes)
{
	struct pl_sim_gpu *sim = pl_sim_of(gpu);
	struct pl_sim_range *r;

	if (ordinal < 0 || ordinal >= sim->nr_gpus)
		return pl_sim_refuse(-ENODEV, PL_SIM_INVALID_DEVICE);
	if (!sim->in_place || !careful_works())
		return pl_sim_refuse(-EOPNOTSUPP, PL_SIM_NOT_SUPPORTED);
	if (!addr || !bytes || bytes > PL_SIM_MAX_BYTES || (uintptr_t)addr > UINTPTR_MAX - bytes)
		return pl_sim_refuse(-EINVAL, PL_SIM_INVALID_VALUE);
	if (pl_sim_fault_hit(sim, PL_SIM_FAULT_REGISTER))
		return pl_sim_refuse(-EREMOTEIO, PL_SIM_OPERATING_SYSTEM);
	pl_sim_table_write();
	r = pl_sim_table_find((uintptr_t)addr);
	if (r && r->base < (uintptr_t)addr + bytes) {
		pl_sim_table_unlock();
		return pl_sim_refuse(-EREMOTEIO, PL_SIM_ALREADY_REGISTERED);
	}
	r = pl_sim_table_add(PL_SIM_REGISTERED, (uintptr_t)addr, bytes, 0, -1);
	pl_sim_table_unlock();
	return r ? 0 : pl_sim_refuse(-ENOMEM, PL_SIM_OUT_OF_MEMORY);
}

void pl_sim_pin_unregister(struct pl_gpu *gpu, int ordinal, void *addr)
{
	struct pl_sim_range *r;

	(void)gpu;
	(void)ordinal;
	pl_sim_table_write();
	r = pl_sim_table_find((uintptr_t)addr);
	if (r && r->base == (uintptr_t)addr && r->state == PL_SIM_REGISTERED)
		pl_sim_table_remove(r);
	pl_sim_table_unlock();
}
