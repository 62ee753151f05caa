// SPDX-License-Identifier: MIT
/*
 * What the test GPU's driver does with its BAR, as the real one does:
 *
 * It maps parts of it for itself, some uncached and some write-combined, for as long as it drives the
 * device; so the kernel refuses page structures for the whole BAR. Ordinary memory of programs is in
 * the lower half, far from that; see SIMGPU_PLACE_* for memory that is not.
 *
 * With p2pmem=1 it makes P2PDMA pages of the whole BAR when a program opens the device that nobody had
 * open, and takes them away when the last one closes it, as nvidia-uvm does. Then it maps nothing
 * write-combined: nvidia-uvm makes pages only if the driver is told not to.
 *
 * The pages go before the memory of the last program is taken back, and with a lock held that every
 * open of the device needs, like nvidia-uvm's own; but not the one of the driver that pinning and
 * freeing memory needs: nvidia-uvm does not hold that one either when its device is closed.
 */
#include <linux/bitmap.h>
#include <linux/io.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/pci-p2pdma.h>

#include "simgpu_dev.h"

static bool p2pmem;
module_param(p2pmem, bool, 0444);
MODULE_PARM_DESC(p2pmem,
		 "make P2PDMA pages of the whole memory while a program has the device open, "
		 "as some GPU drivers do");

/* The upper half of the BAR in pieces of 2 MiB; all others of them are nobody's. */
#define PIECE_PAGES (SIM_PIECE_BYTES / SIMGPU_PAGE_BYTES)

/* What the driver maps for itself; in pages from the middle of the BAR. */
static const struct {
	u32 first;
	u32 nr;
	bool write_combined;
} parts[] = {
	{ 0, PIECE_PAGES, false },
	{ PIECE_PAGES, PIECE_PAGES, true },
	{ 11 * PIECE_PAGES, PIECE_PAGES / 2, false },
	{ 11 * PIECE_PAGES + PIECE_PAGES / 2, PIECE_PAGES / 2, true },
	{ 13 * PIECE_PAGES, 1, true },
	{ 13 * PIECE_PAGES + PIECE_PAGES - 1, 1, false },
	{ 15 * PIECE_PAGES, 1, false },
	{ 15 * PIECE_PAGES + 1, 1, true },
};

/* The pieces in which each kind of memory is; see simgpu.h. */
const struct sim_place sim_places[SIMGPU_NR_PLACES] = {
	[SIMGPU_PLACE_NEAR] = { { 2, 3 }, 2 },
	[SIMGPU_PLACE_BETWEEN] = { { 10, 12, 14 }, 3 },
	[SIMGPU_PLACE_AMONG] = { { 15 }, 1 },
};

static void __iomem *mapped[ARRAY_SIZE(parts)];

void sim_parts_unmap(void)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(parts); i++) {
		if (mapped[i])
			iounmap(mapped[i]);
		mapped[i] = NULL;
	}
}

int sim_parts_map(void)
{
	u32 middle = sim.nr_pages / 2;
	size_t i, bytes;
	u64 at;

	for (i = 0; i < ARRAY_SIZE(parts); i++) {
		at = sim.start + (u64)(middle + parts[i].first) * SIMGPU_PAGE_BYTES;
		bytes = (size_t)parts[i].nr * SIMGPU_PAGE_BYTES;
		mapped[i] = parts[i].write_combined && !p2pmem ? ioremap_wc(at, bytes)
							       : ioremap(at, bytes);
		if (!mapped[i]) {
			sim_parts_unmap();
			return -ENOMEM;
		}
		bitmap_set(sim.used, middle + parts[i].first, parts[i].nr);
	}
	return 0;
}

static int pages_make(void)
{
	struct device *dev = &sim.pdev->dev;
	int err;

	sim.group = devres_open_group(dev, NULL, GFP_KERNEL);
	if (!sim.group)
		return -ENOMEM;
	err = pci_p2pdma_add_resource(sim.pdev, SIM_BAR, 0, 0);
	devres_close_group(dev, sim.group);
	if (err) {
		devres_release_group(dev, sim.group);
		sim.group = NULL;
	}
	return err;
}

/* The pages come or go, as programs have the device open and it is there. */
static int pages_update(void)
{
	bool wanted = p2pmem && sim.nr_open && sim.pdev && !sim.removing;

	if (wanted && !sim.group)
		return pages_make();
	if (!wanted && sim.group) {
		devres_release_group(&sim.pdev->dev, sim.group);
		sim.group = NULL;
	}
	return 0;
}

/* A program opens the device, or (-1) closes it. */
int sim_pages_open(int by)
{
	int err;

	mutex_lock(&sim.open_lock);
	sim.nr_open += by;
	err = pages_update();
	if (err)
		sim.nr_open -= by;
	mutex_unlock(&sim.open_lock);
	return err;
}

/* The device comes, or goes: sim.pdev is set already, or still. */
int sim_pages_device(bool removing)
{
	int err;

	mutex_lock(&sim.open_lock);
	sim.removing = removing;
	err = pages_update();
	mutex_unlock(&sim.open_lock);
	return err;
}
