// SPDX-License-Identifier: MIT
/*
 * Pinned GPU memory that a device of another module works on, without a transfer that has an end: a
 * controller that a program drives itself. So nobody waits for it. When the memory's owner unpins it,
 * the pin lingers; when the memory is taken away, its user is told to stop, and does.
 */
#include <linux/file.h>
#include <linux/module.h>
#include <linux/mutex.h>

#include "consumer.h"
#include "core.h"

/* Guards the lists of uses; held while a use is stopped, so that it cannot end meanwhile. */
static DEFINE_MUTEX(uses_lock);

static void unlink(struct peerlane_use *use)
{
	list_del_init(&use->node);
	pl_count(PL_USES, -1);
	/* Whoever sees that none is left, sees what the last one did. */
	atomic_dec_return_release(&use->pin->nr_uses);
}

/* Add a use to a pin, if its memory is there. */
static int use_pin(struct peerlane_use *use, struct pl_pin *pin, u64 offset, u64 bytes)
{
	u64 start, end;
	int err = -ENODEV;

	if (offset > pin->length || !bytes || bytes > pin->length - offset)
		return -EINVAL;
	start = pin->skip_bytes + offset;
	end = start + bytes;
	/* Whoever ends the pin looks for uses afterwards. */
	down_read(&pin->sem);
	if (pin->live) {
		err = 0;
		use->pages = pin->frames + (start >> PL_FRAME_SHIFT);
		use->nr_pages = (u32)(((end - 1) >> PL_FRAME_SHIFT) - (start >> PL_FRAME_SHIFT) + 1);
		use->first = (u32)(start & (PL_FRAME_BYTES - 1));
		use->page_kind = pin->bar->kind;
		use->pin = pin;
		mutex_lock(&uses_lock);
		list_add_tail(&use->node, &pin->uses);
		atomic_inc(&pin->nr_uses);
		pl_count(PL_USES, 1);
		mutex_unlock(&uses_lock);
	}
	up_read(&pin->sem);
	return err;
}

/**
 * peerlane_use_begin() - see consumer.h
 * @use: stop() is set
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
	if (!list_empty(&use->node))
		unlink(use);
	mutex_unlock(&uses_lock);
	pl_pin_put(use->pin);
}
EXPORT_SYMBOL_GPL(peerlane_use_end);

/* The memory of a pin goes away, and no use can be added: stop those there are. */
void pl_uses_stop(struct pl_pin *pin)
{
	struct peerlane_use *use;

	mutex_lock(&uses_lock);
	while ((use = list_first_entry_or_null(&pin->uses, struct peerlane_use, node))) {
		use->stop(use);
		unlink(use);
	}
	mutex_unlock(&uses_lock);
}
