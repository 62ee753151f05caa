/* SPDX-License-Identifier: MIT */
/*
 * The contract between peerlane_nvme.ko and user space: /dev/peerlane-nvmeN.
 *
 * What it is for: a program drives an NVMe controller itself. The module gives it the registers, and
 * addresses under which the controller reaches memory: of the program, of a GPU, or allocated for
 * queues. It knows nothing of queues and commands; there is no call per transfer.
 *
 *	fd = open("/dev/peerlane-nvme0", O_RDWR | O_CLOEXEC);
 *	ioctl(fd, PEERLANE_NVMEDEV_IOC_HELLO, &hello);	first of all, once per open file
 *	ioctl(fd, PEERLANE_NVMEDEV_IOC_INFO, &info);	sizes of the windows
 *	regs = mmap(NULL, info.bars[0].bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
 *	ioctl(fd, PEERLANE_NVMEDEV_IOC_MAP, &map);		memory -> addresses, and a handle
 *	ioctl(fd, PEERLANE_NVMEDEV_IOC_UNMAP, &unmap);	or just close(fd)
 *
 * WHO MAY OPEN IT CAN READ AND WRITE THE WHOLE DRIVE. If no IOMMU translates what the controller
 * addresses, it can also make the controller read and write any memory of the machine; then only
 * a process with CAP_SYS_RAWIO can open it.
 *
 * Rules that hold everywhere:
 * - One open file at a time; a second open() fails with -EBUSY.
 * - Every struct has a fixed size and no hidden padding. Reserved members and unknown flags must be
 *   zero, or the call fails with -EINVAL. Outputs are written only when the call succeeds.
 * - Before a successful HELLO, every other call and mmap() fail with -EPROTO.
 * - The controller is disabled when the file is opened, and again when it is closed or the process
 *   dies: first the controller stops, then its mappings go. So no transfer hits memory that
 *   belongs to somebody else by then.
 *
 * Memory of a GPU that goes away (it is freed, its owner dies) while it is mapped: the controller is
 * disabled and cut off from memory (%PEERLANE_NVMEDEV_STOPPED), then the memory goes. Other mappings
 * stay. PEERLANE_NVMEDEV_IOC_RESET lets the controller work again. To unpin memory that is mapped
 * waits for the mapping's end; unmap first.
 *
 * The device goes away (unplugged, or taken by another driver): every call fails with -ENODEV, and
 * registers read as all ones, writes to them go nowhere. Memory from %PEERLANE_NVMEDEV_ALLOC stays
 * readable and writable for the program until it is unmapped.
 */
#ifndef UAPI_PEERLANE_NVME_H
#define UAPI_PEERLANE_NVME_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Version of this contract. Numbers are never reused; a struct never changes its size. */
#define PEERLANE_NVMEDEV_UAPI_VERSION 1

/**
 * struct peerlane_nvmedev_hello - say which contract one knows
 * @version: in: of the caller; out: of the module
 * @reserved: zero
 *
 * Fails with -EPROTO when the version is not the module's; @version is written all the same.
 */
struct peerlane_nvmedev_hello {
	__u32 version;
	__u32 reserved[7];
};

/* Flags, for peerlane_nvmedev_info.flags. */
#define PEERLANE_NVMEDEV_TRANSLATED                                                                \
	(1U << 0)			   /* an IOMMU translates what the controller addresses */
#define PEERLANE_NVMEDEV_STOPPED (1U << 1) /* stopped: GPU memory went away, or sleep; see RESET */

/**
 * struct peerlane_nvmedev_bar - a window of the device
 * @bytes: that can be mapped, beginning at its start; 0: none
 * @bus: its address on the bus
 */
struct peerlane_nvmedev_bar {
	__u64 bytes;
	__u64 bus;
};

/* Offset for mmap() of the start of BAR @i: uncached, shared, not executable. */
#define PEERLANE_NVMEDEV_BAR_OFFSET(i) ((__u64)(i) << 36)

/**
 * struct peerlane_nvmedev_info - what the device is
 * @pci: out: PCI address: domain << 16 | bus << 8 | device << 3 | function
 * @flags: out: PEERLANE_NVMEDEV_TRANSLATED, _STOPPED
 * @max_map_bytes: out: most that one MAP can map
 * @max_alloc_bytes: out: most that one MAP can allocate
 * @max_mappings: out: mappings there may be at a time
 * @nr_mappings: out: there are now
 * @bars: out: windows; of BAR 0 the part before the interrupt table if that lies in it
 * @reserved: zero
 */
struct peerlane_nvmedev_info {
	__u32 pci;
	__u32 flags;
	__u64 max_map_bytes;
	__u64 max_alloc_bytes;
	__u32 max_mappings;
	__u32 nr_mappings;
	struct peerlane_nvmedev_bar bars[6];
	__u64 reserved[4];
};

/* Kinds of memory, for peerlane_nvmedev_map.kind. */
#define PEERLANE_NVMEDEV_HOST 1	 /* of the caller; it must be writable and is counted as locked */
#define PEERLANE_NVMEDEV_GPU 2	 /* pinned by a /dev/peerlane */
#define PEERLANE_NVMEDEV_ALLOC 3 /* new and zeroed, in as few pieces as can be had; mmap() it */

/**
 * struct peerlane_nvmedev_map - let the controller read and write memory
 * @kind: in: PEERLANE_NVMEDEV_HOST, _GPU or _ALLOC
 * @flags: in: zero
 * @address: in: HOST: of the memory, any alignment; else zero
 * @bytes: in: how much, not 0
 * @fd: in: GPU: descriptor of a /dev/peerlane; else zero
 * @pin: in: GPU: handle of a pin of it; else zero
 * @pin_offset: in: GPU: where the memory begins, from the address that was pinned; else zero
 * @bus: in: address of an array of __u64 that receives the address of each page
 * @nr_room: in: how many fit
 * @nr_pages: out: how many there are
 * @page_bytes: out: size of a page: 4096; 65536 of a GPU
 * @handle: out: its number; never 0
 * @first: out: where in the first page the memory begins
 * @map_offset: out: ALLOC: offset to give to mmap(); else zero
 * @reserved: zero
 *
 * The addresses are multiples of @page_bytes. The same memory may be mapped several times.
 *
 * Fails with -EINVAL (an argument; @nr_room too small; a range outside of the pin), -E2BIG (too
 * much at a time), -ENOSPC (too many mappings), -EFAULT (no such memory, or not writable), -ENOMEM
 * (also: more locked memory than RLIMIT_MEMLOCK allows), -EBADF or -ENOENT (no such /dev/peerlane or pin),
 * -EOPNOTSUPP (transfers would be bounced, or the kernel does not let this controller reach this
 * GPU), -ENODEV (the device or the GPU memory is gone), -EIO.
 */
struct peerlane_nvmedev_map {
	__u32 kind;
	__u32 flags;
	__u64 address;
	__u64 bytes;
	__s32 fd;
	__u32 pin;
	__u64 pin_offset;
	__u64 bus;
	__u32 nr_room;
	__u32 nr_pages;
	__u32 page_bytes;
	__u32 handle;
	__u64 first;
	__u64 map_offset;
	__u64 reserved[4];
};

/**
 * struct peerlane_nvmedev_unmap - undo MAP
 * @handle: in: from MAP
 * @flags: in: zero
 * @reserved: zero
 *
 * The caller sees to it before that no command uses the memory. Fails with -ENOENT (no such handle).
 * Works when the device is gone.
 */
struct peerlane_nvmedev_unmap {
	__u32 handle;
	__u32 flags;
	__u64 reserved[2];
};

#define PEERLANE_NVMEDEV_IOC_MAGIC 0xE9
#define PEERLANE_NVMEDEV_IOC_HELLO                                                                 \
	_IOWR(PEERLANE_NVMEDEV_IOC_MAGIC, 32, struct peerlane_nvmedev_hello)
#define PEERLANE_NVMEDEV_IOC_INFO                                                                  \
	_IOWR(PEERLANE_NVMEDEV_IOC_MAGIC, 33, struct peerlane_nvmedev_info)
#define PEERLANE_NVMEDEV_IOC_MAP _IOWR(PEERLANE_NVMEDEV_IOC_MAGIC, 34, struct peerlane_nvmedev_map)
#define PEERLANE_NVMEDEV_IOC_UNMAP                                                                 \
	_IOW(PEERLANE_NVMEDEV_IOC_MAGIC, 35, struct peerlane_nvmedev_unmap)
/*
 * Disable the controller, reset the function where it can do that, and let it reach its memory
 * again. Mappings stay. Fails with -ENODEV, -EAGAIN (the device is being taken away), -EIO (it does not
 * stop).
 */
#define PEERLANE_NVMEDEV_IOC_RESET _IO(PEERLANE_NVMEDEV_IOC_MAGIC, 36)

#endif
