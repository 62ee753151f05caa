// SPDX-License-Identifier: MIT
/* Asynchronous events: one of a type is reported, the next only after its log page was read. */
#include "event.h"

#include "held.h"
#include "queue.h"

#include <string.h>

#define WARNING_TEMPERATURE 0x02u
#define INFO_TEMPERATURE 0x01u

void pl_sn_event_deliver(struct pl_simnvme *c)
{
	for (uint32_t i = 0; i < c->nr_pending_events && c->nr_event_requests;) {
		uint32_t event = c->pending_events[i], type = PL_NVME_EVENT_TYPE(event);
		struct pl_nvme_sqe sqe;

		if (c->masked_events & 1u << type) {
			i++;
			continue;
		}
		if (!pl_sn_held_event_request(c, &sqe))
			return;
		c->masked_events |= 1u << type;
		c->nr_pending_events--;
		memmove(&c->pending_events[i], &c->pending_events[i + 1],
			(c->nr_pending_events - i) * sizeof(*c->pending_events));
		pl_sn_complete(c, c->sqs[0], &sqe, PL_NVME_SC_SUCCESS, event);
	}
}

void pl_sn_event(struct pl_simnvme *c, uint32_t type, uint32_t info, uint32_t log)
{
	uint32_t event = type | info << PL_NVME_EVENT_INFO_SHIFT | log << PL_NVME_EVENT_LOG_SHIFT;

	c->counters.events++;
	for (uint32_t i = 0; i < c->nr_pending_events; i++)
		if (c->pending_events[i] == event)
			return;
	if (c->nr_pending_events == PL_SN_NR_EVENTS)
		return;
	c->pending_events[c->nr_pending_events++] = event;
	if (c->sqs[0])
		pl_sn_event_deliver(c);
}

void pl_sn_event_error(struct pl_simnvme *c, uint32_t qid, const struct pl_nvme_sqe *sqe,
		       uint16_t status)
{
	struct pl_nvme_error_entry *e = &c->errors[c->nr_errors++ % PL_SN_NR_ERRORS];

	*e = (struct pl_nvme_error_entry){
		.error_count = c->nr_errors,
		.sqid = (uint16_t)qid,
		.cid = sqe->cid,
		.status = status,
		.parameter = 0xffff,
		.lba = qid ? sqe->cdw10 | (uint64_t)sqe->cdw11 << 32 : 0,
		.nsid = sqe->nsid,
	};
}

void pl_sn_event_doorbell(struct pl_simnvme *c, uint32_t info)
{
	static const struct pl_nvme_sqe none = { .cid = PL_NVME_CID_NONE };

	pl_sn_event_error(c, 0xffff, &none, 0);
	pl_sn_event(c, PL_NVME_EVENT_ERROR, info, PL_NVME_LOG_ERROR);
}

void pl_sn_event_log_read(struct pl_simnvme *c, uint32_t log)
{
	static const struct {
		uint32_t log, type;
	} table[] = {
		{ PL_NVME_LOG_ERROR, PL_NVME_EVENT_ERROR },
		{ PL_NVME_LOG_SMART, PL_NVME_EVENT_SMART },
	};

	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++)
		if (table[i].log == log)
			c->masked_events &= ~(1u << table[i].type);
	pl_sn_event_deliver(c);
}

void pl_sn_event_clear(struct pl_simnvme *c)
{
	c->nr_pending_events = 0;
	c->masked_events = 0;
}

uint8_t pl_sn_event_warning(struct pl_simnvme *c)
{
	return PL_SN_TEMPERATURE >= c->features.over_temperature ||
			       PL_SN_TEMPERATURE <= c->features.under_temperature
		       ? WARNING_TEMPERATURE
		       : 0;
}

void pl_sn_event_check_warning(struct pl_simnvme *c)
{
	if (pl_sn_event_warning(c) & c->features.events & WARNING_TEMPERATURE)
		pl_sn_event(c, PL_NVME_EVENT_SMART, INFO_TEMPERATURE, PL_NVME_LOG_SMART);
}
