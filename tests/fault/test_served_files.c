// SPDX-License-Identifier: MIT
/*
 * Files that fail, come short or are interrupted, served to the queues of kernels where io_uring is not
 * allowed: every command ends with its data or with the right status, and the others are not touched.
 */
#include "fault.h"
#include "shim.h"

#include <peerlane/device.h>
#include <peerlane/device/io.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BLOCK 512u
#define BLOCKS 64u
#define FOR_EVER ((uint64_t)100 * 1000000000u)

static const char *path;

struct served {
	int fd;
	struct peerlane_device *dev;
	struct pld_port port;
	char memory[4096] __attribute__((aligned(16)));
};

/* Nor preadv2(), since reads that do not wait have no faults. */
static void refuse_io_uring(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_preadv2, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { .len = sizeof(code) / sizeof(code[0]), .filter = code };

	CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	CHECK(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog));
}

static void served_open(struct served *s)
{
	struct peerlane_device_info info = { .size = sizeof(info) };

	s->fd = open(path, O_RDWR | O_CLOEXEC);
	CHECK(s->fd >= 0);
	CHECK_EQ(peerlane_device_open_files(&s->dev, NULL, &s->fd, 1), 0);
	CHECK_EQ(peerlane_device_get_info(s->dev, &info), 0);
	pld_port_open(&s->port, info.queues, 0, 1);
}

static void served_close(struct served *s)
{
	peerlane_device_close(s->dev);
	close(s->fd);
}

static uint32_t status_of(struct served *s, uint8_t opcode, uint64_t lba, uint32_t nr)
{
	struct pld_io io = { .opcode = opcode,
			     .nsid = 1,
			     .lba = lba,
			     .nr_blocks = nr,
			     .bytes = nr * BLOCK,
			     .memory = s->memory };
	struct pld_completion cpl;

	CHECK_EQ(pld_io_start(&s->port, 1, &io), 0);
	pld_io_wait(&s->port, &io, FOR_EVER, &cpl);
	CHECK(!cpl.err || cpl.err == -EIO);
	return cpl.status & 0x7ff;
}

/* Every block is as it must be, by eight at a time. */
static void read_all(struct served *s, uint64_t seed)
{
	for (uint64_t lba = 0; lba < BLOCKS; lba += 8) {
		memset(s->memory, 0xee, sizeof(s->memory));
		CHECK_EQ(status_of(s, PL_NVME_READ, lba, 8), 0);
		CHECK_EQ(fault_differs(s->memory, sizeof(s->memory), lba * BLOCK, seed),
			 sizeof(s->memory));
	}
}

static void without_ring(void *arg)
{
	struct served s;
	char text[1024];

	(void)arg;
	refuse_io_uring();
	served_open(&s);
	peerlane_device_describe(s.dev, text, sizeof(text));
	CHECK(strstr(text, "io_uring is not allowed"));
	read_all(&s, 1);

	CASE("a block that cannot be read");
	shim_file(path);
	shim.error = EIO;
	shim.read_error_at = 20 * BLOCK + 5;
	CHECK_EQ(status_of(&s, PL_NVME_READ, 20, 1), PL_NVME_SC_READ_ERROR);
	CHECK_EQ(status_of(&s, PL_NVME_READ, 16, 8), PL_NVME_SC_READ_ERROR);
	CHECK_EQ(status_of(&s, PL_NVME_READ, 19, 1), 0);
	CHECK_EQ(fault_differs(s.memory, BLOCK, 19 * BLOCK, 1), BLOCK);
	/* Of the page that has it, none can be read. */
	CHECK_EQ(status_of(&s, PL_NVME_READ, 29, 1), 0);

	CASE("short and interrupted");
	shim.read_error_at = -1;
	shim.short_of = 2;
	shim.eintr_of = 3;
	read_all(&s, 1);
	for (uint64_t lba = 0; lba < BLOCKS; lba += 8) {
		fault_pattern(s.memory, sizeof(s.memory), lba * BLOCK, 2);
		CHECK_EQ(status_of(&s, PL_NVME_WRITE, lba, 8), 0);
	}
	read_all(&s, 2);
	CHECK(shim_hits() > 0);

	CASE("a block that cannot be written");
	shim_clear();
	shim_file(path);
	shim.error = EIO;
	shim.write_error_at = 30 * BLOCK;
	CHECK_EQ(status_of(&s, PL_NVME_WRITE, 30, 1), PL_NVME_SC_WRITE_FAULT);
	shim.error = ENOSPC;
	CHECK_EQ(status_of(&s, PL_NVME_WRITE, 30, 1), PL_NVME_SC_CAPACITY);
	shim.write_error_at = -1;
	CHECK_EQ(status_of(&s, PL_NVME_FLUSH, 0, 0), 0);
	shim.sync_error = EIO;
	CHECK_EQ(status_of(&s, PL_NVME_FLUSH, 0, 0), PL_NVME_SC_WRITE_FAULT);
	shim_clear();
	read_all(&s, 2);
	served_close(&s);
}

int main(void)
{
	fault_begin(60);
	path = fault_path("file");
	fault_make_file(path, BLOCKS * BLOCK, 1);
	return fault_child(without_ring, NULL);
}
