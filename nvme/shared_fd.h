/* SPDX-License-Identifier: MIT */
/* Finds the file behind shared memory, so that it can be given to another process. */
#ifndef PL_NVME_SHARED_FD_H
#define PL_NVME_SHARED_FD_H

#include <stddef.h>
#include <stdint.h>

/*
 * A descriptor of the file that is mapped, shared, at these bytes, and their offset in it; to be closed.
 * -EOPNOTSUPP: the memory is private, or this process has no descriptor of the file any more, or the
 * bytes are more than one mapping. -EFAULT: there is no memory.
 */
int pl_nvme_shared_fd(const void *ptr, size_t bytes, uint64_t *offset);

#endif
