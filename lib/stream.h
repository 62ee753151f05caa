/* SPDX-License-Identifier: MIT */
/* Stream-ordered reads and writes; the state of a context's streams. */
#ifndef PL_STREAM_H
#define PL_STREAM_H

struct peerlane;

/* Waits for requests that streams have started, and frees the state of all streams. */
void pl_streams_fini(struct peerlane *ctx);

#endif
