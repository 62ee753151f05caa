/* SPDX-License-Identifier: MIT */
/* Warps of threads, to run the code of kernels on the CPU. */
#ifndef PEERLANE_DEVICE_WARP_CPU_H
#define PEERLANE_DEVICE_WARP_CPU_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * typedef peerlane_cpu_fn - what each lane of each warp does
 * @warp: which warp, from 0
 * @arg: of peerlane_cpu_run()
 */
typedef void (*peerlane_cpu_fn)(unsigned int warp, void *arg);

/**
 * peerlane_cpu_run() - run code of kernels on threads, and wait for it
 * @nr_warps: how many warps
 * @nr_lanes: threads in each, 1 to 32; they are the lanes 0 to @nr_lanes - 1
 * @fn: runs once in each thread
 * @arg: for @fn
 *
 * Return: 0; -EINVAL; -ENOMEM; -EAGAIN no more threads, and nothing was run.
 */
int peerlane_cpu_run(unsigned int nr_warps, unsigned int nr_lanes, peerlane_cpu_fn fn, void *arg);

/**
 * peerlane_cpu_lane() - which lane of its warp a thread is
 *
 * Return: the lane; 0 for a thread of no warp.
 */
uint32_t peerlane_cpu_lane(void);

/**
 * peerlane_cpu_meet() - wait for lanes of the same warp, and exchange a value
 * @lanes: those that meet, this one among them; every one of them must call with the same
 * @value: of this lane
 * @all: receives the values of the lanes, by lane; room for 32; may be NULL
 */
void peerlane_cpu_meet(uint32_t lanes, uint64_t value, uint64_t *all);

#ifdef __cplusplus
}
#endif

#endif
