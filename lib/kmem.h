/* SPDX-License-Identifier: MIT */
/*
 * Memory of kernels, wherever they run: on a GPU of the back end, or as threads of the CPU. For those who
 * give kernels something to work with and know of no back end (gpu/).
 */
#ifndef PL_KMEM_H
#define PL_KMEM_H

#include <stdbool.h>
#include <stddef.h>

struct peerlane;

/* Where kernels run. */
struct pl_kmem {
	struct peerlane *ctx; /* NULL: on the CPU */
	int gpu;
};

/* Host memory that the CPU and kernels use at once: zeroed, at a page. */
struct pl_shared {
	char *cpu; /* NULL: none */
	char *dev; /* where kernels find it */
	size_t bytes;
	int fd; /* of the memory, so that other processes can map it; -1: there is none */
};

/* Kernels run on GPU @gpu of @ctx if its back end runs them there, else on the CPU; @ctx may be NULL.
 * -ENODEV no such GPU. These functions leave words for peerlane_error(). */
int pl_kmem_init(struct pl_kmem *k, struct peerlane *ctx, int gpu);
static inline bool pl_kmem_on_gpu(const struct pl_kmem *k)
{
	return k->ctx != NULL;
}

/* -ENOMEM, -EREMOTEIO. */
int pl_kmem_share(const struct pl_kmem *k, size_t bytes, struct pl_shared *out);
void pl_kmem_unshare(const struct pl_kmem *k, struct pl_shared *s);

/* Memory for kernels alone, aligned to 256 bytes. What it holds is undefined. -ENOMEM, -EREMOTEIO. */
int pl_kmem_alloc(const struct pl_kmem *k, size_t bytes, void **out);
void pl_kmem_free(const struct pl_kmem *k, void *memory);
/* Copy to and from it; waits. */
int pl_kmem_put(const struct pl_kmem *k, void *memory, const void *from, size_t bytes);
int pl_kmem_get(const struct pl_kmem *k, void *to, const void *memory, size_t bytes);

/* Registers of a device at @addr: where kernels find them. -EOPNOTSUPP the GPU cannot reach them. */
int pl_kmem_registers(const struct pl_kmem *k, void *addr, size_t bytes, void **out);
void pl_kmem_registers_end(const struct pl_kmem *k, void *addr);

#endif
