// SPDX-License-Identifier: MIT
/*
 * How a pin ends: stopped, and given back once no device works on the memory.
 *
 * The provider holds the memory until the core gives it back, whatever its owner does. So the end
 * of a pin is always the same, and nobody waits for it who holds a lock of the GPU's driver:
 *   1. stop  not live any more: no new mapping, no new use, mappings are emptied. Done by whoever
 *            ends the pin: its owner (unpin, close, exit), the GPU's driver (the memory was freed:
 *            revoked), or the loss of the GPU's driver or of its page structures.
 *   2. wait  until no device and no mapping uses a page. UNPIN waits a while; else a worker does.
 *   3. end   the memory goes back to the provider. Only now can it become somebody else's.
 */
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/mutex.h>
#include <linux/sched/signal.h>
#include <linux/workqueue.h>

#include "core.h"

static unsigned int unpin_wait_ms = 5000;
module_param(unpin_wait_ms, uint, 0644);
MODULE_PARM_DESC(unpin_wait_ms, "how long UNPIN waits for a device before it answers EINPROGRESS");

static unsigned int overdue_ms = 30000;
module_param(overdue_ms, uint, 0644);
MODULE_PARM_DESC(overdue_ms, "report memory that is still in use so long after it was given up");

/* How often a worker looks whether a device is done: soon at first, then less often. */
#define FIRST_NAP_MS 1U
#define LONGEST_NAP_MS 20U
#define LONGEST_TICK_MS 500U
/* How long a BAR that goes waits for a pin before it says so. */
#define STOP_LOOK_MS 1000U

/* Ends pins; each has its own work. */
static struct workqueue_struct *enders;

unsigned int pl_unpin_wait_ms(void)
{
	return READ_ONCE(unpin_wait_ms);
}

/* No new use from now on; mappings become empty. */
static void pin_stop(struct pl_pin *pin)
{
	bool was_live;

	down_write(&pin->sem);
	was_live = pin->live;
	if (was_live)
		pin->stopped = jiffies;
	pin->live = false;
	up_write(&pin->sem);
	if (was_live)
		pl_map_empty(pin);
	pl_map_settle(pin);
}

/* The provider shall not say any more that the memory was freed. With end_lock held. */
static void unwatch(struct pl_pin *pin)
{
	if (pin->watched)
		pin->provider->unwatch(&pin->lease);
	pin->watched = false;
}

/* The pin holds nothing any more, and the worker must not be due when the module goes. With end_lock held. */
static void set_ended(struct pl_pin *pin)
{
	pin->ended = true;
	if (cancel_delayed_work(&pin->end_work))
		pl_pin_put(pin);
	if (pin->lingering)
		pl_count(PL_LINGERING, -1);
}

static bool is_overdue(const struct pl_pin *pin)
{
	return time_after(jiffies, pin->stopped + msecs_to_jiffies(READ_ONCE(overdue_ms)));
}

/* Nothing uses the memory: give it back. With end_lock held. */
static void give_back(struct pl_pin *pin)
{
	unwatch(pin);
	/* The GPU's driver may be short of memory: it is tried again, but not for ever. */
	if (pin->provider->unpin(&pin->lease, is_overdue(pin)))
		return;
	pl_provider_put(pin->provider);
	set_ended(pin);
	pl_count(PL_PINS, -1);
	pl_count(PL_PINNED_BYTES, -(s64)pl_pin_bytes(pin));
	pl_count(PL_NR_UNPIN, 1);
}

/*
 * Give the memory of a stopped pin back if nothing uses it; tells whether it is given back. Frames that
 * another pin has too need not be waited for, once it is certain that no mapping of this pin has pages:
 * later nobody would find it. The caller has a reference.
 */
static bool try_end(struct pl_pin *pin)
{
	bool ended;

	mutex_lock(&pin->end_lock);
	/* While it is being made, its maker still works on it. */
	if (pin->made && !pin->ended && pl_frames_release(pin, pl_map_settle(pin)))
		give_back(pin);
	ended = pin->ended;
	mutex_unlock(&pin->end_lock);
	return ended;
}

/* A stopped pin was not idle: count it, and say so when that lasts long. With end_lock held. */
static void linger(struct pl_pin *pin)
{
	if (!pin->lingering) {
		pin->lingering = true;
		pl_count(PL_LINGERING, 1);
	}
	if (!pin->overdue && is_overdue(pin)) {
		pin->overdue = true;
		pl_count(PL_NR_OVERDUE, 1);
		pr_warn_ratelimited(pr_name "GPU memory at %#llx stays pinned: it is in use\n",
				    pin->address);
	}
}

/* Let a worker, which has a reference of its own, look after a stopped pin. */
static void queue_end(struct pl_pin *pin, unsigned int delay_ms)
{
	pl_pin_get(pin);
	if (!queue_delayed_work(enders, &pin->end_work, msecs_to_jiffies(delay_ms)))
		pl_pin_put(pin);
}

/* Leave the end of a stopped pin that is not idle to a worker. */
static void end_later(struct pl_pin *pin, unsigned int delay_ms)
{
	mutex_lock(&pin->end_lock);
	if (pin->made && !pin->ended) {
		linger(pin);
		queue_end(pin, delay_ms);
	}
	mutex_unlock(&pin->end_lock);
}

static void end_work(struct work_struct *work)
{
	struct pl_pin *pin = container_of(to_delayed_work(work), struct pl_pin, end_work);

	if (READ_ONCE(pin->revoked)) {
		pin_stop(pin);
		/* Controllers that programs drive have no transfer that ends by itself. */
		pl_uses_stop(pin);
	}
	if (!try_end(pin)) {
		pin->tick_ms = min(pin->tick_ms * 2, LONGEST_TICK_MS);
		end_later(pin, pin->tick_ms);
	}
	pl_pin_put(pin);
}

void pl_end_init(struct pl_pin *pin)
{
	mutex_init(&pin->end_lock);
	INIT_DELAYED_WORK(&pin->end_work, end_work);
	pin->tick_ms = FIRST_NAP_MS;
	pin->stopped = jiffies;
}

/* The pin is made: from now on whoever stops it can end it. */
void pl_end_allow(struct pl_pin *pin)
{
	mutex_lock(&pin->end_lock);
	pin->made = true;
	pin->watched = !pin->lease.persistent;
	mutex_unlock(&pin->end_lock);
}

/* Nothing was pinned: whoever waits for the end of this pin need not. */
void pl_end_void(struct pl_pin *pin)
{
	mutex_lock(&pin->end_lock);
	set_ended(pin);
	mutex_unlock(&pin->end_lock);
}

/* Wait for the end of a stopped pin, at most @wait_ms; @killable: or until the caller is killed. */
static bool wait_ended(struct pl_pin *pin, unsigned int wait_ms, bool killable)
{
	unsigned long end = jiffies + msecs_to_jiffies(wait_ms);
	unsigned int nap_ms = FIRST_NAP_MS;

	while (!try_end(pin)) {
		if (time_after_eq(jiffies, end) || (killable && fatal_signal_pending(current)))
			return false;
		msleep(nap_ms);
		nap_ms = min(nap_ms * 2, LONGEST_NAP_MS);
	}
	return true;
}

/*
 * Give a pin up; it has no handle any more, and the handle's reference goes. Waits up to @wait_ms for
 * devices; -EINPROGRESS when that was not enough and a worker does the rest.
 */
int pl_pin_retire(struct pl_pin *pin, unsigned int wait_ms)
{
	int err = 0;

	pin_stop(pin);
	/*
	 * Here and now: most likely this is the process that made the pin, and only there it works well. But
	 * a controller that uses the memory has to be stopped when that is freed.
	 */
	mutex_lock(&pin->end_lock);
	if (!atomic_read(&pin->nr_uses))
		unwatch(pin);
	mutex_unlock(&pin->end_lock);
	if (!wait_ended(pin, wait_ms, true)) {
		end_later(pin, FIRST_NAP_MS);
		err = -EINPROGRESS;
	}
	pl_pin_put(pin);
	return err;
}

/*
 * The GPU or its page structures go: stop all pins in a BAR, and wait until nothing uses their memory,
 * however long that takes.
 */
void pl_pins_stop(struct pl_bar *bar)
{
	struct pl_pin *pin;
	unsigned long handle;

	/* All first: some may have the same memory. */
	for (handle = 0; (pin = pl_pin_next(&handle)); pl_pin_put(pin)) {
		if (READ_ONCE(pin->bar) == bar) {
			pin_stop(pin);
			pl_uses_stop(pin);
		}
	}
	for (handle = 0; (pin = pl_pin_next(&handle)); pl_pin_put(pin))
		while (READ_ONCE(pin->bar) == bar && !wait_ended(pin, STOP_LOOK_MS, false)) {
			/* One may have been begun before the stop, and be known only now. */
			pl_uses_stop(pin);
			end_later(pin, 0);
		}
}

/**
 * peerlane_lease_revoked() - the owner of the memory has freed it
 * @lease: given to the provider's pin
 *
 * The memory stays until the core gives it back, so all the rest is left to the worker: the GPU's driver
 * holds its locks, and everybody who uses the GPU waits for them.
 *
 * Context: any that may take a spinlock.
 */
void peerlane_lease_revoked(struct peerlane_lease *lease)
{
	struct pl_pin *pin = container_of(lease, struct pl_pin, lease);

	WRITE_ONCE(pin->revoked, true);
	pl_count(PL_NR_REVOKE, 1);
	pl_pin_get(pin);
	/* Now, also when the worker is due later. */
	if (mod_delayed_work(enders, &pin->end_work, 0))
		pl_pin_put(pin);
}
EXPORT_SYMBOL_GPL(peerlane_lease_revoked);

int pl_ends_init(void)
{
	enders = alloc_workqueue("peerlane", WQ_UNBOUND, 0);
	return enders ? 0 : -ENOMEM;
}

/* All pins have ended; a worker may be about to return. */
void pl_ends_fini(void)
{
	destroy_workqueue(enders);
}
