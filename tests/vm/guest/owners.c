// SPDX-License-Identifier: MIT
/*
 * Pins that end elsewhere than in the process that made them. The GPU's driver takes a callback back only
 * in that process; from others, and from the kernel's workers, its answer is 0 and the callback stays.
 * So the module must keep what the callback needs. Each test frees the memory in the end, has all of it
 * anew, and the lab looks at the kernel's log.
 */
#include <pthread.h>
#include <sched.h>

#include "kept.h"

static uint64_t nr_callbacks(const struct memory *memory)
{
	return gpu_state(memory->gpu).nr_callbacks;
}

/* Without the check that it works: here it may be somebody else's by now. */
static void let_go(struct memory *memory)
{
	if (memory->map)
		munmap(memory->map, memory->pin.map_bytes);
	close(memory->dev);
	close(memory->gpu);
	free(memory->physical);
}

static void unpin(void *data)
{
	struct memory *memory = data;

	expect(dev_unpin(memory->dev, memory->pin.handle) == 0);
}

/* Pins something else for a moment, as a program that goes on does. */
static void call_again(int gpu)
{
	int dev = dev_open();
	uint64_t address = gpu_alloc(gpu, MIB);
	struct peerlane_pin pin;

	expect(dev_pin(dev, address, MIB, 0, &pin) == 0);
	expect(dev_unpin(dev, pin.handle) == 0);
	gpu_free(gpu, address);
	close(dev);
}

/* A child unpins; then the memory is freed, or its owner goes on with other memory first. */
int test_owner_fork(void)
{
	struct memory memory;
	uint64_t before;

	memory_open(&memory, MIB, 0);
	before = nr_callbacks(&memory);
	in_child(unpin, &memory, 0);
	/* The memory is given back. What remains is the callback, which only its process can take back. */
	kept_expect(memory.dev, memory.gpu, 1, 0, 0);
	expect(raises_sigbus(memory.map));
	expect_errno(dev_unpin(memory.dev, memory.pin.handle), ENOENT);
	gpu_free(memory.gpu, memory.address);
	expect(nr_callbacks(&memory) == before + 1);
	let_go(&memory);
	kept_nothing();

	memory_open(&memory, MIB, 0);
	before = nr_callbacks(&memory);
	in_child(unpin, &memory, 0);
	kept_expect(memory.dev, memory.gpu, 1, 0, 0);
	call_again(memory.gpu);
	kept_expect(memory.dev, memory.gpu, 0, 0, 0);
	gpu_free(memory.gpu, memory.address);
	expect(nr_callbacks(&memory) == before);
	let_go(&memory);
	kept_nothing();
	return 0;
}

/* ------------------------------------------------------------------ descriptors that are passed on */

enum receiver { UNPINS, CLOSES, MAPS };

static void receive(int from, int done, enum receiver what)
{
	struct peerlane_pin pin;
	char *map = NULL;
	int dev;

	expect(fd_receive(from, &dev, &pin));
	if (what == MAPS) {
		map = mmap(NULL, pin.map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, dev,
			   (off_t)pin.map_offset);
		expect(map != MAP_FAILED);
		map[0] = 1;
	}
	if (what == UNPINS)
		expect(dev_unpin(dev, pin.handle) == 0);
	/* Until the sender has closed its own. */
	expect(read(from, &pin, 1) == 0);
	close(dev);
	if (map) {
		map[1] = 1;
		munmap(map, pin.map_bytes);
	}
	expect(write(done, "", 1) == 1);
}

static pid_t receiver_start(int sockets[2], int done[2], enum receiver what)
{
	pid_t pid;

	expect(channel_open(sockets));
	expect(pipe2(done, O_CLOEXEC) == 0);
	fflush(stdout);
	pid = fork();
	expect(pid >= 0);
	if (!pid) {
		close(sockets[1]);
		receive(sockets[0], done[1], what);
		_exit(0);
	}
	close(sockets[0]);
	return pid;
}

static void pass(enum receiver what, bool in_flight)
{
	int sockets[2], done[2], status, dev = dev_open();
	pid_t pid = receiver_start(sockets, done, what);
	struct slow *slow = NULL;
	struct memory memory;
	uint64_t before;
	char byte;

	memory_open(&memory, MIB, 0);
	before = nr_callbacks(&memory);
	if (in_flight)
		slow = slow_start(memory.map, MIB, 256 * KIB);
	expect(fd_send(sockets[1], memory.dev, &memory.pin));
	munmap(memory.map, memory.pin.map_bytes);
	memory.map = NULL;
	close(memory.dev);
	close(sockets[1]);
	expect(read(done[0], &byte, 1) == 1);
	expect(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status));
	if (slow)
		expect(slow_finish(slow) == 0);
	kept_expect(dev, memory.gpu, 1, 0, 0);
	memory.dev = dev;
	gpu_free(memory.gpu, memory.address);
	expect(nr_callbacks(&memory) == before + 1);
	let_go(&memory);
	close(done[0]);
	close(done[1]);
	kept_nothing();
}

/* Another process has the descriptor: it unpins, or closes last, or has the last mapping. */
int test_owner_passed(void)
{
	int sockets[2];

	if (!channel_open(sockets)) {
		printf("this kernel has no sockets\n");
		return SKIP;
	}
	close(sockets[0]);
	close(sockets[1]);
	pass(UNPINS, false);
	pass(CLOSES, false);
	pass(MAPS, false);
	pass(UNPINS, true);
	pass(CLOSES, true);
	return 0;
}

/* ------------------------------------------------------------------ the module's worker */

/* A pin ends, by close or unpin, before a drive is done with it; false if that was faster. */
static bool try_linger(struct memory *memory, bool by_close)
{
	bool lingers = true;
	struct slow *slow;

	memory_open(memory, 4 * MIB, 0);
	slow = slow_start(memory->map, 4 * MIB, 256 * KIB);
	if (!by_close && dev_unpin(memory->dev, memory->pin.handle) == 0)
		lingers = false;
	else if (!by_close)
		expect(errno == EINPROGRESS);
	munmap(memory->map, memory->pin.map_bytes);
	memory->map = NULL;
	close(memory->dev);
	memory->dev = dev_open();
	lingers = lingers && dev_counters(memory->dev).lingering == 1;
	expect(slow_finish(slow) == 0);
	return lingers;
}

/* On a busy machine half a second can pass between two calls: then once more. */
static void linger(struct memory *memory, bool by_close)
{
	int tries = 1;

	while (!try_linger(memory, by_close)) {
		if (++tries > 20)
			fail("the drive is always faster");
		gpu_free(memory->gpu, memory->address);
		let_go(memory);
		kept_nothing();
	}
}

/* A device is done later than UNPIN or close waits: a worker ends the pin, and cannot take the callback back. */
int test_owner_worker(void)
{
	struct memory memory;
	uint64_t before;
	int by_close;

	expect(echo(UNPIN_WAIT, "20") == 0);
	for (by_close = 0; by_close < 2; by_close++) {
		linger(&memory, by_close);
		before = nr_callbacks(&memory);
		/* Some of the time it is its own process that calls while the pin ends. */
		call_again(memory.gpu);
		kept_expect(memory.dev, memory.gpu, kept_now(memory.dev, memory.gpu).callbacks, 0,
			    0);
		call_again(memory.gpu);
		kept_expect(memory.dev, memory.gpu, 0, 0, 0);
		gpu_free(memory.gpu, memory.address);
		expect(nr_callbacks(&memory) == before);
		let_go(&memory);
		kept_nothing();
	}
	linger(&memory, false);
	while (dev_counters(memory.dev).pins)
		sleep_ms(10);
	before = nr_callbacks(&memory);
	gpu_free(memory.gpu, memory.address);
	printf("callbacks after a worker: %llu\n",
	       (unsigned long long)(nr_callbacks(&memory) - before));
	let_go(&memory);
	expect(echo(UNPIN_WAIT, "5000") == 0);
	kept_nothing();
	return 0;
}

/* ------------------------------------------------------------------ exec */

#define KEEP_DEV 1U
#define KEEP_GPU 2U

/* The second half of exec(): what of the first is still there, given on the command line of sorts. */
static int after_exec(const char *text)
{
	unsigned int keep, handle;
	unsigned long long address;
	int dev, gpu;

	expect(sscanf(text, "%u %d %d %u %llu", &keep, &dev, &gpu, &handle, &address) == 5);
	unsetenv("AFTER_EXEC");
	expect(fcntl(dev, F_GETFD) >= 0 ? keep & KEEP_DEV : !(keep & KEEP_DEV));
	if (!(keep & KEEP_GPU))
		gpu = gpu_open();
	if (keep & KEEP_DEV) {
		expect(dev_unpin(dev, handle) == 0);
		expect_errno(dev_unpin(dev, handle), ENOENT);
	} else {
		dev = dev_open();
	}
	/* It is the same process, so nothing needs to be kept. */
	kept_expect(dev, gpu, 0, 0, 0);
	if (keep & KEEP_GPU)
		gpu_free(gpu, address);
	return 0;
}

static void exec_keeping(void *data)
{
	unsigned int keep = *(unsigned int *)data;
	struct memory memory;
	char text[128];

	memory_open(&memory, MIB, 0);
	if (keep & KEEP_DEV)
		expect(fcntl(memory.dev, F_SETFD, 0) == 0);
	if (keep & KEEP_GPU)
		expect(fcntl(memory.gpu, F_SETFD, 0) == 0);
	snprintf(text, sizeof(text), "%u %d %d %u %llu", keep, memory.dev, memory.gpu,
		 memory.pin.handle, (unsigned long long)memory.address);
	expect(setenv("AFTER_EXEC", text, 1) == 0);
	execl("/proc/self/exe", "vmtest", "owner_exec", NULL);
	fail("exec: errno %d", errno);
}

/* A program becomes another that has one of the descriptors, both, or none. */
int test_owner_exec(void)
{
	unsigned int keep;

	if (getenv("AFTER_EXEC"))
		return after_exec(getenv("AFTER_EXEC"));
	for (keep = 0; keep < 4; keep++) {
		in_child(exec_keeping, &keep, 0);
		kept_nothing();
	}
	return 0;
}

/* ------------------------------------------------------------------ threads */

static void *pin_in_thread(void *data)
{
	struct memory *memory = data;

	memory_open(memory, MIB, 0);
	return NULL;
}

static void *unpin_in_thread(void *data)
{
	unpin(data);
	return NULL;
}

static int unpin_in_clone(void *data)
{
	unpin(data);
	return 0;
}

/* Has the memory and the descriptors in common with us, but is a process of its own. */
static void unpin_beside(struct memory *memory)
{
	char *stack = host_alloc(256 * KIB);
	int status;
	pid_t pid =
		clone(unpin_in_clone, stack + 256 * KIB, CLONE_VM | CLONE_FILES | SIGCHLD, memory);

	expect(pid > 0);
	expect(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status));
	free(stack);
}

/* Threads are one process, whichever of them calls; what shares all memory need not be. */
int test_owner_threads(void)
{
	struct memory memory;
	pthread_t thread;
	uint64_t before;
	int i;

	for (i = 0; i < 2; i++) {
		expect(pthread_create(&thread, NULL, pin_in_thread, &memory) == 0);
		pthread_join(thread, NULL);
		before = nr_callbacks(&memory);
		if (i)
			expect(pthread_create(&thread, NULL, unpin_in_thread, &memory) == 0);
		else
			unpin(&memory);
		if (i)
			pthread_join(thread, NULL);
		kept_expect(memory.dev, memory.gpu, 0, 0, 0);
		gpu_free(memory.gpu, memory.address);
		expect(nr_callbacks(&memory) == before);
		let_go(&memory);
		kept_nothing();
	}
	memory_open(&memory, MIB, 0);
	before = nr_callbacks(&memory);
	unpin_beside(&memory);
	kept_expect(memory.dev, memory.gpu, 1, 0, 0);
	gpu_free(memory.gpu, memory.address);
	expect(nr_callbacks(&memory) == before + 1);
	let_go(&memory);
	kept_nothing();
	return 0;
}

/* ------------------------------------------------------------------ modules */

/* The modules go at the very moment when a pin has ended that a worker was waiting for. */
static void unload_at_once(void)
{
	struct memory memory;
	struct slow *slow;

	memory_open(&memory, 2 * MIB, 0);
	slow = slow_start(memory.map, 2 * MIB, 256 * KIB);
	gpu_free(memory.gpu, memory.address);
	expect(slow_finish(slow) == 0);
	expect(dev_unpin(memory.dev, memory.pin.handle) == 0);
	let_go(&memory);
	modules_reload();
}

/* No module goes while a callback into it may come; afterwards they can. */
int test_owner_unload(void)
{
	unsigned int nr = rounds(10), i;
	struct memory memory;

	memory_open(&memory, MIB, 0);
	in_child(unpin, &memory, 0);
	munmap(memory.map, memory.pin.map_bytes);
	memory.map = NULL;
	kept_expect(memory.dev, memory.gpu, 1, 0, 0);
	close(memory.dev);
	expect_errno(rmmod("peerlane_nvidia"), EWOULDBLOCK);
	expect_errno(rmmod("peerlane"), EWOULDBLOCK);
	expect_errno(rmmod("simgpu"), EWOULDBLOCK);
	gpu_free(memory.gpu, memory.address);
	memory.dev = dev_open();
	kept_expect(memory.dev, memory.gpu, 0, 0, 0);
	let_go(&memory);
	kept_nothing();
	controllers_load(false);
	for (i = 0; i < nr; i++)
		unload_at_once();
	controllers_load(true);
	kept_nothing();
	return 0;
}
