// SPDX-License-Identifier: MIT
/* The layouts programs were compiled for: none of them may ever change. */
#include "cufile.h"

#define SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), "size of " #type)
#define AT(type, member, where)                                                                    \
	_Static_assert(offsetof(type, member) == (where), "place of " #member " in " #type)

SIZE(CUfileOpError, 4);
SIZE(CUresult, 4);
SIZE(CUfileError_t, 8);
SIZE(CUfileDescr_t, 24);
AT(CUfileDescr_t, handle, 8);
AT(CUfileDescr_t, fs_ops, 16);
SIZE(cufileRDMAInfo_t, 16);
SIZE(CUfileFSOps_t, 40);
AT(CUfileFSOps_t, read, 24);
AT(CUfileFSOps_t, write, 32);
SIZE(CUfileDrvProps_t, 56);
AT(CUfileDrvProps_t, nvfs.poll_thresh_size, 8);
AT(CUfileDrvProps_t, nvfs.dstatusflags, 24);
AT(CUfileDrvProps_t, fflags, 32);
AT(CUfileDrvProps_t, max_batch_io_timeout_msecs, 52);
SIZE(CUfileIOParams_t, 64);
AT(CUfileIOParams_t, u, 8);
AT(CUfileIOParams_t, fh, 40);
AT(CUfileIOParams_t, opcode, 48);
AT(CUfileIOParams_t, cookie, 56);
SIZE(CUfileIOEvents_t, 24);
AT(CUfileIOEvents_t, status, 8);
AT(CUfileIOEvents_t, ret, 16);
SIZE(CUfileIOVec_t, 16);
SIZE(CUfileOpCounter_t, 16);
SIZE(CUfileStatsLevel1_t, 512);
AT(CUfileStatsLevel1_t, read_bytes, 96);
AT(CUfileStatsLevel1_t, batch_submit_ops, 176);
AT(CUfileStatsLevel1_t, batch_read_bytes, 416);
SIZE(CUfileStatsLevel2_t, 1024);
SIZE(CUfilePerGpuStats_t, 248);
SIZE(CUfileStatsLevel3_t, 5000);
AT(CUfileStatsLevel3_t, num_gpus, 1024);
AT(CUfileStatsLevel3_t, per_gpu_stats, 1032);
