/* SPDX-License-Identifier: MIT */
/*
 * Copies of several threads that go to the GPU together. Between one copy of 1 MiB and the next a copy engine pauses
 * for as long as it needs for 200 KiB more; between those of one list it hardly does. So who comes with a copy while
 * others are under way waits until those are nearly done, and all who wait then go as one list.
 */
#ifndef PL_CONVOY_H
#define PL_CONVOY_H

#include "gpu.h"

#include <pthread.h>

struct peerlane;
struct pl_convoy;

/* The convoys of a context: one for each GPU context there is. */
struct pl_convoys {
	pthread_mutex_t lock; /* guards the list */
	struct pl_convoy *list;
};

enum pl_ride_state {
	PL_RIDE_WAITS,
	PL_RIDE_GOES, /* it may be under way */
	PL_RIDE_OVER, /* @err tells */
};

/* One copy; the caller's, and at the same place until it is over. */
struct pl_ride {
	struct pl_ride *next;
	struct pl_copy copy;
	uint8_t state; /* enum pl_ride_state; atomic */
	int err;
	uint32_t number; /* of the list it goes with */
};

void pl_convoys_init(struct pl_convoys *convoys);
/* After the lanes have gone. With @forked nothing is called of the driver. */
void pl_convoys_fini(struct peerlane *ctx, bool forked);

/* The convoy to @owner, made when first asked for; NULL: there is none, the copy goes alone. */
struct pl_convoy *pl_convoy_get(struct peerlane *ctx, void *owner);

/* Has @ride->copy made. */
void pl_convoy_join(struct pl_convoy *c, struct pl_ride *ride);
/* Whether it is over; sees to the others, too, so it is to be called often. An error may be another's:
 * such a copy can be made again some other way. */
bool pl_convoy_over(struct pl_convoy *c, struct pl_ride *ride);
/* Nobody waits for @ride any more. True: it may be under way still, until pl_convoy_passed() its number. */
bool pl_convoy_leave(struct pl_convoy *c, struct pl_ride *ride);
/* Whether list @number is over. */
bool pl_convoy_passed(struct pl_convoy *c, uint32_t number);

#endif
