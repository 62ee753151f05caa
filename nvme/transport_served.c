// SPDX-License-Identifier: MIT
/*
 * Controllers that another process, the owner, has and serves ("served:PATH" of its socket).
 *
 * Commands on the admin queue are the owner's: it is asked for them. Queues, memory and doorbells are this
 * process's own, by a descriptor that the owner has granted and another transport makes use of.
 *
 * The owner is gone when that descriptor is, not already when the socket is: only then is it certain that the
 * controller is done with our memory. If the owner does not answer, nobody knows, so nothing is
 * unmapped any more; what is mapped ends when the owner takes it back.
 */
#include "mapping.h"
#include "served_wire.h"
#include "transports.h"
#include "why.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define NSEC 1000000000u
#define HELLO_NS (60ull * NSEC)
/* Between the end of the socket and that of the descriptor: an owner that dies closes both. */
#define GONE_NS (60ull * NSEC)

struct served {
	struct pl_nvme_transport base;
	struct pl_nvme_transport *inner; /* of the descriptor */
	int sock;
	pthread_mutex_t lock; /* one question at a time; guards seq */
	uint32_t seq;
	bool silent; /* atomic: the owner did not answer */
};

static struct served *of(struct pl_nvme_transport *t)
{
	return (struct served *)t;
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * NSEC + (uint64_t)ts.tv_nsec;
}

/* Wait until the socket can be read or, with POLLOUT, written: 0 or -ETIMEDOUT. */
static int wait_for(const struct served *s, short what, uint64_t until)
{
	struct pollfd fd = { .fd = s->sock, .events = what };
	uint64_t now = now_ns(), ms = now < until ? (until - now) / 1000000 + 1 : 0;
	int nr = poll(&fd, 1, ms > INT32_MAX ? INT32_MAX : (int)ms);

	if (nr < 0)
		return errno == EINTR ? 0 : -errno;
	return nr ? 0 : -ETIMEDOUT;
}

/* Of the answer, the bytes of data behind it; or a negative errno. */
static int receive(struct served *s, uint32_t seq, struct pl_nvme_answer *answer, void *data,
		   size_t room, int *fd, uint64_t until)
{
	int rc;

	for (;;) {
		rc = wait_for(s, POLLIN, until);
		if (rc)
			return rc;
		rc = pl_nvme_served_receive(s->sock, answer, sizeof(*answer), data, room, fd);
		if (rc == -EAGAIN)
			continue;
		if (rc < 0 || answer->seq == seq)
			return rc;
		/* What was asked before, and not waited for, is answered too. */
		if (fd && *fd >= 0)
			close(*fd);
	}
}

static int exchange(struct served *s, struct pl_nvme_ask *ask, struct pl_nvme_answer *answer,
		    void *data, size_t room, int *fd, uint64_t timeout_ns)
{
	uint64_t until = now_ns() + timeout_ns;
	int rc;

	*answer = (struct pl_nvme_answer){ .rc = 0 };
	ask->seq = s->seq++;
	while ((rc = pl_nvme_served_send(s->sock, ask, sizeof(*ask), NULL, 0, -1)) == -EAGAIN) {
		rc = wait_for(s, POLLOUT, until);
		if (rc)
			return rc;
	}
	if (!rc)
		rc = receive(s, ask->seq, answer, data, room, fd, until);
	if (rc < 0)
		return rc;
	return answer->rc || (uint32_t)rc == answer->bytes ? 0 : -EPROTO;
}

/* The owner has hung up: wait until what it granted has ended as well. */
static void await_gone(const struct served *s)
{
	static const struct timespec moment = { .tv_nsec = 1000000 };
	uint64_t until = now_ns() + GONE_NS;

	while (s->inner && !s->inner->ops->gone(s->inner) && now_ns() < until)
		nanosleep(&moment, NULL);
}

/* Ask, and wait for the answer: its rc; -ENODEV, -ETIMEDOUT. */
static int ask_owner(struct served *s, struct pl_nvme_ask *ask, struct pl_nvme_answer *answer,
		     void *data, size_t room, int *fd, uint64_t timeout_ns)
{
	int rc;

	pthread_mutex_lock(&s->lock);
	rc = exchange(s, ask, answer, data, room, fd, timeout_ns);
	pthread_mutex_unlock(&s->lock);
	if (!rc)
		return answer->rc > 0 ? -EPROTO : answer->rc;
	__atomic_store_n(&s->silent, true, __ATOMIC_RELAXED);
	if (rc == -ETIMEDOUT)
		return rc;
	/* One that talks nonsense is as one that hung up. */
	shutdown(s->sock, SHUT_RDWR);
	await_gone(s);
	return -ENODEV;
}

static int served_admin(struct pl_nvme_transport *t, const struct pl_nvme_sqe *sqe, void *data,
			size_t bytes, uint64_t timeout_ns, struct pl_nvme_cqe *cqe)
{
	struct pl_nvme_ask ask = { .op = PL_NVME_ASK_ADMIN, .bytes = (uint32_t)bytes, .sqe = *sqe };
	struct pl_nvme_answer answer;
	int rc;

	if (bytes > PL_NVME_REMOTE_BYTES)
		return -EINVAL;
	/* Only from the controller: the owner allows no command with data for it. */
	if (bytes && !(sqe->opcode & 2))
		return -EPERM;
	rc = ask_owner(of(t), &ask, &answer, data, bytes, NULL, timeout_ns);
	if (rc)
		return rc;
	/* All of it, unless the command failed. */
	if (answer.bytes != bytes && !(answer.cqe.status & ~PL_NVME_CQE_PHASE))
		return -EPROTO;
	*cqe = answer.cqe;
	return 0;
}

static int served_take_queue(struct pl_nvme_transport *t, uint64_t timeout_ns, uint16_t *qid)
{
	struct pl_nvme_ask ask = { .op = PL_NVME_ASK_TAKE_QUEUE };
	struct pl_nvme_answer answer;
	uint64_t cap = *(const volatile uint64_t *)((volatile char *)t->bar0.ptr + PL_NVME_REG_CAP);
	int rc = ask_owner(of(t), &ask, &answer, NULL, 0, NULL, timeout_ns);

	if (rc)
		return rc;
	if (!answer.value || answer.value > UINT16_MAX ||
	    PL_NVME_DOORBELL_CQ(answer.value, PL_NVME_CAP_DSTRD(cap)) + 4 > t->bar0.bytes)
		return -EPROTO;
	*qid = (uint16_t)answer.value;
	return 0;
}

static void served_give_queue(struct pl_nvme_transport *t, uint64_t timeout_ns, uint16_t qid)
{
	struct pl_nvme_ask ask = { .op = PL_NVME_ASK_GIVE_QUEUE, .value = qid };
	struct pl_nvme_answer answer;

	ask_owner(of(t), &ask, &answer, NULL, 0, NULL, timeout_ns);
}

static int served_restart(struct pl_nvme_transport *t, uint64_t timeout_ns)
{
	struct pl_nvme_ask ask = { .op = PL_NVME_ASK_RESTART };
	struct pl_nvme_answer answer;
	int rc = ask_owner(of(t), &ask, &answer, NULL, 0, NULL, timeout_ns);

	/* Then it does answer, and the controller is done with what we have mapped. */
	if (!rc)
		__atomic_store_n(&of(t)->silent, false, __ATOMIC_RELAXED);
	return rc;
}

static int served_map(struct pl_nvme_transport *t, const struct pl_nvme_region *region,
		      const struct pl_nvme_mapping **out)
{
	return of(t)->inner->ops->map(of(t)->inner, region, out);
}

static int served_alloc(struct pl_nvme_transport *t, size_t bytes,
			const struct pl_nvme_mapping **out)
{
	return of(t)->inner->ops->alloc(of(t)->inner, bytes, out);
}

/* May the controller still use what is mapped? Then it stays, until the owner takes it back. */
static bool in_doubt(const struct served *s)
{
	return __atomic_load_n(&s->silent, __ATOMIC_RELAXED) && !s->inner->ops->gone(s->inner);
}

static void served_unmap(struct pl_nvme_transport *t, const struct pl_nvme_mapping *mapping)
{
	if (!in_doubt(of(t)))
		of(t)->inner->ops->unmap(of(t)->inner, mapping);
}

static void served_free(struct pl_nvme_transport *t, const struct pl_nvme_mapping *mapping)
{
	if (!in_doubt(of(t)))
		of(t)->inner->ops->free(of(t)->inner, mapping);
}

static bool served_gone(struct pl_nvme_transport *t)
{
	return of(t)->inner->ops->gone(of(t)->inner);
}

static void served_close(struct pl_nvme_transport *t)
{
	struct served *s = of(t);

	if (s->inner)
		s->inner->ops->close(s->inner);
	if (s->sock >= 0)
		close(s->sock);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

static int connect_to(struct served *s, const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	if (!*path || strlen(path) >= sizeof(address.sun_path)) {
		pl_nvme_why("the path of the socket is missing or too long");
		return -EINVAL;
	}
	memcpy(address.sun_path, path, strlen(path));
	s->sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (s->sock < 0)
		return -errno;
	if (!connect(s->sock, (struct sockaddr *)&address, sizeof(address)))
		return 0;
	if (errno != ENOENT && errno != ECONNREFUSED)
		return -errno;
	pl_nvme_why("nobody serves there");
	return -ENODEV;
}

static int say_hello(struct served *s)
{
	struct pl_nvme_ask ask = { .op = PL_NVME_ASK_HELLO, .value = PL_NVME_SERVED_VERSION };
	struct pl_nvme_answer answer;
	int fd = -1, rc = ask_owner(s, &ask, &answer, NULL, 0, &fd, HELLO_NS);

	if (!rc && (fd < 0 || !memchr(answer.kind, 0, sizeof(answer.kind))))
		rc = -EPROTO;
	if (rc == -EBUSY)
		pl_nvme_why("it is served to as many as can be");
	if (rc) {
		if (fd >= 0)
			close(fd);
		return rc;
	}
	rc = pl_nvme_transport_adopt(answer.kind, fd, &s->inner);
	if (rc)
		return rc;
	s->base.bar0 = s->inner->bar0;
	s->base.nr_queues = answer.value;
	return 0;
}

static int served_open(const char *address, struct pl_nvme_transport **out)
{
	struct served *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return -ENOMEM;
	s->base.ops = &pl_nvme_transport_served;
	s->sock = -1;
	pthread_mutex_init(&s->lock, NULL);
	rc = connect_to(s, address);
	if (!rc)
		rc = say_hello(s);
	if (rc) {
		served_close(&s->base);
		return rc;
	}
	*out = &s->base;
	return 0;
}

static const struct pl_nvme_remote_ops remote = {
	.admin = served_admin,
	.take_queue = served_take_queue,
	.give_queue = served_give_queue,
	.restart = served_restart,
};

const struct pl_nvme_transport_ops pl_nvme_transport_served = {
	.name = "served",
	.open = served_open,
	.close = served_close,
	.map = served_map,
	.unmap = served_unmap,
	.alloc = served_alloc,
	.free = served_free,
	.gone = served_gone,
	.remote = &remote,
};
