// SPDX-License-Identifier: MIT
/*
 * Calls on /dev/peerlane-nvmeN with wrong arguments, without privilege, and beyond limits.
 */
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <uapi/peerlane_nvme.h>

#include "nvme_lab.h"

#define DRIVE "slow0"

static void bad_hello(const char *path)
{
	struct peerlane_nvmedev_hello hello = { .version = 99 };
	struct peerlane_nvmedev_info info = { 0 };
	int fd = open(path, O_RDWR | O_CLOEXEC);

	expect(fd >= 0);
	expect_errno(open(path, O_RDWR), EBUSY);
	expect_errno(ioctl(fd, PEERLANE_NVMEDEV_IOC_INFO, &info), EPROTO);
	expect_errno(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0), EPROTO);
	expect_errno(ioctl(fd, PEERLANE_NVMEDEV_IOC_HELLO, &hello), EPROTO);
	expect(hello.version == PEERLANE_NVMEDEV_UAPI_VERSION);
	hello.reserved[2] = 1;
	expect_errno(ioctl(fd, PEERLANE_NVMEDEV_IOC_HELLO, &hello), EINVAL);
	expect_errno(ioctl(fd, PEERLANE_NVMEDEV_IOC_HELLO, NULL), EFAULT);
	close(fd);
}

static int try_map(int fd, struct peerlane_nvmedev_map request)
{
	return ioctl(fd, PEERLANE_NVMEDEV_IOC_MAP, &request);
}

static void bad_map(int fd, const struct memory *memory)
{
	char *host = host_alloc(64 * KIB);
	char *fixed = mmap(NULL, 64 * KIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t bus[64];
	struct peerlane_nvmedev_map good = { .kind = PEERLANE_NVMEDEV_HOST,
					     .address = (uintptr_t)host,
					     .bytes = 64 * KIB,
					     .bus = (uintptr_t)bus,
					     .nr_room = 64 };
	struct peerlane_nvmedev_map gpu = { .kind = PEERLANE_NVMEDEV_GPU,
					    .bytes = MIB,
					    .fd = memory->dev,
					    .pin = memory->pin.handle,
					    .bus = (uintptr_t)bus,
					    .nr_room = 64 };
	struct peerlane_nvmedev_map alloc = {
		.kind = PEERLANE_NVMEDEV_ALLOC, .bytes = 4096, .bus = (uintptr_t)bus, .nr_room = 64
	};
	struct peerlane_nvmedev_map bad;

#define refuse(from, number, ...)                                                                  \
	do {                                                                                       \
		bad = (from);                                                                      \
		__VA_ARGS__;                                                                       \
		expect_errno(try_map(fd, bad), number);                                            \
	} while (0)
	refuse(good, EINVAL, bad.kind = 0);
	refuse(good, EINVAL, bad.kind = 4);
	refuse(good, EINVAL, bad.flags = 1);
	refuse(good, EINVAL, bad.bytes = 0);
	refuse(good, EINVAL, bad.reserved[3] = 1);
	refuse(good, EINVAL, bad.pin = 1);
	refuse(good, EINVAL, bad.nr_room = 15);
	refuse(good, EINVAL, bad.address = UINT64_MAX - 4096);
	refuse(good, E2BIG, bad.bytes = 1ULL << 60);
	refuse(good, EFAULT, bad.bus = 8);
	refuse(good, EFAULT, bad.address = 4096);
	refuse(good, EFAULT, bad.address = 0xffff888000000000ULL);
	refuse(good, EFAULT, bad.address = (uintptr_t)fixed);
	refuse(alloc, EINVAL, bad.address = 4096);
	refuse(alloc, E2BIG, bad.bytes = 1ULL << 30);
	refuse(alloc, EFAULT, bad.bus = 8);
	refuse(gpu, EBADF, bad.fd = 0);
	refuse(gpu, EBADF, bad.fd = fd);
	refuse(gpu, EBADF, bad.fd = -1);
	refuse(gpu, ENOENT, bad.pin = 0);
	refuse(gpu, ENOENT, bad.pin++);
	refuse(gpu, EINVAL, bad.bytes++);
	refuse(gpu, EINVAL, bad.pin_offset = 1);
	refuse(gpu, EINVAL, bad.pin_offset = UINT64_MAX);
	refuse(gpu, EINVAL, bad.nr_room = 15);
	refuse(gpu, EFAULT, bad.bus = 8);
	expect_errno(ioctl(fd, PEERLANE_NVMEDEV_IOC_MAP, NULL), EFAULT);
	expect_errno(ioctl(fd, PEERLANE_IOC_PIN, NULL), ENOTTY);
	/* Nothing of that has left anything. */
	expect(nvme_counter("mappings") == 0 && nvme_counter("locked_pages") == 0);
	expect(dev_counters(memory->dev).uses == 0);
	munmap(fixed, 64 * KIB);
	free(host);
}

static void bad_unmap(int fd)
{
	struct peerlane_nvmedev_unmap unmap = { .handle = 1 };

	expect_errno(ioctl(fd, PEERLANE_NVMEDEV_IOC_UNMAP, &unmap), ENOENT);
	unmap.handle = 0;
	expect_errno(ioctl(fd, PEERLANE_NVMEDEV_IOC_UNMAP, &unmap), ENOENT);
	unmap.flags = 1;
	expect_errno(ioctl(fd, PEERLANE_NVMEDEV_IOC_UNMAP, &unmap), EINVAL);
}

static void bad_window(int fd)
{
	struct peerlane_nvmedev_info info = { 0 };
	struct peerlane_nvmedev_map alloc = { .kind = PEERLANE_NVMEDEV_ALLOC, .bytes = 10000 };
	struct peerlane_nvmedev_unmap unmap = { 0 };
	uint64_t bus[3];
	char *memory;
	int both = PROT_READ | PROT_WRITE;

	expect(ioctl(fd, PEERLANE_NVMEDEV_IOC_INFO, &info) == 0);
	/* QEMU's controller: registers and doorbells, then the interrupt table. */
	expect(info.bars[0].bytes == 8192);
	expect_errno(mmap(NULL, 16384, both, MAP_SHARED, fd, 0), EINVAL);
	expect_errno(mmap(NULL, 4096, both, MAP_SHARED, fd, 8192), EINVAL);
	expect_errno(mmap(NULL, 4096, both, MAP_PRIVATE, fd, 0), EINVAL);
	expect_errno(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0), EINVAL);
	expect_errno(mmap(NULL, 4096, both, MAP_SHARED, fd, (off_t)PEERLANE_NVMEDEV_BAR_OFFSET(1)),
		     EINVAL);
	expect_errno(mmap(NULL, 4096, both, MAP_SHARED, fd, (off_t)PEERLANE_NVMEDEV_BAR_OFFSET(9)),
		     EINVAL);
	expect_errno(mmap(NULL, 4096, both, MAP_SHARED, fd, 1L << 40), ENOENT);
	alloc.bus = (uintptr_t)bus;
	alloc.nr_room = 3;
	expect(ioctl(fd, PEERLANE_NVMEDEV_IOC_MAP, &alloc) == 0);
	expect(alloc.nr_pages == 3 && alloc.page_bytes == 4096 && !alloc.first);
	expect_errno(mmap(NULL, 16384, both, MAP_SHARED, fd, (off_t)alloc.map_offset), EINVAL);
	expect_errno(mmap(NULL, 8192, both, MAP_SHARED, fd, (off_t)alloc.map_offset + 8192),
		     EINVAL);
	memory = mmap(NULL, 12288, both, MAP_SHARED, fd, (off_t)alloc.map_offset);
	expect(memory != MAP_FAILED);
	expect(!memory[0] && !memory[12287]);
	/* What is mapped stays, also when the controller does not reach it any more. */
	memset(memory, 7, 12288);
	unmap.handle = alloc.handle;
	expect(ioctl(fd, PEERLANE_NVMEDEV_IOC_UNMAP, &unmap) == 0);
	expect(memory[12287] == 7);
	expect_errno(mmap(NULL, 4096, both, MAP_SHARED, fd, (off_t)alloc.map_offset), ENOENT);
	munmap(memory, 12288);
}

int test_nvme_kmod_rules(void)
{
	struct pci pci = take_drive(DRIVE, "kmod");
	struct memory memory;
	char path[64];
	int fd;

	node_of(pci, path, sizeof(path));
	bad_hello(path);
	fd = greeted(path);
	memory_open(&memory, MIB, 0);
	bad_map(fd, &memory);
	bad_unmap(fd);
	bad_window(fd);
	expect(tool("unbind %s", pci.text) == 1);
	expect(strstr(tool_said, "a program has it open"));
	close(fd);
	memory_close(&memory);
	give_back(pci, DRIVE);
	return 0;
}

/* Without the right to lock any amount of memory. */
static void limited(void *data)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct caps[2];
	struct rlimit limit = { 64 * KIB, 64 * KIB };
	uint64_t bus[1024];
	struct peerlane_nvmedev_map map = { .kind = PEERLANE_NVMEDEV_HOST,
					    .address = (uintptr_t)host_alloc(MIB),
					    .bytes = MIB,
					    .bus = (uintptr_t)bus,
					    .nr_room = 1024 };
	int fd = greeted(data);

	expect(syscall(SYS_capget, &head, caps) == 0);
	caps[0].effective &= ~(1u << CAP_IPC_LOCK);
	caps[0].permitted &= ~(1u << CAP_IPC_LOCK);
	expect(syscall(SYS_capset, &head, caps) == 0);
	expect(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
	expect_errno(try_map(fd, map), ENOMEM);
	map.bytes = 48 * KIB;
	expect(try_map(fd, map) == 0);
	expect_errno(try_map(fd, map), ENOMEM);
	expect(nvme_counter("locked_pages") == 12);
	/* And ends without undoing it. */
}

int test_nvme_kmod_limits(void)
{
	struct pci pci = take_drive(DRIVE, "kmod");
	struct stat st;
	char path[64];

	node_of(pci, path, sizeof(path));
	in_child(limited, path, 0);
	nvme_wait_idle();
	expect(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600);
	give_back(pci, DRIVE);
	return 0;
}
