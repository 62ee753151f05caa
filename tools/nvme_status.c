/* SPDX-License-Identifier: MIT */
/* What NVMe controllers answer, in words. */
#include "nvme_status.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* By the names of the specification. */
static const struct {
	unsigned int status;
	const char *name;
} names[] = {
	{ 0x001, "Invalid Command Opcode" },
	{ 0x002, "Invalid Field in Command" },
	{ 0x003, "Command ID Conflict" },
	{ 0x004, "Data Transfer Error" },
	{ 0x005, "Commands Aborted due to Power Loss Notification" },
	{ 0x006, "Internal Error" },
	{ 0x007, "Command Abort Requested" },
	{ 0x008, "Command Aborted due to SQ Deletion" },
	{ 0x00b, "Invalid Namespace or Format" },
	{ 0x00c, "Command Sequence Error" },
	{ 0x013, "PRP Offset Invalid" },
	{ 0x01c, "Sanitize Failed" },
	{ 0x01d, "Sanitize In Progress" },
	{ 0x020, "Namespace is Write Protected" },
	{ 0x021, "Command Interrupted" },
	{ 0x022, "Transient Transport Error" },
	{ 0x080, "LBA Out of Range" },
	{ 0x081, "Capacity Exceeded" },
	{ 0x082, "Namespace Not Ready" },
	{ 0x083, "Reservation Conflict" },
	{ 0x084, "Format In Progress" },
	{ 0x182, "Attempted Write to Read Only Range" },
	{ 0x280, "Write Fault" },
	{ 0x281, "Unrecovered Read Error" },
	{ 0x282, "End-to-end Guard Check Error" },
	{ 0x283, "End-to-end Application Tag Check Error" },
	{ 0x284, "End-to-end Reference Tag Check Error" },
	{ 0x285, "Compare Failure" },
	{ 0x286, "Access Denied" },
	{ 0x287, "Deallocated or Unwritten Logical Block" },
};

static const char *name_of(unsigned int status)
{
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (names[i].status == status)
			return names[i].name;
	return "the controller reports an error";
}

/* What the driver ended, not the controller. */
static const char *own_words(int err)
{
	switch (err) {
	case -ETIMEDOUT:
		return "no answer in time; the command was aborted";
	case -ECONNRESET:
		return "lost when the controller was reset";
	case -ENODEV:
		return "the controller is gone or does not recover";
	default:
		return strerror(-err);
	}
}

struct pl_status_text pl_status_of(const struct peerlane_nvme_completion *cpl)
{
	struct pl_status_text t;

	if (!cpl->status || cpl->status == PL_NVME_SC_PATH_HOST_ABORTED || cpl->err == -ETIMEDOUT)
		snprintf(t.text, sizeof(t.text), "%s", own_words(cpl->err));
	else
		snprintf(t.text, sizeof(t.text), "%s (status 0x%03x)%s", name_of(cpl->status),
			 cpl->status, cpl->dnr ? ", do not retry" : "");
	return t;
}
