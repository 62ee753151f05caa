// SPDX-License-Identifier: MIT
/*
 * Pinned GPU memory that a device of another module works on, without a transfer that has an end: a
 * controller that a program drives itself. So nobody waits for it. When the memory's owner unpins it,
 * the pin lingers; when the memory is taken away, its user is told to stop, and does.
 */
#include <linux/file.h>
#include <linux/jiffies.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/mutex.h>
#include <linux/wait.h>

#include "consumer.h"
#include "core.h"

static unsigned int leave_ms = 10000;
module_param(leave_ms, uint, 0644);
MODULE_PARM_DESC(leave_ms,
		 "how long memory that goes away waits for the programs whose devices use it");

/* Guards the lists of uses and peerlane_use.stopping. */
static DEFINE_MUTEX(uses_lock);
/* A use that was being stopped is not any more. */
static DECLARE_WAIT_QUEUE_HEAD(stopped);

static void unlink(struct peerlane_use *use)
{
	list_del_init(&use->node);
	pl_count(PL_USES, -1);
	/* Whoever sees that none is left, sees what the last one did. */
	if (!atomic_dec_return_release(&use->pin->nr_uses))
		wake_up_all(&stopped);
}

/*
 * Add a use to a pin, if its memory is there. The count keeps the memory; the list is for whoever stops the
 * uses. It is filled later, because one that is being stopped holds uses_lock now and then for long, and
 * whoever frees memory or faults waits for pin->sem. Whoever stops the uses may have looked at the list
 * before: then the memory goes, which is seen here, and this one is none.
 */
static int use_pin(struct peerlane_use *use, struct pl_pin *pin, u64 offset, u64 bytes)
{
	u64 start, end;
	bool live;

	if (offset > pin->length || !bytes || bytes > pin->length - offset)
		return -EINVAL;
	start = pin->skip_bytes + offset;
	end = start + bytes;
	down_read(&pin->sem);
	live = pin->live && !READ_ONCE(pin->revoked);
	if (live)
		atomic_inc(&pin->nr_uses);
	up_read(&pin->sem);
	if (!live)
		return -ENODEV;
	use->pages = pin->frames + (start >> PL_FRAME_SHIFT);
	use->nr_pages = (u32)(((end - 1) >> PL_FRAME_SHIFT) - (start >> PL_FRAME_SHIFT) + 1);
	use->first = (u32)(start & (PL_FRAME_BYTES - 1));
	use->page_kind = pin->bar->kind;
	use->pin = pin;
	use->stopping = false;
	mutex_lock(&uses_lock);
	list_add_tail(&use->node, &pin->uses);
	pl_count(PL_USES, 1);
	live = READ_ONCE(pin->live) && !READ_ONCE(pin->revoked);
	if (!live)
		unlink(use);
	mutex_unlock(&uses_lock);
	return live ? 0 : -ENODEV;
}

/**
 * peerlane_use_begin() - see consumer.h
 * @use: leave() and stop() are set
 * @fd: a /dev/peerlane
 * @handle: a pin of it
 * @offset: from the address that was pinned
 * @bytes: of the range
 *
 * Return: see consumer.h
 */
int peerlane_use_begin(struct peerlane_use *use, int fd, u32 handle, u64 offset, u64 bytes)
{
	struct file *filp = fget(fd);
	struct pl_file *file;
	struct pl_pin *pin;
	int err = -EBADF;

	if (!filp)
		return err;
	if (filp->f_op != &pl_file_ops)
		goto out;
	file = filp->private_data;
	err = -EPROTO;
	if (!READ_ONCE(file->greeted))
		goto out;
	err = -ENOENT;
	pin = pl_pin_find(file, handle);
	if (!pin)
		goto out;
	err = use_pin(use, pin, offset, bytes);
	if (err)
		pl_pin_put(pin);
out:
	fput(filp);
	return err;
}
EXPORT_SYMBOL_GPL(peerlane_use_begin);

/**
 * peerlane_use_end() - see consumer.h
 * @use: begun
 */
void peerlane_use_end(struct peerlane_use *use)
{
	mutex_lock(&uses_lock);
	while (use->stopping) {
		mutex_unlock(&uses_lock);
		wait_event(stopped, !READ_ONCE(use->stopping));
		mutex_lock(&uses_lock);
	}
	if (!list_empty(&use->node))
		unlink(use);
	mutex_unlock(&uses_lock);
	pl_pin_put(use->pin);
}
EXPORT_SYMBOL_GPL(peerlane_use_end);

/* A use of the pin that nobody is stopping. */
static struct peerlane_use *next_use(struct pl_pin *pin)
{
	struct peerlane_use *use;

	list_for_each_entry(use, &pin->uses, node)
		if (!use->stopping)
			return use;
	return NULL;
}

/*
 * The memory of a pin goes away, and no use begins any more: stop those there are. All are asked to leave
 * first, and have one deadline together. The lock is not held while one is stopped, so that others can
 * begin and end.
 */
void pl_uses_stop(struct pl_pin *pin)
{
	unsigned long deadline;
	struct peerlane_use *use;

	/* Most pins have none, and need not wait for the lock. */
	if (!atomic_read_acquire(&pin->nr_uses))
		return;
	mutex_lock(&uses_lock);
	list_for_each_entry(use, &pin->uses, node)
		use->leave(use);
	deadline = jiffies + msecs_to_jiffies(READ_ONCE(leave_ms));
	while ((use = next_use(pin))) {
		use->stopping = true;
		mutex_unlock(&uses_lock);
		use->stop(use, deadline);
		mutex_lock(&uses_lock);
		unlink(use);
		WRITE_ONCE(use->stopping, false);
		/* It may end, and be freed, once the lock is. */
		wake_up_all(&stopped);
	}
	mutex_unlock(&uses_lock);
	/* Somebody else may be stopping the same ones. */
	wait_event(stopped, !atomic_read_acquire(&pin->nr_uses));
}
