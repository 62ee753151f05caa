// SPDX-License-Identifier: MIT
/*
 * GPU memory of clients that goes away, and owners who revoke them late, or never: how often that is
 * waited for.
 */
#include <poll.h>
#include <pthread.h>
#include <uapi/peerlane_nvme.h>

#include "nvme_lab.h"

#define DRIVE "slow0"
#define NR_CLIENTS 2
#define LEAVE_MS "/sys/module/peerlane/parameters/leave_ms"

struct shared {
	int owner;
	struct peerlane_nvmedev_grant clients[NR_CLIENTS];
	struct memory memory;
};

/* Memory of the GPU, mapped @nr times by each client. */
static void share(struct shared *s, unsigned int nr)
{
	uint64_t bus[16];

	memory_open(&s->memory, MIB, 0);
	for (unsigned int i = 0; i < NR_CLIENTS; i++) {
		struct peerlane_nvmedev_hello hello = { .version = PEERLANE_NVMEDEV_UAPI_VERSION };

		s->clients[i] = (struct peerlane_nvmedev_grant){ .bar0_bytes = 0x2000 };
		expect(ioctl(s->owner, PEERLANE_NVMEDEV_IOC_GRANT, &s->clients[i]) == 0);
		expect(ioctl(s->clients[i].fd, PEERLANE_NVMEDEV_IOC_HELLO, &hello) == 0);
		for (unsigned int j = 0; j < nr; j++) {
			struct peerlane_nvmedev_map map = { .kind = PEERLANE_NVMEDEV_GPU,
							    .bytes = MIB,
							    .fd = s->memory.dev,
							    .pin = s->memory.pin.handle,
							    .bus = (uintptr_t)bus,
							    .nr_room = 16 };

			expect(ioctl(s->clients[i].fd, PEERLANE_NVMEDEV_IOC_MAP, &map) == 0);
		}
	}
	expect(dev_counters(s->memory.dev).uses == NR_CLIENTS * nr);
}

/* Free the memory; returns when no controller can reach it. */
static void take_away(struct shared *s)
{
	double end = seconds() + 150;

	gpu_free(s->memory.gpu, s->memory.address);
	while (dev_counters(s->memory.dev).uses) {
		if (seconds() > end)
			fail("%llu uses are left",
			     (unsigned long long)dev_counters(s->memory.dev).uses);
		sleep_ms(10);
	}
}

static void part(struct shared *s)
{
	struct peerlane_nvmedev_revoke revoke = { 0 };

	for (unsigned int i = 0; i < NR_CLIENTS; i++) {
		revoke.id = s->clients[i].id;
		ioctl(s->owner, PEERLANE_NVMEDEV_IOC_REVOKE, &revoke);
		close(s->clients[i].fd);
	}
	expect(munmap(s->memory.map, s->memory.bytes) == 0);
	free(s->memory.physical);
	close(s->memory.dev);
	close(s->memory.gpu);
}

/* Once, with any number of mappings: @waits times it is waited, and the controller is stopped so often. */
static void once(struct shared *s, unsigned int nr, long long waits, long long stops)
{
	waits += nvme_counter("nr_waits");
	stops += nvme_counter("nr_stops");
	share(s, nr);
	take_away(s);
	printf("%u mappings: waited %lld, stopped %lld\n", nr, nvme_counter("nr_waits"),
	       nvme_counter("nr_stops"));
	expect(nvme_counter("nr_waits") == waits && nvme_counter("nr_stops") == stops);
	part(s);
}

/* An owner who does as it is asked, until all clients are gone. */
static void *revoke_all(void *data)
{
	struct shared *s = data;
	struct pollfd fd = { .fd = s->owner, .events = POLLPRI };
	struct peerlane_nvmedev_leaving leaving = { 0 };
	struct peerlane_nvmedev_revoke revoke = { 0 };
	int nr = 0;

	while (nr < NR_CLIENTS) {
		expect(poll(&fd, 1, -1) == 1);
		expect(ioctl(s->owner, PEERLANE_NVMEDEV_IOC_LEAVING, &leaving) == 0);
		if (!leaving.id)
			continue;
		revoke.id = leaving.id;
		expect(ioctl(s->owner, PEERLANE_NVMEDEV_IOC_REVOKE, &revoke) == 0);
		nr++;
	}
	return NULL;
}

/* An owner who goes when it is asked. */
static void *go(void *data)
{
	struct shared *s = data;
	struct pollfd fd = { .fd = s->owner, .events = POLLPRI };

	expect(poll(&fd, 1, -1) == 1);
	close(s->owner);
	return NULL;
}

/* With an owner who does something; nobody waits as long as it may, which would take the test's time. */
static void with_owner(struct shared *s, void *(*what)(void *), long long most_waits)
{
	long long waits = nvme_counter("nr_waits"), stops = nvme_counter("nr_stops");
	pthread_t thread;

	share(s, 3);
	expect(pthread_create(&thread, NULL, what, s) == 0);
	take_away(s);
	pthread_join(thread, NULL);
	waits = nvme_counter("nr_waits") - waits;
	printf("waited %lld\n", waits);
	expect(waits <= most_waits && nvme_counter("nr_stops") == stops);
	part(s);
}

int test_nvme_serve_silent(void)
{
	struct pci pci = take_drive(DRIVE, "kmod");
	struct shared s = { 0 };
	char path[64];

	node_of(pci, path, sizeof(path));
	s.owner = greeted(path);
	expect(echo(LEAVE_MS, "300") == 0);
	/* A silent owner: one wait for all, then the controller stops. */
	once(&s, 3, 1, 1);
	/* It has stopped: nothing to wait for, nothing to stop. */
	once(&s, 3, 0, 0);
	expect(ioctl(s.owner, PEERLANE_NVMEDEV_IOC_RESET) == 0);
	once(&s, 64, 1, 1);
	expect(ioctl(s.owner, PEERLANE_NVMEDEV_IOC_RESET) == 0);
	expect(echo(LEAVE_MS, "600000") == 0);
	with_owner(&s, revoke_all, NR_CLIENTS);
	with_owner(&s, go, 1);
	expect(echo(LEAVE_MS, "10000") == 0);
	nvme_wait_idle();
	give_back(pci, DRIVE);
	return 0;
}
