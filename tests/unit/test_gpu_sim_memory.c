/* SPDX-License-Identifier: MIT */
/* The memory of the simulated GPU: opening, allocations, pins, faults of host code, forks. */
#include "gpu_sim_fixture.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

/* ------------------------------------------------------------------ opening */

static void test_open(void **state)
{
	struct peerlane_gpu_info info = { .size = sizeof(info) };
	struct pl_gpu *gpu = open_sim("");

	(void)state;
	assert_string_equal(ops->name, "sim");
	assert_int_equal(ops->count(gpu), 1);
	assert_int_equal(ops->info(gpu, 0, &info), 0);
	assert_string_equal(info.name, "Peerlane simulated GPU");
	assert_string_equal(info.pci, "");
	assert_string_equal(info.driver, "sim");
	assert_int_equal(info.memory_bytes, 16ull << 30);
	assert_int_equal(info.numa_node, -1);
	assert_int_equal(info.size, sizeof(info));
	assert_int_equal(ops->info(gpu, 1, &info), -ENODEV);
	assert_int_equal(ops->info(gpu, -1, &info), -ENODEV);
	assert_string_equal(ops->result_name(gpu, ops->result()), "invalid device");
	assert_string_equal(ops->result_name(gpu, 12345), "unknown error");
	ops->close(gpu);
	ops->close(NULL);

	gpu = open_sim("GPUS=8,MEMORY=3M");
	assert_int_equal(ops->count(gpu), 8);
	assert_int_equal(ops->info(gpu, 7, &info), 0);
	assert_int_equal(info.memory_bytes, 3u << 20);
	ops->close(gpu);
}

static void test_open_refuses(void **state)
{
	static const char *const bad[] = {
		"GPUS=0",
		"GPUS=9",
		"GPUS=x",
		"MEMORY=-1",
		"MEMORY=1T",
		"MEMORY=1Kx",
		"PINNED=many",
		"PINNED=99999999999G",
		"ASYNC=yes",
		"BAR=2",
		"IN_PLACE=2",
		"CHECK=on",
		"FAIL=copy",
		"FAIL=copy:1",
		"FAIL=copy:1:",
		"FAIL=nothing:0:1",
		"FAIL=copy:1:2x",
		"FAIL=copy:-1:2",
		"FAIL=copy:0:4294967296",
		"FAIL=averyveryverylongword:0:1",
	};
	struct pl_gpu *gpu = NULL;
	char why[200], name[64];

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		why[0] = '\0';
		assert_int_equal(try_open(&gpu, bad[i], why, sizeof(why)), -EINVAL);
		snprintf(name, sizeof(name), "PEERLANE_SIM_%.*s", (int)strcspn(bad[i], "="),
			 bad[i]);
		assert_non_null(strstr(why, name));
		assert_null(gpu);
	}
}

/* ------------------------------------------------------------------ memory */

static void test_alloc(void **state)
{
	struct pl_gpu *gpu = open_sim("GPUS=2"), *other = open_sim("");
	struct pl_mem mem, mem2;
	void *p = NULL, *p2 = NULL;

	(void)state;
	assert_int_equal(ops->alloc(gpu, 0, 0, &p), -EINVAL);
	assert_int_equal(ops->alloc(gpu, 2, 1, &p), -ENODEV);
	assert_int_equal(ops->alloc(gpu, -1, 1, &p), -ENODEV);
	assert_int_equal(ops->alloc(gpu, 0, SIZE_MAX, &p), -ENOMEM);
	assert_int_equal(ops->result(), 2);
	assert_int_equal(ops->alloc(gpu, 1, 1000, &p), 0);
	assert_int_equal(ops->alloc(gpu, 0, 1, &p2), 0);
	assert_int_equal((uintptr_t)p % 256, 0);

	/* Another instance knows it just as well. */
	assert_int_equal(ops->query(other, (char *)p + 999, &mem), 0);
	assert_int_equal(mem.kind, PL_MEM_DEVICE);
	assert_int_equal(mem.gpu, 1);
	assert_int_equal(mem.base, (uintptr_t)p);
	assert_int_equal(mem.bytes, 1000);
	assert_null(mem.host);
	assert_non_null(mem.owner);
	assert_int_equal(ops->query(gpu, p2, &mem2), 0);
	assert_ptr_not_equal(mem.owner, mem2.owner);

	assert_int_equal(ops->query(gpu, (char *)p + 1000, &mem), 0);
	assert_int_equal(mem.kind, PL_MEM_HOST);
	assert_int_equal(mem.gpu, -1);
	assert_int_equal(mem.base, 0);
	assert_int_equal(mem.bytes, 0);
	assert_null(mem.owner);
	assert_null(mem.host);

	/* Memory belongs to its user, not to the instance. */
	ops->close(gpu);
	assert_int_equal(ops->free(other, (char *)p + 1), -EINVAL);
	assert_int_equal(ops->free(other, p), 0);
	assert_int_equal(ops->free(other, p), -EINVAL);
	assert_int_equal(ops->free(other, p2), 0);
	assert_int_equal(ops->free(other, &mem), -EINVAL);
	assert_int_equal(ops->free(other, NULL), 0);
	assert_int_equal(ops->query(other, p, &mem), -EFAULT);
	assert_int_equal(ops->query(other, (char *)p + 999, &mem), -EFAULT);
	ops->close(other);
}

static void test_memory_limit(void **state)
{
	struct pl_gpu *gpu = open_sim("MEMORY=1M,GPUS=2");
	char *a = alloc(gpu, 512 * KIB), *b = alloc(gpu, 512 * KIB);
	void *p = NULL;

	(void)state;
	assert_int_equal(ops->alloc(gpu, 0, 1, &p), -ENOMEM);
	assert_int_equal(ops->alloc(gpu, 1, 1, &p), 0);
	assert_int_equal(ops->free(gpu, p), 0);
	assert_int_equal(ops->free(gpu, a), 0);
	a = alloc(gpu, 512 * KIB);
	assert_int_equal(ops->free(gpu, a), 0);
	assert_int_equal(ops->free(gpu, b), 0);
	ops->close(gpu);
}

/* Pages of @bytes at @addr that have memory behind them. */
static size_t resident(void *addr, size_t bytes)
{
	size_t nr = bytes / (size_t)sysconf(_SC_PAGESIZE), sum = 0;
	unsigned char *vec = malloc(nr);

	assert_non_null(vec);
	assert_int_equal(mincore(addr, bytes, vec), 0);
	for (size_t i = 0; i < nr; i++)
		sum += vec[i] & 1;
	free(vec);
	return sum;
}

static void test_large_is_lazy(void **state)
{
	struct pl_gpu *gpu = open_sim("");
	size_t bytes = (size_t)4 << 30;
	char *p = alloc(gpu, bytes), got[8] = "";

	(void)state;
	assert_int_equal(ops->copy_sync(gpu, p + bytes - 8, "the end", 8), 0);
	assert_int_equal(ops->copy_sync(gpu, got, p + bytes - 8, 8), 0);
	assert_string_equal(got, "the end");
	assert_int_equal(ops->copy_sync(gpu, p + bytes - 7, "the end", 8), -EFAULT);
	assert_in_range(resident(peerlane_sim_host(p), bytes), 1, 4096);
	assert_int_equal(ops->free(gpu, p), 0);
	ops->close(gpu);
}

static void test_quarantine(void **state)
{
	struct pl_gpu *gpu = open_sim("");
	char *p[200], *late = alloc(gpu, 64 * KIB);
	struct pl_mem mem;

	(void)state;
	for (int i = 0; i < 200; i++) {
		p[i] = alloc(gpu, 64 * KIB);
		assert_int_equal(ops->free(gpu, p[i]), 0);
		if (i == 63)
			assert_int_equal(ops->query(gpu, p[0], &mem), -EFAULT);
	}
	for (int i = 136; i < 200; i++)
		assert_int_equal(ops->query(gpu, p[i], &mem), -EFAULT);
	assert_int_equal(ops->query(gpu, late, &mem), 0);
	assert_int_equal(mem.base, (uintptr_t)late);
	assert_int_equal(ops->free(gpu, late), 0);
	ops->close(gpu);
}

static void test_sim_host(void **state)
{
	struct pl_gpu *gpu = open_sim("");
	char *p = alloc(gpu, 100), got[4];

	(void)state;
	assert_non_null(peerlane_sim_host(p));
	assert_ptr_equal((char *)peerlane_sim_host(p + 99), (char *)peerlane_sim_host(p) + 99);
	assert_null(peerlane_sim_host(p + 100));
	assert_null(peerlane_sim_host(&gpu));
	assert_null(peerlane_sim_host(NULL));
	memcpy(peerlane_sim_host(p + 10), "abc", 4);
	assert_int_equal(ops->copy_sync(gpu, got, p + 10, 4), 0);
	assert_string_equal(got, "abc");
	assert_int_equal(ops->free(gpu, p), 0);
	assert_null(peerlane_sim_host(p));
	ops->close(gpu);
}

static void test_bar(void **state)
{
	struct pl_gpu *gpu = open_sim("BAR=1");
	char *p = alloc(gpu, 8 * KIB), got[4];
	struct pl_mem mem;

	(void)state;
	assert_int_equal(ops->query(gpu, p + 5000, &mem), 0);
	assert_ptr_equal(mem.host, peerlane_sim_host(p));
	assert_int_equal(mem.base, (uintptr_t)p);
	memcpy(mem.host + 5000, "xyz", 4);
	assert_int_equal(ops->copy_sync(gpu, got, p + 5000, 4), 0);
	assert_string_equal(got, "xyz");
	assert_int_equal(ops->free(gpu, p), 0);
	ops->close(gpu);
}

static void test_copy_sync(void **state)
{
	struct pl_gpu *gpu = open_sim("");
	char *a = alloc(gpu, 64), *b = alloc(gpu, 64), host[64] = "hello", got[64] = "";

	(void)state;
	assert_int_equal(ops->copy_sync(gpu, a, host, 64), 0);
	assert_int_equal(ops->copy_sync(gpu, b + 1, a, 63), 0);
	assert_int_equal(ops->copy_sync(gpu, b, b + 1, 63), 0);
	assert_int_equal(ops->copy_sync(gpu, got, b, 6), 0);
	assert_string_equal(got, "hello");
	assert_int_equal(ops->copy_sync(gpu, host, got, 6), 0);
	assert_int_equal(ops->copy_sync(gpu, b, a, 0), 0);
	assert_int_equal(ops->copy_sync(gpu, b, a, 65), -EFAULT);
	assert_int_equal(ops->copy_sync(gpu, b, a, SIZE_MAX), -EFAULT);
	assert_int_equal(ops->copy_sync(gpu, host, a + 1, 64), -EFAULT);
	assert_int_equal(ops->result(), 1);
	assert_int_equal(ops->copy_sync(gpu, NULL, a, 1), -EINVAL);
	assert_int_equal(ops->copy_sync(gpu, a, NULL, 1), -EINVAL);
	/* Behind the last byte: nobody's, but it must not reach the next allocation. */
	assert_int_equal(ops->copy_sync(gpu, a - 1, host, 2), -EFAULT);
	assert_int_equal(ops->free(gpu, b), 0);
	assert_int_equal(ops->copy_sync(gpu, host, b, 1), -EFAULT);
	assert_int_equal(ops->free(gpu, a), 0);
	ops->close(gpu);
}

/* ------------------------------------------------------------------ faults of host code */

/* Valgrind reports the faults these tests make, and changes how children end. */
static void skip_under_valgrind(void)
{
	if (getenv("PEERLANE_UNDER_VALGRIND"))
		skip();
}

/* Runs @fn in a child with stderr caught in @text; gives its wait status. */
static int in_child(void (*fn)(void *), void *arg, char *text, size_t text_bytes)
{
	size_t len = 0;
	ssize_t n;
	int fds[2], status;
	pid_t pid;

	assert_int_equal(pipe(fds), 0);
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		signal(SIGSEGV, SIG_DFL);
		dup2(fds[1], STDERR_FILENO);
		fn(arg);
		_exit(0);
	}
	close(fds[1]);
	while (len < text_bytes - 1 && (n = read(fds[0], text + len, text_bytes - 1 - len)) > 0)
		len += (size_t)n;
	text[len] = '\0';
	close(fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void child_open(struct pl_gpu **gpu, const char *env)
{
	char why[200];

	if (try_open(gpu, env, why, sizeof(why)))
		_exit(9);
}

static char *child_alloc(struct pl_gpu *gpu, size_t bytes)
{
	void *p;

	if (ops->alloc(gpu, 0, bytes, &p))
		_exit(9);
	return p;
}

static void touch(const volatile char *p)
{
	*(volatile char *)p = 1;
}

struct touch_case {
	const char *env;
	const char *what; /* in the line; NULL: no line */
	size_t offset;
	bool freed, shadow, pinned;
};

static void child_touch(void *arg)
{
	const struct touch_case *c = arg;
	struct pl_gpu *gpu;
	void *p;

	child_open(&gpu, c->env);
	if (!c->pinned)
		p = child_alloc(gpu, 5000);
	else if (ops->pin_alloc(gpu, 5000, &p))
		_exit(9);
	/* Says which line to expect. */
	dprintf(STDERR_FILENO, "%p\n", p);
	if (c->shadow)
		p = peerlane_sim_host(p);
	dprintf(STDERR_FILENO, "%p\n", (char *)p + c->offset);
	if (c->freed)
		ops->free(gpu, (void *)((uintptr_t)p));
	touch((char *)p + c->offset);
}

static void test_touch_faults(void **state)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	const size_t end = (5000 + page - 1) / page * page;
	const struct touch_case cases[] = {
		{ "", NULL, 100, false, false, false },
		{ "", NULL, 100, true, false, false },
		{ "CHECK=1", "touched simulated GPU memory", 0, false, false, false },
		{ "CHECK=1", "touched simulated GPU memory", 4999, false, false, false },
		{ "CHECK=1", "touched freed simulated GPU memory", 7, true, false, false },
		{ "CHECK=1", "ran past the end of simulated GPU memory", end, false, false, false },
		{ "CHECK=1", "ran past the end of simulated GPU memory", end, false, true, false },
		{ "CHECK=1", "ran past the end of pinned memory", end, false, false, true },
	};

	(void)state;
	skip_under_valgrind();
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char text[600], want[300], base[40] = "", addr[40] = "";
		int status;

		status = in_child(child_touch, (void *)&cases[i], text, sizeof(text));
		assert_true(WIFSIGNALED(status));
		assert_int_equal(WTERMSIG(status), SIGSEGV);
		assert_int_equal(sscanf(text, "%39s %39s", base, addr), 2);
		want[0] = '\0';
		if (cases[i].what)
			snprintf(want, sizeof(want),
				 "peerlane: host code %s at %s (allocation %s, 5000 bytes)\n",
				 cases[i].what, addr, base);
		assert_string_equal(strchr(strchr(text, '\n') + 1, '\n') + 1, want);
	}
}

static void on_segv(int sig)
{
	(void)sig;
	_exit(42);
}

static void on_segv_info(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)context;
	_exit(info->si_addr ? 43 : 44);
}

/* Handlers that were there before get the fault after the line; other faults give no line. */
static void child_chain(void *arg)
{
	const int *which = arg;
	struct sigaction sa = { .sa_flags = 0 };
	struct pl_gpu *gpu, *again;
	char *p;

	if (*which == 0)
		sa.sa_handler = on_segv;
	else if (*which == 1)
		sa.sa_sigaction = on_segv_info;
	else
		sa.sa_handler = *which == 2 ? SIG_IGN : SIG_DFL;
	sa.sa_flags = *which == 1 ? SA_SIGINFO : 0;
	sigaction(SIGSEGV, &sa, NULL);
	child_open(&gpu, "CHECK=1");
	child_open(&again, "CHECK=1");
	p = child_alloc(gpu, 1);
	if (*which == 2) {
		raise(SIGSEGV); /* ignored before, ignored now */
		touch(p);
	} else if (*which == 3) {
		raise(SIGSEGV);
	} else if (*which == 4) {
		touch(mmap(NULL, 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	} else {
		touch(p);
	}
}

static void test_check_chains(void **state)
{
	char text[600];
	int status;

	(void)state;
	skip_under_valgrind();
	for (int i = 0; i < 5; i++) {
		status = in_child(child_chain, &i, text, sizeof(text));
		if (i < 2) {
			assert_true(WIFEXITED(status));
			assert_int_equal(WEXITSTATUS(status), 42 + i);
		} else {
			assert_true(WIFSIGNALED(status));
			assert_int_equal(WTERMSIG(status), SIGSEGV);
		}
		assert_int_equal(!strncmp(text, "peerlane: host code touched", 27), i < 3);
		assert_true(i < 3 || !text[0]);
	}
}

/* The kernel, too, finds nothing at a GPU address. */
static void test_kernel_refuses(void **state)
{
	struct pl_gpu *gpu;
	int fds[2];
	char *p;

	(void)state;
	skip_under_valgrind();
	gpu = open_sim("");
	p = alloc(gpu, 100);
	assert_int_equal(pipe(fds), 0);
	assert_int_equal(write(fds[1], p, 100), -1);
	assert_int_equal(errno, EFAULT);
	close(fds[0]);
	close(fds[1]);
	assert_int_equal(ops->free(gpu, p), 0);
	ops->close(gpu);
}

/* ------------------------------------------------------------------ fork */

static void child_forked(void *arg)
{
	struct rig *r = arg, mine;
	struct pl_mem mem;
	char got[4] = "";

	ops->abandon(r->gpu);
	ops->abandon(NULL);
	if (peerlane_sim_host(r->dev))
		_exit(1);
	child_open(&mine.gpu, "MEMORY=64K,PINNED=64K");
	if (ops->query(mine.gpu, r->dev, &mem) || mem.kind != PL_MEM_HOST)
		_exit(2);
	mine.dev = child_alloc(mine.gpu, 64 * KIB);
	if (ops->copy_sync(mine.gpu, mine.dev, "abc", 4) ||
	    ops->copy_sync(mine.gpu, got, mine.dev, 4) || strcmp(got, "abc") != 0)
		_exit(3);
	if (ops->pin_alloc(mine.gpu, 64 * KIB, (void **)&mine.pinned))
		_exit(4);
	ops->pin_free(mine.gpu, mine.pinned, 64 * KIB);
	if (ops->free(mine.gpu, mine.dev))
		_exit(5);
	ops->close(mine.gpu);
}

static void child_touch_parents(void *arg)
{
	struct rig *r = arg;
	struct pl_gpu *gpu;

	child_open(&gpu, "CHECK=1");
	touch(r->dev);
}

static void child_touch_pinned(void *arg)
{
	struct rig *r = arg;

	touch(r->pinned);
}

static void test_fork(void **state)
{
	void *stream = NULL;
	char text[600];
	struct rig r;
	int status;

	(void)state;
	skip_under_valgrind();
	r = rig_up("ASYNC=1", 64 * KIB);
	assert_int_equal(ops->stream_create(r.gpu, 0, &stream), 0);
	ops->inject(r.gpu, "hang", 0, 1);
	assert_int_equal(to_gpu(&r, r.dev, r.pinned, 100), 0);
	status = in_child(child_forked, &r, text, sizeof(text));
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	status = in_child(child_touch_parents, &r, text, sizeof(text));
	assert_true(WIFSIGNALED(status));
	assert_non_null(strstr(text, "touched simulated GPU memory of the parent process at 0x"));
	status = in_child(child_touch_pinned, &r, text, sizeof(text));
	assert_true(WIFSIGNALED(status));
	ops->inject(r.gpu, "hang", 0, 0);
	assert_int_equal(wait_mark(&r), 1);
	ops->stream_destroy(r.gpu, stream);
	rig_down(&r);
}

/* ------------------------------------------------------------------ pinned memory */

static void test_pin(void **state)
{
	struct pl_gpu *gpu = open_sim("PINNED=1M");
	char *p = pin(gpu, 1000 * KIB);
	struct pl_mem mem;
	void *q = NULL;

	(void)state;
	assert_int_equal((uintptr_t)p % (uintptr_t)sysconf(_SC_PAGESIZE), 0);
	memset(p, 1, 1000 * KIB);
	assert_int_equal(ops->query(gpu, p + 999 * KIB, &mem), 0);
	assert_int_equal(mem.kind, PL_MEM_PINNED);
	assert_int_equal(mem.gpu, -1);
	assert_int_equal(mem.base, (uintptr_t)p);
	assert_int_equal(mem.bytes, 1000 * KIB);
	assert_ptr_equal(mem.host, p);
	assert_null(mem.owner);
	assert_int_equal(ops->pin_alloc(gpu, 0, &q), -EINVAL);
	assert_int_equal(ops->pin_alloc(gpu, SIZE_MAX, &q), -ENOMEM);
	assert_int_equal(ops->pin_alloc(gpu, 25 * KIB, &q), -ENOMEM);
	assert_int_equal(ops->result(), 2);
	assert_int_equal(ops->pin_alloc(gpu, 24 * KIB, &q), 0);
	ops->pin_free(gpu, q, 24 * KIB);
	ops->pin_free(gpu, &mem, 1);
	ops->pin_free(gpu, NULL, 0);
	assert_int_equal(ops->free(gpu, p), -EINVAL);
	ops->pin_free(gpu, p, 1000 * KIB);
	assert_int_equal(ops->query(gpu, p, &mem), 0);
	assert_int_equal(mem.kind, PL_MEM_HOST);
	p = pin(gpu, 1024 * KIB);
	ops->pin_free(gpu, p, 1024 * KIB);
	ops->close(gpu);
}

static void test_register(void **state)
{
	struct rig r = rig_up("", 64 * KIB);
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int fd = memfd_create("test", MFD_CLOEXEC);
	char *map, got[8] = "";
	struct pl_mem mem;

	(void)state;
	assert_int_equal(ftruncate(fd, 64 * KIB), 0);
	map = mmap(NULL, 64 * KIB, PROT_READ, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(map, MAP_FAILED);
	assert_int_equal(pwrite(fd, "mapped", 7, 0), 7);
	assert_int_equal(ops->pin_register(r.gpu, 0, map, 64 * KIB), -EOPNOTSUPP);
	assert_int_equal(ops->result(), 801);
	ops->pin_unregister(r.gpu, 0, map);
	rig_down(&r);

	r = rig_up("IN_PLACE=1", 64 * KIB);
	assert_int_equal(ops->pin_register(r.gpu, 1, map, 1), -ENODEV);
	assert_int_equal(ops->pin_register(r.gpu, 0, NULL, 1), -EINVAL);
	assert_int_equal(ops->pin_register(r.gpu, 0, map, 0), -EINVAL);
	assert_int_equal(ops->pin_register(r.gpu, 0, map, 64 * KIB), 0);
	assert_int_equal(ops->pin_register(r.gpu, 0, map + page, page), -EREMOTEIO);
	assert_int_equal(ops->result(), 712);
	assert_int_equal(ops->pin_register(r.gpu, 0, r.dev, 1), -EREMOTEIO);
	assert_int_equal(ops->query(r.gpu, map, &mem), 0);
	assert_int_equal(mem.kind, PL_MEM_HOST);
	assert_int_equal(to_gpu(&r, r.dev, map, 64 * KIB), 0);
	assert_int_equal(ops->copy_sync(r.gpu, got, r.dev, 7), 0);
	assert_string_equal(got, "mapped");
	/* The file shrinks under the mapping: an error, not a signal. */
	assert_int_equal(ftruncate(fd, (off_t)page), 0);
	assert_int_equal(to_gpu(&r, r.dev, map, page), 0);
	assert_int_equal(to_gpu(&r, r.dev, map, 64 * KIB), -EFAULT);
	assert_int_equal(ops->copy_sync(r.gpu, r.dev, map + page, 1), -EFAULT);
	ops->pin_unregister(r.gpu, 0, map + page);
	ops->pin_unregister(r.gpu, 0, map);
	ops->pin_unregister(r.gpu, 0, map);
	assert_int_equal(ops->pin_register(r.gpu, 0, map, page), 0);
	ops->pin_unregister(r.gpu, 0, map);
	munmap(map, 64 * KIB);
	close(fd);
	rig_down(&r);
}

/* A copy that runs after its memory was unregistered and its file truncated. */
static void test_unregister_early(void **state)
{
	struct rig r = rig_up("IN_PLACE=1,ASYNC=50000", 64 * KIB);
	int fd = memfd_create("test", MFD_CLOEXEC);
	char *map;

	(void)state;
	assert_int_equal(ftruncate(fd, 64 * KIB), 0);
	map = mmap(NULL, 64 * KIB, PROT_READ, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(map, MAP_FAILED);
	assert_int_equal(ops->pin_register(r.gpu, 0, map, 64 * KIB), 0);
	assert_int_equal(to_gpu(&r, r.dev, map, 64 * KIB), 0);
	ops->pin_unregister(r.gpu, 0, map);
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(wait_mark(&r), -EFAULT);
	munmap(map, 64 * KIB);
	close(fd);
	rig_down(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_open),	      cmocka_unit_test(test_open_refuses),
		cmocka_unit_test(test_alloc),	      cmocka_unit_test(test_memory_limit),
		cmocka_unit_test(test_large_is_lazy), cmocka_unit_test(test_quarantine),
		cmocka_unit_test(test_sim_host),      cmocka_unit_test(test_bar),
		cmocka_unit_test(test_copy_sync),     cmocka_unit_test(test_touch_faults),
		cmocka_unit_test(test_check_chains),  cmocka_unit_test(test_kernel_refuses),
		cmocka_unit_test(test_fork),	      cmocka_unit_test(test_pin),
		cmocka_unit_test(test_register),      cmocka_unit_test(test_unregister_early),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
