/* SPDX-License-Identifier: MIT */
/* Who uses the disks of an NVMe controller: mounts, swap, md and dm, or anybody else. */
#include "nvme_use.h"

#include "cleanup.h"
#include "host.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>

__attribute__((format(printf, 2, 3))) static void used(struct pl_nvme_use *use, const char *fmt,
						       ...)
{
	va_list ap;

	/* The first that was found is told. */
	if (use->used)
		return;
	use->used = true;
	va_start(ap, fmt);
	vsnprintf(use->why, sizeof(use->why), fmt, ap);
	va_end(ap);
}

/* Mounts show the number of the device; file systems on several devices only its name. */
static void look_at_mounts(struct pl_nvme_use *use, const char *name)
{
	PL_AUTO_FILE FILE *f = fopen(pl_host_path("/proc/self/mountinfo").text, "re");
	PL_AUTO_FREE char *line = NULL;
	char dev[32], mounted[32], point[1024], source[1024], path[300];
	const char *rest;
	size_t size = 0;

	pl_host_line(dev, sizeof(dev), "/sys/class/block/%s/dev", name);
	snprintf(path, sizeof(path), "/dev/%s", name);
	while (f && getline(&line, &size, f) > 0) {
		if (sscanf(line, "%*d %*d %31s %*s %1023s", mounted, point) != 2)
			continue;
		rest = strstr(line, " - ");
		if (!rest || sscanf(rest + 3, "%*s %1023s", source) != 1)
			source[0] = 0;
		if (strcmp(mounted, dev) != 0 && strcmp(source, path) != 0)
			continue;
		if (!strcmp(point, "/"))
			used(use, "%s holds the root file system", name);
		else
			used(use, "%s is mounted on %s", name, point);
	}
}

static void look_at_swaps(struct pl_nvme_use *use, const char *name)
{
	PL_AUTO_FILE FILE *f = fopen(pl_host_path("/proc/swaps").text, "re");
	PL_AUTO_FREE char *line = NULL;
	char path[1024], want[300];
	size_t size = 0;

	snprintf(want, sizeof(want), "/dev/%s", name);
	while (f && getline(&line, &size, f) > 0)
		if (sscanf(line, "%1023s", path) == 1 && !strcmp(path, want))
			used(use, "%s is used as swap", name);
}

struct holder {
	struct pl_nvme_use *use;
	const char *name;
};

static void look_at_holder(void *arg, const char *name)
{
	const struct holder *h = arg;
	char known[256];

	if (pl_host_line(known, sizeof(known), "/sys/class/block/%s/dm/name", name))
		used(h->use, "%s is part of %s (%s)", h->name, name, known);
	else
		used(h->use, "%s is part of %s", h->name, name);
}

static void look_at_holders(struct pl_nvme_use *use, const char *name)
{
	struct holder h = { use, name };
	char dir[300];

	snprintf(dir, sizeof(dir), "/sys/class/block/%s/holders", name);
	pl_host_list(dir, look_at_holder, &h);
}

/* A disk that is opened so cannot be claimed by anything else, and is not if this works. */
static void hold(struct pl_nvme_use *use, const char *name)
{
	int fd;

	if (pl_host_exists("/sys/class/block/%s/partition", name))
		return;
	fd = open(pl_host_path("/dev/%s", name).text, O_RDONLY | O_EXCL | O_CLOEXEC);
	if (fd < 0) {
		/* Disks without capacity, and such as have no name there, cannot be in use. */
		if (errno == EBUSY)
			used(use, "%s is in use", name);
		return;
	}
	if (use->nr == PL_NVME_DISKS_MAX) {
		close(fd);
		used(use, "it has more disks than can be looked at");
		return;
	}
	use->fds[use->nr++] = fd;
}

static void look_at(struct pl_nvme_use *use, const char *name)
{
	look_at_mounts(use, name);
	look_at_swaps(use, name);
	look_at_holders(use, name);
	hold(use, name);
}

/* Is @name a multipath head, or a partition of one, over the path @via ("nvme0c1n2")? */
static bool is_head(const char *name, const char *via)
{
	unsigned int subsystem, controller, ns;
	char head[64];
	size_t len;

	if (sscanf(via, "nvme%uc%un%u", &subsystem, &controller, &ns) != 3)
		return false;
	snprintf(head, sizeof(head), "nvme%un%u", subsystem, ns);
	len = strlen(head);
	return !strncmp(name, head, len) && (!name[len] || name[len] == 'p');
}

struct search {
	struct pl_nvme_use *use;
	const char *via; /* a path, to find heads; or NULL, to find what is of the controller */
};

static void on_block(void *arg, const char *name)
{
	const struct search *s = arg;
	struct search heads = { s->use, name };
	char target[PATH_MAX], part[64];
	ssize_t len;

	if (s->via) {
		if (is_head(name, s->via))
			look_at(s->use, name);
		return;
	}
	len = readlink(pl_host_path("/sys/class/block/%s", name).text, target, sizeof(target) - 1);
	if (len < 0)
		return;
	target[len] = 0;
	snprintf(part, sizeof(part), "/%s/", s->use->pci);
	if (!strstr(target, part))
		return;
	look_at(s->use, name);
	pl_host_list("/sys/class/block", on_block, &heads);
}

/* A program may have it, by our module or by vfio; both give it to one at a time. */
static void on_misc(void *arg, const char *name)
{
	struct pl_nvme_use *use = arg;
	int fd = open(pl_host_path("/dev/%s", name).text, O_RDWR | O_CLOEXEC);

	if (fd >= 0)
		close(fd);
	else if (errno == EBUSY)
		used(use, "a program has it open as /dev/%s", name);
}

static void look_at_programs(struct pl_nvme_use *use)
{
	char dir[128], group[64], driver[64];
	int fd;

	snprintf(dir, sizeof(dir), "/sys/bus/pci/devices/%s/misc", use->pci);
	pl_host_list(dir, on_misc, use);
	if (!pl_host_link(driver, sizeof(driver), "/sys/bus/pci/devices/%s/driver", use->pci) ||
	    strcmp(driver, "vfio-pci") != 0 ||
	    !pl_host_link(group, sizeof(group), "/sys/bus/pci/devices/%s/iommu_group", use->pci))
		return;
	fd = open(pl_host_path("/dev/vfio/%s", group).text, O_RDWR | O_CLOEXEC);
	if (fd >= 0)
		close(fd);
	else if (errno == EBUSY)
		used(use, "a program has it open as /dev/vfio/%s", group);
}

void pl_nvme_use_begin(struct pl_nvme_use *use, const char *pci)
{
	struct search s = { use, NULL };

	memset(use, 0, sizeof(*use));
	use->pci = pci;
	pl_host_list("/sys/class/block", on_block, &s);
	look_at_programs(use);
}

void pl_nvme_use_end(struct pl_nvme_use *use)
{
	while (use->nr)
		close(use->fds[--use->nr]);
}
