// SPDX-License-Identifier: MIT
/* Narrow slices, by way of host memory; see gather.h. */
#include "gather.h"

#include "error.h"

#include <peerlane/gpu.h>

#include <stdlib.h>
#include <string.h>

#define NARROW_BYTES (16u << 10)
#define BUFFER_BYTES (4u << 20)

bool pl_gather_suits(const struct pl_span *s)
{
	return s->count > 1 && s->chunk < NARROW_BYTES && s->stride - s->chunk < NARROW_BYTES;
}

/* Reads @bytes at @offset into @mem. */
static int fetch(struct pl_mover *m, const struct pl_span *s, char *mem, uint64_t bytes,
		 uint64_t offset)
{
	struct pl_move move = { .file = s->shard->file,
				.addr = mem,
				.bytes = bytes,
				.offset = offset,
				.arg = s->shard };
	struct peerlane_error_info info = { .size = sizeof(info) };

	/* The reason for less than all comes with the next call. */
	for (uint64_t got = 0; got < bytes;) {
		ssize_t n = peerlane_read(s->shard->file, mem + got, bytes - got,
					  (off_t)(offset + got));

		m->nr_requests++;
		if (n <= 0) {
			peerlane_error(&info);
			return m->fault(&move, offset + got, (int)n, info.text);
		}
		got += (uint64_t)n;
	}
	return 0;
}

int pl_gather_run(struct pl_mover *m, const struct pl_span *s, char *addr, uint64_t *file_bytes)
{
	uint64_t at_once = BUFFER_BYTES / s->stride, n;
	char *mem = malloc(BUFFER_BYTES);
	int err = 0;

	if (!mem)
		return pl_fail(-ENOMEM, "no memory for a slice");
	for (uint64_t i = 0; i < s->count && !err; i += n) {
		uint64_t bytes;

		n = s->count - i < at_once ? s->count - i : at_once;
		bytes = (n - 1) * s->stride + s->chunk;
		err = fetch(m, s, mem, bytes, s->offset + i * s->stride);
		if (err)
			break;
		*file_bytes += bytes;
		for (uint64_t k = 1; k < n; k++)
			memmove(mem + k * s->chunk, mem + k * s->stride, s->chunk);
		err = peerlane_gpu_copy(m->ctx, addr + i * s->chunk, mem, n * s->chunk);
		if (!err)
			err = pl_mover_tell(m, n * s->chunk);
	}
	free(mem);
	return err;
}
