/* SPDX-License-Identifier: MIT */
/*
 * Blocks to and from GPU memory, by the threads of a kernel. Where the controller cannot reach GPU memory,
 * data go by way of the host memory of the command's slot: the lanes fetch them from there, or put them
 * there, together. The caller cannot tell, but by the time.
 */
#ifndef PEERLANE_DEVICE_IO_H
#define PEERLANE_DEVICE_IO_H

#include <peerlane/device/queue.h>

/* One I/O of one lane. */
struct pld_io {
	uint8_t opcode; /* PL_NVME_READ, PL_NVME_WRITE or PL_NVME_FLUSH */
	uint32_t nsid;
	uint64_t lba;
	uint32_t nr_blocks;
	uint32_t bytes;		   /* of these blocks, a multiple of 16; 0 for flush */
	char *memory;		   /* of the GPU, 16-aligned */
	const struct pld_dma *dma; /* its addresses; not needed where data go by the host */
	int token;		   /* of the queue, while it is outstanding */
};

/* Sixteen bytes for each lane, as often as this, are under way at a time. */
#define PLD_COPIES 8u

/* Copy together, 16 bytes a lane at a time; all lanes name the same. Both sides are 16-aligned. */
PLD_FN void pld_copy(uint32_t lanes, char *to, const char *from, uint32_t bytes)
{
	const uint32_t width = pld_count32(lanes) * 16;
	struct pld_vec v[PLD_COPIES];

	for (uint32_t at = pld_rank(lanes) * 16; at < bytes; at += PLD_COPIES * width) {
		for (uint32_t k = 0; k < PLD_COPIES; k++)
			if (at + k * width < bytes)
				v[k] = pld_load16(from + at + k * width);
		for (uint32_t k = 0; k < PLD_COPIES; k++)
			if (at + k * width < bytes)
				pld_store16(to + at + k * width, v[k]);
	}
}

/* Copies of one round of the lanes each, for some of those that want one; which are left. */
PLD_FN uint32_t pld_copy_short_(uint32_t lanes, uint32_t left, char *to, const char *from,
				uint32_t bytes)
{
	const uint32_t at = pld_rank(lanes) * 16;
	struct pld_vec v[PLD_COPIES];
	char *dest[PLD_COPIES];

	for (uint32_t k = 0; k < PLD_COPIES; k++) {
		const uint32_t who = pld_lowest32(left ? left : lanes);
		const char *src = (const char *)(uintptr_t)pld_shfl64(lanes, (uintptr_t)from, who);
		const int mine = at < pld_shfl32(lanes, bytes, who) && left;

		dest[k] = (char *)(uintptr_t)pld_shfl64(lanes, (uintptr_t)to, who);
		if (mine)
			v[k] = pld_load16(src + at);
		else
			dest[k] = 0;
		left &= left - 1;
	}
	for (uint32_t k = 0; k < PLD_COPIES; k++)
		if (dest[k])
			pld_store16(dest[k] + at, v[k]);
	return left;
}

/* Copy for each lane that wants it what it names, all lanes together, in turn. */
PLD_SLOW void pld_copy_each_(uint32_t lanes, int want, char *to, const char *from, uint32_t bytes)
{
	uint32_t left = pld_ballot(lanes, want);
	const int longer = pld_ballot(lanes, want && bytes > pld_count32(lanes) * 16) != 0;

	/* One lane knows that the data are there; all lanes read them. */
	if (left)
		pld_sync(lanes);
	while (left && !longer)
		left = pld_copy_short_(lanes, left, to, from, bytes);
	for (; left; left &= left - 1) {
		const uint32_t who = pld_lowest32(left);

		pld_copy(lanes, (char *)(uintptr_t)pld_shfl64(lanes, (uintptr_t)to, who),
			 (const char *)(uintptr_t)pld_shfl64(lanes, (uintptr_t)from, who),
			 pld_shfl32(lanes, bytes, who));
	}
}

PLD_FN char *pld_bounce_(const struct pld_port *port, int token)
{
	return port->queue->bounce +
	       (uint64_t)(port->first + (uint32_t)token) * port->queue->bounce_bytes;
}

/* The second PRP of a transfer of so many bytes. */
PLD_FN uint64_t pld_prp2_(const struct pld_dma *dma, uint32_t bytes, uint32_t page_bytes)
{
	return bytes <= page_bytes ? 0 : bytes <= 2 * page_bytes ? dma->second : dma->list;
}

/*
 * Begin the I/O of the lanes that want it. Returns 0; -EAGAIN: the port had no slot for this lane's, wait for
 * others first; or -EFAULT: its memory needs addresses, and has none. All lanes of the port call, also for
 * the next one.
 */
PLD_FN int pld_io_start(struct pld_port *port, int want, struct pld_io *io)
{
	struct pld_queue *q = port->queue;
	const struct pld_dma *dma = io->dma;
	const int able = want && (dma || q->bounce || !io->bytes);
	struct pld_request rq;

	io->token = pld_reserve(port, able);
	rq.opcode = io->opcode;
	rq.nsid = io->nsid;
	rq.lba = io->lba;
	rq.nr_blocks = io->nr_blocks;
	rq.prp1 = rq.prp2 = 0;
	if (q->bounce) {
		const int put = io->token >= 0 && io->opcode == PL_NVME_WRITE;

		pld_copy_each_(port->lanes, put, put ? pld_bounce_(port, io->token) : 0, io->memory,
			       io->bytes);
		if (io->token >= 0)
			dma = &q->bounce_dma[port->first + (uint32_t)io->token];
	}
	if (io->token >= 0 && io->bytes && dma) {
		rq.prp1 = dma->first;
		rq.prp2 = pld_prp2_(dma, io->bytes, q->page_bytes);
	}
	pld_send(port, io->token, &rq);
	return io->token >= 0 ? 0 : want && !able ? -EFAULT : -EAGAIN;
}

/*
 * Finish the I/O of the lanes whose completion is known: fetch data that came by the host, give the slot
 * back. Lanes that have nothing to finish say so.
 */
PLD_FN void pld_io_finish(struct pld_port *port, int mine, struct pld_io *io,
			  const struct pld_completion *cpl)
{
	const struct pld_queue *q = port->queue;
	const int token = mine ? io->token : -1;
	const char *from = 0;

	if (q->bounce) {
		const int fetch = token >= 0 && !cpl->err && io->opcode == PL_NVME_READ;

		if (fetch)
			from = q->flags & PLD_RESULT_PLACE ? q->bounce + (uint64_t)cpl->result * 512
							   : pld_bounce_(port, token);
		pld_copy_each_(port->lanes, fetch, io->memory, from, io->bytes);
	}
	pld_free(port, token);
	if (token >= 0)
		io->token = -1;
}

/*
 * Wait for the I/O that was started, and finish it. Returns 0, -EIO, -ETIMEDOUT or -ECANCELED for this
 * lane's; 0 if it has none. After the last two the memory may still be written.
 */
PLD_FN int pld_io_wait(struct pld_port *port, struct pld_io *io, uint64_t timeout_ns,
		       struct pld_completion *cpl)
{
	const int mine = io->token >= 0;

	pld_wait(port, io->token, timeout_ns, cpl);
	pld_io_finish(port, mine, io, cpl);
	return cpl->err;
}

#endif
