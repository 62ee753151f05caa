/* SPDX-License-Identifier: MIT */
/* What the commands that measure a drive have in common: the drive, and a GPU where one is wanted. */
#include "message.h"
#include "nvme_load.h"

#include <errno.h>
#include <string.h>

int pl_drive_bench_open(struct pl_drive_bench *b, const char *address,
			const struct pl_drive_load_want *want)
{
	struct pl_drive_want drive = want->drive;
	uint64_t all, nr;
	int err;

	memset(b, 0, sizeof(*b));
	drive.write = strstr(want->op, "write");
	err = pl_drive_open_ns(&b->drive, address, &drive);
	if (err)
		return err;
	if (!strcmp(want->memory, "gpu"))
		err = pl_session_open(&b->session, want->backend, want->gpu, 0);
	all = b->drive.ns_info.nr_blocks;
	nr = want->nr_blocks ? want->nr_blocks : want->block < all ? all - want->block : 1;
	if (!err && !pl_drive_has(&b->drive, want->block, nr))
		err = -ERANGE;
	if (err) {
		pl_drive_bench_close(b);
		return err;
	}
	b->load = (struct pl_drive_load){
		.drive = &b->drive,
		.session = b->session.ctx ? &b->session : NULL,
		.opcode = drive.write ? PL_NVME_WRITE : PL_NVME_READ,
		.random = !strncmp(want->op, "rand", 4),
		.block = want->block,
		.nr_blocks = nr,
		.seconds = want->seconds,
		.what = want->op,
	};
	return 0;
}

void pl_drive_bench_close(struct pl_drive_bench *b)
{
	/* The memory of the GPU was unmapped when its pass ended. */
	pl_drive_close(&b->drive);
	if (b->session.ctx)
		pl_session_close(&b->session);
}

bool pl_drive_bench_fits(const struct pl_drive_bench *b, uint64_t io_bytes)
{
	uint32_t block = b->drive.ns_info.block_bytes;

	if (io_bytes % block) {
		pl_message_error("--size: %llu is not a multiple of the block size, %u",
				 (unsigned long long)io_bytes, block);
		return false;
	}
	if (io_bytes / block > b->load.nr_blocks) {
		pl_message_error("--size: %llu bytes are more than the range has",
				 (unsigned long long)io_bytes);
		return false;
	}
	return true;
}
