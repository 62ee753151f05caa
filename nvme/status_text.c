// SPDX-License-Identifier: MIT
/* How a command ended, in words. */
#include <peerlane/nvme.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* By the names of the specification. */
static const struct {
	unsigned int status;
	const char *name;
} names[] = {
	{ PL_NVME_SC_SUCCESS, "Successful Completion" },
	{ PL_NVME_SC_INVALID_OPCODE, "Invalid Command Opcode" },
	{ PL_NVME_SC_INVALID_FIELD, "Invalid Field in Command" },
	{ PL_NVME_SC_CID_CONFLICT, "Command ID Conflict" },
	{ PL_NVME_SC_DATA_TRANSFER, "Data Transfer Error" },
	{ PL_NVME_SC_POWER_LOSS, "Commands Aborted due to Power Loss Notification" },
	{ PL_NVME_SC_INTERNAL, "Internal Error" },
	{ PL_NVME_SC_ABORTED, "Command Abort Requested" },
	{ PL_NVME_SC_SQ_DELETED, "Command Aborted due to SQ Deletion" },
	{ PL_NVME_SC_FUSED_FAILED, "Command Aborted due to Failed Fused Command" },
	{ PL_NVME_SC_FUSED_MISSING, "Command Aborted due to Missing Fused Command" },
	{ PL_NVME_SC_INVALID_NS, "Invalid Namespace or Format" },
	{ PL_NVME_SC_SEQUENCE, "Command Sequence Error" },
	{ PL_NVME_SC_SGL_SEGMENT, "Invalid SGL Segment Descriptor" },
	{ PL_NVME_SC_SGL_COUNT, "Invalid Number of SGL Descriptors" },
	{ PL_NVME_SC_SGL_LENGTH, "Data SGL Length Invalid" },
	{ PL_NVME_SC_SGL_METADATA_LENGTH, "Metadata SGL Length Invalid" },
	{ PL_NVME_SC_SGL_TYPE, "SGL Descriptor Type Invalid" },
	{ PL_NVME_SC_INVALID_CMB, "Invalid Use of Controller Memory Buffer" },
	{ PL_NVME_SC_PRP_OFFSET, "PRP Offset Invalid" },
	{ PL_NVME_SC_ATOMIC_WRITE_UNIT, "Atomic Write Unit Exceeded" },
	{ PL_NVME_SC_SGL_OFFSET, "SGL Offset Invalid" },
	{ PL_NVME_SC_SANITIZE_FAILED, "Sanitize Failed" },
	{ PL_NVME_SC_SANITIZE_IN_PROGRESS, "Sanitize In Progress" },
	{ PL_NVME_SC_SGL_GRANULARITY, "SGL Data Block Granularity Invalid" },
	{ PL_NVME_SC_NOT_IN_CMB, "Command Not Supported for Queue in CMB" },
	{ PL_NVME_SC_WRITE_PROTECTED, "Namespace is Write Protected" },
	{ PL_NVME_SC_INTERRUPTED, "Command Interrupted" },
	{ PL_NVME_SC_TRANSIENT_TRANSPORT, "Transient Transport Error" },
	{ PL_NVME_SC_LBA_RANGE, "LBA Out of Range" },
	{ PL_NVME_SC_CAPACITY, "Capacity Exceeded" },
	{ PL_NVME_SC_NOT_READY, "Namespace Not Ready" },
	{ PL_NVME_SC_RESERVATION_CONFLICT, "Reservation Conflict" },
	{ PL_NVME_SC_FORMAT_IN_PROGRESS, "Format In Progress" },
	{ PL_NVME_SC_CQ_INVALID, "Completion Queue Invalid" },
	{ PL_NVME_SC_INVALID_QID, "Invalid Queue Identifier" },
	{ PL_NVME_SC_INVALID_QUEUE_SIZE, "Invalid Queue Size" },
	{ PL_NVME_SC_ABORT_LIMIT, "Abort Command Limit Exceeded" },
	{ PL_NVME_SC_EVENT_LIMIT, "Asynchronous Event Request Limit Exceeded" },
	{ PL_NVME_SC_INVALID_VECTOR, "Invalid Interrupt Vector" },
	{ PL_NVME_SC_INVALID_LOG_PAGE, "Invalid Log Page" },
	{ PL_NVME_SC_INVALID_FORMAT, "Invalid Format" },
	{ PL_NVME_SC_INVALID_QUEUE_DELETION, "Invalid Queue Deletion" },
	{ PL_NVME_SC_FEATURE_NOT_SAVEABLE, "Feature Identifier Not Saveable" },
	{ PL_NVME_SC_FEATURE_NOT_CHANGEABLE, "Feature Not Changeable" },
	{ PL_NVME_SC_FEATURE_NOT_NS, "Feature Not Namespace Specific" },
	{ PL_NVME_SC_CONFLICTING_ATTRIBUTES, "Conflicting Attributes" },
	{ PL_NVME_SC_INVALID_PROTECTION, "Invalid Protection Information" },
	{ PL_NVME_SC_READ_ONLY_RANGE, "Attempted Write to Read Only Range" },
	{ PL_NVME_SC_WRITE_FAULT, "Write Fault" },
	{ PL_NVME_SC_READ_ERROR, "Unrecovered Read Error" },
	{ PL_NVME_SC_GUARD_CHECK, "End-to-end Guard Check Error" },
	{ PL_NVME_SC_APP_TAG_CHECK, "End-to-end Application Tag Check Error" },
	{ PL_NVME_SC_REF_TAG_CHECK, "End-to-end Reference Tag Check Error" },
	{ PL_NVME_SC_COMPARE_FAILED, "Compare Failure" },
	{ PL_NVME_SC_ACCESS_DENIED, "Access Denied" },
	{ PL_NVME_SC_DEALLOCATED, "Deallocated or Unwritten Logical Block" },
	{ PL_NVME_SC_PATH_INTERNAL, "Internal Path Error" },
	{ PL_NVME_SC_PATH_CONTROLLER, "Controller Pathing Error" },
	{ PL_NVME_SC_PATH_HOST, "Host Pathing Error" },
	{ PL_NVME_SC_PATH_HOST_ABORTED, "Command Aborted By Host" },
};

static const char *name_of(unsigned int status)
{
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (names[i].status == status)
			return names[i].name;
	return "Unknown Status";
}

static const char *type_of(unsigned int status)
{
	switch (status >> 8 & 7) {
	case 0:
		return "generic";
	case 1:
		return "command specific";
	case 2:
		return "media and data integrity";
	case 3:
		return "path related";
	case 7:
		return "vendor specific";
	default:
		return "reserved";
	}
}

/* What the driver ended, not the controller; NULL: the controller did. */
static const char *own_words(const struct peerlane_nvme_completion *cpl)
{
	switch (cpl->err) {
	case -ETIMEDOUT:
		return "no answer in time; the command was aborted";
	case -ECONNRESET:
		return "lost when the controller was reset";
	case -ENODEV:
		return "the controller is gone or does not recover";
	case 0:
		return cpl->status ? NULL : "success";
	default:
		return cpl->status && cpl->status != PL_NVME_SC_PATH_HOST_ABORTED
			       ? NULL
			       : strerrordesc_np(-cpl->err);
	}
}

const char *peerlane_nvme_status_text(const struct peerlane_nvme_completion *cpl, char *text,
				      size_t bytes)
{
	const char *own;

	if (!cpl || !text || !bytes)
		return "";
	own = own_words(cpl);
	if (own)
		snprintf(text, bytes, "%s", own);
	else
		snprintf(text, bytes, "%s (%s, status 0x%03x)%s%s", name_of(cpl->status),
			 type_of(cpl->status), cpl->status, cpl->dnr ? ", do not retry" : "",
			 cpl->more ? ", the error log has more" : "");
	return text;
}
