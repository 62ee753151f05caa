/* SPDX-License-Identifier: MIT */
/* The inside of a server of a controller. All of it belongs to the server's thread. */
#ifndef PL_NVME_SERVE_H
#define PL_NVME_SERVE_H

#include "ctrl.h"
#include "served_wire.h"

#include <peerlane/nvme_serve.h>

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

struct pl_nvme_client {
	int sock; /* -1: a free place */
	bool greeted;
	uint64_t grant; /* of the transport, when greeted */
	unsigned int number;
	unsigned int nr_queues; /* ids taken */
	struct ucred cred;
};

/* What is known of a queue id. */
struct pl_nvme_qid {
	struct pl_nvme_client *client; /* whose it is, or NULL */
	bool has_cq, has_sq;	       /* in the controller */
};

struct peerlane_nvme_server {
	struct peerlane_nvme *nvme;
	struct sockaddr_un address;
	struct peerlane_nvme_serve_options opt;
	pthread_t thread;
	int listener;
	int wake; /* an eventfd that ends the thread */
	uint32_t generation;
	unsigned int last_number;
	bool failed;
	unsigned int nr_greeted;
	unsigned int nr_places;		/* more than opt.nr_clients */
	struct pl_nvme_client *clients; /* nr_places */
	struct pollfd *fds;		/* and some more */
	struct pl_nvme_qid *qids;	/* by id */
	unsigned int nr_qids;		/* highest id, and 1 */
	char data[PL_NVME_REMOTE_BYTES];
};

/* serve_client.c */

/* One question of a client: false if it is to be ended. */
bool pl_nvme_client_serve(struct peerlane_nvme_server *s, struct pl_nvme_client *client);
/*
 * Delete all queues of a client. If that cannot be done the controller is reset, so in the end it uses no
 * memory of the client: 0, or the error with which the controller was given up instead.
 */
int pl_nvme_client_delete_queues(struct peerlane_nvme_server *s, struct pl_nvme_client *client);

/* serve.c */

void pl_nvme_server_note(struct peerlane_nvme_server *s, enum peerlane_nvme_serve_what what,
			 const struct pl_nvme_client *client, unsigned int nr_queues, int err);

#endif
