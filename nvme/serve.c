// SPDX-License-Identifier: MIT
/*
 * Serves a controller to other processes. One thread answers all clients, and looks after the controller.
 *
 * How a client ends, always in this order: its queues are deleted, after which the controller uses none of
 * its memory; then what it had mapped is unmapped, and its descriptor revoked; then its ids are free, and
 * its socket is closed. A controller that cannot delete a queue is reset, which deletes all.
 */
#include "serve.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_MODE 0600
#define DEFAULT_CLIENTS 16u
#define DEFAULT_QUEUES 8u
#define MAX_CLIENTS 1024u
#define MORE_PLACES 8u /* for those that are told that there are too many */
/* In the list of descriptors: before them the wake-up, the socket, and the controller's. */
#define FIRST_CLIENT 3u
#define LOOK_MS 1000 /* how often the controller is looked at */

void pl_nvme_server_note(struct peerlane_nvme_server *s, enum peerlane_nvme_serve_what what,
			 const struct pl_nvme_client *client, unsigned int nr_queues, int err)
{
	struct peerlane_nvme_serve_event event = {
		.what = what,
		.client = client ? client->number : 0,
		.pid = client ? client->cred.pid : 0,
		.uid = client ? client->cred.uid : 0,
		.gid = client ? client->cred.gid : 0,
		.nr_queues = nr_queues,
		.err = err,
	};

	if (s->opt.note)
		s->opt.note(s->opt.arg, &event);
}

/* ------------------------------------------------------------------ clients */

static void free_ids(struct peerlane_nvme_server *s, struct pl_nvme_client *client)
{
	pthread_mutex_lock(&s->nvme->lock);
	for (unsigned int qid = 1; qid < s->nr_qids; qid++)
		if (s->qids[qid].client == client) {
			s->qids[qid] = (struct pl_nvme_qid){ .client = NULL };
			pl_nvme_qid_give(s->nvme, (uint16_t)qid);
		}
	pthread_mutex_unlock(&s->nvme->lock);
}

static void take_back(struct peerlane_nvme_server *s, struct pl_nvme_client *client, int err)
{
	struct pl_nvme_transport *t = s->nvme->t;
	struct pl_nvme_client was = *client;
	unsigned int nr = 0;

	for (unsigned int qid = 1; qid < s->nr_qids; qid++)
		nr += s->qids[qid].client == client && s->qids[qid].has_sq;
	/* One that does not stop may still write: then all stays until it is closed. */
	if (!pl_nvme_client_delete_queues(s, client) && client->greeted)
		t->ops->revoke(t, client->grant);
	free_ids(s, client);
	close(client->sock);
	s->nr_greeted -= client->greeted;
	*client = (struct pl_nvme_client){ .sock = -1 };
	if (was.greeted)
		pl_nvme_server_note(s, PEERLANE_NVME_SERVE_TAKEN_BACK, &was, nr, err);
}

/* Memory of theirs goes away, and others wait for it: the end of those clients. */
static int end_leaving(struct peerlane_nvme_server *s)
{
	struct pl_nvme_transport *t = s->nvme->t;
	uint64_t id;
	int fd = -1;

	while (t->ops->leaving && (id = t->ops->leaving(t, &fd))) {
		unsigned int i = 0;

		while (i < s->nr_places && (!s->clients[i].greeted || s->clients[i].grant != id))
			i++;
		if (i < s->nr_places)
			take_back(s, &s->clients[i], -EFAULT);
		else
			break;
	}
	return fd;
}

static void take_all_back(struct peerlane_nvme_server *s, int err)
{
	for (unsigned int i = 0; i < s->nr_places; i++)
		if (s->clients[i].sock >= 0)
			take_back(s, &s->clients[i], err);
}

static void let_in(struct peerlane_nvme_server *s)
{
	struct pl_nvme_client new = { .number = ++s->last_number };
	socklen_t bytes = sizeof(new.cred);

	new.sock = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (new.sock < 0)
		return;
	if (getsockopt(new.sock, SOL_SOCKET, SO_PEERCRED, &new.cred, &bytes))
		new.cred = (struct ucred){ .uid = (uid_t)-1, .gid = (gid_t)-1 };
	for (unsigned int i = 0; i < s->nr_places; i++)
		if (s->clients[i].sock < 0) {
			s->clients[i] = new;
			return;
		}
	pl_nvme_server_note(s, PEERLANE_NVME_SERVE_REFUSED, &new, 0, -EBUSY);
	close(new.sock);
}

/* ------------------------------------------------------------------ the controller */

/* Whoever reset it, all queues are gone, and no client knows: they are cut off. */
static void notice_reset(struct peerlane_nvme_server *s)
{
	struct peerlane_nvme *nvme = s->nvme;
	uint32_t generation;
	int dead;

	pthread_mutex_lock(&nvme->lock);
	generation = nvme->generation;
	dead = nvme->dead;
	pthread_mutex_unlock(&nvme->lock);
	if (generation == s->generation)
		return;
	for (unsigned int qid = 1; qid < s->nr_qids; qid++)
		s->qids[qid].has_sq = s->qids[qid].has_cq = false;
	s->generation = generation;
	s->failed = dead != 0;
	pl_nvme_server_note(s, dead ? PEERLANE_NVME_SERVE_FAILED : PEERLANE_NVME_SERVE_RESET, NULL,
			    0, dead ? dead : -ECONNRESET);
	if (!dead)
		take_all_back(s, -ECONNRESET);
}

/* Does it work? It may also have been stopped from outside, when memory of a GPU went away. */
static void look_at_controller(struct peerlane_nvme_server *s)
{
	struct peerlane_nvme *nvme = s->nvme;
	int rc;

	pthread_mutex_lock(&nvme->lock);
	if (!nvme->dead && nvme->generation == s->generation) {
		pl_nvme_admin_poll(nvme);
		rc = pl_nvme_ctrl_check(nvme);
		if (!rc && !(pl_nvme_read32(nvme->bar, PL_NVME_REG_CSTS) & PL_NVME_CSTS_RDY))
			rc = -EIO;
		if (rc == -ENODEV) {
			pl_nvme_give_up(nvme, rc);
		} else if (rc) {
			pl_nvme_reset_locked(nvme);
		}
	}
	pthread_mutex_unlock(&nvme->lock);
}

/* ------------------------------------------------------------------ the thread */

static nfds_t fill_fds(struct peerlane_nvme_server *s)
{
	s->fds[0] = (struct pollfd){ .fd = s->wake, .events = POLLIN };
	/* poll() passes over those that are -1. */
	s->fds[1] = (struct pollfd){ .fd = s->failed ? -1 : s->listener, .events = POLLIN };
	s->fds[2] = (struct pollfd){ .fd = s->failed ? -1 : end_leaving(s), .events = POLLPRI };
	for (unsigned int i = 0; i < s->nr_places; i++)
		s->fds[FIRST_CLIENT + i] = (struct pollfd){
			.fd = s->failed ? -1 : s->clients[i].sock,
			.events = POLLIN,
		};
	return FIRST_CLIENT + s->nr_places;
}

static void *run(void *arg)
{
	struct peerlane_nvme_server *s = arg;
	int nr;

	for (;;) {
		nr = poll(s->fds, fill_fds(s), s->failed ? -1 : LOOK_MS);
		if (nr < 0)
			continue;
		if (s->fds[0].revents)
			break;
		for (unsigned int i = 0; i < s->nr_places && !s->failed; i++) {
			struct pl_nvme_client *client = &s->clients[i];

			if (!s->fds[FIRST_CLIENT + i].revents || client->sock < 0)
				continue;
			if (!pl_nvme_client_serve(s, client))
				take_back(s, client, 0);
			notice_reset(s);
		}
		if (s->fds[1].revents && !s->failed)
			let_in(s);
		if (!nr && !s->failed)
			look_at_controller(s);
		notice_reset(s);
	}
	take_all_back(s, 0);
	return NULL;
}

/* ------------------------------------------------------------------ start and end */

/* Is there a socket that nobody listens at? */
static bool is_stale(const struct sockaddr_un *address)
{
	struct stat st;
	bool stale;
	int sock;

	if (lstat(address->sun_path, &st) || !S_ISSOCK(st.st_mode))
		return false;
	sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (sock < 0)
		return false;
	stale = connect(sock, (const struct sockaddr *)address, sizeof(*address)) &&
		errno == ECONNREFUSED;
	close(sock);
	return stale;
}

static int listen_at(struct peerlane_nvme_server *s)
{
	const struct sockaddr *address = (const struct sockaddr *)&s->address;
	int rc;

	s->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s->listener < 0)
		return -errno;
	/* Nobody may connect before the mode is what it shall be. */
	if (fchmod(s->listener, 0))
		return -errno;
	rc = bind(s->listener, address, sizeof(s->address)) ? -errno : 0;
	if (rc == -EADDRINUSE && is_stale(&s->address) && !unlink(s->address.sun_path))
		rc = bind(s->listener, address, sizeof(s->address)) ? -errno : 0;
	if (rc)
		return rc;
	if (chmod(s->address.sun_path, s->opt.mode) || listen(s->listener, 16)) {
		rc = -errno;
		unlink(s->address.sun_path);
	}
	return rc;
}

static void server_free(struct peerlane_nvme_server *s)
{
	if (s->listener >= 0)
		close(s->listener);
	if (s->wake >= 0)
		close(s->wake);
	free(s->clients);
	free(s->fds);
	free(s->qids);
	free(s);
}

static struct peerlane_nvme_server *server_new(struct peerlane_nvme *nvme,
					       const struct peerlane_nvme_serve_options *opt)
{
	struct peerlane_nvme_server *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->nvme = nvme;
	s->listener = -1;
	s->opt = *opt;
	if (!s->opt.mode)
		s->opt.mode = DEFAULT_MODE;
	if (!s->opt.nr_clients)
		s->opt.nr_clients = DEFAULT_CLIENTS;
	if (!s->opt.nr_queues)
		s->opt.nr_queues = DEFAULT_QUEUES;
	s->generation = nvme->generation;
	s->nr_qids = nvme->nr_queues + 1;
	s->wake = eventfd(0, EFD_CLOEXEC);
	s->nr_places = s->opt.nr_clients + MORE_PLACES;
	s->clients = calloc(s->nr_places, sizeof(*s->clients));
	s->fds = calloc(FIRST_CLIENT + s->nr_places, sizeof(*s->fds));
	s->qids = calloc(s->nr_qids, sizeof(*s->qids));
	if (s->wake < 0 || !s->clients || !s->fds || !s->qids) {
		server_free(s);
		return NULL;
	}
	for (unsigned int i = 0; i < s->nr_places; i++)
		s->clients[i].sock = -1;
	return s;
}

/* Can it be shared at all? Better known now than by the first client. */
static int try_grant(struct peerlane_nvme *nvme)
{
	struct pl_nvme_transport *t = nvme->t;
	struct pl_nvme_grant grant;
	int rc;

	if (!t->ops->grant || nvme->has_dbbuf)
		return -EOPNOTSUPP;
	rc = t->ops->grant(t, PL_NVME_DOORBELL_CQ(nvme->nr_queues, nvme->dstrd) + 4, &grant);
	if (rc)
		return rc;
	close(grant.fd);
	t->ops->revoke(t, grant.id);
	return 0;
}

int peerlane_nvme_serve(struct peerlane_nvme *nvme, const char *path,
			const struct peerlane_nvme_serve_options *opt,
			struct peerlane_nvme_server **out)
{
	static const struct peerlane_nvme_serve_options defaults = { .size = sizeof(defaults) };
	struct peerlane_nvme_server *s;
	int rc;

	if (!opt)
		opt = &defaults;
	if (!nvme || !path || !*path || !out || strlen(path) >= sizeof(s->address.sun_path) ||
	    opt->size != sizeof(*opt) || opt->mode & ~(mode_t)0777 ||
	    opt->nr_clients > MAX_CLIENTS || opt->nr_queues > PL_NVME_MAX_QUEUES)
		return -EINVAL;
	rc = nvme->dead ? nvme->dead : try_grant(nvme);
	if (rc)
		return rc;
	s = server_new(nvme, opt);
	if (!s)
		return -ENOMEM;
	s->address.sun_family = AF_UNIX;
	memcpy(s->address.sun_path, path, strlen(path));
	rc = listen_at(s);
	if (rc)
		goto err_free;
	rc = -pthread_create(&s->thread, NULL, run, s);
	if (rc)
		goto err_unlink;
	*out = s;
	return 0;

err_unlink:
	unlink(path);
err_free:
	server_free(s);
	return rc;
}

void peerlane_nvme_unserve(struct peerlane_nvme_server *server)
{
	if (!server)
		return;
	unlink(server->address.sun_path);
	eventfd_write(server->wake, 1);
	pthread_join(server->thread, NULL);
	server_free(server);
}
