// SPDX-License-Identifier: MIT
/*
 * A software controller in a process of its own:
 *   simnvme CONFIG SOCKET   for drivers of "sim-unix:SOCKET", until it is interrupted
 *   simnvme CONFIG fd:N     for the QEMU at the other end of descriptor N, until that ends
 */
#include "simnvme.h"

#include "qemu.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Serve on a Unix socket until SIGINT or SIGTERM, which are blocked. */
static int serve_socket(struct pl_simnvme *c, const char *path, const sigset_t *signals)
{
	struct pl_simnvme_server *server;
	int sig, rc = pl_simnvme_start(c);

	if (!rc)
		rc = pl_simnvme_serve(c, path, &server);
	if (rc)
		return rc;
	printf("serving %s\n", path);
	fflush(stdout);
	sigwait(signals, &sig);
	pl_simnvme_unserve(server);
	return 0;
}

/* What happened, a line each. */
static void print_counters(struct pl_simnvme *c)
{
	struct pl_simnvme_counters n;

	pl_simnvme_counters(c, &n);
#define PRINT(name) printf("%s %llu\n", #name, (unsigned long long)n.name)
	PRINT(admin_commands);
	PRINT(io_commands);
	PRINT(errors);
	PRINT(bytes_read);
	PRINT(bytes_written);
	PRINT(bad_doorbells);
	PRINT(bad_registers);
	PRINT(dma_faults);
	PRINT(enables);
	PRINT(resets);
	PRINT(shutdowns);
#undef PRINT
}

int main(int argc, char **argv)
{
	struct pl_simnvme *c;
	char why[256] = "";
	sigset_t signals;
	int rc;

	if (argc != 3) {
		fprintf(stderr, "usage: simnvme CONFIG SOCKET\n"
				"such as: simnvme size=64M,bs=4096 /tmp/nvme0\n");
		return 2;
	}
	/* Before there are threads, so that they leave these to us. */
	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	rc = pl_simnvme_create(argv[1], &c, why, sizeof(why));
	if (rc) {
		fprintf(stderr, "simnvme: %s\n", *why ? why : strerror(-rc));
		return 1;
	}
	if (!strncmp(argv[2], "fd:", 3)) {
		rc = pl_simnvme_qemu(c, atoi(argv[2] + 3));
	} else {
		sigprocmask(SIG_BLOCK, &signals, NULL);
		rc = serve_socket(c, argv[2], &signals);
	}
	if (rc)
		fprintf(stderr, "simnvme: %s: %s\n", argv[2], strerror(-rc));
	else
		print_counters(c);
	pl_simnvme_destroy(c);
	return rc ? 1 : 0;
}
