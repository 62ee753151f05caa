/* SPDX-License-Identifier: MIT */
/*
 * Peerlane's user-space NVMe driver: blocks of a drive to and from host or GPU memory, without the
 * kernel in the data path.
 *
 * A program opens a controller, maps memory for it, creates queue pairs and submits I/O, whose
 * completions it polls. A queue pair, with all functions that take one, belongs to one thread at a time;
 * everything else may be used by any thread. Whoever opens a controller owns all of it: no kernel driver
 * and no other program has it meanwhile. Functions return 0, a count, or a negative errno; nothing sets
 * errno. Not for use in a forked child.
 */
#ifndef PEERLANE_NVME_H
#define PEERLANE_NVME_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <peerlane/nvme_spec.h>

#ifdef __cplusplus
extern "C" {
#endif

struct peerlane_nvme;
struct peerlane_nvme_ns;
struct peerlane_nvme_map;
struct peerlane_nvme_queue;

/* ------------------------------------------------------------------ controller */

/* Flags of struct peerlane_nvme_options. */
#define PEERLANE_NVME_NO_DBBUF 0x1u  /* no shadow doorbells, even where the controller has them */
#define PEERLANE_NVME_NO_EVENTS 0x2u /* do not ask for asynchronous events */

/**
 * struct peerlane_nvme_options - how a controller is opened; all zero means defaults
 * @size: sizeof(struct peerlane_nvme_options)
 * @flags: PEERLANE_NVME_NO_* bits
 * @nr_queues: I/O queue pairs to ask for (default 64); the controller may grant fewer
 * @timeout_ms: of an I/O command (default 30000): after it the command is aborted, after twice that time
 *              the controller is reset. It counts while the program polls, and is exact to an eighth
 * @admin_timeout_ms: of an admin command (default 60000), after which the controller is reset
 */
struct peerlane_nvme_options {
	size_t size;
	unsigned int flags;
	unsigned int nr_queues;
	unsigned int timeout_ms;
	unsigned int admin_timeout_ms;
};

/**
 * peerlane_nvme_open() - take a controller and bring it up
 * @out: receives the controller
 * @address: "TRANSPORT:ADDRESS", for example "sim:disk0"
 * @opt: options, or NULL for defaults
 *
 * The controller is reset, whatever it was doing.
 *
 * Return: 0; -EINVAL a bad option or address; -ENODEV no such device, or it went away; -EBUSY somebody
 * else has it; -EACCES not allowed; -ETIMEDOUT it does not get ready in the time it promises; -EIO it
 * reports a fatal error or fails a command; -EPROTO what it says of itself makes no sense; -EOPNOTSUPP
 * it lacks what this driver needs; -ENOMEM. peerlane_nvme_why() says it in words.
 */
int peerlane_nvme_open(struct peerlane_nvme **out, const char *address,
		       const struct peerlane_nvme_options *opt);

/**
 * peerlane_nvme_why() - why a controller could not be opened
 *
 * Of the last peerlane_nvme_open() of the calling thread; for the software controller it names the word of the
 * address that is wrong.
 *
 * Return: a sentence without its full stop, until the thread's next open; "" if that worked. Never NULL.
 */
const char *peerlane_nvme_why(void);

/**
 * peerlane_nvme_close() - shut a controller down in order, and let go of it
 * @nvme: controller, or NULL
 *
 * Queues that are left are deleted, maps unmapped. Commands still outstanding are not reported.
 *
 * Context: no other call on @nvme, its queues, maps and namespaces may be running or follow.
 */
void peerlane_nvme_close(struct peerlane_nvme *nvme);

/**
 * peerlane_nvme_reset() - reset a controller and bring it up again
 * @nvme: controller
 *
 * Every outstanding command is reported by its queue, once: as completed if it was, else with the
 * error -ECONNRESET. Queues, maps and namespaces stay. Also revives a controller given up as dead.
 *
 * Return: 0; else as peerlane_nvme_open(), and the controller is dead.
 */
int peerlane_nvme_reset(struct peerlane_nvme *nvme);

/**
 * struct peerlane_nvme_info - what a controller is and can
 * @size: sizeof(struct peerlane_nvme_info), set by the caller
 * @serial: serial number, without the padding
 * @model: model, likewise
 * @firmware: firmware revision, likewise
 * @version: PL_NVME_VS()
 * @page_bytes: page size that PRPs use
 * @max_entries: longest queue
 * @nr_queues: I/O queue pairs that were granted
 * @max_namespaces: highest possible namespace id
 * @max_transfer_bytes: most bytes of one command (MDTS); 0 no limit. Longer I/O is split
 * @oncs: optional I/O commands, PL_NVME_ONCS_*
 * @has_write_cache: not 0 if flush does something
 * @has_dbbuf: not 0 if shadow doorbells are in use
 * @has_sgl: not 0 if the controller takes SGLs
 * @cmb_bytes: controller memory that queues can use
 * @nr_resets: resets since it was opened, asked for or not
 * @nr_bad_completions: completions that made no sense and were ignored
 * @nr_lost_events: asynchronous events that nobody fetched in time
 * @dead: 0, or the negative errno why the controller was given up
 */
struct peerlane_nvme_info {
	size_t size;
	char serial[24];
	char model[44];
	char firmware[12];
	uint32_t version;
	uint32_t page_bytes;
	uint32_t max_entries;
	uint32_t nr_queues;
	uint32_t max_namespaces;
	uint64_t max_transfer_bytes;
	uint32_t oncs;
	uint8_t has_write_cache;
	uint8_t has_dbbuf;
	uint8_t has_sgl;
	uint64_t cmb_bytes;
	uint64_t nr_resets;
	uint64_t nr_bad_completions;
	uint64_t nr_lost_events;
	int dead;
};

/**
 * peerlane_nvme_get_info() - what a controller is and can
 * @nvme: controller
 * @info: @size set by the caller, the rest filled
 *
 * Return: 0; -EINVAL a size this library does not know.
 */
int peerlane_nvme_get_info(struct peerlane_nvme *nvme, struct peerlane_nvme_info *info);

/* ------------------------------------------------------------------ admin commands */

/**
 * struct peerlane_nvme_completion - how a command or an I/O ended
 * @user: of the I/O; 0 for admin commands
 * @err: 0, or a negative errno: what the status means (peerlane_nvme_errno()); -ETIMEDOUT aborted after
 *       its time-out, or lost in the reset that followed; -ECONNRESET lost in a reset; -ENODEV the
 *       controller is gone or was given up. In every case the controller is done with the memory
 * @result: dword 0 of the completion
 * @status: status type << 8 | status code, enum pl_nvme_status; 0x371 where the driver ended the command
 * @dnr: not 0: do not retry, it would fail again
 * @more: not 0: the error log has more about it
 * @retry_delay: which of the controller's three retry delays to wait before a retry; 0 none
 * @reserved: zero
 */
struct peerlane_nvme_completion {
	uint64_t user;
	int err;
	uint32_t result;
	uint16_t status;
	uint8_t dnr;
	uint8_t more;
	uint8_t retry_delay;
	uint8_t reserved[3];
};

/**
 * peerlane_nvme_errno() - what a status means as an errno
 * @status: status type << 8 | status code
 *
 * Return: 0 for success; -EOPNOTSUPP opcode, -EINVAL field, -ERANGE blocks out of range, -ENXIO
 * namespace, -ENOSPC capacity, -EILSEQ data differ or fail their check, -ENODATA data cannot be read,
 * -EACCES, -EROFS, -EAGAIN not ready, -ECANCELED aborted, -EIO all others.
 */
int peerlane_nvme_errno(unsigned int status);

/**
 * peerlane_nvme_status_text() - how a command or an I/O ended, in words
 * @cpl: its completion
 * @text: receives the words
 * @bytes: room in @text; 128 are enough
 *
 * The name that the specification has for the status, its type, and whether to retry and whether the error log has
 * more: "Unrecovered Read Error (media and data integrity, status 0x281), do not retry". Where the driver ended
 * it and not the controller, what that was.
 *
 * Return: @text; "" if an argument is NULL or @bytes is 0.
 */
const char *peerlane_nvme_status_text(const struct peerlane_nvme_completion *cpl, char *text,
				      size_t bytes);

/**
 * peerlane_nvme_admin() - run one admin command
 * @nvme: controller
 * @command: the command; cid, dptr and the PRP bits are filled in; mptr must be 0
 * @data: its data, or NULL
 * @bytes: of @data, a multiple of 4, up to 1 MiB
 * @cpl: receives the completion whenever the command was completed; may be NULL
 *
 * Data travel by a buffer of the driver; their direction is that of the opcode. Queues must not be created
 * or deleted this way, nor events asked for.
 *
 * Context: may sleep; one admin command runs at a time.
 *
 * Return: 0; -EINVAL bad arguments; -EPERM an opcode that is the driver's own business; -ETIMEDOUT,
 * and the controller was reset; -ENODEV it is gone; else the errno of the status.
 */
int peerlane_nvme_admin(struct peerlane_nvme *nvme, const struct pl_nvme_sqe *command, void *data,
			size_t bytes, struct peerlane_nvme_completion *cpl);

/**
 * peerlane_nvme_identify() - fetch an Identify data structure
 * @nvme: controller
 * @cns: PL_NVME_CNS_*
 * @nsid: namespace, or 0
 * @data: receives PL_NVME_IDENTIFY_BYTES bytes
 *
 * Return: 0; else as peerlane_nvme_admin().
 */
int peerlane_nvme_identify(struct peerlane_nvme *nvme, unsigned int cns, uint32_t nsid, void *data);

/**
 * peerlane_nvme_ns_list() - list active namespaces
 * @nvme: controller
 * @after: list ids greater than this; 0 for all
 * @ids: receives the ids, ascending
 * @max: room in @ids
 *
 * Return: how many; -EPROTO the list makes no sense; else as peerlane_nvme_admin().
 */
int peerlane_nvme_ns_list(struct peerlane_nvme *nvme, uint32_t after, uint32_t *ids,
			  unsigned int max);

/**
 * peerlane_nvme_log_page() - fetch a log page, or a part of it
 * @nvme: controller
 * @page: PL_NVME_LOG_*
 * @nsid: namespace, or PL_NVME_NSID_ALL
 * @offset: first byte, a multiple of 4; not 0 only where the controller can
 * @data: receives the bytes
 * @bytes: a multiple of 4, not 0
 *
 * Fetching clears the event that told of it, so that the next can come.
 *
 * Return: 0; -EOPNOTSUPP no offset is possible; else as peerlane_nvme_admin().
 */
int peerlane_nvme_log_page(struct peerlane_nvme *nvme, unsigned int page, uint32_t nsid,
			   uint64_t offset, void *data, size_t bytes);

/**
 * peerlane_nvme_get_feature() - read a feature
 * @nvme: controller
 * @feature: PL_NVME_FEAT_*
 * @select: PL_NVME_FEAT_SEL_*
 * @nsid: namespace, or 0
 * @value: receives the value
 *
 * Return: 0; else as peerlane_nvme_admin().
 */
int peerlane_nvme_get_feature(struct peerlane_nvme *nvme, unsigned int feature, unsigned int select,
			      uint32_t nsid, uint32_t *value);

/**
 * peerlane_nvme_set_feature() - set a feature
 * @nvme: controller
 * @feature: PL_NVME_FEAT_*, but for the number of queues, which is set by opening
 * @nsid: namespace, or 0
 * @value: the value
 *
 * It does not outlive a reset of the controller.
 *
 * Return: 0; else as peerlane_nvme_admin().
 */
int peerlane_nvme_set_feature(struct peerlane_nvme *nvme, unsigned int feature, uint32_t nsid,
			      uint32_t value);

/**
 * struct peerlane_nvme_event - an asynchronous event
 * @type: PL_NVME_EVENT_ERROR, _SMART, _NOTICE and so on
 * @info: what of that type, PL_NVME_EVENT_*_*
 * @log_page: the log page to fetch, which also lets the next event of this type come
 */
struct peerlane_nvme_event {
	uint8_t type;
	uint8_t info;
	uint8_t log_page;
};

/**
 * peerlane_nvme_events() - fetch asynchronous events
 * @nvme: controller
 * @out: receives the events, oldest first
 * @max: room in @out
 *
 * Does not wait for one.
 *
 * Return: how many; -EINVAL; when there is none, -ENODEV the controller is gone or was given up.
 */
int peerlane_nvme_events(struct peerlane_nvme *nvme, struct peerlane_nvme_event *out,
			 unsigned int max);

/* ------------------------------------------------------------------ namespaces */

/**
 * struct peerlane_nvme_ns_info - what a namespace is
 * @size: sizeof(struct peerlane_nvme_ns_info), set by the caller
 * @nsid: its id
 * @block_bytes: bytes of a block
 * @nr_blocks: blocks it has
 * @best_boundary: blocks that I/O best does not cross; 0 not said
 * @read_only: not 0 if it is write protected
 */
struct peerlane_nvme_ns_info {
	size_t size;
	uint32_t nsid;
	uint32_t block_bytes;
	uint64_t nr_blocks;
	uint32_t best_boundary;
	uint8_t read_only;
};

/**
 * peerlane_nvme_ns_open() - get a namespace, for I/O
 * @nvme: controller
 * @nsid: its id
 * @out: receives the namespace; it lives until the controller is closed
 *
 * Its size and format are read anew by each call and hold for the namespace that it returns.
 *
 * Return: 0; -ENXIO no such namespace, or it is not active; -EOPNOTSUPP a format with metadata or a block
 * size this driver does not take; -EPROTO what it says of itself makes no sense; -ENOMEM; else as
 * peerlane_nvme_admin().
 */
int peerlane_nvme_ns_open(struct peerlane_nvme *nvme, uint32_t nsid, struct peerlane_nvme_ns **out);

/**
 * peerlane_nvme_ns_get_info() - what a namespace is
 * @ns: namespace
 * @info: @size set by the caller, the rest filled
 *
 * Return: 0; -EINVAL a size this library does not know.
 */
int peerlane_nvme_ns_get_info(const struct peerlane_nvme_ns *ns,
			      struct peerlane_nvme_ns_info *info);

/* ------------------------------------------------------------------ memory */

/* Flags of struct peerlane_nvme_memory. */
#define PEERLANE_NVME_MEMORY_GPU 0x1u /* pinned memory of a GPU, or of the simulated one */

/**
 * struct peerlane_nvme_memory - memory that is to be mapped for a controller
 * @size: sizeof(struct peerlane_nvme_memory)
 * @flags: PEERLANE_NVME_MEMORY_*
 * @ptr: address, of the process or of the GPU
 * @bytes: its length
 * @cpu: GPU memory: where the CPU reaches the same bytes, or NULL
 * @pin_fd: GPU memory pinned by the kernel module: /dev/peerlane; else -1
 * @handle: the pin
 * @pin_offset: of @ptr in the pin, in bytes
 */
struct peerlane_nvme_memory {
	size_t size;
	unsigned int flags;
	void *ptr;
	size_t bytes;
	void *cpu;
	int pin_fd;
	uint64_t handle;
	size_t pin_offset;
};

/**
 * peerlane_nvme_map() - make memory reachable for a controller
 * @nvme: controller
 * @memory: which
 * @out: receives the map
 *
 * Each controller has its own addresses: memory that several use is mapped for each of them.
 *
 * When pinned memory of a GPU is freed while it is mapped, the kernel module stops the controller. The driver
 * resets it then: what was outstanding is reported with -ECONNRESET, and all maps of GPU memory of this
 * controller are lost, for which of them are still good is not known. I/O with them fails with -EFAULT; unmap
 * them, and map what is still there anew. Queues in such memory are of no use any more, too.
 *
 * Return: 0; -EINVAL a bad range; -EOPNOTSUPP this kind of memory is not possible for this transport or
 * with this controller's page size; -EFAULT no such memory; -ENOMEM; -ENOSPC; -ENODEV.
 */
int peerlane_nvme_map(struct peerlane_nvme *nvme, const struct peerlane_nvme_memory *memory,
		      struct peerlane_nvme_map **out);

/**
 * peerlane_nvme_map_host() - make memory of the process reachable for a controller
 * @nvme: controller
 * @ptr: address
 * @bytes: length
 * @out: receives the map
 *
 * Return: as peerlane_nvme_map().
 */
int peerlane_nvme_map_host(struct peerlane_nvme *nvme, void *ptr, size_t bytes,
			   struct peerlane_nvme_map **out);

/**
 * peerlane_nvme_map_alloc() - host memory that is reachable for a controller
 * @nvme: controller
 * @bytes: how much
 * @ptr: receives its address; it is zero
 * @out: receives the map, which owns the memory
 *
 * Return: as peerlane_nvme_map().
 */
int peerlane_nvme_map_alloc(struct peerlane_nvme *nvme, size_t bytes, void **ptr,
			    struct peerlane_nvme_map **out);

/**
 * peerlane_nvme_unmap() - undo peerlane_nvme_map() and peerlane_nvme_map_alloc()
 * @map: map, or NULL
 *
 * Context: no outstanding I/O and no queue may use it.
 */
void peerlane_nvme_unmap(struct peerlane_nvme_map *map);

/**
 * peerlane_nvme_map_address() - where a controller finds a byte
 * @map: map
 * @offset: of the byte
 * @address: receives its address
 * @run_bytes: receives how many bytes from there are contiguous; may be NULL
 *
 * Return: 0; -EINVAL the map ends before.
 */
int peerlane_nvme_map_address(const struct peerlane_nvme_map *map, size_t offset, uint64_t *address,
			      size_t *run_bytes);

/**
 * peerlane_nvme_map_pages() - addresses by controller pages
 * @map: map
 * @first: first page to tell
 * @pages: receives the addresses of the pages; that of the first may have an offset
 * @max: room in @pages
 *
 * For programs that make their own commands, such as kernels on a GPU.
 *
 * Return: how many were told; 0 past the end; -EINVAL.
 */
ssize_t peerlane_nvme_map_pages(const struct peerlane_nvme_map *map, size_t first, uint64_t *pages,
				size_t max);

/* ------------------------------------------------------------------ queue pairs */

/* Flags of struct peerlane_nvme_queue_options. */
#define PEERLANE_NVME_QUEUE_CMB 0x1u /* submission queue in the controller's own memory */
#define PEERLANE_NVME_QUEUE_SGL 0x2u /* describe memory by SGLs where they are shorter than PRPs */

/**
 * struct peerlane_nvme_queue_options - how a queue pair is created; all zero means defaults
 * @size: sizeof(struct peerlane_nvme_queue_options)
 * @flags: PEERLANE_NVME_QUEUE_*
 * @depth: entries, 2 or more (default 128, or what the controller can); depth - 1 commands can be
 *         outstanding
 * @max_transfer_bytes: most bytes of one command (default 1 MiB, or what the controller takes); I/O
 *                      beyond is split. It sets the size of the PRP lists
 * @sq: memory for the submission queue: depth * 64 bytes; NULL: the driver's own host memory
 * @sq_offset: where in @sq, at a controller page
 * @cq: memory for the completion queue: depth * 16 bytes; NULL likewise
 * @cq_offset: where in @cq, at a controller page
 * @lists: memory for PRP and SGL lists: peerlane_nvme_lists_bytes(); NULL likewise
 * @lists_offset: where in @lists, at a controller page
 */
struct peerlane_nvme_queue_options {
	size_t size;
	unsigned int flags;
	unsigned int depth;
	size_t max_transfer_bytes;
	struct peerlane_nvme_map *sq;
	size_t sq_offset;
	struct peerlane_nvme_map *cq;
	size_t cq_offset;
	struct peerlane_nvme_map *lists;
	size_t lists_offset;
};

/**
 * peerlane_nvme_lists_bytes() - memory that the lists of a queue pair need
 * @nvme: controller
 * @depth: of the queue pair; 0 as in the options
 * @max_transfer_bytes: likewise
 *
 * Return: bytes; 0 if every command does without a list.
 */
size_t peerlane_nvme_lists_bytes(const struct peerlane_nvme *nvme, unsigned int depth,
				 size_t max_transfer_bytes);

/**
 * peerlane_nvme_queue_create() - create a queue pair
 * @nvme: controller
 * @opt: options, or NULL for defaults
 * @out: receives the queue pair
 *
 * Memory that is given must be reachable by the CPU, or else the queue is only for programs on the GPU:
 * then submitting and polling it here fails with -EOPNOTSUPP, the completion queue's memory must be zero,
 * and the controller must be open without shadow doorbells.
 *
 * Return: 0; -EINVAL a bad option, a depth the controller cannot have, or memory that is too small, not at
 * a page, or not contiguous where it must be; -ENOSPC no queue or no controller memory is left;
 * -EOPNOTSUPP no controller memory for queues, or shadow doorbells are in the way; -ENOMEM; else as peerlane_nvme_admin().
 */
int peerlane_nvme_queue_create(struct peerlane_nvme *nvme,
			       const struct peerlane_nvme_queue_options *opt,
			       struct peerlane_nvme_queue **out);

/**
 * peerlane_nvme_queue_destroy() - delete a queue pair
 * @queue: queue pair, or NULL
 *
 * Commands still outstanding are aborted and not reported.
 */
void peerlane_nvme_queue_destroy(struct peerlane_nvme_queue *queue);

/**
 * struct peerlane_nvme_queue_info - where the parts of a queue pair are, for programs that drive it
 * @size: sizeof(struct peerlane_nvme_queue_info), set by the caller
 * @qid: its id, the same for both queues
 * @depth: entries of each
 * @max_transfer_bytes: most bytes of one command
 * @nr_outstanding: I/O submitted and not reported
 * @sq: submission queue for the CPU, or NULL
 * @cq: completion queue for the CPU, or NULL
 * @sq_doorbell: tail of the submission queue; bytes from the start of BAR0
 * @cq_doorbell: head of the completion queue, likewise
 * @bar0: where BAR0 is mapped
 * @bar0_bytes: its length
 */
struct peerlane_nvme_queue_info {
	size_t size;
	uint32_t qid;
	uint32_t depth;
	size_t max_transfer_bytes;
	uint32_t nr_outstanding;
	void *sq;
	void *cq;
	size_t sq_doorbell;
	size_t cq_doorbell;
	volatile void *bar0;
	size_t bar0_bytes;
};

/**
 * peerlane_nvme_queue_get_info() - where the parts of a queue pair are
 * @queue: queue pair
 * @info: @size set by the caller, the rest filled
 *
 * Return: 0; -EINVAL a size this library does not know.
 */
int peerlane_nvme_queue_get_info(const struct peerlane_nvme_queue *queue,
				 struct peerlane_nvme_queue_info *info);

/* Flags of struct peerlane_nvme_io. */
#define PEERLANE_NVME_FUA 0x1u		 /* write: on stable media before it completes */
#define PEERLANE_NVME_LIMITED_RETRY 0x2u /* do not try long */
#define PEERLANE_NVME_DEALLOCATE 0x4u	 /* write zeroes, dataset management: the blocks may go */

/**
 * struct peerlane_nvme_io - one I/O
 * @opcode: PL_NVME_READ, _WRITE, _COMPARE, _WRITE_ZEROES, _FLUSH or _DSM
 * @flags: PEERLANE_NVME_FUA and so on
 * @reserved: zero
 * @nr_blocks: how many blocks, any number but 0; dataset management: ranges in the memory, up to 256
 *             struct pl_nvme_dsm_range; flush: 0
 * @lba: first block; 0 for flush and dataset management
 * @ns: namespace
 * @map: memory, where the opcode has data, else NULL
 * @offset: where in @map
 * @user: the caller's, comes back with the completion
 */
struct peerlane_nvme_io {
	uint8_t opcode;
	uint8_t flags;
	uint16_t reserved;
	uint32_t nr_blocks;
	uint64_t lba;
	struct peerlane_nvme_ns *ns;
	struct peerlane_nvme_map *map;
	size_t offset;
	uint64_t user;
};

/**
 * peerlane_nvme_submit() - submit I/O
 * @queue: queue pair
 * @io: what to do; not used after the call
 * @nr: how many
 *
 * The doorbell is rung once. I/O that is longer than a command may be is split and reported as one. The
 * controller may do what is outstanding in any order.
 *
 * Return: how many were taken, from the first; when that is none: -EAGAIN the queue is full, or is just
 * being recovered: poll it; -EINVAL a bad field; -ERANGE blocks beyond the end of the namespace or
 * memory beyond the end of the map; -EFAULT the map is lost, see peerlane_nvme_map(); -EOPNOTSUPP the controller lacks the command; -EROFS; -ENODEV the
 * controller is gone or was given up, or another error with which the queue was.
 */
int peerlane_nvme_submit(struct peerlane_nvme_queue *queue, const struct peerlane_nvme_io *io,
			 unsigned int nr);

/**
 * peerlane_nvme_poll() - take completions, without waiting
 * @queue: queue pair
 * @out: receives them
 * @max: room in @out
 *
 * Also looks after time-outs and recovery: once in a while it can take as long as a reset does.
 *
 * Return: how many; when that is none and nothing is outstanding any more: -ENODEV the controller is gone
 * or was given up, or another error with which the queue was.
 */
int peerlane_nvme_poll(struct peerlane_nvme_queue *queue, struct peerlane_nvme_completion *out,
		       unsigned int max);

/**
 * peerlane_nvme_wait() - take completions, waiting for them
 * @queue: queue pair
 * @out: receives them
 * @min: wait for so many, or all that are outstanding
 * @max: room in @out, at least @min
 * @timeout_ms: wait no longer; negative: however long
 *
 * Return: how many; 0 when the time is over; -EINVAL @min over @max; else as peerlane_nvme_poll().
 */
int peerlane_nvme_wait(struct peerlane_nvme_queue *queue, struct peerlane_nvme_completion *out,
		       unsigned int min, unsigned int max, int timeout_ms);

/**
 * peerlane_nvme_run() - do one I/O and wait for it
 * @queue: queue pair with nothing outstanding
 * @io: what to do
 * @cpl: receives the completion; may be NULL
 *
 * Return: 0; -EBUSY something is outstanding; the err of the completion; else as peerlane_nvme_submit().
 */
int peerlane_nvme_run(struct peerlane_nvme_queue *queue, const struct peerlane_nvme_io *io,
		      struct peerlane_nvme_completion *cpl);

/**
 * peerlane_nvme_abort() - ask the controller to abort outstanding I/O
 * @queue: queue pair
 * @user: as submitted; all I/O with this value
 *
 * The I/O completes as it otherwise would, aborted or not.
 *
 * Return: for how many commands it was asked; -ENOENT no such I/O; -EAGAIN too many aborts are under way;
 * -ENODEV.
 */
int peerlane_nvme_abort(struct peerlane_nvme_queue *queue, uint64_t user);

#ifdef __cplusplus
}
#endif

#endif
