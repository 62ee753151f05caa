// SPDX-License-Identifier: MIT
/* Serves a controller to other processes. One thread answers all clients. */
#include "ctrl.h"

#include "owner.h"
#include "wire.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define MAX_CLIENTS 64u
/* By agreement clients use addresses of different ranges, of 64 GiB each. */
#define NR_RANGES 1024u
#define RANGE_SHIFT 36
#define FIRST_CLIENT 2u /* in the list of descriptors: before them the wake-up and the socket */

/* What is known of a client; its descriptor is in the list of descriptors. */
struct peer {
	uint64_t owner;
	uint64_t parent; /* the client that granted it, or 0 */
	bool over;	 /* to be dropped */
};

struct pl_simnvme_server {
	struct pl_simnvme *c;
	struct sockaddr_un address; /* empty: one client, that came with it */
	pthread_t thread;
	/* Only the thread uses these, but for the first one, an eventfd that ends it. */
	struct pollfd fds[FIRST_CLIENT + MAX_CLIENTS];
	struct peer peers[FIRST_CLIENT + MAX_CLIENTS];
	nfds_t nr;
	uint64_t last_owner;
};

/* -ENOSPC if there are too many. */
static int enter_client(struct pl_simnvme_server *s, int fd, uint64_t parent)
{
	if (s->nr == FIRST_CLIENT + MAX_CLIENTS)
		return -ENOSPC;
	s->fds[s->nr] = (struct pollfd){ .fd = fd, .events = POLLIN };
	s->peers[s->nr] = (struct peer){ .owner = ++s->last_owner, .parent = parent };
	s->nr++;
	return 0;
}

static void add_client(struct pl_simnvme_server *s)
{
	int fd = accept4(s->fds[1].fd, NULL, NULL, SOCK_CLOEXEC);

	if (fd >= 0 && enter_client(s, fd, 0))
		close(fd);
}

static void drop_client(struct pl_simnvme_server *s, nfds_t i)
{
	uint64_t owner = s->peers[i].owner;

	pl_sn_owner_gone(s->c, owner);
	if (s->fds[i].fd >= 0)
		close(s->fds[i].fd);
	s->nr--;
	s->fds[i] = s->fds[s->nr];
	s->peers[i] = s->peers[s->nr];
	/* After it, those that it had granted. */
	for (i = FIRST_CLIENT; i < s->nr; i++)
		if (s->peers[i].parent == owner)
			s->peers[i].over = true;
}

static void drop_those_over(struct pl_simnvme_server *s)
{
	for (nfds_t i = FIRST_CLIENT; i < s->nr;)
		if (s->peers[i].over) {
			drop_client(s, i);
			i = FIRST_CLIENT;
		} else {
			i++;
		}
}

/* A client has ended. What a granted one has mapped stays, for commands that are under way. */
static void client_ended(struct pl_simnvme_server *s, nfds_t i)
{
	if (s->peers[i].parent && !s->peers[i].over) {
		close(s->fds[i].fd);
		s->fds[i].fd = -1; /* which poll() passes over */
	} else {
		s->peers[i].over = true;
	}
}

static int grant(struct pl_simnvme_server *s, uint64_t parent, struct pl_sn_answer *answer,
		 int *give)
{
	int pair[2], rc;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return -errno;
	rc = enter_client(s, pair[0], parent);
	if (rc) {
		close(pair[0]);
		close(pair[1]);
		return rc;
	}
	answer->base = s->last_owner;
	*give = pair[1];
	return 0;
}

static int end_granted(struct pl_simnvme_server *s, uint64_t parent, uint64_t owner)
{
	for (nfds_t i = FIRST_CLIENT; i < s->nr; i++)
		if (s->peers[i].parent == parent && s->peers[i].owner == owner) {
			pl_sn_owner_revoke(s->c, owner);
			s->peers[i].over = true;
			return 0;
		}
	return -ENOENT;
}

/* Answer with a descriptor that is kept, or given away; -1: with none. */
struct gift {
	int keep;
	int give;
};

static int carry_out(struct pl_simnvme_server *s, nfds_t i, const struct pl_sn_request *r, int fd,
		     struct pl_sn_answer *answer, struct gift *gift)
{
	uint64_t owner = s->peers[i].owner;

	/* A client that another one let in has its memory and the doorbells, and no more. */
	if (s->peers[i].parent &&
	    (r->op == PL_SN_WIRE_RESET || r->op == PL_SN_WIRE_GRANT || r->op == PL_SN_WIRE_REVOKE))
		return -EPERM;
	switch (r->op) {
	case PL_SN_WIRE_HELLO:
		answer->bytes = s->c->bar_bytes;
		answer->base = (owner % NR_RANGES) << RANGE_SHIFT;
		if (r->iova != PL_SN_WIRE_VERSION)
			return -EPROTO;
		gift->keep = s->c->bar_fd;
		return 0;
	case PL_SN_WIRE_MAP:
		return pl_sn_owner_map(s->c, owner, r->iova, fd, r->offset, r->bytes, r->access);
	case PL_SN_WIRE_UNMAP:
		return pl_sn_owner_unmap(s->c, owner, r->iova, r->bytes);
	case PL_SN_WIRE_GRANT:
		return grant(s, owner, answer, &gift->give);
	case PL_SN_WIRE_REVOKE:
		return end_granted(s, owner, r->iova);
	case PL_SN_WIRE_RESET:
		pl_simnvme_reset(s->c);
		return 0;
	case PL_SN_WIRE_COUNTERS:
		pl_simnvme_counters(s->c, &answer->counters);
		return 0;
	default:
		return -EPROTO;
	}
}

/* One request of a client: false if it is to be dropped. */
static bool serve_client(struct pl_simnvme_server *s, nfds_t i)
{
	struct pl_sn_answer answer = { 0 };
	struct gift gift = { -1, -1 };
	struct pl_sn_request request;
	bool sent;
	int fd;

	if (pl_sn_wire_receive(s->fds[i].fd, &request, sizeof(request), &fd))
		return false;
	answer.rc = carry_out(s, i, &request, fd, &answer, &gift);
	if (fd >= 0)
		close(fd);
	sent = !pl_sn_wire_send(s->fds[i].fd, &answer, sizeof(answer),
				gift.give >= 0 ? gift.give : gift.keep);
	if (gift.give >= 0)
		close(gift.give);
	return sent;
}

static void *run(void *arg)
{
	struct pl_simnvme_server *s = arg;

	for (;;) {
		if (poll(s->fds, s->nr, -1) < 0)
			continue;
		if (s->fds[0].revents)
			break;
		/* Those that are granted meanwhile come behind, and have no events yet. */
		for (nfds_t i = FIRST_CLIENT; i < s->nr; i++)
			if (s->fds[i].revents && !serve_client(s, i))
				client_ended(s, i);
		drop_those_over(s);
		if (s->fds[1].revents)
			add_client(s);
	}
	while (s->nr > FIRST_CLIENT)
		drop_client(s, FIRST_CLIENT);
	return NULL;
}

/* Serve who asks at @sock, a socket that listens, or -1. */
static int start(struct pl_simnvme_server *s, int sock)
{
	int rc, wake = eventfd(0, EFD_CLOEXEC);

	if (wake < 0)
		return -errno;
	s->fds[0] = (struct pollfd){ .fd = wake, .events = POLLIN };
	s->fds[1] = (struct pollfd){ .fd = sock, .events = POLLIN };
	rc = -pthread_create(&s->thread, NULL, run, s);
	if (rc)
		close(wake);
	return rc;
}

static struct pl_simnvme_server *make_server(struct pl_simnvme *c)
{
	struct pl_simnvme_server *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->c = c;
	s->nr = FIRST_CLIENT;
	return s;
}

int pl_simnvme_serve_one(struct pl_simnvme *c, int sock, struct pl_simnvme_server **out)
{
	struct pl_simnvme_server *s = make_server(c);
	int rc;

	if (!s)
		return -ENOMEM;
	enter_client(s, sock, 0);
	rc = start(s, -1);
	if (rc)
		free(s);
	else
		*out = s;
	return rc;
}

int pl_simnvme_serve(struct pl_simnvme *c, const char *path, struct pl_simnvme_server **out)
{
	struct pl_simnvme_server *s;
	int sock, rc;

	if (strlen(path) >= sizeof(s->address.sun_path))
		return -ENAMETOOLONG;
	s = make_server(c);
	if (!s)
		return -ENOMEM;
	s->address.sun_family = AF_UNIX;
	memcpy(s->address.sun_path, path, strlen(path));
	sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (sock < 0) {
		rc = -errno;
		goto err_free;
	}
	if (bind(sock, (struct sockaddr *)&s->address, sizeof(s->address))) {
		rc = -errno;
		goto err_close_sock;
	}
	if (listen(sock, 8)) {
		rc = -errno;
		goto err_unlink;
	}
	rc = start(s, sock);
	if (rc)
		goto err_unlink;
	*out = s;
	return 0;

err_unlink:
	unlink(path);
err_close_sock:
	close(sock);
err_free:
	free(s);
	return rc;
}

void pl_simnvme_unserve(struct pl_simnvme_server *s)
{
	if (!s)
		return;
	eventfd_write(s->fds[0].fd, 1);
	pthread_join(s->thread, NULL);
	if (s->address.sun_path[0])
		unlink(s->address.sun_path);
	close(s->fds[0].fd);
	if (s->fds[1].fd >= 0)
		close(s->fds[1].fd);
	free(s);
}
