// SPDX-License-Identifier: MIT
/* Controllers in threads and in other processes; clients that die; many controllers at once. */
#include "server.h"
#include "wire.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* A host whose controller runs by itself; turns that the host takes come on top. */
static void start_running(struct host *h, const char *config)
{
	host_start(h, config);
	assert_int_equal(pl_simnvme_start(h->c), 0);
	assert_int_equal(pl_simnvme_start(h->c), -16);
}

/* Commands in flight all the time, data compared. */
static void keep_busy(struct host *h, uint32_t qid, uint32_t rounds)
{
	uint64_t at;
	uint8_t *data = host_alloc(h, 16 * 4096, &at);

	for (uint32_t round = 0; round < rounds; round++) {
		for (uint32_t i = 0; i < 7; i++) {
			memset(data + 4096 * i, (int)(round + i + qid), 512);
			host_put(h, qid,
				 host_rw(PL_NVME_WRITE, 1, 100 * qid + i, 1, at + 4096 * i, 0));
		}
		host_ring(h, qid);
		for (uint32_t i = 0; i < 7; i++)
			assert_int_equal(host_wait(h, qid).status >> 1, 0);
		for (uint32_t i = 0; i < 7; i++)
			host_put(h, qid,
				 host_rw(PL_NVME_READ, 1, 100 * qid + i, 1, at + 32768 + 4096 * i,
					 0));
		host_ring(h, qid);
		for (uint32_t i = 0; i < 7; i++)
			assert_int_equal(host_wait(h, qid).status >> 1, 0);
		for (uint32_t i = 0; i < 7; i++)
			assert_memory_equal(data + 4096 * i, data + 32768 + 4096 * i, 512);
	}
}

static void in_a_thread(void **state)
{
	struct host h;

	(void)state;
	start_running(&h, "sim:");
	host_create(&h, 1, 8);
	keep_busy(&h, 1, 50);
	assert_int_equal(host_counters(&h).bad_doorbells, 0);
	pl_simnvme_stop(h.c);
	assert_int_equal(pl_simnvme_start(h.c), 0);
	keep_busy(&h, 1, 50);
	host_close(&h);
}

struct mapper {
	struct host *h;
	int rounds;
};

/* Maps and unmaps while the controller is at work. */
static void *run_mapper(void *arg)
{
	struct mapper *m = arg;
	uint8_t *memory =
		mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (int i = 0; i < m->rounds; i++) {
		uint64_t iova = 0x10000 + (uint64_t)(i % 16) * 8192;

		if (pl_simnvme_map(m->h->c, iova, memory, 8192, RW) ||
		    pl_simnvme_unmap(m->h->c, iova, 8192))
			abort();
		/* Nothing reaches it now: this write would race if the controller still did. */
		memset(memory, i, 8192);
	}
	munmap(memory, 8192);
	return NULL;
}

static void mapping_under_load(void **state)
{
	struct mapper m;
	pthread_t thread;
	struct host h;

	(void)state;
	start_running(&h, "sim:");
	host_create(&h, 1, 8);
	m = (struct mapper){ &h, 300 };
	assert_int_equal(pthread_create(&thread, NULL, run_mapper, &m), 0);
	keep_busy(&h, 1, 100);
	pthread_join(thread, NULL);
	assert_int_equal(host_counters(&h).mappings, 1);
	host_close(&h);
}

static void many_controllers(void **state)
{
	struct host h[4];

	(void)state;
	for (int i = 0; i < 4; i++) {
		char config[64];

		snprintf(config, sizeof(config), "sim:serial=S%d,dstrd=%d,size=1M", i, i);
		start_running(&h[i], config);
		host_create(&h[i], 1, 8);
	}
	for (int round = 0; round < 5; round++)
		for (int i = 0; i < 4; i++)
			keep_busy(&h[i], 1, 2);
	for (int i = 0; i < 4; i++)
		host_close(&h[i]);
}

static void other_process(void **state)
{
	struct host h;
	int stop;
	pid_t server = server_start("sim:", &stop);

	(void)state;
	for (int round = 0; round < 2; round++) {
		host_connect(&h, server_path, HOST_IOVA);
		assert_int_equal(host_counters(&h).mappings, 1);
		host_set_admin(&h, 16);
		host_enable(&h);
		host_create(&h, 1, 8);
		keep_busy(&h, 1, 20);
		assert_int_equal(host_counters(&h).bad_doorbells, 0);
		/* Errors come back as they are. */
		assert_int_equal(pl_simnvme_client_map(h.client, HOST_IOVA, h.fd, 0, 4096, RW),
				 -17);
		assert_int_equal(pl_simnvme_client_map(h.client, 0, h.fd, HOST_MEMORY, 4096, RW),
				 -14);
		assert_int_equal(pl_simnvme_client_map(h.client, 0, h.fd, 5, 4096, RW), -22);
		assert_int_equal(pl_simnvme_client_map(h.client, 0, -1, 0, 4096, RW), -9);
		assert_int_equal(pl_simnvme_client_unmap(h.client, 0, 4096), -2);
		assert_int_equal(pl_simnvme_client_map(h.client, 0, h.fd, 4096, 4096, RW), 0);
		assert_int_equal(host_counters(&h).mappings, 2);
		assert_int_equal(pl_simnvme_client_unmap(h.client, 0, 4096), 0);
		assert_int_equal(pl_simnvme_client_reset(h.client), 0);
		assert_int_equal(host_read32(&h, PL_NVME_REG_CSTS), 0);
		host_close(&h);
	}
	server_stop(server, stop);
}

/* Wait until the server has seen that a client went. */
static void wait_mappings(struct host *h, uint64_t nr)
{
	while (host_counters(h).mappings != nr)
		sched_yield();
}

/* A process that does something, says so, and waits to be killed. */
static pid_t start_client(void (*work)(int go), int go)
{
	int ready[2];
	char byte = 0;
	pid_t pid;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		/* Should the test fail before it kills us. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		work(go);
		if (write(ready[1], &byte, 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return pid;
}

static void kill_client(pid_t pid)
{
	int status;

	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
}

static void use_whole_controller(int go)
{
	struct host h;
	uint64_t at;

	(void)go;
	host_connect(&h, server_path, HOST_IOVA);
	host_set_admin(&h, 16);
	host_enable(&h);
	host_create(&h, 1, 16);
	host_alloc(&h, 4096, &at);
	for (int i = 0; i < 10; i++)
		host_put(&h, 1, host_rw(PL_NVME_READ, 1, 0, 1, at, 0));
	host_ring(&h, 1);
	while (host_counters(&h).held < 10)
		sched_yield();
}

/* A client that is killed with commands in flight: nothing of it is left. */
static void killed_client(void **state)
{
	struct pl_simnvme_counters counters;
	struct host h;
	int stop;
	pid_t server = server_start("sim:rule=hold opcode=read count=10", &stop);
	pid_t client = start_client(use_whole_controller, -1);

	(void)state;
	host_connect(&h, server_path, 2 * HOST_IOVA);
	counters = host_counters(&h);
	assert_int_equal(counters.mappings, 2);
	assert_int_equal(counters.io_queues, 2);
	assert_int_equal(counters.held, 10);
	kill_client(client);
	wait_mappings(&h, 1);
	counters = host_counters(&h);
	assert_int_equal(counters.io_queues, 0);
	assert_int_equal(counters.held, 0);
	assert_false(counters.ready);
	assert_int_equal(host_read32(&h, PL_NVME_REG_CC), 0);
	assert_int_equal(host_read32(&h, PL_NVME_REG_CSTS), 0);
	/* It can be used at once. */
	host_set_admin(&h, 16);
	host_enable(&h);
	host_create(&h, 1, 8);
	keep_busy(&h, 1, 5);
	host_close(&h);
	server_stop(server, stop);
}

#define GUEST_IOVA (3 * HOST_IOVA)

static struct host guest;

/* Another process's memory, in which the owner of the controller makes a queue pair. */
static void use_one_queue(int go)
{
	char byte;

	host_connect(&guest, server_path, GUEST_IOVA);
	host_queue_init(&guest, 2, 8, 8);
	if (read(go, &byte, 1) != 1)
		_exit(1);
	keep_busy(&guest, 2, 10);
}

/* One controller, two processes: the owner lives on when the guest is killed. */
static void shared_by_processes(void **state)
{
	int stop, go[2];
	pid_t server = server_start("sim:", &stop), client;
	struct host_queue *q = &guest.q[2];
	struct host h;
	char byte = 0;

	(void)state;
	host_connect(&h, server_path, HOST_IOVA);
	host_set_admin(&h, 16);
	host_enable(&h);
	host_create(&h, 1, 8);
	/* The addresses that the guest will have: those of its first two allocations. */
	memset(&guest, 0, sizeof(guest));
	guest.memory = h.memory;
	guest.iova = GUEST_IOVA;
	guest.page = 4096;
	host_queue_init(&guest, 2, 8, 8);
	assert_int_equal(pipe(go), 0);
	assert_int_equal(write(go[1], &byte, 1), 1);
	assert_int_equal(host_status(&h, 0, host_create_cq(&h, 2, 8, q->cq_iova)), 0);
	assert_int_equal(host_status(&h, 0, host_create_sq(&h, 2, 2, 8, q->sq_iova)), 0);
	client = start_client(use_one_queue, go[0]);
	keep_busy(&h, 1, 10);
	assert_int_equal(host_counters(&h).io_queues, 4);
	kill_client(client);
	wait_mappings(&h, 1);
	assert_int_equal(host_counters(&h).io_queues, 2);
	assert_true(host_counters(&h).ready);
	keep_busy(&h, 1, 10);
	close(go[0]);
	close(go[1]);
	host_close(&h);
	server_stop(server, stop);
}

/* A connection that a client lets another one have: what it may not, and when its mappings end. */
static void granted(void **state)
{
	struct pl_simnvme_client *first, *second;
	int stop, sock;
	pid_t server = server_start("sim:", &stop);
	struct host h;
	uint64_t id, other;

	(void)state;
	host_connect(&h, server_path, HOST_IOVA);
	assert_int_equal(pl_simnvme_client_grant(h.client, &sock, &id), 0);
	assert_int_equal(pl_simnvme_adopt(sock, &first), 0);
	assert_int_equal(pl_simnvme_client_reset(first), -1);
	assert_int_equal(pl_simnvme_client_grant(first, &sock, &other), -1);
	assert_int_equal(pl_simnvme_client_revoke(first, id), -1);
	assert_int_equal(pl_simnvme_client_map(first, GUEST_IOVA, h.fd, 0, 4096, RW), 0);
	assert_int_equal(host_counters(&h).mappings, 2);
	/* It goes, and its mapping stays until the one that let it in says so. */
	pl_simnvme_disconnect(first);
	assert_int_equal(pl_simnvme_client_grant(h.client, &sock, &other), 0);
	assert_int_equal(pl_simnvme_adopt(sock, &second), 0);
	assert_int_equal(host_counters(&h).mappings, 2);
	assert_int_equal(pl_simnvme_client_revoke(h.client, 12345), -2);
	assert_int_equal(pl_simnvme_client_revoke(h.client, id), 0);
	assert_int_equal(host_counters(&h).mappings, 1);
	assert_int_equal(pl_simnvme_client_map(second, GUEST_IOVA, h.fd, 0, 4096, RW), 0);
	assert_false(pl_simnvme_client_gone(second));
	/* With who let it in, it is cut off. */
	host_close(&h);
	while (!pl_simnvme_client_gone(second))
		sched_yield();
	assert_true(pl_simnvme_client_map(second, 0, sock, 0, 4096, RW) < 0);
	pl_simnvme_disconnect(second);
	host_connect(&h, server_path, HOST_IOVA);
	wait_mappings(&h, 1);
	host_close(&h);
	server_stop(server, stop);
}

/* Who talks nonsense is cut off, and the others are not disturbed. */
static void nonsense(void **state)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct pl_simnvme_client *none;
	int stop;
	pid_t server = server_start("sim:", &stop);
	struct host h;
	char junk[100];

	(void)state;
	strcpy(address.sun_path, server_path);
	host_connect(&h, server_path, HOST_IOVA);
	for (size_t bytes = 0; bytes <= sizeof(junk); bytes += 4) {
		int sock = socket(AF_UNIX, SOCK_SEQPACKET, 0);

		memset(junk, (int)bytes | 1, sizeof(junk));
		assert_int_equal(connect(sock, (struct sockaddr *)&address, sizeof(address)), 0);
		assert_int_equal(send(sock, junk, bytes, MSG_NOSIGNAL), bytes);
		/* An answer that says no, or the end. */
		assert_true(recv(sock, junk, sizeof(junk), 0) >= 0);
		close(sock);
	}
	host_set_admin(&h, 16);
	host_enable(&h);
	host_create(&h, 1, 8);
	keep_busy(&h, 1, 2);
	host_close(&h);
	server_stop(server, stop);
	assert_int_equal(pl_simnvme_connect(server_path, &none), -2);
}

/* A message may bring one descriptor; of two, none stays open here. */
static void two_descriptors(void **state)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = { 0 };
	char text[4] = "abc";
	struct iovec iov = { .iov_base = text, .iov_len = sizeof(text) };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control,
			      .msg_controllen = sizeof(control) };
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
	int socks[2], pipes[2], fd;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, socks), 0);
	assert_int_equal(pipe(pipes), 0);
	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(sizeof(pipes));
	/* Only the writing end, twice: once all of them are closed, the pipe ends. */
	for (int i = 0; i < 2; i++)
		memcpy(CMSG_DATA(cmsg) + i * sizeof(int), &pipes[1], sizeof(int));
	assert_int_equal(sendmsg(socks[0], &msg, 0), sizeof(text));
	close(pipes[1]);
	assert_int_equal(pl_sn_wire_receive(socks[1], text, sizeof(text), &fd), -EPROTO);
	assert_int_equal(fd, -1);
	assert_int_equal(fcntl(pipes[0], F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(read(pipes[0], text, 1), 0);
	close(pipes[0]);
	close(socks[0]);
	close(socks[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(in_a_thread),	    cmocka_unit_test(mapping_under_load),
		cmocka_unit_test(many_controllers), cmocka_unit_test(other_process),
		cmocka_unit_test(killed_client),    cmocka_unit_test(shared_by_processes),
		cmocka_unit_test(granted),	    cmocka_unit_test(nonsense),
		cmocka_unit_test(two_descriptors),
	};

	return cmocka_run_group_tests(tests, server_setup, server_teardown);
}
