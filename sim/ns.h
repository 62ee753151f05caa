/* SPDX-License-Identifier: MIT */
/* A namespace: blocks in memory or in a file. */
#ifndef SIM_NS_H
#define SIM_NS_H

#include <stdbool.h>
#include <stdint.h>

struct pl_sn_ns {
	uint32_t nsid;
	uint32_t bs_shift; /* block size as a power of two */
	uint64_t nr_blocks;
	uint8_t *data;
	uint64_t bytes;
	int fd;
	bool is_file;
	uint32_t error_recovery; /* feature 5 */
};

/* Open one of bytes in a file, or with path "" in memory: 0, -EINVAL if a file is too small. */
int pl_sn_ns_open(struct pl_sn_ns *ns, uint32_t nsid, const char *path, uint64_t bytes,
		  uint32_t bs);
void pl_sn_ns_close(struct pl_sn_ns *ns);

/* Make blocks read as zeroes. */
void pl_sn_ns_zero(struct pl_sn_ns *ns, uint64_t first, uint64_t nr);
/* Make blocks safe on the medium: 0 or a negative errno. */
int pl_sn_ns_sync(struct pl_sn_ns *ns, uint64_t first, uint64_t nr);

#endif
