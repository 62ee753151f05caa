// SPDX-License-Identifier: MIT
/* What an owner makes of messages that no driver of ours sends: other people's queues, lies, nonsense. */
#include "serve_lab.h"

#include "served_wire.h"

#include <dirent.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 3000u

static int dial(const struct lab *lab)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	strcpy(address.sun_path, lab->path);
	assert_int_equal(connect(sock, (struct sockaddr *)&address, sizeof(address)), 0);
	return sock;
}

/* The answer; or -EPIPE if the owner hangs up. */
static int answer_of(int sock, struct pl_nvme_answer *answer)
{
	struct pollfd fd = { .fd = sock, .events = POLLIN };
	static char data[PL_NVME_IDENTIFY_BYTES * 16];
	int rc, got;

	assert_int_equal(poll(&fd, 1, 120000), 1);
	rc = pl_nvme_served_receive(sock, answer, sizeof(*answer), data, sizeof(data), &got);
	if (got >= 0)
		close(got);
	return rc < 0 ? rc : answer->rc;
}

static int say(int sock, struct pl_nvme_ask ask, struct pl_nvme_answer *answer)
{
	assert_int_equal(pl_nvme_served_send(sock, &ask, sizeof(ask), NULL, 0, -1), 0);
	return answer_of(sock, answer);
}

static int hello(int sock)
{
	struct pl_nvme_answer answer;

	return say(sock,
		   (struct pl_nvme_ask){ .op = PL_NVME_ASK_HELLO, .value = PL_NVME_SERVED_VERSION },
		   &answer);
}

static int admin(int sock, struct pl_nvme_sqe sqe, uint32_t bytes)
{
	struct pl_nvme_answer answer;
	int rc = say(sock,
		     (struct pl_nvme_ask){ .op = PL_NVME_ASK_ADMIN, .bytes = bytes, .sqe = sqe },
		     &answer);

	/* A refusal has no status of the controller, and the other way round. */
	return rc ? rc : answer.cqe.status >> 1 & 0x7ff;
}

static uint32_t take_queue(int sock)
{
	struct pl_nvme_answer answer;

	assert_int_equal(say(sock, (struct pl_nvme_ask){ .op = PL_NVME_ASK_TAKE_QUEUE }, &answer),
			 0);
	return answer.value;
}

static int about(int sock, uint8_t opcode, uint32_t cdw10, uint32_t cdw11)
{
	return admin(sock, (struct pl_nvme_sqe){ .opcode = opcode, .cdw10 = cdw10, .cdw11 = cdw11 },
		     0);
}

static void queues_of_others(void **state)
{
	struct pl_nvme_answer answer;
	struct client other;
	struct lab lab;
	uint32_t mine;
	int sock;

	(void)state;
	lab_start(&lab, "size=4M", "4", "8");
	client_open(&other, lab.address, NULL); /* has queue 1 */
	sock = dial(&lab);
	assert_int_equal(hello(sock), 0);
	mine = take_queue(sock);
	assert_int_equal(mine, 2);
	assert_int_equal(about(sock, PL_NVME_ADMIN_DELETE_SQ, 1, 0), -EPERM);
	assert_int_equal(about(sock, PL_NVME_ADMIN_DELETE_CQ, 1, 0), -EPERM);
	assert_int_equal(about(sock, PL_NVME_ADMIN_DELETE_SQ, 0, 0), -EPERM);
	assert_int_equal(about(sock, PL_NVME_ADMIN_DELETE_SQ, 0xffff, 0), -EPERM);
	assert_int_equal(about(sock, PL_NVME_ADMIN_CREATE_CQ, 7 << 16 | 3, 1), -EPERM);
	assert_int_equal(about(sock, PL_NVME_ADMIN_CREATE_SQ, 7 << 16 | 1, 1 << 16 | 1), -EPERM);
	/* Its completions would come into another one's queue. */
	assert_int_equal(about(sock, PL_NVME_ADMIN_CREATE_SQ, 7 << 16 | mine, 1 << 16 | 1), -EPERM);
	assert_int_equal(about(sock, PL_NVME_ADMIN_ABORT, 1, 0), -EPERM);
	/* Its own, which it has not created. */
	assert_int_equal(about(sock, PL_NVME_ADMIN_ABORT, mine, 0), -EPERM);
	assert_int_equal(about(sock, PL_NVME_ADMIN_DELETE_SQ, mine, 0), 0x101);
	assert_int_equal(say(sock, (struct pl_nvme_ask){ .op = PL_NVME_ASK_GIVE_QUEUE, .value = 1 },
			     &answer),
			 -ENOENT);
	assert_int_equal(say(sock,
			     (struct pl_nvme_ask){ .op = PL_NVME_ASK_GIVE_QUEUE, .value = mine },
			     &answer),
			 0);
	assert_int_equal(about(sock, PL_NVME_ADMIN_DELETE_SQ, mine, 0), -EPERM);
	client_io(&other, 0, 1);
	client_close(&other);
	close(sock);
	assert_int_equal(lab_counters(&lab).resets, 0);
	lab_stop(&lab);
}

static void lies_about_data(void **state)
{
	struct pl_nvme_sqe log = { .opcode = PL_NVME_ADMIN_GET_LOG_PAGE, .nsid = 0xffffffff };
	struct pl_nvme_sqe identify = { .opcode = PL_NVME_ADMIN_IDENTIFY, .cdw10 = 1 };
	struct pl_nvme_sqe set = { .opcode = PL_NVME_ADMIN_SET_FEATURES, .cdw10 = 6 };
	struct pl_nvme_sqe feature = { .opcode = PL_NVME_ADMIN_GET_FEATURES,
				       .cdw10 = 3,
				       .nsid = 1 };
	struct lab lab;
	int sock;

	(void)state;
	lab_start(&lab, "size=4M", "4", "8");
	sock = dial(&lab);
	assert_int_equal(hello(sock), 0);
	log.cdw10 = PL_NVME_LOG_SMART | 127u << PL_NVME_LOG_NUMD_SHIFT;
	assert_int_equal(admin(sock, log, 512), 0);
	/* More than there is room for; less; nothing; something that is done by reading. */
	assert_int_equal(admin(sock, log, 508), -EINVAL);
	assert_int_equal(admin(sock, log, 4096), -EINVAL);
	assert_int_equal(admin(sock, log, 0), -EINVAL);
	log.cdw11 = 1;
	assert_int_equal(admin(sock, log, 512), -EINVAL);
	log.cdw11 = 1 << 16;
	assert_int_equal(admin(sock, log, 512), -EPERM);
	log.cdw11 = 0;
	log.cdw10 |= 1 << 8;
	assert_int_equal(admin(sock, log, 512), -EPERM);
	assert_int_equal(admin(sock, identify, 4096), 0);
	assert_int_equal(admin(sock, identify, 0), -EINVAL);
	assert_int_equal(admin(sock, identify, 8192), -EINVAL);
	assert_int_equal(admin(sock, identify, 4095), -EINVAL);
	assert_int_equal(admin(sock, identify, UINT32_MAX), -EINVAL);
	/* Addresses that came with it are not used. */
	identify.dptr.prp.prp1 = 0x1000;
	identify.flags = 0xff;
	identify.mptr = 0x2000;
	assert_int_equal(admin(sock, identify, 4096), 0);
	assert_int_equal(admin(sock, set, 0), -EPERM);
	assert_int_equal(admin(sock, feature, 0), admin(sock, feature, 4096));
	close(sock);
	lab_stop(&lab);
}

static void wrong_order(void **state)
{
	struct pl_nvme_ask old = { .op = PL_NVME_ASK_HELLO, .value = PL_NVME_SERVED_VERSION + 1 };
	struct pl_nvme_answer answer;
	struct lab lab;
	int sock;

	(void)state;
	lab_start(&lab, "size=4M", "4", "8");
	/* Before HELLO. */
	sock = dial(&lab);
	assert_int_equal(about(sock, PL_NVME_ADMIN_IDENTIFY, 1, 0), -EPROTO);
	assert_int_equal(answer_of(sock, &answer), -EPIPE);
	close(sock);
	sock = dial(&lab);
	assert_int_equal(say(sock, old, &answer), -EPROTONOSUPPORT);
	assert_int_equal(answer_of(sock, &answer), -EPIPE);
	close(sock);
	/* Twice. */
	sock = dial(&lab);
	assert_int_equal(hello(sock), 0);
	assert_int_equal(hello(sock), -EPROTO);
	assert_int_equal(answer_of(sock, &answer), -EPIPE);
	close(sock);
	/* A length that none has. */
	sock = dial(&lab);
	assert_int_equal(hello(sock), 0);
	assert_int_equal(send(sock, &old, sizeof(old) - 1, MSG_NOSIGNAL), sizeof(old) - 1);
	assert_int_equal(answer_of(sock, &answer), -EPIPE);
	close(sock);
	/* A descriptor that nobody asked for. */
	sock = dial(&lab);
	assert_int_equal(pl_nvme_served_send(sock, &old, sizeof(old), NULL, 0, sock), 0);
	assert_int_equal(answer_of(sock, &answer), -EPIPE);
	close(sock);
	/* One that asks and asks, and does not listen, is not waited for. */
	sock = dial(&lab);
	assert_int_equal(hello(sock), 0);
	old = (struct pl_nvme_ask){ .op = PL_NVME_ASK_ADMIN,
				    .bytes = 4096,
				    .sqe = { .opcode = PL_NVME_ADMIN_IDENTIFY, .cdw10 = 1 } };
	while (send(sock, &old, sizeof(old), MSG_NOSIGNAL) == sizeof(old))
		;
	close(sock);
	lab_stop(&lab);
}

static unsigned int open_files(pid_t pid)
{
	char path[64];
	unsigned int nr = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	assert_non_null(dir);
	while (readdir(dir))
		nr++;
	closedir(dir);
	return nr;
}

static uint32_t next(uint32_t *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return *seed >> 8;
}

/* Bytes at random, some of them where they mean something. A client beside them is not disturbed. */
static void fuzz(void **state)
{
	static const struct timespec moment = { .tv_nsec = 1000000 };
	uint32_t seed = 1;
	struct client other;
	struct lab lab;
	unsigned int files;
	int sock = -1;

	(void)state;
	lab_start(&lab, "size=4M", "4", "8");
	/* Queues lie at random addresses, where nothing is. */
	lab.rough = true;
	client_open(&other, lab.address, NULL);
	files = open_files(lab.owner.pid);
	for (unsigned int i = 0; i < ROUNDS; i++) {
		struct pl_nvme_answer answer;
		struct pl_nvme_ask ask;
		unsigned char *bytes = (unsigned char *)&ask;
		size_t length = sizeof(ask);

		if (sock < 0) {
			sock = dial(&lab);
			if (next(&seed) % 8 && hello(sock)) {
				close(sock);
				sock = -1;
				continue;
			}
		}
		for (size_t b = 0; b < sizeof(ask); b++)
			bytes[b] = (unsigned char)next(&seed);
		/* No create: a queue in the nowhere is fatal to a strict controller. */
		ask.op = 1 + next(&seed) % 6;
		if (next(&seed) % 4)
			ask.bytes = 4096 * (next(&seed) % 2);
		ask.value &= 7;
		ask.sqe.opcode = (uint8_t)(next(&seed) % 4 ? 2 * (next(&seed) % 6) : next(&seed));
		if (ask.sqe.opcode == PL_NVME_ADMIN_CREATE_CQ ||
		    ask.sqe.opcode == PL_NVME_ADMIN_CREATE_SQ)
			ask.sqe.cdw10 = 1;
		if (!(next(&seed) % 32))
			length = next(&seed) % (sizeof(ask) + 1);
		if (send(sock, &ask, length, MSG_NOSIGNAL) < 0 ||
		    answer_of(sock, &answer) == -EPIPE || !(next(&seed) % 64)) {
			close(sock);
			sock = -1;
		}
		if (!(i % 100))
			client_io(&other, 0, i);
	}
	if (sock >= 0)
		close(sock);
	client_io(&other, 0, 1);
	/* Nothing is left of them. */
	while (open_files(lab.owner.pid) != files)
		nanosleep(&moment, NULL);
	client_close(&other);
	assert_int_equal(lab_counters(&lab).resets, 0);
	lab_stop(&lab);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(queues_of_others),
		cmocka_unit_test(lies_about_data),
		cmocka_unit_test(wrong_order),
		cmocka_unit_test(fuzz),
	};
	int role = child_role(argc, argv);

	return role >= 0 ? role : cmocka_run_group_tests(tests, NULL, NULL);
}
