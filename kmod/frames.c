// SPDX-License-Identifier: MIT
/*
 * Frames: 64 KiB pieces of GPU memory in the physical address space, and which pins use them.
 *
 * The same GPU memory may be pinned more than once, by two libraries in a process or because small
 * allocations share a GPU page. The references of a page do not tell whose they are, so what
 * matters is who is last: memory that another pin still holds need not be waited for.
 */
#include <linux/mutex.h>
#include <linux/page_ref.h>

#include "core.h"

/*
 * A frame's entry, kept as a value in the array:
 *   USERS       pins that use it
 *   PERSISTENT  those among them whose memory cannot be taken away
 *   RAISED      its pages had no reference, and we gave each its first one
 */
#define USERS_MASK 0xffffUL
#define PERSISTENT_ONE 0x10000UL
#define PERSISTENT_MASK 0xffff0000UL
#define RAISED (1UL << 32)

/* Physical address >> PL_FRAME_SHIFT to entry. */
static DEFINE_XARRAY(frames);
/* Guards the entries and everything in bar.c. */
static DEFINE_MUTEX(lock);

static unsigned long index_of(u64 physical)
{
	return (unsigned long)(physical >> PL_FRAME_SHIFT);
}

static unsigned long entry_get(u64 physical)
{
	void *entry = xa_load(&frames, index_of(physical));

	return entry ? xa_to_value(entry) : 0;
}

static struct page *first_page(u64 physical)
{
	return pfn_to_page((unsigned long)(physical >> PAGE_SHIFT));
}

/* The number of references that all pages of a frame have; -EBUSY when they differ or have more. */
static int references(u64 physical)
{
	struct page *page = first_page(physical);
	int count = page_count(page);
	unsigned long i;

	for (i = 1; i < PL_FRAME_PAGES; i++)
		if (page_count(page + i) != count)
			return -EBUSY;
	return count > 1 ? -EBUSY : count;
}

static void raise(u64 physical)
{
	struct page *page = first_page(physical);
	unsigned long i;

	for (i = 0; i < PL_FRAME_PAGES; i++)
		set_page_count(page + i, 1);
}

static void lower(u64 physical)
{
	struct page *page = first_page(physical);
	unsigned long i;

	for (i = 0; i < PL_FRAME_PAGES; i++)
		set_page_count(page + i, 0);
}

static void detach_one(struct pl_pin *pin, u64 physical)
{
	unsigned long entry = entry_get(physical);

	if (WARN_ON_ONCE(!(entry & USERS_MASK)))
		return;
	entry--;
	if (pin->lease.persistent)
		entry -= PERSISTENT_ONE;
	if (entry & USERS_MASK) {
		/* An entry that is there already is replaced without allocating. */
		xa_store(&frames, index_of(physical), xa_mk_value(entry), GFP_KERNEL);
		return;
	}
	if (entry & RAISED)
		lower(physical);
	xa_erase(&frames, index_of(physical));
}

static int attach_one(struct pl_pin *pin, u64 physical)
{
	unsigned long entry = entry_get(physical);
	bool first = !(entry & USERS_MASK);
	int count = 1, err;

	if ((entry & USERS_MASK) == USERS_MASK)
		return -EMFILE;
	/*
	 * Pages for mapping need a reference that is never dropped. Generic pages are born with
	 * one; P2PDMA pages are born with none on newer kernels, and one that fell to none would be
	 * given to its pool. More than one means that somebody else, such as the GPU's driver, uses
	 * the page; then nobody could tell when our own use has ended.
	 */
	if (first) {
		count = references(physical);
		if (count < 0)
			return count;
	}
	if (!count)
		entry |= RAISED;
	entry++;
	if (pin->lease.persistent)
		entry += PERSISTENT_ONE;
	err = xa_err(xa_store(&frames, index_of(physical), xa_mk_value(entry), GFP_KERNEL));
	if (!err && !count)
		raise(physical);
	return err;
}

/* See that there are page structures for every frame of the pin, and all of one BAR. */
static int check_pages(struct pl_pin *pin)
{
	struct pl_bar *bar = pl_bar_find(pin->frames[0]);
	u32 i;
	int err;

	if (IS_ERR(bar))
		return PTR_ERR(bar);
	for (i = 0; i < pin->nr_frames; i++) {
		u64 at = pin->frames[i];

		if (!IS_ALIGNED(at, PL_FRAME_BYTES) || at < bar->start ||
		    bar->bytes < PL_FRAME_BYTES ||
		    at - bar->start > bar->bytes - PL_FRAME_BYTES)
			return -ENXIO;
		err = pl_bar_check_pages(bar, at, PL_FRAME_BYTES);
		if (err)
			return err;
	}
	pl_bar_get(bar);
	pl_bar_put(pin->bar);
	pin->bar = bar;
	return 0;
}

/* Give every frame of the pin page structures and count the pin as their user. */
int pl_frames_attach(struct pl_pin *pin)
{
	u32 i;
	int err;

	mutex_lock(&lock);
	err = check_pages(pin);
	for (i = 0; !err && i < pin->nr_frames; i++) {
		err = attach_one(pin, pin->frames[i]);
		if (err) {
			while (i--)
				detach_one(pin, pin->frames[i]);
			break;
		}
	}
	pin->released = 0;
	pin->attached = !err;
	mutex_unlock(&lock);
	return err;
}

/* Need nobody wait for this frame, because another pin keeps the memory? */
static bool kept_by_others(struct pl_pin *pin, u64 physical)
{
	unsigned long entry = entry_get(physical);
	unsigned long users = entry & USERS_MASK;
	unsigned long persistent = (entry & PERSISTENT_MASK) / PERSISTENT_ONE;

	if (pin->lease.persistent)
		persistent--;
	/* When the memory is taken away, other pins that can be revoked do not keep it. */
	return READ_ONCE(pin->revoked) ? persistent > 0 : users > 1;
}

static bool in_use(u64 physical)
{
	struct page *page = first_page(physical);
	unsigned long i;

	for (i = 0; i < PL_FRAME_PAGES; i++)
		if (page_count(page + i) > 1)
			return true;
	return false;
}

/*
 * Let go of the frames of a pin that is not live, as far as no device and no mapping uses them; if it is
 * certain that no mapping of it does, also of those that another pin has too.
 * Whether a frame is in use and whether the pin is its last user is decided under one lock, so of
 * two pins that end at the same time, one waits. Goes on where it stopped; may be called by several
 * at a time, and again when all is done. Returns whether it is.
 */
bool pl_frames_release(struct pl_pin *pin, bool unmapped)
{
	bool done = true;
	u64 physical;

	/* Devices of other modules hold no references. No new ones come: the pin is not live. */
	if (atomic_read_acquire(&pin->nr_uses))
		return false;
	mutex_lock(&lock);
	while (pin->attached && pin->released < pin->nr_frames) {
		physical = pin->frames[pin->released];
		if (!(unmapped && kept_by_others(pin, physical)) && in_use(physical)) {
			done = false;
			break;
		}
		/* Pairs with the drop of the last reference: the device's accesses came before. */
		smp_mb();
		detach_one(pin, physical);
		pin->released++;
		/* A long range: let others have the lock now and then. */
		if (pin->released % 1024 == 0) {
			mutex_unlock(&lock);
			cond_resched();
			mutex_lock(&lock);
		}
	}
	mutex_unlock(&lock);
	return done;
}

/* Does another pin use any of the frames? */
bool pl_frames_shared(struct pl_pin *pin)
{
	bool shared = false;
	u32 i;

	mutex_lock(&lock);
	for (i = pin->released; pin->attached && i < pin->nr_frames && !shared; i++)
		shared = (entry_get(pin->frames[i]) & USERS_MASK) > 1;
	mutex_unlock(&lock);
	return shared;
}

/* Mark the frames of a pin, to find others with the same ones. One caller at a time. */
void pl_frames_mark(struct pl_pin *pin, bool mark)
{
	u32 i;

	mutex_lock(&lock);
	for (i = 0; pin->attached && i < pin->nr_frames; i++) {
		if (!mark)
			xa_clear_mark(&frames, index_of(pin->frames[i]), XA_MARK_0);
		else if (i >= pin->released)
			xa_set_mark(&frames, index_of(pin->frames[i]), XA_MARK_0);
	}
	mutex_unlock(&lock);
}

/* Has a pin a frame that is marked? */
bool pl_frames_marked(struct pl_pin *pin)
{
	bool marked = false;
	u32 i;

	mutex_lock(&lock);
	for (i = pin->released; pin->attached && i < pin->nr_frames && !marked; i++)
		marked = xa_get_mark(&frames, index_of(pin->frames[i]), XA_MARK_0);
	mutex_unlock(&lock);
	return marked;
}

/* Pin nothing more of a device; see pl_bar_close(). */
struct pl_bar *pl_frames_close(struct device *dev)
{
	struct pl_bar *bar;

	mutex_lock(&lock);
	bar = pl_bar_close(dev);
	mutex_unlock(&lock);
	return bar;
}

/* Take the page structures of a closed device away; no pin uses any of them. */
void pl_frames_remove(struct device *dev)
{
	mutex_lock(&lock);
	pl_bars_remove_pages(dev);
	mutex_unlock(&lock);
}

/* Forget a device, or all, with the page structures that are left; no pin uses any of them. */
void pl_frames_forget(struct device *dev)
{
	mutex_lock(&lock);
	pl_bars_forget(dev);
	mutex_unlock(&lock);
}
