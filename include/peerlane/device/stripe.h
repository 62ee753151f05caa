/* SPDX-License-Identifier: MIT */
/*
 * Where the pages of an array are stored: in turn on one or several targets, each a range of blocks of
 * a namespace. Page p is page p / n of target p % n. The last page may be a part of one.
 */
#ifndef PEERLANE_DEVICE_STRIPE_H
#define PEERLANE_DEVICE_STRIPE_H

#include <peerlane/device/io.h>

#define PLD_MAX_TARGETS 16u

/* How frames and a controller come together: its queues, and where it finds the frames. */
struct pld_path {
	struct pld_queue *queues;  /* all with as many ports and slots */
	const struct pld_dma *dma; /* of the frames, for this controller; see struct pld_io */
	uint32_t nr_queues;
	uint32_t queue_step;	  /* every so many of @queues are the controller's; 0 is as 1 */
	uint32_t slots_per_queue; /* of all ports together */
	uint32_t first_port;	  /* of each queue, from which on ports are the array's */
	uint32_t first_slot;	  /* filled in by peerlane_array_init() */
	uint32_t reserved;
};

/* Some blocks of a namespace or file. */
struct pld_target {
	uint64_t first_block;
	uint32_t nsid;
	uint32_t log_block; /* block size, 2^this: 9 to 16 */
	uint32_t path;	    /* which one reaches it */
	uint32_t reserved;
};

struct pld_stripe {
	uint64_t bytes;	   /* of all; where they end in a block, the target has all of that block */
	uint32_t log_page; /* page size, 2^this: 9 to 16, and not less than any block's */
	uint32_t nr_targets;
	uint32_t nr_paths;
	uint32_t reserved;
	struct pld_target target[PLD_MAX_TARGETS];
	struct pld_path path[PLD_MAX_TARGETS];
};

PLD_FN uint32_t pld_target_of_(const struct pld_stripe *s, uint64_t page)
{
	return s->nr_targets == 1 ? 0 : (uint32_t)(page % s->nr_targets);
}

PLD_FN uint32_t pld_path_of_(const struct pld_stripe *s, uint64_t page)
{
	return s->nr_paths == 1 ? 0 : s->target[pld_target_of_(s, page)].path;
}

/* Say what a command for a page needs: blocks and bytes. */
PLD_FN void pld_stripe_place_(const struct pld_stripe *s, uint64_t page, struct pld_io *io)
{
	const struct pld_target *t = &s->target[pld_target_of_(s, page)];
	const uint64_t left = s->bytes - (page << s->log_page);
	const uint32_t page_bytes = 1u << s->log_page;
	const uint32_t used = left < page_bytes ? (uint32_t)left : page_bytes;

	io->nsid = t->nsid;
	io->lba = t->first_block + (page / s->nr_targets << (s->log_page - t->log_block));
	io->nr_blocks = (used + (1u << t->log_block) - 1) >> t->log_block;
	io->bytes = io->nr_blocks << t->log_block;
}

#endif
