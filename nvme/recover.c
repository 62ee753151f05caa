// SPDX-License-Identifier: MIT
/* Resetting a controller, and giving it up. */
#include "ctrl.h"

#include <errno.h>

/* From now on no queue is used as it was; pairs with the load in each submit and poll. */
static void next_generation(struct peerlane_nvme *nvme)
{
	uint32_t next = nvme->generation + 1;

	__atomic_store_n(&nvme->generation, next ? next : 1, __ATOMIC_RELEASE);
}

void pl_nvme_give_up(struct peerlane_nvme *nvme, int err)
{
	nvme->dead = err;
	pl_nvme_admin_lost(nvme);
	next_generation(nvme);
}

static int reset(struct peerlane_nvme *nvme)
{
	int rc = pl_nvme_ctrl_disable(nvme);

	if (rc && rc != -ENODEV && nvme->t->ops->reset) {
		rc = nvme->t->ops->reset(nvme->t);
		if (!rc)
			rc = pl_nvme_ctrl_disable(nvme);
	}
	pl_nvme_admin_lost(nvme);
	return rc ? rc : pl_nvme_ctrl_enable(nvme);
}

int pl_nvme_reset_locked(struct peerlane_nvme *nvme)
{
	const struct pl_nvme_remote_ops *remote = nvme->t->ops->remote;
	int rc;

	nvme->resetting = true;
	nvme->dead = 0;
	nvme->nr_resets++;
	next_generation(nvme);
	/* Of a controller that is not ours alone, our queues end, and not those of others. */
	rc = remote ? remote->restart(nvme->t, nvme->admin_timeout_ns) : reset(nvme);
	nvme->resetting = false;
	if (rc)
		pl_nvme_give_up(nvme, rc);
	return rc;
}

void pl_nvme_recover(struct peerlane_nvme *nvme, uint32_t generation)
{
	pthread_mutex_lock(&nvme->lock);
	if (nvme->generation == generation && !nvme->dead) {
		if (pl_nvme_ctrl_check(nvme) == -ENODEV)
			pl_nvme_give_up(nvme, -ENODEV);
		else
			pl_nvme_reset_locked(nvme);
	}
	pthread_mutex_unlock(&nvme->lock);
}

int peerlane_nvme_reset(struct peerlane_nvme *nvme)
{
	int rc;

	if (!nvme)
		return -EINVAL;
	pthread_mutex_lock(&nvme->lock);
	rc = pl_nvme_reset_locked(nvme);
	pthread_mutex_unlock(&nvme->lock);
	return rc;
}
