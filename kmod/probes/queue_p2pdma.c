// SPDX-License-Identifier: MIT
/* blk_queue_pci_p2pdma(): queues say whether they take peer-to-peer pages. */
#include <linux/blkdev.h>

bool pl_probe(struct block_device *bdev);
bool pl_probe(struct block_device *bdev)
{
	return blk_queue_pci_p2pdma(bdev_get_queue(bdev));
}
