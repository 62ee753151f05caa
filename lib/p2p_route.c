// SPDX-License-Identifier: MIT
/* Whether a drive may write a GPU's memory: what the module says, and a test. */
#include "p2p.h"

#include "context.h"
#include "fabric.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define MAX_ROUTES 256
/* Stacked devices on stacked devices. */
#define MAX_DEPTH 4
/* Transfers that may fail where the other way works. */
#define MAX_MISLED 8

static void refuse(struct pl_p2p_route *r, const char *why, const char *fix)
{
	r->verdict = PEERLANE_ROUTE_NO;
	pl_text(r->why, sizeof(r->why), "%s", why);
	pl_text(r->fix, sizeof(r->fix), "%s", fix);
}

/* How it is called that moves the data. */
#define DRIVE "drive"
#define ADAPTER "drive's RDMA adapter"

/* The module says that this cannot be done: a reason of the PCI device, called @who. */
static void refuse_pci(struct pl_p2p_route *r, unsigned int reason, const char *who)
{
	char why[sizeof(r->why)];

	switch (reason) {
	case PEERLANE_REASON_TOPOLOGY:
		pl_text(why, sizeof(why),
			"the kernel does not allow transfers between this %s and GPU: no common "
			"PCIe switch, or ACS redirects them",
			who);
		refuse(r, why,
		       "put both below one switch, switch ACS off there, or load peerlane with "
		       "pages=generic");
		break;
	case PEERLANE_REASON_SWIOTLB:
		pl_text(why, sizeof(why),
			"the kernel bounces all transfers of the %s (swiotlb=force)", who);
		refuse(r, why, "remove swiotlb=force from the kernel's command line");
		break;
	case PEERLANE_REASON_DMA_MASK:
		pl_text(why, sizeof(why), "the %s cannot address the GPU's memory: it is bounced",
			who);
		refuse(r, why, "let the firmware place the BAR lower, or switch the IOMMU on");
		break;
	default:
		refuse(r, "the module gives a reason that this library does not know",
		       "update libpeerlane");
		break;
	}
}

static void refuse_reason(struct pl_p2p_route *r, unsigned int reason)
{
	switch (reason) {
	case PEERLANE_REASON_NO_DEVICE:
		refuse(r,
		       "the file system does not name one block device that moves its data "
		       "(btrfs, overlay, network...)",
		       "use ext4 or xfs on a local drive");
		break;
	case PEERLANE_REASON_NOT_PCI:
		refuse(r, "the drive is not a PCI device", "use an NVMe drive in this machine");
		break;
	case PEERLANE_REASON_QUEUE:
		refuse(r, "the block device does not take peer-to-peer pages",
		       "load peerlane with pages=generic");
		break;
	case PEERLANE_REASON_REVOKED:
		refuse(r, "the GPU memory was freed", "");
		r->revoked = true;
		break;
	default:
		refuse_pci(r, reason, DRIVE);
		break;
	}
}

/* --- the test --- */

static int read_host(void *arg, void *to, size_t bytes, off_t offset)
{
	const int *fd = arg;

	return pread(*fd, to, bytes, offset) == (ssize_t)bytes;
}

static int read_gpu(void *arg, const struct pl_p2p_pin *pin, size_t bytes, off_t offset)
{
	return read_host(arg, pin->map + pin->skip, bytes, offset);
}

/* Whether what is read from @fd, which has O_DIRECT, reaches the GPU; it has @size bytes, in blocks of
 * @align. Refuses @r if not; true if it does, and false also if that cannot be told. */
static bool test(struct peerlane *ctx, struct pl_p2p_route *r, int fd, int64_t size, size_t align,
		 int gpu)
{
	struct pl_p2p_trial trial = { .read_host = read_host,
				      .read_gpu = read_gpu,
				      .arg = &fd,
				      .size = size,
				      .align = align };
	int result = pl_p2p_trial_run(ctx, &trial, gpu);

	if (result == 0)
		refuse(r, PL_P2P_TRIAL_FAILED, PL_P2P_TRIAL_FIX);
	pl_log(ctx, result ? 2 : 0, "p2p: test of drive %u:%u and GPU %" PRIx64 ": %s",
	       major(r->dev), minor(r->dev), r->gpu_pci, pl_p2p_trial_word(result));
	return result > 0;
}

/* --- the question --- */

struct asking {
	struct peerlane *ctx;
	struct pl_p2p_route *r;
	const struct pl_p2p_pin *pin;
	int gpu;
};

static void ask(const struct asking *a, int fd, unsigned int depth, bool member);

/* --- drives of other machines --- */

static void refuse_far(struct pl_p2p_route *r, const char *transport, enum pl_fabric_way way)
{
	const char *why, *fix;

	pl_fabric_explain(transport, way, &why, &fix);
	refuse(r, why, fix);
}

static void refuse_adapter(struct pl_p2p_route *r, unsigned int reason)
{
	if (reason == PEERLANE_REASON_NOT_PCI)
		refuse_far(r, "rdma", PL_FABRIC_UNKNOWN);
	else if (reason == PEERLANE_REASON_QUEUE)
		refuse(r,
		       "the drive is reached by network (NVMe over RDMA), and the kernel's driver "
		       "does not take peer-to-peer pages for this adapter",
		       "use a newer kernel (7.2 does), or load peerlane with pages=generic");
	else if (reason == PEERLANE_REASON_REVOKED)
		refuse_reason(r, reason);
	else
		refuse_pci(r, reason, ADAPTER);
}

struct far {
	const struct asking *a;
	struct peerlane_route call;
};

/* One of the controllers of a drive: its adapter must be able to, since the kernel may take any. */
static void ask_controller(void *arg, const char *controller, const char *transport)
{
	struct far *far = arg;
	const struct asking *a = far->a;
	struct pl_fabric_adapter adapter;
	struct peerlane_route call = far->call;

	if (a->r->verdict == PEERLANE_ROUTE_NO)
		return;
	if (strcmp(transport, "rdma") != 0) {
		refuse_far(a->r, transport, PL_FABRIC_UNKNOWN);
	} else if (!pl_fabric_adapter("/sys", controller, &adapter)) {
		refuse_far(a->r, transport, PL_FABRIC_UNKNOWN);
	} else if (adapter.software) {
		refuse_far(a->r, transport, PL_FABRIC_SOFTWARE);
	} else if (!a->ctx->p2p.asks_adapters) {
		refuse_far(a->r, transport, PL_FABRIC_OLD);
	} else {
		memcpy(a->r->adapter, adapter.name, sizeof(a->r->adapter));
		call.adapter_pci = (uint32_t)adapter.pci;
		call.adapter_domain_high = (uint32_t)(adapter.pci >> 32);
		if (ioctl(a->ctx->p2p.fd, PEERLANE_IOC_ROUTE, &call))
			refuse(a->r, strerrordesc_np(errno), "");
		else if (call.verdict == PEERLANE_ROUTE_NO)
			refuse_adapter(a->r, call.reason);
		else if (call.verdict < a->r->verdict)
			a->r->verdict = call.verdict;
		pl_log(a->ctx, 2, "p2p: drive %u:%u is reached by RDMA adapter %s, reason %u",
		       major(a->r->dev), minor(a->r->dev), adapter.name, call.reason);
	}
}

/* A device that is not on PCI: the most likely is a drive of another machine. */
static void ask_far(const struct asking *a, int fd, dev_t dev)
{
	struct far far = { .a = a, .call = { .handle = a->pin->handle, .fd = fd } };
	char path[64];

	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u", major(dev), minor(dev));
	if (!pl_fabric_each(path, ask_controller, &far))
		refuse_reason(a->r, PEERLANE_REASON_NOT_PCI);
}

/* --- stacked devices --- */

/* A device that no others lie below. */
static void refuse_alone(struct pl_p2p_route *r, dev_t dev)
{
	char path[64];

	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/loop", major(dev), minor(dev));
	if (!access(path, F_OK))
		refuse(r, "a loop device: its data goes by way of another file",
		       "use the file below the loop device itself");
	else
		refuse(r, "a block device with no drive below it that could be asked",
		       "use a drive, or md or dm on drives");
}

/* Every member of a stacked device must be able to. */
static void ask_members(const struct asking *a, dev_t dev, unsigned int depth)
{
	char path[300];
	struct dirent *entry;
	unsigned int nr = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/slaves", major(dev), minor(dev));
	dir = opendir(path);
	if (!dir) {
		snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/../slaves", major(dev),
			 minor(dev));
		dir = opendir(path);
	}
	while (dir && depth && a->r->verdict != PEERLANE_ROUTE_NO && (entry = readdir(dir))) {
		int fd;

		if (entry->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/dev/%s", entry->d_name);
		fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
		nr++;
		if (fd < 0) {
			pl_text(path, sizeof(path), "a member of the stacked device, %s: %s",
				entry->d_name, strerrordesc_np(errno));
			refuse(a->r, path, "allow this user to open it for reading (group disk)");
			break;
		}
		ask(a, fd, depth - 1, true);
		close(fd);
	}
	if (dir)
		closedir(dir);
	if (!nr)
		refuse_alone(a->r, dev);
}

/* A file's own data may all be on one of the members, so each is tested by itself, unless the kernel
 * vouches for it. */
static void test_member(const struct asking *a, int fd)
{
	uint64_t bytes = 0;

	if (ioctl(fd, BLKGETSIZE64, &bytes) ||
	    !test(a->ctx, a->r, fd, (int64_t)bytes, PL_P2P_TEST_BYTES, a->gpu))
		a->r->untested = true;
}

/* Lowers the verdict to that of the device below @fd. */
static void ask(const struct asking *a, int fd, unsigned int depth, bool member)
{
	struct peerlane_route call = { .handle = a->pin->handle, .fd = fd };
	bool far;
	dev_t dev;

	if (ioctl(a->ctx->p2p.fd, PEERLANE_IOC_ROUTE, &call)) {
		refuse(a->r, strerrordesc_np(errno), "");
		return;
	}
	dev = makedev(call.device_major, call.device_minor);
	if (call.verdict == PEERLANE_ROUTE_NO && call.reason == PEERLANE_REASON_VIRTUAL) {
		ask_members(a, dev, depth);
		return;
	}
	far = call.verdict == PEERLANE_ROUTE_NO && call.reason == PEERLANE_REASON_NOT_PCI;
	if (far)
		ask_far(a, fd, dev);
	else if (call.verdict == PEERLANE_ROUTE_NO)
		refuse_reason(a->r, call.reason);
	else if (call.verdict < a->r->verdict)
		a->r->verdict = call.verdict;
	if (member && (far || call.verdict == PEERLANE_ROUTE_TEST) &&
	    a->r->verdict == PEERLANE_ROUTE_TEST)
		test_member(a, fd);
}

/* --- the table --- */

bool pl_p2p_route_open(const struct pl_p2p_route *r)
{
	return r->verdict == PEERLANE_ROUTE_YES || (r->verdict == PEERLANE_ROUTE_TEST && r->tested);
}

struct pl_p2p_route *pl_p2p_route_get(struct peerlane *ctx, const struct peerlane_file *file,
				      struct pl_p2p_pin *pin, int gpu)
{
	struct pl_p2p *p = &ctx->p2p;
	struct pl_p2p_route *r = p->routes;
	struct asking a = { .ctx = ctx, .pin = pin, .gpu = gpu };

	while (r && (r->gpu_pci != pin->gpu_pci || r->dev != file->dev))
		r = r->next;
	if (!r) {
		r = p->nr_routes < MAX_ROUTES ? calloc(1, sizeof(*r)) : NULL;
		if (!r)
			return NULL;
		r->gpu_pci = pin->gpu_pci;
		r->dev = file->dev;
		r->verdict = PEERLANE_ROUTE_YES;
		a.r = r;
		ask(&a, file->fd >= 0 ? file->fd : file->fd_direct, MAX_DEPTH, false);
		if (r->revoked) {
			__atomic_store_n(&pin->dead, true, __ATOMIC_RELEASE);
			free(r);
			return NULL;
		}
		r->next = p->routes;
		p->routes = r;
		p->nr_routes++;
	}
	if (r->verdict != PEERLANE_ROUTE_NO && r->untested) {
		refuse(r, "a drive of the stacked device could not be tested: it seems to be empty",
		       "write something to it, then open the library again");
	} else if (r->verdict != PEERLANE_ROUTE_NO && !r->tested) {
		pl_text(r->why, sizeof(r->why),
			"this drive and GPU are not tested yet: that needs a file that can be "
			"read and holds data");
		r->fix[0] = '\0';
		if (file->readable)
			r->tested =
				test(ctx, r, file->fd_direct, pl_file_size(file), file->align, gpu);
	}
	return r;
}

void pl_p2p_misled(struct peerlane *ctx, const struct pl_seg *seg, int err)
{
	char why[160];

	if (__atomic_add_fetch(&seg->route->misled, 1, __ATOMIC_ACQ_REL) != MAX_MISLED)
		return;
	pthread_mutex_lock(&ctx->p2p.lock);
	pl_text(why, sizeof(why), "transfers failed (%s) that worked through host memory",
		strerrordesc_np(-err));
	refuse(seg->route, why, "see dmesg");
	pthread_mutex_unlock(&ctx->p2p.lock);
	pl_log(ctx, 0, "p2p: %s: not used any more", why);
}
