/* SPDX-License-Identifier: MIT */
/*
 * A software controller in the test's process, an owner in another one that serves it, and clients in
 * this one and in others, which are this program again, in a role.
 */
#ifndef TESTS_NVME_SERVE_LAB_H
#define TESTS_NVME_SERVE_LAB_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include <cmocka.h>

#include <peerlane/nvme_serve.h>
#include <simnvme.h>

/* Another process; its standard input and output are pipes to here. */
struct child {
	pid_t pid;
	int in, out;
};

struct lab {
	struct pl_simnvme *c;
	struct pl_simnvme_server *server;
	char sim_path[64], path[64], address[80];
	struct child owner;
	bool rough; /* something is done on purpose that a controller counts as wrong */
};

/* A client, in this process. */
struct client {
	struct peerlane_nvme *nvme;
	struct peerlane_nvme_ns *ns;
	struct peerlane_nvme_queue *q;
	struct peerlane_nvme_map *map;
	char *mem;
};

#define CLIENT_BYTES ((size_t)256 << 10)
#define CLIENT_BLOCKS 512u /* of 512 bytes each */

/* Start a role of this program, and wait until it has written a line. */
struct child child_start(const char *role, const char *a, const char *b, const char *c);
/* Wait until it writes a line. */
void child_line(struct child *child);
/* Close its input, and wait for its end: it must succeed. */
void child_end(struct child *child);
void child_kill(struct child *child);
/* For main(): what a role does, or -1 if this is the test itself. */
int child_role(int argc, char **argv);

void lab_start(struct lab *lab, const char *config, const char *queues, const char *clients);
/* End the owner, if it lives; nothing may be left, and nobody may have done anything wrong. */
void lab_stop(struct lab *lab);
struct pl_simnvme_counters lab_counters(const struct lab *lab);
/* Wait until the controller knows so many mappings. */
void lab_wait_mappings(const struct lab *lab, uint64_t nr);

/* Open the controller by its owner, with a queue and memory; @opt may be NULL. */
void client_open(struct client *client, const char *address,
		 const struct peerlane_nvme_options *opt);
void client_close(struct client *client);
/* Write blocks from @lba on, read them back, and compare. */
void client_io(struct client *client, uint64_t lba, unsigned int seed);
/* Submit reads of one block, with user 0 and so on. */
void client_submit(struct client *client, unsigned int nr);
/* Wait for all of them: each is reported once, with this error; -ENODEV: or as aborted. */
void client_lost(struct client *client, unsigned int nr, int err);

#endif
