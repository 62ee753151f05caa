/* SPDX-License-Identifier: MIT */
/*
 * A tiny controller behind a transport of its own, for tests of the driver: it runs when the driver waits,
 * in the driver's thread, keeps its own time, and does what a test's hook tells it. Good commands only are
 * its business; the strict controller is another one.
 */
#ifndef TESTS_NVME_FAKE_H
#define TESTS_NVME_FAKE_H

#include <pthread.h>

#include <peerlane/nvme.h>

#include "ctrl.h"
#include "queue.h"
#include "transport.h"

#define FAKE_FRAMES 65536u /* 4 KiB each: the bus */
#define FAKE_BAR_BYTES 0x10000u
#define FAKE_QUEUES 64u
#define FAKE_CMB_BYTES 0x10000u

/* What a hook wants done with a command. */
enum fake_do {
	FAKE_DO,     /* as it is meant */
	FAKE_DROP,   /* never completed */
	FAKE_STATUS, /* completed with the status that the hook put into the completion */
	FAKE_SAY, /* done, then completed with all that the hook put there, the queue's phase apart */
};

struct fake_queue {
	bool exists;
	uint32_t depth;
	uint32_t head;	 /* SQ: next to fetch; CQ: where the driver reads */
	uint32_t tail;	 /* CQ: next to post */
	uint32_t phase;	 /* CQ */
	uint32_t cqid;	 /* SQ */
	uint64_t *pages; /* their bus addresses */
};

struct fake_event {
	uint16_t cid;
	bool waiting;
};

struct fake {
	struct pl_nvme_transport t;
	pthread_mutex_t lock;
	bool held; /* kept by the test: not freed by close */

	/* What it is; changed before it is opened. */
	uint64_t cap;
	struct pl_nvme_id_ctrl id;
	struct pl_nvme_id_ns ns[2]; /* ids 1 and 2 */
	uint32_t granted;	    /* result of the number of queues, as on the wire */
	size_t page_bytes;	    /* of mappings */
	bool scattered;		    /* no two pages of a mapping follow each other */
	uint64_t tick_ns;	    /* time that a turn takes */
	uint32_t cmbsz, cmbloc;

	/* How it behaves. */
	bool gone, never_ready, stays_ready, fatal, no_shutdown;
	bool all_ones; /* what its status reads as, though the transport has not noticed */
	bool stopped;  /* from outside; see fake_stop() */
	enum fake_do (*hook)(struct fake *f, unsigned int qid, const struct pl_nvme_sqe *sqe,
			     struct pl_nvme_cqe *cqe);
	void *hook_arg;

	/* What happened. */
	unsigned int nr_opens, nr_enables, nr_shutdowns, nr_io, nr_aborts, nr_flr, nr_bad;
	unsigned int nr_mmio; /* doorbell registers found changed */
	unsigned int nr_sgl, nr_maps, nr_deallocated;
	struct pl_nvme_sqe last_io;
	uint32_t features[256];

	/* State. */
	uint64_t now_ns;
	_Alignas(4096) char bar[FAKE_BAR_BYTES];
	char cmb[FAKE_CMB_BYTES];
	char *disk[2];
	char *frames[FAKE_FRAMES];
	uint32_t next_frame;
	bool ready;
	struct fake_queue sq[FAKE_QUEUES], cq[FAKE_QUEUES];
	struct fake_event events[8];
	uint64_t shadow, eventidx; /* bus addresses, 0 none */
	bool dma_fault; /* it could not reach a queue or a doorbell: fatal until a reset */
};

/* A fake with two namespaces of 64 Ki blocks, of 512 and of 4096 bytes. */
struct fake *fake_new(void);
void fake_free(struct fake *f);

/* Open it as the driver does; the transport is ops of the fake. */
int fake_open(struct fake *f, const struct peerlane_nvme_options *opt, struct peerlane_nvme **out);

/* One turn. */
void fake_turn(struct fake *f);

/* Stop it as the kernel module does: disabled, and cut off from memory until the transport's reset. */
void fake_stop(struct fake *f);

/* Post a completion on a queue, whatever it says; the phase is added. */
void fake_post(struct fake *f, unsigned int cqid, const struct pl_nvme_cqe *cqe);

/* Let an event happen; false if nobody asked for one. */
bool fake_event(struct fake *f, unsigned int type, unsigned int info, unsigned int log_page);

/* Where a bus address is, for @bytes that stay in its frame; NULL nowhere. */
char *fake_at(struct fake *f, uint64_t bus, size_t bytes);

/* Pieces of memory, as a command describes them: naively, byte by byte where that is simpler. */
struct fake_piece {
	char *ptr;
	size_t bytes;
};

/* -1: it is not described as the specification wants it. */
int fake_walk(struct fake *f, const struct pl_nvme_sqe *sqe, size_t bytes,
	      struct fake_piece **pieces, size_t *nr);

#endif
