// SPDX-License-Identifier: MIT
/*
 * Pins: made, found by their handle, freed. How they end is in pin_end.c.
 */
#include <linux/module.h>
#include <linux/slab.h>

#include "core.h"

/* Handle to pin, for all files: numbers are unique. */
static DEFINE_XARRAY_ALLOC1(all_pins);
static u32 next_handle;
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

	if (pin->handle)
		xa_erase(&all_pins, pin->handle);
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

/* May the memory be used, as far as one can tell? */
bool pl_pin_live(struct pl_pin *pin)
{
	bool live;

	down_read(&pin->sem);
	live = pin->live && !READ_ONCE(pin->revoked);
	up_read(&pin->sem);
	return live;
}

/* The first pin with a handle above @handle, which is moved there; referenced. */
struct pl_pin *pl_pin_next(unsigned long *handle)
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

/**
 * peerlane_lease_adopt() - take over the pages of a lease
 * @lease: given to the provider's pin
 * @read: puts down the physical address of each of a number of pages
 * @table: passed to @read
 *
 * Return: 0; -ENXIO the pages do not lie in one BAR, or that has no driver; -EBUSY or -EOPNOTSUPP no page
 * structures can be had; -ENOMEM; what @read answers.
 */
int peerlane_lease_adopt(struct peerlane_lease *lease,
			 int (*read)(const void *table, u64 *physical, u32 nr_pages),
			 const void *table)
{
	struct pl_pin *pin = container_of(lease, struct pl_pin, lease);
	int err;

	err = read(table, pin->frames, pin->nr_frames);
	if (err)
		return err;
	return pl_frames_attach(pin);
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
	pl_end_init(pin);
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
		pin->provider_id = provider->id;
		err = provider->pin(&pin->lease);
		if (!err)
			break;
		if (err != -EINVAL && err != -EOPNOTSUPP) {
			pl_provider_put(provider);
			return err;
		}
	}
	pl_count(PL_PINS, 1);
	pl_count(PL_PINNED_BYTES, pl_pin_bytes(pin));
	return 0;
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
	if (err < 0) {
		/* It may be written all the same, and be another's by now. */
		pin->handle = 0;
		goto err_put;
	}
	err = xa_reserve(&file->pins, pin->handle, GFP_KERNEL);
	if (err)
		goto err_put;
	err = pin_provide(pin);
	if (err)
		goto err_release;
	pl_end_allow(pin);
	err = -ENODEV;
	if (!pl_pin_live(pin))
		goto err_retire;
	pl_count(PL_NR_PIN, 1);
	pl_pin_get(pin);
	/* The place was reserved, so this does not fail. */
	xa_store(&file->pins, pin->handle, pin, GFP_KERNEL);
	return pin;

err_retire:
	xa_release(&file->pins, pin->handle);
	pl_pin_retire(pin, 0);
	pl_count(PL_NR_PIN_FAILED, 1);
	return ERR_PTR(err);
err_release:
	xa_release(&file->pins, pin->handle);
	pl_end_void(pin);
err_put:
	pl_pin_put(pin);
	pl_count(PL_NR_PIN_FAILED, 1);
	return ERR_PTR(err);
}

/* No file is open and no provider is there, so nothing is pinned. */
void pl_pins_fini(void)
{
	WARN_ON_ONCE(!xa_empty(&all_pins));
	xa_destroy(&all_pins);
	/* Pins are freed after a grace period; none must be left when the code goes. */
	rcu_barrier();
}
