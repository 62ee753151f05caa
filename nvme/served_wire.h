/* SPDX-License-Identifier: MIT */
/*
 * What the owner of a controller and its clients say to each other, over a Unix socket of type
 * SOCK_SEQPACKET: a client asks, the owner answers, one after the other. Both are of one machine, and of
 * one byte order.
 */
#ifndef PL_NVME_SERVED_WIRE_H
#define PL_NVME_SERVED_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include <peerlane/nvme_spec.h>

#define PL_NVME_SERVED_VERSION 1u

enum pl_nvme_ask_op {
	PL_NVME_ASK_HELLO =
		1, /* value: version; the answer brings a descriptor, its kind, queues */
	PL_NVME_ASK_TAKE_QUEUE, /* the answer's value: the id */
	PL_NVME_ASK_GIVE_QUEUE, /* value: the id; it has been deleted */
	PL_NVME_ASK_ADMIN,	/* sqe; bytes: of data that shall come back */
	PL_NVME_ASK_RESTART,	/* delete all queues of this client */
};

struct pl_nvme_ask {
	uint32_t op;
	uint32_t seq; /* comes back */
	uint32_t bytes;
	uint32_t value;
	struct pl_nvme_sqe sqe;
};

/* Followed by data. */
struct pl_nvme_answer {
	uint32_t seq;
	int32_t rc; /* 0 or a negative errno: that of the owner, not of the command */
	uint32_t bytes;
	uint32_t value;
	struct pl_nvme_cqe cqe;
	char kind[16];
};

_Static_assert(sizeof(struct pl_nvme_ask) == 80, "no hidden padding");
_Static_assert(sizeof(struct pl_nvme_answer) == 48, "no hidden padding");

/* Send a message, with data and a descriptor (-1: without). Does not wait: -EAGAIN. */
int pl_nvme_served_send(int sock, const void *message, size_t bytes, const void *data,
			size_t data_bytes, int fd);
/*
 * Receive a message of @bytes, and up to @room of data behind it, whose number is returned. A
 * descriptor becomes the caller's, else *fd is -1; with @fd NULL none is taken. Does not wait: -EAGAIN. -EPIPE
 * the other end is closed, -EPROTO the message is shorter or longer, or has descriptors too many.
 */
int pl_nvme_served_receive(int sock, void *message, size_t bytes, void *data, size_t room, int *fd);

#endif
