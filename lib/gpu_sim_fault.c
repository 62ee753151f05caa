/* SPDX-License-Identifier: MIT */
/*
 * Faults of the simulated GPU: which operations fail, by name, after how many and how often.
 */
#include "gpu_sim.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const words[PL_SIM_NR_FAULTS] = {
	[PL_SIM_FAULT_COPY] = "copy",	  [PL_SIM_FAULT_ALLOC] = "alloc",
	[PL_SIM_FAULT_PIN] = "pin",	  [PL_SIM_FAULT_REGISTER] = "register",
	[PL_SIM_FAULT_LAUNCH] = "launch", [PL_SIM_FAULT_EVENT] = "event",
	[PL_SIM_FAULT_HANG] = "hang",
};

/* Ends all hangs: what hung remembers the generation it hung in. 0 means "does not hang". */
static void clear_hangs(struct pl_sim_gpu *sim)
{
	if (atomic_fetch_add(&sim->hang, 1) + 1 == 0)
		atomic_fetch_add(&sim->hang, 1);
}

int pl_sim_fault_set(struct pl_sim_gpu *sim, const char *what, unsigned int after,
		     unsigned int count)
{
	for (unsigned int i = 0; what && i < PL_SIM_NR_FAULTS; i++) {
		if (strcmp(what, words[i]) != 0)
			continue;
		atomic_store(&sim->faults[i], count ? (uint64_t)after << 32 | count : 0);
		if (i == PL_SIM_FAULT_HANG && !count)
			clear_hangs(sim);
		return 0;
	}
	return pl_sim_refuse(-EINVAL, PL_SIM_INVALID_VALUE);
}

/* Reads ":number" and moves @text behind it. */
static bool parse_number(const char **text, unsigned int *out)
{
	unsigned long v;
	char *end;

	if (**text != ':' || (*text)[1] < '0' || (*text)[1] > '9')
		return false;
	errno = 0;
	v = strtoul(*text + 1, &end, 10);
	if (errno || v > UINT32_MAX)
		return false;
	*text = end;
	*out = (unsigned int)v;
	return true;
}

int pl_sim_fault_parse(struct pl_sim_gpu *sim, const char *text, char *why, size_t why_bytes)
{
	const char *at = text;

	while (*at) {
		size_t len = strcspn(at, ":,");
		unsigned int after, count;
		char word[16] = "";

		if (len < sizeof(word))
			memcpy(word, at, len);
		at += len;
		if (!parse_number(&at, &after) || !parse_number(&at, &count) ||
		    (*at && *at != ',') || pl_sim_fault_set(sim, word, after, count)) {
			snprintf(why, why_bytes,
				 "PEERLANE_SIM_FAIL=\"%s\" is not a list of word:after:count",
				 text);
			return -EINVAL;
		}
		if (*at == ',')
			at++;
	}
	return 0;
}

bool pl_sim_fault_hit(struct pl_sim_gpu *sim, enum pl_sim_fault fault)
{
	_Atomic uint64_t *f = &sim->faults[fault];
	uint64_t v = atomic_load_explicit(f, memory_order_relaxed);
	uint64_t next;

	do {
		if (!v)
			return false;
		next = v >> 32 ? v - (1ull << 32) : v - 1;
	} while (!atomic_compare_exchange_weak(f, &v, next));
	return !(v >> 32);
}
