// SPDX-License-Identifier: MIT
/* is_swiotlb_force_bounce(): bouncing is a property of the device. */
#include <linux/swiotlb.h>

bool pl_probe(struct device *dev);
bool pl_probe(struct device *dev)
{
	return is_swiotlb_force_bounce(dev);
}
