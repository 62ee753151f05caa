// SPDX-License-Identifier: MIT
/*
 * Descriptors for clients: other processes that drive queues of a controller which one process owns.
 *
 * A client that dies may have commands under way, which write into its memory. Only the owner can end
 * them, by deleting the client's queues. So a client's mappings are held by the device's table of
 * clients and not by its descriptor: they end when the owner revokes it, or when the owner's file is
 * closed and the controller has been stopped.
 */
#include <linux/anon_inodes.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/jiffies.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/uaccess.h>

#include "nvme.h"
#include "request.h"

static struct workqueue_struct *enders;

static long client_ioctl(struct file *filp, unsigned int command, unsigned long argument)
{
	return nv_file_call(filp->private_data, command, (void __user *)argument);
}

static int client_mmap(struct file *filp, struct vm_area_struct *vma)
{
	struct nv_file *file = filp->private_data;

	return READ_ONCE(file->greeted) ? nv_window_map(file, vma) : -EPROTO;
}

/* What it has mapped stays: see above. */
static int client_release(struct inode *inode, struct file *filp)
{
	nv_count(NV_FILES, -1);
	nv_file_put(filp->private_data);
	return 0;
}

static const struct file_operations client_ops = {
	.owner = THIS_MODULE,
	.release = client_release,
	.unlocked_ioctl = client_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.mmap = client_mmap,
};

/* Lets go of what has no addresses any more, and of the table's reference. */
static void end_work(struct work_struct *work)
{
	struct nv_file *client = container_of(work, struct nv_file, end);

	nv_file_unmap_all(client);
	nv_count(NV_CLIENTS, -1);
	nv_file_put(client);
}

/*
 * The controller is done with all that the client has mapped: take the addresses away. The rest is not
 * waited for: a use of GPU memory ends only when whoever takes that memory away is done with it, and
 * that may be waiting for the caller to end another client.
 */
static void end_client(struct nv_file *client)
{
	struct nv_dev *dev = client->dev;
	struct nv_mapping *mapping;
	unsigned long handle;

	mutex_lock(&dev->lock);
	/* From now on nothing is added, and its doorbells are those of nobody. */
	client->revoked = true;
	nv_window_empty(client);
	xa_for_each(&client->mappings, handle, mapping)
		nv_mapping_unmap(mapping);
	mutex_unlock(&dev->lock);
	queue_work(enders, &client->end);
}

/* Whoever takes a client out of the table is the one to end it. */
static struct nv_file *take_client(struct nv_dev *dev, unsigned long id)
{
	struct nv_file *client;

	mutex_lock(&dev->lock);
	client = xa_erase(&dev->clients, id);
	mutex_unlock(&dev->lock);
	return client;
}

void nv_client_revoke_all(struct nv_dev *dev)
{
	struct nv_file *client;
	unsigned long id;

	xa_for_each(&dev->clients, id, client) {
		client = take_client(dev, id);
		if (client)
			end_client(client);
	}
}

int nv_client_revoke(struct nv_file *file, void __user *argument)
{
	struct peerlane_nvmedev_revoke request;
	struct nv_file *client;

	if (copy_from_user(&request, argument, sizeof(request)))
		return -EFAULT;
	if (!reserved_clear(&request) || request.flags)
		return -EINVAL;
	client = take_client(file->dev, request.id);
	if (!client)
		return -ENOENT;
	end_client(client);
	return 0;
}

/* GPU memory of a client goes away: tell the owner, who can revoke the client. The lock is held. */
void nv_client_ask_to_leave(struct nv_file *client)
{
	client->leaving = true;
	wake_up_all(&client->dev->leave);
}

/*
 * Wait until the owner has revoked the client; not for ever, nor when the controller has stopped
 * already, or its owner has gone.
 */
void nv_client_wait_left(struct nv_mapping *mapping, unsigned long deadline)
{
	struct nv_dev *dev = mapping->dev;
	long left = (long)(deadline - jiffies);

	if (left <= 0 || !READ_ONCE(mapping->mapped) || READ_ONCE(dev->stopped))
		return;
	nv_count(NV_WAITS, 1);
	wait_event_timeout(dev->leave, !READ_ONCE(mapping->mapped) || READ_ONCE(dev->stopped),
			   left);
}

static u32 who_leaves(struct nv_dev *dev)
{
	struct nv_file *client;
	unsigned long id;
	u32 found = 0;

	mutex_lock(&dev->lock);
	xa_for_each(&dev->clients, id, client)
		if (client->leaving)
			found = (u32)id;
	mutex_unlock(&dev->lock);
	return found;
}

int nv_client_leaving(struct nv_file *file, void __user *argument)
{
	struct peerlane_nvmedev_leaving request;

	if (copy_from_user(&request, argument, sizeof(request)))
		return -EFAULT;
	if (!reserved_clear(&request))
		return -EINVAL;
	request.id = who_leaves(file->dev);
	return copy_to_user(argument, &request, sizeof(request)) ? -EFAULT : 0;
}

__poll_t nv_client_poll(struct file *filp, struct poll_table_struct *table)
{
	struct nv_file *file = filp->private_data;

	poll_wait(filp, &file->dev->leave, table);
	return who_leaves(file->dev) ? EPOLLPRI : 0;
}

int nv_client_init(void)
{
	enders = alloc_workqueue("peerlane_nvme", WQ_UNBOUND, 0);
	return enders ? 0 : -ENOMEM;
}

void nv_client_exit(void)
{
	destroy_workqueue(enders);
}

/* Its open file, in which windows are those of the owner's: one call empties them all. */
static struct file *open_client(struct nv_file *client)
{
	struct file *filp;

	filp = anon_inode_getfile("[peerlane-nvme]", &client_ops, client, O_RDWR);
	if (IS_ERR(filp))
		return filp;
	/* Of the file's own reference. */
	kref_get(&client->ref);
	nv_count(NV_FILES, 1);
	filp->f_mapping = client->space;
	return filp;
}

static int publish_client(struct nv_file *client, u32 *id)
{
	struct nv_dev *dev = client->dev;
	int err;

	mutex_lock(&dev->lock);
	err = dev->gone ? -ENODEV
			: xa_alloc(&dev->clients, id, client, XA_LIMIT(1, NV_MAX_CLIENTS),
				   GFP_KERNEL);
	mutex_unlock(&dev->lock);
	if (!err)
		nv_count(NV_CLIENTS, 1);
	return err == -EBUSY ? -ENOSPC : err;
}

int nv_client_grant(struct file *filp, void __user *argument)
{
	struct nv_file *owner = filp->private_data, *client;
	struct peerlane_nvmedev_grant request;
	struct nv_dev *dev = owner->dev;
	struct file *given;
	int err;

	if (copy_from_user(&request, argument, sizeof(request)))
		return -EFAULT;
	if (!reserved_clear(&request) || request.flags || request.bar0_bytes <= NV_REGS_BYTES ||
	    request.bar0_bytes > dev->bytes[0])
		return -EINVAL;
	/* Registers and doorbells must not be in one page. */
	if (PAGE_SIZE > NV_REGS_BYTES)
		return -EOPNOTSUPP;
	client = nv_file_alloc(dev, owner->space);
	if (!client)
		return -ENOMEM;
	INIT_WORK(&client->end, end_work);
	client->bar0_bytes = round_up(request.bar0_bytes, PAGE_SIZE);
	/* It may outlive the owner's file. */
	client->inode = owner->space->host;
	ihold(client->inode);
	given = open_client(client);
	if (IS_ERR(given)) {
		err = PTR_ERR(given);
		goto err_put;
	}
	request.fd = get_unused_fd_flags(O_CLOEXEC);
	if (request.fd < 0) {
		err = request.fd;
		goto err_file;
	}
	err = publish_client(client, &request.id);
	if (err)
		goto err_fd;
	if (copy_to_user(argument, &request, sizeof(request))) {
		/* Another thread may have guessed the number, and revoked it. */
		client = take_client(dev, request.id);
		if (client)
			end_client(client);
		put_unused_fd((unsigned int)request.fd);
		fput(given);
		return -EFAULT;
	}
	fd_install((unsigned int)request.fd, given);
	return 0;

err_fd:
	put_unused_fd((unsigned int)request.fd);
err_file:
	fput(given);
err_put:
	nv_file_put(client);
	return err;
}
