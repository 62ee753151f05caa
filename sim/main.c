// SPDX-License-Identifier: MIT
/* simnvme CONFIG SOCKET: a software controller in a process of its own, until it is interrupted. */
#include "simnvme.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
	struct pl_simnvme_counters counters;
	struct pl_simnvme_server *server;
	struct pl_simnvme *c;
	char why[256] = "";
	sigset_t signals;
	int sig, rc;

	if (argc != 3) {
		fprintf(stderr, "usage: simnvme CONFIG SOCKET\n"
				"such as: simnvme size=64M,bs=4096 /tmp/nvme0\n");
		return 2;
	}
	/* Before there are threads, so that they leave these to us. */
	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	rc = pl_simnvme_create(argv[1], &c, why, sizeof(why));
	if (rc) {
		fprintf(stderr, "simnvme: %s\n", *why ? why : strerror(-rc));
		return 1;
	}
	rc = pl_simnvme_start(c);
	if (!rc)
		rc = pl_simnvme_serve(c, argv[2], &server);
	if (rc) {
		fprintf(stderr, "simnvme: %s: %s\n", argv[2], strerror(-rc));
		pl_simnvme_destroy(c);
		return 1;
	}
	printf("serving %s\n", argv[2]);
	fflush(stdout);
	sigwait(&signals, &sig);
	pl_simnvme_unserve(server);
	pl_simnvme_counters(c, &counters);
	printf("%llu admin and %llu I/O commands, %llu errors, %llu DMA faults\n",
	       (unsigned long long)counters.admin_commands,
	       (unsigned long long)counters.io_commands, (unsigned long long)counters.errors,
	       (unsigned long long)counters.dma_faults);
	pl_simnvme_destroy(c);
	return 0;
}
