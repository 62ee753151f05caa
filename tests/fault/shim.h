/* SPDX-License-Identifier: MIT */
/*
 * Faults in the file calls of this program. Linked into a test it stands before libc; as a module
 * for LD_PRELOAD it takes its settings from PEERLANE_SHIM="word=value,..." with the names of the
 * members below and "path" for the file. Requests of an io_uring do not pass here: see faultfs.c.
 */
#ifndef PL_TEST_SHIM_H
#define PL_TEST_SHIM_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct shim {
	uint64_t dev, ino;     /* of the file with faults; ino 0: none */
	int64_t read_error_at; /* this byte cannot be read; -1: all can */
	int64_t write_error_at;
	int error;		/* positive errno of those two */
	unsigned int short_of;	/* one call in this many comes short; 0: none */
	unsigned int eintr_of;	/* one call in this many is interrupted; 0: none */
	unsigned int delay_us;	/* most of it, before each call */
	int sync_error;		/* positive errno of fdatasync(); 0: works */
	unsigned int copy_of;	/* one process_vm_readv() in this many fails or comes short */
	unsigned int refuse_of; /* one direct write in this many is refused with EINVAL; 0: none */
	bool apart;		/* count direct writes that meet buffered ones: shim_collisions() */
};

extern struct shim shim;

/* No fault in any file. */
void shim_clear(void);
/* The faults now set are for the file at @path. */
void shim_file(const char *path);
/* Calls that met a fault since the last time this was asked. */
unsigned long shim_hits(void);
/* Writes that met others since the last time this was asked: a direct and a buffered one at a time,
 * or a direct one before a buffered one was written back. @nr gets the writes of each kind. */
unsigned long shim_collisions(unsigned long nr[2]);

#endif
