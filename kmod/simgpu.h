/* SPDX-License-Identifier: MIT */
/*
 * Calls on /dev/simgpu, the test GPU: a PCI memory device of QEMU (ivshmem) whose BAR is the GPU's
 * memory. Programs allocate memory and copy to and from it by its GPU address; other modules pin it
 * as they would pin the memory of an NVIDIA GPU.
 */
#ifndef SIMGPU_H
#define SIMGPU_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* GPU addresses and allocations are multiples of this. */
#define SIMGPU_PAGE_BYTES 65536

/**
 * struct simgpu_alloc - allocate memory, in pages scattered over the lower half of the BAR
 * @bytes: in: how many; rounded up to whole pages
 * @address: out: GPU address; belongs to the calling process
 *
 * -ENOMEM when that is full. Closing the file frees all that was allocated through it.
 */
struct simgpu_alloc {
	__u64 bytes;
	__u64 address;
};

/**
 * struct simgpu_copy - copy between memory of the program and GPU memory, as a GPU would
 * @address: in: GPU address, any byte of an allocation of the calling process
 * @bytes: in: how many, inside the allocation
 * @user: in: address in the program
 * @to_gpu: in: 1 to the GPU, 0 from it
 * @pad: in: 0
 */
struct simgpu_copy {
	__u64 address;
	__u64 bytes;
	__u64 user;
	__u32 to_gpu;
	__u32 pad;
};

/* What can be made to go wrong, for simgpu_fault.what. */
#define SIMGPU_FAULT_GET 1	  /* nvidia_p2p_get_pages() returns -value */
#define SIMGPU_FAULT_PERSISTENT 2 /* so does the persistent form */
#define SIMGPU_FAULT_VERSION 3	  /* the page table has version @value */
#define SIMGPU_FAULT_PAGE_SIZE 4  /* the page table has page size @value */
#define SIMGPU_FAULT_EARLY_FREE 5 /* freed before get_pages() returns; 1: and before the callback is known */
#define SIMGPU_FAULT_OUTSIDE 6	  /* the last page lies outside the BAR; 1: all do, in the CPU's memory */
#define SIMGPU_FAULT_DELAY 7	  /* get_pages() takes @value milliseconds, locks held */
#define SIMGPU_FAULT_PLACE 8	  /* memory is allocated in place @value, SIMGPU_PLACE_* */
#define SIMGPU_NR_FAULTS 9

/*
 * Where memory can be. In the upper half of the BAR are the parts that the driver maps for itself,
 * uncached or write-combined. The kernel gives no pages to a range that has both.
 */
#define SIMGPU_PLACE_LOWER 0   /* in the lower half, as usual */
#define SIMGPU_PLACE_NEAR 1    /* in 4 MiB of the upper half that have no such part */
#define SIMGPU_PLACE_BETWEEN 2 /* in three times 2 MiB, with parts of both sorts between them */
#define SIMGPU_PLACE_AMONG 3   /* in 2 MiB that have parts of both sorts */
#define SIMGPU_NR_PLACES 4

/**
 * struct simgpu_fault - make the next @times calls go wrong
 * @what: in: SIMGPU_FAULT_*
 * @value: in: see there
 * @times: in: how often; 0 takes it back
 * @pad: in: 0
 */
struct simgpu_fault {
	__u32 what;
	__u32 value;
	__u32 times;
	__u32 pad;
};

/**
 * struct simgpu_state - what there is now
 * @bar_start: physical address of the memory
 * @bar_bytes: its size
 * @free_bytes: not allocated, of the lower half
 * @nr_allocs: allocations
 * @nr_pins: pins with callback
 * @nr_persistent: pins without
 * @nr_callbacks: callbacks called so far
 * @pci: PCI address: domain << 16 | bus << 8 | device << 3 | function
 */
struct simgpu_state {
	__u64 bar_start;
	__u64 bar_bytes;
	__u64 free_bytes;
	__u64 nr_allocs;
	__u64 nr_pins;
	__u64 nr_persistent;
	__u64 nr_callbacks;
	__u64 pci;
};

#define SIMGPU_IOC_ALLOC _IOWR(0xEA, 1, struct simgpu_alloc)
#define SIMGPU_IOC_FREE _IOW(0xEA, 2, __u64)
#define SIMGPU_IOC_COPY _IOW(0xEA, 3, struct simgpu_copy)
#define SIMGPU_IOC_FAULT _IOW(0xEA, 4, struct simgpu_fault)
#define SIMGPU_IOC_STATE _IOR(0xEA, 5, struct simgpu_state)

#endif
