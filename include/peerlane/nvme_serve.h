/* SPDX-License-Identifier: MIT */
/*
 * Sharing an NVMe controller between processes of one machine.
 *
 * One process, the owner, opens the controller and serves it at a Unix socket. Others open it there as
 * "served:PATH", with peerlane_nvme_open(), and then drive queue pairs of their own: their submissions and
 * completions do not pass through the owner, which is asked only for what needs the admin queue. When a client
 * ends, however it does, the owner deletes its queues and then lets go of the memory it had mapped.
 */
#ifndef PEERLANE_NVME_SERVE_H
#define PEERLANE_NVME_SERVE_H

#include <stddef.h>
#include <sys/types.h>

#include <peerlane/nvme.h>

#ifdef __cplusplus
extern "C" {
#endif

struct peerlane_nvme_server;

/* What peerlane_nvme_serve_event tells of. */
enum peerlane_nvme_serve_what {
	PEERLANE_NVME_SERVE_GRANTED = 1, /* a client was let in */
	PEERLANE_NVME_SERVE_REFUSED,	 /* one was not */
	PEERLANE_NVME_SERVE_TAKEN_BACK,	 /* one has ended, and has nothing any more */
	PEERLANE_NVME_SERVE_RESET,	 /* the controller was reset; clients are cut off */
	PEERLANE_NVME_SERVE_FAILED,	 /* the controller is dead: unserve and close it */
};

/**
 * struct peerlane_nvme_serve_event - something that happened to a server
 * @what: enum peerlane_nvme_serve_what
 * @client: number of the client, from 1 on; 0 not about one
 * @pid: its process, when it connected
 * @uid: its user
 * @gid: its group
 * @nr_queues: GRANTED: queue pairs it may have; TAKEN_BACK: those it had left, which were deleted
 * @err: REFUSED, RESET, FAILED: why, a negative errno; TAKEN_BACK: why the owner ended it, or 0
 */
struct peerlane_nvme_serve_event {
	enum peerlane_nvme_serve_what what;
	unsigned int client;
	pid_t pid;
	uid_t uid;
	gid_t gid;
	unsigned int nr_queues;
	int err;
};

/**
 * typedef peerlane_nvme_serve_note - is told what happens to a server
 * @arg: of the options
 * @event: what; not valid after the call
 *
 * Context: a thread of the library; it must not call the functions of this header.
 */
typedef void (*peerlane_nvme_serve_note)(void *arg, const struct peerlane_nvme_serve_event *event);

/**
 * struct peerlane_nvme_serve_options - how a controller is served; all zero means defaults
 * @size: sizeof(struct peerlane_nvme_serve_options)
 * @mode: permissions of the socket (default 0600): who may write to it may connect
 * @nr_clients: at a time (default 16)
 * @nr_queues: queue pairs of each (default 8); all of them together have those of the controller
 * @note: is told what happens, or NULL
 * @arg: for @note
 */
struct peerlane_nvme_serve_options {
	size_t size;
	mode_t mode;
	unsigned int nr_clients;
	unsigned int nr_queues;
	peerlane_nvme_serve_note note;
	void *arg;
};

/**
 * peerlane_nvme_serve() - serve a controller to other processes
 * @nvme: controller, opened with PEERLANE_NVME_NO_DBBUF; it can be used as before
 * @path: of the Unix socket, which is created; one that nobody listens at any more is replaced
 * @opt: options, or NULL for defaults
 * @out: receives the server
 *
 * A client is trusted as far as the device goes: it reads and writes the whole drive, and what memory its
 * commands can name nobody checks. What it cannot do is reset, format or set up the controller.
 *
 * Return: 0; -EINVAL a bad option or path; -EOPNOTSUPP the transport cannot share a controller, or shadow
 * doorbells are in use; -EADDRINUSE somebody serves there, or it is no socket; -ENODEV; -ENOMEM; what socket(),
 * bind() or a thread gave.
 */
int peerlane_nvme_serve(struct peerlane_nvme *nvme, const char *path,
			const struct peerlane_nvme_serve_options *opt,
			struct peerlane_nvme_server **out);

/**
 * peerlane_nvme_unserve() - end it: clients find that the controller is gone
 * @server: server, or NULL
 *
 * Before peerlane_nvme_close().
 */
void peerlane_nvme_unserve(struct peerlane_nvme_server *server);

#ifdef __cplusplus
}
#endif

#endif
