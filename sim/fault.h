/* SPDX-License-Identifier: MIT */
/* The fault script: rules such as "drop opcode=read nth=3", one to a line. README.md has them all. */
#ifndef SIM_FAULT_H
#define SIM_FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <peerlane/nvme_spec.h>

enum pl_sn_action {
	PL_SN_DROP,	   /* the command is lost */
	PL_SN_HOLD,	   /* it never ends, but can be aborted */
	PL_SN_DELAY,	   /* it is carried out some turns later */
	PL_SN_REORDER,	   /* some commands are gathered and carried out backwards */
	PL_SN_STATUS,	   /* it fails as told */
	PL_SN_STUCK_READY, /* CSTS.RDY does not change */
	PL_SN_FATAL,	   /* CSTS.CFS */
	PL_SN_REMOVE,	   /* the device is gone */
	PL_SN_CORRUPT,	   /* one field of its completion is wrong */
	PL_SN_DUPLICATE,   /* it completes twice */
	PL_SN_TORN,	   /* of a write only the first blocks are stored */
};

enum pl_sn_moment { PL_SN_ON_COMMAND, PL_SN_ON_ENABLE, PL_SN_ON_DISABLE, PL_SN_ON_SHUTDOWN };

enum pl_sn_field {
	PL_SN_FIELD_CID,
	PL_SN_FIELD_SQID,
	PL_SN_FIELD_SQHD,
	PL_SN_FIELD_PHASE,
	PL_SN_FIELD_STATUS,
	PL_SN_FIELD_RESULT,
};

enum pl_sn_kind { PL_SN_ANY, PL_SN_ADMIN, PL_SN_IO };

struct pl_sn_rule {
	enum pl_sn_action action;
	enum pl_sn_moment on;
	/* What it applies to. */
	enum pl_sn_kind kind;
	int opcode; /* -1 any */
	int queue;  /* -1 any */
	uint32_t nsid;
	bool has_lba;
	uint64_t lba; /* one that the command touches */
	/* Which of those: the nth, or every so-many-th, or all; at most count times. */
	uint64_t nth, every, count;
	/* What it does. */
	uint64_t steps;
	uint64_t window;
	uint64_t blocks;
	uint32_t code;
	bool dnr, more;
	enum pl_sn_field field;
	uint64_t value; /* to be xored with the field */
	/* What happened so far. */
	uint64_t seen, done;
};

struct pl_sn_faults {
	struct pl_sn_rule *rules;
	size_t nr;
	uint64_t injected;
};

void pl_sn_faults_fini(struct pl_sn_faults *faults);
/* Add the rules of a script; lines end with a newline or ';'. 0, -ENOMEM, -EINVAL with why. */
int pl_sn_faults_add(struct pl_sn_faults *faults, const char *script, char *why, size_t why_bytes);
/* The same out of a file. */
int pl_sn_faults_load(struct pl_sn_faults *faults, const char *path, char *why, size_t why_bytes);

/* The rule that comes true for a command, or NULL. */
const struct pl_sn_rule *pl_sn_faults_command(struct pl_sn_faults *faults, unsigned int qid,
					      const struct pl_nvme_sqe *sqe);
/* The rule that comes true at another moment, or NULL. */
const struct pl_sn_rule *pl_sn_faults_moment(struct pl_sn_faults *faults, enum pl_sn_moment on);

#endif
