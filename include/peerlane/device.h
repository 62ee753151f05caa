/* SPDX-License-Identifier: MIT */
/*
 * The host side of I/O that kernels start themselves: queue pairs for peerlane/device/queue.h, and
 * somebody who serves them.
 *
 * A device is a set of struct pld_queue. NVMe controllers serve them, or proxies: threads of this
 * process that carry the commands out on files, or play a drive for measurements. Kernels cannot tell
 * which. They run on a GPU if the device was opened with a context of the back end "cuda"; else they are
 * threads of the CPU (peerlane_cpu_run()), and everything lies in plain memory. Functions
 * return 0 or a negative errno, and peerlane_error() has the words; nothing sets errno. Any thread may call
 * them, but for close, which is the last. Not for use in a forked child.
 */
#ifndef PEERLANE_DEVICE_H
#define PEERLANE_DEVICE_H

#include <peerlane/nvme.h>
#include <peerlane/peerlane.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pld_dma;
struct pld_queue;
struct peerlane_device;
struct peerlane_device_map;

/* Who serves the queues. */
enum peerlane_device_server {
	PEERLANE_DEVICE_NVME,	 /* NVMe controllers, real ones or that of "sim:" */
	PEERLANE_DEVICE_FILES,	 /* proxies, from files */
	PEERLANE_DEVICE_MEMORY,	 /* proxies, from host memory: an emulated drive */
	PEERLANE_DEVICE_INSTANT, /* proxies that complete everything and move nothing: emulated */
};

/* Flags of struct peerlane_device_options. */
#define PEERLANE_DEVICE_BOUNCE 0x1u /* NVMe: data go by way of host memory; proxies always do so */

/**
 * struct peerlane_device_options - how the queues are made; all zero means defaults
 * @size: sizeof(struct peerlane_device_options)
 * @flags: PEERLANE_DEVICE_*
 * @ctx: on the back end "cuda": kernels run on its GPU @gpu; NULL or another back end: on the CPU. It
 *       must outlive the device
 * @gpu: ordinal
 * @nr_queues: queue pairs (default 1); NVMe: of all controllers together, as many for each
 * @depth: entries of each ring, a power of two from 2 to 32768 (default 64)
 * @ports_per_queue: ports of a queue (default 1)
 * @slots_per_port: command slots of a port, 1 to 64 (default as many as there can be); those of all ports
 *                  of a queue are fewer than @depth
 * @max_transfer_bytes: most bytes of one command (default 4096): 512, 1024, 2048 or a multiple of 4096, up
 *                      to 2 MiB; so large is the host memory of each slot
 * @nr_threads: proxies (default 1), never more than queues
 * @block_bytes: of proxies: a power of two from 512 to 4096 (default 512)
 * @rings: NVMe: pinned memory of the GPU for the queues, peerlane_device_rings_bytes() of it, aligned to
 *         64 KiB; kernels on the CPU need its @cpu. NULL: the queues lie in host memory
 */
struct peerlane_device_options {
	size_t size;
	unsigned int flags;
	struct peerlane *ctx;
	int gpu;
	unsigned int nr_queues;
	unsigned int depth;
	unsigned int ports_per_queue;
	unsigned int slots_per_port;
	size_t max_transfer_bytes;
	unsigned int nr_threads;
	unsigned int block_bytes;
	const struct peerlane_nvme_memory *rings;
};

/**
 * peerlane_device_open_nvme() - queues that NVMe controllers serve
 * @out: receives the device
 * @opt: options, or NULL for defaults
 * @controllers: opened with PEERLANE_NVME_NO_DBBUF; they stay the caller's and must outlive the device
 * @nr: how many
 * @nsid: namespace of each that peerlane_device_get_space() tells of
 *
 * Queue i is one of controller i % @nr. The GPU rings the doorbells itself: CUDA must be able to map the
 * registers of the controllers.
 *
 * Return: 0; -EINVAL; -EOPNOTSUPP shadow doorbells are in use, pages are larger than 4096 bytes, or
 * CUDA cannot map the registers; -ENOSPC a
 * controller has fewer queues; -ENOMEM; -EREMOTEIO the GPU driver failed; else as
 * peerlane_nvme_queue_create(), peerlane_nvme_ns_open().
 */
int peerlane_device_open_nvme(struct peerlane_device **out,
			      const struct peerlane_device_options *opt,
			      struct peerlane_nvme *const *controllers, unsigned int nr,
			      uint32_t nsid);

/**
 * peerlane_device_open_files() - queues that threads serve from files
 * @out: receives the device
 * @opt: options, or NULL for defaults
 * @fds: open files or block devices, whose descriptors are duplicated; file i is namespace i + 1
 * @nr: how many
 *
 * Needs no privileges. A file is as long as it is now; the missing part of its last block reads as zero,
 * and writing that block makes the file longer. What is in the page cache is taken from there, all else by
 * io_uring, with O_DIRECT where the descriptor has it.
 *
 * Return: 0; -EINVAL; -EBADF a descriptor is not open, or not for reading; -EOPNOTSUPP not a file or block
 * device; -ENOMEM; -EAGAIN no more threads; -EREMOTEIO the GPU driver failed.
 */
int peerlane_device_open_files(struct peerlane_device **out,
			       const struct peerlane_device_options *opt, const int *fds,
			       unsigned int nr);

/**
 * peerlane_device_open_memory() - an emulated drive whose blocks lie in host memory
 * @out: receives the device
 * @opt: options, or NULL for defaults
 * @bytes: of namespace 1, a multiple of the block size
 * @memory: receives where they are, zeroed; the caller may fill them while no kernel runs. May be NULL
 *
 * A completion says where the data lie, and those who read them fetch them from there
 * (PLD_RESULT_PLACE): they cross the bus once, by the GPU, and no CPU copies them. Written data are copied
 * by the proxies.
 *
 * Return: as peerlane_device_open_files().
 */
int peerlane_device_open_memory(struct peerlane_device **out,
				const struct peerlane_device_options *opt, size_t bytes,
				void **memory);

/**
 * peerlane_device_open_instant() - an emulated drive that moves nothing
 * @out: receives the device
 * @opt: options, or NULL for defaults
 *
 * Every command succeeds at once. What a read brings is undefined. Measures the queues alone.
 *
 * Return: as peerlane_device_open_files().
 */
int peerlane_device_open_instant(struct peerlane_device **out,
				 const struct peerlane_device_options *opt);

/**
 * peerlane_device_rings_bytes() - memory that the rings of a device need
 * @opt: options, or NULL for defaults
 *
 * Return: bytes, for @rings of the options.
 */
size_t peerlane_device_rings_bytes(const struct peerlane_device_options *opt);

/**
 * peerlane_device_close() - end the service, and free all
 * @dev: device, or NULL
 *
 * Commands that are outstanding end first. Maps that are left are unmapped.
 *
 * Context: no kernel may use the queues any more.
 */
void peerlane_device_close(struct peerlane_device *dev);

/**
 * struct peerlane_device_info - what kernels need to know of a device
 * @size: sizeof(struct peerlane_device_info), set by the caller
 * @server: who serves it
 * @emulated: not 0: it is no real storage, and its speed that of an emulation
 * @on_gpu: not 0: kernels run on the GPU, and @queues is an address of its memory
 * @has_bounce: not 0: data go by way of host memory, and I/O needs no struct pld_dma
 * @queues: the queues, for kernels
 * @nr_queues: how many
 * @nr_controllers: queue i is one of controller i % @nr_controllers; 1 for proxies
 * @depth: of each ring
 * @ports_per_queue: ports of each queue
 * @slots_per_port: slots of each port
 * @max_transfer_bytes: most bytes of one command
 * @page_bytes: page size of PRPs
 * @nr_spaces: spaces that peerlane_device_get_space() tells of
 * @nr_threads: proxies; 0 for controllers
 */
struct peerlane_device_info {
	size_t size;
	enum peerlane_device_server server;
	uint8_t emulated;
	uint8_t on_gpu;
	uint8_t has_bounce;
	struct pld_queue *queues;
	uint32_t nr_queues;
	uint32_t nr_controllers;
	uint32_t depth;
	uint32_t ports_per_queue;
	uint32_t slots_per_port;
	uint32_t max_transfer_bytes;
	uint32_t page_bytes;
	uint32_t nr_spaces;
	uint32_t nr_threads;
};

/**
 * peerlane_device_get_info() - what kernels need to know of a device
 * @dev: device
 * @info: @size set by the caller, the rest filled
 *
 * Return: 0; -EINVAL a size this library does not know.
 */
int peerlane_device_get_info(const struct peerlane_device *dev, struct peerlane_device_info *info);

/**
 * struct peerlane_device_space - a file or a namespace, as commands name it
 * @size: sizeof(struct peerlane_device_space), set by the caller
 * @controller: whose queues reach it
 * @nsid: its id in commands
 * @block_bytes: bytes of a block
 * @nr_blocks: how many
 * @read_only: not 0 if writing fails
 */
struct peerlane_device_space {
	size_t size;
	uint32_t controller;
	uint32_t nsid;
	uint32_t block_bytes;
	uint64_t nr_blocks;
	uint8_t read_only;
};

/**
 * peerlane_device_get_space() - what a file or namespace is
 * @dev: device
 * @index: which: the file, the controller, or 0
 * @space: @size set by the caller, the rest filled
 *
 * Return: 0; -EINVAL a size this library does not know; -ENXIO no such index.
 */
int peerlane_device_get_space(const struct peerlane_device *dev, unsigned int index,
			      struct peerlane_device_space *space);

/**
 * peerlane_device_map() - make memory reachable for all controllers, in pieces
 * @dev: device
 * @memory: of the GPU or of the host, for kernels; at a page
 * @piece_bytes: length of a piece, as @max_transfer_bytes of the options: one command reads or writes one
 *               piece or its beginning
 * @out: receives the map
 *
 * On a device with has_bounce nothing needs to be mapped; the call succeeds all the same.
 *
 * Return: 0; -EINVAL; -ENOMEM; -EREMOTEIO the GPU driver failed; else as peerlane_nvme_map().
 */
int peerlane_device_map(struct peerlane_device *dev, const struct peerlane_nvme_memory *memory,
			size_t piece_bytes, struct peerlane_device_map **out);

/**
 * peerlane_device_unmap() - undo peerlane_device_map()
 * @map: map, or NULL
 *
 * Context: no kernel and no outstanding command may use it; see peerlane_device_reset().
 */
void peerlane_device_unmap(struct peerlane_device_map *map);

/**
 * peerlane_device_map_dma() - where a controller finds the pieces of a map
 * @map: map
 * @controller: which
 *
 * Return: the table for struct pld_io, in memory of kernels: piece i is entry i; NULL if there is no such
 * controller, or on a device with has_bounce, where none is needed.
 */
const struct pld_dma *peerlane_device_map_dma(const struct peerlane_device_map *map,
					      unsigned int controller);

/**
 * peerlane_device_stop() - have all kernels end that wait for I/O
 * @dev: device
 *
 * The kill switch: waits return -ECANCELED unless their I/O ends first, also those that begin later,
 * until peerlane_device_reset(). A kernel that waits sees it within 50 ms. One that does I/O in a loop looks at the word
 * that stop of struct pld_queue points to, too, but seldom: it is in host memory. Does not wait for anybody.
 */
void peerlane_device_stop(struct peerlane_device *dev);

/**
 * peerlane_device_reset() - make the queues new, whatever the last kernel left
 * @dev: device
 *
 * After a kernel was killed, or gave commands up. Outstanding commands end first, or are aborted; then
 * nobody writes memory of theirs any more. The statistics go on.
 *
 * Context: no kernel may use the queues.
 *
 * Return: 0; else as opening, and the device is of no use but to be closed or reset again.
 */
int peerlane_device_reset(struct peerlane_device *dev);

/* In struct peerlane_device_stats: the server does not tell. */
#define PEERLANE_DEVICE_UNKNOWN UINT64_MAX

/**
 * struct peerlane_device_stats - what went through a queue since the device was opened
 * @size: sizeof(struct peerlane_device_stats), set by the caller
 * @commands: commands fetched; NVMe: completed, since the last reset, modulo 2^32
 * @bytes_read: by commands that succeeded; PEERLANE_DEVICE_UNKNOWN for NVMe and "instant"
 * @bytes_written: likewise
 * @errors: commands that failed; PEERLANE_DEVICE_UNKNOWN for NVMe
 * @cached: reads that came from the page cache at once; 0 for all but files
 * @bad_doorbells: doorbell values that no queue of this depth can have; 0 for NVMe
 * @bad_completions: completions that kernels found to make no sense, since the last reset
 */
struct peerlane_device_stats {
	size_t size;
	uint64_t commands;
	uint64_t bytes_read;
	uint64_t bytes_written;
	uint64_t errors;
	uint64_t cached;
	uint64_t bad_doorbells;
	uint64_t bad_completions;
};

/**
 * peerlane_device_get_stats() - what went through a queue
 * @dev: device
 * @queue: which
 * @stats: @size set by the caller, the rest filled
 *
 * Kernels may be running.
 *
 * Return: 0; -EINVAL a size this library does not know; -ENXIO no such queue; -EREMOTEIO the GPU driver
 * failed.
 */
int peerlane_device_get_stats(struct peerlane_device *dev, unsigned int queue,
			      struct peerlane_device_stats *stats);

/**
 * peerlane_device_describe() - who serves the queues and how data cross, in words
 * @dev: device
 * @text: receives lines of text
 * @bytes: room in @text
 *
 * Return: length of the whole text, which was cut if that is not less than @bytes.
 */
size_t peerlane_device_describe(const struct peerlane_device *dev, char *text, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
