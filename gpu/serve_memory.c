// SPDX-License-Identifier: MIT
/* Emulated drives: one whose blocks are host memory, and one that does nothing. */
#include "proxy.h"

#include <string.h>

/* Every command succeeds; of each only the id is looked at. */
static void serve_instant(struct pl_proxy *p, struct pl_proxy_queue *q, uint32_t nr)
{
	const uint32_t mask = q->depth - 1, from = q->head, head = from + nr, tail = q->tail;
	const uint32_t log_depth = q->log_depth, index = q->index;
	const struct pl_nvme_sqe *sq = q->sq;
	struct pl_nvme_cqe *cq = q->cq;

	(void)p;
	for (uint32_t i = 0; i < nr; i++)
		pl_proxy_write(cq, mask, log_depth, tail + i, head, index,
			       sq[(from + i) & mask].cid, 0, 0);
	q->head = head;
	q->tail = tail + nr;
}

/* Reads are left to those who read: the completion says where the blocks are, seen from the slots. */
static void serve_one(struct pl_proxies *ps, struct pl_proxy_queue *q, uint32_t entry)
{
	const struct peerlane_device *dev = ps->dev;
	struct pl_nvme_sqe sqe;
	struct pl_proxy_command c;
	unsigned int status;
	uint32_t place = 0;

	memcpy(&sqe, &q->sq[entry & (q->depth - 1)], sizeof(sqe));
	status = pl_proxy_check(ps, q, &sqe, &c);
	if (!status && sqe.opcode == PL_NVME_READ) {
		place = (uint32_t)((dev->data_at - pl_queues_data_at(dev, q->index) + c.offset) /
				   512);
		pl_proxy_count(&q->counts.bytes_read, c.bytes);
	} else if (!status && c.bytes) {
		memcpy(dev->data.cpu + dev->data_at + c.offset, c.data, c.bytes);
		pl_proxy_count(&q->counts.bytes_written, c.bytes);
	}
	pl_proxy_post(q, sqe.cid, status, place);
}

static void serve_memory(struct pl_proxy *p, struct pl_proxy_queue *q, uint32_t nr)
{
	const uint32_t from = q->head;

	q->head += nr;
	for (uint32_t i = 0; i < nr; i++)
		serve_one(p->all, q, from + i);
}

const struct pl_proxy_server pl_serve_instant = { .serve = serve_instant };
const struct pl_proxy_server pl_serve_memory = { .serve = serve_memory };
