/* SPDX-License-Identifier: MIT */
/* peerlane nvme list: the NVMe controllers of this machine, and who has them. */
#include "commands.h"
#include "confined.h"
#include "host.h"
#include "message.h"
#include "nvme_address.h"
#include "report.h"

#include <stdbool.h>
#include <string.h>
#include <unistd.h>

struct list_args {
	bool json;
};

static const struct pl_option options[] = {
	{ "json", PL_OPTION_FLAG, offsetof(struct list_args, json), NULL, "Print it as JSON.", 0,
	  0 },
	{ 0 },
};

#define DEVICES "/sys/bus/pci/devices"

struct list {
	struct pl_report report;
	unsigned int nr;
};

static void first_name(void *arg, const char *name)
{
	char *first = arg;

	if (!first[0])
		snprintf(first, 32, "%s", name);
}

/* What it takes to open it, which the module knows. */
static void add_privilege(struct list *l, const char *pci)
{
	char words[64], text[240];

	if (!pl_host_line(words, sizeof(words), DEVICES "/%s/" PL_NVME_CONFINED, pci))
		return;
	pl_nvme_confined_text(words, text, sizeof(text));
	pl_report_text(&l->report, "privilege", "needs", "%s", text);
}

/* What the kernel's own driver knows of it. */
static void describe(struct list *l, const char *pci)
{
	char text[64], name[32] = "", dir[96];

	pl_host_line(text, sizeof(text), DEVICES "/%s/vendor", pci);
	pl_report_text(&l->report, "vendor", NULL, "%s", text);
	pl_host_line(text, sizeof(text), DEVICES "/%s/device", pci);
	pl_report_text(&l->report, "device", NULL, "%s", text);
	if (pl_host_link(text, sizeof(text), DEVICES "/%s/iommu_group", pci))
		pl_report_text(&l->report, "iommu_group", "IOMMU group", "%s", text);
	snprintf(dir, sizeof(dir), DEVICES "/%s/nvme", pci);
	pl_host_list(dir, first_name, name);
	if (!name[0])
		return;
	pl_report_text(&l->report, "kernel_name", "kernel name", "%s", name);
	if (pl_host_line(text, sizeof(text), "%s/%s/model", dir, name))
		pl_report_text(&l->report, "model", "model", "%s", text);
	if (pl_host_line(text, sizeof(text), "%s/%s/serial", dir, name))
		pl_report_text(&l->report, "serial", "serial", "%s", text);
}

/* The address it can be used by, or the reason why it cannot. */
static void judge(struct list *l, const char *pci, const char *driver)
{
	const char *transport = !strcmp(driver, "peerlane_nvme") ? "kmod"
				: !strcmp(driver, "vfio-pci")	 ? "vfio"
								 : NULL;

	pl_report_value(&l->report, "usable", json_object_new_boolean(transport != NULL), NULL,
			" ");
	if (transport)
		pl_report_text(&l->report, "address", "address", "%s:%s", transport, pci);
	else if (!driver[0])
		pl_report_text(&l->report, "why", "not usable",
			       "no driver has it: 'peerlane nvme bind %s' takes it", pci);
	else if (!strcmp(driver, "nvme"))
		pl_report_text(
			&l->report, "why", "not usable",
			"the kernel uses it: 'peerlane nvme bind %s' takes it away from there",
			pci);
	else
		pl_report_text(&l->report, "why", "not usable",
			       "the driver %s has it: 'peerlane nvme bind %s' takes it", driver,
			       pci);
}

static void add_device(void *arg, const char *pci)
{
	struct list *l = arg;
	char text[64];

	if (!pl_host_line(text, sizeof(text), DEVICES "/%s/class", pci) ||
	    strcmp(text, PL_NVME_CLASS) != 0)
		return;
	l->nr++;
	pl_report_item(&l->report, "controllers", pci);
	pl_report_text(&l->report, "pci", NULL, "%s", pci);
	pl_host_link(text, sizeof(text), DEVICES "/%s/driver", pci);
	pl_report_text(&l->report, "driver", "driver", "%s", text[0] ? text : "none");
	judge(l, pci, text);
	add_privilege(l, pci);
	describe(l, pci);
}

static int run(const struct pl_command *self, int argc, char **argv)
{
	struct list_args args = { 0 };
	int status, first = pl_option_parse(self, argc, argv, &args, &status);
	struct list l = { 0 };

	if (first < 0)
		return status;
	if (pl_report_init(&l.report)) {
		pl_message_error("out of memory");
		return 1;
	}
	json_object_object_add(l.report.root, "controllers", json_object_new_array());
	pl_host_list(DEVICES, add_device, &l);
	if (args.json) {
		pl_report_print_json(&l.report, stdout);
	} else {
		if (!l.nr)
			puts("This machine has no NVMe controller on PCI.");
		pl_report_print_text(&l.report, stdout);
		puts("\nWithout hardware: sim:KEY=VALUE,... is a software controller, such as\n"
		     "sim:size=1G,bs=4096 or sim:file=disk.img");
	}
	pl_report_fini(&l.report);
	return 0;
}

const struct pl_command pl_command_nvme_list = {
	.name = "nvme list",
	.summary = "List the NVMe controllers and who has them.",
	.args = "[--json]",
	.detail = "Lists the NVMe controllers on PCI with the driver that has each, and the "
		  "address by which the other commands reach it, or why they cannot.",
	.exits = "0  printed\n"
		 "1  an error\n"
		 "2  the options are wrong",
	.options = options,
	.min_args = 0,
	.max_args = 0,
	.run = run,
};
