/* SPDX-License-Identifier: MIT */
/* The sub-commands of the tool. */
#ifndef PL_COMMANDS_H
#define PL_COMMANDS_H

#include "option.h"

extern const struct pl_command pl_command_check;
extern const struct pl_command pl_command_bench;
extern const struct pl_command pl_command_bench_gpu;
extern const struct pl_command pl_command_gpu_array;
extern const struct pl_command pl_command_gpu_bfs;
extern const struct pl_command pl_command_gpu_mixed;
extern const struct pl_command pl_command_gpu_file;
extern const struct pl_command pl_command_gpu_read;
extern const struct pl_command pl_command_gpu_ring;
extern const struct pl_command pl_command_gpu_scan;
extern const struct pl_command pl_command_gpu_sum;
extern const struct pl_command pl_command_cp;
extern const struct pl_command pl_command_stat;
extern const struct pl_command pl_command_model;
extern const struct pl_command pl_command_model_cp;
extern const struct pl_command pl_command_model_load;
extern const struct pl_command pl_command_model_ls;
extern const struct pl_command pl_command_model_verify;
extern const struct pl_command pl_command_nvme;
extern const struct pl_command pl_command_nvme_bind;
extern const struct pl_command pl_command_nvme_identify;
extern const struct pl_command pl_command_nvme_latency;
extern const struct pl_command pl_command_nvme_list;
extern const struct pl_command pl_command_nvme_perf;
extern const struct pl_command pl_command_nvme_read;
extern const struct pl_command pl_command_nvme_serve;
extern const struct pl_command pl_command_nvme_unbind;
extern const struct pl_command pl_command_nvme_verify;
extern const struct pl_command pl_command_nvme_write;
extern const struct pl_command pl_command_prove;

#endif
