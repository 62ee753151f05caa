/* SPDX-License-Identifier: MIT */
/* peerlane model: commands for safetensors files. */
#include "commands.h"

static const struct pl_command *const subs[] = {
	&pl_command_model_ls,
	&pl_command_model_load,
	&pl_command_model_verify,
	&pl_command_model_cp,
	NULL,
};

const struct pl_command pl_command_model = {
	.name = "model",
	.summary = "List, load, verify and copy safetensors files.",
	.args = "COMMAND [options] MODEL",
	.detail =
		"Commands for model weights. MODEL is a safetensors file, an index file (its name "
		"ends in .json) beside its shards, or a folder with "
		"model.safetensors.index.json or model.safetensors in it, or with one such file of "
		"another name.",
	.subs = subs,
};
