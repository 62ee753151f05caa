// SPDX-License-Identifier: MIT
/* Owners, clients, and the processes they are in. */
#include "serve_lab.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

/* ------------------------------------------------------------------ processes */

struct child child_start(const char *role, const char *a, const char *b, const char *c)
{
	char *argv[] = { (char *)"test", (char *)role, (char *)a, (char *)b, (char *)c, NULL };
	posix_spawn_file_actions_t actions;
	struct child child;
	int in[2], out[2];

	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, in[0], 0);
	posix_spawn_file_actions_adddup2(&actions, out[1], 1);
	assert_int_equal(posix_spawn(&child.pid, "/proc/self/exe", &actions, NULL, argv, environ),
			 0);
	posix_spawn_file_actions_destroy(&actions);
	close(in[0]);
	close(out[1]);
	child.in = in[1];
	child.out = out[0];
	child_line(&child);
	return child;
}

void child_line(struct child *child)
{
	char byte = 0;

	while (byte != '\n')
		if (read(child->out, &byte, 1) != 1)
			fail_msg("process %d has ended", (int)child->pid);
}

static int reap(struct child *child)
{
	int status;

	close(child->in);
	assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
	close(child->out);
	child->pid = 0;
	return status;
}

void child_end(struct child *child)
{
	int status = reap(child);

	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

void child_kill(struct child *child)
{
	kill(child->pid, SIGKILL);
	assert_true(WIFSIGNALED(reap(child)));
}

/* Say that one is ready, and wait until the test wants no more. */
static void say_and_wait(void)
{
	char byte;

	if (write(1, "\n", 1) != 1 || read(0, &byte, 1) < 0)
		_exit(1);
}

/* ------------------------------------------------------------------ roles */

static int role_owner(char **argv)
{
	struct peerlane_nvme_options opt = { .size = sizeof(opt), .flags = PEERLANE_NVME_NO_DBBUF };
	struct peerlane_nvme_serve_options serve = {
		.size = sizeof(serve),
		.nr_queues = (unsigned int)atoi(argv[1]),
		.nr_clients = (unsigned int)atoi(strchr(argv[1], '/') + 1),
	};
	struct peerlane_nvme_server *server;
	struct peerlane_nvme *nvme;
	char address[80];

	snprintf(address, sizeof(address), "sim-unix:%s", argv[0]);
	if (peerlane_nvme_open(&nvme, address, &opt) ||
	    peerlane_nvme_serve(nvme, argv[2], &serve, &server))
		return 1;
	say_and_wait();
	peerlane_nvme_unserve(server);
	peerlane_nvme_close(nvme);
	return 0;
}

/* Writes and reads blocks of its own, again and again. */
static int role_io(char **argv)
{
	unsigned int number = (unsigned int)atoi(argv[1]);
	struct client client;

	client_open(&client, argv[0], NULL);
	for (unsigned int i = 0; i < 20; i++)
		client_io(&client, (uint64_t)number * CLIENT_BLOCKS, number * 100 + i);
	client_close(&client);
	say_and_wait();
	return 0;
}

/* Has reads under way, and is killed. */
static int role_busy(char **argv)
{
	struct client client;

	client_open(&client, argv[0], NULL);
	client_submit(&client, (unsigned int)atoi(argv[1]));
	say_and_wait();
	return 0;
}

int child_role(int argc, char **argv)
{
	if (argc < 3)
		return -1;
	/* Should the test end before it ends us. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!strcmp(argv[1], "owner"))
		return role_owner(argv + 2);
	if (!strcmp(argv[1], "io"))
		return role_io(argv + 2);
	return role_busy(argv + 2);
}

/* ------------------------------------------------------------------ the lab */

void lab_start(struct lab *lab, const char *config, const char *queues, const char *clients)
{
	char why[200] = "", patient[200], limits[32];

	memset(lab, 0, sizeof(*lab));
	/* It has a minute to get ready, however busy the machine is. */
	snprintf(patient, sizeof(patient), "sim:to=120,%s", config);
	snprintf(limits, sizeof(limits), "%s/%s", queues, clients);
	snprintf(lab->sim_path, sizeof(lab->sim_path), "/tmp/pl-serve-sim-%d", (int)getpid());
	snprintf(lab->path, sizeof(lab->path), "/tmp/pl-serve-%d", (int)getpid());
	snprintf(lab->address, sizeof(lab->address), "served:%s", lab->path);
	unlink(lab->sim_path);
	if (pl_simnvme_create(patient, &lab->c, why, sizeof(why)))
		fail_msg("%s: %s", config, why);
	assert_int_equal(pl_simnvme_start(lab->c), 0);
	assert_int_equal(pl_simnvme_serve(lab->c, lab->sim_path, &lab->server), 0);
	lab->owner = child_start("owner", lab->sim_path, limits, lab->path);
}

struct pl_simnvme_counters lab_counters(const struct lab *lab)
{
	struct pl_simnvme_counters n;

	pl_simnvme_counters(lab->c, &n);
	return n;
}

void lab_wait_mappings(const struct lab *lab, uint64_t nr)
{
	static const struct timespec moment = { .tv_nsec = 1000000 };

	while (lab_counters(lab).mappings != nr)
		nanosleep(&moment, NULL);
}

void lab_stop(struct lab *lab)
{
	struct pl_simnvme_counters n;

	if (lab->owner.pid) {
		child_end(&lab->owner);
		assert_int_equal(access(lab->path, F_OK), -1);
	}
	/* The controller learns of the end of a connection by itself. */
	lab_wait_mappings(lab, 0);
	n = lab_counters(lab);
	assert_int_equal(n.io_queues, 0);
	assert_int_equal(n.held, 0);
	assert_int_equal(n.bad_registers, 0);
	assert_int_equal(n.dma_faults, 0);
	if (!lab->rough)
		assert_int_equal(n.bad_doorbells, 0);
	pl_simnvme_unserve(lab->server);
	pl_simnvme_destroy(lab->c);
	unlink(lab->path);
}

/* ------------------------------------------------------------------ clients */

/* Also in processes that are not the test, whose words nobody reads: the end says it. */
static void must(bool good)
{
	if (!good)
		abort();
}

void client_open(struct client *client, const char *address,
		 const struct peerlane_nvme_options *opt)
{
	memset(client, 0, sizeof(*client));
	must(!peerlane_nvme_open(&client->nvme, address, opt));
	must(!peerlane_nvme_ns_open(client->nvme, 1, &client->ns));
	must(!peerlane_nvme_queue_create(client->nvme, NULL, &client->q));
	must(!peerlane_nvme_map_alloc(client->nvme, 2 * CLIENT_BYTES, (void **)&client->mem,
				      &client->map));
}

void client_close(struct client *client)
{
	peerlane_nvme_close(client->nvme);
}

void client_io(struct client *client, uint64_t lba, unsigned int seed)
{
	struct peerlane_nvme_io io = {
		.opcode = PL_NVME_WRITE,
		.ns = client->ns,
		.lba = lba,
		.nr_blocks = CLIENT_BLOCKS,
		.map = client->map,
	};
	char *back = client->mem + CLIENT_BYTES;

	for (size_t i = 0; i < CLIENT_BYTES; i++) {
		seed = seed * 1103515245u + 12345u;
		client->mem[i] = (char)(seed >> 16);
	}
	memset(back, 0, CLIENT_BYTES);
	must(!peerlane_nvme_run(client->q, &io, NULL));
	io.opcode = PL_NVME_READ;
	io.offset = CLIENT_BYTES;
	must(!peerlane_nvme_run(client->q, &io, NULL));
	must(!memcmp(client->mem, back, CLIENT_BYTES));
}

void client_submit(struct client *client, unsigned int nr)
{
	struct peerlane_nvme_io io = {
		.opcode = PL_NVME_READ,
		.ns = client->ns,
		.nr_blocks = 1,
		.map = client->map,
	};

	for (; io.user < nr; io.user++) {
		io.lba = io.user;
		io.offset = io.user * 512;
		must(peerlane_nvme_submit(client->q, &io, 1) == 1);
	}
}

void client_lost(struct client *client, unsigned int nr, int err)
{
	struct peerlane_nvme_completion cpl[8];
	uint64_t seen = 0;

	for (unsigned int done = 0; done < nr;) {
		int got = peerlane_nvme_wait(client->q, cpl, 1, 8, 120000);

		must(got > 0);
		for (int i = 0; i < got; i++, done++) {
			assert_true(cpl[i].user < nr);
			assert_false(seen >> cpl[i].user & 1);
			seen |= (uint64_t)1 << cpl[i].user;
			/* Its queue may be deleted before it is told that the owner has gone. */
			if (err != -ENODEV || cpl[i].err != -ECANCELED)
				assert_int_equal(cpl[i].err, err);
		}
	}
	/* And no more. */
	assert_true(peerlane_nvme_poll(client->q, cpl, 8) <= 0);
}
