// SPDX-License-Identifier: MIT
/* Checksums of memory; see sum.h. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "sum.h"

#include "error.h"

#include <peerlane/gpu.h>

#include <stdlib.h>

#define PIECE_BYTES (4u << 20)

int pl_summer_init(struct pl_summer *s, struct peerlane *ctx)
{
	s->ctx = ctx;
	s->mem = malloc(PIECE_BYTES);
	s->state = XXH3_createState();
	if (s->mem && s->state)
		return 0;
	pl_summer_fini(s);
	return pl_fail(-ENOMEM, "no memory for checksums");
}

void pl_summer_fini(struct pl_summer *s)
{
	free(s->mem);
	XXH3_freeState(s->state);
	s->mem = NULL;
	s->state = NULL;
}

int pl_summer_run(struct pl_summer *s, const void *addr, uint64_t bytes, uint64_t *sum)
{
	XXH3_64bits_reset(s->state);
	for (uint64_t at = 0, n; at < bytes; at += n) {
		int err;

		n = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
		err = peerlane_gpu_copy(s->ctx, s->mem, (const char *)addr + at, n);
		if (err)
			return err;
		XXH3_64bits_update(s->state, s->mem, n);
	}
	*sum = XXH3_64bits_digest(s->state);
	return 0;
}
