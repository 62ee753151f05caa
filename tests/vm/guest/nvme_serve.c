// SPDX-License-Identifier: MIT
/*
 * One controller, shared: an owner ("peerlane nvme serve") and clients, each a process of its own.
 */
#include <peerlane/nvme.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <uapi/peerlane_nvme.h>

#include "nvme_lab.h"

#define DRIVE "slow0"
#define BLOCK 512u
#define SOCKET "/tmp/nvme.socket"
#define PIECE (256 * KIB)
#define PIECES 8u

/* ------------------------------------------------------------------ owner and clients */

/* The debug kernel is built without a network, and so without these. */
static bool has_sockets(void)
{
	int sock = socket(AF_UNIX, SOCK_SEQPACKET, 0);

	if (sock < 0) {
		printf("this kernel has no Unix sockets\n");
		return false;
	}
	close(sock);
	return true;
}

/* Its pid; it serves when this returns. What it says goes to the test's output after that. */
static pid_t owner_start(struct pci pci)
{
	char address[64], byte = 0;
	int out[2];
	pid_t pid;

	snprintf(address, sizeof(address), "kmod:%s", pci.text);
	expect(pipe(out) == 0);
	fflush(stdout);
	pid = fork();
	expect(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(out[1], 1);
		close(out[0]);
		close(out[1]);
		execl("/bin/peerlane", "peerlane", "nvme", "serve", "--socket", SOCKET, "--queues",
		      "2", "--clients", "3", address, NULL);
		_exit(1);
	}
	close(out[1]);
	while (byte != '\n')
		expect(read(out[0], &byte, 1) == 1);
	/* The pipe stays: its lines are few. */
	return pid;
}

static void owner_end(pid_t pid)
{
	int status;

	expect(kill(pid, SIGTERM) == 0);
	expect(waitpid(pid, &status, 0) == pid);
	expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	expect(access(SOCKET, F_OK) != 0);
}

struct guest_client {
	struct peerlane_nvme *nvme;
	struct peerlane_nvme_ns *ns;
	struct peerlane_nvme_queue *queue;
	struct peerlane_nvme_map *map;
	char *data; /* PIECES * PIECE, of the process */
	struct memory memory;
};

/* With data in memory of the process or, @gpu, of the GPU. */
static void client_open(struct guest_client *c, bool gpu)
{
	struct peerlane_nvme_memory request = { .size = sizeof(request),
						.flags = PEERLANE_NVME_MEMORY_GPU,
						.bytes = PIECES * PIECE };
	int err = peerlane_nvme_open(&c->nvme, "served:" SOCKET, NULL);

	if (err)
		fail("open: %d", err);
	expect(peerlane_nvme_ns_open(c->nvme, 1, &c->ns) == 0);
	expect(peerlane_nvme_queue_create(c->nvme, NULL, &c->queue) == 0);
	if (!gpu) {
		c->data = host_alloc(PIECES * PIECE);
		expect(peerlane_nvme_map_host(c->nvme, c->data, PIECES * PIECE, &c->map) == 0);
		return;
	}
	memory_open(&c->memory, PIECES * PIECE, 0);
	request.ptr = (void *)(uintptr_t)c->memory.address;
	request.cpu = c->memory.map;
	request.pin_fd = c->memory.dev;
	request.handle = c->memory.pin.handle;
	expect(peerlane_nvme_map(c->nvme, &request, &c->map) == 0);
}

/* All pieces at once: of the drive from @offset on. */
static void client_submit(struct guest_client *c, bool write, uint64_t offset)
{
	for (unsigned int i = 0; i < PIECES; i++) {
		struct peerlane_nvme_io io = { .opcode = write ? PL_NVME_WRITE : PL_NVME_READ,
					       .nr_blocks = PIECE / BLOCK,
					       .lba = (offset + i * PIECE) / BLOCK,
					       .ns = c->ns,
					       .map = c->map,
					       .offset = i * PIECE,
					       .user = i };

		expect(peerlane_nvme_submit(c->queue, &io, 1) == 1);
	}
}

/* Each is reported once, with this error; if that is not 0, what was done before is no mistake. */
static void client_wait(struct guest_client *c, int err)
{
	struct peerlane_nvme_completion cpl[PIECES];
	unsigned int seen = 0, done = 0;

	while (done < PIECES) {
		int got = peerlane_nvme_wait(c->queue, cpl, 1, PIECES, 120000);

		if (got <= 0)
			fail("%u of %u reported, then %d", done, PIECES, got);
		for (int i = 0; i < got; i++, done++) {
			expect(cpl[i].user < PIECES && !(seen & 1u << cpl[i].user));
			seen |= 1u << cpl[i].user;
			if (cpl[i].err != err && !(err && !cpl[i].err))
				fail("piece %u: %d and not %d", (unsigned int)cpl[i].user,
				     cpl[i].err, err);
		}
	}
}

static void client_close(struct guest_client *c)
{
	peerlane_nvme_close(c->nvme);
	if (c->data)
		free(c->data);
	else
		memory_close(&c->memory);
	memset(c, 0, sizeof(*c));
}

/* A client with reads under way, killed. */
static void kill_busy(bool gpu)
{
	int ready[2], status;
	char byte;
	pid_t pid;

	expect(pipe(ready) == 0);
	fflush(stdout);
	pid = fork();
	expect(pid >= 0);
	if (!pid) {
		struct guest_client c = { 0 };

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		client_open(&c, gpu);
		client_submit(&c, false, 0);
		expect(write(ready[1], "r", 1) == 1);
		for (;;)
			pause();
	}
	close(ready[1]);
	expect(read(ready[0], &byte, 1) == 1);
	close(ready[0]);
	expect(kill(pid, SIGKILL) == 0);
	expect(waitpid(pid, &status, 0) == pid);
	expect(WIFSIGNALED(status));
}

static void wait_counter(const char *name, long long value)
{
	double end = seconds() + 60;

	while (nvme_counter(name) != value) {
		if (seconds() > end)
			fail("%s is %lld and not %lld", name, nvme_counter(name), value);
		sleep_ms(10);
	}
}

/* ------------------------------------------------------------------ tests */

/* Two processes, each with its queues and memory: one of the GPU, one of its own. */
int test_nvme_serve_io(void)
{
	struct guest_client host = { 0 }, gpu = { 0 };
	char *want, *seen = host_alloc(PIECES * PIECE);
	struct pci pci;
	pid_t owner;
	int fd;

	if (!has_sockets())
		return SKIP;
	pci = take_drive(DRIVE, "kmod");
	owner = owner_start(pci);
	client_open(&host, false);
	client_open(&gpu, true);
	expect(nvme_counter("clients") == 2 && nvme_counter("files") == 3);
	fill(host.data, PIECES * PIECE, 31);
	client_submit(&host, true, 10 * MIB);
	client_submit(&gpu, false, 0);
	client_wait(&host, 0);
	client_wait(&gpu, 0);
	/* What one wrote, the other reads. */
	client_submit(&gpu, false, 10 * MIB);
	client_wait(&gpu, 0);
	gpu_copy(gpu.memory.gpu, gpu.memory.address, seen, PIECES * PIECE, false);
	expect(memcmp(seen, host.data, PIECES * PIECE) == 0);
	say_direct(2 * PIECES * PIECE);
	say_bar(&gpu.memory, 0, PIECES * PIECE, DRIVE, 10 * MIB);
	/* The tools are clients, too. */
	expect(tool("read --block 20480 --count 1 served:" SOCKET) == 0);
	expect(tool("identify served:" SOCKET) == 0);
	expect(strstr(tool_said, DRIVE));
	want = host.data;
	host.data = NULL;
	peerlane_nvme_close(host.nvme);
	client_close(&gpu);
	wait_counter("clients", 0);
	owner_end(owner);
	nvme_wait_idle();
	give_back(pci, DRIVE);
	fd = drive_open(DRIVE, O_RDONLY | O_DIRECT);
	expect(pread(fd, seen, PIECES * PIECE, 10 * MIB) == (ssize_t)(PIECES * PIECE));
	expect(memcmp(seen, want, PIECES * PIECE) == 0);
	close(fd);
	return 0;
}

/*
 * Killed with reads under way: the queues go first, then the memory; the other client, which has reads under
 * way all the time, goes on. Also when it was GPU memory, which goes with the process whoever needs it.
 */
int test_nvme_serve_kill(void)
{
	struct guest_client c = { 0 };
	long long held, stops;
	struct pci pci;
	pid_t owner;
	char *want;
	int i, status;

	if (!has_sockets())
		return SKIP;
	pci = take_drive(DRIVE, "kmod");
	held = pages_held();
	stops = nvme_counter("nr_stops");
	owner = owner_start(pci);
	client_open(&c, false);
	client_submit(&c, false, 8 * MIB);
	client_wait(&c, 0);
	want = host_alloc(PIECES * PIECE);
	memcpy(want, c.data, PIECES * PIECE);
	for (i = 0; i < 4; i++) {
		memset(c.data, 0, PIECES * PIECE);
		client_submit(&c, false, 8 * MIB);
		kill_busy(i & 1);
		client_wait(&c, 0);
		expect(memcmp(c.data, want, PIECES * PIECE) == 0);
		wait_counter("clients", 1);
		/* Its memory has gone with it: the owner's and ours are left. */
		wait_counter("files", 2);
	}
	expect(nvme_counter("nr_stops") == stops);
	/* The owner is killed: everything under way is reported, and the controller has stopped. */
	client_submit(&c, false, 8 * MIB);
	expect(kill(owner, SIGKILL) == 0);
	expect(waitpid(owner, &status, 0) == owner);
	client_wait(&c, -ENODEV);
	wait_counter("clients", 0);
	client_close(&c);
	nvme_wait_idle();
	if (pages_held() != held)
		fail("%lld pages were held before, and %lld are now", held, pages_held());
	give_back(pci, DRIVE);
	unlink(SOCKET);
	return 0;
}

static void bad_grants(int fd)
{
	struct peerlane_nvmedev_grant grant = { .bar0_bytes = 0x2000 };
	struct peerlane_nvmedev_revoke revoke = { .id = 1 };
	struct peerlane_nvmedev_leaving leaving = { 0 };

	grant.bar0_bytes = 0x1000;
	expect_errno(ioctl(fd, PEERLANE_NVMEDEV_IOC_GRANT, &grant), EINVAL);
	grant.bar0_bytes = 1ULL << 40;
	expect_errno(ioctl(fd, PEERLANE_NVMEDEV_IOC_GRANT, &grant), EINVAL);
	grant.bar0_bytes = 0x2000;
	grant.flags = 1;
	expect_errno(ioctl(fd, PEERLANE_NVMEDEV_IOC_GRANT, &grant), EINVAL);
	grant.flags = 0;
	grant.reserved[1] = 1;
	expect_errno(ioctl(fd, PEERLANE_NVMEDEV_IOC_GRANT, &grant), EINVAL);
	expect_errno(ioctl(fd, PEERLANE_NVMEDEV_IOC_GRANT, NULL), EFAULT);
	expect_errno(ioctl(fd, PEERLANE_NVMEDEV_IOC_REVOKE, &revoke), ENOENT);
	revoke.flags = 1;
	expect_errno(ioctl(fd, PEERLANE_NVMEDEV_IOC_REVOKE, &revoke), EINVAL);
	expect_errno(ioctl(fd, PEERLANE_NVMEDEV_IOC_REVOKE, NULL), EFAULT);
	expect(ioctl(fd, PEERLANE_NVMEDEV_IOC_LEAVING, &leaving) == 0 && !leaving.id);
	leaving.reserved[0] = 1;
	expect_errno(ioctl(fd, PEERLANE_NVMEDEV_IOC_LEAVING, &leaving), EINVAL);
	expect(nvme_counter("clients") == 0);
}

static struct peerlane_nvmedev_grant grant_one(int fd)
{
	struct peerlane_nvmedev_grant grant = { .bar0_bytes = 0x1010 };
	struct peerlane_nvmedev_hello hello = { .version = PEERLANE_NVMEDEV_UAPI_VERSION };
	struct peerlane_nvmedev_info info = { 0 };

	expect(ioctl(fd, PEERLANE_NVMEDEV_IOC_GRANT, &grant) == 0);
	expect(grant.fd >= 0 && grant.id);
	expect(fcntl(grant.fd, F_GETFD) & FD_CLOEXEC);
	expect_errno(ioctl(grant.fd, PEERLANE_NVMEDEV_IOC_INFO, &info), EPROTO);
	expect_errno(mmap(NULL, 4096, PROT_READ, MAP_SHARED, grant.fd, 0), EPROTO);
	expect(ioctl(grant.fd, PEERLANE_NVMEDEV_IOC_HELLO, &hello) == 0);
	expect(ioctl(grant.fd, PEERLANE_NVMEDEV_IOC_INFO, &info) == 0);
	expect(info.bars[0].bytes == 0x2000 && !info.bars[2].bytes && !info.bars[4].bytes);
	return grant;
}

/* What a client may map, and what not. */
static volatile uint32_t *bad_windows(int fd)
{
	void *doorbells, *regs = mmap(NULL, 0x2000, PROT_READ, MAP_SHARED, fd, 0);

	expect(regs != MAP_FAILED);
	expect_errno(mmap(NULL, 0x1000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), EACCES);
	expect_errno(mmap(NULL, 0x2000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), EACCES);
	expect_errno(mprotect(regs, 0x1000, PROT_READ | PROT_WRITE), EACCES);
	expect_errno(mmap(NULL, 0x1000, PROT_READ, MAP_PRIVATE, fd, 0), EINVAL);
	expect_errno(mmap(NULL, 0x3000, PROT_READ, MAP_SHARED, fd, 0), EINVAL);
	expect_errno(mmap(NULL, 0x1000, PROT_READ, MAP_SHARED, fd, 0x2000), EINVAL);
	expect_errno(mmap(NULL, 0x1000, PROT_READ, MAP_SHARED, fd,
			  (off_t)PEERLANE_NVMEDEV_BAR_OFFSET(2)),
		     EINVAL);
	doorbells = mmap(NULL, 0x1000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0x1000);
	expect(doorbells != MAP_FAILED);
	munmap(doorbells, 0x1000);
	return regs;
}

static struct peerlane_nvmedev_map map_some(int fd, uint32_t kind, void *data)
{
	static uint64_t bus[16];
	struct peerlane_nvmedev_map map = { .kind = kind,
					    .address = (uintptr_t)data,
					    .bytes = 64 * KIB,
					    .bus = (uintptr_t)bus,
					    .nr_room = 16 };

	expect(ioctl(fd, PEERLANE_NVMEDEV_IOC_MAP, &map) == 0);
	return map;
}

/* The descriptor of a client: what it cannot do, what stays of it, and when that goes. */
int test_nvme_serve_rules(void)
{
	struct pci pci = take_drive(DRIVE, "kmod");
	struct peerlane_nvmedev_hello hello = { .version = PEERLANE_NVMEDEV_UAPI_VERSION };
	struct peerlane_nvmedev_leaving leaving = { 0 };
	struct peerlane_nvmedev_info info = { 0 };
	struct peerlane_nvmedev_revoke revoke = { 0 };
	struct peerlane_nvmedev_map map;
	struct peerlane_nvmedev_grant a, b;
	volatile uint32_t *regs;
	void *data = host_alloc(64 * KIB), *queue;
	char path[64], *name = strstr(tool_said, "(/dev/");
	int fd;

	expect(name);
	snprintf(path, sizeof(path), "%.*s", (int)strcspn(name + 1, ")"), name + 1);
	fd = open(path, O_RDWR | O_CLOEXEC);
	expect(fd >= 0);
	expect_errno(ioctl(fd, PEERLANE_NVMEDEV_IOC_GRANT, &a), EPROTO);
	expect(ioctl(fd, PEERLANE_NVMEDEV_IOC_HELLO, &hello) == 0);
	bad_grants(fd);
	a = grant_one(fd);
	b = grant_one(fd);
	expect(a.id != b.id && nvme_counter("clients") == 2 && nvme_counter("files") == 3);
	expect_errno(ioctl(a.fd, PEERLANE_NVMEDEV_IOC_RESET), EPERM);
	expect_errno(ioctl(a.fd, PEERLANE_NVMEDEV_IOC_GRANT, &b), EPERM);
	expect_errno(ioctl(a.fd, PEERLANE_NVMEDEV_IOC_REVOKE, &revoke), EPERM);
	expect_errno(ioctl(a.fd, PEERLANE_NVMEDEV_IOC_LEAVING, &leaving), EPERM);
	expect_errno(ioctl(a.fd, _IO(PEERLANE_NVMEDEV_IOC_MAGIC, 99)), ENOTTY);
	regs = bad_windows(a.fd);
	expect(regs[0] != UINT32_MAX);

	/* Closed: what it had mapped stays, until it is revoked. */
	map_some(b.fd, PEERLANE_NVMEDEV_HOST, data);
	map_some(b.fd, PEERLANE_NVMEDEV_ALLOC, NULL);
	close(b.fd);
	expect(nvme_counter("mappings") == 2 && nvme_counter("locked_pages") == 32);
	expect(nvme_counter("files") == 2 && nvme_counter("clients") == 2);
	revoke.id = b.id;
	expect(ioctl(fd, PEERLANE_NVMEDEV_IOC_REVOKE, &revoke) == 0);
	expect_errno(ioctl(fd, PEERLANE_NVMEDEV_IOC_REVOKE, &revoke), ENOENT);
	wait_counter("clients", 1);
	expect(nvme_counter("mappings") == 0 && nvme_counter("locked_pages") == 0);

	/* Revoked: it is as if the device were gone, and memory for queues stays readable. */
	map = map_some(a.fd, PEERLANE_NVMEDEV_ALLOC, NULL);
	queue = mmap(NULL, 64 * KIB, PROT_READ | PROT_WRITE, MAP_SHARED, a.fd,
		     (off_t)map.map_offset);
	expect(queue != MAP_FAILED);
	memset(queue, 5, 64 * KIB);
	revoke.id = a.id;
	expect(ioctl(fd, PEERLANE_NVMEDEV_IOC_REVOKE, &revoke) == 0);
	wait_counter("mappings", 0);
	expect(((char *)queue)[4096] == 5);
	expect(regs[0] == UINT32_MAX && regs[0x1000 / 4] == UINT32_MAX);
	expect_errno(ioctl(a.fd, PEERLANE_NVMEDEV_IOC_INFO, &info), ENODEV);
	map = (struct peerlane_nvmedev_map){
		.kind = PEERLANE_NVMEDEV_ALLOC, .bytes = 4096, .bus = (uintptr_t)data, .nr_room = 1
	};
	expect_errno(ioctl(a.fd, PEERLANE_NVMEDEV_IOC_MAP, &map), ENODEV);
	munmap((void *)regs, 0x2000);
	munmap(queue, 64 * KIB);
	close(a.fd);

	/* The owner closes: clients have nothing any more, and may outlive it. */
	a = grant_one(fd);
	map_some(a.fd, PEERLANE_NVMEDEV_HOST, data);
	close(fd);
	wait_counter("clients", 0);
	expect(nvme_counter("mappings") == 0 && nvme_counter("files") == 1);
	expect_errno(ioctl(a.fd, PEERLANE_NVMEDEV_IOC_INFO, &info), ENODEV);
	/* Another one can have it meanwhile. */
	fd = open(path, O_RDWR | O_CLOEXEC);
	expect(fd >= 0);
	close(fd);
	give_back(pci, DRIVE);
	expect_errno(ioctl(a.fd, PEERLANE_NVMEDEV_IOC_INFO, &info), ENODEV);
	close(a.fd);
	nvme_wait_idle();
	return 0;
}
