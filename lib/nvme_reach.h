/* SPDX-License-Identifier: MIT */
/*
 * GPU memory that NVMe controllers reach by themselves: registered buffers, mapped for a controller when a file
 * first needs it. Memory of a real GPU is pinned by peerlane.ko, mapped for the controller by peerlane_nvme.ko,
 * and unmapped before it is unpinned; whether it arrives there is tested once for each controller and GPU.
 */
#ifndef PL_NVME_REACH_H
#define PL_NVME_REACH_H

#include "nvme_file.h"
#include "nvme_shared.h"

/*
 * The map of @buf, which the caller has a reference to, for the controller of @f. NULL: it cannot reach it.
 * @out, if not NULL, gets the words for either. The map lasts as long as that reference.
 */
struct peerlane_nvme_map *pl_nvme_reach(struct peerlane *ctx, const struct pl_nvme_file *f,
					struct pl_buffer *buf, struct peerlane_verdict *out);
/* I/O by the map failed with -EFAULT: it is lost, and made anew when nobody uses it. */
void pl_nvme_reach_lost(const struct pl_nvme_file *f, struct pl_buffer *buf);
/* @buf is going away and nobody uses it. */
void pl_nvme_reach_forget(struct pl_buffer *buf);
/* The controller is going away and nobody uses it. Table lock held. */
void pl_nvme_reach_end(struct pl_nvme_shared *s);

#endif
