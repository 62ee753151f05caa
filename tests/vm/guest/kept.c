// SPDX-License-Identifier: MIT
/*
 * What the tests of pins share whose owner, process or memory goes.
 */
#include <glob.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "kept.h"

#define WAIT_MS 20000

struct kept kept_now(int dev, int gpu)
{
	struct simgpu_state state = gpu_state(gpu);

	return (struct kept){ .callbacks = state.nr_pins,
			      .persistent = state.nr_persistent,
			      .pins = dev_counters(dev).pins };
}

void kept_wait(int dev, int gpu, struct kept want)
{
	struct kept now;
	unsigned int ms;

	for (ms = 0; ms < WAIT_MS; ms += 10) {
		now = kept_now(dev, gpu);
		if (memcmp(&now, &want, sizeof(now)) == 0)
			return;
		sleep_ms(10);
	}
	fail("kept: callbacks %llu persistent %llu pins %llu, and not %llu %llu %llu",
	     (unsigned long long)now.callbacks, (unsigned long long)now.persistent,
	     (unsigned long long)now.pins, (unsigned long long)want.callbacks,
	     (unsigned long long)want.persistent, (unsigned long long)want.pins);
}

void kept_nothing(void)
{
	struct memory none = { .gpu = gpu_open(), .dev = dev_open() };
	int gpu = none.gpu, dev = none.dev;
	unsigned int ms;

	kept_expect(dev, gpu, 0, 0, 0);
	/* What was kept goes back a moment later. */
	for (ms = 0; ms < WAIT_MS && gpu_state(gpu).nr_allocs; ms += 10)
		sleep_ms(10);
	expect(gpu_state(gpu).nr_allocs == 0);
	expect(dev_counters(dev).lingering == 0 && dev_counters(dev).pinned_bytes == 0);
	/* Takes all of it. Refused (EBUSY) where somebody uses a page. */
	expect(!pages_reused(&none));
	close(dev);
	close(gpu);
}

#define FOR_EVER "/tmp/kept"

void kept_for_ever(unsigned int nr)
{
	FILE *file = fopen(FOR_EVER, "w");

	expect(file && fprintf(file, "%u\n", nr) > 0 && fclose(file) == 0);
}

unsigned int nr_kept_for_ever(void)
{
	FILE *file = fopen(FOR_EVER, "r");
	unsigned int nr = 0;

	if (file && fscanf(file, "%u", &nr) != 1)
		nr = 0;
	if (file)
		fclose(file);
	return nr;
}

void gpu_pci(char *text, size_t room)
{
	int gpu = gpu_open();
	uint64_t at = gpu_state(gpu).pci;

	close(gpu);
	snprintf(text, room, "%04x:%02x:%02x.%x", (unsigned int)(at >> 16),
		 (unsigned int)(at >> 8) & 0xff, (unsigned int)(at >> 3) & 0x1f,
		 (unsigned int)at & 7);
}

void gpu_bind(const char *pci)
{
	expect(echo("/sys/bus/pci/drivers/simgpu/bind", pci) == 0);
	while (access("/dev/simgpu", F_OK))
		sleep_ms(1);
	expect(chmod("/dev/simgpu", 0666) == 0);
}

/* What a module was loaded with, as the kernel takes it. */
static void parameters_of(const char *module, char *text, size_t room)
{
	char pattern[80], value[64];
	glob_t paths;
	size_t i, at = 0;
	FILE *file;

	text[0] = '\0';
	snprintf(pattern, sizeof(pattern), "/sys/module/%s/parameters/*", module);
	if (glob(pattern, 0, NULL, &paths))
		return;
	for (i = 0; i < paths.gl_pathc; i++) {
		file = fopen(paths.gl_pathv[i], "r");
		if (file && fscanf(file, "%63s", value) == 1)
			at += (size_t)snprintf(text + at, room - at, "%s=%s ",
					       strrchr(paths.gl_pathv[i], '/') + 1, value);
		if (file)
			fclose(file);
	}
	globfree(&paths);
}

/* Of which the last steps may be under way: a moment later. */
static void rmmod_soon(const char *name)
{
	double end = seconds() + WAIT_MS / 1000.0;

	while (rmmod(name)) {
		if (errno != EWOULDBLOCK || seconds() > end)
			fail("%s does not go: errno %d", name, errno);
		sleep_ms(1);
	}
}

static void insmod(const char *name, const char *parameters)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/m/%s.ko", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	expect(fd >= 0);
	if (syscall(SYS_finit_module, fd, parameters, 0))
		fail("%s with %s: errno %d", name, parameters, errno);
	close(fd);
}

void modules_reload(void)
{
	/* The GPU's driver first: it may have a callback of ours. */
	static const char *const order[] = { "simgpu", "peerlane_nvidia", "peerlane" };
	char simgpu[256], peerlane[256];
	size_t i;

	parameters_of("simgpu", simgpu, sizeof(simgpu));
	parameters_of("peerlane", peerlane, sizeof(peerlane));
	for (i = 0; i < sizeof(order) / sizeof(*order); i++)
		rmmod_soon(order[i]);
	insmod("simgpu", simgpu);
	insmod("peerlane", peerlane);
	insmod("peerlane_nvidia", "");
	expect(chmod("/dev/peerlane", 0666) == 0 && chmod("/dev/simgpu", 0666) == 0);
}

void controllers_load(bool load)
{
	if (load)
		insmod("peerlane_nvme", "");
	else
		rmmod_soon("peerlane_nvme");
}

bool channel_open(int fds[2])
{
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) == 0)
		return true;
	expect(errno == ENOSYS || errno == EAFNOSUPPORT);
	expect(pipe2(fds, O_CLOEXEC) == 0);
	signal(SIGPIPE, SIG_IGN);
	return false;
}

/**
 * struct told - what goes through a pipe in place of a descriptor
 * @pid: whose
 * @fd: its number there
 * @pin: what belongs to it
 */
struct told {
	pid_t pid;
	int fd;
	struct peerlane_pin pin;
};

static bool pipe_send(int to, int fd, const struct peerlane_pin *pin)
{
	struct told told = { .pid = getpid(), .fd = dup(fd), .pin = *pin };

	return write(to, &told, sizeof(told)) == sizeof(told);
}

static bool pipe_receive(int from, int *fd, struct peerlane_pin *pin)
{
	struct told told;
	int process;

	while (read(from, &told, sizeof(told)) == sizeof(told)) {
		process = (int)syscall(SYS_pidfd_open, told.pid, 0);
		*fd = (int)syscall(SYS_pidfd_getfd, process, told.fd, 0);
		*pin = told.pin;
		if (process >= 0)
			close(process);
		if (*fd >= 0)
			return true;
	}
	return false;
}

union control {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(sizeof(int))];
};

bool fd_send(int to, int fd, const struct peerlane_pin *pin)
{
	struct iovec iov = { .iov_base = (void *)pin, .iov_len = sizeof(*pin) };
	union control control = { .header = { .cmsg_len = CMSG_LEN(sizeof(int)),
					      .cmsg_level = SOL_SOCKET,
					      .cmsg_type = SCM_RIGHTS } };
	struct msghdr message = { .msg_iov = &iov,
				  .msg_iovlen = 1,
				  .msg_control = &control,
				  .msg_controllen = sizeof(control) };

	memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	if (sendmsg(to, &message, MSG_NOSIGNAL) == sizeof(*pin))
		return true;
	return (errno == ENOTSOCK || errno == ENOSYS) && pipe_send(to, fd, pin);
}

bool fd_receive(int from, int *fd, struct peerlane_pin *pin)
{
	struct iovec iov = { .iov_base = pin, .iov_len = sizeof(*pin) };
	union control control;
	struct msghdr message = { .msg_iov = &iov,
				  .msg_iovlen = 1,
				  .msg_control = &control,
				  .msg_controllen = sizeof(control) };

	ssize_t got = recvmsg(from, &message, 0);

	if (got < 0 && (errno == ENOTSOCK || errno == ENOSYS))
		return pipe_receive(from, fd, pin);
	if (got != sizeof(*pin))
		return false;
	expect(message.msg_controllen >= sizeof(struct cmsghdr));
	memcpy(fd, CMSG_DATA(&control.header), sizeof(*fd));
	return true;
}
