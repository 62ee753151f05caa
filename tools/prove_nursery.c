/* SPDX-License-Identifier: MIT */
/*
 * Children of prove. CUDA does not survive a fork, so they come from a process that was forked
 * before anything used the GPU and that does nothing but start, watch and kill them, one at a time.
 */
#include "prove.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* A GPU's driver may take long to start. */
#define READY_MS 120000
#define MIB (1u << 20)

enum what {
	BEGIN,
	READY,
	KILL,
};

struct order {
	enum what what;
	enum pl_prove_child kind;
	uint32_t value;
};

static int send_order(int sock, const struct order *order, int fd)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { (void *)order, sizeof(*order) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *c;

	if (fd >= 0) {
		msg.msg_control = control;
		msg.msg_controllen = sizeof(control);
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(int));
	}
	return TEMP_FAILURE_RETRY(sendmsg(sock, &msg, MSG_NOSIGNAL)) == sizeof(*order) ? 0 : -EPIPE;
}

static int receive_order(int sock, struct order *order, int *fd)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { order, sizeof(*order) };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control,
			      .msg_controllen = sizeof(control) };
	struct cmsghdr *c;

	*fd = -1;
	if (recvmsg(sock, &msg, MSG_CMSG_CLOEXEC) != sizeof(*order))
		return -EPIPE;
	c = CMSG_FIRSTHDR(&msg);
	if (c && c->cmsg_type == SCM_RIGHTS)
		memcpy(fd, CMSG_DATA(c), sizeof(int));
	return 0;
}

static void tell(int fd, int value)
{
	if (write(fd, &value, sizeof(value)) != sizeof(value))
		_exit(3);
}

/* Reads by p2p, and writes what is there already, for ever. Only wrong data ends it. */
static int child_read(struct pl_prove *p, int ready)
{
	unsigned char *want = malloc(MIB), *seen = malloc(MIB);
	uint64_t first = pl_prove_half(p), pieces = first / MIB;
	struct peerlane_file *file;
	struct peerlane *ctx;
	void *gpu;

	if (!want || !seen || pl_prove_context(p, 0, &ctx) ||
	    peerlane_gpu_alloc(ctx, (int)p->args->gpu, MIB, &gpu) ||
	    peerlane_file_open(ctx, p->file.path, O_RDWR | O_DIRECT, 0, &file))
		return 3;
	for (unsigned int n = 0;; n++) {
		uint64_t at = pl_prove_random(p, pieces) * MIB;

		if (peerlane_read(file, gpu, MIB, (off_t)at) != MIB)
			return 4;
		pl_prove_file_pattern(want, MIB, at, PL_PROVE_SEED);
		if (peerlane_gpu_copy(ctx, seen, gpu, MIB) || memcmp(seen, want, MIB) != 0)
			return 5;
		/* The last quarter has this content already. */
		at = first + first / 2 + at / 2 / MIB * MIB;
		pl_prove_file_pattern(want, MIB, at, PL_PROVE_SEED);
		if (peerlane_gpu_copy(ctx, gpu, want, MIB) ||
		    peerlane_write(file, gpu, MIB, (off_t)at, 0) != MIB)
			return 6;
		if (!n)
			tell(ready, 0);
	}
}

static int child_main(struct pl_prove *p, const struct order *order, int fd, int ready)
{
	struct peerlane_unpin unpin = { .handle = order->value };
	int err = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	p->random = order->value;
	if (order->kind == PL_PROVE_CHILD_READ)
		return child_read(p, ready);
	if (order->kind == PL_PROVE_CHILD_UNPIN)
		err = ioctl(fd, PEERLANE_IOC_UNPIN, &unpin) ? -errno : 0;
	tell(ready, err);
	for (;;)
		pause();
}

/* Starts a child; *@ready is where it speaks. */
static pid_t begin(struct pl_prove *p, const struct order *order, int fd, int *ready)
{
	int ends[2];
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC))
		return -1;
	pid = fork();
	if (!pid) {
		close(ends[0]);
		close(p->nursery.fd);
		_exit(child_main(p, order, fd, ends[1]));
	}
	close(ends[1]);
	*ready = ends[0];
	return pid;
}

/* What the child says, or -ETIMEDOUT, or -ECHILD when it ended instead. */
static int wait_ready(int fd)
{
	struct pollfd poll_fd = { .fd = fd, .events = POLLIN };
	int value;

	if (poll(&poll_fd, 1, READY_MS) <= 0)
		return -ETIMEDOUT;
	return read(fd, &value, sizeof(value)) == sizeof(value) ? value : -ECHILD;
}

static int end(pid_t pid, int *ready)
{
	int status = 0;

	if (pid <= 0)
		return -ECHILD;
	kill(pid, SIGKILL);
	if (waitpid(pid, &status, 0) != pid)
		status = -ECHILD;
	close(*ready);
	*ready = -1;
	return status;
}

static void serve(struct pl_prove *p)
{
	int sock = p->nursery.fd, ready = -1, fd, answer;
	struct order order;
	pid_t child = 0;

	while (!receive_order(sock, &order, &fd)) {
		answer = 0;
		if (order.what == BEGIN) {
			child = begin(p, &order, fd, &ready);
			answer = child > 0 ? 0 : -EAGAIN;
		} else if (order.what == READY) {
			answer = wait_ready(ready);
		} else {
			answer = end(child, &ready);
			child = 0;
		}
		if (fd >= 0)
			close(fd);
		if (send(sock, &answer, sizeof(answer), MSG_NOSIGNAL) != sizeof(answer))
			break;
	}
	if (child > 0)
		end(child, &ready);
	_exit(0);
}

int pl_prove_nursery_start(struct pl_prove *p)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return -errno;
	fflush(stdout);
	fflush(stderr);
	p->nursery.pid = fork();
	if (p->nursery.pid < 0)
		return -errno;
	if (!p->nursery.pid) {
		/* It ends when the other end is closed, not by the terminal. */
		signal(SIGINT, SIG_IGN);
		signal(SIGHUP, SIG_IGN);
		signal(SIGTERM, SIG_DFL);
		close(ends[0]);
		p->nursery.fd = ends[1];
		serve(p);
	}
	close(ends[1]);
	p->nursery.fd = ends[0];
	return 0;
}

static int ask(struct pl_prove *p, const struct order *order, int fd)
{
	int answer, err = send_order(p->nursery.fd, order, fd);
	ssize_t n;

	if (err)
		return err;
	n = TEMP_FAILURE_RETRY(recv(p->nursery.fd, &answer, sizeof(answer), 0));
	return n == sizeof(answer) ? answer : -EPIPE;
}

int pl_prove_nursery_begin(struct pl_prove *p, enum pl_prove_child kind, int fd, uint32_t value)
{
	return ask(p, &(struct order){ BEGIN, kind, value }, fd);
}

int pl_prove_nursery_ready(struct pl_prove *p)
{
	return ask(p, &(struct order){ .what = READY }, -1);
}

int pl_prove_nursery_kill(struct pl_prove *p)
{
	return ask(p, &(struct order){ .what = KILL }, -1);
}

void pl_prove_nursery_end(struct pl_prove *p)
{
	if (p->nursery.pid <= 0)
		return;
	close(p->nursery.fd);
	waitpid(p->nursery.pid, NULL, 0);
	p->nursery.pid = 0;
}
