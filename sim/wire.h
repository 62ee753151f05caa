/* SPDX-License-Identifier: MIT */
/* What a server of a controller and its clients say to each other, over a SOCK_SEQPACKET socket. */
#ifndef SIM_WIRE_H
#define SIM_WIRE_H

#include "simnvme.h"

#define PL_SN_WIRE_VERSION 1u

enum pl_sn_wire_op {
	PL_SN_WIRE_HELLO, /* iova: version; the answer brings BAR0 as a descriptor */
	PL_SN_WIRE_MAP,	  /* brings a descriptor */
	PL_SN_WIRE_UNMAP,
	PL_SN_WIRE_RESET,
	PL_SN_WIRE_COUNTERS,
	PL_SN_WIRE_GRANT, /* the answer brings a connection for another process; base: its number */
	PL_SN_WIRE_REVOKE, /* iova: that number */
};

struct pl_sn_request {
	uint32_t op;
	uint32_t access;
	uint64_t iova;
	uint64_t offset;
	uint64_t bytes;
};

struct pl_sn_answer {
	int32_t rc;
	uint32_t reserved;
	uint64_t bytes;
	uint64_t base; /* HELLO: first of the bus addresses that are this client's */
	struct pl_simnvme_counters counters;
};

/* Send a message with a descriptor (-1: without): 0 or a negative errno. */
int pl_sn_wire_send(int sock, const void *message, size_t bytes, int fd);
/*
 * Receive one of exactly these bytes. A descriptor that came with it becomes the caller's, else *fd is
 * -1. 0, -EPIPE at the end, -EPROTO for another size, or a negative errno.
 */
int pl_sn_wire_receive(int sock, void *message, size_t bytes, int *fd);

#endif
