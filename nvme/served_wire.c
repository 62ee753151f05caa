// SPDX-License-Identifier: MIT
/* Messages with data and a descriptor. */
#include "served_wire.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int pl_nvme_served_send(int sock, const void *message, size_t bytes, const void *data,
			size_t data_bytes, int fd)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov[2] = { { (void *)message, bytes }, { (void *)data, data_bytes } };
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = data_bytes ? 2 : 1 };
	struct cmsghdr *cmsg;
	ssize_t n;

	if (fd >= 0) {
		msg.msg_control = control;
		msg.msg_controllen = sizeof(control);
		cmsg = CMSG_FIRSTHDR(&msg);
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(cmsg), &fd, sizeof(fd));
	}
	do
		n = sendmsg(sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EWOULDBLOCK ? -EAGAIN : -errno;
	return (size_t)n == bytes + data_bytes ? 0 : -EPROTO;
}

int pl_nvme_served_receive(int sock, void *message, size_t bytes, void *data, size_t room, int *fd)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
	struct iovec iov[2] = { { message, bytes }, { data, room } };
	struct msghdr msg = { .msg_iov = iov, .msg_iovlen = room ? 2 : 1 };
	ssize_t n;

	/* Room for one descriptor and, without the padding, not for a second. */
	if (fd) {
		*fd = -1;
		msg.msg_control = control;
		msg.msg_controllen = CMSG_LEN(sizeof(int));
	}
	do
		n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EWOULDBLOCK ? -EAGAIN : errno == ECONNRESET ? -EPIPE : -errno;
	for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg); fd && cmsg; cmsg = CMSG_NXTHDR(&msg, cmsg))
		if (cmsg->cmsg_level == SOL_SOCKET && cmsg->cmsg_type == SCM_RIGHTS &&
		    cmsg->cmsg_len == CMSG_LEN(sizeof(int)))
			memcpy(fd, CMSG_DATA(cmsg), sizeof(*fd));
	if ((size_t)n >= bytes && !(msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
		return (int)((size_t)n - bytes);
	if (fd && *fd >= 0) {
		close(*fd);
		*fd = -1;
	}
	return n ? -EPROTO : -EPIPE;
}
