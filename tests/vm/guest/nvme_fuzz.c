// SPDX-License-Identifier: MIT
/*
 * Calls without sense on /dev/peerlane-nvmeN and on descriptors that it has granted, in several threads,
 * for a bounded time, while GPU memory and clients come and go. Registers are read but never written: without an IOMMU the controller would do
 * anything with this machine's memory.
 */
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <uapi/peerlane_nvme.h>

#include "nvme_lab.h"

#define NR_THREADS 3
#define NR_SLOTS 16
#define NR_NODES 4

/* The owner's, and those of clients, which are replaced all the time. */
static int nodes[NR_NODES], dev, gpu;
static uint32_t clients[NR_NODES];
static char *host;
static uint64_t addresses[NR_SLOTS];
static uint32_t pins[NR_SLOTS], handles[64];
static double end;
static bool over;
static unsigned long calls, mapped, granted;
static __thread sigjmp_buf resume;

static void on_fault(int number)
{
	siglongjmp(resume, number);
}

static uint64_t rnd(unsigned int *seed)
{
	return (uint64_t)rand_r(seed) << 32 ^ (uint64_t)rand_r(seed) << 16 ^ (uint64_t)rand_r(seed);
}

static uint64_t odd_number(unsigned int *seed)
{
	static const uint64_t edges[] = { 0,	      1,	  4095,	      4096,	  65536,
					  1ULL << 26, 1ULL << 31, 1ULL << 36, 1ULL << 40, ~0ULL };

	if (rnd(seed) % 3 == 0)
		return rnd(seed);
	return edges[rnd(seed) % (sizeof(edges) / sizeof(*edges))] + rnd(seed) % 9 - 4;
}

static int some_node(unsigned int *seed)
{
	return __atomic_load_n(&nodes[rnd(seed) % NR_NODES], __ATOMIC_RELAXED);
}

/* A client is revoked, or closed, or both in either order, and there is another one. */
static void fuzz_grant(unsigned int *seed)
{
	struct peerlane_nvmedev_hello hello = { .version = PEERLANE_NVMEDEV_UAPI_VERSION };
	struct peerlane_nvmedev_grant grant = { .bar0_bytes = 0x1000 + rnd(seed) % 0x1100 };
	size_t slot = 1 + rnd(seed) % (NR_NODES - 1);
	struct peerlane_nvmedev_revoke revoke = { .id = clients[slot] };
	int old;

	if (rnd(seed) % 2)
		ioctl(nodes[0], PEERLANE_NVMEDEV_IOC_REVOKE, &revoke);
	if (ioctl(nodes[0], PEERLANE_NVMEDEV_IOC_GRANT, &grant))
		return;
	clients[slot] = grant.id;
	ioctl(grant.fd, PEERLANE_NVMEDEV_IOC_HELLO, &hello);
	old = __atomic_exchange_n(&nodes[slot], grant.fd, __ATOMIC_RELAXED);
	if (old >= 0)
		close(old);
	if (rnd(seed) % 2)
		ioctl(nodes[0], PEERLANE_NVMEDEV_IOC_REVOKE, &revoke);
	__atomic_fetch_add(&granted, 1, __ATOMIC_RELAXED);
}

/* What an owner does: end clients whose GPU memory goes away, which waits for that, ten seconds if nobody does. */
static void *keep_order(void *data)
{
	struct peerlane_nvmedev_leaving leaving = { 0 };
	struct peerlane_nvmedev_revoke revoke = { 0 };
	struct pollfd fd = { .fd = nodes[0], .events = POLLPRI };

	(void)data;
	while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE))
		if (poll(&fd, 1, 100) == 1 &&
		    ioctl(nodes[0], PEERLANE_NVMEDEV_IOC_LEAVING, &leaving) == 0 && leaving.id) {
			revoke.id = leaving.id;
			ioctl(nodes[0], PEERLANE_NVMEDEV_IOC_REVOKE, &revoke);
		}
	return NULL;
}

/* A mapping that is nearly right, or is. */
static void fuzz_map(unsigned int *seed)
{
	static __thread uint64_t bus[600];
	struct peerlane_nvmedev_map map = { .kind = (uint32_t)(rnd(seed) % 3 + 1),
					    .bytes = rnd(seed) % MIB + 1,
					    .bus = (uintptr_t)bus,
					    .nr_room = 600 };
	uint64_t *words = (uint64_t *)&map;

	if (map.kind == PEERLANE_NVMEDEV_HOST)
		map.address = (uintptr_t)host + rnd(seed) % MIB;
	if (map.kind == PEERLANE_NVMEDEV_GPU) {
		map.fd = dev;
		map.pin = pins[rnd(seed) % NR_SLOTS];
		map.bytes = rnd(seed) % 200000;
		map.pin_offset = rnd(seed) % 100000;
	}
	if (rnd(seed) % 4 == 0)
		words[rnd(seed) % (sizeof(map) / 8)] = odd_number(seed);
	if (ioctl(some_node(seed), PEERLANE_NVMEDEV_IOC_MAP, &map) == 0) {
		handles[rnd(seed) % 64] = map.handle;
		__atomic_fetch_add(&mapped, 1, __ATOMIC_RELAXED);
	}
}

static void fuzz_unmap(unsigned int *seed)
{
	struct peerlane_nvmedev_unmap unmap = { .handle = handles[rnd(seed) % 64] };

	ioctl(some_node(seed), PEERLANE_NVMEDEV_IOC_UNMAP, &unmap);
}

static void fuzz_window(unsigned int *seed)
{
	size_t bytes = (size_t)(rnd(seed) % 4 + 1) * 4096, i;
	uint64_t at = rnd(seed) % 2 ? (uint64_t)handles[rnd(seed) % 64] << 40 : 0;
	volatile char *map;

	at += rnd(seed) % 4 * 4096;
	if (rnd(seed) % 8 == 0)
		at = odd_number(seed) & ~4095ULL;
	map = mmap(NULL, bytes, rnd(seed) % 2 ? PROT_READ : PROT_READ | PROT_WRITE, MAP_SHARED,
		   some_node(seed), (off_t)at);
	if (map == MAP_FAILED)
		return;
	for (i = 0; i < bytes && sigsetjmp(resume, 1) == 0; i += 4096)
		(void)*(volatile uint32_t *)(map + i);
	if (rnd(seed) % 2)
		madvise((void *)map, bytes, (int)(rnd(seed) % 26));
	munmap((void *)map, bytes);
}

/* GPU memory is freed, which revokes its pin and whatever is mapped of it, and made anew. */
static void fuzz_gpu(unsigned int *seed)
{
	struct simgpu_alloc alloc = { .bytes = 200000 };
	size_t slot = rnd(seed) % NR_SLOTS;
	struct peerlane_pin pin;
	__u64 address = __atomic_exchange_n(&addresses[slot], 0, __ATOMIC_ACQ_REL);

	if (address) {
		if (rnd(seed) % 2)
			dev_unpin(dev, pins[slot]);
		ioctl(gpu, SIMGPU_IOC_FREE, &address);
	}
	if (ioctl(gpu, SIMGPU_IOC_ALLOC, &alloc))
		return;
	if (dev_pin(dev, alloc.address, alloc.bytes, 0, &pin) == 0)
		pins[slot] = pin.handle;
	__atomic_store_n(&addresses[slot], alloc.address, __ATOMIC_RELEASE);
}

static void fuzz_call(unsigned int *seed)
{
	static const unsigned long known[] = {
		PEERLANE_NVMEDEV_IOC_HELLO,  PEERLANE_NVMEDEV_IOC_INFO,
		PEERLANE_NVMEDEV_IOC_MAP,    PEERLANE_NVMEDEV_IOC_UNMAP,
		PEERLANE_NVMEDEV_IOC_GRANT,  PEERLANE_NVMEDEV_IOC_REVOKE,
		PEERLANE_NVMEDEV_IOC_LEAVING
	};
	uint64_t words[32] = { 0 };
	unsigned long number = known[rnd(seed) % (sizeof(known) / sizeof(*known))];
	size_t i;

	for (i = 0; i < 6; i++)
		if (rnd(seed) % 3)
			words[rnd(seed) % 20] = odd_number(seed);
	if (rnd(seed) % 16 == 0)
		number = rnd(seed);
	/* Seldom: it takes a tenth of a second. */
	if (rnd(seed) % 64 == 0)
		number = PEERLANE_NVMEDEV_IOC_RESET;
	ioctl(some_node(seed), number,
	      rnd(seed) % 16 ? (uint64_t)(uintptr_t)words : odd_number(seed));
}

static void *fuzz(void *data)
{
	unsigned int seed = *(unsigned int *)data;

	while (seconds() < end) {
		switch (rnd(&seed) % 16) {
		case 0 ... 4:
			fuzz_map(&seed);
			break;
		case 5 ... 8:
			fuzz_unmap(&seed);
			break;
		case 9 ... 11:
			fuzz_window(&seed);
			break;
		case 12:
			fuzz_gpu(&seed);
			break;
		case 13:
			fuzz_grant(&seed);
			break;
		default:
			fuzz_call(&seed);
		}
		__atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void fuzz_all(void *data)
{
	struct peerlane_nvmedev_hello hello = { .version = PEERLANE_NVMEDEV_UAPI_VERSION };
	struct sigaction action = { .sa_handler = on_fault, .sa_flags = SA_NODEFER };
	pthread_t threads[NR_THREADS], owner;
	unsigned int seeds[NR_THREADS], i;

	sigaction(SIGBUS, &action, NULL);
	sigaction(SIGSEGV, &action, NULL);
	nodes[0] = open(data, O_RDWR | O_CLOEXEC);
	expect(nodes[0] >= 0 && ioctl(nodes[0], PEERLANE_NVMEDEV_IOC_HELLO, &hello) == 0);
	for (i = 1; i < NR_NODES; i++)
		nodes[i] = -1;
	dev = dev_open();
	gpu = gpu_open();
	host = host_alloc(2 * MIB);
	expect(pthread_create(&owner, NULL, keep_order, NULL) == 0);
	for (i = 0; i < NR_THREADS; i++) {
		seeds[i] = i * 77 + (unsigned int)(seconds() * 1000);
		printf("seed %u\n", seeds[i]);
		expect(pthread_create(&threads[i], NULL, fuzz, &seeds[i]) == 0);
	}
	for (i = 0; i < NR_THREADS; i++)
		pthread_join(threads[i], NULL);
	__atomic_store_n(&over, true, __ATOMIC_RELEASE);
	pthread_join(owner, NULL);
	printf("%lu calls, %lu mappings, %lu clients, %lld stops\n", calls, mapped, granted,
	       nvme_counter("nr_stops"));
	expect(calls > 100 && mapped > 10 && granted > 2);
}

int test_nvme_kmod_fuzz(void)
{
	struct pci pci = take_drive("slow0", "kmod");
	const char *time = getenv("FUZZ_SECONDS");
	char path[64], *name = strstr(tool_said, "(/dev/");

	expect(name);
	snprintf(path, sizeof(path), "%.*s", (int)strcspn(name + 1, ")"), name + 1);
	end = seconds() + (time ? strtod(time, NULL) : 8);
	in_child(fuzz_all, path, 0);
	nvme_wait_idle();
	give_back(pci, "slow0");
	return 0;
}
