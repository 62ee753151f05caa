// SPDX-License-Identifier: MIT
/*
 * peerlane.ko: GPU memory with page structures, mapped into processes.
 */
#include <linux/miscdevice.h>
#include <linux/module.h>

#include "core.h"

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "peerlane",
	.fops = &pl_file_ops,
	.mode = 0660,
};

static int __init core_init(void)
{
	/* Structures that both sides compile must be alike. */
	BUILD_BUG_ON(sizeof(struct peerlane_hello) != 64);
	BUILD_BUG_ON(sizeof(struct peerlane_pin) != 96);
	BUILD_BUG_ON(sizeof(struct peerlane_unpin) != 24);
	BUILD_BUG_ON(sizeof(struct peerlane_list) != 32);
	BUILD_BUG_ON(sizeof(struct peerlane_info) != 120);
	BUILD_BUG_ON(sizeof(struct peerlane_route) != 72);
	BUILD_BUG_ON(sizeof(struct peerlane_counters) != 192);
	return misc_register(&device);
}

/*
 * Open files and mappings hold the module, and so does each provider, which its pins hold. So by now
 * nothing is pinned, and no device uses a page: lingering pins hold their provider as well.
 */
static void __exit core_exit(void)
{
	misc_deregister(&device);
	pl_pins_fini();
	pl_frames_fini();
}

module_init(core_init);
module_exit(core_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("Direct transfers between storage and GPU memory");
MODULE_VERSION("0.1.0");
