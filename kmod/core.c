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

/*
 * A GPU loses its driver, by hand or because its module goes. Pages made with the device's
 * resources would go with the driver, whatever uses them; so end all use before.
 */
static int on_bus(struct notifier_block *block, unsigned long action, void *data)
{
	struct device *dev = data;
	struct pl_bar *bar;

	if (action == BUS_NOTIFY_UNBIND_DRIVER || action == BUS_NOTIFY_DEL_DEVICE) {
		while ((bar = pl_frames_close(dev)))
			pl_pins_stop(bar);
		pl_frames_remove(dev);
	}
	/* Not before: what is pinned while the driver goes must be refused. */
	if (action == BUS_NOTIFY_UNBOUND_DRIVER || action == BUS_NOTIFY_DEL_DEVICE)
		pl_frames_forget(dev);
	return NOTIFY_DONE;
}

static struct notifier_block bus_block = {
	.notifier_call = on_bus,
};

static int __init core_init(void)
{
	int err;

	/* Structures that both sides compile must be alike. */
	BUILD_BUG_ON(sizeof(struct peerlane_hello) != 64);
	BUILD_BUG_ON(sizeof(struct peerlane_pin) != 96);
	BUILD_BUG_ON(sizeof(struct peerlane_unpin) != 24);
	BUILD_BUG_ON(sizeof(struct peerlane_list) != 32);
	BUILD_BUG_ON(sizeof(struct peerlane_info) != 120);
	BUILD_BUG_ON(sizeof(struct peerlane_route) != 72);
	BUILD_BUG_ON(sizeof(struct peerlane_counters) != 192);
	err = bus_register_notifier(&pci_bus_type, &bus_block);
	if (err)
		return err;
	err = misc_register(&device);
	if (err)
		bus_unregister_notifier(&pci_bus_type, &bus_block);
	return err;
}

/*
 * Open files and mappings hold the module, and so does each provider, which its pins hold. So by
 * now nothing is pinned, and no device uses a page: lingering pins hold their provider as well.
 */
static void __exit core_exit(void)
{
	misc_deregister(&device);
	pl_pins_fini();
	bus_unregister_notifier(&pci_bus_type, &bus_block);
	pl_frames_forget(NULL);
}

module_init(core_init);
module_exit(core_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("Direct transfers between storage and GPU memory");
MODULE_VERSION("0.1.0");
