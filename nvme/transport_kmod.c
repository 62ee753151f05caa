/* SPDX-License-Identifier: MIT */
/*
 * Controllers that the kernel module peerlane_nvme gives to programs. The address is a PCI address
 * ("0000:01:00.0"), or the name of the device with or without "/dev/" ("peerlane-nvme0").
 */
#include "confined.h"
#include "mapping.h"
#include "transports.h"
#include "why.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <uapi/peerlane_nvme.h>
#include <unistd.h>

#define PAGE 4096u
#define NR_BARS 6u
#define DEVICE "peerlane-nvme"

struct kmod {
	struct pl_nvme_transport base;
	int fd;
	struct pl_nvme_nodes nodes;
	struct peerlane_nvmedev_info info;
	pthread_mutex_t lock; /* guards windows, which are mapped when first asked for */
	void *windows[NR_BARS];
};

static struct kmod *of(struct pl_nvme_transport *t)
{
	return (struct kmod *)t;
}

static int call(int fd, unsigned long request, void *argument)
{
	int ret;

	do {
		ret = ioctl(fd, request, argument);
	} while (ret && errno == EINTR);
	return ret ? -errno : 0;
}

/* The name of the device that belongs to a PCI address. */
static int find_name(const char *pci, char *name, size_t bytes)
{
	char path[128];
	struct dirent *entry;
	DIR *dir;
	int err = -ENODEV;

	if ((size_t)snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s", pci) >= sizeof(path))
		return -EINVAL;
	if (access(path, F_OK)) {
		pl_nvme_why("there is no such PCI device");
		return -ENODEV;
	}
	if ((size_t)snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/misc", pci) >=
	    sizeof(path))
		return -EINVAL;
	/* What follows finds nothing if another driver has it. */
	pl_nvme_why("not bound: the driver peerlane_nvme does not have it");
	dir = opendir(path);
	if (!dir)
		return -ENODEV;
	while ((entry = readdir(dir)))
		if (!strncmp(entry->d_name, DEVICE, strlen(DEVICE)) &&
		    strlen(entry->d_name) < bytes) {
			snprintf(name, bytes, "%s", entry->d_name);
			err = 0;
		}
	closedir(dir);
	if (!err)
		pl_nvme_why("%s", "");
	return err;
}

/* The module has refused to open it: what it would take. */
static void say_missing(const char *name)
{
	char path[160], words[64] = "", text[240];
	FILE *file;

	snprintf(path, sizeof(path), "/sys/class/misc/%s/device/" PL_NVME_CONFINED, name);
	file = fopen(path, "re");
	if (!file)
		return;
	if (fgets(words, sizeof(words), file)) {
		words[strcspn(words, "\n")] = '\0';
		pl_nvme_confined_text(words, text, sizeof(text));
		pl_nvme_why("needs %s", text);
	}
	fclose(file);
}

static int open_device(const char *address)
{
	char name[64], path[80];
	int fd, err;

	if (!strncmp(address, "/dev/", 5))
		address += 5;
	if (!strncmp(address, DEVICE, strlen(DEVICE))) {
		if (strlen(address) >= sizeof(name) || strchr(address, '/'))
			return -EINVAL;
		snprintf(name, sizeof(name), "%s", address);
	} else {
		/* A PCI address, and no way to another directory. */
		if (strspn(address, "0123456789abcdefABCDEF:.") != strlen(address) ||
		    !strchr(address, ':') || strstr(address, "..")) {
			pl_nvme_why("neither a PCI address, as 0000:01:00.0, nor " DEVICE "0");
			return -EINVAL;
		}
		err = find_name(address, name, sizeof(name));
		if (err)
			return err;
	}
	snprintf(path, sizeof(path), "/dev/%s", name);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0)
		return fd;
	err = errno;
	if (err == EPERM)
		say_missing(name);
	return err == ENOENT || err == ENXIO ? -ENODEV : err == EPERM ? -EACCES : -err;
}

static int map_bar(struct kmod *k, unsigned int i)
{
	void *at = mmap(NULL, k->info.bars[i].bytes, PROT_READ | PROT_WRITE, MAP_SHARED, k->fd,
			(off_t)PEERLANE_NVMEDEV_BAR_OFFSET(i));

	if (at == MAP_FAILED)
		return -errno;
	k->windows[i] = at;
	return 0;
}

/* As a client: registers to look at, doorbells to write. */
static int map_client_bar(struct kmod *k)
{
	size_t bytes = k->info.bars[0].bytes;
	char *at;

	if (bytes <= PAGE)
		return -EPROTO;
	at = mmap(NULL, bytes, PROT_READ, MAP_SHARED, k->fd, 0);
	if (at == MAP_FAILED)
		return -errno;
	k->windows[0] = at;
	at = mmap(at + PAGE, bytes - PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, k->fd,
		  PAGE);
	return at == MAP_FAILED ? -errno : 0;
}

static void kmod_close(struct pl_nvme_transport *t);

/* @fd: an open device, or a negative errno; or, of a client, what was granted. */
static int use(int fd, bool client, struct pl_nvme_transport **out)
{
	struct peerlane_nvmedev_hello hello = { .version = PEERLANE_NVMEDEV_UAPI_VERSION };
	struct kmod *k;
	int err;

	k = fd < 0 ? NULL : calloc(1, sizeof(*k));
	if (!k) {
		if (fd >= 0)
			close(fd);
		return fd < 0 ? fd : -ENOMEM;
	}
	k->base.ops = &pl_nvme_transport_kmod;
	pl_nvme_nodes_init(&k->nodes);
	pthread_mutex_init(&k->lock, NULL);
	k->fd = fd;
	err = call(k->fd, PEERLANE_NVMEDEV_IOC_HELLO, &hello);
	if (!err)
		err = call(k->fd, PEERLANE_NVMEDEV_IOC_INFO, &k->info);
	if (!err)
		err = client ? map_client_bar(k) : map_bar(k, 0);
	if (err) {
		kmod_close(&k->base);
		return err;
	}
	k->base.bar0 = (struct pl_nvme_window){ .ptr = k->windows[0],
						.bytes = k->info.bars[0].bytes,
						.bus = k->info.bars[0].bus };
	*out = &k->base;
	return 0;
}

static int kmod_open(const char *address, struct pl_nvme_transport **out)
{
	return use(open_device(address), false, out);
}

static int kmod_adopt(int fd, struct pl_nvme_transport **out)
{
	return use(fd, true, out);
}

static int kmod_grant(struct pl_nvme_transport *t, size_t bar0_bytes, struct pl_nvme_grant *out)
{
	struct peerlane_nvmedev_grant request = { .bar0_bytes = bar0_bytes };
	int err = call(of(t)->fd, PEERLANE_NVMEDEV_IOC_GRANT, &request);

	/* A module that is older than this. */
	if (err)
		return err == -ENOTTY ? -EOPNOTSUPP : err;
	*out = (struct pl_nvme_grant){ .fd = request.fd,
				       .kind = pl_nvme_transport_kmod.name,
				       .id = request.id };
	return 0;
}

static void kmod_revoke(struct pl_nvme_transport *t, uint64_t id)
{
	struct peerlane_nvmedev_revoke request = { .id = (uint32_t)id };

	call(of(t)->fd, PEERLANE_NVMEDEV_IOC_REVOKE, &request);
}

static uint64_t kmod_leaving(struct pl_nvme_transport *t, int *fd)
{
	struct peerlane_nvmedev_leaving request = { 0 };

	*fd = of(t)->fd;
	return call(of(t)->fd, PEERLANE_NVMEDEV_IOC_LEAVING, &request) ? 0 : request.id;
}

/* The mapping of @request, with the addresses put where @node has them. */
static int map_node(struct kmod *k, struct peerlane_nvmedev_map *request, size_t nr_room,
		    struct pl_nvme_node **out)
{
	struct pl_nvme_node *node;
	int err;

	if (nr_room > UINT32_MAX)
		return -ENOSPC;
	node = pl_nvme_node_new(nr_room);
	if (!node)
		return -ENOMEM;
	request->bus = (uintptr_t)node->pages;
	request->nr_room = (uint32_t)nr_room;
	err = call(k->fd, PEERLANE_NVMEDEV_IOC_MAP, request);
	if (err) {
		free(node);
		return err == -E2BIG ? -ENOSPC : err;
	}
	node->token = request->handle;
	node->m.bytes = request->bytes;
	node->m.offset = request->first;
	node->m.page_bytes = request->page_bytes;
	node->m.nr_pages = request->nr_pages;
	*out = node;
	return 0;
}

static int kmod_map(struct pl_nvme_transport *t, const struct pl_nvme_region *region,
		    const struct pl_nvme_mapping **out)
{
	struct peerlane_nvmedev_map request = { .bytes = region->bytes };
	struct pl_nvme_node *node;
	size_t nr_room;
	int err;

	if (!region->bytes || region->bytes > SIZE_MAX / 2)
		return -EINVAL;
	/* Of the smallest pages, and one more for memory that begins inside of one. */
	nr_room = region->bytes / PAGE + 2;
	if (region->kind == PL_NVME_GPU) {
		if (region->pin_fd < 0)
			return -EOPNOTSUPP;
		if (region->handle > UINT32_MAX)
			return -EINVAL;
		request.kind = PEERLANE_NVMEDEV_GPU;
		request.fd = region->pin_fd;
		request.pin = (uint32_t)region->handle;
		request.pin_offset = region->offset;
	} else {
		request.kind = PEERLANE_NVMEDEV_HOST;
		request.address = (uintptr_t)region->ptr;
	}
	err = map_node(of(t), &request, nr_room, &node);
	if (err)
		return err == -EBADF || err == -ENOENT ? -EINVAL : err;
	node->m.cpu = region->kind == PL_NVME_GPU ? region->cpu : region->ptr;
	pl_nvme_nodes_add(&of(t)->nodes, node);
	*out = &node->m;
	return 0;
}

static void kmod_unmap(struct pl_nvme_transport *t, const struct pl_nvme_mapping *mapping)
{
	struct pl_nvme_node *node = pl_nvme_node_of(mapping);
	struct peerlane_nvmedev_unmap request = { .handle = (uint32_t)node->token };

	pl_nvme_nodes_remove(&of(t)->nodes, node);
	if (node->owned)
		munmap(node->m.cpu, node->owned);
	call(of(t)->fd, PEERLANE_NVMEDEV_IOC_UNMAP, &request);
	free(node);
}

static int kmod_alloc(struct pl_nvme_transport *t, size_t bytes, const struct pl_nvme_mapping **out)
{
	struct peerlane_nvmedev_map request = { .kind = PEERLANE_NVMEDEV_ALLOC, .bytes = bytes };
	struct peerlane_nvmedev_unmap undo = { 0 };
	size_t span = (bytes + PAGE - 1) / PAGE * PAGE;
	struct pl_nvme_node *node;
	void *at;
	int err;

	err = map_node(of(t), &request, span / PAGE, &node);
	if (err)
		return err;
	at = mmap(NULL, span, PROT_READ | PROT_WRITE, MAP_SHARED, of(t)->fd,
		  (off_t)request.map_offset);
	if (at == MAP_FAILED) {
		err = -errno;
		undo.handle = request.handle;
		call(of(t)->fd, PEERLANE_NVMEDEV_IOC_UNMAP, &undo);
		free(node);
		return err;
	}
	node->m.cpu = at;
	node->owned = span;
	pl_nvme_nodes_add(&of(t)->nodes, node);
	*out = &node->m;
	return 0;
}

static bool kmod_gone(struct pl_nvme_transport *t)
{
	struct peerlane_nvmedev_info info = { 0 };

	return call(of(t)->fd, PEERLANE_NVMEDEV_IOC_INFO, &info) == -ENODEV;
}

static bool kmod_stopped(struct pl_nvme_transport *t)
{
	struct peerlane_nvmedev_info info = { 0 };

	return !call(of(t)->fd, PEERLANE_NVMEDEV_IOC_INFO, &info) &&
	       info.flags & PEERLANE_NVMEDEV_STOPPED;
}

static int kmod_window(struct pl_nvme_transport *t, unsigned int index, struct pl_nvme_window *out)
{
	struct kmod *k = of(t);
	int err = 0;

	if (index >= NR_BARS || !k->info.bars[index].bytes)
		return -EOPNOTSUPP;
	pthread_mutex_lock(&k->lock);
	if (!k->windows[index])
		err = map_bar(k, index);
	pthread_mutex_unlock(&k->lock);
	if (err)
		return err;
	*out = (struct pl_nvme_window){ .ptr = k->windows[index],
					.bytes = k->info.bars[index].bytes,
					.bus = k->info.bars[index].bus };
	return 0;
}

static int kmod_reset(struct pl_nvme_transport *t)
{
	return call(of(t)->fd, PEERLANE_NVMEDEV_IOC_RESET, NULL);
}

/* The module stops the controller when its file is closed, and only then ends the mappings. */
static void kmod_close(struct pl_nvme_transport *t)
{
	struct kmod *k = of(t);
	struct pl_nvme_node *node;

	for (unsigned int i = 0; i < NR_BARS; i++)
		if (k->windows[i])
			munmap(k->windows[i], k->info.bars[i].bytes);
	while ((node = pl_nvme_nodes_pop(&k->nodes))) {
		if (node->owned)
			munmap(node->m.cpu, node->owned);
		free(node);
	}
	if (k->fd >= 0)
		close(k->fd);
	pl_nvme_nodes_fini(&k->nodes);
	pthread_mutex_destroy(&k->lock);
	free(k);
}

const struct pl_nvme_transport_ops pl_nvme_transport_kmod = {
	.name = "kmod",
	.open = kmod_open,
	.close = kmod_close,
	.map = kmod_map,
	.unmap = kmod_unmap,
	.alloc = kmod_alloc,
	.free = kmod_unmap,
	.gone = kmod_gone,
	.window = kmod_window,
	.reset = kmod_reset,
	.stopped = kmod_stopped,
	.grant = kmod_grant,
	.leaving = kmod_leaving,
	.revoke = kmod_revoke,
	.adopt = kmod_adopt,
};
