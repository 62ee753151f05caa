// SPDX-License-Identifier: MIT
/* Whether a drive may write a GPU's memory: what the module says, and a test. */
#include "p2p.h"

#include "context.h"
#include "fabric.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
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
	case PEERLANE_REASON_TOPOLOGY:
		refuse(r,
		       "the kernel does not allow transfers between this drive and GPU: no common "
		       "PCIe switch, or ACS redirects them",
		       "put both below one switch, switch ACS off there, or load peerlane with "
		       "pages=generic");
		break;
	case PEERLANE_REASON_QUEUE:
		refuse(r, "the block device does not take peer-to-peer pages",
		       "load peerlane with pages=generic");
		break;
	case PEERLANE_REASON_SWIOTLB:
		refuse(r, "the kernel bounces all transfers of the drive (swiotlb=force)",
		       "remove swiotlb=force from the kernel's command line");
		break;
	case PEERLANE_REASON_DMA_MASK:
		refuse(r, "the drive cannot address the GPU's memory: it is bounced",
		       "let the firmware place the BAR lower, or switch the IOMMU on");
		break;
	case PEERLANE_REASON_REVOKED:
		refuse(r, "the GPU memory was freed", "");
		r->revoked = true;
		break;
	default:
		refuse(r, "the module gives a reason that this library does not know",
		       "update libpeerlane");
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
	pl_log(ctx, result ? 2 : 0, "p2p: test of drive %u:%u and GPU %x: %s", major(r->dev),
	       minor(r->dev), r->gpu_pci, pl_p2p_trial_word(result));
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

/* A device that is not on PCI: the most likely is a drive of another machine. */
static void refuse_far(struct pl_p2p_route *r, dev_t dev)
{
	char path[64], transport[16];
	const char *why, *fix;

	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u", major(dev), minor(dev));
	if (!pl_fabric_transport(path, transport, sizeof(transport))) {
		refuse_reason(r, PEERLANE_REASON_NOT_PCI);
		return;
	}
	pl_fabric_explain(transport, pl_fabric_software("/sys/class/infiniband"), &why, &fix);
	refuse(r, why, fix);
}

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

	if (ioctl(a->ctx->p2p.fd, PEERLANE_IOC_ROUTE, &call)) {
		refuse(a->r, strerrordesc_np(errno), "");
	} else if (call.verdict == PEERLANE_ROUTE_NO && call.reason == PEERLANE_REASON_VIRTUAL) {
		ask_members(a, makedev(call.device_major, call.device_minor), depth);
	} else if (call.verdict == PEERLANE_ROUTE_NO && call.reason == PEERLANE_REASON_NOT_PCI) {
		refuse_far(a->r, makedev(call.device_major, call.device_minor));
	} else if (call.verdict == PEERLANE_ROUTE_NO) {
		refuse_reason(a->r, call.reason);
	} else {
		if (call.verdict < a->r->verdict)
			a->r->verdict = call.verdict;
		if (member && call.verdict == PEERLANE_ROUTE_TEST)
			test_member(a, fd);
	}
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
