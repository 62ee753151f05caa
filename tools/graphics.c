/* SPDX-License-Identifier: MIT */
/* The GPUs of this machine, as the PCI bus, the driver and the library see them. */
#include "graphics.h"

#include "host.h"
#include "human.h"

#include <stdlib.h>
#include <string.h>

#define NVIDIA_VENDOR 0x10de
#define CLASS_DISPLAY 0x03

static long hex_file(const char *device, const char *name)
{
	char line[32];

	if (!pl_host_line(line, sizeof(line), "/sys/bus/pci/devices/%s/%s", device, name))
		return -1;
	return strtol(line, NULL, 16);
}

static void add_device(void *list, const char *name)
{
	struct json_object *dev;
	char driver[64], group[32], type[32] = "", node[16];

	if (hex_file(name, "vendor") != NVIDIA_VENDOR ||
	    hex_file(name, "class") >> 16 != CLASS_DISPLAY)
		return;
	pl_host_link(driver, sizeof(driver), "/sys/bus/pci/devices/%s/driver", name);
	pl_host_line(node, sizeof(node), "/sys/bus/pci/devices/%s/numa_node", name);
	if (pl_host_link(group, sizeof(group), "/sys/bus/pci/devices/%s/iommu_group", name))
		pl_host_line(type, sizeof(type), "/sys/kernel/iommu_groups/%s/type", group);
	dev = json_object_new_object();
	json_object_object_add(dev, "pci", json_object_new_string(name));
	json_object_object_add(dev, "driver", json_object_new_string(driver));
	json_object_object_add(dev, "iommu_group", json_object_new_string(group));
	json_object_object_add(dev, "iommu_type", json_object_new_string(type));
	json_object_object_add(dev, "numa_node", json_object_new_int(node[0] ? atoi(node) : -1));
	json_object_array_add(list, dev);
}

static const char *member(struct json_object *dev, const char *key)
{
	return json_object_get_string(json_object_object_get(dev, key));
}

void pl_graphics_report_pci(struct pl_report *r)
{
	struct json_object *list = json_object_new_array();
	char line[256];
	const char *version;
	size_t nr;

	pl_report_section(r, "nvidia", "NVIDIA");
	pl_host_line(line, sizeof(line), "/proc/driver/nvidia/version");
	version = strncmp(line, "NVRM version: ", 14) ? line : line + 14;
	pl_report_text(r, "kernel_driver", "kernel driver", "%s",
		       version[0] ? version : "not running (no /proc/driver/nvidia/version)");
	pl_host_list("/sys/bus/pci/devices", add_device, list);
	nr = json_object_array_length(list);
	pl_report_value(r, "devices", list, "devices", "%zu on the PCI bus", nr);
	for (size_t i = 0; i < nr; i++) {
		struct json_object *dev = json_object_array_get_idx(list, i);
		const char *driver = member(dev, "driver"), *group = member(dev, "iommu_group");

		pl_report_note(r, "%s  driver %s, IOMMU group %s %s", member(dev, "pci"),
			       driver[0] ? driver : "none", group[0] ? group : "none",
			       member(dev, "iommu_type"));
	}
}

int pl_graphics_report_cuda(struct pl_report *r)
{
	struct peerlane_options opt = { .size = sizeof(opt), .backend = "cuda" };
	struct peerlane *ctx;
	int err = peerlane_open(&ctx, &opt);
	int nr = 0;

	if (!err) {
		nr = peerlane_gpu_count(ctx);
		peerlane_close(ctx);
	}
	pl_report_value(r, "cuda", json_object_new_boolean(!err && nr > 0), NULL, " ");
	if (err)
		pl_report_text(r, "cuda_reason", "CUDA", "not usable: %s",
			       pl_session_reason(err).text);
	else
		pl_report_text(r, "cuda_reason", "CUDA", "works, %d GPU%s", nr, nr == 1 ? "" : "s");
	return !err && nr > 0;
}

void pl_graphics_report_session(struct pl_report *r, const struct pl_session *s)
{
	int nr = peerlane_gpu_count(s->ctx);

	for (int i = 0; i < nr; i++) {
		struct peerlane_gpu_info info = { .size = sizeof(info) };
		char title[64];

		if (peerlane_gpu_get_info(s->ctx, i, &info))
			continue;
		snprintf(title, sizeof(title), "GPU %d%s", i,
			 i == s->gpu && nr > 1 ? " (used)" : "");
		pl_report_item(r, "gpus", title);
		pl_report_value(r, "index", json_object_new_int(i), NULL, " ");
		pl_report_value(r, "used", json_object_new_boolean(i == s->gpu), NULL, " ");
		pl_report_text(r, "backend", "back end", "%s", peerlane_backend(s->ctx));
		pl_report_text(r, "name", "name", "%s", info.name);
		pl_report_value(r, "memory_bytes",
				json_object_new_int64((int64_t)info.memory_bytes), "memory", "%s",
				pl_human_size(info.memory_bytes).text);
		pl_report_text(r, "driver", "driver", "%s", info.driver);
		pl_report_text(r, "pci", info.pci[0] ? "PCI address" : NULL, "%s", info.pci);
		pl_report_value(r, "numa_node", json_object_new_int(info.numa_node),
				info.numa_node >= 0 ? "NUMA node" : NULL, "%d", info.numa_node);
		pl_report_value(
			r, "copy_lists", json_object_new_boolean(info.copy_lists),
			info.copy_lists ? NULL : "copies",
			"one by one: threads that read a file in turns would be faster with a "
			"driver of CUDA 13 or later");
	}
}
