// SPDX-License-Identifier: MIT
/* Which fields of which command must be zero. */
#include "command.h"

/* Bits that are reserved, or that name what this controller does not have. */
struct fields {
	bool known;
	uint32_t cdw2, cdw3, cdw10, cdw11, cdw12, cdw13, cdw14, cdw15;
};

#define ALL 0xffffffffu
#define BEHIND_10 .cdw11 = ALL, .cdw12 = ALL, .cdw13 = ALL, .cdw14 = ALL, .cdw15 = ALL
#define BEHIND_11 .cdw12 = ALL, .cdw13 = ALL, .cdw14 = ALL, .cdw15 = ALL
#define FIRST .known = true, .cdw2 = ALL, .cdw3 = ALL

static const struct fields admin[256] = {
	[PL_NVME_ADMIN_DELETE_SQ] = { FIRST, .cdw10 = 0xffff0000, BEHIND_10 },
	[PL_NVME_ADMIN_DELETE_CQ] = { FIRST, .cdw10 = 0xffff0000, BEHIND_10 },
	[PL_NVME_ADMIN_CREATE_SQ] = { FIRST, .cdw11 = 0xfff8, BEHIND_11 },
	[PL_NVME_ADMIN_CREATE_CQ] = { FIRST, .cdw11 = 0xfffc, BEHIND_11 },
	[PL_NVME_ADMIN_GET_LOG_PAGE] = { FIRST, .cdw10 = 0x7f00, .cdw11 = 0xffff0000, .cdw14 = ALL,
					 .cdw15 = ALL },
	[PL_NVME_ADMIN_IDENTIFY] = { FIRST, .cdw10 = 0xffffff00, BEHIND_10 },
	[PL_NVME_ADMIN_ABORT] = { FIRST, BEHIND_10 },
	[PL_NVME_ADMIN_SET_FEATURES] = { FIRST, .cdw10 = 0x7fffff00, BEHIND_11 },
	[PL_NVME_ADMIN_GET_FEATURES] = { FIRST, .cdw10 = 0xfffff800, BEHIND_11 },
	[PL_NVME_ADMIN_ASYNC_EVENT] = { FIRST, .cdw10 = ALL, BEHIND_10 },
	[PL_NVME_ADMIN_DBBUF] = { FIRST, .cdw10 = ALL, BEHIND_10 },
};

/* Tags and checks of protection information mean nothing here and may be anything. */
static const struct fields nvm[256] = {
	[PL_NVME_FLUSH] = { FIRST, .cdw10 = ALL, BEHIND_10 },
	[PL_NVME_READ] = { FIRST, .cdw12 = 0x03ff0000, .cdw13 = 0xffffff00 },
	[PL_NVME_WRITE] = { FIRST, .cdw12 = 0x03ff0000, .cdw13 = 0x0000ff00 },
	[PL_NVME_COMPARE] = { FIRST, .cdw12 = 0x03ff0000, .cdw13 = ALL },
	[PL_NVME_WRITE_ZEROES] = { FIRST, .cdw12 = 0x01ff0000, .cdw13 = ALL },
	[PL_NVME_DSM] = { FIRST, .cdw10 = 0xffffff00, .cdw11 = 0xfffffff8, BEHIND_11 },
};

bool pl_sn_reserved_clear(const struct pl_nvme_sqe *sqe, bool is_admin)
{
	const struct fields *f = is_admin ? &admin[sqe->opcode] : &nvm[sqe->opcode];

	return !f->known ||
	       !((f->cdw2 & sqe->cdw2) | (f->cdw3 & sqe->cdw3) | (f->cdw10 & sqe->cdw10) |
		 (f->cdw11 & sqe->cdw11) | (f->cdw12 & sqe->cdw12) | (f->cdw13 & sqe->cdw13) |
		 (f->cdw14 & sqe->cdw14) | (f->cdw15 & sqe->cdw15));
}
