/* SPDX-License-Identifier: MIT */
/* From what the engine returns to what a cuFile call returns. */
#ifndef PL_CF_ERROR_H
#define PL_CF_ERROR_H

#include "cufile.h"

static inline CUfileError_t pl_cf_status(CUfileOpError err)
{
	return (CUfileError_t){ .err = err };
}

/* The same for a negative errno of the engine: codes of the driver travel in cu_err. */
CUfileError_t pl_cf_status_of(int err);
/* What a read or write gives: the count; or -1, with the code in errno. */
ssize_t pl_cf_count(ssize_t result);
/* What a stream request leaves in *bytes: the count, -errno or -CUfileOpError. */
ssize_t pl_cf_stream_count(ssize_t result);
/* What a batch event has in ret. */
ssize_t pl_cf_event_count(ssize_t result);

#endif
