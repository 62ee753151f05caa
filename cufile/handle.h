/* SPDX-License-Identifier: MIT */
/* Registered files. */
#ifndef PL_CF_HANDLE_H
#define PL_CF_HANDLE_H

#include "cufile.h"
#include "table.h"

#include <peerlane/peerlane.h>

struct pl_cf_file {
	struct peerlane_file *file;
	int fd; /* the program's; -1 for a file system of its own */
	dev_t dev;
	ino_t ino;
	bool readable, writable;
	char name[128];		   /* for the log; empty when that did not want it */
	unsigned int explained;	   /* bits by direction: its path was logged; atomic */
	uint64_t ops[2], bytes[2]; /* by direction, for the log; atomic */
	CUfileFSOps_t fs_ops;	   /* of a file system in the process, and its handle */
	void *fs_handle;
};

/* The file of a handle, held until pl_cf_file_put(); else NULL and the reason. */
struct pl_cf_file *pl_cf_file_get(CUfileHandle_t fh, enum pl_cf_found *found);
void pl_cf_file_put(CUfileHandle_t fh);
/* What a handle is, while the driver is closed. */
enum pl_cf_found pl_cf_file_known(CUfileHandle_t fh);
/* Before the first transfer in each direction: logs the path it takes. */
void pl_cf_file_explain(struct pl_cf_file *f, enum peerlane_op op, const void *addr, size_t bytes,
			off_t offset);
/* After each transfer. */
void pl_cf_file_count(struct pl_cf_file *f, enum peerlane_op op, ssize_t result);

void pl_cf_handles_clear(void);
void pl_cf_handles_forget(void);

/* fsops.c: a file of the engine over the table of a program. */
int pl_cf_fsops_open(struct peerlane *ctx, struct pl_cf_file *f);

#endif
