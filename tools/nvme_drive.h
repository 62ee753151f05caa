/* SPDX-License-Identifier: MIT */
/* A controller and one of its namespaces, as named on the command line. */
#ifndef PL_NVME_DRIVE_H
#define PL_NVME_DRIVE_H

#include <peerlane/nvme.h>
#include <stdbool.h>

struct pl_drive {
	const char *address;
	struct peerlane_nvme *nvme;
	struct peerlane_nvme_info info;
	struct peerlane_nvme_ns *ns;
	struct peerlane_nvme_ns_info ns_info;
};

/* What every command that does I/O is told about the drive. */
struct pl_drive_want {
	unsigned int nsid;
	unsigned int nr_queues; /* 0: the driver's default */
	double timeout;		/* of a command, in seconds; 0: the driver's default */
	const char *serial;	/* of --yes-destroy-data, or NULL */
	bool write;
};

/* Options for them; @type has a member want. */
#define PL_DRIVE_OPTIONS(type)                                                                     \
	{                                                                                          \
		"nsid", PL_OPTION_COUNT,	  offsetof(type, want.nsid),                       \
		"N",	"Namespace (default 1).", 1,                                               \
		0                                                                                  \
	},                                                                                         \
	{                                                                                          \
		"timeout", PL_OPTION_DECIMAL, offsetof(type, want.timeout), "SECONDS",             \
			"How long a command may take; then it is aborted, and after twice that "   \
			"time the controller is reset (default 30).",                              \
			0.001, 86400                                                               \
	}
#define PL_DRIVE_OPTION_SERIAL(type)                                                               \
	{                                                                                          \
		"yes-destroy-data", PL_OPTION_TEXT, offsetof(type, want.serial), "SERIAL",         \
			"Needed to write: the serial number of the controller, so that it is "     \
			"surely the right one.",                                                   \
			0, 0                                                                       \
	}

/* Opens a controller with the options; what failed was said on standard error. */
int pl_drive_open_as(struct peerlane_nvme **out, const char *address,
		     const struct peerlane_nvme_options *opt);

/*
 * Opens the controller alone. What failed was said on standard error; returns 0 or a negative errno.
 */
int pl_drive_open(struct pl_drive *d, const char *address, const struct pl_drive_want *want);
/* Opens the controller and the namespace, and refuses to write without the right serial number. */
int pl_drive_open_ns(struct pl_drive *d, const char *address, const struct pl_drive_want *want);
void pl_drive_close(struct pl_drive *d);

/* Whether blocks [block, block + nr) are there; says so if not. */
bool pl_drive_has(const struct pl_drive *d, uint64_t block, uint64_t nr);

/* Says what command failed at which blocks. */
void pl_drive_complain(const struct pl_drive *d, const char *what, uint64_t block, uint64_t nr,
		       const struct peerlane_nvme_completion *cpl);

#endif
