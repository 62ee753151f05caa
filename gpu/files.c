// SPDX-License-Identifier: MIT
/* Files that proxies serve: what they are, how long, and how they can be read. */
#include "files.h"

#include "error.h"
#include "ring.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

static bool is_in_memory(int fd)
{
	struct statfs fs;

	if (fstatfs(fd, &fs))
		return false;
	return fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC || fs.f_type == HUGETLBFS_MAGIC;
}

static int look_at(struct pl_file *f, struct pl_space *space, uint32_t index)
{
	const int flags = fcntl(f->fd, F_GETFL);
	struct stat st;
	uint64_t bytes;

	if (flags < 0 || fstat(f->fd, &st))
		return pl_fail(-errno, "file %u: %s", index, strerror(errno));
	if ((flags & O_ACCMODE) == O_WRONLY)
		return pl_fail(-EBADF, "file %u is not open for reading", index);
	/* The kernel would write at the end, whatever position it is given. */
	if (flags & O_APPEND)
		return pl_fail(-EINVAL, "file %u is open for appending", index);
	bytes = (uint64_t)st.st_size;
	if (S_ISBLK(st.st_mode) && ioctl(f->fd, BLKGETSIZE64, &bytes))
		return pl_fail(-errno, "file %u: %s", index, strerror(errno));
	if (!S_ISBLK(st.st_mode) && !S_ISREG(st.st_mode))
		return pl_fail(-EOPNOTSUPP, "file %u is neither a file nor a block device", index);
	f->direct = flags & O_DIRECT;
	f->in_memory = is_in_memory(f->fd) && S_ISREG(st.st_mode);
	f->bytes = bytes;
	space->nsid = index + 1;
	space->nr_blocks = bytes / space->block_bytes;
	if (S_ISREG(st.st_mode) && bytes % space->block_bytes)
		space->nr_blocks++;
	space->read_only = (flags & O_ACCMODE) == O_RDONLY;
	return 0;
}

int pl_files_open(struct peerlane_device *dev, const int *fds, uint32_t nr, struct pl_files **out)
{
	struct pl_files *files = calloc(1, sizeof(*files));
	int err = 0;

	if (!files)
		return pl_fail(-ENOMEM, "no memory for %u files", nr);
	*out = files;
	files->dev = dev;
	files->no_ring = pl_ring_refused() != NULL;
	files->files = calloc(nr, sizeof(*files->files));
	dev->spaces = calloc(nr, sizeof(*dev->spaces));
	files->ops =
		calloc((size_t)dev->shape.nr_queues * dev->shape.nr_slots, sizeof(*files->ops));
	if (!files->files || !dev->spaces || !files->ops)
		return pl_fail(-ENOMEM, "no memory for %u files", nr);
	for (uint32_t i = 0; i < nr && !err; i++) {
		struct pl_file *f = &files->files[i];

		f->fd = fcntl(fds[i], F_DUPFD_CLOEXEC, 3);
		if (f->fd < 0)
			return pl_fail(-errno, "file %u: %s", i, strerror(errno));
		files->nr++;
		dev->spaces[i].block_bytes = dev->shape.block_bytes;
		err = look_at(f, &dev->spaces[i], i);
	}
	dev->nr_spaces = nr;
	return err;
}

void pl_files_close(struct pl_files *files)
{
	if (!files)
		return;
	for (uint32_t i = 0; i < files->nr; i++)
		close(files->files[i].fd);
	free(files->ops);
	free(files->files);
	free(files);
}
