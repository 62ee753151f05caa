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

struct pl_simnvme_server {
	struct pl_simnvme *c;
	struct sockaddr_un address;
	pthread_t thread;
	/* Only the thread uses these, but for the first one, an eventfd that ends it. */
	struct pollfd fds[FIRST_CLIENT + MAX_CLIENTS];
	uint64_t owner[FIRST_CLIENT + MAX_CLIENTS];
	nfds_t nr;
	uint64_t last_owner;
};

static void add_client(struct pl_simnvme_server *s)
{
	int fd = accept4(s->fds[1].fd, NULL, NULL, SOCK_CLOEXEC);

	if (fd < 0)
		return;
	if (s->nr == FIRST_CLIENT + MAX_CLIENTS) {
		close(fd);
		return;
	}
	s->fds[s->nr] = (struct pollfd){ .fd = fd, .events = POLLIN };
	s->owner[s->nr] = ++s->last_owner;
	s->nr++;
}

static void drop_client(struct pl_simnvme_server *s, nfds_t i)
{
	pl_sn_owner_gone(s->c, s->owner[i]);
	close(s->fds[i].fd);
	s->nr--;
	s->fds[i] = s->fds[s->nr];
	s->owner[i] = s->owner[s->nr];
}

static int carry_out(struct pl_simnvme_server *s, nfds_t i, const struct pl_sn_request *r, int fd,
		     struct pl_sn_answer *answer)
{
	switch (r->op) {
	case PL_SN_WIRE_HELLO:
		answer->bytes = s->c->bar_bytes;
		answer->base = (s->owner[i] % NR_RANGES) << RANGE_SHIFT;
		return r->iova == PL_SN_WIRE_VERSION ? 0 : -EPROTO;
	case PL_SN_WIRE_MAP:
		return pl_sn_owner_map(s->c, s->owner[i], r->iova, fd, r->offset, r->bytes,
				       r->access);
	case PL_SN_WIRE_UNMAP:
		return pl_sn_owner_unmap(s->c, s->owner[i], r->iova, r->bytes);
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
	struct pl_sn_request request;
	int fd, give = -1;

	if (pl_sn_wire_receive(s->fds[i].fd, &request, sizeof(request), &fd))
		return false;
	answer.rc = carry_out(s, i, &request, fd, &answer);
	if (fd >= 0)
		close(fd);
	if (request.op == PL_SN_WIRE_HELLO && !answer.rc)
		give = s->c->bar_fd;
	return !pl_sn_wire_send(s->fds[i].fd, &answer, sizeof(answer), give);
}

static void *run(void *arg)
{
	struct pl_simnvme_server *s = arg;

	for (;;) {
		if (poll(s->fds, s->nr, -1) < 0)
			continue;
		if (s->fds[0].revents)
			break;
		/* From the end: a client that is dropped is replaced by the last one, seen already. */
		for (nfds_t i = s->nr; i-- > FIRST_CLIENT;)
			if (s->fds[i].revents && !serve_client(s, i))
				drop_client(s, i);
		if (s->fds[1].revents)
			add_client(s);
	}
	while (s->nr > FIRST_CLIENT)
		drop_client(s, s->nr - 1);
	return NULL;
}

int pl_simnvme_serve(struct pl_simnvme *c, const char *path, struct pl_simnvme_server **out)
{
	struct pl_simnvme_server *s;
	int sock, wake, rc;

	if (strlen(path) >= sizeof(s->address.sun_path))
		return -ENAMETOOLONG;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->c = c;
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
	wake = eventfd(0, EFD_CLOEXEC);
	if (wake < 0) {
		rc = -errno;
		goto err_unlink;
	}
	s->fds[0] = (struct pollfd){ .fd = wake, .events = POLLIN };
	s->fds[1] = (struct pollfd){ .fd = sock, .events = POLLIN };
	s->nr = FIRST_CLIENT;
	rc = -pthread_create(&s->thread, NULL, run, s);
	if (rc)
		goto err_close_wake;
	*out = s;
	return 0;

err_close_wake:
	close(wake);
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
	unlink(s->address.sun_path);
	close(s->fds[0].fd);
	close(s->fds[1].fd);
	free(s);
}
