// SPDX-License-Identifier: MIT
/* One controller, several processes: what clients can do, what they get, and what they may not. */
#include "serve_lab.h"

#include "fake.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static void several_clients(void **state)
{
	struct child child[3];
	struct client here;
	struct lab lab;

	(void)state;
	lab_start(&lab, "size=4M", "4", "8");
	/* Each waits at the end of its work, so some of it is done at once. */
	client_open(&here, lab.address, NULL);
	for (unsigned int i = 0; i < 3; i++) {
		char number[4];

		snprintf(number, sizeof(number), "%u", i + 1);
		child[i] = child_start("io", lab.address, number, NULL);
		client_io(&here, 0, i);
	}
	for (unsigned int i = 0; i < 3; i++)
		child_end(&child[i]);
	client_io(&here, 0, 7);
	client_close(&here);
	assert_int_equal(lab_counters(&lab).enables, 1);
	lab_stop(&lab);
}

/* What a client knows of the controller is what it is; its resets are its own affair. */
static void as_the_controller(void **state)
{
	struct peerlane_nvme_info info = { .size = sizeof(info) };
	struct peerlane_nvme_options opt = { .size = sizeof(opt), .nr_queues = 2 };
	struct client a, b;
	uint32_t value, ids[4];
	struct lab lab;
	char log[512];

	(void)state;
	lab_start(&lab, "size=4M,serial=SHARED,ns=2,mdts=3,sgl=1,cmb=64K", "3", "8");
	client_open(&a, lab.address, NULL);
	client_open(&b, lab.address, &opt);
	assert_int_equal(peerlane_nvme_get_info(a.nvme, &info), 0);
	assert_string_equal(info.serial, "SHARED");
	assert_int_equal(info.nr_queues, 3);
	assert_int_equal(info.max_transfer_bytes, 32768);
	assert_int_equal(info.cmb_bytes, 0);
	assert_int_equal(peerlane_nvme_get_info(b.nvme, &info), 0);
	assert_int_equal(info.nr_queues, 2);
	assert_int_equal(peerlane_nvme_ns_list(a.nvme, 0, ids, 4), 2);
	assert_int_equal(
		peerlane_nvme_log_page(a.nvme, PL_NVME_LOG_SMART, PL_NVME_NSID_ALL, 0, log, 512),
		0);
	assert_int_equal(peerlane_nvme_get_feature(a.nvme, PL_NVME_FEAT_WRITE_CACHE, 0, 0, &value),
			 0);
	assert_int_equal(peerlane_nvme_reset(a.nvme), 0);
	client_io(&a, 0, 1);
	client_io(&b, CLIENT_BLOCKS, 2);
	assert_int_equal(lab_counters(&lab).resets, 0);
	client_close(&a);
	client_close(&b);
	lab_stop(&lab);
}

static void budget(void **state)
{
	struct peerlane_nvme_queue *q[3];
	struct peerlane_nvme *none;
	struct client a, b;
	struct lab lab;

	(void)state;
	lab_start(&lab, "size=4M,queues=3", "2", "2");
	client_open(&a, lab.address, NULL);
	assert_int_equal(peerlane_nvme_queue_create(a.nvme, NULL, &q[0]), 0);
	/* Its own are used up. */
	assert_int_equal(peerlane_nvme_queue_create(a.nvme, NULL, &q[1]), -ENOSPC);
	client_open(&b, lab.address, NULL);
	/* Those of all. */
	assert_int_equal(peerlane_nvme_queue_create(b.nvme, NULL, &q[1]), -ENOSPC);
	peerlane_nvme_queue_destroy(q[0]);
	assert_int_equal(peerlane_nvme_queue_create(b.nvme, NULL, &q[1]), 0);
	assert_int_equal(peerlane_nvme_open(&none, lab.address, NULL), -EBUSY);
	client_io(&a, 0, 1);
	client_io(&b, 0, 2);
	client_close(&a);
	/* The owner sees that it went. */
	while (peerlane_nvme_open(&none, lab.address, NULL))
		;
	peerlane_nvme_close(none);
	client_io(&b, 0, 3);
	client_close(&b);
	lab_stop(&lab);
}

static void forbidden(void **state)
{
	static const uint8_t opcodes[] = { 0x0d, 0x10, 0x11, 0x14, 0x15, 0x18, 0x19, 0x1c,
					   0x80, 0x81, 0x82, 0x84, 0x86, 0xc0, 0xc1, 0xc2 };
	struct peerlane_nvme_completion cpl;
	struct client client;
	struct lab lab;
	char data[4096] = { 0 };

	(void)state;
	lab_start(&lab, "size=4M", "4", "8");
	client_open(&client, lab.address, NULL);
	for (size_t i = 0; i < sizeof(opcodes); i++) {
		struct pl_nvme_sqe sqe = { .opcode = opcodes[i], .nsid = 1 };

		assert_int_equal(peerlane_nvme_admin(client.nvme, &sqe, NULL, 0, NULL), -EPERM);
		assert_int_equal(peerlane_nvme_admin(client.nvme, &sqe, data, 4096, NULL), -EPERM);
	}
	assert_int_equal(peerlane_nvme_set_feature(client.nvme, PL_NVME_FEAT_WRITE_CACHE, 0, 0),
			 -EPERM);
	assert_int_equal(peerlane_nvme_abort(client.q, 5), -ENOENT);
	/* What the controller itself refuses comes back as its status. */
	assert_int_equal(peerlane_nvme_admin(client.nvme,
					     &(struct pl_nvme_sqe){
						     .opcode = PL_NVME_ADMIN_IDENTIFY, .nsid = 77 },
					     data, 4096, &cpl),
			 -ENXIO);
	assert_int_equal(cpl.status, PL_NVME_SC_INVALID_NS);
	client_io(&client, 0, 1);
	client_close(&client);
	assert_int_equal(lab_counters(&lab).resets, 0);
	lab_stop(&lab);
}

/* An owner and its client in one process, with the controller in it as well. */
static void in_one_process(void **state)
{
	struct peerlane_nvme_options opt = { .size = sizeof(opt), .flags = PEERLANE_NVME_NO_DBBUF };
	struct peerlane_nvme_server *server, *other;
	struct client own, client;
	char path[64], address[80];
	struct stat st;
	int sock;

	(void)state;
	snprintf(path, sizeof(path), "/tmp/pl-serve-own-%d", (int)getpid());
	snprintf(address, sizeof(address), "served:%s", path);
	client_open(&own, "sim:to=120,size=4M,dbbuf=event", &opt);
	assert_int_equal(peerlane_nvme_serve(own.nvme, path, NULL, &server), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(peerlane_nvme_serve(own.nvme, path, NULL, &other), -EADDRINUSE);
	client_open(&client, address, NULL);
	for (unsigned int i = 0; i < 5; i++) {
		client_io(&own, 0, i);
		client_io(&client, CLIENT_BLOCKS, i + 100);
	}
	client_close(&client);
	peerlane_nvme_unserve(server);
	/* A socket that nobody listens at is replaced, and what is none is not. */
	sock = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	strcpy(at.sun_path, path);
	assert_int_equal(bind(sock, (struct sockaddr *)&at, sizeof(at)), 0);
	close(sock);
	assert_int_equal(peerlane_nvme_serve(own.nvme, path, NULL, &server), 0);
	client_open(&client, address, NULL);
	client_io(&client, 0, 1);
	client_close(&client);
	peerlane_nvme_unserve(server);
	close(open(path, O_CREAT | O_WRONLY, 0600));
	assert_int_equal(peerlane_nvme_serve(own.nvme, path, NULL, &server), -EADDRINUSE);
	assert_int_equal(access(path, F_OK), 0);
	unlink(path);
	client_close(&own);
}

static void not_to_be_shared(void **state)
{
	struct peerlane_nvme_serve_options bad = { .size = sizeof(bad), .mode = 07777 };
	struct peerlane_nvme_server *server;
	struct peerlane_nvme *nvme;
	struct fake *f = fake_new();

	(void)state;
	/* A transport without a restricted descriptor. */
	assert_int_equal(fake_open(f, NULL, &nvme), 0);
	assert_int_equal(peerlane_nvme_serve(nvme, "/tmp/x", NULL, &server), -EOPNOTSUPP);
	assert_int_equal(peerlane_nvme_serve(nvme, "", NULL, &server), -EINVAL);
	assert_int_equal(peerlane_nvme_serve(nvme, "/tmp/x", &bad, &server), -EINVAL);
	peerlane_nvme_close(nvme);
	fake_free(f);
	/* Shadow doorbells would be the owner's. */
	assert_int_equal(peerlane_nvme_open(&nvme, "sim:to=120,dbbuf=event", NULL), 0);
	assert_int_equal(peerlane_nvme_serve(nvme, "/tmp/x", NULL, &server), -EOPNOTSUPP);
	peerlane_nvme_close(nvme);
	assert_int_equal(peerlane_nvme_open(&nvme, "served:/tmp/nobody/here", NULL), -ENODEV);
	assert_int_equal(peerlane_nvme_open(&nvme, "served:", NULL), -EINVAL);
	peerlane_nvme_unserve(NULL);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(several_clients), cmocka_unit_test(as_the_controller),
		cmocka_unit_test(budget),	   cmocka_unit_test(forbidden),
		cmocka_unit_test(in_one_process),  cmocka_unit_test(not_to_be_shared),
	};
	int role = child_role(argc, argv);

	return role >= 0 ? role : cmocka_run_group_tests(tests, NULL, NULL);
}
