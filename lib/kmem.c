// SPDX-License-Identifier: MIT
/* Memory of kernels: pinned host memory, GPU memory and registers, or all of it plain memory. */
#include "kmem.h"

#include "context.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ALIGNMENT 256u

int pl_kmem_init(struct pl_kmem *k, struct peerlane *ctx, int gpu)
{
	int nr;

	*k = (struct pl_kmem){ .gpu = gpu };
	if (!ctx)
		return 0;
	nr = peerlane_gpu_count(ctx);
	if (nr < 0)
		return nr;
	if (!ctx->gpu->ops->pin_address)
		return 0;
	if (gpu < 0 || gpu >= nr)
		return pl_fail(-ENODEV, "no GPU %d; the %s back end has %d", gpu,
			       ctx->gpu->ops->name, nr);
	k->ctx = ctx;
	return 0;
}

static int told(const struct pl_kmem *k, int err, const char *what)
{
	int code = k->ctx->gpu->ops->result();

	return pl_fail_gpu(err, code, "%s: %s", what,
			   k->ctx->gpu->ops->result_name(k->ctx->gpu, code));
}

static size_t whole_pages(size_t bytes)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return (bytes + page - 1) / page * page;
}

/* Memory that a controller in another process can map, too, where that is allowed. */
static char *plain(size_t bytes, int *fd)
{
	int flags = MAP_SHARED;
	char *memory;

	*fd = memfd_create("peerlane-kernels", MFD_CLOEXEC);
	if (*fd >= 0 && ftruncate(*fd, (off_t)bytes)) {
		close(*fd);
		*fd = -1;
	}
	if (*fd < 0)
		flags |= MAP_ANONYMOUS;
	memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, *fd, 0);
	if (memory != MAP_FAILED)
		return memory;
	if (*fd >= 0)
		close(*fd);
	return NULL;
}

int pl_kmem_share(const struct pl_kmem *k, size_t bytes, struct pl_shared *out)
{
	struct pl_shared s = { .bytes = whole_pages(bytes), .fd = -1 };
	void *cpu, *dev;
	int err;

	if (s.bytes < bytes)
		return pl_fail(-ENOMEM, "%zu bytes are too many", bytes);
	if (!k->ctx) {
		s.cpu = s.dev = plain(s.bytes, &s.fd);
		if (!s.cpu)
			return pl_fail(-ENOMEM, "no host memory of %zu bytes", bytes);
		*out = s;
		return 0;
	}
	err = k->ctx->gpu->ops->pin_alloc(k->ctx->gpu, s.bytes, &cpu);
	if (err)
		return told(k, err, "pinned host memory");
	err = k->ctx->gpu->ops->pin_address(k->ctx->gpu, k->gpu, cpu, &dev);
	if (err) {
		err = told(k, err, "pinned host memory on the GPU");
		k->ctx->gpu->ops->pin_free(k->ctx->gpu, cpu, s.bytes);
		return err;
	}
	memset(cpu, 0, s.bytes);
	s.cpu = cpu;
	s.dev = dev;
	*out = s;
	return 0;
}

void pl_kmem_unshare(const struct pl_kmem *k, struct pl_shared *s)
{
	if (s->cpu && k->ctx)
		k->ctx->gpu->ops->pin_free(k->ctx->gpu, s->cpu, s->bytes);
	else if (s->cpu)
		munmap(s->cpu, s->bytes);
	if (s->cpu && s->fd >= 0)
		close(s->fd);
	*s = (struct pl_shared){ .fd = -1 };
}

int pl_kmem_alloc(const struct pl_kmem *k, size_t bytes, void **out)
{
	int err;

	if (k->ctx) {
		err = k->ctx->gpu->ops->alloc(k->ctx->gpu, k->gpu, bytes, out);
		return err ? told(k, err, "GPU memory") : 0;
	}
	if (bytes > SIZE_MAX - ALIGNMENT)
		return pl_fail(-ENOMEM, "%zu bytes are too many", bytes);
	*out = aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
	return *out ? 0 : pl_fail(-ENOMEM, "no memory of %zu bytes", bytes);
}

void pl_kmem_free(const struct pl_kmem *k, void *memory)
{
	if (memory && k->ctx)
		k->ctx->gpu->ops->free(k->ctx->gpu, memory);
	else
		free(memory);
}

static int copy(const struct pl_kmem *k, void *to, const void *from, size_t bytes)
{
	int err;

	if (!k->ctx) {
		memcpy(to, from, bytes);
		return 0;
	}
	err = k->ctx->gpu->ops->copy_sync(k->ctx->gpu, to, from, bytes);
	return err ? told(k, err, "GPU copy") : 0;
}

int pl_kmem_put(const struct pl_kmem *k, void *memory, const void *from, size_t bytes)
{
	return copy(k, memory, from, bytes);
}

int pl_kmem_get(const struct pl_kmem *k, void *to, const void *memory, size_t bytes)
{
	return copy(k, to, memory, bytes);
}

int pl_kmem_registers(const struct pl_kmem *k, void *addr, size_t bytes, void **out)
{
	if (!k->ctx) {
		*out = addr;
		return 0;
	}
	if (k->ctx->gpu->ops->io_register(k->ctx->gpu, k->gpu, addr, whole_pages(bytes), out))
		return told(k, -EOPNOTSUPP, "registers of the controller on the GPU");
	return 0;
}

void pl_kmem_registers_end(const struct pl_kmem *k, void *addr)
{
	if (addr && k->ctx)
		k->ctx->gpu->ops->io_unregister(k->ctx->gpu, k->gpu, addr);
}
