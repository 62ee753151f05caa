/* SPDX-License-Identifier: MIT */
/*
 * How a controller is reached: its registers, and memory that it can read and write by DMA.
 *
 * One table of operations per transport (sim, vfio, kmod). The driver does everything else, so a
 * transport knows nothing of queues or commands. Interrupts are not used: the driver polls.
 *
 * Context: all operations may be called by several threads at a time, but close(), which is the last.
 * None is called for a single read or write of blocks. They return 0 or a negative errno and write
 * their outputs on success only.
 */
#ifndef PL_NVME_TRANSPORT_H
#define PL_NVME_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pl_nvme_transport;
struct pl_nvme_transport_ops;

/* What kind of memory a region is. */
enum pl_nvme_memory {
	PL_NVME_HOST, /* memory of this process: anonymous, shared, huge pages */
	PL_NVME_GPU,  /* pinned memory of a GPU, or of the simulated one */
};

/* Memory that is to be mapped for a controller. */
struct pl_nvme_region {
	enum pl_nvme_memory kind;
	void *ptr;	 /* address: of the process, or of the GPU */
	size_t bytes;	 /* not 0 */
	void *cpu;	 /* GPU: where the CPU reaches the same bytes, or NULL */
	int pin_fd;	 /* GPU: /dev/peerlane, whose pin it is, or -1 */
	uint64_t handle; /* GPU: that pin's handle */
	size_t offset;	 /* GPU: of ptr in the pin, in bytes */
};

/*
 * Memory as the controller sees it: pages of page_bytes, a power of two of 4096 or more, each of which
 * is one run of bus addresses. The first byte of the memory is `offset` bytes into the first page;
 * pages[] are the addresses of whole pages, so they are multiples of page_bytes. The mapping does not
 * move while it exists. Freed by unmap(), or by free() if alloc() made it.
 */
struct pl_nvme_mapping {
	void *cpu;	       /* where the CPU reaches the first byte, or NULL */
	size_t bytes;	       /* of memory */
	size_t offset;	       /* of the first byte in the first page, less than page_bytes */
	size_t page_bytes;     /* power of two, at least 4096 */
	size_t nr_pages;       /* (offset + bytes + page_bytes - 1) / page_bytes */
	const uint64_t *pages; /* bus address of each */
};

/* A window of registers or memory of the device. */
struct pl_nvme_window {
	volatile void *ptr;
	size_t bytes;
	uint64_t bus; /* where the controller itself would find it by DMA; 0 if it cannot */
};

/* Every transport's own struct begins with this; open() fills it in. */
struct pl_nvme_transport {
	const struct pl_nvme_transport_ops *ops;
	struct pl_nvme_window
		bar0; /* all of it: registers, then doorbells; at least 4096 + 8 bytes */
};

struct pl_nvme_transport_ops {
	/* Before the colon of an address: "sim", "vfio", "kmod". */
	const char *name;

	/*
	 * Open the controller that @address, what follows the colon, names. The device stays as it is:
	 * no reset, no register written. -EINVAL no such form of address, -ENODEV no such device,
	 * -EBUSY somebody else has it, -EACCES, -ENOMEM.
	 */
	int (*open)(const char *address, struct pl_nvme_transport **out);

	/*
	 * Let go of the device. The driver has disabled it, or it is gone; mappings that are left are
	 * unmapped, so that nothing leaks when a program ends early.
	 */
	void (*close)(struct pl_nvme_transport *t);

	/*
	 * Make a region reachable by DMA, reading and writing, and say at which addresses. May be
	 * called for one region several times, each its own mapping. -EOPNOTSUPP this kind of memory
	 * is not possible here, -EINVAL a bad range, -EFAULT no such memory, -ENOMEM, -ENOSPC no
	 * addresses are left, -ENODEV the device is gone.
	 */
	int (*map)(struct pl_nvme_transport *t, const struct pl_nvme_region *region,
		   const struct pl_nvme_mapping **out);

	/* Undo map(). The driver has seen to it that no command uses the memory. Works if it is gone. */
	void (*unmap)(struct pl_nvme_transport *t, const struct pl_nvme_mapping *mapping);

	/*
	 * Host memory for queues and lists: zeroed, page-aligned, mapped, as contiguous for the
	 * controller as can be had (contiguity is seen in pages[]). -ENOMEM, -ENOSPC, -ENODEV.
	 */
	int (*alloc)(struct pl_nvme_transport *t, size_t bytes, const struct pl_nvme_mapping **out);

	/* Undo alloc(). */
	void (*free)(struct pl_nvme_transport *t, const struct pl_nvme_mapping *mapping);

	/* Has the device been removed? Registers then read as all ones, or must not be touched. */
	bool (*gone)(struct pl_nvme_transport *t);

	/*
	 * Another window, for a controller memory buffer: BAR @index, 0 or 2 to 5, write-combining
	 * where that is possible. It lives until close(). NULL, or -EOPNOTSUPP, -ENODEV: there is none.
	 */
	int (*window)(struct pl_nvme_transport *t, unsigned int index, struct pl_nvme_window *out);

	/*
	 * Reset the device from outside (function-level reset): the last means when it does not stop
	 * by itself. Mappings stay. NULL or -EOPNOTSUPP: not possible.
	 */
	int (*reset)(struct pl_nvme_transport *t);

	/*
	 * Has the device been stopped from outside, because memory of a GPU that is mapped went away? Then it
	 * reaches no memory before reset(), and which mappings of GPU memory are still good is not known.
	 * NULL: that does not happen here.
	 */
	bool (*stopped)(struct pl_nvme_transport *t);

	/*
	 * Called again and again while the driver waits, so that a controller which runs in the same
	 * thread gets its turn. Must not call the driver. NULL: the driver yields the CPU instead.
	 */
	void (*idle)(struct pl_nvme_transport *t);

	/* Nanoseconds, for a transport that keeps its own time. NULL: CLOCK_MONOTONIC. */
	uint64_t (*now_ns)(struct pl_nvme_transport *t);
};

/**
 * pl_nvme_transport_open() - open a controller by "TRANSPORT:ADDRESS"
 * @address: such as "sim:disk0"
 * @out: receives the transport, to be closed by its ops->close()
 *
 * Return: 0; -EINVAL no such transport or form; what open() returned.
 */
int pl_nvme_transport_open(const char *address, struct pl_nvme_transport **out);

#endif
