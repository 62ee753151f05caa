// SPDX-License-Identifier: MIT
/*
 * simgpu.ko: a GPU for tests. It drives the memory device of QEMU (ivshmem); /dev/simgpu gives
 * programs its memory.
 */
#include <linux/bitmap.h>
#include <linux/delay.h>
#include <linux/io.h>
#include <linux/log2.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "simgpu_dev.h"

struct sim_gpu sim = {
	.lock = __MUTEX_INITIALIZER(sim.lock),
	.open_lock = __MUTEX_INITIALIZER(sim.open_lock),
	.allocs = LIST_HEAD_INIT(sim.allocs),
	.next_address = 0x700000000000ULL,
};

/* Shall this go wrong now? Counts it. */
bool sim_fault(u32 what, u32 *value)
{
	if (!sim.faults[what].times)
		return false;
	sim.faults[what].times--;
	*value = sim.faults[what].value;
	return true;
}

/*
 * A part of a copy that stays inside one page of the GPU. Only while it lasts the memory is mapped, in the
 * way that page structures of it are: asked for cached memory, the kernel gives what there is.
 */
static int copy_piece(struct sim_alloc *alloc, u64 at, u32 bytes, void __user *user, bool to_gpu,
		      void *bounce)
{
	void __iomem *memory = ioremap_cache(sim_physical(alloc, (u32)(at / SIMGPU_PAGE_BYTES)),
					     SIMGPU_PAGE_BYTES);
	int err = 0;

	if (!memory)
		return -ENOMEM;
	if (!to_gpu)
		memcpy_fromio(bounce, memory + at % SIMGPU_PAGE_BYTES, bytes);
	else if (copy_from_user(bounce, user, bytes))
		err = -EFAULT;
	else
		memcpy_toio(memory + at % SIMGPU_PAGE_BYTES, bounce, bytes);
	iounmap(memory);
	if (!to_gpu && copy_to_user(user, bounce, bytes))
		err = -EFAULT;
	return err;
}

static int copy(const struct simgpu_copy *request)
{
	struct sim_alloc *alloc = sim_find(request->address, request->bytes);
	u64 at, done = 0;
	void *bounce;
	u32 piece;
	int err = 0;

	if (!alloc)
		return -EINVAL;
	bounce = kvmalloc(SIMGPU_PAGE_BYTES, GFP_KERNEL);
	if (!bounce)
		return -ENOMEM;
	at = request->address - alloc->address;
	while (done < request->bytes && !err) {
		piece = (u32)min_t(u64, request->bytes - done,
				   SIMGPU_PAGE_BYTES - (at + done) % SIMGPU_PAGE_BYTES);
		err = copy_piece(alloc, at + done, piece, u64_to_user_ptr(request->user + done),
				 request->to_gpu, bounce);
		done += piece;
		cond_resched();
	}
	kvfree(bounce);
	return err;
}

static void state(struct simgpu_state *out)
{
	struct sim_alloc *alloc;

	*out = (struct simgpu_state){
		.bar_start = sim.start,
		.bar_bytes = sim.bytes,
		.free_bytes = (u64)sim.nr_free * SIMGPU_PAGE_BYTES,
		.nr_pins = sim.nr_pins,
		.nr_callbacks = sim.nr_callbacks,
		.pci = (u64)pci_domain_nr(sim.pdev->bus) << 16 | pci_dev_id(sim.pdev),
	};
	list_for_each_entry(alloc, &sim.allocs, node)
	{
		out->nr_allocs++;
		out->nr_persistent += alloc->nr_persistent;
	}
}

static int call(struct file *file, unsigned int command, void *argument)
{
	struct simgpu_alloc *alloc = argument;
	struct simgpu_fault *fault = argument;

	switch (command) {
	case SIMGPU_IOC_ALLOC:
		return sim_alloc(file, alloc->bytes, &alloc->address);
	case SIMGPU_IOC_FREE:
		return sim_free(file, *(u64 *)argument);
	case SIMGPU_IOC_COPY:
		return copy(argument);
	case SIMGPU_IOC_FAULT:
		if (fault->what >= SIMGPU_NR_FAULTS)
			return -EINVAL;
		sim.faults[fault->what].value = fault->value;
		sim.faults[fault->what].times = fault->times;
		return 0;
	case SIMGPU_IOC_STATE:
		state(argument);
		return 0;
	default:
		return -ENOTTY;
	}
}

static long sim_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	void __user *user = (void __user *)argument;
	union {
		struct simgpu_alloc alloc;
		struct simgpu_copy copy;
		struct simgpu_fault fault;
		struct simgpu_state state;
		u64 address;
	} request = {};
	unsigned int bytes = _IOC_SIZE(command);
	int err;

	if (bytes > sizeof(request))
		return -ENOTTY;
	if ((_IOC_DIR(command) & _IOC_WRITE) && copy_from_user(&request, user, bytes))
		return -EFAULT;
	mutex_lock(&sim.lock);
	/* Files stay open when the device goes. */
	err = sim.pdev ? call(file, command, &request) : -ENODEV;
	mutex_unlock(&sim.lock);
	if (!err && (_IOC_DIR(command) & _IOC_READ) && copy_to_user(user, &request, bytes))
		err = -EFAULT;
	return err;
}

static int sim_open(struct inode *inode, struct file *file)
{
	int err = sim_pages_open(1);

	return err ?: nonseekable_open(inode, file);
}

static int sim_release(struct inode *inode, struct file *file)
{
	sim_pages_open(-1);
	mutex_lock(&sim.lock);
	sim_free_all(file);
	mutex_unlock(&sim.lock);
	return 0;
}

static const struct file_operations sim_ops = {
	.owner = THIS_MODULE,
	.open = sim_open,
	.release = sim_release,
	.unlocked_ioctl = sim_ioctl,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "simgpu",
	.fops = &sim_ops,
	.mode = 0666,
};

/* Find out where the memory is; of a device that was here before some may still be allocated. */
static int sim_size(struct pci_dev *pdev)
{
	sim.start = pci_resource_start(pdev, SIM_BAR);
	sim.bytes = pci_resource_len(pdev, SIM_BAR);
	sim.nr_pages = (u32)(sim.bytes / SIMGPU_PAGE_BYTES);
	if (!is_power_of_2(sim.nr_pages) || sim.bytes < 2ULL * SIM_NR_PIECES * SIM_PIECE_BYTES)
		return -EINVAL;
	if (!sim.used) {
		sim.nr_free = sim.nr_pages / 2;
		sim.used = bitmap_zalloc(sim.nr_pages, GFP_KERNEL);
	}
	return sim.used ? 0 : -ENOMEM;
}

static int sim_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	int err;

	if (sim.pdev)
		return -EBUSY;
	err = pcim_enable_device(pdev);
	if (err)
		return err;
	/* Not claimed: tests look at the memory from outside as well, and the real one does not either. */
	err = sim_size(pdev);
	if (err)
		return err;
	err = sim_parts_map();
	if (err)
		return err;
	sim.pdev = pdev;
	err = sim_pages_device(false);
	if (err)
		goto err_unmap;
	/* Some kernels leave the number here that an earlier registration got. */
	device.minor = MISC_DYNAMIC_MINOR;
	err = misc_register(&device);
	if (err)
		goto err_pages;
	return 0;

err_pages:
	sim_pages_device(true);
err_unmap:
	sim_parts_unmap();
	sim.pdev = NULL;
	return err;
}

static void sim_remove(struct pci_dev *pdev)
{
	misc_deregister(&device);
	/* As the real one does, with the lock of the device held. */
	while (sim_kept())
		msleep(20);
	sim_pages_device(true);
	mutex_lock(&sim.lock);
	sim_parts_unmap();
	sim.pdev = NULL;
	mutex_unlock(&sim.lock);
}

static const struct pci_device_id ids[] = { { PCI_DEVICE(0x1af4, 0x1110) }, {} };
MODULE_DEVICE_TABLE(pci, ids);

static struct pci_driver sim_driver = {
	.name = "simgpu",
	.id_table = ids,
	.probe = sim_probe,
	.remove = sim_remove,
};

static int __init sim_init(void)
{
	return pci_register_driver(&sim_driver);
}

static void __exit sim_exit(void)
{
	pci_unregister_driver(&sim_driver);
	bitmap_free(sim.used);
}

module_init(sim_init);
module_exit(sim_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("A GPU for tests, in memory of QEMU");
