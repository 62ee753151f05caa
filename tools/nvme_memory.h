/* SPDX-License-Identifier: MIT */
/* Memory that a load reads into and writes from: of the host or of a GPU, mapped for the controller. */
#ifndef PL_NVME_MEMORY_H
#define PL_NVME_MEMORY_H

#include "nvme_drive.h"
#include "session.h"

struct pl_drive_memory {
	struct peerlane_nvme_map *map;
	struct pl_session *session; /* NULL: host memory, which is the map's */
	void *gpu;
	int pin_fd;
	uint32_t pin;
};

/*
 * Makes it, filled with words that are not alike. @session NULL: host memory. What failed was said on
 * standard error; returns 0 or a negative errno.
 */
int pl_drive_memory_init(struct pl_drive_memory *m, const struct pl_drive *d,
			 struct pl_session *session, size_t bytes);
/* No I/O may use it any more. */
void pl_drive_memory_fini(struct pl_drive_memory *m);

#endif
