/* SPDX-License-Identifier: MIT */
/*
 * The controller inside. One lock guards all of it; a turn of the controller holds the lock from
 * beginning to end, so nothing below locks again.
 */
#ifndef SIM_CTRL_H
#define SIM_CTRL_H

#include <pthread.h>
#include <stdatomic.h>

#include <peerlane/nvme_spec.h>

#include "config.h"
#include "dma.h"
#include "fault.h"
#include "ns.h"
#include "simnvme.h"

/*
 * A doorbell register that was not written holds this. The controller puts it back when it takes a
 * value out, so it sees each write, even of the value that was there. No queue is this long.
 */
#define PL_SN_DOORBELL_IDLE 0x5a17feedu

/* Commands of one queue that are taken at a time. */
#define PL_SN_BATCH 64u
#define PL_SN_NR_ERRORS 16u
#define PL_SN_NR_EVENTS 8u

/* Memory of a queue. What was looked up last is kept until the table of mappings changes. */
struct pl_sn_ring {
	uint64_t base;	 /* contiguous ones */
	uint64_t *pages; /* others: bus addresses of pages, page_bytes each */
	uint32_t entries;
	uint32_t shift; /* size of an entry as a power of two */
	uint32_t page_bytes;
	uint64_t seen_at, seen_bytes; /* offset and size of what was looked up */
	uint64_t seen_turns;
	uint8_t *seen;
};

/* A doorbell and, with DBBUF, its shadow and event index. */
struct pl_sn_doorbell {
	_Atomic uint32_t *reg;
	uint64_t shadow, event; /* bus addresses, 0 none */
	uint32_t shadow_seen;
	bool by_shadow; /* the host uses it */
};

struct pl_sn_cq {
	uint32_t qid;
	struct pl_sn_ring ring;
	struct pl_sn_doorbell db;
	uint32_t head, tail;
	uint16_t phase;
	uint32_t nr_sqs;
	bool stalled;
	struct pl_sn_waiting *first, **last; /* completions without room */
	uint32_t nr_waiting;
};

struct pl_sn_sq {
	uint32_t qid;
	struct pl_sn_cq *cq;
	struct pl_sn_ring ring;
	struct pl_sn_doorbell db;
	uint32_t head, tail;
	uint64_t active[65536 / 64]; /* command ids that are outstanding */
};

/* A completion that waits for room in its queue. */
struct pl_sn_waiting {
	struct pl_sn_waiting *next;
	struct pl_nvme_cqe cqe;
	struct pl_sn_sq *sq; /* NULL once deleted: then cqe.sqhd holds */
	uint16_t xor_phase;
};

enum pl_sn_held_as { PL_SN_HELD, PL_SN_DELAYED, PL_SN_GATHERED, PL_SN_EVENT_REQUEST };

/* A command that was fetched and is not carried out yet. */
struct pl_sn_held {
	struct pl_sn_held *next;
	struct pl_nvme_sqe sqe;
	struct pl_sn_sq *sq;
	enum pl_sn_held_as as;
	uint64_t until;	 /* turn */
	uint64_t window; /* gathered: how many */
};

/* Memory of the host, as a command names it. */
struct pl_sn_seg {
	uint8_t *memory; /* NULL: bit bucket */
	uint64_t bytes;
};

struct pl_sn_features {
	uint32_t arbitration, power, over_temperature, under_temperature, write_cache, nr_queues;
	uint32_t coalescing, atomicity, events;
	uint32_t nr_sqs, nr_cqs;	  /* granted */
	uint8_t alone[PL_SN_MAX_VECTORS]; /* interrupt vectors that are not coalesced */
};

struct pl_simnvme {
	pthread_mutex_t lock;
	atomic_uint waiters; /* threads that want the lock: the controller lets them in */
	struct pl_sn_config config;
	struct pl_sn_dma dma;
	struct pl_sn_faults faults;
	struct pl_sn_ns ns[PL_SN_MAX_NS];

	/* registers */
	int bar_fd;
	uint8_t *bar;
	size_t bar_bytes;
	size_t cmb_at; /* offset of the CMB in the BAR */
	uint64_t cap;
	uint32_t cc, csts;
	uint32_t aqa;
	uint64_t asq, acq, cmbmsc;
	bool removed, cmb_mapped, cc_marked;
	uint64_t turn, ready_at; /* ready_at 0: no change is under way */
	uint32_t page_bytes;

	/* queues: index is the id */
	struct pl_sn_sq **sqs;
	struct pl_sn_cq **cqs;
	uint32_t *order; /* ids of submission queues, for going round */
	uint32_t nr_order, next_order;
	uint32_t nr_io_queues;
	struct pl_sn_held *held;
	uint32_t nr_held, nr_event_requests, nr_gathered;
	uint64_t gathered_at;

	/* DBBUF */
	uint64_t shadow, event;

	struct pl_sn_features features;
	struct pl_nvme_error_entry errors[PL_SN_NR_ERRORS];
	uint64_t nr_errors;
	uint32_t pending_events[PL_SN_NR_EVENTS];
	uint32_t nr_pending_events;
	uint32_t masked_events; /* bit by type: reported, and its log page not read yet */
	uint64_t reads, writes; /* commands, for the SMART page */
	bool shut_down;

	struct pl_sn_seg *segs;
	size_t nr_segs, room_segs;
	const struct pl_sn_rule *rule; /* of the command being carried out, or NULL */

	struct pl_simnvme_counters counters;
	pthread_t thread;
	bool running;
	atomic_bool stop;
};

/* The namespace of an id that is active, or NULL. */
static inline struct pl_sn_ns *pl_sn_ns_of(struct pl_simnvme *c, uint32_t nsid)
{
	return nsid && nsid <= c->config.nr_ns ? &c->ns[nsid - 1] : NULL;
}

/* Take the lock ahead of the controller's own thread. */
void pl_sn_lock(struct pl_simnvme *c);
void pl_sn_unlock(struct pl_simnvme *c);

#endif
