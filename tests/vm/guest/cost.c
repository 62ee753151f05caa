// SPDX-License-Identifier: MIT
/*
 * What a direct read costs: system calls, and instructions of the calling thread in user space, of
 * 128 KiB reads by the library into GPU memory, beside a plain io_uring loop with O_DIRECT into host
 * memory. Not time: in a virtual machine that means nothing.
 */
#include <liburing.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>

#include "engine.h"

#define READ (128 * KIB)
#define NR_READS 64u
#define DEPTH 32u
#define TOTAL (NR_READS * READ)
/* Single steps are slow. */
#define NR_STEPPED 2u
#define MAX_STEPS 400000u
#define VDSO_BYTES 8192u
#define INT3 0xcc

/* System calls that are counted by themselves. */
enum { ALL, ENTER, PREAD, FSTAT, CLOCK, IOCTL, NR_COUNTERS };

static const char *const events[NR_COUNTERS] = {
	[ALL] = "raw_syscalls/sys_enter",
	[ENTER] = "syscalls/sys_enter_io_uring_enter",
	[PREAD] = "syscalls/sys_enter_pread64",
	[FSTAT] = "syscalls/sys_enter_newfstatat",
	[CLOCK] = "syscalls/sys_enter_clock_gettime",
	[IOCTL] = "syscalls/sys_enter_ioctl",
};

struct cost {
	uint64_t calls[NR_COUNTERS];
	uint64_t instructions;
};

/* A way to read, with all it needs. */
struct way {
	const char *name;
	int fd;
	bool engine, batch;
	/* The plain way: */
	struct io_uring ring;
	char *host;
	/* The library: */
	struct peerlane *ctx;
	struct peerlane_file *file;
	struct peerlane_batch *many;
	void *gpu;
};

/* ------------------------------------------------------------------ ways to read */

static void plain_one(struct way *w, size_t at)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&w->ring);
	struct io_uring_cqe *cqe;

	io_uring_prep_read(sqe, w->fd, w->host, READ, at);
	expect(io_uring_submit_and_wait(&w->ring, 1) == 1);
	expect(io_uring_peek_cqe(&w->ring, &cqe) == 0 && cqe->res == (int)READ);
	io_uring_cqe_seen(&w->ring, cqe);
}

static void plain_many(struct way *w, size_t at)
{
	struct io_uring_cqe *cqe;

	for (unsigned int i = 0; i < DEPTH; i++)
		io_uring_prep_read(io_uring_get_sqe(&w->ring), w->fd, w->host + i * READ, READ,
				   at + i * READ);
	expect(io_uring_submit(&w->ring) == DEPTH);
	for (unsigned int i = 0; i < DEPTH; i++) {
		expect(io_uring_wait_cqe(&w->ring, &cqe) == 0 && cqe->res == (int)READ);
		io_uring_cqe_seen(&w->ring, cqe);
	}
}

static void engine_many(struct way *w, size_t at)
{
	struct peerlane_event done[DEPTH];
	struct peerlane_io io[DEPTH];

	for (unsigned int i = 0; i < DEPTH; i++)
		io[i] = (struct peerlane_io){ .file = w->file,
					      .addr = (char *)w->gpu + i * READ,
					      .bytes = READ,
					      .offset = (off_t)(at + i * READ) };
	expect(peerlane_batch_submit(w->many, io, DEPTH) == 0);
	expect(peerlane_batch_wait(w->many, DEPTH, done, DEPTH, NULL) == DEPTH);
	for (unsigned int i = 0; i < DEPTH; i++)
		expect(done[i].result == (ssize_t)READ);
}

static void read_one(struct way *w, size_t at)
{
	if (w->engine)
		expect(peerlane_read(w->file, w->gpu, READ, (off_t)at) == (ssize_t)READ);
	else
		plain_one(w, at);
}

static void read_all(struct way *w)
{
	for (size_t at = 0; at < TOTAL; at += (w->batch ? DEPTH : 1) * READ) {
		if (!w->batch)
			read_one(w, at);
		else if (w->engine)
			engine_many(w, at);
		else
			plain_many(w, at);
	}
}

static void way_open(struct way *w)
{
	struct peerlane_options opt = { .size = sizeof(opt), .backend = "simgpu" };

	if (!w->engine) {
		w->host = host_alloc(DEPTH * READ);
		expect(io_uring_queue_init(DEPTH, &w->ring, 0) == 0);
		return;
	}
	expect(peerlane_open(&w->ctx, &opt) == 0);
	expect(peerlane_gpu_alloc(w->ctx, 0, DEPTH * READ, &w->gpu) == 0);
	expect(peerlane_buffer_register(w->ctx, w->gpu, DEPTH * READ, 0) == 0);
	expect(peerlane_file_from_fd(w->ctx, w->fd, &w->file) == 0);
	expect(peerlane_batch_create(w->ctx, DEPTH, &w->many) == 0);
}

static void way_close(struct way *w)
{
	struct peerlane_stats st = { .size = sizeof(st) };

	if (!w->engine) {
		io_uring_queue_exit(&w->ring);
		return;
	}
	/* Every byte went to the GPU by DMA, or the comparison says nothing. */
	expect(peerlane_stats_get(w->ctx, &st) == 0);
	expect(st.read.path_bytes[PEERLANE_PATH_P2P] == st.read.bytes && st.read.bytes >= TOTAL);
	peerlane_batch_destroy(w->many);
	expect(peerlane_buffer_release(w->ctx, w->gpu) == 0);
	expect(peerlane_gpu_free(w->ctx, w->gpu) == 0);
	peerlane_close(w->ctx);
}

/* ------------------------------------------------------------------ counting */

/* Counts an event of the process and of the threads it will have. */
static int counter_open(const char *event)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_TRACEPOINT, .size = sizeof(attr), .disabled = 1, .inherit = 1
	};
	char path[128];
	FILE *f;
	int fd;

	snprintf(path, sizeof(path), "/sys/kernel/tracing/events/%s/id", event);
	f = fopen(path, "r");
	if (!f || fscanf(f, "%llu", &attr.config) != 1)
		fail("no event %s", path);
	fclose(f);
	fd = (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
	expect(fd >= 0);
	return fd;
}

static void count_calls(struct way *w, struct cost *cost)
{
	int fds[NR_COUNTERS];

	/* Before there are threads: only later ones inherit it. */
	for (int i = 0; i < NR_COUNTERS; i++)
		fds[i] = counter_open(events[i]);
	way_open(w);
	read_all(w);
	/* The first to be opened is enabled last and disabled first, so it sees one call of ours. */
	for (int i = NR_COUNTERS - 1; i >= 0; i--)
		expect(ioctl(fds[i], PERF_EVENT_IOC_ENABLE, 0) == 0);
	read_all(w);
	for (int i = 0; i < NR_COUNTERS; i++)
		expect(ioctl(fds[i], PERF_EVENT_IOC_DISABLE, 0) == 0);
	for (int i = 0; i < NR_COUNTERS; i++) {
		expect(read(fds[i], &cost->calls[i], 8) == 8);
		close(fds[i]);
	}
	/* Where a virtual machine's clock is not good enough for the kernel's page of it, reading it is
	 * a call; elsewhere it is none. */
	cost->calls[ALL] -= 1 + cost->calls[CLOCK];
	/* Enabling those before it, and disabling those up to it. */
	cost->calls[IOCTL] -= 2 * IOCTL + 1;
	way_close(w);
}

/* Between two stops of its own the child reads; the parent counts its steps. */
static void stepped_child(struct way *w)
{
	expect(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
	way_open(w);
	read_all(w);
	raise(SIGSTOP);
	for (size_t i = 0; i < NR_STEPPED; i++)
		read_one(w, i * READ);
	raise(SIGSTOP);
	way_close(w);
	fflush(stdout);
	_exit(0);
}

/*
 * Reading the clock, in the kernel's page for it, is done over when the clock has moved meanwhile,
 * and that it has with every step. So the child runs until it comes back from there.
 */
static void leave_vdso(pid_t pid)
{
	unsigned long start = getauxval(AT_SYSINFO_EHDR);
	struct user_regs_struct regs;
	long word, back;
	int status;

	expect(ptrace(PTRACE_GETREGS, pid, NULL, &regs) == 0);
	if (!start || regs.rip - start >= VDSO_BYTES)
		return;
	/* It was just called. */
	back = ptrace(PTRACE_PEEKDATA, pid, regs.rsp, NULL);
	word = ptrace(PTRACE_PEEKTEXT, pid, back, NULL);
	expect(ptrace(PTRACE_POKETEXT, pid, back, (word & ~0xffl) | INT3) == 0);
	expect(ptrace(PTRACE_CONT, pid, NULL, NULL) == 0);
	expect(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status));
	expect(WSTOPSIG(status) == SIGTRAP);
	expect(ptrace(PTRACE_POKETEXT, pid, back, word) == 0);
	expect(ptrace(PTRACE_GETREGS, pid, NULL, &regs) == 0 && (long)regs.rip == back + 1);
	regs.rip--;
	expect(ptrace(PTRACE_SETREGS, pid, NULL, &regs) == 0);
}

static uint64_t count_instructions(struct way *w)
{
	uint64_t steps = 0;
	int status;
	cpu_set_t one;
	pid_t pid;

	/* The two take turns: on one processor nobody has to be woken on another. */
	CPU_ZERO(&one);
	CPU_SET(0, &one);
	expect(sched_setaffinity(0, sizeof(one), &one) == 0);
	fflush(stdout);
	pid = fork();
	expect(pid >= 0);
	if (!pid)
		stepped_child(w);
	expect(waitpid(pid, &status, 0) == pid);
	if (!WIFSTOPPED(status) || WSTOPSIG(status) != SIGSTOP)
		fail("the child did not get there: %#x", status);
	for (;;) {
		expect(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) == 0);
		expect(waitpid(pid, &status, 0) == pid && WIFSTOPPED(status));
		if (WSTOPSIG(status) == SIGSTOP)
			break;
		expect(WSTOPSIG(status) == SIGTRAP);
		if (++steps > MAX_STEPS)
			fail("%s: more than %u steps", w->name, MAX_STEPS);
		leave_vdso(pid);
	}
	expect(ptrace(PTRACE_CONT, pid, NULL, NULL) == 0);
	expect(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status));
	return steps / NR_STEPPED;
}

static void counted_child(void *arg)
{
	void **args = arg;

	count_calls(args[0], args[1]);
}

static struct cost measure(struct way w)
{
	struct cost *cost = mmap(NULL, sizeof(*cost), PROT_READ | PROT_WRITE,
				 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	const uint64_t *calls = cost->calls;

	expect(cost != MAP_FAILED);
	in_child(counted_child, (void *[]){ &w, cost }, 0);
	printf("SAY %-31s %4llu calls (%llu io_uring_enter, %llu pread, %llu fstat, %llu ioctl)",
	       w.name, (unsigned long long)calls[ALL], (unsigned long long)calls[ENTER],
	       (unsigned long long)calls[PREAD], (unsigned long long)calls[FSTAT],
	       (unsigned long long)calls[IOCTL]);
	if (!w.batch) {
		cost->instructions = count_instructions(&w);
		printf(", %llu instructions each", (unsigned long long)cost->instructions);
	}
	printf("\n");
	return *cost;
}

/* ------------------------------------------------------------------ the test */

/* Calls that move data. */
static uint64_t moving(const struct cost *c)
{
	return c->calls[ENTER] + c->calls[PREAD];
}

int test_engine_cost(void)
{
	int file = open("/mnt/src", O_RDONLY | O_DIRECT);
	int drive = drive_open("raw0", O_RDONLY | O_DIRECT);
	struct cost plain, ours;

	expect(mount("tracefs", "/sys/kernel/tracing", "tracefs", 0, NULL) == 0);
	printf("SAY %u reads of 128 KiB; instructions are those in user space:\n", NR_READS);
	plain = measure((struct way){ .name = "drive, io_uring to host memory:", .fd = drive });
	expect(plain.calls[ENTER] == NR_READS && plain.calls[ALL] == NR_READS);
	ours = measure(
		(struct way){ .name = "drive, peerlane to the GPU:", .fd = drive, .engine = true });
	/* No call more than the plain loop. */
	expect(ours.calls[ALL] <= plain.calls[ALL]);
	plain = measure((struct way){ .name = "ext4, io_uring to host memory:", .fd = file });
	ours = measure(
		(struct way){ .name = "ext4, peerlane to the GPU:", .fd = file, .engine = true });
	/* A file may have become shorter, and the drive would write past its end: that is asked
	 * once in a request. */
	expect(moving(&ours) <= moving(&plain) && ours.calls[FSTAT] <= NR_READS);
	expect(ours.calls[ALL] == moving(&ours) + ours.calls[FSTAT]);
	measure((struct way){ .name = "ext4, io_uring, 32 at once:", .fd = file, .batch = true });
	ours = measure((struct way){ .name = "ext4, peerlane, batches of 32:",
				     .fd = file,
				     .engine = true,
				     .batch = true });
	/* ...or once in a batch. How often one waits for a batch depends on the time it takes. */
	expect(ours.calls[FSTAT] <= NR_READS / DEPTH);
	expect(umount("/sys/kernel/tracing") == 0);
	return 0;
}
