/* SPDX-License-Identifier: MIT */
/* Stream-ordered reads and writes; the state of a context's streams. */
#ifndef PL_STREAM_H
#define PL_STREAM_H

struct peerlane;

#include <stdbool.h>

/* Waits for the requests of streams, as long as the context's time-out, and frees the state of
 * all streams. False: a stream has still to come to one, and the context must stay. */
bool pl_streams_fini(struct peerlane *ctx);

#endif
