/* SPDX-License-Identifier: MIT */
/* peerlane nvme bind, unbind: change the driver of an NVMe controller. */
#include "cleanup.h"
#include "commands.h"
#include "host.h"
#include "message.h"
#include "nvme_address.h"
#include "nvme_use.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>

struct bind_args {
	const char *driver;
};

static const struct pl_option bind_options[] = {
	{ "driver", PL_OPTION_CHOICE, offsetof(struct bind_args, driver), "kmod|vfio|kernel",
	  "Who gets the controller: kmod, programs through the module peerlane_nvme; vfio, "
	  "programs "
	  "through vfio-pci, which needs an IOMMU; kernel, the kernel, as a disk. The default is "
	  "kmod.",
	  0, 0 },
	{ 0 },
};

static const struct pl_option unbind_options[] = { { 0 } };

/* A driver by the word of the option. */
struct driver {
	const char *word;
	const char *name;   /* in sysfs */
	const char *module; /* to load */
};

static const struct driver drivers[] = {
	{ "kmod", "peerlane_nvme", "peerlane_nvme" },
	{ "vfio", "vfio-pci", "vfio-pci" },
	{ "kernel", "nvme", "nvme" },
};

static const struct driver *find_driver(const char *word)
{
	for (size_t i = 0; i < sizeof(drivers) / sizeof(drivers[0]); i++)
		if (!strcmp(drivers[i].word, word))
			return &drivers[i];
	return NULL;
}

static int put(const char *value, const char *what, const char *path)
{
	PL_AUTO_FD int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd >= 0 && write(fd, value, strlen(value)) == (ssize_t)strlen(value))
		return 0;
	pl_message_error("%s: %s: %s", what, path, strerror(errno));
	return -1;
}

static int let_go(const char *pci)
{
	if (!pl_host_exists("/sys/bus/pci/devices/%s/driver", pci))
		return 0;
	return put(pci, "cannot take it from its driver",
		   pl_host_path("/sys/bus/pci/devices/%s/driver/unbind", pci).text);
}

/* Only this driver may take it; a driver that takes such devices by itself needs no name. */
static int prefer(const char *pci, const char *name)
{
	return put(name ? name : "\n", "cannot say which driver shall have it",
		   pl_host_path("/sys/bus/pci/devices/%s/driver_override", pci).text);
}

static int probe(const char *pci)
{
	return put(pci, "no driver takes it", pl_host_path("/sys/bus/pci/drivers_probe").text);
}

static bool has_driver(const char *pci, const char *name)
{
	char now[64];

	return pl_host_link(now, sizeof(now), "/sys/bus/pci/devices/%s/driver", pci) &&
	       !strcmp(now, name);
}

static int move(const char *pci, const struct driver *to)
{
	const char *name = strcmp(to->word, "kernel") ? to->name : NULL;

	if (let_go(pci))
		return -1;
	if (!prefer(pci, name) && !probe(pci) && has_driver(pci, to->name))
		return 0;
	pl_message_error("%s does not take %s; the kernel's log may say why", to->name, pci);
	/* As a disk it is of more use than with no driver. */
	if (name && !prefer(pci, NULL) && !probe(pci) && has_driver(pci, "nvme"))
		pl_message_error("the kernel has %s back", pci);
	return -1;
}

static bool possible(const char *pci, const struct driver *to)
{
	char class[32];

	if (!pl_host_line(class, sizeof(class), "/sys/bus/pci/devices/%s/class", pci) ||
	    strcmp(class, PL_NVME_CLASS) != 0) {
		pl_message_error("%s is not an NVMe controller", pci);
		return false;
	}
	if (!pl_host_exists("/sys/bus/pci/drivers/%s", to->name)) {
		pl_message_error("the driver %s is not there; try 'modprobe %s'", to->name,
				 to->module);
		return false;
	}
	if (!strcmp(to->word, "vfio") &&
	    !pl_host_exists("/sys/bus/pci/devices/%s/iommu_group", pci)) {
		pl_message_error("%s is not behind an IOMMU, which vfio needs; try --driver kmod",
				 pci);
		return false;
	}
	return true;
}

static void say_misc(void *arg, const char *name)
{
	printf("%s: programs reach it as kmod:%s (/dev/%s)\n", (const char *)arg, (const char *)arg,
	       name);
}

static void say_name(const char *pci, const struct driver *to)
{
	char dir[128], copy[64];

	if (!strcmp(to->word, "vfio")) {
		printf("%s: programs reach it as vfio:%s\n", pci, pci);
	} else if (!strcmp(to->word, "kernel")) {
		printf("%s: the kernel has it\n", pci);
	} else {
		snprintf(dir, sizeof(dir), "/sys/bus/pci/devices/%s/misc", pci);
		snprintf(copy, sizeof(copy), "%s", pci);
		pl_host_list(dir, say_misc, copy);
	}
}

static int change(const char *device, const struct driver *to)
{
	struct pl_nvme_use use;
	char pci[64];
	int err = -1;

	if (!pl_nvme_address_find(device, pci, sizeof(pci))) {
		pl_message_error(
			"%s: %s", device,
			pl_nvme_address_is_name(device)
				? "no such NVMe controller; 'peerlane nvme list' shows those there "
				  "are"
				: "write a PCI address, as 0000:01:00.0, or a name, as nvme0");
		return 1;
	}
	if (!possible(pci, to))
		return 1;
	if (has_driver(pci, to->name)) {
		say_name(pci, to);
		return 0;
	}
	pl_nvme_use_begin(&use, pci);
	if (use.used)
		pl_message_error("%s: %s", pci, use.why);
	else
		err = move(pci, to);
	pl_nvme_use_end(&use);
	if (!err)
		say_name(pci, to);
	return err ? 1 : 0;
}

static int run_bind(const struct pl_command *self, int argc, char **argv)
{
	struct bind_args args = { .driver = "kmod" };
	int status, first = pl_option_parse(self, argc, argv, &args, &status);

	return first < 0 ? status : change(argv[first], find_driver(args.driver));
}

static int run_unbind(const struct pl_command *self, int argc, char **argv)
{
	int none, status, first = pl_option_parse(self, argc, argv, &none, &status);

	return first < 0 ? status : change(argv[first], find_driver("kernel"));
}

const struct pl_command pl_command_nvme_bind = {
	.name = "nvme bind",
	.summary = "Give a controller to another driver.",
	.args = "[options] DEVICE",
	.detail =
		"Takes the NVMe controller DEVICE (a PCI address as 0000:01:00.0, or a name as "
		"nvme0) from its driver and gives it to another one. Refuses when one of its disks "
		"is mounted, swap, part of an array or volume, or otherwise in use. Whoever may "
		"open a device that programs drive can read and write all of it.",
	.exits = "0  it has this driver now\n"
		 "1  it is in use, or it could not be done\n"
		 "2  the options are wrong",
	.options = bind_options,
	.min_args = 1,
	.max_args = 1,
	.run = run_bind,
};

const struct pl_command pl_command_nvme_unbind = {
	.name = "nvme unbind",
	.summary = "Give a controller back to the kernel, as a disk.",
	.args = "DEVICE",
	.detail = "Takes the NVMe controller DEVICE from programs and gives it back to the kernel: "
		  "as "
		  "'peerlane nvme bind --driver kernel'. Refuses while a program has it open.",
	.exits = "0  the kernel has it now\n"
		 "1  it is in use, or it could not be done\n"
		 "2  the options are wrong",
	.options = unbind_options,
	.min_args = 1,
	.max_args = 1,
	.run = run_unbind,
};
