/* SPDX-License-Identifier: MIT */
/* Files that proxies serve. */
#ifndef PL_FILES_H
#define PL_FILES_H

#include "proxy.h"

struct pl_file {
	int fd;
	bool direct;	/* past the page cache */
	bool in_memory; /* there is nothing to wait for */
	bool no_nowait; /* the file system cannot read without waiting; atomic */
	uint64_t bytes; /* atomic: grows when its last block is written */
};

/* A command that is being carried out; each slot has one. */
struct pl_file_op {
	struct pl_file_op *next; /* waiting for room in the ring */
	struct pl_proxy_queue *queue;
	struct pl_file *file;
	char *data;
	uint64_t offset;
	uint32_t bytes;
	uint32_t need; /* bytes that the file has of them */
	uint32_t done;
	uint16_t cid;
	uint8_t opcode;
	bool durable;
	bool nowait; /* in the ring: only what is there at once */
	bool in_use;
};

struct pl_files {
	struct peerlane_device *dev;
	struct pl_file *files;
	uint32_t nr;
	bool no_ring; /* io_uring is not allowed here */
	struct pl_file_op *ops;
};

#endif
