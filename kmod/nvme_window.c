// SPDX-License-Identifier: MIT
/*
 * What programs map of a controller: its BARs, and memory that was allocated for it.
 */
#include <linux/mm.h>

#include "nvme.h"

/* Which page of the BARs an address is: the BAR, and the offset in it. */
static u64 place_of(struct vm_area_struct *vma, unsigned long address, unsigned int *bar)
{
	u64 at = ((u64)vma->vm_pgoff << PAGE_SHIFT) + (address - vma->vm_start);

	*bar = (unsigned int)(at >> NV_BAR_SHIFT);
	return at & ((1ULL << NV_BAR_SHIFT) - 1);
}

/* How much of a BAR a file may map. */
static u64 bar_bytes(const struct nv_file *file, unsigned int bar)
{
	if (bar >= NV_NR_BARS)
		return 0;
	if (!file->bar0_bytes)
		return file->dev->bytes[bar];
	return bar ? 0 : file->bar0_bytes;
}

/*
 * Put a page of a BAR into the mapping; once the device is gone, or a client was revoked, a page of
 * the program's own, which is what programs are ready for that know of surprise removal. The lock
 * keeps registers away while the controller is being stopped.
 */
static vm_fault_t window_fault(struct vm_fault *vmf)
{
	struct vm_area_struct *vma = vmf->vma;
	struct nv_file *file = vma->vm_private_data;
	struct nv_dev *dev = file->dev;
	unsigned int bar;
	u64 at = place_of(vma, vmf->address & PAGE_MASK, &bar);
	vm_fault_t ret = VM_FAULT_SIGBUS;
	unsigned long pfn;

	mutex_lock(&dev->lock);
	if (at < bar_bytes(file, bar)) {
		pfn = PHYS_PFN(dev->start[bar] + at);
		if (dev->gone || file->revoked)
			pfn = page_to_pfn(file->dead[bar || at]);
		ret = vmf_insert_pfn(vma, vmf->address & PAGE_MASK, pfn);
	}
	mutex_unlock(&dev->lock);
	return ret;
}

static const struct vm_operations_struct window_ops = {
	.fault = window_fault,
};

static int map_bar(struct nv_file *file, struct vm_area_struct *vma)
{
	u64 bytes = vma->vm_end - vma->vm_start;
	unsigned int bar;
	u64 at = place_of(vma, vma->vm_start, &bar), most = bar_bytes(file, bar);

	if (at >= most || bytes > most - at)
		return -EINVAL;
	/* A client has doorbells, but registers only to look at. */
	if (file->bar0_bytes && at < NV_REGS_BYTES) {
		if (vma->vm_flags & VM_WRITE)
			return -EACCES;
		pl_vm_flags_clear(vma, VM_MAYWRITE);
	}
	pl_vm_flags_set(vma, VM_IO | VM_PFNMAP | VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP);
	vma->vm_page_prot = pgprot_decrypted(pgprot_noncached(vma->vm_page_prot));
	vma->vm_ops = &window_ops;
	vma->vm_private_data = file;
	return 0;
}

/* The pages get references of the mapping's own: it may outlive what was allocated. */
static int map_alloc(struct nv_file *file, struct vm_area_struct *vma)
{
	u64 start = (u64)vma->vm_pgoff << PAGE_SHIFT;
	u64 first = (start & ((1ULL << NV_WINDOW_SHIFT) - 1)) >> PAGE_SHIFT;
	unsigned long nr = vma_pages(vma);
	struct nv_mapping *mapping;
	int err = -EINVAL;

	pl_vm_flags_set(vma, VM_MIXEDMAP | VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP);
	mutex_lock(&file->dev->lock);
	mapping = xa_load(&file->mappings, (unsigned long)(start >> NV_WINDOW_SHIFT));
	if (!mapping || mapping->kind != PEERLANE_NVMEDEV_ALLOC)
		err = -ENOENT;
	else if (first < mapping->nr_pages && nr <= mapping->nr_pages - first)
		err = vm_insert_pages(vma, vma->vm_start, mapping->pages + first, &nr);
	mutex_unlock(&file->dev->lock);
	return err;
}

/* Serve mmap(): the offset says what. */
int nv_window_map(struct nv_file *file, struct vm_area_struct *vma)
{
	if (!(vma->vm_flags & VM_SHARED) || (vma->vm_flags & VM_EXEC))
		return -EINVAL;
	pl_vm_flags_clear(vma, VM_MAYEXEC);
	if (vma->vm_pgoff >> (NV_WINDOW_SHIFT - PAGE_SHIFT))
		return map_alloc(file, vma);
	return map_bar(file, vma);
}

/* Take the BARs out of all mappings; the next access faults. */
void nv_window_empty(struct nv_file *file)
{
	unmap_mapping_range(file->space, 0, 1LL << NV_WINDOW_SHIFT, 1);
}
