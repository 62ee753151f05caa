/* SPDX-License-Identifier: MIT */
/* A software controller that another process serves. */
#ifndef NVME_SIM_SERVER_H
#define NVME_SIM_SERVER_H

#include "host.h"

#include <sys/types.h>

/* Where it listens. */
extern char server_path[64];

/* Of a group of tests: the folder of the socket, which must be empty in the end. */
int server_setup(void **state);
int server_teardown(void **state);

/* Start one, which ends when *@stop is closed. */
pid_t server_start(const char *config, int *stop);
/* End it; it must have noticed nothing wrong. */
void server_stop(pid_t pid, int stop);

#endif
