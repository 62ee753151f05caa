// SPDX-License-Identifier: MIT
/*
 * Pins GPU memory, lists its pages, maps it and looks at it from the CPU: what gpudma's LOCK, STATE
 * and mmap did, and donard's pinbuf. It uses /dev/peerlane itself; the library is only there to
 * have a GPU.
 */
#include <peerlane/gpu.h>
#include <uapi/peerlane.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define DEFAULT_KIB 1024ul
#define MAX_KIB (1024ul * 1024)

/* Prints what failed and why; returns @err, which is a negative errno. */
static int complain(const char *what, int err)
{
	fprintf(stderr, "pin_mmap: %s: %s\n", what, strerror(-err));
	return err;
}

static int call(int dev, unsigned long request, void *arg, const char *what)
{
	return ioctl(dev, request, arg) ? complain(what, -errno) : 0;
}

static int open_module(void)
{
	struct peerlane_hello hello = { .version = PEERLANE_UAPI_VERSION,
					.oldest = PEERLANE_UAPI_OLDEST,
					.features = PEERLANE_FEATURE_PROVIDER };
	int dev = open("/dev/peerlane", O_RDWR | O_CLOEXEC), err;

	if (dev < 0) {
		err = complain("/dev/peerlane", -errno);
		fprintf(stderr, "the kernel module peerlane is needed, see peerlane-kmod(7)\n");
		return err;
	}
	err = call(dev, PEERLANE_IOC_HELLO, &hello, "the module and this program do not agree");
	if (!err)
		return dev;
	close(dev);
	return err;
}

/* The handles of this open file, of which there is one. */
static int list_handles(int dev)
{
	uint32_t handles[8];
	struct peerlane_list list = { .handles = (uintptr_t)handles, .nr_room = 8 };
	int err = call(dev, PEERLANE_IOC_LIST, &list, "LIST");

	for (uint32_t i = 0; !err && i < list.nr_handles && i < list.nr_room; i++)
		printf("handle %u\n", handles[i]);
	return err;
}

/* What the module knows of the pin; where its pages are, if this user may know. */
static int show_pages(int dev, uint32_t handle)
{
	struct peerlane_info info = { .handle = handle };
	uint64_t *pages;
	int err = call(dev, PEERLANE_IOC_INFO, &info, "INFO");

	if (err)
		return err;
	printf("%llu bytes at GPU address %#llx: %u pages of %u bytes in %u runs, GPU "
	       "%02x:%02x.%x\n",
	       (unsigned long long)info.length, (unsigned long long)info.address, info.nr_pages,
	       info.gpu_page_bytes, info.nr_runs, info.gpu_pci >> 8 & 0xff,
	       info.gpu_pci >> 3 & 0x1f, info.gpu_pci & 7);
	pages = calloc(info.nr_pages, sizeof(*pages));
	if (!pages)
		return complain("pages", -ENOMEM);
	info.physical = (uintptr_t)pages;
	info.nr_room = info.nr_pages;
	if (!ioctl(dev, PEERLANE_IOC_INFO, &info)) {
		for (uint32_t i = 0; i < info.nr_pages; i++)
			printf("page %u at physical address %#llx\n", i,
			       (unsigned long long)pages[i]);
	} else if (errno == EPERM) {
		printf("physical addresses are for CAP_SYS_RAWIO only\n");
	} else {
		err = complain("INFO", -errno);
	}
	free(pages);
	return err;
}

/* Counts up in GPU memory from the CPU's side, and has the GPU's driver say what is there. */
static int look(struct peerlane *ctx, const void *gpu, volatile uint32_t *mapped, size_t bytes)
{
	uint32_t *seen = malloc(bytes);
	size_t n = bytes / sizeof(*seen), i;
	int err;

	if (!seen)
		return complain("memory", -ENOMEM);
	for (i = 0; i < n; i++)
		mapped[i] = (uint32_t)(i * 3 + 1);
	__sync_synchronize();
	err = peerlane_gpu_copy(ctx, seen, gpu, bytes);
	for (i = 0; !err && i < n && seen[i] == (uint32_t)(i * 3 + 1); i++)
		;
	if (err)
		complain("cannot copy from the GPU", err);
	else if (i < n)
		err = complain("the GPU has not what the CPU wrote", -EIO);
	else
		printf("the GPU has all %zu numbers that the CPU wrote; the last one read back is "
		       "%u\n",
		       n, mapped[n - 1]);
	free(seen);
	return err;
}

static int pin(struct peerlane *ctx, int dev, void *gpu, size_t bytes)
{
	struct peerlane_pin p = { .address = (uintptr_t)gpu, .length = bytes };
	struct peerlane_unpin unpin = { 0 };
	char *map;
	int err = call(dev, PEERLANE_IOC_PIN, &p, "PIN");

	if (err)
		return err;
	unpin.handle = p.handle;
	err = list_handles(dev);
	if (!err)
		err = show_pages(dev, p.handle);
	if (err)
		goto out_unpin;
	map = mmap(NULL, p.map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, dev, (off_t)p.map_offset);
	if (map == MAP_FAILED) {
		err = complain("mmap", -errno);
		goto out_unpin;
	}
	err = look(ctx, gpu, (uint32_t *)(void *)(map + p.skip_bytes), bytes);
	munmap(map, p.map_bytes);
out_unpin:
	return call(dev, PEERLANE_IOC_UNPIN, &unpin, "UNPIN") ? -EIO : err;
}

int main(int argc, char **argv)
{
	unsigned long kib = argc > 1 ? strtoul(argv[1], NULL, 10) : DEFAULT_KIB;
	struct peerlane *ctx;
	int dev, err;
	void *gpu;

	if (argc > 2 || !kib || kib > MAX_KIB) {
		fprintf(stderr,
			"usage: pin_mmap [KIB]\n"
			"Pins KIB KiB of GPU memory (1024), lists its pages and maps it.\n");
		return EXIT_FAILURE;
	}
	dev = open_module();
	if (dev < 0)
		return EXIT_FAILURE;
	err = peerlane_open(&ctx, NULL);
	if (err) {
		complain("no GPU", err);
		close(dev);
		return EXIT_FAILURE;
	}
	printf("back end %s\n", peerlane_backend(ctx));
	err = peerlane_gpu_alloc(ctx, 0, kib * 1024, &gpu);
	if (err) {
		complain("no GPU memory", err);
	} else {
		err = pin(ctx, dev, gpu, kib * 1024);
		peerlane_gpu_free(ctx, gpu);
	}
	peerlane_close(ctx);
	close(dev);
	return err ? EXIT_FAILURE : EXIT_SUCCESS;
}
