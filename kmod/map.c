// SPDX-License-Identifier: MIT
/*
 * Mappings of pinned GPU memory: ordinary pages in an ordinary shared mapping, so that direct I/O
 * takes references to them and hands them to the drive.
 */
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "core.h"

/* Pages put into a mapping at a time; a multiple of a frame's. */
#define BATCH 64
/* No mapping is being made for so long. */
#define SETTLE_TIME HZ

/*
 * A process that maps a pin. mmap() puts pages into a mapping before the kernel makes it known, so
 * whoever empties all mappings of a pin does not find one that is being made. It is known as soon as
 * the process does not hold its lock for writing any more.
 */
struct making {
	struct list_head node;
	struct mm_struct *mm;
};

static struct page *page_at(struct pl_pin *pin, u64 offset)
{
	u64 physical = pin->frames[offset >> PL_FRAME_SHIFT] + (offset & (PL_FRAME_BYTES - 1));

	return pfn_to_page((unsigned long)(physical >> PAGE_SHIFT));
}

/* Where an address of a mapping lies in the memory of its pin. */
static u64 offset_at(struct pl_pin *pin, struct vm_area_struct *vma, unsigned long address)
{
	u64 offset = ((u64)vma->vm_pgoff << PAGE_SHIFT) + (address - vma->vm_start);

	return offset - pl_pin_offset(pin);
}

static void map_open(struct vm_area_struct *vma)
{
	struct pl_pin *pin = vma->vm_private_data;

	pl_pin_get(pin);
	atomic_inc(&pin->nr_mappings);
	pl_count(PL_MAPPINGS, 1);
}

static void map_close(struct vm_area_struct *vma)
{
	struct pl_pin *pin = vma->vm_private_data;

	pl_count(PL_MAPPINGS, -1);
	atomic_dec(&pin->nr_mappings);
	pl_pin_put(pin);
}

/* A page is not there: taken out by madvise(), or for good because the pin ended. */
static vm_fault_t map_fault(struct vm_fault *vmf)
{
	struct vm_area_struct *vma = vmf->vma;
	struct pl_pin *pin = vma->vm_private_data;
	u64 offset = offset_at(pin, vma, vmf->address & PAGE_MASK);
	vm_fault_t ret = VM_FAULT_SIGBUS;

	/* Held until the page is in: whoever ends the pin empties the mapping afterwards. */
	down_read(&pin->sem);
	if (pin->live && !READ_ONCE(pin->revoked) && offset < pl_pin_bytes(pin))
		ret = vmf_insert_page(vma, vmf->address & PAGE_MASK, page_at(pin, offset));
	up_read(&pin->sem);
	pl_count(ret == VM_FAULT_SIGBUS ? PL_NR_SIGBUS : PL_NR_FAULT, 1);
	return ret;
}

/*
 * Never called for pages like ours. That it is there tells the kernel that writes to the mapping
 * are to be noticed, and such mappings take no long-term pins that write. Those have no end, and the
 * memory would be lost to the GPU. Nothing refuses those that only read.
 */
static vm_fault_t map_pfn_mkwrite(struct vm_fault *vmf)
{
	return VM_FAULT_SIGBUS;
}

static const struct vm_operations_struct map_ops = {
	.open = map_open,
	.close = map_close,
	.fault = map_fault,
	.pfn_mkwrite = map_pfn_mkwrite,
};

static int insert_all(struct pl_pin *pin, struct vm_area_struct *vma)
{
	unsigned long address = vma->vm_start, nr, left, i;
	u64 offset = offset_at(pin, vma, address);
	struct page *batch[BATCH];
	int err;

	while (address < vma->vm_end) {
		nr = min_t(unsigned long, BATCH, (vma->vm_end - address) >> PAGE_SHIFT);
		for (i = 0; i < nr; i++)
			batch[i] = page_at(pin, offset + ((u64)i << PAGE_SHIFT));
		left = nr;
		err = vm_insert_pages(vma, address, batch, &left);
		if (err)
			return err;
		if (fatal_signal_pending(current))
			return -EINTR;
		address += nr << PAGE_SHIFT;
		offset += (u64)nr << PAGE_SHIFT;
		cond_resched();
	}
	return 0;
}

static void making_free(struct making *making)
{
	list_del(&making->node);
	mmdrop(making->mm);
	kfree(making);
}

/* Forget processes whose mappings are known by now, but for the caller's; are there others? */
static bool making_prune(struct pl_pin *pin, const struct mm_struct *own)
{
	struct making *making, *next;

	list_for_each_entry_safe(making, next, &pin->making,
				 node) if (making->mm != own && mmap_read_trylock(making->mm))
	{
		mmap_read_unlock(making->mm);
		making_free(making);
	}
	return !list_empty(&pin->making);
}

/* The caller, who holds the lock of @mm for writing, maps a pin. */
static int making_add(struct pl_pin *pin, struct mm_struct *mm)
{
	struct making *making, *own = kmalloc(sizeof(*own), GFP_KERNEL_ACCOUNT);

	if (!own)
		return -ENOMEM;
	mmgrab(mm);
	own->mm = mm;
	mutex_lock(&pin->making_lock);
	making_prune(pin, mm);
	list_add(&own->node, &pin->making);
	/* An older one of the same process is known: its lock was free since. */
	list_for_each_entry(making, &pin->making, node) if (making != own && making->mm == mm)
	{
		making_free(making);
		break;
	}
	mutex_unlock(&pin->making_lock);
	return 0;
}

/* Serve mmap(): the offset says which handle and which part. */
int pl_map(struct pl_file *file, struct vm_area_struct *vma)
{
	u64 start = (u64)vma->vm_pgoff << PAGE_SHIFT;
	u64 bytes = vma->vm_end - vma->vm_start;
	struct pl_pin *pin;
	int err;

	if (!(vma->vm_flags & VM_SHARED) || (vma->vm_flags & VM_EXEC))
		return -EINVAL;
	if (vma->vm_pgoff >> (64 - PAGE_SHIFT) || start >> PL_WINDOW_SHIFT > PL_HANDLE_MAX)
		return -ENOENT;
	pin = pl_pin_find(file, (u32)(start >> PL_WINDOW_SHIFT));
	if (!pin)
		return -ENOENT;
	err = -EINVAL;
	start -= pl_pin_offset(pin);
	if (start >= pl_pin_bytes(pin) || bytes > pl_pin_bytes(pin) - start)
		goto err_put;

	pl_vm_flags_set(vma, VM_MIXEDMAP | VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP);
	pl_vm_flags_clear(vma, VM_MAYEXEC);
	if (pin->flags & PEERLANE_PIN_WRITE_COMBINE)
		vma->vm_page_prot = pgprot_writecombine(vma->vm_page_prot);
	else
		vma->vm_page_prot = pgprot_noncached(vma->vm_page_prot);
	/* A BAR is not memory that the processor encrypts. */
	vma->vm_page_prot = pgprot_decrypted(vma->vm_page_prot);
	vma->vm_ops = &map_ops;
	vma->vm_private_data = pin;

	down_read(&pin->sem);
	err = pin->live && !READ_ONCE(pin->revoked) ? making_add(pin, vma->vm_mm) : -ENODEV;
	if (!err)
		err = insert_all(pin, vma);
	up_read(&pin->sem);
	if (err)
		goto err_put;
	atomic_inc(&pin->nr_mappings);
	pl_count(PL_MAPPINGS, 1);
	pl_count(PL_NR_MMAP, 1);
	return 0;

err_put:
	pl_pin_put(pin);
	return err;
}

/* Take all pages out of all mappings of a pin that is not live any more. */
void pl_map_empty(struct pl_pin *pin)
{
	unmap_mapping_range(pin->inode->i_mapping, (loff_t)pl_pin_offset(pin),
			    (loff_t)pl_pin_bytes(pin), 1);
}

/*
 * Of a pin that is not live any more: take the pages out of mappings that were being made as well, and
 * tell whether that is all of them. One that still is being made soon will not be. The lock of its process
 * may be held for something else, by one that waits for the caller even: after a while it does not count.
 */
bool pl_map_settle(struct pl_pin *pin)
{
	bool all = true;

	mutex_lock(&pin->making_lock);
	if (!list_empty(&pin->making)) {
		all = !making_prune(pin, NULL) || time_after(jiffies, pin->stopped + SETTLE_TIME);
		pl_map_empty(pin);
	}
	mutex_unlock(&pin->making_lock);
	return all;
}

/* The last mapping has gone. */
void pl_map_forget(struct pl_pin *pin)
{
	struct making *making, *next;

	list_for_each_entry_safe(making, next, &pin->making, node) making_free(making);
}
