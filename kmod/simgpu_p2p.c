// SPDX-License-Identifier: MIT
/*
 * The test GPU's side of NVIDIA's interface, with the rules of the real one. They are listed, with
 * where each comes from and which test shows it, in docs/kmod.md.
 */
#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "simgpu_dev.h"

static bool persistent = true;
module_param(persistent, bool, 0644);
MODULE_PARM_DESC(persistent, "have persistent pins; some GPUs and settings have none");

static uint tables = 2;
module_param(tables, uint, 0644);
MODULE_PARM_DESC(tables, "layout of page tables: 1, as up to version 555 of the driver, or 2");

static uint aperture;
module_param(aperture, uint, 0644);
MODULE_PARM_DESC(aperture, "pages that all pins together can map in the BAR; 0 for any number");

static uint put_fails;
module_param(put_fails, uint, 0644);
MODULE_PARM_DESC(put_fails, "so many puts of ordinary pins find no memory for themselves");

static uint put_misses;
module_param(put_misses, uint, 0644);
MODULE_PARM_DESC(put_misses, "so many puts of ordinary pins find none, as if their process were forgotten");

/**
 * struct sim_pin - pinned memory
 * @node: in the allocation's list
 * @alloc: whose
 * @table: what the caller got
 * @callback: to call when the memory is freed; NULL for a persistent pin
 * @data: for @callback
 * @tgid: the process that pinned it
 * @uuid: for @table
 * @nr_mapped: pages it takes of the aperture
 * @entries: for @table
 */
struct sim_pin {
	struct list_head node;
	struct sim_alloc *alloc;
	struct nvidia_p2p_page_table table;
	void (*callback)(void *data);
	void *data;
	pid_t tgid;
	u8 uuid[16];
	u32 nr_mapped;
	struct nvidia_p2p_page *entries;
};

/* Pins with and without callback whose table has not been given back. */
static LIST_HEAD(persistent_pins);
/* Pages that all of them map, each kind by itself. */
static u64 nr_mapped;
/* Who is in a callback. */
static struct task_struct *calling;
/*
 * The driver knows an ordinary pin by the place of its table, and gives that to the next one. So
 * does this: whoever puts one late puts another. Not where the kernel notices uses of freed memory.
 */
static struct sim_pin spare;
static bool spare_taken = IS_ENABLED(CONFIG_KASAN);

static struct sim_pin *pin_alloc(bool ordinary)
{
	if (!ordinary || spare_taken)
		return kzalloc(sizeof(spare), GFP_KERNEL);
	spare_taken = true;
	memset(&spare, 0, sizeof(spare));
	return &spare;
}

static void pin_free(struct sim_pin *pin)
{
	nr_mapped -= pin->nr_mapped;
	/* Whoever reads the table afterwards shall notice. */
	if (pin->table.pages)
		memset(pin->table.pages, 0x5a, pin->table.entries * sizeof(*pin->table.pages));
	kvfree(pin->entries);
	kvfree(pin->table.pages);
	memset(&pin->table, 0x5a, sizeof(pin->table));
	if (pin == &spare)
		spare_taken = false;
	else
		kfree(pin);
}

/* No callback may call the driver: the real one then fails to take its lock once more. */
static bool from_callback(void)
{
	return WARN_ON(READ_ONCE(calling) == current);
}

/*
 * Where a page is. Each kind of pin maps the memory in the BAR anew. Here the BAR is the memory, so
 * only one kind can be right: the persistent one. The others are told a place that is none.
 */
static u64 page_place(struct sim_pin *pin, u32 page)
{
	return sim_physical(pin->alloc, page) + (pin->callback ? sim.bytes : 0);
}

static void table_head(struct sim_pin *pin, u32 nr)
{
	struct nvidia_p2p_page_table *table = &pin->table;
	u32 value;

	table->version = tables == 1 ? NV_P2P_TABLE_V1 : NV_P2P_TABLE_V2;
	if (sim_fault(SIMGPU_FAULT_VERSION, &value))
		table->version = value;
	table->page_size =
		sim_fault(SIMGPU_FAULT_PAGE_SIZE, &value) ? value : NVIDIA_P2P_PAGE_SIZE_64KB;
	table->entries = nr;
	table->gpu_uuid = pin->uuid;
}

static int table_fill(struct sim_pin *pin, u32 first, u32 nr)
{
	struct nvidia_p2p_page_table *table = &pin->table;
	u32 i, value;

	if (aperture && nr_mapped + nr > aperture)
		return -ENOMEM;
	nr_mapped += nr;
	pin->nr_mapped = nr;
	table_head(pin, nr);
	table->pages = kvcalloc(nr, sizeof(*table->pages), GFP_KERNEL);
	pin->entries = kvcalloc(nr, sizeof(*pin->entries), GFP_KERNEL);
	if (!table->pages || !pin->entries)
		return -ENOMEM;
	for (i = 0; i < nr; i++) {
		pin->entries[i].physical_address = page_place(pin, first + i);
		table->pages[i] = &pin->entries[i];
	}
	if (sim_fault(SIMGPU_FAULT_OUTSIDE, &value)) {
		pin->entries[nr - 1].physical_address = sim.start + sim.bytes;
		/* As where the memory of the GPU is memory of the CPU's too. */
		for (i = 0; value && i < nr; i++)
			pin->entries[i].physical_address =
				ALIGN_DOWN(virt_to_phys(current), SIMGPU_PAGE_BYTES);
	}
	return 0;
}

/* May this be pinned at all, and what is it? */
static int find(u64 address, u64 length, u32 fault, struct sim_alloc **alloc)
{
	u32 value;

	if (!length || (address | length) % SIMGPU_PAGE_BYTES)
		return -EINVAL;
	/* Allocations are remembered when the device goes, but there is no memory. */
	if (!sim.pdev)
		return -ENODEV;
	if (sim_fault(SIMGPU_FAULT_DELAY, &value))
		msleep(min(value, 10000U));
	if (sim_fault(fault, &value))
		return -(int)value;
	*alloc = sim_find(address, length);
	return *alloc ? 0 : -EINVAL;
}

/*
 * The driver gets the pages and then registers the callback. Another thread may free the memory in
 * between: no callback. Or afterwards, before the caller knows: the callback comes first.
 */
static int watch(struct sim_pin *pin, struct nvidia_p2p_page_table **out)
{
	struct sim_alloc *alloc = pin->alloc;
	bool early;
	u32 when;

	early = sim_fault(SIMGPU_FAULT_EARLY_FREE, &when);
	if (early && when) {
		sim_free(alloc->owner, alloc->address);
		pin_free(pin);
		*out = NULL;
		return -EINVAL;
	}
	list_add_tail(&pin->node, &alloc->pins);
	sim.nr_pins++;
	if (early)
		sim_free(alloc->owner, alloc->address);
	return 0;
}

static int get(u64 address, u64 length, struct nvidia_p2p_page_table **out,
	       void (*callback)(void *), void *data, u32 fault)
{
	struct sim_alloc *alloc;
	struct sim_pin *pin;
	int err;

	err = find(address, length, fault, &alloc);
	if (err)
		return err;
	pin = pin_alloc(callback);
	if (!pin)
		return -ENOMEM;
	pin->alloc = alloc;
	pin->callback = callback;
	pin->data = data;
	pin->tgid = current->tgid;
	err = table_fill(pin, (u32)((address - alloc->address) / SIMGPU_PAGE_BYTES),
			 (u32)(length / SIMGPU_PAGE_BYTES));
	if (err) {
		pin_free(pin);
		return err;
	}
	*out = &pin->table;
	if (callback)
		return watch(pin, out);
	list_add_tail(&pin->node, &persistent_pins);
	alloc->nr_persistent++;
	return 0;
}

/**
 * struct sim_call - a callback in a thread of its own
 * @pin: whose
 * @done: it has returned
 */
struct sim_call {
	struct sim_pin *pin;
	struct completion done;
};

static int call_here(void *data)
{
	struct sim_call *call = data;

	WRITE_ONCE(calling, current);
	call->pin->callback(call->pin->data);
	WRITE_ONCE(calling, NULL);
	complete(&call->done);
	return 0;
}

/*
 * Memory is freed by its process, by whoever closes the last descriptor, or by a thread of the
 * driver: callbacks may run anywhere.
 */
static void call_back(struct sim_pin *pin)
{
	struct sim_call call = { .pin = pin };
	struct task_struct *thread = NULL;

	init_completion(&call.done);
	if (sim.nr_callbacks % 8 == 7)
		thread = kthread_create(call_here, &call, "simgpu");
	if (IS_ERR_OR_NULL(thread)) {
		call_here(&call);
		return;
	}
	get_task_struct(thread);
	wake_up_process(thread);
	wait_for_completion(&call.done);
	kthread_stop(thread);
	put_task_struct(thread);
}

/* The memory goes: tell all who pinned it, then free what they got. */
void sim_revoke(struct sim_alloc *alloc)
{
	struct sim_pin *pin;

	while ((pin = list_first_entry_or_null(&alloc->pins, struct sim_pin, node))) {
		list_del(&pin->node);
		sim.nr_pins--;
		sim.nr_callbacks++;
		call_back(pin);
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
	if (from_callback())
		return -EIO;
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
 * Waits for a callback that has begun. Without a token the driver looks only among the pins of the
 * process that calls. Anywhere else, in a kernel worker too, it finds nothing and still answers 0:
 * the pin and its callback stay.
 *
 * Return: 0, also when the callback was called before, or the pin is another process's; -ENOMEM
 * when nothing was done.
 */
int nvidia_p2p_put_pages(u64 p2p_token, u32 va_space, u64 virtual_address,
			 struct nvidia_p2p_page_table *page_table)
{
	struct sim_alloc *alloc;
	struct sim_pin *pin;

	if (p2p_token || va_space)
		return -EINVAL;
	if (from_callback())
		return -EIO;
	mutex_lock(&sim.lock);
	if (put_misses) {
		put_misses--;
		goto out;
	}
	if (put_fails) {
		put_fails--;
		mutex_unlock(&sim.lock);
		return -ENOMEM;
	}
	list_for_each_entry(alloc, &sim.allocs, node) {
		list_for_each_entry(pin, &alloc->pins, node) {
			if (&pin->table == page_table && pin->tgid == current->tgid) {
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
 * Return: as nvidia_p2p_get_pages(); -ENOTSUPP when there are none.
 */
int nvidia_p2p_get_pages_persistent(u64 virtual_address, u64 length,
				    struct nvidia_p2p_page_table **page_table, u32 flags)
{
	int err;

	if (flags || !page_table)
		return -EINVAL;
	if (from_callback())
		return -EIO;
	if (!persistent)
		return -ENOTSUPP;
	mutex_lock(&sim.lock);
	err = get(virtual_address, length, page_table, NULL, NULL, SIMGPU_FAULT_PERSISTENT);
	mutex_unlock(&sim.lock);
	return err;
}
EXPORT_SYMBOL_GPL(nvidia_p2p_get_pages_persistent);

/* Is memory pinned that keeps the GPU? */
bool sim_kept(void)
{
	bool kept;

	mutex_lock(&sim.lock);
	kept = !list_empty(&persistent_pins);
	mutex_unlock(&sim.lock);
	return kept;
}

/**
 * nvidia_p2p_put_pages_persistent() - undo nvidia_p2p_get_pages_persistent()
 * @virtual_address: as for get
 * @page_table: from get
 * @flags: 0
 *
 * Works from any process. The real driver trusts the table, and keeps the GPU while there is one.
 *
 * Return: 0; -EINVAL flags, or a table that is none.
 */
int nvidia_p2p_put_pages_persistent(u64 virtual_address, struct nvidia_p2p_page_table *page_table,
				    u32 flags)
{
	struct sim_alloc *alloc;
	struct sim_pin *pin;
	int err = -EINVAL;

	if (from_callback())
		return -EIO;
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
	WARN_ON(err);
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
