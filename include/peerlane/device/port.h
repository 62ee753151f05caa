/* SPDX-License-Identifier: MIT */
/*
 * What code that runs in GPU kernels needs of the machine: atomics with a scope, doorbells, a clock, and
 * the collectives of a warp. The same code compiles for GPUs (nvcc) and for the CPU (gcc, clang), where a
 * lane is a thread; see port_cuda.h and port_cpu.h. Everything above is written in the C that both take.
 *
 * Scopes: _dev is all threads of one GPU, _sys is these, the CPU and other devices. There are no bare
 * fences: order is said by the access that carries it, so that the thread sanitizer can follow.
 *
 * Collectives take the lanes that take part, and every one of those must call. Code never asks which
 * lanes happen to be active: the caller says it.
 *
 *	PLD_FN				a function of kernels
 *	PLD_SLOW			one that is not inlined: what is seldom called costs no registers
 *	PLD_WARP			lanes of a warp
 *	pld_lane()			which one this is
 *	pld_load_{relaxed,acquire}_{dev,sys}(p)		32 or 64 bits, by name: ...32, ...64; those that are needed
 *	pld_store_{relaxed,release}_{dev,sys}(p, v)
 *	pld_exchange_dev32(p, v), pld_add_dev32(p, v)	acquire and release; give what was there before
 *	pld_cas_dev64(p, old, new), pld_or_dev32(p, v), pld_lock_dev32(p) (puts 1), pld_take_dev64(p, v) (adds)
 *					acquire only: a release makes a GPU wait for all its stores
 *	pld_cas_release_dev64(p, old, new)	release only
 *	pld_cas_relaxed_dev64(p, old, new)	neither
 *	pld_give_dev64(p, v)		add, release only, no answer
 *	pld_count_dev64(p, v)		add, no order, no answer: statistics
 *	pld_load_fresh_sys(p, bit, was, v)	sixteen bytes, 16-aligned, of which the last two are written
 *					last: loads them, unless that bit of these is still as it was. What
 *					their writer wrote before is seen after this. Returns whether
 *	pld_ring(p, v)			a doorbell: what this thread wrote or saw before is seen before it
 *	pld_store16(p, v)		sixteen bytes, 16-aligned (struct pld_vec)
 *	pld_load16(p)			likewise, past caches that may hold older data
 *	pld_sync(lanes)			all are here, and see what each wrote before
 *	pld_ballot(lanes, bit)		the lanes whose bit is set
 *	pld_shfl32/64(lanes, v, from)	the v of lane from
 *	pld_match64(lanes, v)		the lanes with the same v
 *	pld_or64(lanes, v)		all v together
 *	pld_clock_ns()			time that goes forward
 *	pld_nap(ns)			let others run, for about so long
 */
#ifndef PEERLANE_DEVICE_PORT_H
#define PEERLANE_DEVICE_PORT_H

#include <stdint.h>

/* Sixteen bytes, moved at once. */
#ifdef __CUDACC__
struct __align__(16) pld_vec
{
	uint32_t w[4];
};
#include <peerlane/device/port_cuda.h>
#else
struct pld_vec {
	uint32_t w[4];
} __attribute__((aligned(16)));
#include <peerlane/device/port_cpu.h>
#endif

/* How many bits are set. */
PLD_FN uint32_t pld_count32(uint32_t v)
{
#ifdef __CUDACC__
	return (uint32_t)__popc(v);
#else
	return (uint32_t)__builtin_popcount(v);
#endif
}

PLD_FN uint32_t pld_count64(uint64_t v)
{
#ifdef __CUDACC__
	return (uint32_t)__popcll(v);
#else
	return (uint32_t)__builtin_popcountll(v);
#endif
}

/* The lowest bit that is set; v is not 0. */
PLD_FN uint32_t pld_lowest32(uint32_t v)
{
#ifdef __CUDACC__
	return (uint32_t)__ffs((int)v) - 1;
#else
	return (uint32_t)__builtin_ctz(v);
#endif
}

PLD_FN uint32_t pld_lowest64(uint64_t v)
{
#ifdef __CUDACC__
	return (uint32_t)__ffsll((long long)v) - 1;
#else
	return (uint32_t)__builtin_ctzll(v);
#endif
}

/* How many of these lanes come before this one. */
PLD_FN uint32_t pld_rank(uint32_t lanes)
{
	return pld_count32(lanes & ((1u << pld_lane()) - 1));
}

/* Is this the first of them? */
PLD_FN int pld_leads(uint32_t lanes)
{
	return pld_lane() == pld_lowest32(lanes);
}

/* The n-th bit that is set, from 0; there are more than n. */
PLD_FN uint32_t pld_nth64(uint64_t v, uint32_t n)
{
	while (n--)
		v &= v - 1;
	return pld_lowest64(v);
}

#endif
