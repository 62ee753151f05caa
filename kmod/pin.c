// SPDX-License-Identifier: MIT
/*
 * The life of a pin: made, mapped, revoked by the GPU's driver or retired by its owner, and let go
 * once no device works on the memory.
 *
 * A pin ends in one of two ways, which may come at the same time:
 *   retired  its owner unpins it or closes the file. The memory is given back to the provider when
 *            it is idle; until then the pin lingers, and a worker looks after it.
 *   revoked  the provider's callback says the memory goes. The callback returns only when it is
 *            idle: to return before would let a device write into memory that is somebody else's by
 *            then. Every transfer ends, because the block layer bounds it, and long-term pins of
 *            the pages are refused (map.c).
 */
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/mutex.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include "core.h"

static unsigned int unpin_wait_ms = 5000;
module_param(unpin_wait_ms, uint, 0644);
MODULE_PARM_DESC(unpin_wait_ms, "how long UNPIN waits for a device before it answers EINPROGRESS");

static unsigned int overdue_ms = 30000;
module_param(overdue_ms, uint, 0644);
MODULE_PARM_DESC(overdue_ms, "report a revocation that waits longer than this for a device");

#define LINGER_TICK msecs_to_jiffies(20)

/* Handle to pin, for all files: numbers are unique, and pins with common memory find each other. */
static DEFINE_XARRAY_ALLOC1(all_pins);
static u32 next_handle;

static LIST_HEAD(lingering);
/* Guards the list and pl_pin.node. */
static DEFINE_MUTEX(lingering_lock);
/* One at a time looks for pins with the same memory. */
static DEFINE_MUTEX(sharers_lock);
static void linger(struct work_struct *work);
static DECLARE_DELAYED_WORK(linger_work, linger);

unsigned int pl_unpin_wait_ms(void)
{
	return READ_ONCE(unpin_wait_ms);
}

u64 pl_pin_bytes(const struct pl_pin *pin)
{
	return (u64)pin->nr_frames << PL_FRAME_SHIFT;
}

u64 pl_pin_offset(const struct pl_pin *pin)
{
	return (u64)pin->handle << PL_WINDOW_SHIFT;
}

static void pin_free(struct kref *ref)
{
	struct pl_pin *pin = container_of(ref, struct pl_pin, ref);

	pl_map_forget(pin);
	pl_bar_put(pin->bar);
	iput(pin->inode);
	kvfree(pin->frames);
	kfree_rcu(pin, rcu);
}

void pl_pin_get(struct pl_pin *pin)
{
	kref_get(&pin->ref);
}

void pl_pin_put(struct pl_pin *pin)
{
	kref_put(&pin->ref, pin_free);
}

/* A handle's pin, referenced; NULL if the file has no such handle. */
struct pl_pin *pl_pin_find(struct pl_file *file, u32 handle)
{
	struct pl_pin *pin;

	xa_lock(&file->pins);
	pin = xa_load(&file->pins, handle);
	if (pin)
		pl_pin_get(pin);
	xa_unlock(&file->pins);
	return pin;
}

/*
 * Let go of frames that nothing uses; are all of them gone? Those that another pin has too need not be
 * waited for, once it is certain that no mapping of this pin has pages: later nobody would find it.
 */
static bool try_release(struct pl_pin *pin)
{
	return pl_frames_release(pin, pl_map_settle(pin));
}

/* Wait until the frames are released, at most @wait_ms, or until the caller is killed. */
static bool wait_released(struct pl_pin *pin, unsigned int wait_ms, bool killable)
{
	unsigned long end = jiffies + msecs_to_jiffies(wait_ms);
	unsigned int nap_ms = 1;

	while (!try_release(pin)) {
		if (time_after(jiffies, end) || (killable && fatal_signal_pending(current)))
			return false;
		msleep(nap_ms);
		nap_ms = min(nap_ms * 2, 20U);
	}
	return true;
}

/* No new use from now on; mappings become empty. */
static void pin_stop(struct pl_pin *pin, bool revoke)
{
	bool was_live;

	down_write(&pin->sem);
	was_live = pin->live;
	if (was_live)
		pin->stopped = jiffies;
	pin->live = false;
	if (revoke)
		pin->revoked = true;
	up_write(&pin->sem);
	if (was_live)
		pl_map_empty(pin);
	pl_map_settle(pin);
}

static bool is_revoked(struct pl_pin *pin)
{
	bool revoked;

	down_read(&pin->sem);
	revoked = pin->revoked;
	up_read(&pin->sem);
	return revoked;
}

/* The frames are released: the end. Drops the handle's reference. */
static void pin_finish(struct pl_pin *pin)
{
	struct peerlane_provider *provider = pin->provider;
	bool revoked = is_revoked(pin);

	if (revoked)
		wait_for_completion(&pin->gone);
	/* Should the callback begin only now, the GPU's driver lets unpin wait for its end. */
	provider->unpin(&pin->lease, revoked);
	if (!is_revoked(pin))
		pl_pin_put(pin); /* the provider's: it cannot revoke any more */
	else
		wait_for_completion(&pin->gone);
	xa_erase(&all_pins, pin->handle);
	pl_count(PL_PINS, -1);
	pl_count(PL_PINNED_BYTES, -(s64)pl_pin_bytes(pin));
	pl_count(PL_NR_UNPIN, 1);
	pl_provider_put(provider);
	pl_pin_put(pin);
}

/*
 * Give a pin up; it has no handle any more. Waits up to @wait_ms for devices; -EINPROGRESS when
 * that was not enough and a worker does the rest.
 */
int pl_pin_retire(struct pl_pin *pin, unsigned int wait_ms)
{
	pin_stop(pin, false);
	if (!wait_released(pin, wait_ms, true)) {
		pl_count(PL_LINGERING, 1);
		mutex_lock(&lingering_lock);
		list_add_tail(&pin->node, &lingering);
		mutex_unlock(&lingering_lock);
		schedule_delayed_work(&linger_work, LINGER_TICK);
		return -EINPROGRESS;
	}
	pin_finish(pin);
	return 0;
}

/* Let go of those lingering pins that are idle by now. */
static void linger(struct work_struct *work)
{
	struct pl_pin *pin, *next;
	LIST_HEAD(idle);
	bool more;

	mutex_lock(&lingering_lock);
	list_for_each_entry_safe(pin, next, &lingering, node)
		if (try_release(pin))
			list_move_tail(&pin->node, &idle);
	more = !list_empty(&lingering);
	mutex_unlock(&lingering_lock);
	list_for_each_entry_safe(pin, next, &idle, node) {
		list_del_init(&pin->node);
		pl_count(PL_LINGERING, -1);
		pin_finish(pin);
	}
	if (more)
		schedule_delayed_work(&linger_work, LINGER_TICK);
}

/* The first pin with a handle above @handle, which is moved there; referenced. */
static struct pl_pin *next_pin(unsigned long *handle)
{
	struct pl_pin *pin;

	for (;;) {
		++*handle;
		rcu_read_lock();
		pin = xa_find(&all_pins, handle, PL_HANDLE_MAX, XA_PRESENT);
		if (!pin || kref_get_unless_zero(&pin->ref)) {
			rcu_read_unlock();
			return pin;
		}
		rcu_read_unlock();
	}
}

/* Other pins of the same memory that can be revoked lose it too: stop them before the wait. */
static void stop_sharers(struct pl_pin *pin)
{
	struct pl_pin *other;
	unsigned long handle = 0;
	bool same;

	if (!pl_frames_shared(pin))
		return;
	mutex_lock(&sharers_lock);
	pl_frames_mark(pin, true);
	while ((other = next_pin(&handle))) {
		if (other != pin && !other->lease.persistent) {
			down_read(&other->sem);
			same = pl_frames_marked(other);
			up_read(&other->sem);
			/* Its own callback comes too, and says that it is revoked. */
			if (same)
				pin_stop(other, false);
		}
		pl_pin_put(other);
	}
	pl_frames_mark(pin, false);
	mutex_unlock(&sharers_lock);
}

/*
 * Wait until the frames are released, however long that takes, and say so when it is long. @again is
 * called while it lasts, and not at all when nothing uses the frames: it may be a lot of work.
 */
static void wait_all(struct pl_pin *pin, void (*again)(struct pl_pin *pin))
{
	unsigned long overdue = jiffies + msecs_to_jiffies(READ_ONCE(overdue_ms));
	unsigned int wait_ms = 0;
	bool reported = false;

	while (!wait_released(pin, wait_ms, false)) {
		if (again)
			again(pin);
		if (!reported && time_after(jiffies, overdue)) {
			reported = true;
			pl_count(PL_NR_OVERDUE, 1);
			pr_warn_ratelimited(pr_name "a device still uses memory that goes away\n");
		}
		wait_ms = 100;
	}
}

/* A BAR goes away: stop all pins in it, and wait until nothing uses their memory. */
void pl_pins_stop(struct pl_bar *bar)
{
	struct pl_pin *pin;
	unsigned long handle;

	/* All first: some may have the same memory. */
	for (handle = 0; (pin = next_pin(&handle)); pl_pin_put(pin)) {
		/* One that is being made has its BAR only when it has been adopted. */
		down_read(&pin->sem);
		up_read(&pin->sem);
		if (pin->bar == bar) {
			pin_stop(pin, false);
			pl_uses_stop(pin);
		}
	}
	for (handle = 0; (pin = next_pin(&handle)); pl_pin_put(pin))
		if (pin->bar == bar)
			wait_all(pin, NULL);
}

/**
 * peerlane_lease_revoked() - the GPU's driver takes memory back
 * @lease: given to the provider's pin
 *
 * Context: may sleep, and does so until no device uses the memory. Takes none of the locks under
 * which a provider is called.
 */
void peerlane_lease_revoked(struct peerlane_lease *lease)
{
	struct pl_pin *pin = container_of(lease, struct pl_pin, lease);

	pin_stop(pin, true);
	pl_uses_stop(pin);
	/* Others that have the same memory mapped may be why it is in use; or have it mapped soon. */
	wait_all(pin, stop_sharers);
	pl_count(PL_NR_REVOKE, 1);
	complete_all(&pin->gone);
	pl_pin_put(pin); /* the provider's: it has nothing to revoke any more */
}
EXPORT_SYMBOL_GPL(peerlane_lease_revoked);

/**
 * peerlane_lease_adopt() - take over the pages of a lease
 * @lease: given to the provider's pin
 * @read: puts down the physical address of each of a number of pages
 * @table: passed to @read
 *
 * Return: 0; -ENODEV the memory was revoked meanwhile; -ENXIO the pages do not lie in one BAR;
 * -EBUSY or -EOPNOTSUPP no page structures can be had; -ENOMEM; what @read answers.
 */
int peerlane_lease_adopt(struct peerlane_lease *lease,
			 int (*read)(const void *table, u64 *physical, u32 nr_pages),
			 const void *table)
{
	struct pl_pin *pin = container_of(lease, struct pl_pin, lease);
	int err;

	/* Against a callback that has begun: it waits here until the table has been read. */
	down_write(&pin->sem);
	err = -ENODEV;
	if (pin->revoked)
		goto out;
	err = read(table, pin->frames, pin->nr_frames);
	if (!err)
		err = pl_frames_attach(pin);
	/* This one has a meaning of its own here: the provider would not undo the pin. */
	if (err == -ENODEV)
		err = -ENXIO;
	pin->live = !err;
out:
	up_write(&pin->sem);
	return err;
}
EXPORT_SYMBOL_GPL(peerlane_lease_adopt);

static struct pl_pin *pin_alloc(struct inode *inode, const struct peerlane_pin *request)
{
	u64 first = round_down(request->address, PL_FRAME_BYTES);
	u64 end = round_up(request->address + request->length, PL_FRAME_BYTES);
	struct pl_pin *pin;

	pin = kzalloc(sizeof(*pin), GFP_KERNEL_ACCOUNT);
	if (!pin)
		return NULL;
	pin->nr_frames = (u32)((end - first) >> PL_FRAME_SHIFT);
	pin->frames = kvcalloc(pin->nr_frames, sizeof(*pin->frames), GFP_KERNEL_ACCOUNT);
	if (!pin->frames) {
		kfree(pin);
		return NULL;
	}
	kref_init(&pin->ref);
	init_rwsem(&pin->sem);
	init_completion(&pin->gone);
	INIT_LIST_HEAD(&pin->node);
	atomic_set(&pin->nr_mappings, 0);
	INIT_LIST_HEAD(&pin->making);
	mutex_init(&pin->making_lock);
	INIT_LIST_HEAD(&pin->uses);
	atomic_set(&pin->nr_uses, 0);
	ihold(inode);
	pin->inode = inode;
	pin->flags = request->flags;
	pin->address = request->address;
	pin->length = request->length;
	pin->skip_bytes = request->address - first;
	pin->lease.address = first;
	pin->lease.length = end - first;
	pin->lease.persistent = request->flags & PEERLANE_PIN_PERSISTENT;
	return pin;
}

/* Ask one provider after the other; -EINVAL or -EOPNOTSUPP means that the next one may know. */
static int pin_provide(struct pl_pin *pin)
{
	struct peerlane_provider *provider = NULL, *before;
	int err = -ENODEV;

	for (;;) {
		before = provider;
		provider = pl_provider_next(before);
		if (before)
			pl_provider_put(before);
		if (!provider)
			return err;
		pin->provider = provider;
		/* The provider's reference; it goes with the first that ends: unpin or callback. */
		pl_pin_get(pin);
		err = provider->pin(&pin->lease);
		if (!err)
			return 0;
		if (is_revoked(pin)) {
			wait_for_completion(&pin->gone);
			err = -ENODEV;
		} else {
			pl_pin_put(pin);
		}
		if (err != -EINVAL && err != -EOPNOTSUPP) {
			pl_provider_put(provider);
			return err;
		}
	}
}

/*
 * Pin what @request asks for, which has been checked. The pin has a handle in @file, and the caller
 * a reference of its own.
 */
struct pl_pin *pl_pin_create(struct pl_file *file, struct inode *inode,
			     const struct peerlane_pin *request)
{
	struct pl_pin *pin;
	int err;

	pin = pin_alloc(inode, request);
	if (!pin)
		return ERR_PTR(-ENOMEM);
	/* Others with the same memory must find it from the moment it is live. */
	err = xa_alloc_cyclic(&all_pins, &pin->handle, pin, XA_LIMIT(1, PL_HANDLE_MAX),
			      &next_handle, GFP_KERNEL);
	if (err < 0)
		goto err_put;
	err = xa_reserve(&file->pins, pin->handle, GFP_KERNEL);
	if (err)
		goto err_handle;
	err = pin_provide(pin);
	if (err)
		goto err_release;
	pl_count(PL_PINS, 1);
	pl_count(PL_PINNED_BYTES, pl_pin_bytes(pin));
	pl_count(PL_NR_PIN, 1);
	pl_pin_get(pin);
	/* The place was reserved, so this does not fail. */
	xa_store(&file->pins, pin->handle, pin, GFP_KERNEL);
	return pin;

err_release:
	xa_release(&file->pins, pin->handle);
err_handle:
	xa_erase(&all_pins, pin->handle);
err_put:
	pl_pin_put(pin);
	pl_count(PL_NR_PIN_FAILED, 1);
	return ERR_PTR(err);
}

/* No file is open and no provider is there, so nothing can be pinned or linger. */
void pl_pins_fini(void)
{
	cancel_delayed_work_sync(&linger_work);
	WARN_ON_ONCE(!list_empty(&lingering));
	WARN_ON_ONCE(!xa_empty(&all_pins));
	xa_destroy(&all_pins);
	/* Pins are freed after a grace period; none must be left when the code goes. */
	rcu_barrier();
}
