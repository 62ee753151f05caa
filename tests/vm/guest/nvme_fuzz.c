// SPDX-License-Identifier: MIT
/*
 * Calls without sense on /dev/peerlane-nvmeN, in several threads, for a bounded time, while GPU memory
 * comes and goes. Registers are read but never written: without an IOMMU the controller would do
 * anything with this machine's memory.
 */
#include <pthread.h>
#include <setjmp.h>
#include <uapi/peerlane_nvme.h>

#include "nvme_lab.h"

#define NR_THREADS 3
#define NR_SLOTS 16

static int node, dev, gpu;
static char *host;
static uint64_t addresses[NR_SLOTS];
static uint32_t pins[NR_SLOTS], handles[64];
static double end;
static unsigned long calls, mapped;
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
	if (ioctl(node, PEERLANE_NVMEDEV_IOC_MAP, &map) == 0) {
		handles[rnd(seed) % 64] = map.handle;
		__atomic_fetch_add(&mapped, 1, __ATOMIC_RELAXED);
	}
}

static void fuzz_unmap(unsigned int *seed)
{
	struct peerlane_nvmedev_unmap unmap = { .handle = handles[rnd(seed) % 64] };

	ioctl(node, PEERLANE_NVMEDEV_IOC_UNMAP, &unmap);
}

static void fuzz_window(unsigned int *seed)
{
	size_t bytes = (size_t)(rnd(seed) % 4 + 1) * 4096, i;
	uint64_t at = rnd(seed) % 2 ? (uint64_t)handles[rnd(seed) % 64] << 40 : 0;
	volatile char *map;

	at += rnd(seed) % 4 * 4096;
	if (rnd(seed) % 8 == 0)
		at = odd_number(seed) & ~4095ULL;
	map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, node, (off_t)at);
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
	static const unsigned long known[] = { PEERLANE_NVMEDEV_IOC_HELLO,
					       PEERLANE_NVMEDEV_IOC_INFO, PEERLANE_NVMEDEV_IOC_MAP,
					       PEERLANE_NVMEDEV_IOC_UNMAP };
	uint64_t words[32] = { 0 };
	unsigned long number = known[rnd(seed) % 4];
	size_t i;

	for (i = 0; i < 6; i++)
		if (rnd(seed) % 3)
			words[rnd(seed) % 20] = odd_number(seed);
	if (rnd(seed) % 16 == 0)
		number = rnd(seed);
	/* Seldom: it takes a tenth of a second. */
	if (rnd(seed) % 64 == 0)
		number = PEERLANE_NVMEDEV_IOC_RESET;
	ioctl(node, number, rnd(seed) % 16 ? (uint64_t)(uintptr_t)words : odd_number(seed));
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
	pthread_t threads[NR_THREADS];
	unsigned int seeds[NR_THREADS], i;

	sigaction(SIGBUS, &action, NULL);
	sigaction(SIGSEGV, &action, NULL);
	node = open(data, O_RDWR | O_CLOEXEC);
	expect(node >= 0 && ioctl(node, PEERLANE_NVMEDEV_IOC_HELLO, &hello) == 0);
	dev = dev_open();
	gpu = gpu_open();
	host = host_alloc(2 * MIB);
	for (i = 0; i < NR_THREADS; i++) {
		seeds[i] = i * 77 + (unsigned int)(seconds() * 1000);
		printf("seed %u\n", seeds[i]);
		expect(pthread_create(&threads[i], NULL, fuzz, &seeds[i]) == 0);
	}
	for (i = 0; i < NR_THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("%lu calls, %lu mappings, %lld stops\n", calls, mapped, nvme_counter("nr_stops"));
	expect(calls > 100 && mapped > 10);
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
