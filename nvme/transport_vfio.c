/* SPDX-License-Identifier: MIT */
/*
 * Controllers that vfio-pci has, by the kernel's container and group interface (type 1). The address
 * is a PCI address ("0000:01:00.0"). The group of the device is opened, so that of several devices
 * which the IOMMU cannot tell apart only one can be used at a time.
 */
#include "iova.h"
#include "mapping.h"
#include "transports.h"
#include "why.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/pci_regs.h>
#include <linux/vfio.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096u
#define LARGE ((uint64_t)1 << 21)
#define NR_BARS 6u
/* Address 0 and its neighbours are left free, so that a wrong 0 is seen. */
#define LOWEST ((uint64_t)1 << 20)
#define MAX_RANGES 64u

struct vfio {
	struct pl_nvme_transport base;
	char pci[32];
	int container, group, device,
		asked;	 /* descriptors or -1; asked: the kernel wants it back */
	uint64_t config; /* offset of the configuration space in the device */
	struct pl_iova iova;
	bool has_iova;
	struct pl_nvme_nodes nodes;
	pthread_mutex_t lock; /* guards windows, which are mapped when first asked for */
	struct pl_nvme_window windows[NR_BARS];
};

static struct vfio *of(struct pl_nvme_transport *t)
{
	return (struct vfio *)t;
}

/* ------------------------------------------------------------------ the IOMMU */

/* The ranges in an answer of the kernel, those below LOWEST left out. */
static size_t read_ranges(const char *info, size_t bytes, struct pl_iova_range *out)
{
	const struct vfio_iommu_type1_info *head = (const void *)info;
	uint32_t at = head->flags & VFIO_IOMMU_INFO_CAPS ? head->cap_offset : 0;
	size_t nr = 0;

	while (at && at <= bytes - sizeof(struct vfio_info_cap_header)) {
		const struct vfio_iommu_type1_info_cap_iova_range *cap = (const void *)(info + at);

		if (cap->header.id == VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE) {
			for (uint32_t i = 0; i < cap->nr_iovas && nr < MAX_RANGES; i++) {
				if (cap->iova_ranges[i].end < LOWEST)
					continue;
				out[nr].first = cap->iova_ranges[i].start;
				if (out[nr].first < LOWEST)
					out[nr].first = LOWEST;
				out[nr++].last = cap->iova_ranges[i].end;
			}
		}
		at = cap->header.next;
	}
	return nr;
}

/* Learn which addresses the IOMMU takes. Kernels that do not say take all of 39 bits. */
static int init_iova(struct vfio *v)
{
	struct pl_iova_range ranges[MAX_RANGES] = { { LOWEST, ((uint64_t)1 << 39) - 1 } };
	char info[4096] __attribute__((aligned(8))) = { 0 };
	struct vfio_iommu_type1_info *head = (void *)info;
	size_t nr;
	int err;

	head->argsz = sizeof(info);
	if (ioctl(v->container, VFIO_IOMMU_GET_INFO, info))
		return -errno;
	nr = head->argsz <= sizeof(info) ? read_ranges(info, sizeof(info), ranges) : 0;
	err = pl_iova_init(&v->iova, ranges, nr ? nr : 1);
	v->has_iova = !err;
	return err;
}

/* ------------------------------------------------------------------ open and close */

static int open_group(struct vfio *v)
{
	struct vfio_group_status status = { .argsz = sizeof(status) };
	char path[128], link[256];
	ssize_t got;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s", v->pci);
	if (access(path, F_OK)) {
		pl_nvme_why("there is no such PCI device");
		return -ENODEV;
	}
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/iommu_group", v->pci);
	got = readlink(path, link, sizeof(link) - 1);
	if (got < 0) {
		pl_nvme_why("it is not behind an IOMMU, which vfio needs");
		return -ENODEV;
	}
	link[got] = 0;
	snprintf(path, sizeof(path), "/dev/vfio/%.32s", strrchr(link, '/') + 1);
	v->group = open(path, O_RDWR | O_CLOEXEC);
	if (v->group < 0 && errno == ENOENT)
		pl_nvme_why("not bound: the driver vfio-pci does not have it");
	if (v->group < 0)
		return errno == ENOENT ? -ENODEV : errno == EPERM ? -EACCES : -errno;
	if (ioctl(v->group, VFIO_GROUP_GET_STATUS, &status))
		return -errno;
	/* Another driver has a device of the group. */
	return status.flags & VFIO_GROUP_FLAGS_VIABLE ? 0 : -EBUSY;
}

static int open_container(struct vfio *v)
{
	v->container = open("/dev/vfio/vfio", O_RDWR | O_CLOEXEC);
	if (v->container < 0)
		return errno == ENOENT ? -ENODEV : -errno;
	if (ioctl(v->container, VFIO_GET_API_VERSION) != VFIO_API_VERSION ||
	    ioctl(v->container, VFIO_CHECK_EXTENSION, VFIO_TYPE1v2_IOMMU) <= 0)
		return -ENODEV;
	if (ioctl(v->group, VFIO_GROUP_SET_CONTAINER, &v->container) ||
	    ioctl(v->container, VFIO_SET_IOMMU, VFIO_TYPE1v2_IOMMU))
		return -errno;
	return init_iova(v);
}

/* Let the device answer, and reach memory or not. */
static int set_master(struct vfio *v, bool master)
{
	uint16_t command;

	if (pread(v->device, &command, 2, (off_t)v->config + PCI_COMMAND) != 2)
		return -EIO;
	command = (uint16_t)(command & ~PCI_COMMAND_MASTER) | PCI_COMMAND_MEMORY;
	if (master)
		command |= PCI_COMMAND_MASTER;
	return pwrite(v->device, &command, 2, (off_t)v->config + PCI_COMMAND) == 2 ? 0 : -EIO;
}

/* Be told when the kernel wants the device back: it waits until then. Not every kernel can. */
static void ask_to_be_told(struct vfio *v)
{
	/* The descriptor follows the header. */
	union {
		struct vfio_irq_set set;
		char bytes[sizeof(struct vfio_irq_set) + sizeof(int32_t)];
	} irq = { .set = { .argsz = sizeof(irq.bytes),
			   .flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER,
			   .index = VFIO_PCI_REQ_IRQ_INDEX,
			   .count = 1 } };

	v->asked = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	memcpy(irq.set.data, &v->asked, sizeof(int32_t));
	if (v->asked >= 0 && ioctl(v->device, VFIO_DEVICE_SET_IRQS, &irq)) {
		close(v->asked);
		v->asked = -1;
	}
}

static int open_device(struct vfio *v)
{
	struct vfio_region_info config = { .argsz = sizeof(config),
					   .index = VFIO_PCI_CONFIG_REGION_INDEX };

	v->device = ioctl(v->group, VFIO_GROUP_GET_DEVICE_FD, v->pci);
	if (v->device < 0)
		return errno == EINVAL ? -ENODEV : -errno;
	if (ioctl(v->device, VFIO_DEVICE_GET_REGION_INFO, &config))
		return -errno;
	v->config = config.offset;
	ask_to_be_told(v);
	return set_master(v, true);
}

/* Where a BAR is on the bus; 0 if that cannot be told. */
static uint64_t bus_of(const struct vfio *v, unsigned int index)
{
	unsigned long long start = 0;
	char path[128];
	FILE *file;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/resource", v->pci);
	file = fopen(path, "re");
	if (!file)
		return 0;
	for (unsigned int i = 0; i <= index; i++)
		if (fscanf(file, "%llx %*x %*x", &start) != 1)
			start = 0;
	fclose(file);
	return start;
}

static int map_window(struct vfio *v, unsigned int index)
{
	struct vfio_region_info bar = { .argsz = sizeof(bar), .index = index };
	void *at;

	if (ioctl(v->device, VFIO_DEVICE_GET_REGION_INFO, &bar))
		return -errno;
	if (!bar.size || !(bar.flags & VFIO_REGION_INFO_FLAG_MMAP))
		return -EOPNOTSUPP;
	at = mmap(NULL, bar.size, PROT_READ | PROT_WRITE, MAP_SHARED, v->device, (off_t)bar.offset);
	if (at == MAP_FAILED)
		return -errno;
	v->windows[index] =
		(struct pl_nvme_window){ .ptr = at, .bytes = bar.size, .bus = bus_of(v, index) };
	return 0;
}

static void vfio_close(struct pl_nvme_transport *t);

static int vfio_open(const char *address, struct pl_nvme_transport **out)
{
	struct vfio *v;
	int err;

	if (strspn(address, "0123456789abcdefABCDEF:.") != strlen(address) ||
	    !strchr(address, ':') || strstr(address, "..") || strlen(address) >= sizeof(v->pci))
		return -EINVAL;
	v = calloc(1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	v->base.ops = &pl_nvme_transport_vfio;
	v->container = v->group = v->device = v->asked = -1;
	snprintf(v->pci, sizeof(v->pci), "%s", address);
	pl_nvme_nodes_init(&v->nodes);
	pthread_mutex_init(&v->lock, NULL);
	err = open_group(v);
	if (!err)
		err = open_container(v);
	if (!err)
		err = open_device(v);
	if (!err)
		err = map_window(v, 0);
	if (err) {
		vfio_close(&v->base);
		return err;
	}
	v->base.bar0 = v->windows[0];
	*out = &v->base;
	return 0;
}

/* ------------------------------------------------------------------ memory */

static int map_dma(struct vfio *v, uintptr_t start, uint64_t iova, uint64_t bytes)
{
	struct vfio_iommu_type1_dma_map map = { .argsz = sizeof(map),
						.flags = VFIO_DMA_MAP_FLAG_READ |
							 VFIO_DMA_MAP_FLAG_WRITE,
						.vaddr = start,
						.iova = iova,
						.size = bytes };

	return ioctl(v->container, VFIO_IOMMU_MAP_DMA, &map) ? -errno : 0;
}

static void unmap_dma(struct vfio *v, uint64_t iova, uint64_t bytes)
{
	struct vfio_iommu_type1_dma_unmap unmap = { .argsz = sizeof(unmap),
						    .iova = iova,
						    .size = bytes };

	ioctl(v->container, VFIO_IOMMU_UNMAP_DMA, &unmap);
}

/*
 * Map the pages that @bytes from @ptr on lie in. The addresses are one run. Much memory is said in
 * large pages, at which it lies as it does in the process, so that the IOMMU can use them too.
 */
static int map_memory(struct vfio *v, void *ptr, size_t bytes, struct pl_nvme_node **out)
{
	uintptr_t start = (uintptr_t)ptr & ~(uintptr_t)(PAGE - 1);
	uint64_t span = ((uintptr_t)ptr + bytes - start + PAGE - 1) & ~(uint64_t)(PAGE - 1);
	uint64_t page = span < LARGE ? PAGE : LARGE, skip = start & (page - 1);
	uint64_t block = (skip + span + page - 1) & ~(page - 1), iova;
	struct pl_nvme_node *node;
	int err;

	node = pl_nvme_node_new(block / page);
	if (!node)
		return -ENOMEM;
	err = pl_iova_alloc(&v->iova, block, page, &iova);
	if (err)
		goto err_node;
	err = map_dma(v, start, iova + skip, span);
	if (err)
		goto err_iova;
	node->token = iova + skip;
	node->span = span;
	node->m.cpu = ptr;
	node->m.bytes = bytes;
	node->m.offset = skip + ((uintptr_t)ptr - start);
	node->m.page_bytes = page;
	node->m.nr_pages = (node->m.offset + bytes + page - 1) / page;
	for (size_t i = 0; i < node->m.nr_pages; i++)
		node->pages[i] = iova + i * page;
	pl_nvme_nodes_add(&v->nodes, node);
	*out = node;
	return 0;

err_iova:
	pl_iova_free(&v->iova, iova, block);
err_node:
	free(node);
	return err;
}

static void end(struct vfio *v, struct pl_nvme_node *node)
{
	uint64_t page = node->m.page_bytes, skip = node->token & (page - 1);

	unmap_dma(v, node->token, node->span);
	if (node->owned)
		munmap(node->m.cpu, node->owned);
	pl_iova_free(&v->iova, node->token - skip, (skip + node->span + page - 1) & ~(page - 1));
	free(node);
}

/*
 * Memory of a GPU can be mapped where the CPU reaches it by an ordinary mapping: of a BAR, or of the
 * simulated GPU. Not by that of /dev/peerlane: a mapping here has no end, and whoever frees the memory
 * would wait for it. Newer kernels refuse that by themselves; older ones do not, so they are not asked.
 */
static int vfio_map(struct pl_nvme_transport *t, const struct pl_nvme_region *region,
		    const struct pl_nvme_mapping **out)
{
	bool gpu = region->kind == PL_NVME_GPU;
	void *ptr = gpu ? region->cpu : region->ptr;
	struct pl_nvme_node *node;
	int err;

	if (!region->bytes || (uintptr_t)ptr > UINTPTR_MAX - region->bytes ||
	    region->bytes > SIZE_MAX / 2)
		return -EINVAL;
	if (gpu && (!ptr || region->pin_fd >= 0))
		return -EOPNOTSUPP;
	if (!ptr)
		return -EFAULT;
	err = map_memory(of(t), ptr, region->bytes, &node);
	if (err)
		return gpu && err != -ENOMEM && err != -ENOSPC ? -EOPNOTSUPP : err;
	*out = &node->m;
	return 0;
}

static void vfio_unmap(struct pl_nvme_transport *t, const struct pl_nvme_mapping *mapping)
{
	struct pl_nvme_node *node = pl_nvme_node_of(mapping);

	pl_nvme_nodes_remove(&of(t)->nodes, node);
	end(of(t), node);
}

static int vfio_alloc(struct pl_nvme_transport *t, size_t bytes, const struct pl_nvme_mapping **out)
{
	struct pl_nvme_node *node;
	void *at;
	int err;

	if (!bytes || bytes > SIZE_MAX / 2)
		return -EINVAL;
	at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		return -ENOMEM;
	/* A child has no use for it, and no copies of it shall be made for one. */
	madvise(at, bytes, MADV_DONTFORK);
	err = map_memory(of(t), at, bytes, &node);
	if (err) {
		munmap(at, bytes);
		return err;
	}
	node->owned = bytes;
	*out = &node->m;
	return 0;
}

/* ------------------------------------------------------------------ the rest */

/* Asked for by the kernel, which does not take it away by force; or pulled out. */
static bool vfio_gone(struct pl_nvme_transport *t)
{
	struct vfio *v = of(t);
	uint16_t vendor = 0;
	uint64_t nr;

	if (v->asked >= 0 && read(v->asked, &nr, sizeof(nr)) == sizeof(nr)) {
		/* So that it is seen the next time, too. */
		nr = 1;
		return write(v->asked, &nr, sizeof(nr)) == sizeof(nr);
	}
	return pread(v->device, &vendor, 2, (off_t)v->config) != 2 || vendor == 0xffff;
}

static int vfio_window(struct pl_nvme_transport *t, unsigned int index, struct pl_nvme_window *out)
{
	struct vfio *v = of(t);
	int err = 0;

	if (index >= NR_BARS)
		return -EOPNOTSUPP;
	pthread_mutex_lock(&v->lock);
	if (!v->windows[index].ptr)
		err = map_window(v, index);
	if (!err)
		*out = v->windows[index];
	pthread_mutex_unlock(&v->lock);
	return err;
}

static int vfio_reset(struct pl_nvme_transport *t)
{
	if (ioctl(of(t)->device, VFIO_DEVICE_RESET))
		return errno == ENOTTY || errno == EINVAL ? -EOPNOTSUPP : -errno;
	return set_master(of(t), true);
}

static void vfio_close(struct pl_nvme_transport *t)
{
	struct vfio *v = of(t);
	struct pl_nvme_node *node;

	/* Should it be enabled still: it reaches no memory from now on. */
	if (v->device >= 0)
		set_master(v, false);
	while ((node = pl_nvme_nodes_pop(&v->nodes)))
		end(v, node);
	for (unsigned int i = 0; i < NR_BARS; i++)
		if (v->windows[i].ptr)
			munmap((void *)v->windows[i].ptr, v->windows[i].bytes);
	if (v->asked >= 0)
		close(v->asked);
	if (v->device >= 0)
		close(v->device);
	if (v->container >= 0)
		close(v->container);
	if (v->group >= 0)
		close(v->group);
	if (v->has_iova)
		pl_iova_fini(&v->iova);
	pl_nvme_nodes_fini(&v->nodes);
	pthread_mutex_destroy(&v->lock);
	free(v);
}

const struct pl_nvme_transport_ops pl_nvme_transport_vfio = {
	.name = "vfio",
	.open = vfio_open,
	.close = vfio_close,
	.map = vfio_map,
	.unmap = vfio_unmap,
	.alloc = vfio_alloc,
	.free = vfio_unmap,
	.gone = vfio_gone,
	.window = vfio_window,
	.reset = vfio_reset,
};
