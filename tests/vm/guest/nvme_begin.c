// SPDX-License-Identifier: MIT
/*
 * GPU memory that goes away while controllers begin to use it: each use is refused, or ended.
 */
#include <pthread.h>
#include <uapi/peerlane_nvme.h>

#include "nvme_lab.h"

#define DRIVE "slow0"
#define NR_THREADS 3

static struct memory memory;
static int node;

/* Map and unmap until that is not possible any more. */
static void *begin_and_end(void *data)
{
	struct peerlane_nvmedev_unmap unmap = { 0 };
	uint64_t bus[16];
	int *err = data;

	for (;;) {
		struct peerlane_nvmedev_map map = { .kind = PEERLANE_NVMEDEV_GPU,
						    .bytes = MIB,
						    .fd = memory.dev,
						    .pin = memory.pin.handle,
						    .bus = (uintptr_t)bus,
						    .nr_room = 16 };

		if (ioctl(node, PEERLANE_NVMEDEV_IOC_MAP, &map)) {
			*err = errno;
			return NULL;
		}
		unmap.handle = map.handle;
		expect(ioctl(node, PEERLANE_NVMEDEV_IOC_UNMAP, &unmap) == 0);
	}
}

static void once(void)
{
	pthread_t threads[NR_THREADS];
	int errs[NR_THREADS] = { 0 };
	unsigned int i;

	memory_open(&memory, MIB, 0);
	for (i = 0; i < NR_THREADS; i++)
		expect(pthread_create(&threads[i], NULL, begin_and_end, &errs[i]) == 0);
	sleep_ms(20);
	gpu_free(memory.gpu, memory.address);
	for (i = 0; i < NR_THREADS; i++) {
		expect(pthread_join(threads[i], NULL) == 0);
		if (errs[i] != ENODEV)
			fail("errno %d", errs[i]);
	}
	wait_given_back(&memory);
	expect(dev_counters(memory.dev).uses == 0);
	expect(munmap(memory.map, memory.bytes) == 0);
	free(memory.physical);
	close(memory.dev);
	close(memory.gpu);
}

int test_nvme_kmod_begin(void)
{
	struct pci pci = take_drive(DRIVE, "kmod");
	char path[64];
	unsigned int i;

	node_of(pci, path, sizeof(path));
	node = greeted(path);
	for (i = 0; i < rounds(20); i++)
		once();
	close(node);
	nvme_wait_idle();
	give_back(pci, DRIVE);
	return 0;
}
