/* SPDX-License-Identifier: MIT */
/*
 * An open file: two descriptors of it (one through the page cache, one with O_DIRECT, whichever
 * the caller gave), and what is known of its file system.
 */
#ifndef PL_FILE_H
#define PL_FILE_H

#include "ahead.h"
#include "wmap.h"

#include <peerlane/peerlane.h>
#include <stdbool.h>

/* linux/magic.h does not have it everywhere. */
#define PL_XFS_MAGIC 0x58465342ul

struct pl_nvme_file;

enum pl_file_state {
	PL_FILE_OPEN,
	PL_FILE_CLOSING, /* no new I/O; waits for users */
	PL_FILE_LEAVING, /* no new I/O; the last user closes it */
	PL_FILE_CLOSED,	 /* only kept so that a stale handle is noticed */
};

struct peerlane_file {
	struct peerlane *ctx;
	struct peerlane_file *next; /* in the context's list, under its lock */
	unsigned int state;	    /* atomic */
	unsigned int users;	    /* requests in flight; atomic */
	int fd;			    /* through the page cache; -1 if that could not be had */
	int fd_direct;		    /* with O_DIRECT; -1 if that could not be had */
	int noted_err;		    /* see pl_file_note_error(); atomic */
	bool readable, writable;
	bool append;
	bool durable;	     /* opened with O_SYNC or O_DSYNC */
	bool want_direct;    /* the caller opened it with O_DIRECT */
	bool block;	     /* a block device */
	int64_t block_bytes; /* its size when it was opened */
	bool mapped_write;   /* may be written through a mapping, see wmap.h */
	unsigned int align;  /* of offsets and memory for O_DIRECT; a power of two */
	unsigned long magic; /* statfs f_type */
	dev_t dev;
	ino_t ino;
	struct pl_ahead ahead;
	char direct_why[160]; /* why fd_direct is -1 */
	struct pl_wmaps wmaps;
	bool callbacks; /* no descriptors: the program itself reads and writes, see below */
	struct peerlane_file_ops ops;
	void *ops_arg;
	struct pl_nvme_file *nvme; /* its ops_arg, if it is a namespace; else NULL */
};

/* Takes a reference for one request. -EBADF when closed or not open for @op. */
int pl_file_get(struct peerlane_file *file, enum peerlane_op op);
void pl_file_put(struct peerlane_file *file);

/* Closes @file as soon as its I/O in flight has ended; does not wait. */
void pl_file_leave(struct peerlane_file *file);
/* Puts a new file into its context's list. */
void pl_file_enter(struct peerlane_file *file);
/* fdatasync(2) of the file, or an error noted before. 0 or a negative errno. */
int pl_file_datasync(struct peerlane_file *file);
/* Data that was not told of as failed did not reach the device: the next pl_file_datasync() says so. */
void pl_file_note_error(struct peerlane_file *file, int err);
/* file_ops.c: one read or write of a file with callbacks, from its @got th byte on. */
size_t pl_file_ops_io(const struct peerlane_file *file, enum peerlane_op op, char *mem,
		      size_t bytes, off_t offset, size_t got, int *err);

/* A block device that has lost its drive: the kernel says that it is empty now. */
bool pl_file_gone(const struct peerlane_file *file);
/* Current size; 0 where it is not known; or a negative errno. */
int64_t pl_file_size(const struct peerlane_file *file);
/* Name of the file system type of @magic. */
const char *pl_file_fs_name(unsigned long magic);

/* Closes every file of a context that is going away. */
void pl_files_fini(struct peerlane *ctx);

#endif
