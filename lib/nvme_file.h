/* SPDX-License-Identifier: MIT */
/*
 * Files that are namespaces of NVMe controllers, read and written by the driver of nvme/ without the
 * kernel: "nvme:CONTROLLER/NSID", where CONTROLLER is a serial number or an address.
 */
#ifndef PL_NVME_FILE_H
#define PL_NVME_FILE_H

#include "job.h"

#include <peerlane/nvme.h>

struct pl_nvme_lane;
struct pl_nvme_shared;

struct pl_nvme_file {
	struct pl_nvme_shared *shared;
	struct peerlane_nvme_ns *ns;
	uint32_t nsid, block_bytes;
	uint64_t bytes;
	bool fua; /* opened with O_SYNC or O_DSYNC */
};

/* Whether @path names one. */
bool pl_nvme_file_named(const char *path);
/* As peerlane_file_open(), for such a path. */
int pl_nvme_file_open(struct peerlane *ctx, const char *path, int flags,
		      struct peerlane_file **out);

/* Its bytes and those of its blocks; the serial number of its controller and its number. */
int64_t pl_nvme_file_size(const struct pl_nvme_file *f);
unsigned int pl_nvme_file_block(const struct pl_nvme_file *f);
void pl_nvme_file_name(const struct pl_nvme_file *f, char *out, size_t bytes);

/* One command or more over whole blocks, between the namespace and @map from byte @at on; as often as it is
 * worth it. */
int pl_nvme_file_run(const struct pl_nvme_file *f, struct pl_nvme_lane *lane, uint8_t opcode,
		     struct peerlane_nvme_map *map, size_t at, uint64_t offset, size_t bytes);

/* Records why I/O on it failed with @err, for peerlane_error(). */
void pl_nvme_file_explain(const struct pl_nvme_file *f, int err);

/*
 * Moves a segment straight between the namespace and GPU memory, if that can be. Returns the bytes it moved,
 * 0 if it must go another way; *@err is why not all of it.
 */
size_t pl_nvme_file_direct(struct peerlane *ctx, enum peerlane_op dir, const struct pl_seg *seg,
			   int *err);
/* Whether that can be, in words. Moves nothing. */
void pl_nvme_file_judge(struct peerlane *ctx, const struct pl_seg *seg, const struct pl_mem *mem,
			struct peerlane_verdict *out);

#endif
