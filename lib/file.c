// SPDX-License-Identifier: MIT
/* Files: opening, the two descriptors, references, closing. */
#include "file.h"

#include "context.h"
#include "nvme_file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef BLKGETSIZE64
#define BLKGETSIZE64 _IOR(0x12, 114, size_t)
#endif
#ifndef STATX_DIOALIGN
#define STATX_DIOALIGN 0x2000U
#endif
#ifndef FUSE_SUPER_MAGIC
#define FUSE_SUPER_MAGIC 0x65735546
#endif
#ifndef LUSTRE_SUPER_MAGIC
#define LUSTRE_SUPER_MAGIC 0x0bd00bd0
#endif
#ifndef ZFS_SUPER_MAGIC
#define ZFS_SUPER_MAGIC 0x2fc12fc1
#endif

/* A page: O_DIRECT ranges aligned to it never share a page with buffered ones. */
#define PAGE 4096u
/* How many closed handles are remembered, so that using one again gives an error. */
#define MAX_DEAD 1024u

static const struct {
	unsigned long magic;
	const char *name;
} fs_names[] = {
	{ EXT4_SUPER_MAGIC, "ext4" },
	{ PL_XFS_MAGIC, "xfs" },
	{ BTRFS_SUPER_MAGIC, "btrfs" },
	{ TMPFS_MAGIC, "tmpfs" },
	{ OVERLAYFS_SUPER_MAGIC, "overlay" },
	{ NFS_SUPER_MAGIC, "nfs" },
	{ FUSE_SUPER_MAGIC, "fuse" },
	{ F2FS_SUPER_MAGIC, "f2fs" },
	{ LUSTRE_SUPER_MAGIC, "lustre" },
	{ ZFS_SUPER_MAGIC, "zfs" },
	{ HUGETLBFS_MAGIC, "hugetlbfs" },
	{ SQUASHFS_MAGIC, "squashfs" },
	{ PROC_SUPER_MAGIC, "proc" },
	{ SYSFS_MAGIC, "sysfs" },
	{ RAMFS_MAGIC, "ramfs" },
};

const char *pl_file_fs_name(unsigned long magic)
{
	for (size_t i = 0; i < sizeof(fs_names) / sizeof(fs_names[0]); i++)
		if (fs_names[i].magic == magic)
			return fs_names[i].name;
	return "unknown";
}

int64_t pl_file_size(const struct peerlane_file *f)
{
	int fd = f->fd >= 0 ? f->fd : f->fd_direct;
	uint64_t bytes = 0;
	struct stat sb;

	if (f->nvme)
		return pl_nvme_file_size(f->nvme);
	if (f->callbacks)
		return 0;
	if (f->block)
		return ioctl(fd, BLKGETSIZE64, &bytes) ? -errno : (int64_t)bytes;
	return fstat(fd, &sb) ? -errno : sb.st_size;
}

bool pl_file_gone(const struct peerlane_file *f)
{
	return f->block_bytes > 0 && pl_file_size(f) == 0;
}

/* The alignment O_DIRECT needs: what the kernel says, else a page, which is right everywhere. */
static unsigned int direct_align(int fd)
{
	struct {
		uint32_t mask;
		uint8_t pad[148];
		uint32_t dio_mem_align, dio_offset_align;
		uint8_t rest[96];
	} stx;
	unsigned int align;

	_Static_assert(sizeof(stx) == 256, "struct statx");
	memset(&stx, 0, sizeof(stx));
	if (syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &stx) ||
	    !(stx.mask & STATX_DIOALIGN))
		return PAGE;
	/* Slots are aligned to pages and no further. */
	if (stx.dio_mem_align > PAGE)
		return 0;
	align = stx.dio_mem_align > stx.dio_offset_align ? stx.dio_mem_align : stx.dio_offset_align;
	return align && !(align & (align - 1)) ? align : 0;
}

/* The same descriptor above 2: a program may have closed those, and to be reopened as others. */
static int high_fd(int fd)
{
	int high;

	if (fd < 0 || fd > 2)
		return fd;
	high = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	close(fd);
	return high;
}

/* Opens @name once more, if it is still the file of @fd. */
static int open_again(int fd, const char *name, int flags)
{
	struct stat a, b;
	int twin = high_fd(open(name, flags));

	if (twin < 0)
		return -1;
	if (!fstat(fd, &a) && !fstat(twin, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
		return twin;
	close(twin);
	errno = ESTALE;
	return -1;
}

/* A second descriptor of the same file with O_DIRECT set or cleared; -1 and @why if not. @name is
 * its path where that is known: the way without /proc. */
static int reopen(int fd, const char *name, int flags, bool direct, char *why, size_t why_bytes)
{
	char path[64];
	int twin;

	flags &= O_ACCMODE | O_APPEND | O_DSYNC | O_SYNC | O_NOATIME;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	twin = high_fd(open(path, flags | (direct ? O_DIRECT : 0) | O_CLOEXEC));
	if (twin < 0 && errno == EPERM && (flags & O_NOATIME))
		twin = high_fd(
			open(path, (flags & ~O_NOATIME) | (direct ? O_DIRECT : 0) | O_CLOEXEC));
	if (twin < 0 && errno == ENOENT && name)
		twin = open_again(fd, name, flags | (direct ? O_DIRECT : 0) | O_CLOEXEC);
	if (twin >= 0)
		return twin;
	if (errno == EINVAL && direct)
		pl_text(why, why_bytes, "the file system has no O_DIRECT");
	else
		pl_text(why, why_bytes, "the file could not be reopened %s O_DIRECT: %s",
			direct ? "with" : "without", strerrordesc_np(errno));
	return -1;
}

/* Fills in what the descriptor tells. */
static int inspect(struct peerlane_file *f, int fd)
{
	struct statfs fs;
	uint64_t bytes;
	struct stat sb;

	if (fstat(fd, &sb))
		return pl_fail(-errno, "descriptor %d: %s", fd, strerrordesc_np(errno));
	if (S_ISDIR(sb.st_mode))
		return pl_fail(-EISDIR, "it is a directory");
	if (!S_ISREG(sb.st_mode) && !S_ISBLK(sb.st_mode))
		return pl_fail(-ESPIPE, "neither a regular file nor a block device");
	f->block = S_ISBLK(sb.st_mode);
	f->dev = f->block ? sb.st_rdev : sb.st_dev;
	f->ino = sb.st_ino;
	if (f->block && !ioctl(fd, BLKGETSIZE64, &bytes))
		f->block_bytes = (int64_t)bytes;
	if (!fstatfs(fd, &fs))
		f->magic = (unsigned long)fs.f_type;
	return 0;
}

void pl_file_enter(struct peerlane_file *f)
{
	pl_ahead_init(&f->ahead);
	pl_wmaps_init(&f->wmaps);
	pthread_mutex_lock(&f->ctx->files_lock);
	f->next = f->ctx->files;
	f->ctx->files = f;
	pthread_mutex_unlock(&f->ctx->files_lock);
	pl_stat_add(&pl_ctx_stats(f->ctx)->files, 1);
}

/* Takes over @fd (also on failure). */
static int adopt(struct peerlane *ctx, int fd, const char *name, struct peerlane_file **out)
{
	int flags = fcntl(fd, F_GETFL);
	struct peerlane_file *f = calloc(1, sizeof(*f));
	int err = -ENOMEM, mode;
	char why[160];

	if (!f) {
		pl_fail(err, "no memory for a file");
		goto err_close;
	}
	f->ctx = ctx;
	f->fd = f->fd_direct = -1;
	if (flags < 0 || (flags & O_PATH)) {
		err = pl_fail(-EBADF, "descriptor %d is not open for reading or writing", fd);
		goto err_free;
	}
	err = inspect(f, fd);
	if (err)
		goto err_free;
	mode = flags & O_ACCMODE;
	f->readable = mode == O_RDONLY || mode == O_RDWR;
	f->writable = mode == O_WRONLY || mode == O_RDWR;
	f->append = flags & O_APPEND;
	f->durable = flags & O_DSYNC;
	f->want_direct = flags & O_DIRECT;
	f->mapped_write = mode == O_RDWR && !f->append && !f->block && !f->durable &&
			  !f->want_direct && !(ctx->opt.flags & PEERLANE_NO_MAPPED_WRITE) &&
			  pl_wmap_possible(fd, f->magic);
	if (f->want_direct) {
		f->fd_direct = fd;
		f->fd = reopen(fd, name, flags, false, why, sizeof(why));
		/* Without it unaligned requests could not be served: say now what is missing. */
		if (f->fd < 0 && (errno == EMFILE || errno == ENFILE)) {
			err = pl_fail(-errno, "%s", why);
			goto err_free;
		}
	} else {
		f->fd = fd;
		f->fd_direct = reopen(fd, name, flags, true, f->direct_why, sizeof(f->direct_why));
	}
	f->align = f->fd_direct >= 0 ? direct_align(f->fd_direct) : PAGE;
	if (!f->align || f->align > 64 * 1024) {
		pl_text(f->direct_why, sizeof(f->direct_why),
			"this file does not do O_DIRECT (%s): its data is journalled, inline, "
			"encrypted, or in blocks larger than 64 KiB",
			pl_file_fs_name(f->magic));
		f->align = PAGE;
		/* The kernel would go through the page cache all the same, and not say so. */
		if (f->fd >= 0 && f->fd_direct >= 0) {
			close(f->fd_direct);
			f->fd_direct = -1;
		}
	}
	pl_file_enter(f);
	*out = f;
	return 0;

err_free:
	free(f);
err_close:
	close(fd);
	return err;
}

/* O_NONBLOCK keeps a fifo from blocking the open. Of files it only says not to wait for the holder of a lease. */
static int open_file(const char *path, int flags, mode_t mode)
{
	int fd = open(path, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, mode);

	if (fd < 0 && errno == EWOULDBLOCK && !(flags & O_NONBLOCK))
		fd = open(path, flags | O_CLOEXEC | O_NOCTTY, mode);
	return fd;
}

int peerlane_file_open(struct peerlane *ctx, const char *path, int flags, mode_t mode,
		       struct peerlane_file **out)
{
	PL_KEEP_ERRNO;
	int err = pl_context_check(ctx), fd;

	if (err)
		return err;
	if (!path || !out)
		return pl_fail(-EINVAL, "the %s is NULL", path ? "result pointer" : "path");
	if (pl_nvme_file_named(path))
		return pl_nvme_file_open(ctx, path, flags, out);
	fd = open_file(path, flags, mode);
	if (fd < 0 && errno == EINVAL && (flags & O_DIRECT)) {
		fd = open_file(path, flags & ~O_DIRECT, mode);
		if (fd >= 0)
			pl_log(ctx, 1, "%s: the file system has no O_DIRECT, opened without", path);
	}
	fd = high_fd(fd);
	/* Sockets, and fifos without a reader, are refused by open() itself. */
	if (fd < 0 && errno == ENXIO)
		return pl_fail(-ESPIPE, "%s is neither a regular file nor a block device", path);
	if (fd < 0)
		return pl_fail(-errno, "cannot open %s: %s", path, pl_error_open(path, errno));
	if (!(flags & O_NONBLOCK))
		fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
	return adopt(ctx, fd, path, out);
}

int peerlane_file_from_fd(struct peerlane *ctx, int fd, struct peerlane_file **out)
{
	PL_KEEP_ERRNO;
	int err = pl_context_check(ctx), twin;

	if (err)
		return err;
	if (!out)
		return pl_fail(-EINVAL, "the result pointer is NULL");
	twin = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (twin < 0)
		return pl_fail(-errno, "descriptor %d: %s", fd, strerrordesc_np(errno));
	return adopt(ctx, twin, NULL, out);
}

int pl_file_get(struct peerlane_file *f, enum peerlane_op op)
{
	int err;

	if (!f)
		return pl_fail(-EINVAL, "the file is NULL");
	err = pl_context_check(f->ctx);
	if (err)
		return err;
	/* Pairs with the state change and the look at users in peerlane_file_close(): either we
	 * see CLOSING or it sees us. */
	__atomic_fetch_add(&f->users, 1, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&f->state, __ATOMIC_SEQ_CST) != PL_FILE_OPEN) {
		pl_file_put(f);
		return pl_fail(-EBADF, "the file was closed");
	}
	if (op == PEERLANE_READ ? f->readable : f->writable)
		return 0;
	pl_file_put(f);
	return pl_fail(-EBADF, "the file is not open for %s",
		       op == PEERLANE_READ ? "reading" : "writing");
}

static void close_fds(struct peerlane_file *f)
{
	pl_ahead_fini(f);
	pl_wmaps_fini(&f->wmaps, !*f->ctx->alive);
	if (f->fd >= 0)
		close(f->fd);
	if (f->fd_direct >= 0)
		close(f->fd_direct);
	f->fd = f->fd_direct = -1;
	f->nvme = NULL;
	if (f->callbacks && f->ops.release)
		f->ops.release(f->ops_arg);
	f->callbacks = false;
}

/* Moves @f to the list of dead handles and frees the oldest beyond the bound. */
static void bury(struct peerlane *ctx, struct peerlane_file *f)
{
	struct peerlane_file **p;

	pthread_mutex_lock(&ctx->files_lock);
	for (p = &ctx->files; *p && *p != f; p = &(*p)->next)
		;
	if (*p)
		*p = f->next;
	f->next = ctx->dead;
	ctx->dead = f;
	if (++ctx->nr_dead > MAX_DEAD && f->next) {
		for (p = &f->next; (*p)->next; p = &(*p)->next)
			;
		free(*p);
		*p = NULL;
		ctx->nr_dead--;
	}
	pthread_mutex_unlock(&ctx->files_lock);
}

/* Ends a file nobody uses any more, whose state is @from; one thread gets to do it. */
static void retire(struct peerlane_file *f, unsigned int from)
{
	if (!__atomic_compare_exchange_n(&f->state, &from, PL_FILE_CLOSED, false, __ATOMIC_SEQ_CST,
					 __ATOMIC_SEQ_CST))
		return;
	close_fds(f);
	pl_stat_sub(&pl_ctx_stats(f->ctx)->files, 1);
	bury(f->ctx, f);
}

void pl_file_put(struct peerlane_file *f)
{
	/* Pairs with pl_file_leave(): either we see LEAVING or it sees that we are gone. */
	if (__atomic_sub_fetch(&f->users, 1, __ATOMIC_SEQ_CST) == 0 &&
	    __atomic_load_n(&f->state, __ATOMIC_SEQ_CST) == PL_FILE_LEAVING)
		retire(f, PL_FILE_LEAVING);
}

void pl_file_leave(struct peerlane_file *f)
{
	PL_KEEP_ERRNO;
	unsigned int open_state = PL_FILE_OPEN;

	if (__atomic_compare_exchange_n(&f->state, &open_state, PL_FILE_LEAVING, false,
					__ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST) &&
	    !__atomic_load_n(&f->users, __ATOMIC_SEQ_CST))
		retire(f, PL_FILE_LEAVING);
}

int peerlane_file_close(struct peerlane_file *f)
{
	PL_KEEP_ERRNO;
	const struct timespec nap = { .tv_nsec = 100000 };
	unsigned int open_state = PL_FILE_OPEN;
	uint64_t deadline;
	int err;

	if (!f)
		return 0;
	err = pl_context_check(f->ctx);
	if (err)
		return err;
	if (!__atomic_compare_exchange_n(&f->state, &open_state, PL_FILE_CLOSING, false,
					 __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		return pl_fail(-EBADF, "the file was closed already");
	deadline = pl_deadline_ns(f->ctx);
	while (__atomic_load_n(&f->users, __ATOMIC_SEQ_CST)) {
		if (pl_now_ns() > deadline) {
			__atomic_store_n(&f->state, PL_FILE_OPEN, __ATOMIC_SEQ_CST);
			return pl_fail(-EBUSY, "I/O on the file did not end in time");
		}
		nanosleep(&nap, NULL);
	}
	retire(f, PL_FILE_CLOSING);
	return 0;
}

int pl_file_datasync(struct peerlane_file *f)
{
	int err, noted;

	if (f->callbacks)
		return f->ops.sync ? f->ops.sync(f->ops_arg) : 0;
	err = fdatasync(f->fd >= 0 ? f->fd : f->fd_direct) ? -errno : 0;
	noted = __atomic_exchange_n(&f->noted_err, 0, __ATOMIC_RELAXED);
	return err ? err : noted;
}

void pl_file_note_error(struct peerlane_file *f, int err)
{
	__atomic_store_n(&f->noted_err, err, __ATOMIC_RELAXED);
}

int peerlane_file_sync(struct peerlane_file *f)
{
	PL_KEEP_ERRNO;
	int err;

	if (!f)
		return pl_fail(-EINVAL, "the file is NULL");
	err = pl_file_get(f, f->writable ? PEERLANE_WRITE : PEERLANE_READ);
	if (err)
		return err;
	err = pl_file_datasync(f);
	if (err)
		pl_fail(err, "the file could not be made durable: %s", strerrordesc_np(-err));
	pl_file_put(f);
	return err;
}

void pl_files_fini(struct peerlane *ctx)
{
	struct peerlane_file *lists[] = { ctx->files, ctx->dead };

	for (int i = 0; i < 2; i++) {
		while (lists[i]) {
			struct peerlane_file *f = lists[i];

			lists[i] = f->next;
			if (!i)
				close_fds(f);
			free(f);
		}
	}
	ctx->files = ctx->dead = NULL;
}
