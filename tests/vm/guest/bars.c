// SPDX-License-Identifier: MIT
/*
 * Page structures for parts of a BAR, of which the GPU's driver maps some in ways that conflict; and
 * what is pinned while that driver comes and goes.
 */
#include <pthread.h>
#include <sys/klog.h>
#include <sys/stat.h>

#include "guest.h"

#define SECTION "/sys/module/peerlane/parameters/section_mib"
#define UNBIND "/sys/bus/pci/drivers/simgpu/unbind"
#define BIND "/sys/bus/pci/drivers/simgpu/bind"

static void gpu_name(char *name, size_t room)
{
	int gpu = gpu_open();
	uint64_t pci = gpu_state(gpu).pci;

	close(gpu);
	snprintf(name, room, "%04x:%02x:%02x.%x", (unsigned int)(pci >> 16),
		 (unsigned int)(pci >> 8) & 0xff, (unsigned int)(pci >> 3) & 0x1f,
		 (unsigned int)pci & 7);
}

static void gpu_bind(const char *name)
{
	int i;

	expect(echo(BIND, name) == 0);
	for (i = 0; i < 100 && access("/dev/simgpu", F_OK); i++)
		sleep_ms(20);
	expect(chmod("/dev/simgpu", 0666) == 0);
}

/* The driver goes and comes back: there are no pages. */
static void start_anew(int dev)
{
	char name[32];

	gpu_name(name, sizeof(name));
	expect(echo(UNBIND, name) == 0);
	expect(dev_counters(dev).page_bytes == 0);
	gpu_bind(name);
}

/* Pin memory in a part of the BAR; so many MiB get pages by that. */
static void open_in(struct memory *memory, uint32_t place, size_t bytes, size_t want_mib)
{
	int gpu = gpu_open(), dev = dev_open();
	uint64_t before = dev_counters(dev).page_bytes, more;

	gpu_fault(gpu, SIMGPU_FAULT_PLACE, place, 1);
	memory_open(memory, bytes, 0);
	more = dev_counters(dev).page_bytes - before;
	printf("place %u: pages for %llu bytes more\n", place, (unsigned long long)more);
	expect(more == want_mib * MIB);
	close(gpu);
	close(dev);
}

/* Read a part of the drive into the memory, each GPU page by itself: they may lie far apart. */
static void read_pages(struct memory *memory, size_t offset)
{
	int drive = drive_open("raw0", O_RDONLY | O_DIRECT);
	size_t at;

	for (at = 0; at < memory->bytes; at += GPU_PAGE)
		expect(pread(drive, memory->map + at, GPU_PAGE, (off_t)(offset + at)) ==
		       (ssize_t)GPU_PAGE);
	say_bar(memory, 0, memory->bytes, "raw0", offset);
	close(drive);
}

static bool log_says(const char *text)
{
	static char log[1 << 20];
	int n = klogctl(3, log, sizeof(log) - 1);

	expect(n >= 0);
	log[n] = '\0';
	return strstr(log, text);
}

/* No pages can be had: the log says why, and what to do. */
static void pin_refused(int dev)
{
	int gpu = gpu_open();
	uint64_t before = dev_counters(dev).page_bytes, address;
	struct peerlane_pin pin;

	gpu_fault(gpu, SIMGPU_FAULT_PLACE, SIMGPU_PLACE_AMONG, 1);
	address = gpu_alloc(gpu, MIB);
	expect_errno(dev_pin(dev, address, MIB, 0, &pin), EBUSY);
	expect_errno(dev_pin(dev, address, MIB, PEERLANE_PIN_PERSISTENT, &pin), EBUSY);
	expect(dev_counters(dev).page_bytes == before && dev_counters(dev).pins == 0);
	expect(gpu_state(gpu).nr_persistent == 0 && gpu_state(gpu).nr_pins == 0);
	expect(log_says("RmForceDisableIomapWC=1"));
	close(gpu);
}

/* The driver maps parts of the BAR; next to them, between them and among them. */
int test_bar_places(void)
{
	struct memory usual, near, between, again;
	int dev = dev_open();

	start_anew(dev);
	pin_refused(dev);
	open_in(&usual, SIMGPU_PLACE_LOWER, MIB, 128);
	/* What lies between the first and the last: 2 pieces of 2 MiB. */
	open_in(&near, SIMGPU_PLACE_NEAR, 3 * MIB, 4);
	/* Each of 3 pieces by itself. */
	open_in(&between, SIMGPU_PLACE_BETWEEN, 3 * MIB, 6);
	open_in(&again, SIMGPU_PLACE_BETWEEN, MIB, 0);
	read_pages(&usual, 0);
	read_pages(&near, 4 * MIB);
	read_pages(&between, 8 * MIB);
	read_pages(&again, 12 * MIB);
	say_direct(8 * MIB);
	memory_close(&near);
	memory_close(&between);
	memory_close(&again);
	memory_close(&usual);
	pin_refused(dev);
	start_anew(dev);
	open_in(&near, SIMGPU_PLACE_NEAR, MIB, 4);
	memory_close(&near);
	return 0;
}

/* The whole BAR would have to have pages at once, or small parts of it: what can be had is enough. */
int test_bar_sections(void)
{
	struct memory one, two;
	int dev = dev_open();
	uint64_t bytes;

	expect_errno(echo(SECTION, "0"), EINVAL);
	expect_errno(echo(SECTION, "1"), EINVAL);
	expect_errno(echo(SECTION, "48"), EINVAL);
	expect_errno(echo(SECTION, "many"), EINVAL);

	expect(echo(SECTION, "1024") == 0);
	start_anew(dev);
	memory_open(&one, 64 * KIB, 0);
	bytes = dev_counters(dev).page_bytes;
	expect(bytes == 2 * MIB);
	memory_open(&two, MIB, 0);
	printf("pages for %llu bytes\n", (unsigned long long)dev_counters(dev).page_bytes);
	expect(dev_counters(dev).page_bytes > bytes);
	expect(dev_counters(dev).page_bytes <= 128 * MIB);
	read_pages(&one, 0);
	read_pages(&two, MIB);
	memory_close(&one);
	memory_close(&two);

	expect(echo(SECTION, "2") == 0);
	start_anew(dev);
	memory_open(&one, MIB, 0);
	printf("pages for %llu bytes\n", (unsigned long long)dev_counters(dev).page_bytes);
	expect(dev_counters(dev).page_bytes <= 32 * MIB);
	read_pages(&one, 2 * MIB);
	/* Larger ones fill what is between them. */
	expect(echo(SECTION, "128") == 0);
	memory_open(&two, 16 * MIB, 0);
	expect(dev_counters(dev).page_bytes == 128 * MIB);
	read_pages(&two, 4 * MIB);
	memory_close(&one);
	memory_close(&two);
	say_direct(64 * KIB + MIB + MIB + 16 * MIB);
	start_anew(dev);
	return 0;
}

static void *pin_often(void *data)
{
	const bool *stop = data;
	unsigned long nr = 0;

	while (!__atomic_load_n(stop, __ATOMIC_RELAXED)) {
		struct simgpu_alloc alloc = { .bytes = MIB };
		int gpu = open("/dev/simgpu", O_RDWR | O_CLOEXEC), dev = dev_open();
		struct peerlane_pin pin;

		if (gpu >= 0 && !ioctl(gpu, SIMGPU_IOC_ALLOC, &alloc)) {
			if (!dev_pin(dev, alloc.address, MIB, 0, &pin))
				nr++;
			else if (errno != ENXIO && errno != ENODEV && errno != EINVAL)
				fail("PIN: errno %d", errno);
		}
		/* Sometimes the memory goes first, sometimes the pin. */
		if (nr % 2)
			close(dev);
		if (gpu >= 0)
			close(gpu);
		if (!(nr % 2))
			close(dev);
	}
	printf("pinned %lu times\n", nr);
	expect(nr > 0);
	return NULL;
}

/* Memory is pinned while the GPU's driver comes and goes. */
int test_bar_unbind_loop(void)
{
	unsigned int round, nr = rounds(20);
	bool stop = false;
	pthread_t threads[2];
	char name[32];

	gpu_name(name, sizeof(name));
	expect(pthread_create(&threads[0], NULL, pin_often, &stop) == 0);
	expect(pthread_create(&threads[1], NULL, pin_often, &stop) == 0);
	for (round = 0; round < nr; round++) {
		sleep_ms(round % 7);
		expect(echo(UNBIND, name) == 0);
		gpu_bind(name);
	}
	sleep_ms(100);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	return 0;
}
