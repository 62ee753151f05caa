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
 * resources would go with the driver, whatever uses them; so end all use before. The lock of the
 * device is held until the driver is gone, so nothing is pinned meanwhile.
 */
static int on_bus(struct notifier_block *block, unsigned long action, void *data)
{
	struct device *dev = data;
	struct pl_bar *bar;

	if (action != BUS_NOTIFY_UNBIND_DRIVER)
		return NOTIFY_DONE;
	while ((bar = pl_frames_close(dev))) {
		pl_pins_stop(bar);
		pl_bar_put(bar);
	}
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
	err = pl_ends_init();
	if (err)
		return err;
	err = pl_bars_init();
	if (err)
		goto err_ends;
	err = bus_register_notifier(&pci_bus_type, &bus_block);
	if (err)
		goto err_bars;
	err = misc_register(&device);
	if (err)
		goto err_bus;
	return 0;

err_bus:
	bus_unregister_notifier(&pci_bus_type, &bus_block);
err_bars:
	pl_bars_fini();
err_ends:
	pl_ends_fini();
	return err;
}

/*
 * Open files and mappings hold the module, and so does each provider, which its pins hold. So by
 * now nothing is pinned, and no device uses a page: lingering pins hold their provider as well.
 */
static void __exit core_exit(void)
{
	misc_deregister(&device);
	pl_ends_fini();
	pl_pins_fini();
	pl_frames_forget(NULL);
	/* Not before: a driver that goes would take pages with it. */
	bus_unregister_notifier(&pci_bus_type, &bus_block);
	pl_bars_fini();
}

module_init(core_init);
module_exit(core_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("Direct transfers between storage and GPU memory");
MODULE_VERSION("0.1.0");
