// SPDX-License-Identifier: MIT
/*
 * Calls with wrong arguments, without privilege, or with somebody else's handle.
 */
#include <sys/prctl.h>

#include "guest.h"

#define HUGE_ADDRESS 0xffffffffffff0000ULL

static void bad_hello(int fd)
{
	struct peerlane_hello hello = { .version = 1, .oldest = 1 };
	struct peerlane_counters counters;

	/* Nothing works before it. */
	expect_errno(ioctl(fd, PEERLANE_IOC_COUNTERS, &counters), EPROTO);
	expect_errno(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0), EPROTO);
	hello.reserved[3] = 1;
	expect_errno(ioctl(fd, PEERLANE_IOC_HELLO, &hello), EINVAL);
	hello = (struct peerlane_hello){ .version = 9, .oldest = 9 };
	expect_errno(ioctl(fd, PEERLANE_IOC_HELLO, &hello), EPROTO);
	expect(hello.version == PEERLANE_UAPI_VERSION && hello.oldest == PEERLANE_UAPI_OLDEST);
	hello = (struct peerlane_hello){ .version = 1, .oldest = 2 };
	expect_errno(ioctl(fd, PEERLANE_IOC_HELLO, &hello), EINVAL);
	hello = (struct peerlane_hello){ .version = 0, .oldest = 0 };
	expect_errno(ioctl(fd, PEERLANE_IOC_HELLO, &hello), EPROTO);
	hello = (struct peerlane_hello){ .version = 1, .oldest = 1, .features = 1ULL << 63 };
	expect_errno(ioctl(fd, PEERLANE_IOC_HELLO, &hello), EOPNOTSUPP);
	expect(hello.features & PEERLANE_FEATURE_PROVIDER);
	expect_errno(ioctl(fd, PEERLANE_IOC_HELLO, NULL), EFAULT);
	hello = (struct peerlane_hello){ .version = 7, .oldest = 1 };
	expect(ioctl(fd, PEERLANE_IOC_HELLO, &hello) == 0);
	expect(hello.nr_providers == 1 && hello.max_pins && hello.max_pin_bytes);
}

static void bad_pin(int fd, uint64_t address)
{
	const struct {
		uint64_t address, length;
		uint32_t flags;
		int error;
	} cases[] = {
		{ address, 0, 0, EINVAL },	     { address, 1, 1U << 2, EINVAL },
		{ address, 1, 1U << 31, EINVAL },    { 0, 4096, 0, EINVAL },
		{ address, ~0ULL, 0, EINVAL },	     { HUGE_ADDRESS, 0x10000, 0, EINVAL },
		{ HUGE_ADDRESS, 0xffff, 0, EINVAL }, { ~0ULL, 1, 0, EINVAL },
		{ 0, ~0ULL - 70000, 0, E2BIG },	     { address, 1ULL << 40, 0, E2BIG },
		{ address - 1, 2, 0, EINVAL },	     { address + MIB - 1, 2, 0, EINVAL },
		{ address, MIB + 1, 0, EINVAL },
	};
	struct peerlane_pin pin;
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		printf("pin case %zu\n", i);
		expect_errno(dev_pin(fd, cases[i].address, cases[i].length, cases[i].flags, &pin),
			     cases[i].error);
		expect(pin.handle == 0);
	}
	pin = (struct peerlane_pin){ .address = address, .length = 1, .reserved = { 0, 1 } };
	expect_errno(ioctl(fd, PEERLANE_IOC_PIN, &pin), EINVAL);
	expect_errno(ioctl(fd, PEERLANE_IOC_PIN, NULL), EFAULT);
	expect_errno(ioctl(fd, PEERLANE_IOC_PIN, (void *)~0UL), EFAULT);
	/* The answer cannot be written: nothing may stay pinned. */
	{
		struct peerlane_pin *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
						 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		*page = (struct peerlane_pin){ .address = address, .length = 1 };
		expect(mprotect(page, 4096, PROT_READ) == 0);
		expect_errno(ioctl(fd, PEERLANE_IOC_PIN, page), EFAULT);
		expect(dev_counters(fd).pins == 0);
	}
}

static void bad_others(int fd, uint64_t address)
{
	struct peerlane_list list = { .reserved = { 1 } };
	struct peerlane_info info = { .handle = 12345 };
	struct peerlane_route route = { .handle = 12345 };
	struct peerlane_unpin unpin = { .handle = 0 };
	struct peerlane_pin pin;
	uint32_t handles[4];

	expect_errno(ioctl(fd, PEERLANE_IOC_LIST, &list), EINVAL);
	expect_errno(ioctl(fd, PEERLANE_IOC_INFO, &info), ENOENT);
	expect_errno(ioctl(fd, PEERLANE_IOC_ROUTE, &route), ENOENT);
	expect_errno(ioctl(fd, PEERLANE_IOC_UNPIN, &unpin), ENOENT);
	unpin.handle = ~0U;
	expect_errno(ioctl(fd, PEERLANE_IOC_UNPIN, &unpin), ENOENT);
	expect_errno(ioctl(fd, _IO(PEERLANE_IOC_MAGIC, 99), 0), ENOTTY);
	expect_errno(ioctl(fd, _IO('x', 2), 0), ENOTTY);
	/* Right number, wrong size. */
	expect_errno(ioctl(fd, _IOWR(PEERLANE_IOC_MAGIC, 2, struct peerlane_list), &list), ENOTTY);
	expect(dev_pin(fd, address, 100, 0, &pin) == 0);
	unpin = (struct peerlane_unpin){ .handle = pin.handle, .flags = 1 };
	expect_errno(ioctl(fd, PEERLANE_IOC_UNPIN, &unpin), EINVAL);
	route = (struct peerlane_route){ .handle = pin.handle, .fd = -1 };
	expect_errno(ioctl(fd, PEERLANE_IOC_ROUTE, &route), EBADF);
	route.fd = fd;
	expect(ioctl(fd, PEERLANE_IOC_ROUTE, &route) == 0);
	expect(route.verdict == PEERLANE_ROUTE_NO && route.reason == PEERLANE_REASON_NO_DEVICE);
	info = (struct peerlane_info){ .handle = pin.handle, .physical = 8, .nr_room = 1 };
	expect_errno(ioctl(fd, PEERLANE_IOC_INFO, &info), EFAULT);
	list = (struct peerlane_list){ .handles = (uintptr_t)handles, .nr_room = ~0U };
	expect(ioctl(fd, PEERLANE_IOC_LIST, &list) == 0);
	expect(list.nr_handles == 1 && handles[0] == pin.handle);
	list = (struct peerlane_list){ .handles = 8, .nr_room = 1 };
	expect_errno(ioctl(fd, PEERLANE_IOC_LIST, &list), EFAULT);
	expect(dev_unpin(fd, pin.handle) == 0);
	expect_errno(dev_unpin(fd, pin.handle), ENOENT);
}

/* As many handles as are allowed and no more. */
static void too_many(int fd, uint64_t address)
{
	struct peerlane_hello hello = { .version = 1, .oldest = 1 };
	struct peerlane_list list = { 0 };
	struct peerlane_pin pin;
	uint32_t i;

	expect(ioctl(fd, PEERLANE_IOC_HELLO, &hello) == 0);
	for (i = 0; i < hello.max_pins; i++)
		expect(dev_pin(fd, address, 1, 0, &pin) == 0);
	expect_errno(dev_pin(fd, address, 1, 0, &pin), ENOSPC);
	expect(ioctl(fd, PEERLANE_IOC_LIST, &list) == 0);
	expect(list.nr_handles == hello.max_pins);
	expect(dev_counters(fd).pins == hello.max_pins);
}

int test_bad_arguments(void)
{
	int fd = open("/dev/peerlane", O_RDWR | O_CLOEXEC);
	int gpu = gpu_open();
	uint64_t address = gpu_alloc(gpu, MIB);

	expect(fd >= 0);
	bad_hello(fd);
	bad_pin(fd, address);
	bad_others(fd, address);
	too_many(fd, address);
	return 0;
}

static void become_nobody(void)
{
	expect(setgid(65534) == 0);
	expect(setuid(65534) == 0);
}

static void without_privilege(void *data)
{
	struct peerlane_info info = { 0 };
	struct peerlane_pin pin;
	uint64_t physical[16];
	int fd, gpu;
	uint64_t address;
	char *map;

	(void)data;
	become_nobody();
	/* Files made by the administrator can be opened by whoever may; here everybody may. */
	fd = dev_open();
	gpu = gpu_open();
	address = gpu_alloc(gpu, MIB);
	expect(dev_pin(fd, address, MIB, 0, &pin) == 0);
	map = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)pin.map_offset);
	expect(map != MAP_FAILED);
	memset(map, 3, MIB);
	info.handle = pin.handle;
	expect(ioctl(fd, PEERLANE_IOC_INFO, &info) == 0);
	expect(info.nr_pages == 16 && info.nr_mappings == 1 && info.map_bytes == MIB);
	memset(physical, 0, sizeof(physical));
	info = (struct peerlane_info){ .handle = pin.handle,
				       .physical = (uintptr_t)physical,
				       .nr_room = 16 };
	expect_errno(ioctl(fd, PEERLANE_IOC_INFO, &info), EPERM);
	expect(physical[0] == 0);
}

int test_privilege(void)
{
	in_child(without_privilege, NULL, 0);
	return 0;
}

/* What the second process is given. */
struct theft {
	struct memory memory;
};

static void steal(void *data)
{
	struct theft *theft = data;
	struct peerlane_info info = { .handle = theft->memory.pin.handle };
	struct peerlane_route route = { .handle = theft->memory.pin.handle };
	struct peerlane_list list = { 0 };
	struct peerlane_pin pin;
	int fd = dev_open();

	expect_errno(ioctl(fd, PEERLANE_IOC_INFO, &info), ENOENT);
	expect_errno(ioctl(fd, PEERLANE_IOC_ROUTE, &route), ENOENT);
	expect_errno(dev_unpin(fd, theft->memory.pin.handle), ENOENT);
	expect_errno(
		mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, (off_t)theft->memory.pin.map_offset),
		ENOENT);
	expect(ioctl(fd, PEERLANE_IOC_LIST, &list) == 0 && list.nr_handles == 0);
	/* GPU memory of another process is not known under its address. */
	expect_errno(dev_pin(fd, theft->memory.address, 4096, 0, &pin), EINVAL);
	/* Right descriptor, but beyond the end. */
	expect_errno(mmap(NULL, 4096, PROT_READ, MAP_SHARED, theft->memory.dev,
			  (off_t)(theft->memory.pin.map_offset + theft->memory.pin.map_bytes)),
		     EINVAL);
}

int test_other_owner(void)
{
	struct theft theft;

	memory_open(&theft.memory, MIB, 0);
	in_child(steal, &theft, 0);
	memory_close(&theft.memory);
	return 0;
}
