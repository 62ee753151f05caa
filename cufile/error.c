// SPDX-License-Identifier: MIT
/* Errors: of the engine, in the terms of cuFile. */
#include "error.h"

#include <errno.h>
#include <peerlane/peerlane.h>

static CUresult last_cuda(void)
{
	struct peerlane_error_info info = { .size = sizeof(info) };

	return peerlane_error(&info) ? 0 : (CUresult)info.cuda;
}

CUfileError_t pl_cf_status_of(int err)
{
	CUresult cuda;

	switch (err) {
	case 0:
		return pl_cf_status(CU_FILE_SUCCESS);
	case -EREMOTEIO:
	case -ENODEV:
		cuda = last_cuda();
		/* 100: no device, in CUDA's numbers. */
		return (CUfileError_t){ .err = CU_FILE_CUDA_DRIVER_ERROR,
					.cu_err = cuda ? cuda : (CUresult)100 };
	case -EFAULT:
		return pl_cf_status(CU_FILE_CUDA_POINTER_RANGE_ERROR);
	case -ERANGE:
		return pl_cf_status(CU_FILE_INVALID_MAPPING_RANGE);
	case -EEXIST:
		return pl_cf_status(CU_FILE_MEMORY_ALREADY_REGISTERED);
	case -ENOENT:
		return pl_cf_status(CU_FILE_MEMORY_NOT_REGISTERED);
	case -ENOMEM:
		return pl_cf_status(CU_FILE_NOMEM_ERROR);
	case -EMFILE:
	case -ENFILE:
		return pl_cf_status(CU_FILE_GETNEWFD_FAILED);
	case -EISDIR:
	case -ESPIPE:
		return pl_cf_status(CU_FILE_INVALID_FILE_TYPE);
	case -EINVAL:
	case -EBADF:
	case -EOVERFLOW:
		return pl_cf_status(CU_FILE_INVALID_VALUE);
	default:
		return pl_cf_status(CU_FILE_INTERNAL_ERROR);
	}
}

/* A negative errno of the engine as the positive code a synchronous call has in errno. */
static int code_of(int err)
{
	switch (err) {
	case -ERANGE:
		return CU_FILE_INVALID_MAPPING_RANGE;
	case -EFAULT:
		return EPERM;
	case -EOVERFLOW:
		return CU_FILE_INVALID_VALUE;
	case -EREMOTEIO:
		return CU_FILE_CUDA_DRIVER_ERROR;
	case -EOWNERDEAD:
		return CU_FILE_DRIVER_NOT_INITIALIZED;
	default:
		return -err;
	}
}

ssize_t pl_cf_count(ssize_t result)
{
	if (result >= 0)
		return result;
	errno = code_of((int)result);
	return -1;
}

ssize_t pl_cf_stream_count(ssize_t result)
{
	if (result == -ERANGE || result == -EFAULT)
		return -CU_FILE_INVALID_MAPPING_SIZE;
	return result >= 0 ? result : -code_of((int)result);
}

ssize_t pl_cf_event_count(ssize_t result)
{
	if (result == -ERANGE || result == -EFAULT || result == -EREMOTEIO ||
	    result < -CUFILEOP_BASE_ERR)
		return -EIO;
	return result;
}
