// SPDX-License-Identifier: MIT
/*
 * peerlane_nvidia.ko: memory of NVIDIA GPUs, by the interface of their open kernel modules.
 *
 * The functions are looked up when memory is pinned, not when this module is loaded: so it loads in
 * any order, needs none of NVIDIA's files to be built, and leaves their driver free to be unloaded
 * while nothing is pinned.
 *
 * Each pin holds its memory by a persistent pin of the driver's, which stays until it is put, in whatever
 * process. That one has no callback, so an ordinary pin of the first 64 KiB is made besides, the notice:
 * all of the range is one allocation, and the notice's callback comes when that is freed.
 *
 * The driver finds an ordinary pin only in the process that made it; elsewhere its put does nothing, says
 * nothing, and leaves the callback registered. So a notice that cannot be put is parked: until its callback
 * comes, or until its process is here again. Even in the right process put may find nothing and say
 * nothing, because the driver's list of processes can shrink. So the callback gets a number, which means
 * something only as long as the notice is wanted, and this module stays while NVIDIA's driver does.
 */
#include <linux/hashtable.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/notifier.h>
#include <linux/refcount.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/xarray.h>

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
 * @ref: holders: the lease, the table of notices
 * @calls: hold the driver's module
 * @address: of the memory
 * @table: its pages
 * @notice: the table of the notice; never read
 * @number: of the notice; 0 if there is none
 * @tgid: the process that can put it
 * @lock: guards @lease
 * @lease: whom to tell; NULL once nobody wants to know
 * @node: among the parked ones
 */
struct nv_pin {
	refcount_t ref;
	struct nv_calls calls;
	u64 address;
	struct nvidia_p2p_page_table *table;
	struct nvidia_p2p_page_table *notice;
	unsigned long number;
	pid_t tgid;
	struct mutex lock;
	struct peerlane_lease *lease;
	struct hlist_node node;
};

/*
 * Held while a notice is made or put. The driver knows notices by the address of their table, which it frees
 * after the callback, and may then give to the next one: a late put would take that one away.
 */
static DEFINE_MUTEX(notices_lock);
/* Number to pin, with a reference: notices whose callback has not come, as far as we know. */
static DEFINE_XARRAY(notices);
/* Numbers are not used twice; guarded by notices_lock. */
static unsigned long last_number;
/* A function of the driver, for whose sake this module must stay, or 0; guarded by notices_lock. */
static unsigned long stay_for;

/* Notices whose process was not there when nobody wanted them any more, by process. */
static DEFINE_HASHTABLE(parked, 8);
static DEFINE_SPINLOCK(parked_lock);

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

static struct nv_pin *pin_alloc(struct peerlane_lease *lease)
{
	struct nv_pin *pin;

	pin = kzalloc(sizeof(*pin), GFP_KERNEL_ACCOUNT);
	if (!pin)
		return NULL;
	refcount_set(&pin->ref, 1);
	mutex_init(&pin->lock);
	INIT_HLIST_NODE(&pin->node);
	pin->address = lease->address;
	return pin;
}

static void pin_put(struct nv_pin *pin)
{
	if (!refcount_dec_and_test(&pin->ref))
		return;
	calls_put(&pin->calls);
	kfree(pin);
}

static void park(struct nv_pin *pin)
{
	spin_lock(&parked_lock);
	if (hlist_unhashed(&pin->node))
		hash_add(parked, &pin->node, pin->tgid);
	spin_unlock(&parked_lock);
}

static void unpark(struct nv_pin *pin)
{
	spin_lock(&parked_lock);
	hash_del(&pin->node);
	spin_unlock(&parked_lock);
}

/* The memory was freed. The driver's locks are held; it frees the notice's table after this returns. */
static void on_freed(void *data)
{
	/* With the table's reference. */
	struct nv_pin *pin = xa_erase(&notices, (unsigned long)data);

	if (!pin)
		return;
	mutex_lock(&pin->lock);
	if (pin->lease)
		peerlane_lease_revoked(pin->lease);
	pin->lease = NULL;
	mutex_unlock(&pin->lock);
	unpark(pin);
	pin_put(pin);
}

/* Let the notice wait for its callback, unless that came. */
static void notice_park(struct nv_pin *pin)
{
	/* The callback takes this lock before it unparks. */
	mutex_lock(&pin->lock);
	if (xa_load(&notices, pin->number))
		park(pin);
	mutex_unlock(&pin->lock);
}

/* Make the notice. Its callback may come before this returns. */
static int notice_get(struct nv_pin *pin)
{
	int err;

	mutex_lock(&notices_lock);
	pin->tgid = current->tgid;
	pin->number = ++last_number;
	err = xa_insert(&notices, pin->number, pin, GFP_KERNEL_ACCOUNT);
	if (err)
		goto out;
	refcount_inc(&pin->ref);
	if (!stay_for) {
		__module_get(THIS_MODULE);
		stay_for = (unsigned long)pin->calls.get;
	}
	err = pin->calls.get(0, 0, pin->address, NV_P2P_PAGE_BYTES, &pin->notice, on_freed,
			     (void *)pin->number);
	if (err && xa_erase(&notices, pin->number))
		pin_put(pin);
out:
	mutex_unlock(&notices_lock);
	return err;
}

/*
 * Put the notice, in its own process, unless its callback came. Should that have begun, the driver waits
 * for its end. The driver can be short of memory: false, and the notice is parked.
 */
static bool notice_put(struct nv_pin *pin)
{
	int err = 0;

	mutex_lock(&notices_lock);
	if (xa_load(&notices, pin->number))
		err = pin->calls.put(0, 0, pin->address, pin->notice);
	if (!err && xa_erase(&notices, pin->number))
		pin_put(pin);
	mutex_unlock(&notices_lock);
	if (err)
		notice_park(pin);
	return !err;
}

/* A parked notice of this process, with a reference. */
static struct nv_pin *next_parked(void)
{
	struct nv_pin *pin, *found = NULL;

	spin_lock(&parked_lock);
	hash_for_each_possible(parked, pin, node, current->tgid)
	{
		if (pin->tgid == current->tgid) {
			hash_del(&pin->node);
			refcount_inc(&pin->ref);
			found = pin;
			break;
		}
	}
	spin_unlock(&parked_lock);
	return found;
}

/* The caller's process is here: put what had to wait for it. */
static void put_parked(void)
{
	struct nv_pin *pin;
	bool more = true;

	while (more && (pin = next_parked())) {
		more = notice_put(pin);
		pin_put(pin);
	}
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

/* Not every number of the driver's is one that user space knows. */
static int nv_error(int err)
{
	return err == -ENOTSUPP ? -EOPNOTSUPP : err;
}

static void nv_unwatch(struct peerlane_lease *lease)
{
	struct nv_pin *pin = lease->private;

	put_parked();
	mutex_lock(&pin->lock);
	pin->lease = NULL;
	mutex_unlock(&pin->lock);
	if (pin->tgid == current->tgid)
		notice_put(pin);
	else
		notice_park(pin);
}

/* Hold the memory, and let the core have it. */
static int hold(struct peerlane_lease *lease, struct nv_pin *pin)
{
	int err;

	err = nv_error(pin->calls.get_persistent(lease->address, lease->length, &pin->table, 0));
	if (err == -EOPNOTSUPP)
		pr_notice_ratelimited(
			"peerlane_nvidia: NVIDIA's driver has no persistent pins for this GPU; "
			"so it is with vGPU, some MIG instances and confidential computing\n");
	/* Freed since the notice was made. */
	if (err == -EINVAL && pin->number && !xa_load(&notices, pin->number))
		err = -ENODEV;
	if (err)
		return err;
	err = peerlane_lease_adopt(lease, nv_read, pin->table);
	if (err)
		pin->calls.put_persistent(lease->address, pin->table, 0);
	return err;
}

static int nv_pin(struct peerlane_lease *lease)
{
	struct nv_pin *pin;
	int err;

	put_parked();
	pin = pin_alloc(lease);
	if (!pin)
		return -ENOMEM;
	err = calls_get(&pin->calls);
	if (err)
		goto err_put;
	if (!pin->calls.get_persistent || !pin->calls.put_persistent) {
		pr_notice_once(
			"peerlane_nvidia: NVIDIA's driver is too old: it has no persistent pins\n");
		err = -EOPNOTSUPP;
		goto err_put;
	}
	lease->private = pin;
	/* First, so that it is of the same memory: freed in between, both are known to be void. */
	pin->lease = lease;
	err = lease->persistent ? 0 : nv_error(notice_get(pin));
	if (err)
		goto err_put;
	err = hold(lease, pin);
	if (!err)
		return 0;
	if (!lease->persistent)
		nv_unwatch(lease);
err_put:
	lease->private = NULL;
	pin_put(pin);
	return err;
}

static int nv_unpin(struct peerlane_lease *lease, bool last)
{
	struct nv_pin *pin = lease->private;
	int err;

	put_parked();
	err = pin->calls.put_persistent(lease->address, pin->table, 0);
	if (err)
		pr_warn_ratelimited("peerlane_nvidia: memory cannot be given back: %d\n", err);
	if (err && !last)
		return err;
	lease->private = NULL;
	pin_put(pin);
	return 0;
}

static struct peerlane_provider provider = {
	.name = "nvidia",
	.owner = THIS_MODULE,
	.page_bytes = NV_P2P_PAGE_BYTES,
	.available = nv_available,
	.pin = nv_pin,
	.unwatch = nv_unwatch,
	.unpin = nv_unpin,
};

/* NVIDIA's driver goes, and with it every callback there may be. */
static int on_module(struct notifier_block *block, unsigned long state, void *data)
{
	struct module *module = data;

	if (state != MODULE_STATE_GOING)
		return NOTIFY_DONE;
	mutex_lock(&notices_lock);
	if (stay_for && within_module(stay_for, module)) {
		stay_for = 0;
		module_put(THIS_MODULE);
	}
	mutex_unlock(&notices_lock);
	return NOTIFY_DONE;
}

static struct notifier_block module_block = {
	.notifier_call = on_module,
};

static int __init nvidia_init(void)
{
	int err;

	err = register_module_notifier(&module_block);
	if (err)
		return err;
	err = peerlane_provider_register(&provider);
	if (err)
		unregister_module_notifier(&module_block);
	return err;
}

static void __exit nvidia_exit(void)
{
	peerlane_provider_unregister(&provider);
	unregister_module_notifier(&module_block);
	WARN_ON_ONCE(!xa_empty(&notices));
	xa_destroy(&notices);
}

module_init(nvidia_init);
module_exit(nvidia_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("Peerlane: memory of NVIDIA GPUs");
MODULE_VERSION("0.1.0");
