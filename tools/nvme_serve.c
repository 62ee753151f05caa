/* SPDX-License-Identifier: MIT */
/* peerlane nvme serve: share a controller between processes. */
#include "commands.h"
#include "human.h"
#include "message.h"
#include "nvme_drive.h"
#include "stop.h"

#include <peerlane/nvme_serve.h>

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define MOST_QUEUES 65535u

struct serve_args {
	const char *socket;
	const char *mode;
	unsigned int clients;
	unsigned int queues;
};

static const struct pl_option options[] = {
	{ "socket", PL_OPTION_TEXT, offsetof(struct serve_args, socket), "PATH",
	  "Needed: the Unix socket to serve at. One that a dead owner left there is replaced.", 0,
	  0 },
	{ "queues", PL_OPTION_COUNT, offsetof(struct serve_args, queues), "N",
	  "Queue pairs that a client may have (default 8). All clients together have those of the "
	  "controller.",
	  1, MOST_QUEUES },
	{ "clients", PL_OPTION_COUNT, offsetof(struct serve_args, clients), "N",
	  "Clients at a time (default 16).", 1, 1024 },
	{ "mode", PL_OPTION_TEXT, offsetof(struct serve_args, mode), "MODE",
	  "Permissions of the socket, in octal (default 600). Who may write to it may connect, and "
	  "then read and write the whole drive.",
	  0, 0 },
	{ 0 },
};

/* A line for what happened; and the end of it all wakes the main thread. */
static void note(void *arg, const struct peerlane_nvme_serve_event *event)
{
	char who[96];

	snprintf(who, sizeof(who), "client %u (pid %ld, uid %ld, gid %ld)", event->client,
		 (long)event->pid, (long)event->uid, (long)event->gid);
	switch (event->what) {
	case PEERLANE_NVME_SERVE_GRANTED:
		printf("%s: granted, up to %u queue pairs\n", who, event->nr_queues);
		break;
	case PEERLANE_NVME_SERVE_REFUSED:
		printf("%s: refused: %s\n", who,
		       event->err == -EBUSY ? "there are too many" : strerror(-event->err));
		break;
	case PEERLANE_NVME_SERVE_TAKEN_BACK:
		printf("%s: taken back, %u queue pairs deleted%s\n", who, event->nr_queues,
		       event->err == -ECONNRESET ? " by the reset"
		       : event->err		 ? "; memory of a GPU that it used is gone"
						 : "");
		break;
	case PEERLANE_NVME_SERVE_RESET:
		printf("the controller was reset, all clients are cut off\n");
		break;
	case PEERLANE_NVME_SERVE_FAILED:
		printf("the controller was given up: %s\n", strerror(-event->err));
		eventfd_write(*(int *)arg, 1);
		break;
	}
	fflush(stdout);
}

/* Until a signal comes, which only comes here; or the controller fails: 1 then. */
static int wait_end(int failed, const sigset_t *mask)
{
	struct pollfd fd = { .fd = failed, .events = POLLIN };

	while (!pl_stop_requested())
		if (ppoll(&fd, 1, NULL, mask) == 1)
			return 1;
	return 0;
}

static int serve(struct peerlane_nvme *nvme, const char *address, const struct serve_args *a,
		 mode_t mode)
{
	struct peerlane_nvme_info info = { .size = sizeof(info) };
	struct peerlane_nvme_server *server;
	struct peerlane_nvme_serve_options opt = {
		.size = sizeof(opt),
		.mode = mode,
		.nr_clients = a->clients,
		.nr_queues = a->queues,
		.note = note,
	};
	sigset_t signals, mask;
	int err, failed = eventfd(0, EFD_CLOEXEC);

	if (failed < 0)
		return 1;
	opt.arg = &failed;
	peerlane_nvme_get_info(nvme, &info);
	/* Before there is a thread, which leaves them to us. */
	pl_stop_catch();
	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &signals, &mask);
	err = peerlane_nvme_serve(nvme, a->socket, &opt, &server);
	if (err) {
		pl_message_error("%s: %s", err == -EOPNOTSUPP ? address : a->socket,
				 err == -EOPNOTSUPP ? "this transport cannot share a controller: "
						      "kmod:, sim: and sim-unix: can"
				 : err == -EADDRINUSE
					 ? "somebody serves there, or a file is in the way"
					 : strerror(-err));
		close(failed);
		return 1;
	}
	printf("serving %s, %s, at %s: up to %s, %s each, %u together\n", info.serial, info.model,
	       a->socket, pl_human_nr(a->clients, "client").text,
	       pl_human_nr(a->queues, "queue pair").text, info.nr_queues);
	fflush(stdout);
	err = wait_end(failed, &mask);
	peerlane_nvme_unserve(server);
	close(failed);
	printf("ended\n");
	return err;
}

static bool parse_mode(const char *text, mode_t *mode)
{
	unsigned long value;
	char *end;

	value = strtoul(text, &end, 8);
	*mode = (mode_t)value;
	return *text >= '0' && *text <= '7' && !*end && value <= 0777;
}

static int run(const struct pl_command *self, int argc, char **argv)
{
	struct serve_args args = { .clients = 16, .queues = 8, .mode = "600" };
	int status, first = pl_option_parse(self, argc, argv, &args, &status);
	struct peerlane_nvme_options opt = {
		.size = sizeof(opt),
		/* Clients have no shadow doorbells. */
		.flags = PEERLANE_NVME_NO_DBBUF,
	};
	struct peerlane_nvme *nvme;
	mode_t mode;

	if (first < 0)
		return status;
	if (!args.socket) {
		pl_message_error("say where: --socket PATH");
		return PL_EXIT_USAGE;
	}
	if (!parse_mode(args.mode, &mode)) {
		pl_message_error("--mode %s: no permissions in octal, such as 660", args.mode);
		return PL_EXIT_USAGE;
	}
	opt.nr_queues = args.clients < MOST_QUEUES / args.queues ? args.clients * args.queues
								 : MOST_QUEUES;
	if (pl_drive_open_as(&nvme, argv[first], &opt))
		return 1;
	status = serve(nvme, argv[first], &args, mode);
	peerlane_nvme_close(nvme);
	return status;
}

const struct pl_command pl_command_nvme_serve = {
	.name = "nvme serve",
	.summary = "Share a controller between processes.",
	.args = "--socket PATH [options] ADDRESS",
	.detail = "Opens a controller and lets other processes of this machine open it as "
		  "served:PATH, each with queue pairs of its own that it drives itself. Prints a "
		  "line for every client that comes and goes. When a client ends, or is killed, "
		  "its queues are deleted and its memory is let go, in this order. Ends on SIGINT, "
		  "SIGTERM and SIGHUP; then the controller is gone for the clients. They are "
		  "trusted with the whole drive.",
	.exits = "0  ended by a signal\n"
		 "1  an error, or the controller failed\n"
		 "2  the options are wrong",
	.options = options,
	.min_args = 1,
	.max_args = 1,
	.run = run,
};
