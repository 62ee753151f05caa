/* SPDX-License-Identifier: MIT */
/* The part of the cuFile ABI (LP64) the measuring programs use, found at run time. */
#ifndef PEERLANE_BENCH_CUFILE_MIN_H
#define PEERLANE_BENCH_CUFILE_MIN_H

#include <stddef.h>
#include <sys/types.h>
#include <time.h>

struct pl_cufile_error {
	int err;
	int cu_err;
};

struct pl_cufile_descr {
	int type;
	union {
		int fd;
		void *handle;
	} handle;
	const void *fs_ops;
};

struct pl_cufile_io {
	int mode;
	struct {
		void *base;
		off_t file_offset;
		off_t buffer_offset;
		size_t size;
	} batch;
	void *handle;
	int opcode;
	void *cookie;
};

struct pl_cufile_event {
	void *cookie;
	int status;
	size_t ret;
};

_Static_assert(sizeof(struct pl_cufile_error) == 8, "CUfileError_t");
_Static_assert(sizeof(struct pl_cufile_descr) == 24, "CUfileDescr_t");
_Static_assert(sizeof(struct pl_cufile_io) == 64, "CUfileIOParams_t");
_Static_assert(sizeof(struct pl_cufile_event) == 24, "CUfileIOEvents_t");

enum {
	PL_CUFILE_TYPE_FD = 1,
	PL_CUFILE_MODE_BATCH = 1,
	PL_CUFILE_READ = 0,
	PL_CUFILE_WRITE = 1,
	PL_CUFILE_COMPLETE = 0x10,
	PL_CUFILE_FAILED = 0x40
};

/**
 * struct pl_cufile_min - the library's calls as loaded
 *
 * The members carry the library's names without the prefix "cuFile".
 */
struct pl_cufile_min {
	struct pl_cufile_error (*driver_open)(void);
	struct pl_cufile_error (*driver_close)(void);
	struct pl_cufile_error (*get_version)(int *version);
	struct pl_cufile_error (*handle_register)(void **handle, struct pl_cufile_descr *descr);
	void (*handle_deregister)(void *handle);
	struct pl_cufile_error (*buf_register)(const void *base, size_t bytes, int flags);
	struct pl_cufile_error (*buf_deregister)(const void *base);
	ssize_t (*read)(void *handle, void *base, size_t size, off_t file, off_t buffer);
	ssize_t (*write)(void *handle, const void *base, size_t size, off_t file, off_t buffer);
	struct pl_cufile_error (*batch_setup)(void **batch, unsigned int nr);
	struct pl_cufile_error (*batch_submit)(void *batch, unsigned int nr,
					       struct pl_cufile_io *io, unsigned int flags);
	struct pl_cufile_error (*batch_status)(void *batch, unsigned int min_nr, unsigned int *nr,
					       struct pl_cufile_event *events,
					       struct timespec *timeout);
	void (*batch_destroy)(void *batch);
};

/**
 * pl_cufile_min_open - load a libcufile.so.0; it stays loaded
 * @cf: filled in
 * @path: the library, or NULL for the places where it is usually found
 * @why: what is missing, valid until the next call of the dynamic loader
 *
 * Return: 0; -ENOENT without the library, -ENOSYS when it lacks a call. @why is set on failure.
 */
int pl_cufile_min_open(struct pl_cufile_min *cf, const char *path, const char **why);

/* room for the path of a udev record */
#define PL_CUFILE_MIN_RECORD_BYTES 64

/**
 * pl_cufile_min_udev_record - make the udev record of a file's disk where it is missing
 * @file: the file
 * @record: the record's path, PL_CUFILE_MIN_RECORD_BYTES of room; written once it is known
 *
 * NVIDIA's library learns what a disk holds from the udev database alone and refuses files of a
 * disk that is not in it. Machines without udevd, containers above all, need the record made.
 *
 * Return: 0 when it was written; -EEXIST when there is one, which is left as it is; -ENOTSUP when
 * the file is not on ext4 or xfs on a disk; another negative errno, -EACCES for all but root.
 */
int pl_cufile_min_udev_record(const char *file, char *record);

/**
 * pl_cufile_min_name - the name of a code of cuFile or of an errno value
 * @code: what a call returned, made positive
 *
 * Return: a string, never NULL.
 */
const char *pl_cufile_min_name(int code);

#endif
