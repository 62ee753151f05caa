/* SPDX-License-Identifier: MIT */
/*
 * The inside of a controller, shared by the files of this room.
 *
 * Locks: `lock` guards the admin queue, the state of the controller, and the lists of maps, queues and
 * namespaces. It is held over a whole admin command and a whole reset. The hot path takes none.
 *
 * Resets and I/O queues: whoever resets the controller counts `generation` up, while holding the lock. The
 * thread that owns a queue sees at its next submit or poll that the generation is not the queue's, and then,
 * when it gets the lock and so knows that the controller was stopped, takes the completions that are there,
 * reports the rest as lost, and creates the queue anew. So nothing but its owner ever touches a queue.
 */
#ifndef PL_NVME_CTRL_H
#define PL_NVME_CTRL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <peerlane/nvme.h>

#include "map.h"
#include "ring.h"
#include "transport.h"

#define PL_NVME_MAX_QUEUES 65535u
#define PL_NVME_EVENTS 32u	  /* kept until somebody fetches them */
#define PL_NVME_EVENT_REQUESTS 4u /* outstanding */
#define PL_NVME_ABORTS 4u	  /* outstanding */
#define PL_NVME_ADMIN_DEPTH 64u
#define PL_NVME_ADMIN_BYTES ((size_t)1 << 20) /* most data of an admin command */

/* What a command on the admin queue is for: pl_nvme_slot.kind. */
enum pl_nvme_admin_kind {
	PL_NVME_KIND_SYNC,  /* somebody waits for it */
	PL_NVME_KIND_EVENT, /* an asynchronous event request */
	PL_NVME_KIND_ABORT, /* nobody waits for it */
};

struct peerlane_nvme_ns {
	struct peerlane_nvme *nvme;
	struct peerlane_nvme_ns *next;
	uint32_t nsid;
	unsigned int block_shift;
	uint64_t nr_blocks;
	uint32_t best_boundary;
	bool read_only;
};

struct peerlane_nvme {
	struct pl_nvme_transport *t;
	volatile void *bar;
	uint32_t generation; /* atomic; never 0 */
	int dead;	     /* 0 or a negative errno */

	/* Fixed when open. */
	uint64_t cap;
	unsigned int page_shift; /* of controller pages */
	unsigned int dstrd;
	unsigned int flags;
	unsigned int nr_queues_asked;
	uint64_t timeout_ns;
	uint64_t admin_timeout_ns;
	bool identified;
	struct pl_nvme_id_ctrl id;
	uint64_t max_transfer_bytes; /* 0 no limit */

	pthread_mutex_t lock;
	struct pl_nvme_ring admin;
	struct peerlane_nvme_map *admin_rings; /* SQ, then CQ */
	struct peerlane_nvme_map *data;	       /* of admin commands, and their PRP list */
	unsigned int nr_aborts;		       /* outstanding */
	bool resetting;			       /* a command that fails now is not recovered from */
	bool sync_done;
	struct pl_nvme_cqe sync_cqe;

	unsigned int nr_queues; /* granted */
	uint64_t used_qids[(PL_NVME_MAX_QUEUES + 1) / 64];

	/* Shadow doorbells. */
	bool has_dbbuf;
	struct peerlane_nvme_map *dbbuf; /* shadow page, then event page */

	/* Memory of the controller: where it is for the CPU and for the controller itself. */
	struct pl_nvme_window cmb;
	uint8_t *cmb_used;   /* by pages */
	size_t nr_cmb_pages; /* 0: none that can be used */

	struct peerlane_nvme_map *maps;
	struct peerlane_nvme_queue *queues;
	struct peerlane_nvme_ns *namespaces;

	struct peerlane_nvme_event events[PL_NVME_EVENTS];
	unsigned int first_event;
	unsigned int nr_events;
	uint64_t nr_lost_events;
	uint64_t nr_resets;
	uint64_t nr_bad; /* of queues that are no more */
};

/* ctrl.c */

/* Bring a controller up on a transport, which becomes the controller's, also if this fails. */
int pl_nvme_ctrl_open(struct pl_nvme_transport *t, const struct peerlane_nvme_options *opt,
		      struct peerlane_nvme **out);
/* Was it stopped from outside, as the transport's stopped() says? */
bool pl_nvme_ctrl_stopped(struct peerlane_nvme *nvme);
/* Is it gone, was it stopped, or did it fail for good? 0, -ENODEV or -EIO. */
int pl_nvme_ctrl_check(struct peerlane_nvme *nvme);
uint64_t pl_nvme_now_ns(struct peerlane_nvme *nvme);
/* One turn of waiting; counts *turns. */
void pl_nvme_relax(struct peerlane_nvme *nvme, unsigned int *turns);

/* enable.c; all with the lock held */

/* Read what the registers say of the controller, once. */
int pl_nvme_ctrl_probe(struct peerlane_nvme *nvme);
int pl_nvme_ctrl_disable(struct peerlane_nvme *nvme);
/* Enable it and set up what does not outlive a reset: number of queues, shadow doorbells, events. */
int pl_nvme_ctrl_enable(struct peerlane_nvme *nvme);
void pl_nvme_ctrl_shutdown(struct peerlane_nvme *nvme);

/* admin.c */

/* Memory and ring of the admin queue. */
int pl_nvme_admin_init(struct peerlane_nvme *nvme);
void pl_nvme_admin_fini(struct peerlane_nvme *nvme);
/* Run a command, with the lock held; data already in place. cpl may be NULL. Recovers if it must. */
int pl_nvme_admin_locked(struct peerlane_nvme *nvme, const struct pl_nvme_sqe *command,
			 struct peerlane_nvme_completion *cpl);
/* As peerlane_nvme_admin(), with the lock held. */
int pl_nvme_admin_data(struct peerlane_nvme *nvme, const struct pl_nvme_sqe *command, void *data,
		       size_t bytes, struct peerlane_nvme_completion *cpl);
/* Send a command that nobody waits for; -EAGAIN no room. With the lock held. */
int pl_nvme_admin_send(struct peerlane_nvme *nvme, const struct pl_nvme_sqe *command,
		       enum pl_nvme_admin_kind kind);
/* Take completions of the admin queue, with the lock held. */
void pl_nvme_admin_poll(struct peerlane_nvme *nvme);
/* All commands of the admin queue are lost: the controller was stopped. */
void pl_nvme_admin_lost(struct peerlane_nvme *nvme);

/* identify.c */
int pl_nvme_identify_ctrl(struct peerlane_nvme *nvme);

/* feature.c */
int pl_nvme_set_nr_queues(struct peerlane_nvme *nvme);

/* status.c */
void pl_nvme_complete(struct peerlane_nvme_completion *cpl, uint64_t user,
		      const struct pl_nvme_cqe *cqe);
/* Ended by the driver, not by the controller. */
void pl_nvme_complete_lost(struct peerlane_nvme_completion *cpl, uint64_t user, int err);

/* aer.c */
void pl_nvme_events_start(struct peerlane_nvme *nvme);
/* A request for events has completed. */
void pl_nvme_event_arrived(struct peerlane_nvme *nvme, const struct pl_nvme_cqe *cqe);

/* dbbuf.c */
int pl_nvme_dbbuf_start(struct peerlane_nvme *nvme);
/* Doorbells of a queue, with their shadows where there are some. */
void pl_nvme_doorbells(struct peerlane_nvme *nvme, struct pl_nvme_ring *r);

/* cmb.c */
void pl_nvme_cmb_find(struct peerlane_nvme *nvme);
void pl_nvme_cmb_start(struct peerlane_nvme *nvme);
/* Contiguous pages of it, with the lock held; -EOPNOTSUPP, -ENOSPC. */
int pl_nvme_cmb_take(struct peerlane_nvme *nvme, size_t bytes, size_t *offset);
void pl_nvme_cmb_give(struct peerlane_nvme *nvme, size_t offset, size_t bytes);

/* recover.c */

/* Reset, with the lock held. Sets dead or clears it. */
int pl_nvme_reset_locked(struct peerlane_nvme *nvme);
/* Give the controller up, with the lock held: everything outstanding is reported by its queue. */
void pl_nvme_give_up(struct peerlane_nvme *nvme, int err);
/* Reset if nobody has since @generation. */
void pl_nvme_recover(struct peerlane_nvme *nvme, uint32_t generation);

#endif
