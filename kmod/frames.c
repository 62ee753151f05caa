// SPDX-License-Identifier: MIT
/*
 * Frames: 64 KiB pieces of GPU memory in the physical address space, and which pins use them.
 *
 * The same GPU memory may be pinned more than once, by two libraries in a process or because small
 * allocations share a GPU page. The references of a page do not tell whose they are, so what
 * matters is who is last: memory that another pin still holds need not be waited for.
 */
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/mutex.h>
#include <linux/page_ref.h>
#include <linux/sched/signal.h>

#include "core.h"

/*
 * A frame's entry, kept as a value in the array:
 *   USERS   pins that use it
 *   RAISED  its pages had no reference, and we gave each its first one
 */
#define USERS_MASK 0xffffffffUL
#define RAISED (1UL << 32)

/* Who takes a GPU's driver away has the lock of its device longer than this, if at all. */
#define LOCK_TIME (2 * HZ)

/* Physical address >> PL_FRAME_SHIFT to entry. */
static DEFINE_XARRAY(frames);
/* Guards the entries, what bar.c knows, and which pins hold pages of the GPU's driver. */
DEFINE_MUTEX(pl_frames_lock);

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

/*
 * Pages without a reference get the first one. Nobody else does that at the same time: they are ours,
 * and whoever looks up a page in a mapping leaves one without a reference alone.
 */
static void raise(u64 physical)
{
	struct page *page = first_page(physical);
	unsigned long i;

	for (i = 0; i < PL_FRAME_PAGES; i++)
		page_ref_unfreeze(page + i, 1);
}

/*
 * Take the first reference back. One that was looked up in a mapping at the moment when that was
 * emptied may have another for a moment: then nothing is done, and the answer is false.
 */
static bool lower(u64 physical)
{
	struct page *page = first_page(physical);
	unsigned long i;

	for (i = 0; i < PL_FRAME_PAGES; i++) {
		if (page_ref_freeze(page + i, 1))
			continue;
		while (i--)
			page_ref_unfreeze(page + i, 1);
		return false;
	}
	return true;
}

/* A pin uses a frame no more; false if its pages are in use after all. */
static bool detach_one(u64 physical)
{
	unsigned long entry = entry_get(physical);

	if (WARN_ON_ONCE(!(entry & USERS_MASK)))
		return true;
	entry--;
	if (entry & USERS_MASK) {
		/* An entry that is there already is replaced without allocating. */
		xa_store(&frames, index_of(physical), xa_mk_value(entry), GFP_KERNEL);
		return true;
	}
	if ((entry & RAISED) && !lower(physical))
		return false;
	xa_erase(&frames, index_of(physical));
	return true;
}

static int attach_one(u64 physical)
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
	err = xa_err(xa_store(&frames, index_of(physical), xa_mk_value(entry), GFP_KERNEL));
	if (!err && !count)
		raise(physical);
	return err;
}

/* Do all frames lie in the BAR? */
static bool inside(struct pl_pin *pin, struct pl_bar *bar)
{
	u64 at;
	u32 i;

	for (i = 0; i < pin->nr_frames; i++) {
		at = pin->frames[i];
		if (!IS_ALIGNED(at, PL_FRAME_BYTES) || at < bar->start ||
		    bar->bytes < PL_FRAME_BYTES ||
		    at - bar->start > bar->bytes - PL_FRAME_BYTES)
			return false;
	}
	return true;
}

/* Find the BAR of all frames, and see that they have page structures that stay. */
static int get_pages(struct pl_pin *pin, struct pci_dev *pdev)
{
	struct pl_bar *bar;
	int err;

	mutex_lock(&pl_frames_lock);
	bar = pl_bar_find(pdev, pin->frames[0]);
	err = PTR_ERR_OR_ZERO(bar);
	if (!err)
		err = inside(pin, bar) ? pl_bar_hold_foreign(pin, bar) : -ENXIO;
	if (!err) {
		pl_bar_get(bar);
		WRITE_ONCE(pin->bar, bar);
	}
	mutex_unlock(&pl_frames_lock);
	if (err || pin->foreign)
		return err;
	/* This may take long; others may pin and unpin memory of other GPUs meanwhile. */
	return pl_sections_cover(bar, pin->frames, pin->nr_frames);
}

/* Give the first @nr frames up but for those that are released; nobody has used them. */
static void detach_all(struct pl_pin *pin, u32 nr)
{
	while (nr > pin->released) {
		if (detach_one(pin->frames[nr - 1]))
			nr--;
		else
			cond_resched();
	}
	pin->attached = false;
	pl_bar_drop_foreign(pin);
}

static int attach_all(struct pl_pin *pin)
{
	u32 i;
	int err = 0;

	mutex_lock(&pl_frames_lock);
	pin->released = 0;
	for (i = 0; i < pin->nr_frames && !err; i++)
		err = attach_one(pin->frames[i]);
	pin->attached = !err;
	if (err)
		detach_all(pin, i - 1);
	mutex_unlock(&pl_frames_lock);
	return err;
}

/* The pin may be used from now on, unless its pages have begun to go. */
static int make_live(struct pl_pin *pin)
{
	int err = 0;

	down_write(&pin->sem);
	mutex_lock(&pl_frames_lock);
	/* Whoever closes a BAR says so first, and stops the pins in it afterwards. */
	if (pin->bar->closing) {
		err = -ENXIO;
		detach_all(pin, pin->nr_frames);
	} else {
		pin->live = true;
	}
	mutex_unlock(&pl_frames_lock);
	up_write(&pin->sem);
	return err;
}

/* The pin does not come about: nobody who ends all pins in the BAR shall wait for it. */
static void forget_bar(struct pl_pin *pin)
{
	struct pl_bar *bar = pin->bar;

	mutex_lock(&pl_frames_lock);
	WRITE_ONCE(pin->bar, NULL);
	mutex_unlock(&pl_frames_lock);
	pl_bar_put(bar);
}

/*
 * Wait for the lock of a GPU's device, but not for good: whoever takes the driver away has it, and
 * some drivers then wait until the program that waits here closes their device.
 */
static int lock_device(struct device *dev)
{
	unsigned long end = jiffies + LOCK_TIME;

	while (!device_trylock(dev)) {
		if (signal_pending(current))
			return -EINTR;
		if (time_after(jiffies, end))
			return -ENXIO;
		msleep_interruptible(1);
	}
	return 0;
}

/**
 * pl_frames_attach() - give all frames of a pin page structures, and make it live
 * @pin: with @frames, not live
 *
 * With the lock of the GPU's device, so that the driver neither goes meanwhile nor is a new one
 * probed: without a driver there is no memory, and pages made then would be in the way of one.
 *
 * Return: 0; -ENXIO no BAR, or it has no driver; -EBUSY no page
 * structures can be had, or somebody else uses them; -EOPNOTSUPP; -EMFILE; -EINTR; -ENOMEM.
 */
int pl_frames_attach(struct pl_pin *pin)
{
	struct pci_dev *pdev = pl_bar_device(pin->frames[0]);
	int err;

	if (!pdev)
		return -ENXIO;
	err = lock_device(&pdev->dev);
	if (err)
		goto out_put;
	err = -ENXIO;
	if (pdev->dev.driver)
		err = get_pages(pin, pdev);
	if (!err)
		err = attach_all(pin);
	if (!err)
		err = make_live(pin);
	if (err)
		forget_bar(pin);
	device_unlock(&pdev->dev);
out_put:
	pci_dev_put(pdev);
	return err;
}

/* Need nobody wait for this frame? Every pin holds its memory until it is given back. */
static bool kept_by_others(u64 physical)
{
	return (entry_get(physical) & USERS_MASK) > 1;
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
	mutex_lock(&pl_frames_lock);
	while (pin->attached && pin->released < pin->nr_frames) {
		physical = pin->frames[pin->released];
		if (!(unmapped && kept_by_others(physical)) && in_use(physical)) {
			done = false;
			break;
		}
		/* Pairs with the drop of the last reference: the device's accesses came before. */
		smp_mb();
		if (!detach_one(physical)) {
			done = false;
			break;
		}
		pin->released++;
		/* A long range: let others have the lock now and then. */
		if (pin->released % 1024 == 0) {
			mutex_unlock(&pl_frames_lock);
			cond_resched();
			mutex_lock(&pl_frames_lock);
		}
	}
	if (done && pin->attached)
		pl_bar_drop_foreign(pin);
	mutex_unlock(&pl_frames_lock);
	return done;
}

/* Pin nothing more of a device; see pl_bar_close(). */
struct pl_bar *pl_frames_close(struct device *dev)
{
	struct pl_bar *bar;

	mutex_lock(&pl_frames_lock);
	bar = pl_bar_close(dev);
	mutex_unlock(&pl_frames_lock);
	return bar;
}

/*
 * Forget a device, with its page structures; no pin uses any of them. With the lock of the device
 * held; or all devices, when nothing can be pinned any more.
 */
void pl_frames_forget(struct device *dev)
{
	struct pl_bar *bar;

	for (;;) {
		mutex_lock(&pl_frames_lock);
		bar = pl_bar_unlist(dev);
		mutex_unlock(&pl_frames_lock);
		if (!bar)
			return;
		pl_bar_unwatch(bar);
		if (!dev)
			device_lock(&bar->pdev->dev);
		pl_sections_remove(bar);
		if (!dev)
			device_unlock(&bar->pdev->dev);
		pl_bar_put(bar);
	}
}
