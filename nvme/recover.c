// SPDX-License-Identifier: MIT
/* Resetting a controller, and giving it up. */
#include "ctrl.h"

#include <errno.h>

/* How often a controller is started that is stopped again each time. */
#define STOPPED_TRIES 8u

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

/* Reset it from outside. Memory that goes away until then goes unnoticed, so all of that kind is lost. */
static int reset_outside(struct peerlane_nvme *nvme)
{
	int rc;

	if (nvme->t->ops->stopped)
		pl_nvme_maps_lose(nvme);
	rc = nvme->t->ops->reset(nvme->t);
	return rc ? rc : pl_nvme_ctrl_disable(nvme);
}

static int start_again(struct peerlane_nvme *nvme)
{
	int rc = pl_nvme_ctrl_disable(nvme);

	if (rc != -ENODEV && nvme->t->ops->reset && (rc || pl_nvme_ctrl_stopped(nvme)))
		rc = reset_outside(nvme);
	pl_nvme_admin_lost(nvme);
	return rc ? rc : pl_nvme_ctrl_enable(nvme);
}

int pl_nvme_reset_locked(struct peerlane_nvme *nvme)
{
	unsigned int tries = 0;
	int rc;

	nvme->resetting = true;
	nvme->dead = 0;
	nvme->nr_resets++;
	next_generation(nvme);
	/* More memory may go away just then. */
	do {
		rc = start_again(nvme);
	} while (rc && rc != -ENODEV && pl_nvme_ctrl_stopped(nvme) && ++tries < STOPPED_TRIES);
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
