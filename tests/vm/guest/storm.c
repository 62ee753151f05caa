// SPDX-License-Identifier: MIT
/*
 * A storm: in each round several users of GPU memory with transfers of a slow drive under way are killed,
 * fork, pass descriptors on, free, unpin, unmap and close in random order, and now and then the GPU
 * loses its driver. Beside them somebody has memory of the same pages as soon as it is free, and finds only
 * his own bytes in it. After each round nothing is kept.
 */
#include <poll.h>
#include <sys/prctl.h>

#include "storm.h"

#define NR_USERS 3
/* Memory that the storm is in; all else is taken away, so that pages come round soon. */
#define FIELD (24 * MIB)
/* The GPU loses its driver in one round of so many. */
#define UNBIND_EVERY 8
#define READY_MS 120000

struct storm_counts *storm_counts;

uint32_t storm_rnd(struct storm_rng *rng, uint32_t below)
{
	rng->state = rng->state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (uint32_t)(rng->state >> 33) % below;
}

void storm_count(unsigned long *what)
{
	__atomic_fetch_add(what, 1, __ATOMIC_RELAXED);
}

static const char *const words[] = { "unpin",  "in progress", "free",  "close",	  "unmap",
				     "fork",   "pass",	      "again", "exec",	  "kill",
				     "unbind", "stamped",     "read",  "received" };

static pid_t start(void (*run)(const struct storm_task *), const struct storm_task *task)
{
	pid_t pid = fork();

	expect(pid >= 0);
	if (!pid) {
		run(task);
		fflush(stdout);
		_exit(0);
	}
	return pid;
}

/* Wait until every user has a transfer under way. */
static void wait_ready(int fd)
{
	struct pollfd poll_fd = { .fd = fd, .events = POLLIN };
	char byte;
	int i;

	for (i = 0; i < NR_USERS; i++)
		if (poll(&poll_fd, 1, READY_MS) != 1 || read(fd, &byte, 1) != 1)
			fail("a user does not start");
}

/* All processes of the round, those whose parents have died included, end well or are killed. */
static void wait_all(void)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, 0)) > 0) {
		if (WIFEXITED(status) && WEXITSTATUS(status))
			fail("process %d ended with status %d", pid, WEXITSTATUS(status));
		if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
			fail("process %d ended by signal %d", pid, WTERMSIG(status));
	}
	expect(errno == ECHILD);
}

/* Users, and what receives their descriptors; the last one is that. */
static void start_all(struct storm_task *task, int sockets[2], pid_t *pids)
{
	int i;

	task->fd = sockets[0];
	task->close_fd = sockets[1];
	pids[NR_USERS] = start(storm_receive, task);
	task->fd = sockets[1];
	task->close_fd = sockets[0];
	for (i = 0; i < NR_USERS; i++) {
		task->rng.state += 77;
		pids[i] = start(storm_use, task);
	}
	close(sockets[0]);
	close(sockets[1]);
}

static void kill_some(struct storm_rng *rng, const pid_t *pids)
{
	int i;

	for (i = 0; i < NR_USERS; i++) {
		sleep_ms(storm_rnd(rng, 40));
		if (storm_rnd(rng, 2) && kill(pids[i], SIGKILL) == 0)
			storm_count(&storm_counts->nr[STORM_KILL]);
	}
	sleep_ms(storm_rnd(rng, 60));
	for (i = 0; i <= NR_USERS; i++)
		kill(pids[i], SIGKILL);
}

static void storm_round(uint64_t seed, bool unbind, const char *pci)
{
	struct storm_task task = { .rng = { seed } };
	int sockets[2], ready[2], stop[2];
	struct storm_rng rng;
	pid_t pids[NR_USERS + 1];

	channel_open(sockets);
	expect(pipe2(ready, O_CLOEXEC) == 0 && pipe2(stop, O_CLOEXEC) == 0);
	fflush(stdout);
	task.stop = stop[0];
	task.close_fd = stop[1];
	task.ready = ready[1];
	if (!unbind)
		start(storm_watch, &task);
	start_all(&task, sockets, pids);
	wait_ready(ready[0]);
	rng = task.rng;
	sleep_ms(storm_rnd(&rng, 30));
	if (unbind) {
		expect(echo("/sys/bus/pci/drivers/simgpu/unbind", pci) == 0);
		storm_count(&storm_counts->nr[STORM_UNBIND]);
	}
	kill_some(&rng, pids);
	close(stop[1]);
	wait_all();
	if (unbind)
		gpu_bind(pci);
	close(stop[0]);
	close(ready[0]);
	close(ready[1]);
}

/* Only the memory that is not part of the storm is in use, and all else can be had. */
static void check_round(int dev, int gpu)
{
	struct memory none = { .gpu = gpu, .dev = dev };
	unsigned int ms;

	kept_expect(dev, gpu, 0, 0, 0);
	for (ms = 0; ms < 20000 && gpu_state(gpu).nr_allocs > 1; ms += 10)
		sleep_ms(10);
	expect(gpu_state(gpu).nr_allocs == 1 && gpu_state(gpu).free_bytes == FIELD);
	expect(dev_counters(dev).lingering == 0 && dev_counters(dev).pinned_bytes == 0);
	expect(dev_counters(dev).mappings == 0);
	expect(!pages_reused(&none));
}

int test_storm(void)
{
	const char *text = getenv("SEED");
	uint64_t seed = text && *text ? strtoull(text, NULL, 0) : (uint64_t)(seconds() * 1e6);
	unsigned int nr = rounds(20), i;
	int dev = dev_open(), gpu = gpu_open();
	char pci[32];

	storm_counts = mmap(NULL, sizeof(*storm_counts), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	expect(storm_counts != MAP_FAILED);
	expect(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
	gpu_pci(pci, sizeof(pci));
	gpu_alloc(gpu, gpu_state(gpu).free_bytes - FIELD);
	printf("SAY storm: seed %llu\n", (unsigned long long)seed);
	for (i = 0; i < nr; i++) {
		/* Too short for the drive, or long enough. */
		expect(echo(UNPIN_WAIT, i % 2 ? "10" : "5000") == 0);
		storm_round(seed + i * 1000003ULL, i % UNBIND_EVERY == 3, pci);
		check_round(dev, gpu);
	}
	expect(echo(UNPIN_WAIT, "5000") == 0);
	printf("SAY storm: %u rounds:", nr);
	for (i = 0; i < NR_STORM_COUNTS; i++)
		printf(" %s %lu", words[i], storm_counts->nr[i]);
	printf("\n");
	return 0;
}
