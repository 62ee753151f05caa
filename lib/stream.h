/* SPDX-License-Identifier: MIT */
/* Stream-ordered reads and writes; the state of a context's streams. */
#ifndef PL_STREAM_H
#define PL_STREAM_H

#include <peerlane/peerlane.h>
#include <stdbool.h>

struct pl_stream_io;

/* What is done when a stream gets there. @err is 0, or why it cannot be done: -ECANCELED the
 * context is gone, -EAGAIN there is no thread for it. */
typedef void (*pl_stream_work)(void *arg, int err, struct pl_stream_io *io);

/* Has a worker call @work(@arg) when @stream gets there; the stream goes on when it has returned.
 * It may read or write @file with pl_stream_io(), and must not call the driver or the engine in any
 * other way: see stream.c. It will probably move @bytes at @offset; 0: that is not known. *@queued:
 * it will be called, whatever this returns. The errors are those of peerlane_read_async(). */
int pl_stream_run(struct peerlane_file *file, enum peerlane_op op, void *addr, size_t bytes,
		  off_t offset, void *stream, pl_stream_work work, void *arg, bool *queued);
/* In such work: moves @bytes between the file at @offset and the memory @shift bytes after the
 * address given to pl_stream_run(). A count or a negative errno; *@p2p of it went between drive
 * and GPU memory. */
ssize_t pl_stream_io(struct pl_stream_io *io, size_t shift, size_t bytes, off_t offset,
		     size_t *p2p);

/* Waits for the requests of streams, as long as the context's time-out, and frees the state of
 * all streams. False: a stream has still to come to one, and the context must stay. */
bool pl_streams_fini(struct peerlane *ctx);

#endif
