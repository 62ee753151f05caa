// SPDX-License-Identifier: MIT
/* Asynchronous events: requests that wait in the controller, and what they brought. */
#include "ctrl.h"

#include <errno.h>

static void request(struct peerlane_nvme *nvme)
{
	struct pl_nvme_sqe sqe = { .opcode = PL_NVME_ADMIN_ASYNC_EVENT };

	/* Without room there is one request fewer, which only costs time between events. */
	(void)pl_nvme_admin_send(nvme, &sqe, PL_NVME_KIND_EVENT);
}

void pl_nvme_events_start(struct peerlane_nvme *nvme)
{
	uint32_t wanted = nvme->id.oaes & (PL_NVME_AEC_NS_CHANGED | PL_NVME_AEC_FIRMWARE);
	struct pl_nvme_sqe sqe = {
		.opcode = PL_NVME_ADMIN_SET_FEATURES,
		.cdw10 = PL_NVME_FEAT_ASYNC_EVENT,
		.cdw11 = wanted | 0x1f, /* all critical warnings of SMART */
	};
	unsigned int nr = nvme->id.aerl + 1u;

	if (nvme->flags & PEERLANE_NVME_NO_EVENTS)
		return;
	/* A controller that refuses this still tells of errors. */
	(void)pl_nvme_admin_locked(nvme, &sqe, NULL);
	if (nr > PL_NVME_EVENT_REQUESTS)
		nr = PL_NVME_EVENT_REQUESTS;
	/* Leave room for a command that somebody waits for, and for an abort. */
	while (nr-- && nvme->admin.nr_unused > 2)
		request(nvme);
}

void pl_nvme_event_arrived(struct peerlane_nvme *nvme, const struct pl_nvme_cqe *cqe)
{
	struct peerlane_nvme_event *event;

	/* Refused, or ended by the controller: asking again would end the same way. */
	if (cqe->status & ~PL_NVME_CQE_PHASE)
		return;
	if (nvme->nr_events == PL_NVME_EVENTS) {
		nvme->first_event = (nvme->first_event + 1) % PL_NVME_EVENTS;
		nvme->nr_events--;
		nvme->nr_lost_events++;
	}
	event = &nvme->events[(nvme->first_event + nvme->nr_events++) % PL_NVME_EVENTS];
	event->type = (uint8_t)PL_NVME_EVENT_TYPE(cqe->result);
	event->info = (uint8_t)PL_NVME_EVENT_INFO(cqe->result);
	event->log_page = (uint8_t)PL_NVME_EVENT_LOG(cqe->result);
	request(nvme);
}

int peerlane_nvme_events(struct peerlane_nvme *nvme, struct peerlane_nvme_event *out,
			 unsigned int max)
{
	unsigned int nr = 0;
	int rc;

	if (!nvme || (!out && max))
		return -EINVAL;
	pthread_mutex_lock(&nvme->lock);
	if (!nvme->dead)
		pl_nvme_admin_poll(nvme);
	for (; nr < max && nvme->nr_events; nr++, nvme->nr_events--) {
		out[nr] = nvme->events[nvme->first_event];
		nvme->first_event = (nvme->first_event + 1) % PL_NVME_EVENTS;
	}
	rc = nr ? (int)nr : nvme->dead;
	pthread_mutex_unlock(&nvme->lock);
	return rc;
}
