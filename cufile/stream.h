/* SPDX-License-Identifier: MIT */
/* Registered streams. */
#ifndef PL_CF_STREAM_H
#define PL_CF_STREAM_H

void pl_cf_streams_clear(void);
void pl_cf_streams_forget(void);

#endif
