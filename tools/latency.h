/* SPDX-License-Identifier: MIT */
/* Many times, kept in buckets a few percent wide. */
#ifndef PL_LATENCY_H
#define PL_LATENCY_H

#include <stdint.h>

#define PL_LATENCY_PARTS 16 /* buckets between one power of two and the next */
#define PL_LATENCY_BUCKETS (60 * PL_LATENCY_PARTS)

struct pl_latency {
	uint32_t count[PL_LATENCY_BUCKETS];
};

void pl_latency_add(struct pl_latency *l, uint64_t ns);
void pl_latency_merge(struct pl_latency *into, const struct pl_latency *from);
/* The time that a share (0 to 1) of the entries do not pass; 0 without entries. */
double pl_latency_ns(const struct pl_latency *l, double share);
/* Where bucket i begins. */
double pl_latency_floor_ns(unsigned int i);

#endif
