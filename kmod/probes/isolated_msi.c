// SPDX-License-Identifier: MIT
/* iommu_group_has_isolated_msi(): the interrupts of a device cannot be those of others. */
#include <linux/iommu.h>

bool pl_probe(struct iommu_group *group);
bool pl_probe(struct iommu_group *group)
{
	return iommu_group_has_isolated_msi(group);
}
