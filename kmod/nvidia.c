// SPDX-License-Identifier: MIT
/*
 * peerlane_nvidia.ko: memory of NVIDIA GPUs, by the interface of their open kernel modules.
 *
 * The functions are looked up when memory is pinned, not when this module is loaded: so it loads in
 * any order, needs none of NVIDIA's files to be built, and leaves their driver free to be unloaded
 * while nothing is pinned.
 */
#include <linux/module.h>
#include <linux/slab.h>

#include "nv_p2p.h"
#include "provider.h"

/**
 * struct nv_calls - the functions of the driver
 * @get: pin with callback
 * @put: undo
 * @get_persistent: pin without; NULL if the driver is too old for that
 * @put_persistent: undo
 */
struct nv_calls {
	typeof(nvidia_p2p_get_pages) *get;
	typeof(nvidia_p2p_put_pages) *put;
	typeof(nvidia_p2p_get_pages_persistent) *get_persistent;
	typeof(nvidia_p2p_put_pages_persistent) *put_persistent;
};

/**
 * struct nv_pin - a pin at the driver
 * @calls: hold the driver's module
 * @table: its pages
 */
struct nv_pin {
	struct nv_calls calls;
	struct nvidia_p2p_page_table *table;
};

static void calls_put(struct nv_calls *calls)
{
	if (calls->put_persistent)
		symbol_put(nvidia_p2p_put_pages_persistent);
	if (calls->get_persistent)
		symbol_put(nvidia_p2p_get_pages_persistent);
	if (calls->put)
		symbol_put(nvidia_p2p_put_pages);
	if (calls->get)
		symbol_put(nvidia_p2p_get_pages);
	*calls = (struct nv_calls){};
}

static int calls_get(struct nv_calls *calls)
{
	*calls = (struct nv_calls){};
	calls->get = symbol_get(nvidia_p2p_get_pages);
	calls->put = symbol_get(nvidia_p2p_put_pages);
	calls->get_persistent = symbol_get(nvidia_p2p_get_pages_persistent);
	calls->put_persistent = symbol_get(nvidia_p2p_put_pages_persistent);
	if (calls->get && calls->put)
		return 0;
	calls_put(calls);
	return -ENODEV;
}

static bool nv_available(bool *persistent)
{
	struct nv_calls calls;

	*persistent = false;
	if (calls_get(&calls))
		return false;
	*persistent = calls.get_persistent && calls.put_persistent;
	calls_put(&calls);
	return true;
}

/* The driver frees the table after this returns. */
static void nv_revoked(void *data)
{
	peerlane_lease_revoked(data);
}

/* Read a table of a layout we know, with pages of the one size there is. */
static int nv_read(const void *data, u64 *physical, u32 nr_pages)
{
	const struct nvidia_p2p_page_table *table = data;
	u32 major = NV_P2P_MAJOR(table->version), i;

	if (major != NV_P2P_MAJOR(NV_P2P_TABLE_V1) && major != NV_P2P_MAJOR(NV_P2P_TABLE_V2)) {
		pr_warn_once("peerlane_nvidia: page table version %#x is not known\n",
			     table->version);
		return -EOPNOTSUPP;
	}
	if (table->page_size != NVIDIA_P2P_PAGE_SIZE_64KB)
		return -EOPNOTSUPP;
	if (table->entries != nr_pages)
		return -EIO;
	for (i = 0; i < nr_pages; i++)
		physical[i] = table->pages[i]->physical_address;
	return 0;
}

static int do_get(struct peerlane_lease *lease, struct nv_pin *pin)
{
	if (lease->persistent) {
		if (!pin->calls.get_persistent || !pin->calls.put_persistent)
			return -EOPNOTSUPP;
		return pin->calls.get_persistent(lease->address, lease->length, &pin->table, 0);
	}
	return pin->calls.get(0, 0, lease->address, lease->length, &pin->table, nv_revoked, lease);
}

static void do_put(struct peerlane_lease *lease, struct nv_pin *pin)
{
	int err;

	if (lease->persistent)
		err = pin->calls.put_persistent(lease->address, pin->table, 0);
	else
		err = pin->calls.put(0, 0, lease->address, pin->table);
	if (err)
		pr_warn_ratelimited("peerlane_nvidia: memory cannot be given back: %d\n", err);
}

static int nv_pin(struct peerlane_lease *lease)
{
	struct nv_pin *pin;
	int err;

	pin = kzalloc(sizeof(*pin), GFP_KERNEL);
	if (!pin)
		return -ENOMEM;
	err = calls_get(&pin->calls);
	if (err)
		goto err_free;
	lease->private = pin;
	err = do_get(lease, pin);
	if (err) {
		/* Not a number that user space knows. */
		err = err == -ENOTSUPP ? -EOPNOTSUPP : err;
		goto err_calls;
	}
	err = peerlane_lease_adopt(lease, nv_read, pin->table);
	if (!err)
		return 0;
	if (err != -ENODEV)
		do_put(lease, pin);
err_calls:
	calls_put(&pin->calls);
err_free:
	lease->private = NULL;
	kfree(pin);
	return err;
}

static void nv_unpin(struct peerlane_lease *lease, bool revoked)
{
	struct nv_pin *pin = lease->private;

	if (!revoked)
		do_put(lease, pin);
	calls_put(&pin->calls);
	lease->private = NULL;
	kfree(pin);
}

static struct peerlane_provider provider = {
	.name = "nvidia",
	.owner = THIS_MODULE,
	.page_bytes = NV_P2P_PAGE_BYTES,
	.available = nv_available,
	.pin = nv_pin,
	.unpin = nv_unpin,
};

static int __init nvidia_init(void)
{
	return peerlane_provider_register(&provider);
}

static void __exit nvidia_exit(void)
{
	peerlane_provider_unregister(&provider);
}

module_init(nvidia_init);
module_exit(nvidia_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("Peerlane: memory of NVIDIA GPUs");
MODULE_VERSION("0.1.0");
