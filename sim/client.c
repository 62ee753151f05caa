// SPDX-License-Identifier: MIT
/* Reaches a controller that another process serves. */
#include "simnvme.h"

#include "wire.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct pl_simnvme_client {
	int sock;
	pthread_mutex_t lock; /* one request at a time */
	void *bar;
	size_t bar_bytes;
	uint64_t base;
};

static int ask(struct pl_simnvme_client *client, const struct pl_sn_request *request, int fd,
	       struct pl_sn_answer *answer, int *got)
{
	int rc;

	*got = -1;
	pthread_mutex_lock(&client->lock);
	rc = pl_sn_wire_send(client->sock, request, sizeof(*request), fd);
	if (!rc)
		rc = pl_sn_wire_receive(client->sock, answer, sizeof(*answer), got);
	pthread_mutex_unlock(&client->lock);
	return rc;
}

/* A request that is answered by a result alone. */
static int ask_plainly(struct pl_simnvme_client *client, const struct pl_sn_request *request,
		       int fd)
{
	struct pl_sn_answer answer;
	int got, rc = ask(client, request, fd, &answer, &got);

	if (got >= 0)
		close(got);
	return rc ? rc : answer.rc;
}

static int say_hello(struct pl_simnvme_client *client)
{
	struct pl_sn_request request = { .op = PL_SN_WIRE_HELLO, .iova = PL_SN_WIRE_VERSION };
	struct pl_sn_answer answer;
	void *bar;
	int fd, rc = ask(client, &request, -1, &answer, &fd);

	if (rc)
		return rc;
	if (answer.rc || fd < 0)
		return answer.rc ? answer.rc : -EPROTO;
	bar = mmap(NULL, answer.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	rc = bar == MAP_FAILED ? -errno : 0;
	close(fd);
	if (rc)
		return rc;
	client->bar = bar;
	client->bar_bytes = answer.bytes;
	client->base = answer.base;
	return 0;
}

int pl_simnvme_adopt(int sock, struct pl_simnvme_client **out)
{
	struct pl_simnvme_client *client = calloc(1, sizeof(*client));
	int rc;

	if (!client) {
		close(sock);
		return -ENOMEM;
	}
	client->sock = sock;
	pthread_mutex_init(&client->lock, NULL);
	rc = say_hello(client);
	if (rc) {
		pl_simnvme_disconnect(client);
		return rc;
	}
	*out = client;
	return 0;
}

int pl_simnvme_connect(const char *path, struct pl_simnvme_client **out)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int sock, rc;

	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	memcpy(address.sun_path, path, strlen(path));
	sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (sock < 0)
		return -errno;
	if (connect(sock, (struct sockaddr *)&address, sizeof(address))) {
		rc = -errno;
		close(sock);
		return rc;
	}
	return pl_simnvme_adopt(sock, out);
}

void pl_simnvme_disconnect(struct pl_simnvme_client *client)
{
	if (!client)
		return;
	if (client->bar)
		munmap(client->bar, client->bar_bytes);
	close(client->sock);
	pthread_mutex_destroy(&client->lock);
	free(client);
}

void *pl_simnvme_client_bar(struct pl_simnvme_client *client, size_t *bytes)
{
	*bytes = client->bar_bytes;
	return client->bar;
}

uint64_t pl_simnvme_client_base(struct pl_simnvme_client *client)
{
	return client->base;
}

int pl_simnvme_client_map(struct pl_simnvme_client *client, uint64_t iova, int fd, uint64_t offset,
			  size_t bytes, unsigned int access)
{
	struct pl_sn_request request = {
		.op = PL_SN_WIRE_MAP,
		.access = access,
		.iova = iova,
		.offset = offset,
		.bytes = bytes,
	};

	return fd < 0 ? -EBADF : ask_plainly(client, &request, fd);
}

int pl_simnvme_client_unmap(struct pl_simnvme_client *client, uint64_t iova, size_t bytes)
{
	struct pl_sn_request request = { .op = PL_SN_WIRE_UNMAP, .iova = iova, .bytes = bytes };

	return ask_plainly(client, &request, -1);
}

int pl_simnvme_client_grant(struct pl_simnvme_client *client, int *sock, uint64_t *id)
{
	struct pl_sn_request request = { .op = PL_SN_WIRE_GRANT };
	struct pl_sn_answer answer;
	int fd, rc = ask(client, &request, -1, &answer, &fd);

	if (!rc)
		rc = answer.rc;
	if (!rc && fd < 0)
		rc = -EPROTO;
	if (rc) {
		if (fd >= 0)
			close(fd);
		return rc;
	}
	*sock = fd;
	*id = answer.base;
	return 0;
}

int pl_simnvme_client_revoke(struct pl_simnvme_client *client, uint64_t id)
{
	struct pl_sn_request request = { .op = PL_SN_WIRE_REVOKE, .iova = id };

	return ask_plainly(client, &request, -1);
}

bool pl_simnvme_client_gone(struct pl_simnvme_client *client)
{
	struct pollfd fd = { .fd = client->sock };

	/* What a closed other end raises is told without being asked for. */
	return poll(&fd, 1, 0) == 1 && fd.revents & (POLLHUP | POLLERR | POLLNVAL);
}

int pl_simnvme_client_reset(struct pl_simnvme_client *client)
{
	struct pl_sn_request request = { .op = PL_SN_WIRE_RESET };

	return ask_plainly(client, &request, -1);
}

int pl_simnvme_client_counters(struct pl_simnvme_client *client, struct pl_simnvme_counters *out)
{
	struct pl_sn_request request = { .op = PL_SN_WIRE_COUNTERS };
	struct pl_sn_answer answer;
	int fd, rc = ask(client, &request, -1, &answer, &fd);

	if (fd >= 0)
		close(fd);
	if (rc || answer.rc)
		return rc ? rc : answer.rc;
	*out = answer.counters;
	return 0;
}
