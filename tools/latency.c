/* SPDX-License-Identifier: MIT */
/* Many times, kept in buckets a few percent wide. */
#include "latency.h"

/* Below PARTS a bucket is one nanosecond; above, PARTS buckets share each power of two. */
static unsigned int bucket(uint64_t ns)
{
	int shift;

	if (ns < PL_LATENCY_PARTS)
		return (unsigned int)ns;
	shift = 63 - __builtin_clzll(ns) - 4;
	return (unsigned int)(shift + 1) * PL_LATENCY_PARTS +
	       (unsigned int)((ns >> shift) - PL_LATENCY_PARTS);
}

double pl_latency_floor_ns(unsigned int i)
{
	unsigned int shift;

	if (i < PL_LATENCY_PARTS)
		return i;
	shift = i / PL_LATENCY_PARTS - 1;
	return (double)(PL_LATENCY_PARTS + i % PL_LATENCY_PARTS) * (double)(1ull << shift);
}

static double middle(unsigned int i)
{
	if (i < PL_LATENCY_PARTS)
		return i;
	return (pl_latency_floor_ns(i) + pl_latency_floor_ns(i + 1)) / 2;
}

void pl_latency_add(struct pl_latency *l, uint64_t ns)
{
	unsigned int i = bucket(ns);

	l->count[i < PL_LATENCY_BUCKETS ? i : PL_LATENCY_BUCKETS - 1]++;
}

void pl_latency_merge(struct pl_latency *into, const struct pl_latency *from)
{
	for (int i = 0; i < PL_LATENCY_BUCKETS; i++)
		into->count[i] += from->count[i];
}

double pl_latency_ns(const struct pl_latency *l, double share)
{
	uint64_t sum = 0, passed = 0;

	for (int i = 0; i < PL_LATENCY_BUCKETS; i++)
		sum += l->count[i];
	for (unsigned int i = 0; i < PL_LATENCY_BUCKETS; i++) {
		passed += l->count[i];
		if (passed && (double)passed >= share * (double)sum)
			return middle(i);
	}
	return 0;
}
