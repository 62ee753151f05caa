/* SPDX-License-Identifier: MIT */
/* Where a file lives: file system, mount, inode. */
#include "place.h"

#include "cleanup.h"
#include "disk.h"
#include "host.h"
#include "human.h"
#include "resident.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#ifndef STATX_DIOALIGN
#define STATX_DIOALIGN 0x2000u
#endif

struct mount {
	char type[32];
	char source[PATH_MAX];
	char point[PATH_MAX];
	char options[512];
};

/* mountinfo writes blanks and backslashes as three octal digits. */
static void unescape(char *s)
{
	char *out = s;
	unsigned int c;

	for (; *s; s++)
		if (*s == '\\' && sscanf(s + 1, "%3o", &c) == 1) {
			*out++ = (char)c;
			s += 3;
		} else {
			*out++ = *s;
		}
	*out = 0;
}

/* The number a file system shows in mountinfo: that of fdinfo, which names the mount. */
static int mount_id(int fd)
{
	char path[64], line[256];
	PL_AUTO_FILE FILE *f = NULL;
	int id = -1;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "mnt_id: %d", &id) == 1)
			break;
	return id;
}

static bool find_mount(int fd, struct mount *m)
{
	PL_AUTO_FILE FILE *f = fopen("/proc/self/mountinfo", "re");
	PL_AUTO_FREE char *line = NULL;
	size_t size = 0;
	int want = mount_id(fd), id, used;
	const char *rest;

	memset(m, 0, sizeof(*m));
	while (f && getline(&line, &size, f) > 0) {
		if (sscanf(line, "%d %*d %*s %*s %4095s %511s%n", &id, m->point, m->options,
			   &used) != 3 ||
		    id != want)
			continue;
		rest = strstr(line + used, " - ");
		if (!rest || sscanf(rest + 3, "%31s %4095s", m->type, m->source) != 2)
			return false;
		unescape(m->point);
		unescape(m->source);
		return true;
	}
	return false;
}

static void report_mount(struct pl_report *r, int fd, struct mount *m)
{
	struct statfs fs;

	if (find_mount(fd, m)) {
		pl_report_text(r, "fs", "file system", "%s", m->type);
		pl_report_text(r, "mount_source", NULL, "%s", m->source);
		pl_report_text(r, "mount_point", NULL, "%s", m->point);
		pl_report_label(r, "mounted", "%s on %s", m->source, m->point);
		pl_report_text(r, "mount_options", "mount options", "%s", m->options);
	}
	if (!fstatfs(fd, &fs))
		pl_report_value(r, "fs_magic", json_object_new_int64((int64_t)fs.f_type),
				m->type[0] ? NULL : "file system", "type 0x%lx", (long)fs.f_type);
}

/* Inode flags that decide which ways a file's data can take. */
static void report_inode(struct pl_report *r, int fd)
{
	static const struct {
		uint64_t statx;
		int flag;
		const char *name;
	} flags[] = {
		{ STATX_ATTR_COMPRESSED, FS_COMPR_FL, "compressed" },
		{ STATX_ATTR_ENCRYPTED, FS_ENCRYPT_FL, "encrypted" },
		{ STATX_ATTR_IMMUTABLE, FS_IMMUTABLE_FL, "immutable" },
		{ STATX_ATTR_APPEND, FS_APPEND_FL, "append-only" },
		{ STATX_ATTR_VERITY, FS_VERITY_FL, "verity" },
		{ STATX_ATTR_DAX, FS_DAX_FL, "dax" },
	};
	struct json_object *list = json_object_new_array();
	struct statx stx = { 0 };
	char text[128] = "";
	size_t len = 0;
	int attr = 0;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &stx))
		memset(&stx, 0, sizeof(stx));
	if (ioctl(fd, FS_IOC_GETFLAGS, &attr))
		attr = 0;
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		if (!(stx.stx_attributes & flags[i].statx) && !(attr & flags[i].flag))
			continue;
		json_object_array_add(list, json_object_new_string(flags[i].name));
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%s", len ? ", " : "",
					flags[i].name);
	}
	pl_report_value(r, "inode_flags", list, len ? "inode flags" : NULL, "%s", text);
}

/*
 * The two members that STATX_DIOALIGN fills lie after stx_mnt_id; older C libraries do not name
 * them, so they are read by their place in the kernel's layout.
 */
static void report_dio(struct pl_report *r, int fd)
{
	struct statx stx = { 0 };
	uint32_t align[2];

	if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &stx) ||
	    !(stx.stx_mask & STATX_DIOALIGN)) {
		pl_report_value(r, "dio_offset_align", NULL, "O_DIRECT",
				"the kernel does not tell");
		return;
	}
	memcpy(align, (char *)&stx + 0x98, sizeof(align));
	pl_report_value(r, "dio_memory_align", json_object_new_int((int)align[0]), NULL, " ");
	if (align[1])
		pl_report_value(r, "dio_offset_align", json_object_new_int((int)align[1]),
				"O_DIRECT", "offsets aligned to %u, memory to %u", align[1],
				align[0]);
	else
		pl_report_value(r, "dio_offset_align", json_object_new_int(0), "O_DIRECT",
				"not supported for this file");
}

static void report_cached(struct pl_report *r, int fd, uint64_t bytes)
{
	int64_t cached = pl_resident_bytes(fd, bytes);

	if (cached < 0)
		pl_report_value(r, "cached_bytes", NULL, "in page cache",
				"the kernel does not tell");
	else
		pl_report_value(r, "cached_bytes", json_object_new_int64(cached), "in page cache",
				"%s, %.0f%%", pl_human_size((uint64_t)cached).text,
				bytes ? 100.0 * (double)cached / (double)bytes : 0);
}

static const char *type_name(mode_t mode)
{
	return S_ISDIR(mode) ? "directory" : S_ISBLK(mode) ? "block device" : "file";
}

void pl_place_report(struct pl_report *r, const char *path, int fd)
{
	struct mount m;
	char real[PATH_MAX];
	struct stat st;

	pl_report_section(r, "file", "File");
	pl_report_text(r, "file_name", NULL, "%s", path);
	pl_report_text(r, "real_path", "path", "%s", realpath(path, real) ? real : path);
	if (fstat(fd, &st))
		return;
	pl_report_text(r, "type", NULL, "%s", type_name(st.st_mode));
	if (S_ISREG(st.st_mode))
		pl_report_value(r, "bytes", json_object_new_int64(st.st_size), "size",
				"%s, %s stored", pl_human_size((uint64_t)st.st_size).text,
				pl_human_size((uint64_t)st.st_blocks * 512).text);
	report_mount(r, fd, &m);
	pl_disk_report(r, S_ISBLK(st.st_mode) ? st.st_rdev : st.st_dev, m.source);
	if (!S_ISREG(st.st_mode))
		return;
	report_inode(r, fd);
	report_dio(r, fd);
	report_cached(r, fd, (uint64_t)st.st_size);
}
