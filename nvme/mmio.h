/* SPDX-License-Identifier: MIT */
/* Registers, and the order in which driver and controller see memory. */
#ifndef PL_NVME_MMIO_H
#define PL_NVME_MMIO_H

#include <stddef.h>
#include <stdint.h>

/*
 * Accesses are atomic, so that nothing tears or combines them, and so that a controller which is a thread
 * of this process is ordered with us as the language knows it. On x86 they are plain moves.
 */
static inline uint32_t pl_nvme_read32(const volatile void *bar, size_t at)
{
	return __atomic_load_n((const volatile uint32_t *)((const volatile char *)bar + at),
			       __ATOMIC_ACQUIRE);
}

static inline void pl_nvme_write32(volatile void *bar, size_t at, uint32_t value)
{
	__atomic_store_n((volatile uint32_t *)((volatile char *)bar + at), value, __ATOMIC_RELEASE);
}

/* By halves, the lower first: not every device takes 64 bits at once. */
static inline uint64_t pl_nvme_read64(const volatile void *bar, size_t at)
{
	uint64_t low = pl_nvme_read32(bar, at);

	return low | (uint64_t)pl_nvme_read32(bar, at + 4) << 32;
}

static inline void pl_nvme_write64(volatile void *bar, size_t at, uint64_t value)
{
	pl_nvme_write32(bar, at, (uint32_t)value);
	pl_nvme_write32(bar, at + 4, (uint32_t)(value >> 32));
}

/* What was written before is seen by a device before what is written after: SQEs, then a doorbell. */
static inline void pl_nvme_wmb(void)
{
#if defined(__aarch64__)
	__asm__ volatile("dmb oshst" ::: "memory");
#elif defined(__x86_64__)
	__asm__ volatile("" ::: "memory"); /* stores are seen in their order */
#else
	__atomic_thread_fence(__ATOMIC_RELEASE);
#endif
}

/* What was read before was read before what is read after: the phase of a CQE, then the rest. */
static inline void pl_nvme_rmb(void)
{
#if defined(__aarch64__)
	__asm__ volatile("dmb oshld" ::: "memory");
#endif
}

/* Both, and drains write-combining buffers: shadow doorbells, queues in the memory of a device. */
static inline void pl_nvme_mb(void)
{
#if defined(__x86_64__)
	__asm__ volatile("mfence" ::: "memory");
#elif defined(__aarch64__)
	__asm__ volatile("dsb sy" ::: "memory");
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

static inline void pl_nvme_pause(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

#endif
