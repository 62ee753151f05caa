/* SPDX-License-Identifier: MIT */
/* Asynchronous events, and the log of errors. */
#ifndef SIM_EVENT_H
#define SIM_EVENT_H

#include "ctrl.h"

/* Report an event, now or when the host asks for one. */
void pl_sn_event(struct pl_simnvme *c, uint32_t type, uint32_t info, uint32_t log);
/* A doorbell was written wrongly: PL_NVME_EVENT_ERROR_DB_*. */
void pl_sn_event_doorbell(struct pl_simnvme *c, uint32_t info);
/* Enter a command that failed into the log of errors. */
void pl_sn_event_error(struct pl_simnvme *c, uint32_t qid, const struct pl_nvme_sqe *sqe,
		       uint16_t status);
/* Answer requests with what is pending. */
void pl_sn_event_deliver(struct pl_simnvme *c);
/* The host read a log page: events that point to it may be reported again. */
void pl_sn_event_log_read(struct pl_simnvme *c, uint32_t log);
/* Forget what is pending and masked. */
void pl_sn_event_clear(struct pl_simnvme *c);
/* The critical warning of the SMART page, as it is now; report what is newly set. */
uint8_t pl_sn_event_warning(struct pl_simnvme *c);
void pl_sn_event_check_warning(struct pl_simnvme *c);

/* Degrees kelvin, always. */
#define PL_SN_TEMPERATURE 310u

#endif
