/* SPDX-License-Identifier: MIT */
/* Stream-ordered reads and writes; the state of a context's streams. */
#ifndef PL_STREAM_H
#define PL_STREAM_H

#include <peerlane/peerlane.h>
#include <stdbool.h>

/* What is done when a stream gets there. @err is 0, or why it cannot be done: -ECANCELED the
 * context is gone, -EAGAIN there is no thread for it. */
typedef void (*pl_stream_work)(void *arg, int err);

/* Has a worker call @work(@arg) when @stream gets there; the stream goes on when it has returned.
 * It may read and write @file, to which a reference is held until then. *@queued: it will be
 * called, whatever this returns. The errors are those of peerlane_read_async(). */
int pl_stream_run(struct peerlane_file *file, enum peerlane_op op, void *stream,
		  pl_stream_work work, void *arg, bool *queued);

/* Waits for the requests of streams, as long as the context's time-out, and frees the state of
 * all streams. False: a stream has still to come to one, and the context must stay. */
bool pl_streams_fini(struct peerlane *ctx);

#endif
