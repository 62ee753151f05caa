/* SPDX-License-Identifier: MIT */
/*
 * port.h for the CPU: a lane is a thread, a warp some threads that meet in the collectives. A thread that
 * no warp was started for is a warp of one lane. Only port.h includes it.
 */
#ifndef PEERLANE_DEVICE_PORT_CPU_H
#define PEERLANE_DEVICE_PORT_CPU_H

#include <peerlane/device/warp_cpu.h>

#include <sched.h>
#include <string.h>
#include <time.h>

#ifdef __cplusplus
#define PLD_FN static inline
#else
#define PLD_FN static inline __attribute__((unused))
#endif
#define PLD_SLOW static __attribute__((noinline, unused))
#define PLD_WARP 32u

PLD_FN uint32_t pld_lane(void)
{
	return peerlane_cpu_lane();
}

#define PLD_LOAD_(name, type, order)                                                               \
	PLD_FN type pld_load_##name(const type *p)                                                 \
	{                                                                                          \
		return __atomic_load_n(p, order);                                                  \
	}

#define PLD_STORE_(name, type, order)                                                              \
	PLD_FN void pld_store_##name(type *p, type v)                                              \
	{                                                                                          \
		__atomic_store_n(p, v, order);                                                     \
	}

PLD_LOAD_(relaxed_dev32, uint32_t, __ATOMIC_RELAXED)
PLD_LOAD_(relaxed_dev64, uint64_t, __ATOMIC_RELAXED)
PLD_LOAD_(relaxed_sys32, uint32_t, __ATOMIC_RELAXED)
PLD_LOAD_(acquire_dev64, uint64_t, __ATOMIC_ACQUIRE)
PLD_LOAD_(acquire_sys32, uint32_t, __ATOMIC_ACQUIRE)
PLD_STORE_(relaxed_dev32, uint32_t, __ATOMIC_RELAXED)
PLD_STORE_(relaxed_dev64, uint64_t, __ATOMIC_RELAXED)
PLD_STORE_(relaxed_sys32, uint32_t, __ATOMIC_RELAXED)
PLD_STORE_(release_dev32, uint32_t, __ATOMIC_RELEASE)
PLD_STORE_(release_dev64, uint64_t, __ATOMIC_RELEASE)

#define PLD_ATOM_(name, type, op)                                                                  \
	PLD_FN type pld_##name(type *p, type v)                                                    \
	{                                                                                          \
		return __atomic_##op(p, v, __ATOMIC_ACQ_REL);                                      \
	}

PLD_ATOM_(exchange_dev32, uint32_t, exchange_n)
PLD_ATOM_(add_dev32, uint32_t, fetch_add)

#undef PLD_LOAD_
#undef PLD_STORE_
#undef PLD_ATOM_

#define PLD_CAS_(name, success, failure)                                                           \
	PLD_FN uint64_t pld_##name(uint64_t *p, uint64_t expected, uint64_t v)                     \
	{                                                                                          \
		__atomic_compare_exchange_n(p, &expected, v, 0, success, failure);                 \
		return expected;                                                                   \
	}

PLD_CAS_(cas_dev64, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE)
PLD_CAS_(cas_release_dev64, __ATOMIC_RELEASE, __ATOMIC_RELAXED)
PLD_CAS_(cas_relaxed_dev64, __ATOMIC_RELAXED, __ATOMIC_RELAXED)

#undef PLD_CAS_

PLD_FN uint32_t pld_or_dev32(uint32_t *p, uint32_t v)
{
	return __atomic_fetch_or(p, v, __ATOMIC_ACQUIRE);
}

PLD_FN uint32_t pld_lock_dev32(uint32_t *p)
{
	return __atomic_exchange_n(p, 1, __ATOMIC_ACQUIRE);
}

PLD_FN uint64_t pld_take_dev64(uint64_t *p, uint64_t v)
{
	return __atomic_fetch_add(p, v, __ATOMIC_ACQUIRE);
}

PLD_FN void pld_give_dev64(uint64_t *p, uint64_t v)
{
	__atomic_fetch_add(p, v, __ATOMIC_RELEASE);
}

PLD_FN void pld_count_dev64(uint64_t *p, uint64_t v)
{
	__atomic_fetch_add(p, v, __ATOMIC_RELAXED);
}

PLD_FN int pld_load_fresh_sys(const void *p, uint32_t bit, uint32_t was, struct pld_vec *v)
{
	const uint16_t last = __atomic_load_n((const uint16_t *)p + 7, __ATOMIC_ACQUIRE);

	if ((last & bit) == was)
		return 0;
	memcpy(v, p, sizeof(*v));
	return 1;
}

PLD_FN void pld_ring(uint32_t *p, uint32_t v)
{
#ifdef __aarch64__
	__asm__ volatile("dsb oshst" ::: "memory");
#endif
	__atomic_store_n(p, v, __ATOMIC_RELEASE);
}

PLD_FN void pld_store16(void *p, struct pld_vec v)
{
	memcpy(p, &v, sizeof(v));
}

PLD_FN struct pld_vec pld_load16(const void *p)
{
	struct pld_vec v;

	memcpy(&v, p, sizeof(v));
	return v;
}

PLD_FN void pld_sync(uint32_t lanes)
{
	if (lanes & (lanes - 1))
		peerlane_cpu_meet(lanes, 0, (uint64_t *)0);
}

PLD_FN uint32_t pld_ballot(uint32_t lanes, int bit)
{
	uint64_t all[PLD_WARP];
	uint32_t set = 0;

	if (!(lanes & (lanes - 1)))
		return bit ? lanes : 0;
	peerlane_cpu_meet(lanes, bit != 0, all);
	for (uint32_t i = 0; i < PLD_WARP; i++)
		if (lanes >> i & 1 && all[i])
			set |= 1u << i;
	return set;
}

PLD_FN uint64_t pld_shfl64(uint32_t lanes, uint64_t v, uint32_t from)
{
	uint64_t all[PLD_WARP];

	if (!(lanes & (lanes - 1)))
		return v;
	peerlane_cpu_meet(lanes, v, all);
	return all[from % PLD_WARP];
}

PLD_FN uint32_t pld_shfl32(uint32_t lanes, uint32_t v, uint32_t from)
{
	return (uint32_t)pld_shfl64(lanes, v, from);
}

PLD_FN uint32_t pld_match64(uint32_t lanes, uint64_t v)
{
	uint64_t all[PLD_WARP];
	uint32_t same = 0;

	if (!(lanes & (lanes - 1)))
		return lanes;
	peerlane_cpu_meet(lanes, v, all);
	for (uint32_t i = 0; i < PLD_WARP; i++)
		if (lanes >> i & 1 && all[i] == v)
			same |= 1u << i;
	return same;
}

PLD_FN uint64_t pld_or64(uint32_t lanes, uint64_t v)
{
	uint64_t all[PLD_WARP], set = 0;

	if (!(lanes & (lanes - 1)))
		return v;
	peerlane_cpu_meet(lanes, v, all);
	for (uint32_t i = 0; i < PLD_WARP; i++)
		if (lanes >> i & 1)
			set |= all[i];
	return set;
}

PLD_FN uint64_t pld_clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

PLD_FN void pld_nap(uint32_t ns)
{
	(void)ns;
	sched_yield();
}

#endif
