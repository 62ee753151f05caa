// SPDX-License-Identifier: MIT
/* Looks at /proc/self/maps for the file behind memory, and at /proc/self/fd for a descriptor of it. */
#include "shared_fd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct mapped {
	uint64_t start, end, offset, inode;
	unsigned int major, minor;
	char rights[8];
};

static int find_mapping(uint64_t at, struct mapped *m)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	int rc = -EFAULT;

	if (!maps)
		return -EOPNOTSUPP;
	while (rc && fgets(line, sizeof(line), maps))
		if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %" SCNx64 " %x:%x %" SCNu64,
			   &m->start, &m->end, m->rights, &m->offset, &m->major, &m->minor,
			   &m->inode) == 7 &&
		    at >= m->start && at < m->end)
			rc = 0;
	fclose(maps);
	return rc;
}

static bool is_of(int fd, const struct mapped *m)
{
	struct statx st;

	return !statx(fd, "", AT_EMPTY_PATH, STATX_INO, &st) && st.stx_ino == m->inode &&
	       st.stx_dev_major == m->major && st.stx_dev_minor == m->minor;
}

/* Other threads may close and open descriptors meanwhile: what was found is looked at when it is ours. */
static int duplicate(int fd, const struct mapped *m)
{
	int copy;

	/* One that can be mapped for writing. */
	if (!is_of(fd, m) || (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDWR)
		return -EOPNOTSUPP;
	copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (copy < 0 || is_of(copy, m))
		return copy < 0 ? -errno : copy;
	close(copy);
	return -EOPNOTSUPP;
}

static int find_descriptor(const struct mapped *m)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;
	int found = -EOPNOTSUPP;

	if (!dir)
		return -EOPNOTSUPP;
	while (found < 0 && (entry = readdir(dir))) {
		char *end;
		long fd = strtol(entry->d_name, &end, 10);

		if (!*end && end != entry->d_name)
			found = duplicate((int)fd, m);
	}
	closedir(dir);
	return found;
}

int pl_nvme_shared_fd(const void *ptr, size_t bytes, uint64_t *offset)
{
	uint64_t at = (uintptr_t)ptr;
	struct mapped m;
	int rc = find_mapping(at, &m);

	if (rc)
		return rc;
	if (m.rights[3] != 's' || !m.inode || bytes > m.end - at)
		return -EOPNOTSUPP;
	rc = find_descriptor(&m);
	if (rc >= 0)
		*offset = m.offset + (at - m.start);
	return rc;
}
