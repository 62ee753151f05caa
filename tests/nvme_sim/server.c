// SPDX-License-Identifier: MIT
/* A software controller that another process serves. */
#include "server.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[] = "/tmp/nvme-sim-XXXXXX";
char server_path[64];

int server_setup(void **state)
{
	(void)state;
	if (!mkdtemp(dir))
		return -1;
	snprintf(server_path, sizeof(server_path), "%s/socket", dir);
	return 0;
}

int server_teardown(void **state)
{
	(void)state;
	return rmdir(dir);
}

pid_t server_start(const char *config, int *stop)
{
	int ready[2], end[2];
	char byte = 0;
	pid_t pid;

	assert_int_equal(pipe(ready), 0);
	assert_int_equal(pipe(end), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		struct pl_simnvme_server *s;
		struct pl_simnvme *c;
		char why[256];

		close(end[1]);
		if (pl_simnvme_create(config, &c, why, sizeof(why)) || pl_simnvme_start(c) ||
		    pl_simnvme_serve(c, server_path, &s) || write(ready[1], &byte, 1) != 1)
			_exit(1);
		if (read(end[0], &byte, 1) < 0)
			_exit(1);
		pl_simnvme_unserve(s);
		pl_simnvme_destroy(c);
		_exit(0);
	}
	close(ready[1]);
	close(end[0]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	*stop = end[1];
	return pid;
}

void server_stop(pid_t pid, int stop)
{
	int status;

	close(stop);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}
