/* SPDX-License-Identifier: MIT */
/*
 * /dev/peerlane, played over the fake libcuda: what the module would map is the very memory of the
 * fake GPU, so the kernel's O_DIRECT I/O into it is a transfer between drive and GPU. It stands in
 * for open(), ioctl(), mmap() and munmap() of the program. One program includes it once.
 */
#ifndef TESTS_FAKE_PLAYED_MODULE_H
#define TESTS_FAKE_PLAYED_MODULE_H

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <uapi/peerlane.h>

#define PLAYED_PINS 128u

/* One device for each open; its pins are those of all. */
static struct {
	int fd; /* of the last open, from 1 on */
	unsigned int nr_pinned, nr_unpinned;
	bool spoilt;		/* new mappings are useless: I/O into them fails with EFAULT */
	bool no_map;		/* there are no new mappings */
	uint64_t max_pin_bytes; /* 0: enough */
	struct {
		char *map;
		size_t bytes;
		bool spoilt;
	} pins[PLAYED_PINS];
} played;

/* The memory behind a GPU address. */
static inline char *played_memory(uint64_t address)
{
	char *(*host)(uint64_t, bool, size_t *) = NULL;
	void *library = dlopen(getenv("PEERLANE_LIBCUDA"), RTLD_NOW);
	pthread_mutex_t *lock = dlsym(library, "fake_lock");
	void *symbol = dlsym(library, "fake_range_host");
	size_t bytes = 1;
	char *at;

	memcpy(&host, &symbol, sizeof(host));
	pthread_mutex_lock(lock);
	at = host(address, true, &bytes);
	pthread_mutex_unlock(lock);
	dlclose(library);
	return at;
}

int open(const char *path, int flags, ...)
{
	va_list ap;
	mode_t mode;

	va_start(ap, flags);
	mode = va_arg(ap, mode_t);
	va_end(ap);
	if (strcmp(path, "/dev/peerlane") != 0)
		return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
	played.fd = memfd_create("peerlane", MFD_CLOEXEC);
	return played.fd;
}

static int played_pin(struct peerlane_pin *pin)
{
	uint32_t handle = played.nr_pinned + 1;
	char *memory = played_memory(pin->address);

	if (!memory || handle == PLAYED_PINS) {
		errno = memory ? ENOSPC : EINVAL;
		return -1;
	}
	played.nr_pinned++;
	pin->handle = handle;
	pin->map_offset = (uint64_t)handle << 32;
	pin->skip_bytes = pin->address % 4096;
	pin->map_bytes = (pin->skip_bytes + pin->length + 4095) & ~4095ul;
	pin->gpu_pci = 0x100;
	played.pins[handle].map = memory - pin->skip_bytes;
	played.pins[handle].bytes = pin->map_bytes;
	played.pins[handle].spoilt = played.spoilt;
	return 0;
}

static int played_call(unsigned long request, void *arg)
{
	struct peerlane_hello *hello = arg;
	struct peerlane_route *route = arg;

	switch (request) {
	case PEERLANE_IOC_HELLO:
		hello->features = PEERLANE_FEATURE_PROVIDER | PEERLANE_FEATURE_GENERIC;
		hello->max_pin_bytes = played.max_pin_bytes ? played.max_pin_bytes : 1ull << 30;
		return 0;
	case PEERLANE_IOC_PIN:
		return played_pin(arg);
	case PEERLANE_IOC_UNPIN:
		played.nr_unpinned++;
		return 0;
	case PEERLANE_IOC_ROUTE:
		route->verdict = PEERLANE_ROUTE_TEST;
		route->reason = PEERLANE_REASON_SWITCH;
		return 0;
	default:
		errno = ENOTTY;
		return -1;
	}
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (_IOC_TYPE(request) == PEERLANE_IOC_MAGIC)
		return played_call(request, arg);
	return (int)syscall(SYS_ioctl, fd, request, arg);
}

void *mmap(void *addr, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	uint64_t handle = (uint64_t)offset >> 32;

	if (fd < 0 || fd != played.fd)
		return (void *)syscall(SYS_mmap, addr, bytes, prot, flags, fd, offset);
	if (played.no_map) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	if (!played.pins[handle].spoilt)
		return played.pins[handle].map;
	played.pins[handle].map = (char *)syscall(SYS_mmap, NULL, bytes, PROT_NONE,
						  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return played.pins[handle].map;
}

int munmap(void *addr, size_t bytes)
{
	for (unsigned int i = 1; i <= played.nr_pinned; i++)
		if (played.pins[i].map == addr && played.pins[i].bytes == bytes &&
		    !played.pins[i].spoilt)
			return 0;
	return (int)syscall(SYS_munmap, addr, bytes);
}

#endif
