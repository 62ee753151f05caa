// SPDX-License-Identifier: MIT
/* vm_flags_set(): flags of a mapping are written by functions only. */
#include <linux/mm.h>

void pl_probe(struct vm_area_struct *vma);
void pl_probe(struct vm_area_struct *vma)
{
	vm_flags_set(vma, VM_MIXEDMAP);
	vm_flags_clear(vma, VM_MAYEXEC);
}
