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
 * WHO MAY OPEN IT CAN READ AND WRITE THE WHOLE DRIVE. It can also make the controller read and write
 * any address that the controller reaches. So only a process with CAP_SYS_RAWIO can open it, others get
 * -EPERM, unless the machine confines the controller to what was mapped for it. The attribute
 * peerlane_confined of the PCI device is "yes" then, or words for what is missing: "untranslated" no IOMMU
 * translates its addresses, "lazy" unmapped ones are forgotten late, "shared-group" its IOMMU group has
 * other devices, "interrupts" these are not remapped.
 *
 * Rules that hold everywhere:
 * - One open file at a time; a second open() fails with -EBUSY. Others get theirs by GRANT.
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
 * Sharing: GRANT makes a descriptor for another process, a client, which is passed over a Unix
 * socket. With it the client says HELLO, asks INFO, maps memory of its own, and has BAR 0: the first
 * 4096 bytes, the registers, for reading; what follows, the doorbells, also for writing. Queues are
 * the business of whoever opened the device, the owner. What a client has mapped does not end when
 * the client does: the controller may be writing there. It ends when the owner says by REVOKE that the
 * controller is done with it, or when the owner's own file is closed, which stops the controller
 * first. From then on the descriptor is as that of a device that is gone. When memory of a GPU goes away
 * that a client has mapped, the owner is asked first, by poll() and LEAVING, to revoke that client; so
 * the others go on. Only if it does not in time (leave_ms, a parameter of peerlane.ko: ten seconds) is the
 * controller stopped. Doorbells of several queues
 * share a page, and a client writes addresses into its queues that nobody checks: with a translating
 * IOMMU those of all that is mapped for the controller are possible, without one, all. So a client is
 * trusted as far as the device goes; what it does not get are registers, resets and admin commands.
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

/**
 * struct peerlane_nvmedev_grant - a descriptor for another process
 * @bar0_bytes: in: how much of BAR 0 it may map, rounded up to whole pages: registers, and doorbells of
 *              the queues there are; more than 4096
 * @flags: in: zero
 * @fd: out: the descriptor, closed on exec
 * @id: out: its number, for REVOKE; never 0
 * @reserved: zero
 *
 * Fails with -EINVAL (an argument; more than BAR 0 has), -ENOSPC (too many), -EMFILE, -ENOMEM, -ENODEV,
 * -EPERM (asked by a client), -EOPNOTSUPP (this machine's pages are larger than the registers).
 */
struct peerlane_nvmedev_grant {
	__u64 bar0_bytes;
	__u32 flags;
	__s32 fd;
	__u32 id;
	__u32 reserved[3];
};

/**
 * struct peerlane_nvmedev_revoke - end a descriptor that was granted, and all that it has mapped
 * @id: in: from GRANT
 * @flags: in: zero
 * @reserved: zero
 *
 * The owner has deleted the client's queues before, or disabled the controller. Whether the client still
 * has the descriptor open does not matter. Fails with -ENOENT (no such number), -EPERM (asked by a
 * client). Works when the device is gone.
 */
struct peerlane_nvmedev_revoke {
	__u32 id;
	__u32 flags;
	__u64 reserved[2];
};

/**
 * struct peerlane_nvmedev_leaving - who is to be revoked at once
 * @id: out: number of a client whose GPU memory goes away; 0: there is none
 * @reserved: zero
 *
 * While there is one, poll() of the owner's file says POLLPRI. Fails with -EPERM (asked by a client).
 */
struct peerlane_nvmedev_leaving {
	__u32 id;
	__u32 reserved[3];
};

#define PEERLANE_NVMEDEV_IOC_GRANT                                                                 \
	_IOWR(PEERLANE_NVMEDEV_IOC_MAGIC, 37, struct peerlane_nvmedev_grant)
#define PEERLANE_NVMEDEV_IOC_REVOKE                                                                \
	_IOW(PEERLANE_NVMEDEV_IOC_MAGIC, 38, struct peerlane_nvmedev_revoke)
#define PEERLANE_NVMEDEV_IOC_LEAVING                                                               \
	_IOWR(PEERLANE_NVMEDEV_IOC_MAGIC, 39, struct peerlane_nvmedev_leaving)

#endif
