/* SPDX-License-Identifier: MIT */
/* Stream-ordered reads and writes; the state of a context's streams. */
#ifndef PL_STREAM_H
#define PL_STREAM_H

#include <peerlane/peerlane.h>
#include <stdbool.h>

/* What is to be moved: between the file at @offset and the memory @shift bytes after the address of the request. */
struct pl_stream_what {
	size_t shift, bytes;
	off_t offset;
};

/* A request of somebody who wants to know when its time comes. Both are called by a worker, and must not call the
 * driver or the engine: see stream.c. */
struct pl_stream_work {
	/* The stream got there: what counts now? A negative number refuses. */
	int (*begin)(void *arg, struct pl_stream_what *what);
	/* Once, in any case, before the stream goes on. @n is the count, what begin() answered, or why there was
	 * nothing: -ECANCELED the context is gone, -EAGAIN there is no thread for it. @p2p bytes of it went between
	 * drive and GPU memory. */
	void (*end)(void *arg, ssize_t n, size_t p2p);
};

/* Reads or writes @file when @stream gets there, what @work says then. It will probably be @bytes at @offset; 0: that is
 * not known. *@queued: @work will be called, whatever this returns. The errors are those of peerlane_read_async(). */
int pl_stream_run(struct peerlane_file *file, enum peerlane_op op, void *addr, size_t bytes,
		  off_t offset, void *stream, const struct pl_stream_work *work, void *arg,
		  bool *queued);

/* How many workers see to streams: they look all the time while copies are under way, so few of the CPUs. */
unsigned int pl_stream_threads(void);

/* Waits for the requests of streams, as long as the context's time-out, and frees the state of
 * all streams. False: a stream has still to come to one, and the context must stay. */
bool pl_streams_fini(struct peerlane *ctx);

#endif
