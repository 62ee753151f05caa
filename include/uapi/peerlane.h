/* SPDX-License-Identifier: MIT */
/*
 * The contract between peerlane.ko and user space: /dev/peerlane.
 *
 * What it is for: GPU memory is pinned, gets page structures, and is mapped into the process. After
 * that every ordinary O_DIRECT read or write whose buffer lies in that mapping makes the unmodified
 * NVMe driver move the data by DMA between the drive and the GPU. There is no call per transfer.
 *
 *	fd = open("/dev/peerlane", O_RDWR | O_CLOEXEC);
 *	ioctl(fd, PEERLANE_IOC_HELLO, &hello);		first of all, once per open file
 *	ioctl(fd, PEERLANE_IOC_PIN, &pin);		GPU address and length -> handle
 *	p = mmap(NULL, pin.map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, pin.map_offset);
 *	ioctl(fd, PEERLANE_IOC_ROUTE, &route);		may this drive reach this GPU?
 *	pread(file, p + pin.skip_bytes, n, offset);	O_DIRECT: straight into the GPU
 *	munmap(p, pin.map_bytes);
 *	ioctl(fd, PEERLANE_IOC_UNPIN, &unpin);		or just close(fd)
 *
 * Rules that hold everywhere:
 * - Every struct has a fixed size and no hidden padding. Reserved members and unknown flags must be
 *   zero, or the call fails with -EINVAL. Outputs are written only when the call succeeds, unless
 *   it says otherwise.
 * - A handle belongs to the open file that made it; on another one it does not exist (-ENOENT).
 *   Handles are small numbers, 0 is never one, and they are not reused soon. Closing the last
 *   descriptor of the file (after the last mapping is gone) releases what is left.
 * - Before a successful HELLO, every other call and mmap() fail with -EPROTO.
 * - Errors are negative errno values as usual: ioctl() returns -1 and sets errno.
 *
 * Mapping. Only MAP_SHARED, without PROT_EXEC. Any page-aligned part of [map_offset, map_offset +
 * map_bytes) may be mapped, more than once, by threads of any process that has the descriptor. A
 * mapping is not inherited by fork(), does not appear in core dumps, cannot grow, may be moved by
 * mremap() and unmapped in parts. munmap() during I/O is safe: the memory stays until the
 * device is done with it.
 *
 * Memory that goes away. When the program frees the memory, or dies, the handle is revoked: mappings
 * are emptied, access through them raises SIGBUS, I/O into them fails with EFAULT, INFO says
 * %PEERLANE_INFO_REVOKED, and UNPIN still frees the handle. Freeing does not wait for DMA under way;
 * the module keeps the memory until that has ended.
 *
 * Not possible, by design: long-term pins that write to the mapping (io_uring registered buffers, RDMA
 * memory regions, VFIO). They fail with EFAULT, EOPNOTSUPP or EREMOTEIO, depending on kernel and kind of
 * pages, because memory pinned without an end would be lost to the GPU.
 */
#ifndef UAPI_PEERLANE_H
#define UAPI_PEERLANE_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Version of this contract. Numbers are never reused; a struct never changes its size. */
#define PEERLANE_UAPI_VERSION 1
/* The oldest version that a user of this header, or a module built from it, still understands. */
#define PEERLANE_UAPI_OLDEST 1

/* Features, for peerlane_hello.features. */
/* Pages of kind %PEERLANE_PAGES_GENERIC can be made. */
#define PEERLANE_FEATURE_GENERIC (1ULL << 0)
/* Pages of kind %PEERLANE_PAGES_P2PDMA can be made: the kernel has CONFIG_PCI_P2PDMA. */
#define PEERLANE_FEATURE_P2PDMA (1ULL << 1)
/* At least one provider of GPU memory is there now. */
#define PEERLANE_FEATURE_PROVIDER (1ULL << 2)
/* A provider has persistent pins. Without them nothing can be pinned: PIN fails with -EOPNOTSUPP. */
#define PEERLANE_FEATURE_PERSISTENT (1ULL << 3)
/* PEERLANE_IOC_ROUTE can tell that transfers would be bounced (swiotlb). */
#define PEERLANE_FEATURE_SWIOTLB_KNOWN (1ULL << 4)
/* PEERLANE_IOC_ROUTE takes the RDMA adapter of a drive that is reached by a network. */
#define PEERLANE_FEATURE_ADAPTER (1ULL << 5)

/**
 * struct peerlane_hello - say who one is and learn who the other is
 * @version: in: newest version the caller knows; out: newest the module knows
 * @oldest: in: oldest version the caller accepts; out: oldest the module accepts
 * @features: in: features the caller cannot do without; out: all that the module has
 * @max_pin_bytes: out: longest range one pin may have
 * @max_pins: out: handles one open file may have at a time
 * @nr_providers: out: providers of GPU memory there are now
 * @reserved: zero
 *
 * Both then speak the smaller of the two versions. May be repeated, to see new features.
 *
 * Fails with -EPROTO when the versions have nothing in common and with -EOPNOTSUPP when a wanted
 * feature is missing. In both cases @version, @oldest and @features are written all the same, so
 * that the caller can say what is wrong.
 */
struct peerlane_hello {
	__u32 version;
	__u32 oldest;
	__u64 features;
	__u64 max_pin_bytes;
	__u32 max_pins;
	__u32 nr_providers;
	__u64 reserved[4];
};

/* Kinds of pages a handle has. */
/* Ordinary device pages: no check by the kernel that the drive can reach the GPU. */
#define PEERLANE_PAGES_GENERIC 1
/* PCI peer-to-peer pages: the kernel checks each transfer and refuses one that cannot work. */
#define PEERLANE_PAGES_P2PDMA 2
/* The same, but made by the driver of the GPU and only used here. */
#define PEERLANE_PAGES_FOREIGN 3

/* Flags of a pin. */
/*
 * The memory stays pinned, and mapped, until UNPIN or close even if the program frees it first. Without
 * this flag freeing it revokes the handle.
 */
#define PEERLANE_PIN_PERSISTENT (1U << 0)
/* CPU stores through the mapping are combined (fast, weakly ordered); otherwise uncached. */
#define PEERLANE_PIN_WRITE_COMBINE (1U << 1)
#define PEERLANE_PIN_FLAGS (PEERLANE_PIN_PERSISTENT | PEERLANE_PIN_WRITE_COMBINE)

/**
 * struct peerlane_pin - pin GPU memory
 * @address: in: GPU virtual address, any alignment
 * @length: in: bytes, not 0
 * @flags: in: PEERLANE_PIN_*
 * @handle: out: its number
 * @map_offset: out: offset to give to mmap() for the first mapped byte
 * @map_bytes: out: bytes that can be mapped: the range rounded out to GPU pages
 * @skip_bytes: out: where @address lies in the mapping; its alignment in the mapping is that of
 *	@address in a GPU page, so 512-byte aligned addresses stay so
 * @gpu_page_bytes: out: size of a GPU page, 65536
 * @page_kind: out: PEERLANE_PAGES_*
 * @gpu_pci: out: PCI address of the GPU: domain << 16 | bus << 8 | device << 3 | function, of the
 *	domain its lower 16 bits
 * @provider: out: number of the provider that pinned it
 * @gpu_domain_high: out: the upper 16 bits of the domain; zero before the call, as older modules
 *	insist
 * @reserved: zero
 *
 * The pages at both ends may belong to other allocations of the same program: do not touch bytes
 * outside the range.
 *
 * Fails with -EINVAL (bad flags or range; not GPU memory of this process; a range across
 * allocations), -ENODEV (no provider; or the memory was freed meanwhile), -EOPNOTSUPP (no provider
 * can pin this, or in this way), -ENOSPC (max_pins reached), -E2BIG (longer than max_pin_bytes),
 * -ENOMEM, -EBUSY (no page structures because something else uses the GPU's address range in a way
 * that conflicts), -EINTR, or what the GPU's driver answers.
 */
struct peerlane_pin {
	__u64 address;
	__u64 length;
	__u32 flags;
	__u32 handle;
	__u64 map_offset;
	__u64 map_bytes;
	__u64 skip_bytes;
	__u32 gpu_page_bytes;
	__u32 page_kind;
	__u32 gpu_pci;
	__u32 provider;
	__u32 gpu_domain_high;
	__u32 reserved[7];
};

/**
 * struct peerlane_unpin - give a handle up
 * @handle: in: from PIN
 * @flags: in: zero
 * @reserved: zero
 *
 * Mappings are emptied (access raises SIGBUS), I/O under way is waited for, up to the module's
 * parameter unpin_wait_ms, then the memory goes back to the GPU's driver.
 *
 * Fails with -ENOENT (no such handle). -EINPROGRESS: the handle is gone, but a device still works on
 * the memory; the module keeps it until the device is done, and releases it then by itself.
 */
struct peerlane_unpin {
	__u32 handle;
	__u32 flags;
	__u64 reserved[2];
};

/**
 * struct peerlane_list - the handles of this open file
 * @handles: in: address of an array of __u32 to fill, or 0
 * @nr_room: in: how many fit
 * @nr_handles: out: how many there are, also when they did not all fit
 * @reserved: zero
 *
 * Writes at most @nr_room handles, in rising order. Not all fitting is not an error: compare the
 * two numbers.
 */
struct peerlane_list {
	__u64 handles;
	__u32 nr_room;
	__u32 nr_handles;
	__u64 reserved[2];
};

/* State, for peerlane_info.state. */
#define PEERLANE_INFO_REVOKED (1U << 0)

/**
 * struct peerlane_info - what a handle is
 * @handle: in: from PIN
 * @state: out: PEERLANE_INFO_*
 * @physical: in: address of an array of __u64 for the physical address of each GPU page, or 0
 * @nr_room: in: how many fit
 * @nr_pages: out: how many GPU pages there are
 * @address: out: as given to PIN
 * @length: out: as given to PIN
 * @map_offset: out: as from PIN
 * @map_bytes: out: as from PIN
 * @skip_bytes: out: as from PIN
 * @flags: out: as given to PIN
 * @page_kind: out: PEERLANE_PAGES_*
 * @gpu_pci: out: as from PIN
 * @gpu_page_bytes: out: as from PIN
 * @nr_mappings: out: mappings there are of it now
 * @nr_runs: out: pieces of contiguous physical memory it consists of
 * @gpu_domain_high: out: as from PIN
 * @reserved: zero
 *
 * Fails with -ENOENT; -EPERM: @physical was not 0 and the caller has not CAP_SYS_RAWIO;
 * -ENODEV: @physical was not 0 and the handle is revoked.
 */
struct peerlane_info {
	__u32 handle;
	__u32 state;
	__u64 physical;
	__u32 nr_room;
	__u32 nr_pages;
	__u64 address;
	__u64 length;
	__u64 map_offset;
	__u64 map_bytes;
	__u64 skip_bytes;
	__u32 flags;
	__u32 page_kind;
	__u32 gpu_pci;
	__u32 gpu_page_bytes;
	__u32 nr_mappings;
	__u32 nr_runs;
	__u32 gpu_domain_high;
	__u32 reserved[7];
};

/* Verdicts, for peerlane_route.verdict. */
/* Transfers will fail, or would not be direct: use another path. */
#define PEERLANE_ROUTE_NO 0
/* Transfers go directly, but nothing vouches that the hardware carries them: test before use. */
#define PEERLANE_ROUTE_TEST 1
/* The kernel vouches for it. */
#define PEERLANE_ROUTE_YES 2

/* Reasons, for peerlane_route.reason. Those up to 15 go with YES or TEST, the others with NO. */
#define PEERLANE_REASON_SWITCH 1      /* both below one PCIe switch */
#define PEERLANE_REASON_HOST_BRIDGE 2 /* through the host bridge */
#define PEERLANE_REASON_ACS 3	      /* one switch, but ACS sends it up through the host bridge */
#define PEERLANE_REASON_NO_DEVICE                                                                  \
	16			    /* the file has no single block device (btrfs, NFS, tmpfs...) */
#define PEERLANE_REASON_VIRTUAL 17  /* md, dm, loop: ask for each member instead */
#define PEERLANE_REASON_NOT_PCI 18  /* a real device, but not on PCI; no adapter was named */
#define PEERLANE_REASON_TOPOLOGY 19 /* P2PDMA pages: the kernel does not allow this pair */
#define PEERLANE_REASON_QUEUE 20    /* P2PDMA pages: the block device's queue does not take them */
#define PEERLANE_REASON_SWIOTLB 21  /* transfers of this device are bounced (swiotlb=force) */
#define PEERLANE_REASON_DMA_MASK 22 /* the device cannot address the GPU's memory: bounced */
#define PEERLANE_REASON_REVOKED 23  /* the handle's memory is gone */

/* Flags, for peerlane_route.flags. */
#define PEERLANE_ROUTE_IOMMU (1U << 0)	    /* the device is behind an IOMMU */
#define PEERLANE_ROUTE_TRANSLATED (1U << 1) /* ...that translates its addresses */

/**
 * struct peerlane_route - may the drive below a file reach the GPU memory of a handle?
 * @handle: in: from PIN
 * @fd: in: descriptor of a file, or of a block device
 * @verdict: out: PEERLANE_ROUTE_*
 * @reason: out: PEERLANE_REASON_*
 * @flags: out: PEERLANE_ROUTE_IOMMU and _TRANSLATED
 * @distance: out: PCI hops between the two as pci_p2pdma_distance() counts them, or -1
 * @gpu_pci: out: PCI address of the GPU, as in struct peerlane_pin
 * @device_pci: out: PCI address of the block device's controller, or of its adapter; 0 if none
 * @device_major: out: number of the block device that was looked at, 0 if none
 * @device_minor: out: likewise
 * @gpu_domain_high: out: as from PIN
 * @device_domain_high: out: likewise of the device
 * @adapter_pci: in: PCI address of the RDMA adapter by which an NVMe drive on a network is reached, as
 *	in struct peerlane_pin; only with %PEERLANE_FEATURE_ADAPTER
 * @adapter_domain_high: in: the upper 16 bits of its domain; both 0: none
 * @reserved: zero
 *
 * Which adapter reaches a drive only the caller can find out: the kernel's block devices do not say. The
 * answer is then that for the adapter. It is not used for drives that are on PCI themselves, for
 * devices that are not NVMe, or where there is no RDMA adapter at that address.
 *
 * A verdict of NO is a successful call. Of an NVMe drive with several paths (multipath) all are
 * looked at, and the answer is that of the worst. For a stacked device (reason VIRTUAL) open each member
 * found in /sys/block/NAME/slaves and ask again. The answer can be kept as long as the handle lives.
 *
 * Fails with -ENOENT (no such handle) or -EBADF.
 */
struct peerlane_route {
	__u32 handle;
	__s32 fd;
	__u32 verdict;
	__u32 reason;
	__u32 flags;
	__s32 distance;
	__u32 gpu_pci;
	__u32 device_pci;
	__u32 device_major;
	__u32 device_minor;
	__u32 gpu_domain_high;
	__u32 device_domain_high;
	__u32 adapter_pci;
	__u32 adapter_domain_high;
	__u64 reserved[2];
};

/**
 * struct peerlane_counters - what the module holds now, and what it did since it was loaded
 * @files: now: open files that said HELLO or not
 * @pins: now: pins that hold memory, dead ones that wait for a device included
 * @pinned_bytes: now: GPU memory in them
 * @mappings: now: mappings (pieces of address space)
 * @lingering: now: pins that were given up, or whose memory was freed, and that wait until a device is done
 * @page_bytes: now: GPU address space that has page structures of ours
 * @nr_pin: so far: successful pins
 * @nr_pin_failed: so far: failed pins
 * @nr_unpin: so far: pins given back to the provider
 * @nr_revoke: so far: pins whose memory was freed first
 * @nr_mmap: so far: successful mmap() calls
 * @nr_fault: so far: faults that put a page into a mapping
 * @nr_sigbus: so far: faults that were refused
 * @nr_overdue: so far: pins that lingered for longer than the module's parameter overdue_ms
 * @uses: now: parts of pins that a controller driven by a program (/dev/peerlane-nvmeN) can reach
 * @reserved: zero
 *
 * The same for every caller and for the whole module, not only for this open file.
 */
struct peerlane_counters {
	__u64 files;
	__u64 pins;
	__u64 pinned_bytes;
	__u64 mappings;
	__u64 lingering;
	__u64 page_bytes;
	__u64 nr_pin;
	__u64 nr_pin_failed;
	__u64 nr_unpin;
	__u64 nr_revoke;
	__u64 nr_mmap;
	__u64 nr_fault;
	__u64 nr_sigbus;
	__u64 nr_overdue;
	__u64 uses;
	__u64 reserved[9];
};

#define PEERLANE_IOC_MAGIC 0xE9
#define PEERLANE_IOC_HELLO _IOWR(PEERLANE_IOC_MAGIC, 1, struct peerlane_hello)
#define PEERLANE_IOC_PIN _IOWR(PEERLANE_IOC_MAGIC, 2, struct peerlane_pin)
#define PEERLANE_IOC_UNPIN _IOW(PEERLANE_IOC_MAGIC, 3, struct peerlane_unpin)
#define PEERLANE_IOC_LIST _IOWR(PEERLANE_IOC_MAGIC, 4, struct peerlane_list)
#define PEERLANE_IOC_INFO _IOWR(PEERLANE_IOC_MAGIC, 5, struct peerlane_info)
#define PEERLANE_IOC_ROUTE _IOWR(PEERLANE_IOC_MAGIC, 6, struct peerlane_route)
#define PEERLANE_IOC_COUNTERS _IOR(PEERLANE_IOC_MAGIC, 7, struct peerlane_counters)

#endif
