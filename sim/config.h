/* SPDX-License-Identifier: MIT */
/* What a controller is made of, out of a string such as "sim:size=64M,bs=4096,ns=2". */
#ifndef SIM_CONFIG_H
#define SIM_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PL_SN_MAX_NS 64u
#define PL_SN_MAX_QUEUES 65534u
#define PL_SN_MAX_VECTORS 2048u
#define PL_SN_PATH_BYTES 256u
#define PL_SN_RULE_BYTES 4096u

enum pl_sn_dbbuf {
	PL_SN_DBBUF_NONE,
	PL_SN_DBBUF_EVENT, /* sleeps until the register is written, as the event index asks for */
	PL_SN_DBBUF_POLL,  /* looks at the shadow all the time */
};

struct pl_sn_config {
	uint64_t size[PL_SN_MAX_NS]; /* bytes */
	uint32_t bs[PL_SN_MAX_NS];
	char file[PL_SN_MAX_NS][PL_SN_PATH_BYTES]; /* "": memory */
	uint32_t nr_ns;				   /* active ones, ids 1 and up */
	uint32_t nn;				   /* ids that are valid */
	uint32_t mdts, mqes, dstrd, to, mpsmin, mpsmax, cqr;
	uint32_t queues;  /* I/O queues of each kind */
	uint32_t vectors; /* of interrupts; none are sent */
	uint32_t aerl;	  /* event requests at a time, 0-based */
	uint64_t cmb;	  /* bytes */
	uint32_t cmb_use; /* PL_NVME_CMBSZ_* of use */
	uint32_t sgl;	  /* PL_NVME_SGLS_* of alignment, 0 none */
	uint32_t ready;	  /* turns until the controller is ready */
	uint32_t vwc;	  /* there is a volatile write cache */
	enum pl_sn_dbbuf dbbuf;
	bool strict; /* reserved fields must be zero */
	bool spin;   /* the thread never sleeps */
	char serial[21];
	char fault[PL_SN_PATH_BYTES]; /* file of the fault script */
	char rule[PL_SN_RULE_BYTES];  /* fault script itself, ';' for line ends */
};

/* Fill config, defaults first: 0 or -EINVAL with the reason in why. */
int pl_sn_config_parse(struct pl_sn_config *config, const char *text, char *why, size_t why_bytes);

#endif
