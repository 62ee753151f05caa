// SPDX-License-Identifier: MIT
/*
 * Calls on /dev/peerlane. Everything that comes from user space is copied once, checked, and
 * believed only after that.
 */
#include <linux/capability.h>
#include <linux/compat.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/overflow.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "core.h"
#include "request.h"

static int hello(struct pl_file *file, void __user *argument)
{
	struct peerlane_hello hello;
	u64 wanted;
	bool persistent;
	int err = 0;

	if (copy_from_user(&hello, argument, sizeof(hello)))
		return -EFAULT;
	if (!reserved_clear(&hello) || hello.oldest > hello.version)
		return -EINVAL;
	wanted = hello.features;
	if (hello.version < PEERLANE_UAPI_OLDEST || hello.oldest > PEERLANE_UAPI_VERSION)
		err = -EPROTO;
	hello.version = PEERLANE_UAPI_VERSION;
	hello.oldest = PEERLANE_UAPI_OLDEST;
	hello.max_pin_bytes = PL_MAX_PIN_BYTES;
	hello.max_pins = PL_MAX_PINS;
	hello.nr_providers = pl_providers_count(&persistent);
	hello.features = pl_bar_features() | PEERLANE_FEATURE_ADAPTER;
	if (hello.nr_providers)
		hello.features |= PEERLANE_FEATURE_PROVIDER;
	if (persistent)
		hello.features |= PEERLANE_FEATURE_PERSISTENT;
	if (PL_SWIOTLB_KNOWN)
		hello.features |= PEERLANE_FEATURE_SWIOTLB_KNOWN;
	if (!err && (wanted & ~hello.features))
		err = -EOPNOTSUPP;
	if (copy_to_user(argument, &hello, sizeof(hello)))
		return -EFAULT;
	if (!err)
		WRITE_ONCE(file->greeted, true);
	return err;
}

/*
 * A pin without its handle: whoever takes it out of the table has the table's reference. A place that is
 * only reserved stays so, for the pin that is being made.
 */
static struct pl_pin *take(struct pl_file *file, u32 handle)
{
	struct pl_pin *pin;

	xa_lock(&file->pins);
	pin = xa_load(&file->pins, handle);
	if (pin)
		__xa_erase(&file->pins, handle);
	xa_unlock(&file->pins);
	if (pin)
		atomic_dec(&file->nr_pins);
	return pin;
}

static int check_pin(const struct peerlane_pin *request)
{
	u64 end;

	if (!reserved_clear(request) || (request->flags & ~PEERLANE_PIN_FLAGS))
		return -EINVAL;
	/* Room above for rounding up. */
	if (!request->length || check_add_overflow(request->address, request->length, &end) ||
	    end > U64_MAX - PL_FRAME_BYTES)
		return -EINVAL;
	if (round_up(end, PL_FRAME_BYTES) - round_down(request->address, PL_FRAME_BYTES) >
	    PL_MAX_PIN_BYTES)
		return -E2BIG;
	return 0;
}

static int pin(struct pl_file *file, struct inode *inode, void __user *argument)
{
	struct peerlane_pin request;
	struct pl_pin *pin;
	u32 handle;
	int err;

	if (copy_from_user(&request, argument, sizeof(request)))
		return -EFAULT;
	err = check_pin(&request);
	if (err)
		return err;
	if (atomic_inc_return(&file->nr_pins) > PL_MAX_PINS) {
		err = -ENOSPC;
		goto err_count;
	}
	pin = pl_pin_create(file, inode, &request);
	if (IS_ERR(pin)) {
		err = PTR_ERR(pin);
		goto err_count;
	}
	handle = pin->handle;
	request.handle = handle;
	request.map_offset = pl_pin_offset(pin);
	request.map_bytes = pl_pin_bytes(pin);
	request.skip_bytes = pin->skip_bytes;
	request.gpu_page_bytes = PL_FRAME_BYTES;
	request.page_kind = pin->bar->kind;
	request.gpu_pci = pl_pci_number(pin->bar->pdev, &request.gpu_domain_high);
	request.provider = pin->provider_id;
	pl_pin_put(pin);
	if (!copy_to_user(argument, &request, sizeof(request)))
		return 0;
	/* Nobody knows the handle, unless it was guessed and is gone already. */
	pin = take(file, handle);
	if (pin)
		pl_pin_retire(pin, 0);
	return -EFAULT;

err_count:
	atomic_dec(&file->nr_pins);
	return err;
}

static int unpin(struct pl_file *file, void __user *argument)
{
	struct peerlane_unpin request;
	struct pl_pin *pin;

	if (copy_from_user(&request, argument, sizeof(request)))
		return -EFAULT;
	if (!reserved_clear(&request) || request.flags)
		return -EINVAL;
	pin = take(file, request.handle);
	return pin ? pl_pin_retire(pin, pl_unpin_wait_ms()) : -ENOENT;
}

static int list(struct pl_file *file, void __user *argument)
{
	struct peerlane_list request;
	unsigned long handle;
	struct pl_pin *pin;
	u32 nr = 0, room, *handles = NULL;
	int err = 0;

	if (copy_from_user(&request, argument, sizeof(request)))
		return -EFAULT;
	if (!reserved_clear(&request))
		return -EINVAL;
	room = request.handles ? min(request.nr_room, PL_MAX_PINS) : 0;
	if (room) {
		handles = kvcalloc(room, sizeof(*handles), GFP_KERNEL_ACCOUNT);
		if (!handles)
			return -ENOMEM;
	}
	xa_for_each(&file->pins, handle, pin)
	{
		if (nr < room)
			handles[nr] = (u32)handle;
		nr++;
	}
	request.nr_handles = nr;
	if (copy_to_user(u64_to_user_ptr(request.handles), handles,
			 min(nr, room) * sizeof(*handles)) ||
	    copy_to_user(argument, &request, sizeof(request)))
		err = -EFAULT;
	kvfree(handles);
	return err;
}

static u32 runs_of(const struct pl_pin *pin)
{
	u32 i, runs = 1;

	for (i = 1; i < pin->nr_frames; i++)
		if (pin->frames[i] != pin->frames[i - 1] + PL_FRAME_BYTES)
			runs++;
	return runs;
}

static int info_of(struct pl_pin *pin, struct peerlane_info *request)
{
	bool live;
	u32 nr;

	live = pl_pin_live(pin);
	if (request->physical) {
		if (!capable(CAP_SYS_RAWIO))
			return -EPERM;
		if (!live)
			return -ENODEV;
		nr = min(request->nr_room, pin->nr_frames);
		/* Written once before the pin had a handle, so this needs no lock. */
		if (copy_to_user(u64_to_user_ptr(request->physical), pin->frames,
				 nr * sizeof(*pin->frames)))
			return -EFAULT;
	}
	request->state = live ? 0 : PEERLANE_INFO_REVOKED;
	request->nr_pages = pin->nr_frames;
	request->address = pin->address;
	request->length = pin->length;
	request->map_offset = pl_pin_offset(pin);
	request->map_bytes = pl_pin_bytes(pin);
	request->skip_bytes = pin->skip_bytes;
	request->flags = pin->flags;
	request->page_kind = pin->bar->kind;
	request->gpu_pci = pl_pci_number(pin->bar->pdev, &request->gpu_domain_high);
	request->gpu_page_bytes = PL_FRAME_BYTES;
	request->nr_mappings = (u32)atomic_read(&pin->nr_mappings);
	request->nr_runs = runs_of(pin);
	return 0;
}

/* INFO and ROUTE: both ask something of a pin, and begin with its handle. */
static int ask(struct pl_file *file, bool is_info, void __user *argument)
{
	union {
		u32 handle;
		struct peerlane_info info;
		struct peerlane_route route;
	} request;
	size_t bytes = is_info ? sizeof(request.info) : sizeof(request.route);
	struct pl_pin *pin;
	int err;

	BUILD_BUG_ON(offsetof(struct peerlane_info, handle));
	BUILD_BUG_ON(offsetof(struct peerlane_route, handle));
	if (copy_from_user(&request, argument, bytes))
		return -EFAULT;
	if (!(is_info ? reserved_clear(&request.info) : reserved_clear(&request.route)))
		return -EINVAL;
	pin = pl_pin_find(file, request.handle);
	if (!pin)
		return -ENOENT;
	err = is_info ? info_of(pin, &request.info) : pl_route(pin, &request.route);
	pl_pin_put(pin);
	if (!err && copy_to_user(argument, &request, bytes))
		err = -EFAULT;
	return err;
}

static int counters(void __user *argument)
{
	struct peerlane_counters out;

	pl_counters_read(&out);
	return copy_to_user(argument, &out, sizeof(out)) ? -EFAULT : 0;
}

static long file_ioctl(struct file *filp, unsigned int command, unsigned long argument)
{
	struct pl_file *file = filp->private_data;
	void __user *user = (void __user *)argument;

	if (_IOC_TYPE(command) != PEERLANE_IOC_MAGIC)
		return -ENOTTY;
	if (command == PEERLANE_IOC_HELLO)
		return hello(file, user);
	if (!READ_ONCE(file->greeted))
		return -EPROTO;
	switch (command) {
	case PEERLANE_IOC_PIN:
		return pin(file, file_inode(filp), user);
	case PEERLANE_IOC_UNPIN:
		return unpin(file, user);
	case PEERLANE_IOC_LIST:
		return list(file, user);
	case PEERLANE_IOC_INFO:
		return ask(file, true, user);
	case PEERLANE_IOC_ROUTE:
		return ask(file, false, user);
	case PEERLANE_IOC_COUNTERS:
		return counters(user);
	default:
		return -ENOTTY;
	}
}

static int file_mmap(struct file *filp, struct vm_area_struct *vma)
{
	struct pl_file *file = filp->private_data;

	return READ_ONCE(file->greeted) ? pl_map(file, vma) : -EPROTO;
}

static int file_open(struct inode *inode, struct file *filp)
{
	struct pl_file *file;

	file = kzalloc(sizeof(*file), GFP_KERNEL_ACCOUNT);
	if (!file)
		return -ENOMEM;
	xa_init(&file->pins);
	atomic_set(&file->nr_pins, 0);
	filp->private_data = file;
	pl_count(PL_FILES, 1);
	return nonseekable_open(inode, filp);
}

/* The last descriptor and the last mapping are gone. Whatever a device still uses lingers. */
static int file_release(struct inode *inode, struct file *filp)
{
	struct pl_file *file = filp->private_data;
	unsigned long handle;
	struct pl_pin *pin;

	xa_for_each(&file->pins, handle, pin)
	{
		xa_erase(&file->pins, handle);
		pl_pin_retire(pin, 0);
	}
	xa_destroy(&file->pins);
	kfree(file);
	pl_count(PL_FILES, -1);
	return 0;
}

const struct file_operations pl_file_ops = {
	.owner = THIS_MODULE,
	.open = file_open,
	.release = file_release,
	.unlocked_ioctl = file_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.mmap = file_mmap,
};
