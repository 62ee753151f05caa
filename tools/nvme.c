/* SPDX-License-Identifier: MIT */
/* peerlane nvme: commands for the user-space NVMe driver. */
#include "commands.h"

static const struct pl_command *const subs[] = {
	&pl_command_nvme_list,
	&pl_command_nvme_bind,
	&pl_command_nvme_unbind,
	&pl_command_nvme_identify,
	&pl_command_nvme_read,
	&pl_command_nvme_write,
	&pl_command_nvme_verify,
	&pl_command_nvme_latency,
	&pl_command_nvme_perf,
	&pl_command_nvme_serve,
	NULL,
};

const struct pl_command pl_command_nvme = {
	.name = "nvme",
	.summary = "Drive NVMe controllers without the kernel.",
	.args = "COMMAND [options]",
	.detail =
		"Commands for NVMe controllers that a program drives itself, without the kernel in "
		"between. ADDRESS is sim: and settings, such as sim:size=1G,bs=4096, or names a "
		"device that was bound for it: 'peerlane nvme list' tells the addresses of this "
		"machine. A controller is reset when a command opens it, and one program has it at "
		"a time, unless that one serves it to others: for them it is served:PATH.",
	.subs = subs,
};
