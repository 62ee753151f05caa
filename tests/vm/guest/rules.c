// SPDX-License-Identifier: MIT
/*
 * Rules of NVIDIA's driver that the test GPU can be told to have: docs/kmod.md lists them all.
 */
#include "guest.h"

/* The driver's number for what is not supported, which user space does not know. */
#define KERNEL_ENOTSUPP 524

static void set(const char *name, const char *value)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/module/simgpu/parameters/%s", name);
	expect(echo(path, value) == 0);
}

/* Memory is given back by a worker. */
static void wait_persistent(int gpu)
{
	int i;

	for (i = 0; i < 500 && gpu_state(gpu).nr_persistent; i++)
		sleep_ms(10);
	expect(gpu_state(gpu).nr_persistent == 0);
}

static void nothing_left(int gpu, int dev)
{
	wait_persistent(gpu);
	expect(gpu_state(gpu).nr_pins == 0);
	expect(dev_counters(dev).pins == 0);
}

/* All errors that the driver has, in either of the two pins that each of ours is made of. */
int test_rules_errors(void)
{
	static const struct {
		int driver, ours;
	} errors[] = {
		{ EIO, EIO },	  { ENOMEM, ENOMEM }, { EINVAL, EINVAL },
		{ EBUSY, EBUSY }, { ENODEV, ENODEV }, { KERNEL_ENOTSUPP, EOPNOTSUPP },
	};
	int gpu = gpu_open(), dev = dev_open();
	uint64_t address = gpu_alloc(gpu, MIB);
	struct peerlane_pin pin;
	size_t i;

	for (i = 0; i < sizeof(errors) / sizeof(*errors); i++) {
		printf("error %d\n", errors[i].driver);
		gpu_fault(gpu, SIMGPU_FAULT_PERSISTENT, (uint32_t)errors[i].driver, 1);
		expect_errno(dev_pin(dev, address, MIB, 0, &pin), errors[i].ours);
		nothing_left(gpu, dev);
		gpu_fault(gpu, SIMGPU_FAULT_GET, (uint32_t)errors[i].driver, 1);
		expect_errno(dev_pin(dev, address, MIB, 0, &pin), errors[i].ours);
		nothing_left(gpu, dev);
	}
	/* Freed before the driver has registered the callback, which never comes then. */
	gpu_fault(gpu, SIMGPU_FAULT_EARLY_FREE, 1, 1);
	expect_errno(dev_pin(dev, address, MIB, 0, &pin), EINVAL);
	nothing_left(gpu, dev);
	expect(gpu_state(gpu).nr_allocs == 0);
	return 0;
}

/* A GPU without persistent pins, one without a BAR, and the older layout of tables. */
int test_rules_kinds(void)
{
	int gpu = gpu_open(), dev = dev_open();
	uint64_t address = gpu_alloc(gpu, MIB);
	struct peerlane_pin pin;
	struct memory memory;

	set("persistent", "N");
	expect_errno(dev_pin(dev, address, MIB, 0, &pin), EOPNOTSUPP);
	expect_errno(dev_pin(dev, address, MIB, PEERLANE_PIN_PERSISTENT, &pin), EOPNOTSUPP);
	set("persistent", "Y");
	nothing_left(gpu, dev);

	/* Its memory is memory of the CPU's too, and has pages already. */
	gpu_fault(gpu, SIMGPU_FAULT_OUTSIDE, 1, 2);
	expect_errno(dev_pin(dev, address, MIB, 0, &pin), ENXIO);
	nothing_left(gpu, dev);

	set("tables", "1");
	memory_open(&memory, MIB, 0);
	set("tables", "2");
	memset(memory.map, 7, MIB);
	memory_close(&memory);
	nothing_left(gpu, dev);
	return 0;
}

/* Pins need room in the BAR, both of which one of ours is made of: what does not fit fails as a whole. */
int test_rules_room(void)
{
	int gpu = gpu_open(), dev = dev_open();
	uint64_t address = gpu_alloc(gpu, MIB);
	struct peerlane_pin pin;

	set("aperture", "16");
	expect_errno(dev_pin(dev, address, MIB, 0, &pin), ENOMEM);
	nothing_left(gpu, dev);
	expect(dev_pin(dev, address, MIB, PEERLANE_PIN_PERSISTENT, &pin) == 0);
	expect(dev_unpin(dev, pin.handle) == 0);
	set("aperture", "17");
	expect(dev_pin(dev, address, MIB, 0, &pin) == 0);
	expect(dev_unpin(dev, pin.handle) == 0);
	set("aperture", "0");
	nothing_left(gpu, dev);
	return 0;
}

static bool is_revoked(int dev, const struct peerlane_pin *pin)
{
	struct peerlane_info info = { .handle = pin->handle };

	expect(ioctl(dev, PEERLANE_IOC_INFO, &info) == 0);
	return info.state & PEERLANE_INFO_REVOKED;
}

/* A put that finds no memory has done nothing: the callback still comes, or the next call puts it. */
int test_rules_put(void)
{
	int gpu = gpu_open(), dev = dev_open();
	uint64_t address, callbacks = gpu_state(gpu).nr_callbacks;
	struct peerlane_pin pin;

	address = gpu_alloc(gpu, MIB);
	expect(dev_pin(dev, address, MIB, 0, &pin) == 0);
	/* It is tried twice. */
	set("put_fails", "2");
	expect(dev_unpin(dev, pin.handle) == 0);
	wait_persistent(gpu);
	expect(gpu_state(gpu).nr_pins == 1);
	gpu_free(gpu, address);
	expect(gpu_state(gpu).nr_callbacks == callbacks + 1);
	nothing_left(gpu, dev);

	address = gpu_alloc(gpu, MIB);
	expect(dev_pin(dev, address, MIB, 0, &pin) == 0);
	set("put_fails", "2");
	expect(dev_unpin(dev, pin.handle) == 0);
	expect(gpu_state(gpu).nr_pins == 1);
	expect(dev_pin(dev, address, MIB, PEERLANE_PIN_PERSISTENT, &pin) == 0);
	expect(gpu_state(gpu).nr_pins == 0);
	expect(dev_unpin(dev, pin.handle) == 0);
	expect(gpu_state(gpu).nr_callbacks == callbacks + 1);
	nothing_left(gpu, dev);
	return 0;
}

/* A put in the right process that finds nothing and says nothing: the callback comes to what is gone. */
int test_rules_missed(void)
{
	int gpu = gpu_open(), dev = dev_open();
	uint64_t address, callbacks = gpu_state(gpu).nr_callbacks;
	struct peerlane_pin pin;

	address = gpu_alloc(gpu, MIB);
	expect(dev_pin(dev, address, MIB, 0, &pin) == 0);
	set("put_misses", "1");
	expect(dev_unpin(dev, pin.handle) == 0);
	wait_persistent(gpu);
	expect(gpu_state(gpu).nr_pins == 1);
	gpu_free(gpu, address);
	expect(gpu_state(gpu).nr_callbacks == callbacks + 1);
	nothing_left(gpu, dev);
	return 0;
}

/* Memory that was freed, and other memory whose pin lies where its pin lay: giving one up leaves the other. */
int test_rules_reused(void)
{
	int gpu = gpu_open(), dev = dev_open();
	uint64_t first = gpu_alloc(gpu, MIB), second = gpu_alloc(gpu, MIB);
	struct peerlane_pin gone, pin;

	expect(dev_pin(dev, first, MIB, 0, &gone) == 0);
	gpu_free(gpu, first);
	expect(is_revoked(dev, &gone));
	expect(dev_pin(dev, second, MIB, 0, &pin) == 0);
	expect(dev_unpin(dev, gone.handle) == 0);
	expect(gpu_state(gpu).nr_pins == 1 && !is_revoked(dev, &pin));
	gpu_free(gpu, second);
	expect(is_revoked(dev, &pin));
	expect(dev_unpin(dev, pin.handle) == 0);
	nothing_left(gpu, dev);
	return 0;
}
