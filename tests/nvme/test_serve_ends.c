// SPDX-License-Identifier: MIT
/*
 * How sharing a controller ends: clients and owners that are killed with commands under way, commands that
 * are lost, controllers that fail. The controller holds commands back, so that they surely are under way; it
 * counts every access to memory that was taken away too early.
 */
#include "serve_lab.h"

#include <signal.h>
#include <stdio.h>
#include <time.h>

#define HELD 6u

static void inject(struct lab *lab, const char *rule)
{
	char why[200] = "";

	if (pl_simnvme_inject(lab->c, rule, why, sizeof(why)))
		fail_msg("%s: %s", rule, why);
}

static void wait_held(const struct lab *lab, uint64_t nr)
{
	static const struct timespec moment = { .tv_nsec = 1000000 };

	while (lab_counters(lab).held < nr)
		nanosleep(&moment, NULL);
}

/*
 * Killed mid-I/O: its queues are deleted before its memory goes, which the controller would count as faults. The
 * other client has commands under way all the time, and notices nothing.
 */
static void killed_client(void **state)
{
	uint64_t mappings, held, completions;
	struct peerlane_nvme_completion cpl[8];
	struct peerlane_nvme_queue *more;
	struct child child;
	struct client other;
	struct lab lab;

	(void)state;
	lab_start(&lab, "size=4M,queues=4", "4", "8");
	client_open(&other, lab.address, NULL);
	mappings = lab_counters(&lab).mappings;
	held = lab_counters(&lab).held; /* requests for events */
	for (unsigned int round = 0; round < 3; round++) {
		char rule[80];

		/* The owner gives out the lowest id that is free: the first is the other client's. */
		snprintf(rule, sizeof(rule), "hold opcode=read queue=2 count=%u", HELD);
		inject(&lab, rule);
		child = child_start("busy", lab.address, "6", NULL);
		wait_held(&lab, held + HELD);
		assert_int_equal(lab_counters(&lab).io_queues, 4);
		client_io(&other, 2 * CLIENT_BLOCKS, round);
		client_submit(&other, 8);
		child_kill(&child);
		assert_int_equal(peerlane_nvme_wait(other.q, cpl, 8, 8, 120000), 8);
		for (unsigned int i = 0; i < 8; i++)
			assert_int_equal(cpl[i].err, 0);
		lab_wait_mappings(&lab, mappings);
		assert_int_equal(lab_counters(&lab).io_queues, 2);
		assert_int_equal(lab_counters(&lab).held, held);
		client_io(&other, 2 * CLIENT_BLOCKS, round + 50);
	}
	/* All ids are there again. */
	completions = lab_counters(&lab).completions;
	for (unsigned int i = 0; i < 3; i++)
		assert_int_equal(peerlane_nvme_queue_create(other.nvme, NULL, &more), 0);
	assert_true(lab_counters(&lab).completions > completions);
	assert_int_equal(lab_counters(&lab).resets, 0);
	client_close(&other);
	lab_stop(&lab);
}

static void killed_owner(void **state)
{
	struct peerlane_nvme_info info = { .size = sizeof(info) };
	struct peerlane_nvme_queue *q;
	struct client a, b;
	struct lab lab;
	char data[4096];

	(void)state;
	lab_start(&lab, "size=4M", "4", "8");
	client_open(&a, lab.address, NULL);
	client_open(&b, lab.address, NULL);
	inject(&lab, "hold opcode=read");
	client_submit(&a, HELD);
	client_submit(&b, HELD);
	/* Neither does anything but wait. */
	wait_held(&lab, 2 * HELD);
	child_kill(&lab.owner);
	client_lost(&a, HELD, -ENODEV);
	/* The other one asks for something first. */
	assert_int_equal(peerlane_nvme_identify(b.nvme, PL_NVME_CNS_CTRL, 0, data), -ENODEV);
	client_lost(&b, HELD, -ENODEV);
	assert_int_equal(peerlane_nvme_queue_create(b.nvme, NULL, &q), -ENODEV);
	assert_int_equal(peerlane_nvme_reset(a.nvme), -ENODEV);
	assert_int_equal(peerlane_nvme_get_info(b.nvme, &info), 0);
	assert_int_equal(info.dead, -ENODEV);
	client_close(&a);
	client_close(&b);
	/* The controller was stopped before the memory went. */
	assert_false(lab_counters(&lab).ready);
	lab_stop(&lab);
}

/* An owner that ends in order. */
static void owner_ends(void **state)
{
	struct client client;
	struct lab lab;

	(void)state;
	lab_start(&lab, "size=4M", "4", "8");
	client_open(&client, lab.address, NULL);
	inject(&lab, "hold opcode=read");
	client_submit(&client, HELD);
	child_end(&lab.owner);
	client_lost(&client, HELD, -ENODEV);
	client_close(&client);
	lab_stop(&lab);
}

/* An owner that does not answer: an error in time, and nothing is unmapped under the controller. */
static void stopped_owner(void **state)
{
	struct peerlane_nvme_options opt = { .size = sizeof(opt), .admin_timeout_ms = 300 };
	struct client client;
	struct lab lab;
	char data[4096];

	(void)state;
	lab_start(&lab, "size=4M", "4", "8");
	client_open(&client, lab.address, &opt);
	inject(&lab, "hold opcode=read");
	client_submit(&client, HELD);
	wait_held(&lab, HELD);
	kill(lab.owner.pid, SIGSTOP);
	assert_int_equal(peerlane_nvme_identify(client.nvme, PL_NVME_CNS_CTRL, 0, data),
			 -ETIMEDOUT);
	client_lost(&client, HELD, -ENODEV);
	client_close(&client);
	/* The owner finds its client gone, deletes the queue, and only then does the memory go. */
	assert_true(lab_counters(&lab).io_queues > 0);
	kill(lab.owner.pid, SIGCONT);
	lab_stop(&lab);
}

/* A command is lost. The client's queue is made anew; that of the other stays. */
static void lost_command(void **state)
{
	struct peerlane_nvme_info info = { .size = sizeof(info) };
	struct peerlane_nvme_options opt = { .size = sizeof(opt), .timeout_ms = 200 };
	struct client a, b;
	struct lab lab;

	(void)state;
	lab_start(&lab, "size=4M", "4", "8");
	client_open(&a, lab.address, &opt);
	client_open(&b, lab.address, NULL);
	inject(&lab, "drop opcode=read count=1");
	client_submit(&a, 1);
	client_lost(&a, 1, -ETIMEDOUT);
	client_io(&a, 0, 1);
	client_io(&b, CLIENT_BLOCKS, 2);
	assert_int_equal(peerlane_nvme_get_info(a.nvme, &info), 0);
	assert_int_equal(info.nr_resets, 1);
	assert_int_equal(lab_counters(&lab).resets, 0);
	/* One that can be aborted is, by the owner. */
	inject(&lab, "hold opcode=read count=1");
	client_submit(&a, 1);
	client_lost(&a, 1, -ETIMEDOUT);
	assert_int_equal(peerlane_nvme_get_info(a.nvme, &info), 0);
	assert_int_equal(info.nr_resets, 1);
	client_close(&a);
	client_close(&b);
	lab_stop(&lab);
}

/* The controller fails: the owner resets it. Clients are told that it is gone, and can come again. */
static void failed_controller(void **state)
{
	struct client a, b;
	struct lab lab;

	(void)state;
	lab_start(&lab, "size=4M", "4", "8");
	lab.rough = true; /* clients may still ring while it is being reset */
	client_open(&a, lab.address, NULL);
	client_open(&b, lab.address, NULL);
	inject(&lab, "hold opcode=read");
	client_submit(&a, HELD);
	client_submit(&b, HELD);
	wait_held(&lab, 2 * HELD);
	inject(&lab, "fatal opcode=identify count=1");
	peerlane_nvme_identify(a.nvme, PL_NVME_CNS_CTRL, 0, a.mem);
	client_lost(&a, HELD, -ENODEV);
	client_lost(&b, HELD, -ENODEV);
	client_close(&a);
	client_close(&b);
	client_open(&a, lab.address, NULL);
	client_close(&a);
	assert_int_equal(lab_counters(&lab).enables, 2);
	lab_stop(&lab);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(killed_client), cmocka_unit_test(killed_owner),
		cmocka_unit_test(owner_ends),	 cmocka_unit_test(stopped_owner),
		cmocka_unit_test(lost_command),	 cmocka_unit_test(failed_controller),
	};
	int role = child_role(argc, argv);

	return role >= 0 ? role : cmocka_run_group_tests(tests, NULL, NULL);
}
