// SPDX-License-Identifier: MIT
/*
 * Registering memory. The engine keeps the registrations; here is only what it cannot know: with
 * an offset a program names the registered base, so the range is that of this registration.
 */
#include "buffer.h"

#include "cufile.h"
#include "driver.h"
#include "error.h"
#include "log.h"
#include "stats.h"

#include "../lib/buffer.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct entry {
	uintptr_t base;
	size_t bytes;
	int gpu;
};

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER; /* guards all below */
static struct entry *list;				   /* sorted by base */
static unsigned int nr, room;

/* Index of the first entry that is not below @base. */
static unsigned int find(uintptr_t base)
{
	unsigned int lo = 0, hi = nr;

	while (lo < hi) {
		unsigned int mid = (lo + hi) / 2;

		if (list[mid].base < base)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static void look_up(struct pl_cf_range *out, const void *base)
{
	unsigned int i;

	out->base = base;
	out->bytes = SIZE_MAX;
	pthread_rwlock_rdlock(&lock);
	i = find((uintptr_t)base);
	if (i < nr && list[i].base == (uintptr_t)base)
		out->bytes = list[i].bytes;
	pthread_rwlock_unlock(&lock);
}

int pl_cf_buffer_check(struct pl_cf_range *last, const void *base, size_t bytes, off_t offset)
{
	if (last->base != base)
		look_up(last, base);
	if (last->bytes == SIZE_MAX)
		return 0;
	return (size_t)offset > last->bytes || bytes > last->bytes - (size_t)offset ? -ERANGE : 0;
}

size_t pl_cf_buffer_bytes(int gpu)
{
	size_t sum = 0;

	pthread_rwlock_rdlock(&lock);
	for (unsigned int i = 0; i < nr; i++)
		if (list[i].gpu == gpu)
			sum += list[i].bytes;
	pthread_rwlock_unlock(&lock);
	return sum;
}

int pl_cf_buffer_gpu(struct peerlane *ctx, const void *addr)
{
	struct pl_buffer *buf;
	struct pl_mem mem;

	if (pl_buffer_resolve(ctx, addr, 1, &mem, &buf))
		return -1;
	pl_buffer_put(buf);
	return mem.gpu;
}

static int insert(uintptr_t base, size_t bytes, int gpu)
{
	struct entry *more;
	unsigned int i;
	int err = 0;

	pthread_rwlock_wrlock(&lock);
	if (nr == room) {
		more = realloc(list, (room ? room * 2 : 64) * sizeof(*more));
		if (!more) {
			err = -ENOMEM;
			goto out;
		}
		list = more;
		room = room ? room * 2 : 64;
	}
	i = find(base);
	memmove(&list[i + 1], &list[i], (nr - i) * sizeof(*list));
	list[i] = (struct entry){ .base = base, .bytes = bytes, .gpu = gpu };
	nr++;
out:
	pthread_rwlock_unlock(&lock);
	return err;
}

static void forget(uintptr_t base)
{
	unsigned int i;

	pthread_rwlock_wrlock(&lock);
	i = find(base);
	if (i < nr && list[i].base == base)
		memmove(&list[i], &list[i + 1], (--nr - i) * sizeof(*list));
	pthread_rwlock_unlock(&lock);
}

CUfileError_t cuFileBufRegister(const void *base, size_t length, int flags)
{
	CUfileError_t status;
	struct peerlane *ctx = pl_cf_enter_open(&status);
	int err;

	(void)flags; /* they concern network cards only */
	if (!ctx)
		return status;
	err = peerlane_buffer_register(ctx, (void *)(uintptr_t)base, length, 0);
	if (!err) {
		err = insert((uintptr_t)base, length, pl_cf_buffer_gpu(ctx, base));
		if (err)
			peerlane_buffer_release(ctx, (void *)(uintptr_t)base);
	}
	/* A length past the end of the address space is past that of the memory, too. */
	status = pl_cf_status_of(err == -EOVERFLOW ? -EFAULT : err);
	if (err)
		pl_cf_log(PL_CF_ERROR, "%zu bytes at %p not registered: %s", length, base,
			  cufileop_status_error(status.err));
	PL_CF_COUNT(buf_register_ops, !err);
	pl_cf_leave();
	return status;
}

CUfileError_t cuFileBufDeregister(const void *base)
{
	struct peerlane *ctx;
	int err;

	if (!base)
		return pl_cf_status(CU_FILE_INVALID_VALUE);
	ctx = pl_cf_enter();
	if (!ctx)
		return pl_cf_status(CU_FILE_DRIVER_CLOSING);
	err = peerlane_buffer_release(ctx, (void *)(uintptr_t)base);
	if (!err)
		forget((uintptr_t)base);
	PL_CF_COUNT(buf_deregister_ops, !err);
	pl_cf_leave();
	return pl_cf_status_of(err);
}

/* The engine releases its own when it closes. */
void pl_cf_buffers_clear(void)
{
	pthread_rwlock_wrlock(&lock);
	free(list);
	list = NULL;
	nr = room = 0;
	pthread_rwlock_unlock(&lock);
}

void pl_cf_buffers_forget(void)
{
	pthread_rwlock_init(&lock, NULL);
	nr = 0;
}
