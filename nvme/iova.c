/* SPDX-License-Identifier: MIT */
/* Which addresses behind an IOMMU are free. */
#include "iova.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int pl_iova_init(struct pl_iova *iova, const struct pl_iova_range *ranges, size_t nr)
{
	iova->ranges = calloc(nr + 1, sizeof(*ranges));
	if (!iova->ranges)
		return -ENOMEM;
	if (nr)
		memcpy(iova->ranges, ranges, nr * sizeof(*ranges));
	iova->nr = nr;
	iova->room = nr + 1;
	iova->nr_used = 0;
	pthread_mutex_init(&iova->lock, NULL);
	return 0;
}

void pl_iova_fini(struct pl_iova *iova)
{
	free(iova->ranges);
	pthread_mutex_destroy(&iova->lock);
}

/* Room for one range more now, and for one more by each free() there can be: so that does not fail. */
static int reserve(struct pl_iova *iova)
{
	size_t want = iova->nr + iova->nr_used + 2;
	struct pl_iova_range *grown;

	if (want <= iova->room)
		return 0;
	grown = realloc(iova->ranges, 2 * want * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	iova->ranges = grown;
	iova->room = 2 * want;
	return 0;
}

static void insert(struct pl_iova *iova, size_t at, uint64_t first, uint64_t last)
{
	memmove(&iova->ranges[at + 1], &iova->ranges[at], (iova->nr - at) * sizeof(*iova->ranges));
	iova->ranges[at] = (struct pl_iova_range){ first, last };
	iova->nr++;
}

static void drop(struct pl_iova *iova, size_t at)
{
	iova->nr--;
	memmove(&iova->ranges[at], &iova->ranges[at + 1], (iova->nr - at) * sizeof(*iova->ranges));
}

/* Take [start, last] out of the range at @at, in which it lies. */
static void take(struct pl_iova *iova, size_t at, uint64_t start, uint64_t last)
{
	struct pl_iova_range *r = &iova->ranges[at];

	if (r->first == start && r->last == last) {
		drop(iova, at);
	} else if (r->first == start) {
		r->first = last + 1;
	} else if (r->last == last) {
		r->last = start - 1;
	} else {
		insert(iova, at + 1, last + 1, r->last);
		iova->ranges[at].last = start - 1;
	}
}

int pl_iova_alloc(struct pl_iova *iova, uint64_t bytes, uint64_t align, uint64_t *out)
{
	uint64_t start;
	int err;

	pthread_mutex_lock(&iova->lock);
	err = reserve(iova);
	if (err)
		goto out;
	err = -ENOSPC;
	for (size_t i = 0; i < iova->nr; i++) {
		const struct pl_iova_range *r = &iova->ranges[i];

		if (r->first > UINT64_MAX - (align - 1))
			break;
		start = (r->first + align - 1) & ~(align - 1);
		if (start > r->last || bytes - 1 > r->last - start)
			continue;
		take(iova, i, start, start + (bytes - 1));
		iova->nr_used++;
		*out = start;
		err = 0;
		break;
	}
out:
	pthread_mutex_unlock(&iova->lock);
	return err;
}

void pl_iova_free(struct pl_iova *iova, uint64_t start, uint64_t bytes)
{
	uint64_t last = start + (bytes - 1);
	size_t at = 0;

	pthread_mutex_lock(&iova->lock);
	while (at < iova->nr && iova->ranges[at].first < start)
		at++;
	insert(iova, at, start, last);
	if (at + 1 < iova->nr && iova->ranges[at + 1].first - 1 == last) {
		iova->ranges[at].last = iova->ranges[at + 1].last;
		drop(iova, at + 1);
	}
	if (at && iova->ranges[at - 1].last + 1 == start) {
		iova->ranges[at - 1].last = iova->ranges[at].last;
		drop(iova, at);
	}
	iova->nr_used--;
	pthread_mutex_unlock(&iova->lock);
}
