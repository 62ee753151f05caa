// SPDX-License-Identifier: MIT
/*
 * Whether the machine keeps a controller to the memory that was mapped for it. Where it does not,
 * whoever drives the controller can reach more, and must be privileged.
 */
#include <linux/iommu.h>
#include <linux/sysfs.h>

#include "nvme.h"

/* What can be missing, as it is told in sysfs. */
enum {
	UNTRANSLATED = 1 << 0, /* every address is reached */
	LAZY = 1 << 1,	       /* what was unmapped is reached for a while */
	SHARED_GROUP = 1 << 2, /* devices may reach each other past the IOMMU */
	INTERRUPTS = 1 << 3,   /* a write can be any interrupt of the machine */
};
#define NR_REASONS 4

static const char *const reasons[NR_REASONS] = { "untranslated", "lazy", "shared-group",
						 "interrupts" };

static int count_one(struct device *dev, void *data)
{
	unsigned int *nr = data;

	(*nr)++;
	return 0;
}

static u32 group_reasons(struct device *dev, struct iommu_group *group)
{
	unsigned int nr = 0;
	u32 missing = 0;

	iommu_group_for_each_dev(group, &nr, count_one);
	if (nr != 1)
		missing |= SHARED_GROUP;
	if (!pl_interrupts_isolated(dev, group))
		missing |= INTERRUPTS;
	return missing;
}

/* 0: it reaches what was mapped for it, and nothing else. */
u32 nv_unconfined(struct nv_dev *dev)
{
	struct device *device = &dev->pdev->dev;
	struct iommu_domain *domain = iommu_get_domain_for_dev(device);
	struct iommu_group *group = iommu_group_get(device);
	u32 missing = 0;

	if (!domain || !(domain->type & __IOMMU_DOMAIN_PAGING))
		missing |= UNTRANSLATED;
	else if (domain->type & __IOMMU_DOMAIN_DMA_FQ)
		missing |= LAZY;
	if (group) {
		missing |= group_reasons(device, group);
		iommu_group_put(group);
	}
	return group ? missing : UNTRANSLATED;
}

static ssize_t peerlane_confined_show(struct device *device, struct device_attribute *attr,
				      char *text)
{
	u32 missing = nv_unconfined(dev_get_drvdata(device));
	int i, len = 0;

	for (i = 0; i < NR_REASONS; i++)
		if (missing & (1U << i))
			len += sysfs_emit_at(text, len, "%s%s", len ? " " : "", reasons[i]);
	return len + sysfs_emit_at(text, len, missing ? "\n" : "yes\n");
}
static DEVICE_ATTR_RO(peerlane_confined);

static struct attribute *confined_attrs[] = {
	&dev_attr_peerlane_confined.attr,
	NULL,
};

static const struct attribute_group confined_group = {
	.attrs = confined_attrs,
};

const struct attribute_group *nv_dev_groups[] = {
	&confined_group,
	NULL,
};
