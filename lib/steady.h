/* SPDX-License-Identifier: MIT */
/*
 * Whether data read from a file some time ago is still what a read would give.
 *
 * A file's times move when a write begins, before any of its data can be seen. So times that stay the same rule
 * out every write that began after they were noted, and none that was in flight then: such a write ends without moving
 * them, and AIO does not even tell inotify. Therefore the times count only if nobody had the file open for writing after
 * they were noted, which the kernel tells by granting a read lease. Descriptors of requests in flight, and of writable
 * mappings that outlive their descriptors, count as open.
 *
 * A watch (watch.h) sees the few that write without moving the times, such as the NFS server for clients that keep
 * them.
 */
#ifndef PL_STEADY_H
#define PL_STEADY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

struct peerlane_file;
struct pl_watch;

/* Of a file; its user keeps others out of pl_steady_begin(). */
struct pl_steady {
	struct pl_watch *watch;
	int refused; /* negative errno that stays; not asked again */
	struct stat seen;
	uint64_t changes;
};

/*
 * 0: whatever is read from now on may be used for as long as pl_steady_still() says so. -EBUSY: the file is open for
 * writing; -EAGAIN: it changed a moment ago, and the clock of its times may be too coarse to show the next change.
 * Others, which stay: the system does not tell.
 */
int pl_steady_begin(struct peerlane_file *file);
bool pl_steady_still(struct peerlane_file *file);
void pl_steady_fini(struct peerlane_file *file);
/* In words why pl_steady_begin() gave @err. */
const char *pl_steady_why(int err);

#endif
