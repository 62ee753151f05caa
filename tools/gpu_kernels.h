/* SPDX-License-Identifier: MIT */
/*
 * The kernels of peerlane bench gpu. The same functions run on a GPU, through the entry points of
 * gpu_kernels.cu, and as threads of the CPU. Each group of lanes is a warp, and has a number.
 */
#ifndef PL_GPU_KERNELS_H
#define PL_GPU_KERNELS_H

#include <peerlane/device/io.h>

/* What every kernel counts, for all warps together. In memory of kernels. */
struct plk_counts {
	uint64_t done;			  /* I/O that succeeded */
	uint64_t failed;		  /* the status said so */
	uint64_t late;			  /* given up */
	uint64_t wrong;			  /* blocks that hold something else */
	uint64_t a_wrong_block, a_status; /* one of those */
	uint64_t sum, found;		  /* what was computed */
};

/* Numbers that look like chance, from a number: for addresses, and for what blocks hold. */
PLD_FN uint64_t plk_mix(uint64_t v)
{
	v = (v ^ v >> 30) * 0xbf58476d1ce4e5b9u;
	v = (v ^ v >> 27) * 0x94d049bb133111ebu;
	return v ^ v >> 31;
}

/* What the eight bytes at a place, counted in such, hold. */
PLD_FN uint64_t plk_word(uint64_t at)
{
	return plk_mix(at + 0x9e3779b97f4a7c15u);
}

/* ------------------------------------------------------------------ queues without data */

struct plk_ring {
	struct pld_queue *queues;
	struct plk_counts *counts;
	uint64_t per_lane; /* commands */
	uint64_t timeout_ns;
	uint32_t nr_warps, nr_queues;
	uint32_t lanes; /* of a warp */
};

/* One turn: what is outstanding ends, and the next is sent. */
PLD_FN void plk_ring_turn_(const struct plk_ring *k, struct pld_port *port, int *token,
			   uint64_t *left, struct plk_counts *n)
{
	const struct pld_request rq = { PL_NVME_READ, 1, *left, 1, 0, 0 };
	struct pld_completion cpl = { 0, 0, 0 };

	pld_wait(port, *token, k->timeout_ns, &cpl);
	if (*token >= 0) {
		n->done += !cpl.err;
		n->failed += cpl.err == -EIO;
		if (cpl.err && cpl.err != -EIO) {
			n->late++;
			*left = 0;
		}
	}
	pld_free(port, *token);
	*token = pld_submit(port, *left > 0, &rq);
	*left -= *token >= 0;
}

PLD_FN void plk_count_(const struct plk_ring *k, const struct plk_counts *n)
{
	pld_count_dev64(&k->counts->done, n->done);
	if (n->failed)
		pld_count_dev64(&k->counts->failed, n->failed);
	if (n->late)
		pld_count_dev64(&k->counts->late, n->late);
}

/* Each lane keeps two commands outstanding, if its warp has the slots. */
PLD_FN void plk_ring(const struct plk_ring *k, uint32_t warp)
{
	struct plk_counts n = { 0, 0, 0, 0, 0, 0, 0, 0 };
	uint64_t left = k->per_lane;
	int a = -1, b = -1;
	struct pld_port port;

	if (warp >= k->nr_warps)
		return;
	pld_port_open(&port, &k->queues[warp % k->nr_queues], warp / k->nr_queues, k->lanes);
	while (pld_ballot(k->lanes, left > 0 || a >= 0 || b >= 0)) {
		plk_ring_turn_(k, &port, &a, &left, &n);
		plk_ring_turn_(k, &port, &b, &left, &n);
	}
	plk_count_(k, &n);
}

/* ------------------------------------------------------------------ the least a ring can be */

/* A request is 64 bytes and a completion 16, in host memory; a warp has a ring for itself. */
struct plk_bare_ring {
	struct pld_vec *requests;    /* 4 for each entry */
	struct pld_vec *completions; /* the last word counts how often the entry was completed */
	uint32_t *tails;	     /* entries written, one every 64 bytes */
};

struct plk_bare {
	struct plk_bare_ring ring; /* of warp 0; those of the others follow */
	struct plk_counts *counts;
	uint64_t per_lane;
	uint64_t timeout_ns;
	uint32_t nr_warps;
	uint32_t depth; /* a multiple of the lanes of a warp */
	uint32_t lanes;
};

#define PLK_TAIL_STEP 16u /* words */

/* The entry is written again only after this was seen: the GPU needs no fence for that, and a limit has none
 * that it does not need. */
PLD_FN uint32_t plk_bare_look_(const struct pld_vec *cpl)
{
#ifdef __CUDACC__
	return pld_load_relaxed_sys32(&cpl->w[3]);
#else
	return pld_load_acquire_sys32(&cpl->w[3]);
#endif
}

PLD_FN int plk_bare_wait_(const struct plk_bare *k, const struct pld_vec *cpl, uint32_t round)
{
	const uint64_t start = pld_clock_ns();
	uint32_t turns = 0;

	while (plk_bare_look_(cpl) != round)
		if (!(++turns & 0xff)) {
			if (pld_clock_ns() - start > k->timeout_ns)
				return 0;
			pld_nap(32);
		}
	return 1;
}

/* A ring full of requests is outstanding; each lane waits for the entry it is about to use again. */
PLD_FN void plk_bare(const struct plk_bare *k, uint32_t warp)
{
	const uint32_t width = pld_count32(k->lanes), rank = pld_rank(k->lanes);
	const uint64_t base = (uint64_t)warp * k->depth, all = k->per_lane * width;
	struct pld_vec rq = { { 0, 0, 0, 0 } };
	uint64_t at = 0, done = 0;
	int good = 1;

	if (warp >= k->nr_warps)
		return;
	/* The last turn round only waits. */
	for (; pld_ballot(k->lanes, good) == k->lanes && at < all + k->depth; at += width) {
		const uint32_t entry = (uint32_t)(at + rank) & (k->depth - 1);
		const uint32_t round = (uint32_t)((at + rank) / k->depth);

		if (round && at - k->depth < all) {
			good = plk_bare_wait_(k, &k->ring.completions[base + entry], round);
			done += (uint32_t)good;
		}
		if (at >= all)
			continue;
		for (uint32_t i = 0; i < 4; i++) {
			rq.w[0] = entry;
			pld_store16(&k->ring.requests[(base + entry) * 4 + i], rq);
		}
		pld_sync(k->lanes);
		if (pld_leads(k->lanes))
			pld_ring(&k->ring.tails[warp * PLK_TAIL_STEP], (uint32_t)(at + width));
	}
	pld_count_dev64(&k->counts->done, done);
	if (!good)
		pld_count_dev64(&k->counts->late, 1);
}

/* ------------------------------------------------------------------ reads */

enum plk_order {
	PLK_RANDOM, /* anywhere */
	PLK_SWEEP,  /* each block once, and what it holds is checked */
	PLK_CHASE,  /* one lane; what a block holds says which is next */
};

struct plk_read {
	struct pld_queue *queues;
	struct plk_counts *counts;
	char *memory;	    /* of the GPU: two pieces for each lane */
	const char *direct; /* the host memory of all blocks, or NULL: read through the queues */
	const struct pld_dma *dma; /* of the memory; NULL where data go by way of the host */
	uint64_t nr_ios;	   /* of a size, that the space has */
	uint64_t per_lane;	   /* I/O */
	uint64_t seed;
	uint64_t timeout_ns;
	uint32_t nr_warps, nr_queues;
	uint32_t lanes;
	uint32_t bytes; /* of one I/O */
	uint32_t block_bytes;
	uint32_t nsid;
	uint32_t order; /* enum plk_order */
};

/* A lane's I/O. */
struct plk_job {
	uint64_t me, all; /* which lane, of how many */
	uint64_t next;	  /* to begin, of per_lane */
	uint64_t place;	  /* of a chase */
	struct plk_counts n;
};

PLD_FN uint64_t plk_below_(uint64_t chance, uint64_t nr)
{
	return nr >> 32 ? chance % nr : (chance >> 32) * nr >> 32;
}

/* Which I/O is next. */
PLD_FN uint64_t plk_next_(const struct plk_read *k, const struct plk_job *j)
{
	if (k->order == PLK_SWEEP)
		return j->next * j->all + j->me;
	if (k->order == PLK_CHASE)
		return j->place;
	return plk_below_(plk_mix(k->seed + j->next * j->all + j->me), k->nr_ios);
}

PLD_FN int plk_more_(const struct plk_read *k, const struct plk_job *j)
{
	return j->next < k->per_lane && (k->order != PLK_CHASE || !j->me) &&
	       (k->order != PLK_SWEEP || j->next * j->all + j->me < k->nr_ios);
}

/* What I/O @place brought. */
PLD_FN void plk_look_(const struct plk_read *k, struct plk_job *j, const char *memory,
		      uint64_t place)
{
	const uint64_t *words = (const uint64_t *)memory;
	const uint64_t from = place * (k->bytes / 8);
	uint32_t bad = 0;

	if (k->order == PLK_CHASE) {
		j->place = plk_below_(words[0], k->nr_ios);
		j->n.wrong += words[0] != plk_word(from);
	}
	if (k->order != PLK_SWEEP)
		return;
	for (uint32_t i = 0; i < k->bytes / 8; i++)
		bad |= words[i] != plk_word(from + i);
	j->n.wrong += bad;
	if (bad)
		j->n.a_wrong_block = place * (k->bytes / k->block_bytes);
}

PLD_FN void plk_read_turn_(const struct plk_read *k, struct pld_port *port, struct pld_io *io,
			   struct plk_job *j)
{
	struct pld_completion cpl;
	const int mine = io->token >= 0;

	pld_io_wait(port, io, k->timeout_ns, &cpl);
	/* The data were copied by all lanes. */
	pld_sync(k->lanes);
	if (mine && !cpl.err) {
		j->n.done++;
		plk_look_(k, j, io->memory, io->lba / io->nr_blocks);
	} else if (mine && cpl.err == -EIO) {
		j->n.failed++;
		j->n.a_status = cpl.status;
	} else if (mine) {
		j->n.late++;
		j->next = k->per_lane;
	}
	pld_sync(k->lanes);
	io->lba = plk_next_(k, j) * io->nr_blocks;
	if (!pld_io_start(port, plk_more_(k, j), io))
		j->next++;
}

PLD_FN void plk_tell_(const struct plk_read *k, const struct plk_job *j)
{
	pld_count_dev64(&k->counts->done, j->n.done);
	if (j->n.failed) {
		pld_count_dev64(&k->counts->failed, j->n.failed);
		pld_store_relaxed_dev64(&k->counts->a_status, j->n.a_status);
	}
	if (j->n.late)
		pld_count_dev64(&k->counts->late, j->n.late);
	if (j->n.wrong) {
		pld_count_dev64(&k->counts->wrong, j->n.wrong);
		pld_store_relaxed_dev64(&k->counts->a_wrong_block, j->n.a_wrong_block);
	}
}

PLD_FN void plk_job_init_(const struct plk_read *k, struct plk_job *j, uint32_t warp)
{
	const struct plk_counts none = { 0, 0, 0, 0, 0, 0, 0, 0 };

	j->all = (uint64_t)k->nr_warps * pld_count32(k->lanes);
	j->me = (uint64_t)warp * pld_count32(k->lanes) + pld_rank(k->lanes);
	j->next = 0;
	j->place = 0;
	j->n = none;
}

/* Each lane keeps two reads outstanding, if its warp has the slots; in a chase one. */
PLD_FN void plk_read(const struct plk_read *k, uint32_t warp)
{
	struct pld_io a, b;
	struct pld_port port;
	struct plk_job j;

	if (warp >= k->nr_warps)
		return;
	plk_job_init_(k, &j, warp);
	pld_port_open(&port, &k->queues[warp % k->nr_queues], warp / k->nr_queues, k->lanes);
	a.opcode = PL_NVME_READ;
	a.nsid = k->nsid;
	a.lba = 0;
	a.nr_blocks = k->bytes / k->block_bytes;
	a.bytes = k->bytes;
	a.memory = k->memory + 2 * j.me * k->bytes;
	a.dma = k->dma;
	a.token = -1;
	b = a;
	b.memory += k->bytes;
	while (pld_ballot(k->lanes, plk_more_(k, &j) || a.token >= 0 || b.token >= 0)) {
		plk_read_turn_(k, &port, &a, &j);
		if (k->order != PLK_CHASE)
			plk_read_turn_(k, &port, &b, &j);
	}
	plk_tell_(k, &j);
}

/* The same I/O without queues: each warp copies what it wants from host memory, one after the other. */
PLD_FN void plk_direct(const struct plk_read *k, uint32_t warp)
{
	const uint32_t width = pld_count32(k->lanes);
	struct plk_job j;
	char *memory;

	if (warp >= k->nr_warps)
		return;
	plk_job_init_(k, &j, warp);
	memory = k->memory + 2 * (uint64_t)warp * width * k->bytes;
	for (uint64_t i = 0; i < k->per_lane * width; i++) {
		const uint64_t chance = plk_mix(k->seed + i * k->nr_warps + warp);

		pld_copy(k->lanes, memory + i % (2 * width) * k->bytes,
			 k->direct + plk_below_(chance, k->nr_ios) * k->bytes, k->bytes);
	}
	j.n.done = k->per_lane;
	plk_tell_(k, &j);
}

#endif
