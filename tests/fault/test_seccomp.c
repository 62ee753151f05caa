// SPDX-License-Identifier: MIT
/*
 * A container's filter that refuses system calls the library would like to use: data and counts
 * are right all the same, and peerlane_explain() tells what is missing.
 */
#include "fault.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_cachestat
#define SYS_cachestat 451
#endif

#define BYTES (16 * MIB + 99)

struct filter {
	const char *name;
	int error;
	long calls[10]; /* ended by -1 */
	bool no_ring;
	bool no_residency;
};

static const char *path;

static const struct filter filters[] = {
	{ "io_uring", EPERM, { SYS_io_uring_setup, -1 }, true, false },
	{ "io_uring, unknown", ENOSYS, { SYS_io_uring_setup, -1 }, true, false },
	{ "io_uring enter", EPERM, { SYS_io_uring_enter, -1 }, true, false },
	{ "cachestat", ENOSYS, { SYS_cachestat, -1 }, false, false },
	{ "cachestat and mincore", EPERM, { SYS_cachestat, SYS_mincore, -1 }, false, false },
	{ "residency", ENOSYS, { SYS_cachestat, SYS_mincore, SYS_preadv2, -1 }, false, true },
	{ "process_vm_readv", EPERM, { SYS_process_vm_readv, -1 }, false, false },
	{ "memfd_create", ENOSYS, { SYS_memfd_create, -1 }, false, false },
	{ "pwritev2", ENOSYS, { SYS_pwritev2, -1 }, false, false },
	{ "statx", ENOSYS, { SYS_statx, -1 }, false, false },
	{ "all of them",
	  EPERM,
	  { SYS_io_uring_setup, SYS_cachestat, SYS_mincore, SYS_preadv2, SYS_process_vm_readv,
	    SYS_memfd_create, -1 },
	  true,
	  true },
};

static void refuse(const struct filter *f)
{
	struct sock_filter code[32];
	struct sock_fprog prog = { .filter = code };
	unsigned short n = 0;

	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
						 offsetof(struct seccomp_data, nr));
	for (int i = 0; f->calls[i] >= 0; i++) {
		code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
							 (uint32_t)f->calls[i], 0, 1);
		code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K,
							 SECCOMP_RET_ERRNO | (uint32_t)f->error);
	}
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	prog.len = n;
	CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	CHECK(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog));
}

static void transfers(struct peerlane *ctx, int open_flags)
{
	struct peerlane_file *f = fault_file(ctx, path, O_RDWR | open_flags);
	char *gpu = fault_gpu(ctx, BYTES);

	for (int i = 0; i < 2 * FAULT_NR_HOW; i++) {
		enum fault_how how = (enum fault_how)(i % FAULT_NR_HOW);

		if (i >= FAULT_NR_HOW)
			fault_make_cold(path);
		memset(fault_see(gpu), 0, BYTES);
		CHECK_EQ(fault_io(how, ctx, f, PEERLANE_READ, gpu, BYTES, 0), BYTES);
		CHECK_EQ(fault_differs(fault_see(gpu), BYTES, 0, 1), BYTES);
		CHECK_EQ(fault_io(how, ctx, f, PEERLANE_WRITE, gpu, BYTES, 0), BYTES);
		memset(fault_see(gpu), 0, BYTES);
		CHECK_EQ(fault_io(how, ctx, f, PEERLANE_READ, gpu + 5, BYTES - 5, 5), BYTES - 5);
		CHECK_EQ(fault_differs(fault_see(gpu) + 5, BYTES - 5, 5, 1), BYTES - 5);
	}
	CHECK_EQ(peerlane_file_close(f), 0);
	CHECK_EQ(peerlane_gpu_free(ctx, gpu), 0);
}

static void explained(const struct filter *filter, struct peerlane *ctx)
{
	struct peerlane_explanation ex = { .size = sizeof(ex) };
	struct peerlane_file *f = fault_file(ctx, path, O_RDWR);
	char *gpu = fault_gpu(ctx, BYTES);

	CHECK_EQ(peerlane_explain(f, PEERLANE_READ, gpu, BYTES, 0, &ex), 0);
	CHECK(!strcmp(ex.io_engine, filter->no_ring ? "threads" : "io_uring"));
	CHECK(!filter->no_ring == !*ex.io_reason);
	if (filter->no_ring)
		CHECK(strstr(ex.io_reason, "io_uring"));
	if (filter->no_ring && filter->error == EPERM)
		CHECK(strstr(ex.io_reason, "seccomp"));
	if (filter->no_residency)
		CHECK_EQ(ex.cached_bytes, -1);
	else
		CHECK(ex.cached_bytes >= 0);
	/* It is not known whether the data is cached: then that must not be given as a reason. */
	if (filter->no_residency)
		CHECK(!strstr(ex.verdicts[PEERLANE_PATH_COPY].reason, "is in the page cache"));
	CHECK_EQ(peerlane_file_close(f), 0);
}

static void run(void *arg)
{
	const struct filter *filter = arg;
	struct peerlane *ctx;

	CASE("refused: %s", filter->name);
	refuse(filter);
	setenv("PEERLANE_SIM_IN_PLACE", "1", 1);
	ctx = fault_open(PEERLANE_SAVE_CPU, 2000);
	transfers(ctx, 0);
	transfers(ctx, O_DIRECT);
	explained(filter, ctx);
	fault_check_idle(ctx);
	peerlane_close(ctx);
}

int main(void)
{
	int failed = 0;

	fault_begin(50);
	path = fault_path("file");
	fault_make_file(path, BYTES, 1);
	for (size_t i = 0; i < sizeof(filters) / sizeof(filters[0]); i++) {
		int status = fault_child(run, (void *)(uintptr_t)&filters[i]);

		if (status)
			printf("FAIL with %s refused: status %d\n", filters[i].name, status);
		failed |= status;
	}
	return failed ? 1 : 0;
}
