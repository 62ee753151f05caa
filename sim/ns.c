// SPDX-License-Identifier: MIT
/* Namespaces: a mapped file, or a memfd mapped the same way. */
#include "ns.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Larger ranges are handed back to the file, which then reads as zeroes. */
#define PUNCH_BYTES (1u << 20)

static int open_file(const char *path, uint64_t bytes, uint64_t *found)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	struct stat st;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st))
		goto err_close;
	/* An empty file takes the size asked for; another one is taken as it is. */
	if (!st.st_size && ftruncate(fd, (off_t)bytes))
		goto err_close;
	*found = st.st_size ? (uint64_t)st.st_size : bytes;
	return fd;

err_close:
	close(fd);
	return -EIO;
}

int pl_sn_ns_open(struct pl_sn_ns *ns, uint32_t nsid, const char *path, uint64_t bytes, uint32_t bs)
{
	void *data;
	int fd;

	memset(ns, 0, sizeof(*ns));
	ns->fd = -1;
	if (*path) {
		fd = open_file(path, bytes, &bytes);
		if (fd < 0)
			return fd;
	} else {
		fd = memfd_create("simnvme-ns", MFD_CLOEXEC);
		if (fd < 0 || ftruncate(fd, (off_t)bytes)) {
			if (fd >= 0)
				close(fd);
			return -ENOMEM;
		}
	}
	bytes -= bytes % bs;
	if (!bytes) {
		close(fd);
		return -EINVAL;
	}
	data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (data == MAP_FAILED) {
		close(fd);
		return -ENOMEM;
	}
	ns->nsid = nsid;
	ns->bs_shift = (uint32_t)__builtin_ctz(bs);
	ns->nr_blocks = bytes >> ns->bs_shift;
	ns->data = data;
	ns->bytes = bytes;
	ns->fd = fd;
	ns->is_file = *path != '\0';
	return 0;
}

void pl_sn_ns_close(struct pl_sn_ns *ns)
{
	if (ns->data)
		munmap(ns->data, ns->bytes);
	if (ns->nsid)
		close(ns->fd);
	memset(ns, 0, sizeof(*ns));
}

void pl_sn_ns_zero(struct pl_sn_ns *ns, uint64_t first, uint64_t nr)
{
	uint64_t at = first << ns->bs_shift, bytes = nr << ns->bs_shift;

	if (bytes >= PUNCH_BYTES &&
	    !fallocate(ns->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)bytes))
		return;
	memset(ns->data + at, 0, bytes);
}

int pl_sn_ns_sync(struct pl_sn_ns *ns, uint64_t first, uint64_t nr)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t from = first << ns->bs_shift, to = (first + nr) << ns->bs_shift;

	if (!ns->is_file)
		return 0;
	from -= from % page;
	return msync(ns->data + from, to - from, MS_SYNC) ? -errno : 0;
}
