/* SPDX-License-Identifier: MIT */
/* Memory as a controller sees it, and where each byte of it is. */
#ifndef PL_NVME_PAGES_H
#define PL_NVME_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Pages of 1 << shift bytes, at least controller pages, each one run of bus addresses. A GPU page of
 * 64 KiB is split into controller pages when it is used, so the table stays small.
 */
struct pl_nvme_pages {
	const uint64_t *pages;
	size_t skip;  /* of the first byte in the first page */
	size_t bytes; /* of memory */
	size_t mask;  /* of an offset into a page */
	unsigned int shift;
	bool contiguous; /* all of it is one run */
	char *cpu;	 /* where the CPU reaches it, or NULL */
};

/* Bus address of a byte; the offset is less than bytes. */
static inline uint64_t pl_nvme_bus(const struct pl_nvme_pages *v, size_t offset)
{
	size_t at = v->skip + offset;

	return v->pages[at >> v->shift] + (at & v->mask);
}

/* How many of the @most bytes at @offset, which are there, are contiguous on the bus. */
size_t pl_nvme_run(const struct pl_nvme_pages *v, size_t offset, size_t most);

#endif
