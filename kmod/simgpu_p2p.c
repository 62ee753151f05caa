// SPDX-License-Identifier: MIT
/*
 * The test GPU's side of NVIDIA's interface, with the rules of the real one: alignment, one
 * allocation, callback under the driver's lock and possibly early, table freed after the callback,
 * put after the callback without effect, frees without effect.
 */
#include <linux/delay.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "simgpu_dev.h"

/**
 * struct sim_pin - pinned memory
 * @node: in the allocation's list
 * @alloc: whose
 * @table: what the caller got
 * @callback: to call when the memory is freed; NULL for a persistent pin
 * @data: for @callback
 * @uuid: for @table
 * @entries: for @table
 */
struct sim_pin {
	struct list_head node;
	struct sim_alloc *alloc;
	struct nvidia_p2p_page_table table;
	void (*callback)(void *data);
	void *data;
	u8 uuid[16];
	struct nvidia_p2p_page *entries;
};

/* Pins with and without callback whose table has not been given back. */
static LIST_HEAD(persistent_pins);

static void pin_free(struct sim_pin *pin)
{
	/* Whoever reads the table afterwards shall notice. */
	if (pin->table.pages)
		memset(pin->table.pages, 0x5a, pin->table.entries * sizeof(*pin->table.pages));
	kvfree(pin->entries);
	kvfree(pin->table.pages);
	memset(&pin->table, 0x5a, sizeof(pin->table));
	kfree(pin);
}

static int table_fill(struct sim_pin *pin, u32 first, u32 nr)
{
	struct nvidia_p2p_page_table *table = &pin->table;
	u32 i, value;

	table->version = sim_fault(SIMGPU_FAULT_VERSION, &value) ? value : NV_P2P_TABLE_V2;
	table->page_size =
		sim_fault(SIMGPU_FAULT_PAGE_SIZE, &value) ? value : NVIDIA_P2P_PAGE_SIZE_64KB;
	table->entries = nr;
	table->gpu_uuid = pin->uuid;
	table->pages = kvcalloc(nr, sizeof(*table->pages), GFP_KERNEL);
	pin->entries = kvcalloc(nr, sizeof(*pin->entries), GFP_KERNEL);
	if (!table->pages || !pin->entries)
		return -ENOMEM;
	for (i = 0; i < nr; i++) {
		pin->entries[i].physical_address = sim_physical(pin->alloc, first + i);
		table->pages[i] = &pin->entries[i];
	}
	if (sim_fault(SIMGPU_FAULT_OUTSIDE, &value))
		pin->entries[nr - 1].physical_address = sim.start + sim.bytes;
	return 0;
}

static int get(u64 address, u64 length, struct nvidia_p2p_page_table **out,
	       void (*callback)(void *), void *data, u32 fault)
{
	struct sim_alloc *alloc;
	struct sim_pin *pin;
	u32 value;
	int err;

	if (!length || (address | length) % SIMGPU_PAGE_BYTES)
		return -EINVAL;
	/* Allocations are remembered when the device goes, but there is no memory. */
	if (!sim.pdev)
		return -ENODEV;
	if (sim_fault(SIMGPU_FAULT_DELAY, &value))
		msleep(min(value, 10000U));
	if (sim_fault(fault, &value))
		return -(int)value;
	alloc = sim_find(address, length);
	if (!alloc)
		return -EINVAL;
	pin = kzalloc(sizeof(*pin), GFP_KERNEL);
	if (!pin)
		return -ENOMEM;
	pin->alloc = alloc;
	pin->callback = callback;
	pin->data = data;
	err = table_fill(pin, (u32)((address - alloc->address) / SIMGPU_PAGE_BYTES),
			 (u32)(length / SIMGPU_PAGE_BYTES));
	if (err) {
		pin_free(pin);
		return err;
	}
	*out = &pin->table;
	if (callback) {
		list_add_tail(&pin->node, &alloc->pins);
		sim.nr_pins++;
		/* As when another thread frees the memory at this very moment. */
		if (sim_fault(SIMGPU_FAULT_EARLY_FREE, &value))
			sim_free(alloc->owner, alloc->address);
	} else {
		list_add_tail(&pin->node, &persistent_pins);
		alloc->nr_persistent++;
	}
	return 0;
}

/* The memory goes: tell all who pinned it, then free what they got. */
void sim_revoke(struct sim_alloc *alloc)
{
	struct sim_pin *pin;

	while ((pin = list_first_entry_or_null(&alloc->pins, struct sim_pin, node))) {
		list_del(&pin->node);
		sim.nr_pins--;
		sim.nr_callbacks++;
		pin->callback(pin->data);
		pin_free(pin);
	}
}

/**
 * nvidia_p2p_get_pages() - pin GPU memory
 * @p2p_token: 0
 * @va_space: 0
 * @virtual_address: GPU address, a multiple of 64 KiB
 * @length: bytes, likewise
 * @page_table: receives the pages
 * @free_callback: called when the memory is freed
 * @data: for the callback
 *
 * Return: 0; -EINVAL bad alignment, or not in one allocation of this process; -ENOMEM.
 */
int nvidia_p2p_get_pages(u64 p2p_token, u32 va_space, u64 virtual_address, u64 length,
			 struct nvidia_p2p_page_table **page_table, void (*free_callback)(void *),
			 void *data)
{
	int err;

	if (p2p_token || va_space || !free_callback || !data || !page_table)
		return -EINVAL;
	mutex_lock(&sim.lock);
	err = get(virtual_address, length, page_table, free_callback, data, SIMGPU_FAULT_GET);
	mutex_unlock(&sim.lock);
	return err;
}
EXPORT_SYMBOL_GPL(nvidia_p2p_get_pages);

/**
 * nvidia_p2p_put_pages() - undo nvidia_p2p_get_pages()
 * @p2p_token: 0
 * @va_space: 0
 * @virtual_address: as for get
 * @page_table: from get
 *
 * Waits for a callback that has begun.
 *
 * Return: 0, also when the callback was called before.
 */
int nvidia_p2p_put_pages(u64 p2p_token, u32 va_space, u64 virtual_address,
			 struct nvidia_p2p_page_table *page_table)
{
	struct sim_alloc *alloc;
	struct sim_pin *pin;

	if (p2p_token || va_space)
		return -EINVAL;
	mutex_lock(&sim.lock);
	list_for_each_entry(alloc, &sim.allocs, node) {
		list_for_each_entry(pin, &alloc->pins, node) {
			if (&pin->table == page_table) {
				list_del(&pin->node);
				sim.nr_pins--;
				pin_free(pin);
				goto out;
			}
		}
	}
out:
	mutex_unlock(&sim.lock);
	return 0;
}
EXPORT_SYMBOL_GPL(nvidia_p2p_put_pages);

/**
 * nvidia_p2p_get_pages_persistent() - pin GPU memory that stays even if it is freed
 * @virtual_address: GPU address, a multiple of 64 KiB
 * @length: bytes, likewise
 * @page_table: receives the pages
 * @flags: 0
 *
 * Return: as nvidia_p2p_get_pages().
 */
int nvidia_p2p_get_pages_persistent(u64 virtual_address, u64 length,
				    struct nvidia_p2p_page_table **page_table, u32 flags)
{
	int err;

	if (flags || !page_table)
		return -EINVAL;
	mutex_lock(&sim.lock);
	err = get(virtual_address, length, page_table, NULL, NULL, SIMGPU_FAULT_PERSISTENT);
	mutex_unlock(&sim.lock);
	return err;
}
EXPORT_SYMBOL_GPL(nvidia_p2p_get_pages_persistent);

/**
 * nvidia_p2p_put_pages_persistent() - undo nvidia_p2p_get_pages_persistent()
 * @virtual_address: as for get
 * @page_table: from get
 * @flags: 0
 *
 * Return: 0; -EINVAL flags, or a table that is none.
 */
int nvidia_p2p_put_pages_persistent(u64 virtual_address, struct nvidia_p2p_page_table *page_table,
				    u32 flags)
{
	struct sim_alloc *alloc;
	struct sim_pin *pin;
	int err = -EINVAL;

	mutex_lock(&sim.lock);
	list_for_each_entry(pin, &persistent_pins, node) {
		if (!flags && &pin->table == page_table) {
			list_del(&pin->node);
			alloc = pin->alloc;
			alloc->nr_persistent--;
			pin_free(pin);
			sim_alloc_release(alloc);
			err = 0;
			break;
		}
	}
	mutex_unlock(&sim.lock);
	return err;
}
EXPORT_SYMBOL_GPL(nvidia_p2p_put_pages_persistent);

/**
 * nvidia_p2p_free_page_table() - without effect, as in the real driver
 * @page_table: from get
 *
 * Return: 0.
 */
int nvidia_p2p_free_page_table(struct nvidia_p2p_page_table *page_table)
{
	return 0;
}
EXPORT_SYMBOL_GPL(nvidia_p2p_free_page_table);
