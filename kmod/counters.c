// SPDX-License-Identifier: MIT
/*
 * Counters of what the module holds and did, for tests that assert zero and people who wonder.
 */
#include "core.h"

static atomic64_t counters[PL_NR_COUNTERS];

void pl_count(enum pl_counter which, s64 by)
{
	atomic64_add(by, &counters[which]);
}

static u64 get(enum pl_counter which)
{
	return (u64)atomic64_read(&counters[which]);
}

void pl_counters_read(struct peerlane_counters *out)
{
	*out = (struct peerlane_counters){
		.files = get(PL_FILES),
		.pins = get(PL_PINS),
		.pinned_bytes = get(PL_PINNED_BYTES),
		.mappings = get(PL_MAPPINGS),
		.lingering = get(PL_LINGERING),
		.page_bytes = get(PL_PAGE_BYTES),
		.uses = get(PL_USES),
		.nr_pin = get(PL_NR_PIN),
		.nr_pin_failed = get(PL_NR_PIN_FAILED),
		.nr_unpin = get(PL_NR_UNPIN),
		.nr_revoke = get(PL_NR_REVOKE),
		.nr_mmap = get(PL_NR_MMAP),
		.nr_fault = get(PL_NR_FAULT),
		.nr_sigbus = get(PL_NR_SIGBUS),
		.nr_overdue = get(PL_NR_OVERDUE),
	};
}
