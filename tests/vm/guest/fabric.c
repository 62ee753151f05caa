// SPDX-License-Identifier: MIT
/*
 * A target and a connection to it, made without any tool. See fabric.h.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "fabric.h"

#define NQN "nqn.2024-01.io.peerlane:guest"
#define TARGET "/sys/kernel/config/nvmet"
#define SUBSYSTEM TARGET "/subsystems/" NQN
#define PORT TARGET "/ports/1"
#define LINK PORT "/subsystems/" NQN
/* Of the software adapter; TCP uses the loopback's. */
#define RDMA_ADDRESS "10.9.0.1"
/* How long commands that move no data may take, in seconds. */
#define ADMIN_TIMEOUT "/sys/module/nvme_core/parameters/admin_timeout"

static const char *const exported[] = { "raw0", "fs0", "slow0" };
#define NR_EXPORTED (sizeof(exported) / sizeof(*exported))

__attribute__((format(printf, 2, 3))) static void put(const char *text, const char *format, ...)
{
	char path[300];
	va_list ap;
	int fd;

	va_start(ap, format);
	vsnprintf(path, sizeof(path), format, ap);
	va_end(ap);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		fail("%s to %s: errno %d", text, path, errno);
	close(fd);
}

/* The first word of a file, or none. */
static void get(char *text, size_t bytes, const char *path)
{
	FILE *file = fopen(path, "re");

	text[0] = '\0';
	if (!file)
		return;
	if (fgets(text, (int)bytes, file))
		text[strcspn(text, " \n")] = '\0';
	fclose(file);
}

static void shell(const char *line)
{
	int status = system(line);

	if (status)
		fail("%s: %d", line, status);
}

/* --- what is below --- */

static void load_modules(const char *adapter)
{
	char line[200];

	if (!access("/dev/nvme-fabrics", F_OK))
		return;
	/* Some are loaded already, or built in. */
	snprintf(line, sizeof(line),
		 "sed s/rdma_rxe.ko/%s/ /m/list-fabrics | "
		 "while read -r m; do insmod /m/$m 2>/dev/null; done",
		 adapter);
	(void)!system(line);
	expect(!mount("config", "/sys/kernel/config", "configfs", 0, NULL));
	shell("ifconfig lo up && ifconfig dummy0 " RDMA_ADDRESS " netmask 255.255.255.0 up");
}

/* A text after what a message holds already. */
static void add_text(struct nlmsghdr *message, unsigned short type, const char *text)
{
	struct nlattr *a = (struct nlattr *)((char *)message + NLMSG_ALIGN(message->nlmsg_len));

	a->nla_len = (unsigned short)(NLA_HDRLEN + strlen(text) + 1);
	a->nla_type = type;
	memcpy((char *)a + NLA_HDRLEN, text, strlen(text) + 1);
	message->nlmsg_len = NLMSG_ALIGN(message->nlmsg_len) + NLA_ALIGN(a->nla_len);
}

/* A software RDMA adapter on dummy0. */
static void make_adapter(void)
{
	struct {
		struct nlmsghdr head;
		char rest[256];
	} request = { .head.nlmsg_len = NLMSG_HDRLEN };
	struct {
		struct nlmsghdr head;
		struct nlmsgerr error;
		char rest[512];
	} answer = { 0 };
	int fd;

	if (!access("/sys/class/infiniband/rxe0", F_OK))
		return;
	fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA);
	expect(fd >= 0);
	request.head.nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_NEWLINK);
	request.head.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
	add_text(&request.head, RDMA_NLDEV_ATTR_DEV_NAME, "rxe0");
	add_text(&request.head, RDMA_NLDEV_ATTR_LINK_TYPE, "rxe");
	add_text(&request.head, RDMA_NLDEV_ATTR_NDEV_NAME, "dummy0");
	expect(send(fd, &request, request.head.nlmsg_len, 0) == request.head.nlmsg_len);
	expect(recv(fd, &answer, sizeof(answer), 0) >= (ssize_t)sizeof(answer.head) + 4);
	if (answer.head.nlmsg_type != NLMSG_ERROR || answer.error.error)
		fail("no soft-RoCE: %d", answer.error.error);
	close(fd);
}

/* --- the target --- */

void drive_path(const char *serial, char *path, size_t bytes)
{
	char link[64];
	int fd = drive_open(serial, O_RDONLY);
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, bytes - 1);
	expect(n > 0);
	path[n] = '\0';
	close(fd);
}

static void make_namespace(size_t number)
{
	char dir[200], path[64];

	drive_path(exported[number], path, sizeof(path));
	snprintf(dir, sizeof(dir), SUBSYSTEM "/namespaces/%zu", number + 1);
	expect(!mkdir(dir, 0755));
	put(path, "%s/device_path", dir);
	put("1", "%s/enable", dir);
}

static const char *address(const struct fabric *fabric)
{
	return strcmp(fabric->transport, "rdma") ? "127.0.0.1" : RDMA_ADDRESS;
}

void fabric_export(bool on)
{
	if (on)
		expect(!symlink(SUBSYSTEM, LINK));
	else
		expect(!unlink(LINK));
}

void fabric_cable(const struct fabric *fabric, bool plugged)
{
	if (!strcmp(fabric->transport, "tcp")) {
		shell(plugged ? "ifconfig lo up" : "ifconfig lo down");
	} else if (!plugged) {
		/* Software RDMA talks to itself whatever the interface: that has to go. */
		shell("ip link del dummy0");
	} else {
		shell("ip link add dummy0 type dummy && ifconfig dummy0 " RDMA_ADDRESS
		      " netmask 255.255.255.0 up");
		make_adapter();
		/* The target listens at an adapter that is gone. */
		fabric_export(false);
		fabric_export(true);
	}
}

static void start(struct fabric *fabric, const char *transport, const char *adapter)
{
	size_t i;

	*fabric = (struct fabric){ .transport = transport, .controller = -1 };
	load_modules(adapter);
	if (!strcmp(transport, "rdma"))
		make_adapter();
	expect(!umount("/mnt"));
	expect(!mkdir(SUBSYSTEM, 0755));
	put("1", SUBSYSTEM "/attr_allow_any_host");
	put("fabric", SUBSYSTEM "/attr_serial");
	for (i = 0; i < NR_EXPORTED; i++)
		make_namespace(i);
	expect(!mkdir(PORT, 0755));
	put(transport, PORT "/addr_trtype");
	put("ipv4", PORT "/addr_adrfam");
	put(address(fabric), PORT "/addr_traddr");
	put("4420", PORT "/addr_trsvcid");
	fabric_export(true);
}

void fabric_start(struct fabric *fabric, const char *transport)
{
	start(fabric, transport, "rdma_rxe.ko");
}

void fabric_start_dma(struct fabric *fabric)
{
	start(fabric, "rdma", strrchr(DMA_ADAPTER, '/') + 1);
}

void fabric_mount(void)
{
	char name[64], path[80];

	/* Waits until it can be opened. */
	close(fabric_open("fs0", O_RDONLY));
	fabric_name("fs0", name, sizeof(name));
	snprintf(path, sizeof(path), "/dev/%s", name);
	expect(!mount(path, "/mnt", "ext4", 0, NULL));
}

void fabric_unmount(void)
{
	int err = 0, i;

	/* What is left of an io_uring that was closed has the file for a while. */
	for (i = 0; i < 1200; i++) {
		err = umount("/mnt") ? errno : 0;
		if (err != EBUSY)
			break;
		sleep_ms(50);
	}
	if (err)
		fail("umount: errno %d", err);
}

void fabric_stop(struct fabric *fabric)
{
	char path[200], drive[64];
	size_t i;

	fabric_disconnect(fabric);
	fabric_export(false);
	expect(!rmdir(PORT));
	for (i = 0; i < NR_EXPORTED; i++) {
		snprintf(path, sizeof(path), SUBSYSTEM "/namespaces/%zu", i + 1);
		put("0", "%s/enable", path);
		expect(!rmdir(path));
	}
	expect(!rmdir(SUBSYSTEM));
	drive_path("fs0", drive, sizeof(drive));
	expect(!mount(drive, "/mnt", "ext4", 0, NULL));
}

/* --- the connection --- */

void fabric_connect(struct fabric *fabric)
{
	char text[512];
	int fd = open("/dev/nvme-fabrics", O_RDWR | O_CLOEXEC);
	ssize_t n;

	expect(fd >= 0);
	put("60", ADMIN_TIMEOUT);
	snprintf(text, sizeof(text),
		 "transport=%s,traddr=%s,trsvcid=4420,nqn=" NQN ",hostnqn=" NQN "-host,"
		 "hostid=5e0a2f6e-3f0d-4d0a-9a52-0c5f5b8f6a11,nr_io_queues=2,reconnect_delay=1,"
		 "keep_alive_tmo=120,ctrl_loss_tmo=120",
		 fabric->transport, address(fabric));
	/* What is left of an io_uring that was closed may interrupt it. */
	do {
		n = write(fd, text, strlen(text));
	} while (n < 0 && errno == EINTR);
	if (n != (ssize_t)strlen(text))
		fail("%s: errno %d", text, errno);
	n = pread(fd, text, sizeof(text) - 1, 0);
	expect(n > 0);
	text[n] = '\0';
	expect(sscanf(text, "instance=%d", &fabric->controller) == 1);
	close(fd);
}

/* Is this disk of /sys/block the exported one of that number (0: any)? */
static bool is_namespace(const char *disk, size_t number)
{
	char path[300], text[128];

	snprintf(path, sizeof(path), "/sys/block/%s/device/subsysnqn", disk);
	get(text, sizeof(text), path);
	if (strcmp(text, NQN) != 0)
		return false;
	snprintf(path, sizeof(path), "/sys/block/%s/nsid", disk);
	get(text, sizeof(text), path);
	snprintf(path, sizeof(path), "/dev/%s", disk);
	return !number || (strtoul(text, NULL, 10) == number && !access(path, R_OK));
}

/* Looks for one, and gives its name. */
static bool find_namespace(size_t number, char *name, size_t bytes)
{
	DIR *dir = opendir("/sys/block");
	struct dirent *entry;
	bool found = false;

	expect(dir);
	while (!found && (entry = readdir(dir))) {
		found = is_namespace(entry->d_name, number);
		if (found)
			snprintf(name, bytes, "%s", entry->d_name);
	}
	closedir(dir);
	return found;
}

/* Waits until one is there, or until none is. The kernel takes its time for both. */
static void wait_namespace(size_t number, bool there, char *name, size_t bytes)
{
	int i;

	for (i = 0; i < 1200; i++) {
		if (find_namespace(number, name, bytes) == there)
			return;
		sleep_ms(50);
	}
	fail("drive %zu over the network %s", number, there ? "does not come" : "does not go");
}

void fabric_disconnect(struct fabric *fabric)
{
	char path[64], name[64];
	int fd;

	if (fabric->controller < 0)
		return;
	snprintf(path, sizeof(path), "/sys/class/nvme/nvme%d/delete_controller",
		 fabric->controller);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd >= 0) {
		(void)!write(fd, "1", 1);
		close(fd);
	}
	wait_namespace(0, false, name, sizeof(name));
	fabric->controller = -1;
}

/* Writes to a file that not every kernel has. */
static void put_if(const char *text, const char *path)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	(void)!write(fd, text, strlen(text));
	close(fd);
}

void fabric_hurry(const struct fabric *fabric, unsigned int request_ms, unsigned int loss)
{
	char path[300], text[16];
	struct dirent *entry;
	DIR *dir = opendir("/sys/block");

	expect(dir);
	snprintf(text, sizeof(text), "%u", request_ms);
	while ((entry = readdir(dir))) {
		if (!is_namespace(entry->d_name, 0))
			continue;
		/* The limit is one of paths; a disk that stands for several has none, or ignores it. */
		snprintf(path, sizeof(path), "/sys/block/%s/queue/io_timeout", entry->d_name);
		put_if(text, path);
	}
	closedir(dir);
	put("2", ADMIN_TIMEOUT);
	/* Newer kernels keep it for each controller. */
	snprintf(path, sizeof(path), "/sys/class/nvme/nvme%d/admin_timeout", fabric->controller);
	put_if("2000", path);
	snprintf(text, sizeof(text), "%u", loss);
	put(text, "/sys/class/nvme/nvme%d/ctrl_loss_tmo", fabric->controller);
}

void fabric_name(const char *drive, char *name, size_t bytes)
{
	size_t number = 0;

	while (strcmp(exported[number++], drive) != 0)
		expect(number < NR_EXPORTED);
	wait_namespace(number, true, name, bytes);
}

int fabric_open(const char *drive, int flags)
{
	char name[64], path[80];
	int fd = -1, i;

	/* The node comes before the disk can be opened. */
	for (i = 0; fd < 0 && i < 1200; i++) {
		fabric_name(drive, name, sizeof(name));
		snprintf(path, sizeof(path), "/dev/%s", name);
		fd = open(path, flags | O_CLOEXEC);
		if (fd < 0)
			sleep_ms(50);
	}
	expect(fd >= 0);
	return fd;
}

/* --- memory --- */

/* Lets every processor handle a packet. */
static void stir(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_port = htons(9),
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), cpu;
	cpu_set_t before, one;

	expect(fd >= 0 && !sched_getaffinity(0, sizeof(before), &before));
	for (cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &before))
			continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		expect(!sched_setaffinity(0, sizeof(one), &one));
		/* Nobody listens, and may say so. */
		(void)!sendto(fd, "", 1, 0, (struct sockaddr *)&to, sizeof(to));
	}
	expect(!sched_setaffinity(0, sizeof(before), &before));
	close(fd);
}

void fabric_memory_close(struct memory *memory)
{
	int i;

	munmap(memory->map, memory->pin.map_bytes);
	stir();
	expect(!dev_unpin(memory->dev, memory->pin.handle) || errno == EINPROGRESS);
	for (i = 0; i < 1200 && dev_counters(memory->dev).lingering; i++) {
		stir();
		sleep_ms(50);
	}
	gpu_free(memory->gpu, memory->address);
	close(memory->dev);
	close(memory->gpu);
	free(memory->physical);
}
