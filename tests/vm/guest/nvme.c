// SPDX-License-Identifier: MIT
/*
 * Controllers that programs drive, through the module and through vfio: data, and how it ends.
 */
#include <sys/mount.h>
#include <sys/swap.h>

#include "nvme_lab.h"

/*
 * Each test writes to its own part of the drive, so that it can be compared after the last one: 0 to
 * 1 MiB is nvme_kmod_engine's, 8 to 12 is compared at once, 12 to 14 is nvme_kmod_io's, 14 to 15
 * nvme_kmod_driver's, the rest nvme_vfio_io's but for its end, which is compared at once as well.
 */
#define DRIVE "slow0"

/* The name of a drive's disk, such as "nvme2n1". */
static void disk_name(const char *serial, char *name, size_t size)
{
	char path[64], link[300];
	ssize_t len;
	int fd = drive_open(serial, O_RDONLY);

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	len = readlink(path, link, sizeof(link) - 1);
	expect(len > 0);
	link[len] = 0;
	snprintf(name, size, "%s", strrchr(link, '/') + 1);
	close(fd);
}

static void refused(const char *device, const char *why)
{
	expect(tool("bind %s", device) == 1);
	if (!strstr(tool_said, why))
		fail("it does not say '%s'", why);
}

/* A drive that is used for anything is not taken away from it. */
int test_nvme_refused(void)
{
	char name[64], path[80], command[128];
	struct simgpu_state gpu = gpu_state(gpu_open());
	int array, fd;

	refused(pci_of("fs0").text, "is mounted on /mnt");
	disk_name("fs0", name, sizeof(name));
	refused(name, "is mounted on /mnt");

	disk_name(DRIVE, name, sizeof(name));
	snprintf(path, sizeof(path), "/dev/%s", name);
	snprintf(command, sizeof(command), "mkswap %s >/dev/null", path);
	expect(system(command) == 0);
	expect(swapon(path, 0) == 0);
	refused(path, "is used as swap");
	expect(swapoff(path) == 0);
	/* Somebody holds it in a way that nothing tells. */
	fd = open(path, O_RDONLY | O_EXCL);
	expect(fd >= 0);
	refused(path, "is in use");
	close(fd);

	array = array_start(0);
	refused(pci_of("raid1").text, "is part of md0");
	array_stop(array);

	snprintf(path, sizeof(path), "%04x:%02x:%02x.%x", (unsigned int)(gpu.pci >> 16),
		 (unsigned int)(gpu.pci >> 8) & 0xff, (unsigned int)(gpu.pci >> 3) & 0x1f,
		 (unsigned int)gpu.pci & 7);
	refused(path, "is not an NVMe controller");
	refused("0000:7f:1f.7", "no such NVMe controller");
	refused("nvme99", "no such NVMe controller");
	expect(tool("bind --driver floppy %s", name) == 2);
	expect(tool("bind") == 2);
	/* Nothing of it has changed anything. */
	expect(access("/mnt/src", R_OK) == 0);
	pci_of(DRIVE);
	return 0;
}

/* Reads and writes of host memory that begins inside a page. */
static void host_io(struct mini *m, char *data, size_t bytes)
{
	struct pl_nvme_region region = { .kind = PL_NVME_HOST, .ptr = data, .bytes = bytes };
	const struct pl_nvme_mapping *map;
	int err = m->t->ops->map(m->t, &region, &map);

	if (err)
		fail("host memory: %d", err);
	expect(map->bytes == bytes && map->cpu == data &&
	       map->nr_pages == (map->offset + bytes + map->page_bytes - 1) / map->page_bytes);
	mini_move(m, false, 2 * MIB, map, 0, bytes);
	mini_move(m, true, 8 * MIB, map, 0, bytes);
	m->t->ops->unmap(m->t, map);
}

/* What host_io() did is what the kernel sees now. */
static void host_check(const char *data, size_t bytes)
{
	int fd = drive_open(DRIVE, O_RDONLY | O_DIRECT);
	char *seen = host_alloc(bytes);

	expect(pread(fd, seen, bytes, 2 * MIB) == (ssize_t)bytes);
	expect(memcmp(seen, data, bytes) == 0);
	expect(pread(fd, seen, bytes, 8 * MIB) == (ssize_t)bytes);
	expect(memcmp(seen, data, bytes) == 0);
	close(fd);
	free(seen);
}

int test_nvme_kmod_io(void)
{
	struct pci pci = take_drive(DRIVE, "kmod");
	const struct pl_nvme_mapping *all, *part;
	size_t bytes = MIB + 512, gpu_bytes = 4 * MIB;
	char *data = host_alloc(bytes + 4096) + 512;
	struct pl_nvme_region region;
	struct memory memory;
	struct mini m;
	int err;

	mini_open(&m, &pl_nvme_transport_kmod, pci.text);
	expect(strcmp(m.serial, DRIVE) == 0);
	host_io(&m, data, bytes);

	memory_open(&memory, gpu_bytes, 0);
	region = region_of(&memory, 0, gpu_bytes);
	err = m.t->ops->map(m.t, &region, &all);
	if (err)
		fail("GPU memory: %d", err);
	expect(all->page_bytes == GPU_PAGE && all->nr_pages == gpu_bytes / GPU_PAGE);
	mini_move(&m, false, 4 * MIB, all, 0, gpu_bytes);
	/* From the middle of it, by another mapping that begins inside a GPU page. */
	region = region_of(&memory, 3 * GPU_PAGE + 4096, 2 * MIB);
	expect(m.t->ops->map(m.t, &region, &part) == 0);
	expect(part->offset == 4096);
	mini_move(&m, true, 12 * MIB, part, 0, 2 * MIB);
	expect(dev_counters(memory.dev).uses == 2);
	expect(nvme_counter("mappings") == 3 && nvme_counter("files") == 1);
	say_direct(gpu_bytes + 2 * MIB);
	say_bar(&memory, 0, gpu_bytes, DRIVE, 4 * MIB);
	say_disk(DRIVE, 12 * MIB, 2 * MIB, &memory, 3 * GPU_PAGE + 4096);
	m.t->ops->unmap(m.t, part);
	m.t->ops->unmap(m.t, all);
	memory_close(&memory);
	mini_close(&m);
	nvme_wait_idle();
	give_back(pci, DRIVE);
	host_check(data, bytes);
	return 0;
}

/* A client with reads under way, which says when they are, and then waits for its end. */
static void client(const struct pl_nvme_transport_ops *ops, const char *pci, int ready, bool gpu)
{
	struct pl_nvme_region host = { .kind = PL_NVME_HOST, .bytes = 2 * MIB };
	const struct pl_nvme_mapping *map;
	struct pl_nvme_region region;
	struct memory memory;
	struct mini m;
	int i;

	mini_open(&m, ops, pci);
	host.ptr = host_alloc(host.bytes);
	expect(m.t->ops->map(m.t, &host, &map) == 0);
	for (i = 0; i < 4; i++)
		mini_submit(&m, false, (uint64_t)i * 512 * KIB, map, (size_t)i * 512 * KIB,
			    512 * KIB);
	if (gpu) {
		memory_open(&memory, 4 * MIB, 0);
		region = region_of(&memory, 0, 4 * MIB);
		expect(m.t->ops->map(m.t, &region, &map) == 0);
		for (i = 0; i < 8; i++)
			mini_submit(&m, false, (uint64_t)i * 512 * KIB, map, (size_t)i * 512 * KIB,
				    512 * KIB);
	}
	expect(write(ready, "r", 1) == 1);
	for (;;)
		pause();
}

static void kill_client(const struct pl_nvme_transport_ops *ops, const char *pci, bool gpu)
{
	int ready[2], status;
	char byte;
	pid_t pid;

	expect(pipe(ready) == 0);
	fflush(stdout);
	pid = fork();
	expect(pid >= 0);
	if (!pid)
		client(ops, pci, ready[1], gpu);
	close(ready[1]);
	expect(read(ready[0], &byte, 1) == 1);
	close(ready[0]);
	expect(kill(pid, SIGKILL) == 0);
	expect(waitpid(pid, &status, 0) == pid);
	expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

int test_nvme_kmod_kill(void)
{
	struct pci pci = take_drive(DRIVE, "kmod");
	struct mini m;
	char *data = host_alloc(MIB);
	long long held = pages_held();
	int dev = dev_open(), i;

	for (i = 0; i < 3; i++) {
		kill_client(&pl_nvme_transport_kmod, pci.text, true);
		nvme_wait_idle();
		/* The pin ends as well, by itself. */
		while (dev_counters(dev).pins)
			sleep_ms(10);
	}
	/* The next one finds nothing of that. */
	mini_open(&m, &pl_nvme_transport_kmod, pci.text);
	host_io(&m, data, MIB);
	mini_close(&m);
	if (pages_held() != held)
		fail("%lld pages were held before, and %lld are now", held, pages_held());
	give_back(pci, DRIVE);
	host_check(data, MIB);
	close(dev);
	return 0;
}

/* GPU memory is freed under the controller's hands: it stops first, and can be started again. */
int test_nvme_kmod_freed(void)
{
	struct pci pci = take_drive(DRIVE, "kmod");
	long long stops = nvme_counter("nr_stops");
	size_t bytes = 4 * MIB, at;
	char *data = host_alloc(MIB), *want = host_alloc(bytes), *seen = host_alloc(bytes);
	const struct pl_nvme_mapping *map;
	struct pl_nvme_region region;
	struct memory memory;
	struct mini m;
	uint64_t other;

	mini_open(&m, &pl_nvme_transport_kmod, pci.text);
	memory_open(&memory, bytes, 0);
	region = region_of(&memory, 0, bytes);
	expect(m.t->ops->map(m.t, &region, &map) == 0);
	for (at = 0; at < bytes; at += 512 * KIB)
		mini_submit(&m, false, at, map, at, 512 * KIB);
	gpu_free(memory.gpu, memory.address);
	wait_given_back(&memory);
	expect(nvme_counter("nr_stops") == stops + 1);
	expect(dev_counters(memory.dev).uses == 0);
	expect(!(mini_reg(&m, PL_NVME_REG_CC) & PL_NVME_CC_EN));
	expect(!m.t->ops->gone(m.t));
	/* The memory is somebody else's now, and stays as they leave it. */
	other = gpu_alloc(memory.gpu, bytes);
	fill(want, bytes, 77);
	gpu_copy(memory.gpu, other, want, bytes, true);
	/* The mapping can be ended, and no other made of the dead pin. */
	m.t->ops->unmap(m.t, map);
	expect(m.t->ops->map(m.t, &region, &map) == -ENODEV);
	expect(m.t->ops->reset(m.t) == 0);
	mini_enable(&m);
	host_io(&m, data, MIB);
	gpu_copy(memory.gpu, other, seen, bytes, false);
	expect(memcmp(seen, want, bytes) == 0);
	gpu_free(memory.gpu, other);
	mini_close(&m);

	/* Unpinned but still mapped: the memory stays until the mapping's end. */
	munmap(memory.map, memory.pin.map_bytes);
	close(memory.dev);
	close(memory.gpu);
	memory_open(&memory, MIB, 0);
	mini_open(&m, &pl_nvme_transport_kmod, pci.text);
	region = region_of(&memory, 0, MIB);
	expect(m.t->ops->map(m.t, &region, &map) == 0);
	munmap(memory.map, memory.pin.map_bytes);
	expect_errno(dev_unpin(memory.dev, memory.pin.handle), EINPROGRESS);
	expect(dev_counters(memory.dev).lingering == 1 && dev_counters(memory.dev).uses == 1);
	mini_move(&m, false, 0, map, 0, MIB);
	m.t->ops->unmap(m.t, map);
	while (dev_counters(memory.dev).lingering)
		sleep_ms(10);
	mini_close(&m);
	give_back(pci, DRIVE);
	host_check(data, MIB);
	return 0;
}

static void sysfs(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	expect(fd >= 0);
	expect(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

/* The device is taken away while a program uses it: as if it had been pulled out. */
int test_nvme_kmod_unbind(void)
{
	struct pci pci = take_drive(DRIVE, "kmod");
	struct pl_nvme_region host = { .kind = PL_NVME_HOST, .bytes = 2 * MIB };
	const struct pl_nvme_mapping *map, *none, *gpu_map;
	struct pl_nvme_region region;
	struct memory memory;
	struct mini m;
	int i;

	mini_open(&m, &pl_nvme_transport_kmod, pci.text);
	memory_open(&memory, MIB, 0);
	region = region_of(&memory, 0, MIB);
	host.ptr = host_alloc(host.bytes);
	expect(m.t->ops->map(m.t, &host, &map) == 0);
	expect(m.t->ops->map(m.t, &region, &gpu_map) == 0);
	for (i = 0; i < 4; i++)
		mini_submit(&m, false, (uint64_t)i * 512 * KIB, map, (size_t)i * 512 * KIB,
			    512 * KIB);
	expect(!m.t->ops->gone(m.t));
	sysfs("/sys/bus/pci/drivers/peerlane_nvme/unbind", pci.text);
	expect(m.t->ops->gone(m.t));
	expect(mini_reg(&m, PL_NVME_REG_CSTS) == UINT32_MAX);
	/* Written into nowhere. */
	*(volatile uint32_t *)((volatile char *)m.t->bar0.ptr + PL_NVME_REG_DOORBELLS) = 3;
	expect(mini_reg(&m, PL_NVME_REG_CSTS) == UINT32_MAX);
	expect(m.t->ops->map(m.t, &host, &none) == -ENODEV);
	expect(m.t->ops->alloc(m.t, 4096, &none) == -ENODEV);
	expect(m.t->ops->reset(m.t) == -ENODEV);
	/* Memory for queues can be touched still. */
	memset(m.memory->cpu, 1, m.memory->bytes);
	/* Another driver has it now, and the old file does not matter. */
	give_back(pci, DRIVE);
	m.t->ops->unmap(m.t, map);
	/* GPU memory may go as well; nobody is to be stopped. */
	gpu_free(memory.gpu, memory.address);
	m.t->ops->unmap(m.t, gpu_map);
	m.t->ops->close(m.t);
	nvme_wait_idle();
	munmap(memory.map, memory.pin.map_bytes);
	close(memory.dev);
	close(memory.gpu);
	return 0;
}

/* A drive with a file system: driven by a program that dies, then mounted again. */
static void there_and_back(const struct pl_nvme_transport_ops *ops, bool gpu)
{
	struct pl_nvme_region host = { .kind = PL_NVME_HOST, .bytes = 4096 };
	char *before = host_alloc(MIB), *after = host_alloc(MIB), name[64], path[80];
	const struct pl_nvme_mapping *map;
	struct pci pci;
	struct mini m;
	int fd;

	fd = open("/mnt/src", O_RDONLY);
	expect(fd >= 0 && pread(fd, before, MIB, 3 * MIB) == (ssize_t)MIB);
	close(fd);
	expect(umount("/mnt") == 0);
	pci = take_drive("fs0", ops->name);
	mini_open(&m, ops, pci.text);
	expect(strcmp(m.serial, "fs0") == 0);
	host.ptr = host_alloc(4096);
	expect(m.t->ops->map(m.t, &host, &map) == 0);
	mini_move(&m, false, 0, map, 0, 4096);
	/* The file system's own mark. */
	expect(((uint8_t *)host.ptr)[1024 + 56] == 0x53 &&
	       ((uint8_t *)host.ptr)[1024 + 57] == 0xef);
	/* Leave everything as it is, enabled and mapped: close() has to end it. */
	m.t->ops->close(m.t);
	nvme_wait_idle();
	kill_client(ops, pci.text, gpu);
	nvme_wait_idle();
	give_back(pci, "fs0");
	disk_name("fs0", name, sizeof(name));
	snprintf(path, sizeof(path), "/dev/%s", name);
	expect(mount(path, "/mnt", "ext4", 0, NULL) == 0);
	fd = open("/mnt/src", O_RDONLY);
	expect(fd >= 0 && pread(fd, after, MIB, 3 * MIB) == (ssize_t)MIB);
	close(fd);
	expect(memcmp(before, after, MIB) == 0);
}

int test_nvme_kmod_back(void)
{
	there_and_back(&pl_nvme_transport_kmod, true);
	return 0;
}

int test_nvme_vfio_back(void)
{
	there_and_back(&pl_nvme_transport_vfio, false);
	return 0;
}

int test_nvme_vfio_kill(void)
{
	struct pci pci = take_drive(DRIVE, "vfio");
	char *data = host_alloc(MIB);
	struct mini m;
	int i;

	for (i = 0; i < 2; i++)
		kill_client(&pl_nvme_transport_vfio, pci.text, false);
	mini_open(&m, &pl_nvme_transport_vfio, pci.text);
	/* Whoever has it keeps it. */
	expect(tool("unbind %s", pci.text) == 1);
	expect(strstr(tool_said, "a program has it open"));
	host_io(&m, data, MIB);
	mini_close(&m);
	give_back(pci, DRIVE);
	host_check(data, MIB);
	return 0;
}

/* Host memory; GPU memory by a mapping of its BAR, and not by one of /dev/peerlane. */
int test_nvme_vfio_io(void)
{
	struct pci pci = take_drive(DRIVE, "vfio");
	size_t bytes = 3 * MIB + 512;
	char *data = host_alloc(bytes + 4096) + 512, *bar, path[80];
	struct simgpu_state gpu = gpu_state(gpu_open());
	const struct pl_nvme_mapping *map;
	struct pl_nvme_region region;
	struct memory memory;
	struct mini m;
	int fd;

	mini_open(&m, &pl_nvme_transport_vfio, pci.text);
	expect(strcmp(m.serial, DRIVE) == 0);
	host_io(&m, data, bytes);
	memory_open(&memory, MIB, 0);
	region = region_of(&memory, 0, MIB);
	expect(m.t->ops->map(m.t, &region, &map) == -EOPNOTSUPP);

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%04x:%02x:%02x.%x/resource2",
		 (unsigned int)(gpu.pci >> 16), (unsigned int)(gpu.pci >> 8) & 0xff,
		 (unsigned int)(gpu.pci >> 3) & 0x1f, (unsigned int)gpu.pci & 7);
	fd = open(path, O_RDWR);
	expect(fd >= 0);
	/* The half that the GPU's driver does not map in conflicting ways. */
	bar = mmap(NULL, gpu.bar_bytes / 2, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	expect(bar != MAP_FAILED);
	/* One GPU page: the others lie elsewhere. */
	region.bytes = GPU_PAGE;
	region.pin_fd = -1;
	region.cpu = bar + (memory.physical[5] - gpu.bar_start);
	expect(m.t->ops->map(m.t, &region, &map) == 0);
	mini_move(&m, false, 4 * MIB, map, 0, GPU_PAGE);
	mini_move(&m, true, 15 * MIB, map, 4096, 8192);
	say_direct(GPU_PAGE + 8192);
	say_bar(&memory, 5 * GPU_PAGE, GPU_PAGE, DRIVE, 4 * MIB);
	say_disk(DRIVE, 15 * MIB, 8192, &memory, 5 * GPU_PAGE + 4096);
	m.t->ops->unmap(m.t, map);
	munmap(bar, gpu.bar_bytes / 2);
	close(fd);
	memory_close(&memory);
	mini_close(&m);
	give_back(pci, DRIVE);
	host_check(data, bytes);
	return 0;
}
