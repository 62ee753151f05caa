/* SPDX-License-Identifier: MIT */
/*
 * The driver, as cuFile calls it: one context of the engine for the process, counted, made by the
 * first call that needs it and gone with the last close.
 */
#ifndef PL_CF_DRIVER_H
#define PL_CF_DRIVER_H

#include "config.h"
#include "cufile.h"

#include <peerlane/peerlane.h>

/*
 * Most calls begin with one of these two and end with pl_cf_leave(); meanwhile nobody closes the
 * driver. pl_cf_enter() fails when it is not open, pl_cf_enter_open() opens it.
 */
struct peerlane *pl_cf_enter(void);
struct peerlane *pl_cf_enter_open(CUfileError_t *why);
void pl_cf_leave(void);

/*
 * For calls that look at or change settings, whether or not the driver is open; also between
 * enter and leave. @load: read the
 * configuration if it is not there yet. NULL: it is not. Ends with pl_cf_config_release().
 */
struct pl_cf_config *pl_cf_config_hold(bool load);
void pl_cf_config_release(void);

/* Parameters a program has set for the next open. Only while the configuration is held. */
struct pl_cf_stage {
	bool set[PL_CF_NR];
	struct pl_cf_value values[PL_CF_NR];
	struct pl_cf_slabs posix, bounce; /* nr 0: not set */
};

struct pl_cf_stage *pl_cf_stage(void);

#endif
