/* SPDX-License-Identifier: MIT */
/* The block devices under a file system, down to the drives. */
#include "disk.h"

#include "host.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define DEPTH_MAX 8

struct walk {
	struct pl_report *report;
	int depth;
	char dir[96]; /* /sys/block/NAME/slaves or the like, being listed */
};

static void describe(struct walk *w, const char *name);

static void add_text(struct json_object *dev, const char *key, const char *value)
{
	if (value[0])
		json_object_object_add(dev, key, json_object_new_string(value));
}

static const char *kind(const char *name, bool partition)
{
	static const struct {
		const char *prefix, *kind;
	} kinds[] = {
		{ "nvme", "NVMe" },   { "dm-", "device mapper" }, { "md", "md RAID" },
		{ "loop", "loop" },   { "zram", "zram" },	  { "ram", "RAM disk" },
		{ "pmem", "NVDIMM" }, { "vd", "virtio" },	  { "nbd", "network" },
		{ "rbd", "Ceph" },    { "sd", "SCSI or SATA" },	  { "bcache", "bcache" },
		{ "mmcblk", "MMC" },
	};

	if (partition)
		return "partition";
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strncmp(name, kinds[i].prefix, strlen(kinds[i].prefix)))
			return kinds[i].kind;
	return "disk";
}

struct transport {
	const char *disk;
	char *text;
	size_t size;
};

/* One path of a disk with several: what differs is added. */
static void add_path(void *arg, const char *name)
{
	struct transport *t = arg;
	size_t len = strlen(t->text);
	char more[16];

	if (!strncmp(name, "nvme", 4) &&
	    pl_host_line(more, sizeof(more), "/sys/block/%s/device/%s/transport", t->disk, name) &&
	    !strstr(t->text, more))
		snprintf(t->text + len, t->size - len, "%s%s", len ? " and " : "", more);
}

/* "pcie", "tcp", "rdma"... of an NVMe disk; with multipath those of its subsystem's controllers. */
static void transport(char *buf, size_t size, const char *disk)
{
	struct transport t = { .disk = disk, .text = buf, .size = size };
	char dir[96];

	buf[0] = 0;
	if (strncmp(disk, "nvme", 4) != 0 ||
	    pl_host_line(buf, size, "/sys/block/%s/device/transport", disk))
		return;
	snprintf(dir, sizeof(dir), "/sys/block/%s/device", disk);
	pl_host_list(dir, add_path, &t);
}

static void walk_slave(void *arg, const char *name)
{
	struct walk below = *(struct walk *)arg;

	below.depth++;
	if (below.depth < DEPTH_MAX)
		describe(&below, name);
}

/* The disk a partition lies on, from where the class link points: .../block/DISK/PART. */
static bool partition_disk(const char *name, char *disk, size_t size)
{
	char real[PATH_MAX];
	char *slash;

	if (!realpath(pl_host_path("/sys/class/block/%s", name).text, real))
		return false;
	slash = strrchr(real, '/');
	if (!slash)
		return false;
	*slash = 0;
	slash = strrchr(real, '/');
	if (!slash)
		return false;
	snprintf(disk, size, "%s", slash + 1);
	return true;
}

struct disk_text {
	char model[64], transport[32], level[32], table[64], rotational[8], block[16];
};

static void read_disk(const char *name, struct disk_text *t)
{
	pl_host_line(t->model, sizeof(t->model), "/sys/block/%s/device/model", name);
	pl_host_line(t->level, sizeof(t->level), "/sys/block/%s/md/level", name);
	pl_host_line(t->table, sizeof(t->table), "/sys/block/%s/dm/name", name);
	pl_host_line(t->rotational, sizeof(t->rotational), "/sys/block/%s/queue/rotational", name);
	pl_host_line(t->block, sizeof(t->block), "/sys/block/%s/queue/logical_block_size", name);
	transport(t->transport, sizeof(t->transport), name);
}

static void show_json(struct walk *w, const char *name, bool partition, const struct disk_text *t)
{
	struct json_object *list, *dev = json_object_new_object();
	struct json_object *section = w->report->section;

	if (!json_object_object_get_ex(section, "block_devices", &list)) {
		list = json_object_new_array();
		json_object_object_add(section, "block_devices", list);
	}
	json_object_array_add(list, dev);
	json_object_object_add(dev, "depth", json_object_new_int(w->depth));
	add_text(dev, "name", name);
	add_text(dev, "kind", kind(name, partition));
	add_text(dev, "model", t->model);
	add_text(dev, "transport", t->transport);
	add_text(dev, "md_level", t->level);
	add_text(dev, "dm_name", t->table);
	if (t->rotational[0])
		json_object_object_add(dev, "rotational",
				       json_object_new_boolean(t->rotational[0] == '1'));
	if (t->block[0])
		json_object_object_add(dev, "logical_block_bytes",
				       json_object_new_int(atoi(t->block)));
}

static void show_text(struct walk *w, const char *name, bool partition, const struct disk_text *t)
{
	char text[320], queue[48] = "";

	if (t->block[0])
		snprintf(queue, sizeof(queue), ", %s, blocks of %s",
			 t->rotational[0] == '1' ? "rotating" : "not rotating", t->block);
	snprintf(text, sizeof(text), "%*s%s: %s%s%s%s%s%s%s%s%s%s", w->depth * 2, "", name,
		 kind(name, partition), t->level[0] ? " " : "", t->level, t->table[0] ? " " : "",
		 t->table, t->transport[0] ? " over " : "", t->transport, t->model[0] ? ", " : "",
		 t->model, queue);
	if (w->depth)
		pl_report_note(w->report, "%s", text);
	else
		pl_report_label(w->report, "device", "%s", text);
}

static void show(struct walk *w, const char *name, bool partition, const struct disk_text *t)
{
	show_json(w, name, partition, t);
	show_text(w, name, partition, t);
}

static void describe(struct walk *w, const char *name)
{
	struct disk_text text = { 0 };
	struct walk below = *w;
	char parent[64];

	if (pl_host_exists("/sys/class/block/%s/partition", name)) {
		show(w, name, true, &text);
		below.depth++;
		if (below.depth < DEPTH_MAX && partition_disk(name, parent, sizeof(parent)))
			describe(&below, parent);
		return;
	}
	read_disk(name, &text);
	show(w, name, false, &text);
	snprintf(below.dir, sizeof(below.dir), "/sys/block/%s/slaves", name);
	pl_host_list(below.dir, walk_slave, &below);
}

/* Name of the device dev_t stands for: by number, or by the mount's source, as btrfs needs. */
static bool find_name(dev_t dev, const char *source, char *name, size_t size)
{
	struct stat st;

	if (pl_host_link(name, size, "/sys/dev/block/%u:%u", major(dev), minor(dev)))
		return true;
	if (source[0] != '/' || stat(source, &st) || !S_ISBLK(st.st_mode))
		return false;
	return pl_host_link(name, size, "/sys/dev/block/%u:%u", major(st.st_rdev),
			    minor(st.st_rdev));
}

void pl_disk_report(struct pl_report *r, dev_t dev, const char *mount_source)
{
	struct walk w = { .report = r };
	char name[64];

	if (find_name(dev, mount_source, name, sizeof(name)))
		describe(&w, name);
	else
		pl_report_value(r, "block_devices", json_object_new_array(), "device",
				"none: not on a block device of this machine");
}
