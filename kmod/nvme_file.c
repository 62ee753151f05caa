// SPDX-License-Identifier: MIT
/*
 * Calls on /dev/peerlane-nvmeN. Everything that comes from user space is copied once, checked, and
 * believed only after that.
 */
#include <linux/capability.h>
#include <linux/compat.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/overflow.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <uapi/peerlane.h>

#include "nvme.h"
#include "request.h"

static int hello(struct nv_file *file, void __user *argument)
{
	struct peerlane_nvmedev_hello hello;
	int err;

	if (copy_from_user(&hello, argument, sizeof(hello)))
		return -EFAULT;
	if (!reserved_clear(&hello))
		return -EINVAL;
	err = hello.version == PEERLANE_NVMEDEV_UAPI_VERSION ? 0 : -EPROTO;
	hello.version = PEERLANE_NVMEDEV_UAPI_VERSION;
	if (copy_to_user(argument, &hello, sizeof(hello)))
		return -EFAULT;
	if (!err)
		WRITE_ONCE(file->greeted, true);
	return err;
}

static bool translated(struct nv_dev *dev)
{
	return peerlane_iommu_flags(&dev->pdev->dev) & PEERLANE_ROUTE_TRANSLATED;
}

static int info(struct nv_file *file, void __user *argument)
{
	struct nv_dev *dev = file->dev;
	struct peerlane_nvmedev_info info;
	int i, err = 0;

	if (copy_from_user(&info, argument, sizeof(info)))
		return -EFAULT;
	if (!reserved_clear(&info))
		return -EINVAL;
	info = (struct peerlane_nvmedev_info){
		.pci = dev->pci,
		.max_map_bytes = NV_MAX_MAP_BYTES,
		.max_alloc_bytes = NV_MAX_ALLOC_BYTES,
		.max_mappings = NV_MAX_MAPPINGS,
		.nr_mappings = (u32)atomic_read(&file->nr_mappings),
	};
	mutex_lock(&dev->lock);
	if (dev->gone || file->revoked)
		err = -ENODEV;
	for (i = 0; !err && i < (file->bar0_bytes ? 1 : NV_NR_BARS); i++) {
		info.bars[i].bytes = file->bar0_bytes ? file->bar0_bytes : dev->bytes[i];
		info.bars[i].bus = dev->bytes[i] ? pci_bus_address(dev->pdev, i) : 0;
	}
	if (!err && translated(dev))
		info.flags |= PEERLANE_NVMEDEV_TRANSLATED;
	if (dev->stopped)
		info.flags |= PEERLANE_NVMEDEV_STOPPED;
	mutex_unlock(&dev->lock);
	if (!err && copy_to_user(argument, &info, sizeof(info)))
		err = -EFAULT;
	return err;
}

static int check_map(const struct peerlane_nvmedev_map *request)
{
	bool host = request->kind == PEERLANE_NVMEDEV_HOST;
	bool gpu = request->kind == PEERLANE_NVMEDEV_GPU;
	u64 end;

	if (!host && !gpu && request->kind != PEERLANE_NVMEDEV_ALLOC)
		return -EINVAL;
	if (!reserved_clear(request) || request->flags || !request->bytes)
		return -EINVAL;
	if (!host && request->address)
		return -EINVAL;
	if (!gpu && (request->fd || request->pin || request->pin_offset))
		return -EINVAL;
	if (check_add_overflow(request->address, request->bytes, &end) || end > U64_MAX - PAGE_SIZE)
		return -EINVAL;
	if (request->bytes > (host || gpu ? NV_MAX_MAP_BYTES : NV_MAX_ALLOC_BYTES))
		return -E2BIG;
	return 0;
}

/* A mapping out of the table: whoever takes it is the one to end it. */
static struct nv_mapping *take(struct nv_file *file, unsigned long handle)
{
	struct nv_dev *dev = file->dev;
	struct nv_mapping *mapping;

	mutex_lock(&dev->lock);
	mapping = xa_erase(&file->mappings, handle);
	if (mapping)
		nv_mapping_unmap(mapping);
	mutex_unlock(&dev->lock);
	if (mapping)
		atomic_dec(&file->nr_mappings);
	return mapping;
}

/* The mapping gets a handle. */
static int publish(struct nv_file *file, struct nv_mapping *mapping, u32 *handle)
{
	struct nv_dev *dev = file->dev;
	int err;

	mutex_lock(&dev->lock);
	err = dev->gone || file->revoked
		      ? -ENODEV
		      : xa_alloc(&file->mappings, handle, mapping,
				 XA_LIMIT(1, (1U << (63 - NV_WINDOW_SHIFT)) - 1), GFP_KERNEL);
	mutex_unlock(&dev->lock);
	return err;
}

static int map(struct nv_file *file, void __user *argument)
{
	struct peerlane_nvmedev_map request;
	struct nv_mapping *mapping;
	int err;

	if (copy_from_user(&request, argument, sizeof(request)))
		return -EFAULT;
	err = check_map(&request);
	if (err)
		return err;
	if (atomic_inc_return(&file->nr_mappings) > NV_MAX_MAPPINGS) {
		err = -ENOSPC;
		goto err_count;
	}
	mapping = nv_mapping_create(file, &request);
	if (IS_ERR(mapping)) {
		err = PTR_ERR(mapping);
		goto err_count;
	}
	request.nr_pages = mapping->nr_pages;
	request.page_bytes = 1U << mapping->page_shift;
	request.first = mapping->first;
	/* Before it has a handle, and another thread may end it. */
	err = -EFAULT;
	if (copy_to_user(u64_to_user_ptr(request.bus), mapping->bus,
			 mapping->nr_pages * sizeof(*mapping->bus)))
		goto err_mapping;
	err = publish(file, mapping, &request.handle);
	if (err)
		goto err_mapping;
	request.map_offset =
		request.kind == PEERLANE_NVMEDEV_ALLOC ? (u64)request.handle << NV_WINDOW_SHIFT : 0;
	if (!copy_to_user(argument, &request, sizeof(request)))
		return 0;
	mapping = take(file, request.handle);
	if (mapping)
		nv_mapping_free(mapping);
	return -EFAULT;

err_mapping:
	mutex_lock(&file->dev->lock);
	nv_mapping_unmap(mapping);
	mutex_unlock(&file->dev->lock);
	nv_mapping_free(mapping);
err_count:
	atomic_dec(&file->nr_mappings);
	return err;
}

static int unmap(struct nv_file *file, void __user *argument)
{
	struct peerlane_nvmedev_unmap request;
	struct nv_mapping *mapping;

	if (copy_from_user(&request, argument, sizeof(request)))
		return -EFAULT;
	if (!reserved_clear(&request) || request.flags)
		return -EINVAL;
	mapping = take(file, request.handle);
	if (!mapping)
		return -ENOENT;
	nv_mapping_free(mapping);
	return 0;
}

static int reset(struct nv_file *file)
{
	struct nv_dev *dev = file->dev;
	int err;

	mutex_lock(&dev->lock);
	err = dev->gone ? -ENODEV : nv_reset(dev);
	mutex_unlock(&dev->lock);
	return err;
}

/* The calls that clients have as well. */
long nv_file_call(struct nv_file *file, unsigned int command, void __user *user)
{
	if (_IOC_TYPE(command) != PEERLANE_NVMEDEV_IOC_MAGIC)
		return -ENOTTY;
	if (command == PEERLANE_NVMEDEV_IOC_HELLO)
		return hello(file, user);
	if (!READ_ONCE(file->greeted))
		return -EPROTO;
	switch (command) {
	case PEERLANE_NVMEDEV_IOC_INFO:
		return info(file, user);
	case PEERLANE_NVMEDEV_IOC_MAP:
		return map(file, user);
	case PEERLANE_NVMEDEV_IOC_UNMAP:
		return unmap(file, user);
	case PEERLANE_NVMEDEV_IOC_RESET:
	case PEERLANE_NVMEDEV_IOC_GRANT:
	case PEERLANE_NVMEDEV_IOC_REVOKE:
	case PEERLANE_NVMEDEV_IOC_LEAVING:
		return -EPERM;
	default:
		return -ENOTTY;
	}
}

static long file_ioctl(struct file *filp, unsigned int command, unsigned long argument)
{
	struct nv_file *file = filp->private_data;
	void __user *user = (void __user *)argument;

	if (READ_ONCE(file->greeted))
		switch (command) {
		case PEERLANE_NVMEDEV_IOC_RESET:
			return reset(file);
		case PEERLANE_NVMEDEV_IOC_GRANT:
			return nv_client_grant(filp, user);
		case PEERLANE_NVMEDEV_IOC_REVOKE:
			return nv_client_revoke(file, user);
		case PEERLANE_NVMEDEV_IOC_LEAVING:
			return nv_client_leaving(file, user);
		}
	return nv_file_call(file, command, user);
}

static int file_mmap(struct file *filp, struct vm_area_struct *vma)
{
	struct nv_file *file = filp->private_data;

	return READ_ONCE(file->greeted) ? nv_window_map(file, vma) : -EPROTO;
}

static void file_free(struct kref *ref)
{
	struct nv_file *file = container_of(ref, struct nv_file, ref);
	int i;

	for (i = 0; i < 2; i++)
		if (file->dead[i])
			__free_page(file->dead[i]);
	xa_destroy(&file->mappings);
	if (file->inode)
		iput(file->inode);
	nv_dev_put(file->dev);
	kfree(file);
}

void nv_file_put(struct nv_file *file)
{
	kref_put(&file->ref, file_free);
}

/* A file without mappings, with one reference. The caller knows that the device is there. */
struct nv_file *nv_file_alloc(struct nv_dev *dev, struct address_space *space)
{
	struct nv_file *file;
	int i;

	file = kzalloc(sizeof(*file), GFP_KERNEL_ACCOUNT);
	if (!file)
		return NULL;
	kref_init(&file->ref);
	xa_init_flags(&file->mappings, XA_FLAGS_ALLOC1);
	atomic_set(&file->nr_mappings, 0);
	kref_get(&dev->ref);
	file->dev = dev;
	file->space = space;
	for (i = 0; i < 2; i++) {
		file->dead[i] = alloc_page(GFP_KERNEL_ACCOUNT);
		if (!file->dead[i]) {
			nv_file_put(file);
			return NULL;
		}
		/* As a device reads that is not there. */
		memset(page_address(file->dead[i]), 0xff, PAGE_SIZE);
	}
	return file;
}

/* The device is there: it cannot go before this has returned, but may right after. */
static int file_open(struct inode *inode, struct file *filp)
{
	struct nv_dev *dev = container_of(filp->private_data, struct nv_dev, misc);
	struct nv_file *file;
	int err = 0;

	if (nv_unconfined(dev) && !capable(CAP_SYS_RAWIO))
		return -EPERM;
	file = nv_file_alloc(dev, filp->f_mapping);
	if (!file)
		return -ENOMEM;
	mutex_lock(&dev->lock);
	if (dev->file)
		err = -EBUSY;
	if (!err) {
		dev->file = file;
		nv_start(dev);
	}
	mutex_unlock(&dev->lock);
	if (err) {
		nv_file_put(file);
		return err;
	}
	filp->private_data = file;
	nv_count(NV_FILES, 1);
	return nonseekable_open(inode, filp);
}

/* The controller does not use the file's memory any more. */
void nv_file_unmap_all(struct nv_file *file)
{
	struct nv_mapping *mapping;
	unsigned long handle;

	xa_for_each(&file->mappings, handle, mapping)
	{
		mapping = take(file, handle);
		if (mapping)
			nv_mapping_free(mapping);
	}
}

/*
 * The last descriptor and the last mapping are gone: stop the controller, then let its memory go, and
 * that of its clients.
 */
static int file_release(struct inode *inode, struct file *filp)
{
	struct nv_file *file = filp->private_data;
	struct nv_dev *dev = file->dev;

	mutex_lock(&dev->lock);
	if (!dev->gone)
		nv_stop(dev);
	mutex_unlock(&dev->lock);
	nv_client_revoke_all(dev);
	nv_file_unmap_all(file);
	/* Only now may another one open it. */
	mutex_lock(&dev->lock);
	dev->file = NULL;
	mutex_unlock(&dev->lock);
	nv_count(NV_FILES, -1);
	nv_file_put(file);
	return 0;
}

const struct file_operations nv_file_ops = {
	.owner = THIS_MODULE,
	.open = file_open,
	.release = file_release,
	.unlocked_ioctl = file_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.mmap = file_mmap,
	.poll = nv_client_poll,
};
