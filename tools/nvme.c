/* SPDX-License-Identifier: MIT */
/* peerlane nvme: commands for the user-space NVMe driver. */
#include "commands.h"

static const struct pl_command *const subs[] = {
	&pl_command_nvme_bind,
	&pl_command_nvme_unbind,
	NULL,
};

const struct pl_command pl_command_nvme = {
	.name = "nvme",
	.summary = "Give NVMe drives to programs that drive them themselves.",
	.args = "COMMAND [options]",
	.detail =
		"Commands for NVMe controllers that a program drives itself, without the kernel in "
		"between.",
	.subs = subs,
};
