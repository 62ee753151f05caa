// SPDX-License-Identifier: MIT
/*
 * Block devices that are not a whole drive: partitions, device-mapper, loop, a drive with two
 * controllers, drives that cannot do it. All made without any tool.
 */
#include <linux/dm-ioctl.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "engine.h"

/* Whether the module makes P2PDMA pages here, which not every queue takes. */
static bool strict_pages(void)
{
	struct memory memory;
	bool strict;

	memory_open(&memory, MIB, 0);
	strict = memory.pin.page_kind != PEERLANE_PAGES_GENERIC;
	memory_close(&memory);
	return strict;
}

static struct peerlane_route route_of(const char *path)
{
	struct peerlane_route route = { .fd = open(path, O_RDONLY | O_CLOEXEC) };
	struct memory memory;

	expect(route.fd >= 0);
	memory_open(&memory, MIB, 0);
	route.handle = memory.pin.handle;
	expect(ioctl(memory.dev, PEERLANE_IOC_ROUTE, &route) == 0);
	printf("%s: verdict %u reason %u distance %d drive %x\n", path, route.verdict, route.reason,
	       route.distance, route.device_pci);
	close(route.fd);
	memory_close(&memory);
	return route;
}

/* Its first partition. */
static void partition_of(const char *serial, char *path)
{
	disk_path("serial", serial, path);
	strcat(path, "p1");
}

static size_t size_of(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint64_t bytes = 0;

	expect(fd >= 0 && ioctl(fd, BLKGETSIZE64, &bytes) == 0);
	close(fd);
	return bytes;
}

int test_engine_partition(void)
{
	char path[DISK_PATH];
	struct below b = { .path = path, .drive = "parts0", .start = MIB };

	partition_of("parts0", path);
	b.bytes = size_of(path);
	expect(route_of(path).device_pci);
	below_check(&b);
	return 0;
}

/* --- device-mapper --- */

struct dm_table {
	struct dm_ioctl head;
	struct {
		struct dm_target_spec spec;
		char text[64];
	} target[2];
};

static void dm_call(unsigned long code, struct dm_table *t, const char *name)
{
	static int control = -1;

	if (control < 0)
		control = open("/dev/mapper/control", O_RDWR | O_CLOEXEC);
	expect(control >= 0);
	t->head.version[0] = DM_VERSION_MAJOR;
	t->head.data_size = sizeof(*t);
	t->head.data_start = offsetof(struct dm_table, target);
	snprintf(t->head.name, sizeof(t->head.name), "%s", name);
	expect(ioctl(control, code, t) == 0);
}

/* Number of a device as dm wants it. */
static const char *dm_number(const char *path, char *text)
{
	struct stat stat_;

	expect(stat(path, &stat_) == 0);
	snprintf(text, 32, "%u:%u", major(stat_.st_rdev), minor(stat_.st_rdev));
	return text;
}

static void dm_target(struct dm_table *t, const char *type, size_t start, size_t bytes)
{
	struct dm_target_spec *spec = &t->target[t->head.target_count++].spec;

	spec->sector_start = start / 512;
	spec->length = bytes / 512;
	spec->next = sizeof(t->target[0]);
	snprintf(spec->target_type, sizeof(spec->target_type), "%s", type);
}

/* Starts it; @path is its node. */
static void dm_start(struct dm_table *t, const char *name, char *path)
{
	struct dm_table create = { 0 }, resume = { 0 };

	dm_call(DM_DEV_CREATE, &create, name);
	dm_call(DM_TABLE_LOAD, t, name);
	dm_call(DM_DEV_SUSPEND, &resume, name);
	snprintf(path, DISK_PATH, "/dev/dm-%u", minor(create.head.dev));
}

static void dm_end(const char *name)
{
	struct dm_table t = { 0 };

	dm_call(DM_DEV_REMOVE, &t, name);
}

/* A stacked device: where pages must be of a kind its queue takes, that is said. */
static void stacked(const char *path, bool mirrored)
{
	struct below b = { .path = path, .bytes = size_of(path), .mirrored = mirrored };
	struct peerlane_route route = route_of(path);

	expect(route.verdict == PEERLANE_ROUTE_NO);
	if (route.reason == PEERLANE_REASON_QUEUE) {
		expect(strict_pages());
		b.reason = "does not take peer-to-peer pages";
		b.fix = "pages=generic";
	} else {
		expect(route.reason == PEERLANE_REASON_VIRTUAL);
		/* Where nobody vouches for them, each is tested by itself. */
		b.members = strict_pages() ? 0 : 2;
	}
	below_check(&b);
}

int test_engine_dm(void)
{
	char part[DISK_PATH], one[DISK_PATH], two[DISK_PATH], path[DISK_PATH], n1[32], n2[32];
	struct dm_table linear = { 0 }, stripe = { 0 };

	partition_of("parts0", part);
	disk_path("serial", "raid0", one);
	disk_path("serial", "raid1", two);
	/* A piece of a partition, then one of a drive: most cases have data on both sides. */
	dm_target(&linear, "linear", 0, MIB);
	snprintf(linear.target[0].text, 64, "%s %lu", dm_number(part, n1), 2 * MIB / 512);
	dm_target(&linear, "linear", MIB, 3 * MIB);
	snprintf(linear.target[1].text, 64, "%s %lu", dm_number(one, n1), 12 * MIB / 512);
	dm_start(&linear, "linear", path);
	stacked(path, false);
	dm_end("linear");
	dm_target(&stripe, "striped", 0, 4 * MIB);
	snprintf(stripe.target[0].text, 64, "2 128 %s 0 %s 0", dm_number(one, n1),
		 dm_number(two, n2));
	dm_start(&stripe, "stripe", path);
	stacked(path, false);
	dm_end("stripe");
	return 0;
}

/* Both drives hold the same, and get all that is written. */
int test_engine_mirror(void)
{
	unsigned char *data = host_alloc(4 * MIB);
	int array = array_start(1);

	fill(data, 4 * MIB, 97);
	expect(pwrite(array, data, 4 * MIB, 0) == (ssize_t)(4 * MIB));
	stacked("/dev/md0", true);
	printf("EXPECT raid0 0 %lu raid1 0\n", 4 * MIB);
	array_stop(array);
	free(data);
	return 0;
}

/* --- loop --- */

static void loop_one(bool direct)
{
	struct loop_config config = { .block_size = 512 };
	int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC), number, loop;
	char path[DISK_PATH];
	struct below b = {
		.path = path, .bytes = 2 * MIB, .reason = "loop device", .fix = "the file below"
	};

	free(make_file("/mnt/loop", 2 * MIB, 91));
	number = ioctl(control, LOOP_CTL_GET_FREE);
	expect(number >= 0);
	snprintf(path, sizeof(path), "/dev/loop%d", number);
	loop = open(path, O_RDWR | O_CLOEXEC);
	expect(loop >= 0);
	config.fd = (uint32_t)open("/mnt/loop", O_RDWR | O_CLOEXEC);
	config.info.lo_flags = direct ? LO_FLAGS_DIRECT_IO : 0;
	expect(ioctl(loop, LOOP_CONFIGURE, &config) == 0);
	close((int)config.fd);
	if (route_of(path).reason == PEERLANE_REASON_QUEUE) {
		b.reason = "does not take peer-to-peer pages";
		b.fix = "pages=generic";
	}
	below_check(&b);
	expect(ioctl(loop, LOOP_CLR_FD, 0) == 0);
	close(loop);
	close(control);
	/* The file below can be reached directly, as the words say. */
	b = (struct below){ .path = "/mnt/loop", .bytes = 2 * MIB, .grows = true };
	below_check(&b);
	unlink("/mnt/loop");
}

int test_engine_loop(void)
{
	loop_one(false);
	loop_one(true);
	return 0;
}

/* --- several controllers --- */

int test_engine_multipath(void)
{
	char path[DISK_PATH], on = '?';
	struct below b = { .path = path, .drive = "shared0" };
	FILE *f = fopen("/sys/module/nvme_core/parameters/multipath", "r");
	struct peerlane_route route;

	expect(f && fread(&on, 1, 1, f) == 1);
	fclose(f);
	disk_path("serial", "shared0", path);
	b.bytes = size_of(path);
	printf("multipath %c\n", on);
	route = route_of(path);
	expect(route.device_pci);
	if (route.verdict == PEERLANE_ROUTE_NO) {
		expect(route.reason == PEERLANE_REASON_QUEUE && on == 'Y' && strict_pages());
		b.reason = "does not take peer-to-peer pages";
		b.fix = "pages=generic";
	} else {
		expect(route.reason == PEERLANE_REASON_HOST_BRIDGE);
	}
	below_check(&b);
	return 0;
}

/* --- drives that cannot --- */

/* A drive that reaches only 4 GiB where the GPU lies above, and one without PCI. */
int test_engine_far(void)
{
	char path[DISK_PATH];
	bool strict = strict_pages();
	struct below b = { .path = path, .bytes = 4 * MIB };
	struct peerlane_route route;

	disk_path("vendor", "QEMU", path);
	route = route_of(path);
	expect(route.device_pci && route.verdict == PEERLANE_ROUTE_NO);
	expect(route.reason == (strict ? PEERLANE_REASON_QUEUE : PEERLANE_REASON_DMA_MASK));
	b.reason = strict ? "does not take peer-to-peer pages" : "cannot address";
	b.fix = strict ? "pages=generic" : "IOMMU";
	below_check(&b);
	disk_path("vendor", "Linux", path);
	route = route_of(path);
	expect(!route.device_pci && route.reason == PEERLANE_REASON_NOT_PCI);
	b.reason = "not a PCI device";
	b.fix = "NVMe";
	below_check(&b);
	return 0;
}
