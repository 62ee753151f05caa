// SPDX-License-Identifier: MIT
/* Log pages: errors, health, firmware. */
#include "admin.h"

#include "data.h"
#include "event.h"

#include <stdlib.h>
#include <string.h>

/* Where MDTS sets no limit this one holds. */
#define MAX_ASKED_BYTES (1u << 20)
#define MAX_LOG_BYTES (sizeof(struct pl_nvme_error_entry) * PL_SN_NR_ERRORS)
PL_NVME_ASSERT(MAX_LOG_BYTES >= sizeof(struct pl_nvme_smart));

static void put128(uint8_t *to, uint64_t value)
{
	memcpy(to, &value, sizeof(value));
}

/* Newest first. */
static size_t error_log(struct pl_simnvme *c, uint8_t *to)
{
	for (uint64_t i = 0; i < PL_SN_NR_ERRORS && i < c->nr_errors; i++)
		memcpy(to + i * sizeof(*c->errors),
		       &c->errors[(c->nr_errors - 1 - i) % PL_SN_NR_ERRORS], sizeof(*c->errors));
	return MAX_LOG_BYTES;
}

static size_t smart_log(struct pl_simnvme *c, uint8_t *to)
{
	struct pl_nvme_smart smart = {
		.critical_warning = pl_sn_event_warning(c),
		.temperature = { PL_SN_TEMPERATURE & 0xff, PL_SN_TEMPERATURE >> 8 },
		.spare = 100,
		.spare_threshold = 10,
	};

	/* In thousands of 512 bytes, rounded up. */
	put128(smart.data_units_read, (c->counters.bytes_read + 511999) / 512000);
	put128(smart.data_units_written, (c->counters.bytes_written + 511999) / 512000);
	put128(smart.host_reads, c->reads);
	put128(smart.host_writes, c->writes);
	put128(smart.error_entries, c->nr_errors);
	put128(smart.power_cycles, 1);
	memcpy(to, &smart, sizeof(smart));
	return sizeof(smart);
}

static size_t firmware_log(uint8_t *to)
{
	struct pl_nvme_firmware log = { .active = 1 };

	memcpy(log.revision[0], "1       ", sizeof(log.revision[0]));
	memcpy(to, &log, sizeof(log));
	return sizeof(log);
}

/* Behind the end of a page there is nothing: zeroes. */
static unsigned int reply(struct pl_simnvme *c, const struct pl_nvme_sqe *sqe, const uint8_t *log,
			  uint64_t there, uint64_t bytes)
{
	unsigned int status;
	uint8_t *data;

	if (bytes > MAX_ASKED_BYTES || pl_sn_data_too_long(c, bytes))
		return PL_NVME_SC_INVALID_FIELD;
	data = calloc(1, bytes);
	if (!data)
		return PL_NVME_SC_INTERNAL;
	memcpy(data, log, there < bytes ? there : bytes);
	status = pl_sn_data_reply(c, sqe, data, bytes);
	free(data);
	return status;
}

unsigned int pl_sn_log_page(struct pl_simnvme *c, const struct pl_nvme_sqe *sqe)
{
	uint32_t page = sqe->cdw10 & 0xff;
	uint64_t dwords = (sqe->cdw10 >> PL_NVME_LOG_NUMD_SHIFT | (uint64_t)sqe->cdw11 << 16) + 1;
	uint64_t offset = sqe->cdw12 | (uint64_t)sqe->cdw13 << 32, bytes = dwords * 4;
	uint8_t log[MAX_LOG_BYTES] = { 0 };
	unsigned int status;
	size_t size;

	/* Nothing here is kept by namespace. */
	if (sqe->nsid && sqe->nsid != PL_NVME_NSID_ALL)
		return sqe->nsid > c->config.nn ? PL_NVME_SC_INVALID_NS : PL_NVME_SC_INVALID_FIELD;
	switch (page) {
	case PL_NVME_LOG_ERROR:
		size = error_log(c, log);
		break;
	case PL_NVME_LOG_SMART:
		size = smart_log(c, log);
		break;
	case PL_NVME_LOG_FIRMWARE:
		size = firmware_log(log);
		break;
	default:
		return PL_NVME_SC_INVALID_LOG_PAGE;
	}
	if (offset & 3 || offset > size)
		return PL_NVME_SC_INVALID_FIELD;
	status = reply(c, sqe, log + offset, size - offset, bytes);
	if (!status && !(sqe->cdw10 & PL_NVME_LOG_RAE))
		pl_sn_event_log_read(c, page);
	return status;
}
