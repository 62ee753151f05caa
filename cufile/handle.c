// SPDX-License-Identifier: MIT
/* Registering files. */
#include "handle.h"

#include "driver.h"
#include "error.h"
#include "file.h"
#include "log.h"
#include "stats.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void destroy(void *object);

static struct pl_cf_table table = {
	.kind = 1,
	.destroy = destroy,
	.lock = PTHREAD_MUTEX_INITIALIZER,
};

/* Which handle a descriptor was registered as. */
static pthread_mutex_t owners_lock = PTHREAD_MUTEX_INITIALIZER; /* guards both */
static void **owners;
static int nr_owners;

struct pl_cf_file *pl_cf_file_get(CUfileHandle_t fh, enum pl_cf_found *found)
{
	return pl_cf_table_get(&table, fh, found);
}

void pl_cf_file_put(CUfileHandle_t fh)
{
	pl_cf_table_put(&table, fh);
}

enum pl_cf_found pl_cf_file_known(CUfileHandle_t fh)
{
	enum pl_cf_found found;

	if (!pl_cf_table_get(&table, fh, &found))
		return found;
	pl_cf_table_put(&table, fh);
	return PL_CF_STALE;
}

/* Does not wait: a stream may have still to come to it. */
static void destroy(void *object)
{
	struct pl_cf_file *f = object;
	bool own;

	if (f->name[0])
		pl_cf_log(PL_CF_INFO,
			  "%s: deregistered after %llu reads of %llu bytes, %llu writes of %llu",
			  f->name, (unsigned long long)f->ops[0], (unsigned long long)f->bytes[0],
			  (unsigned long long)f->ops[1], (unsigned long long)f->bytes[1]);
	/* With functions of the program it is needed until the engine has let go, see fsops.c. */
	own = f->fd < 0;
	pl_file_leave(f->file);
	if (!own)
		free(f);
}

/* ------------------------------------------------------------------ paths */

static void name_file(struct pl_cf_file *f)
{
	char path[64];
	ssize_t n;

	if (!pl_cf_log_wants(PL_CF_INFO))
		return;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", f->fd);
	n = f->fd < 0 ? -1 : readlink(path, f->name, sizeof(f->name) - 1);
	if (n > 0)
		f->name[n] = '\0';
	else
		snprintf(f->name, sizeof(f->name), f->fd < 0 ? "user-space file" : "descriptor %d",
			 f->fd);
	pl_cf_log(PL_CF_INFO, "%s: registered, %s%s, cufile IO mode: POSIX", f->name,
		  f->readable ? "r" : "-", f->writable ? "w" : "-");
}

void pl_cf_file_explain(struct pl_cf_file *f, enum peerlane_op op, const void *addr, size_t bytes,
			off_t offset)
{
	struct peerlane_explanation ex; /* large, and most calls return before it is needed */
	unsigned int bit = 1u << op;

	if (!f->name[0] || (__atomic_load_n(&f->explained, __ATOMIC_RELAXED) & bit) ||
	    (__atomic_fetch_or(&f->explained, bit, __ATOMIC_RELAXED) & bit))
		return;
	memset(&ex, 0, sizeof(ex));
	ex.size = sizeof(ex);
	if (peerlane_explain(f->file, op, addr, bytes, offset, &ex))
		return;
	pl_cf_log(PL_CF_INFO, "%s: %s on %s%s%s goes by \"%s\": %s", f->name,
		  op == PEERLANE_READ ? "read" : "write", ex.fs, ex.device[0] ? ", " : "",
		  ex.device, peerlane_path_name(ex.chosen), ex.verdicts[ex.chosen].reason);
	if (ex.chosen != PEERLANE_PATH_P2P)
		pl_cf_log(PL_CF_INFO, "%s: not by \"p2p\": %s", f->name,
			  ex.verdicts[PEERLANE_PATH_P2P].reason);
}

void pl_cf_file_count(struct pl_cf_file *f, enum peerlane_op op, ssize_t result)
{
	if (!f->name[0])
		return;
	__atomic_fetch_add(&f->ops[op], 1, __ATOMIC_RELAXED);
	if (result > 0)
		__atomic_fetch_add(&f->bytes[op], (uint64_t)result, __ATOMIC_RELAXED);
}

/* ------------------------------------------------------------------ registering */

/* Whether @fd is registered already, and still the same file: a program may have closed it and
 * got the number again. owners_lock held. */
static bool taken(int fd, const struct stat *st)
{
	enum pl_cf_found found;
	struct pl_cf_file *f;
	bool same;

	if (fd >= nr_owners || !owners[fd])
		return false;
	f = pl_cf_file_get(owners[fd], &found);
	if (!f)
		return false;
	same = f->dev == st->st_dev && f->ino == st->st_ino;
	pl_cf_file_put(owners[fd]);
	return same;
}

/* owners_lock held. */
static int make_owner_room(int fd)
{
	int want = nr_owners ? nr_owners : 64;
	void **more;

	if (fd < nr_owners)
		return 0;
	while (want <= fd)
		want *= 2;
	more = realloc(owners, (size_t)want * sizeof(void *));
	if (!more)
		return -ENOMEM;
	memset(more + nr_owners, 0, (size_t)(want - nr_owners) * sizeof(void *));
	owners = more;
	nr_owners = want;
	return 0;
}

/* A descriptor of the same file with O_DIRECT, if the configuration wants that; else @fd. */
static int forced_direct(int fd, int flags)
{
	const struct pl_cf_config *c = pl_cf_config_hold(true);
	bool want = c->values[PL_CF_FORCE_ODIRECT].number && !(flags & O_DIRECT);
	char path[64];
	int direct = -1;

	pl_cf_config_release();
	if (want) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		direct = open(path, (flags & O_ACCMODE) | O_DIRECT | O_CLOEXEC);
	}
	return direct >= 0 ? direct : fd;
}

static CUfileError_t open_fd(struct peerlane *ctx, struct pl_cf_file *f)
{
	int flags = fcntl(f->fd, F_GETFL), fd, err;
	struct stat st;

	if (flags < 0 || fstat(f->fd, &st))
		return pl_cf_status(CU_FILE_INVALID_VALUE);
	if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
		return pl_cf_status(CU_FILE_INVALID_FILE_TYPE);
	if (flags & O_APPEND)
		return pl_cf_status(CU_FILE_INVALID_FILE_OPEN_FLAG);
	if (taken(f->fd, &st))
		return pl_cf_status(CU_FILE_HANDLE_ALREADY_REGISTERED);
	if (make_owner_room(f->fd))
		return pl_cf_status(CU_FILE_NOMEM_ERROR);
	f->dev = st.st_dev;
	f->ino = st.st_ino;
	f->readable = (flags & O_ACCMODE) != O_WRONLY;
	f->writable = (flags & O_ACCMODE) != O_RDONLY;
	fd = forced_direct(f->fd, flags);
	err = peerlane_file_from_fd(ctx, fd, &f->file);
	if (fd != f->fd)
		close(fd);
	return pl_cf_status_of(err);
}

/* owners_lock held. */
static CUfileError_t register_locked(struct peerlane *ctx, const CUfileDescr_t *descr,
				     CUfileHandle_t *fh)
{
	bool own = descr->type == CU_FILE_HANDLE_TYPE_USERSPACE_FS;
	struct pl_cf_file *f = calloc(1, sizeof(*f));
	CUfileError_t status;

	if (!f)
		return pl_cf_status(CU_FILE_NOMEM_ERROR);
	f->fd = own ? -1 : descr->handle.fd;
	if (own) {
		f->fs_ops = *descr->fs_ops;
		f->fs_handle = descr->handle.handle;
		status = pl_cf_status_of(pl_cf_fsops_open(ctx, f));
	} else {
		status = open_fd(ctx, f);
	}
	if (status.err) {
		free(f);
		return status;
	}
	name_file(f);
	*fh = pl_cf_table_add(&table, f);
	if (!*fh) {
		destroy(f);
		return pl_cf_status(CU_FILE_NOMEM_ERROR);
	}
	if (!own)
		owners[f->fd] = *fh;
	return status;
}

/* What is wrong with the description itself. */
static CUfileOpError check(const CUfileDescr_t *descr)
{
	switch (descr->type) {
	case CU_FILE_HANDLE_TYPE_OPAQUE_FD:
		return CU_FILE_SUCCESS;
	case CU_FILE_HANDLE_TYPE_USERSPACE_FS:
		if (descr->fs_ops && (descr->fs_ops->read || descr->fs_ops->write))
			return CU_FILE_SUCCESS;
		return CU_FILE_IO_NOT_SUPPORTED;
	default:
		return CU_FILE_IO_NOT_SUPPORTED;
	}
}

CUfileError_t cuFileHandleRegister(CUfileHandle_t *fh, CUfileDescr_t *descr)
{
	int kept = errno;
	CUfileError_t status;
	struct peerlane *ctx = pl_cf_enter_open(&status);
	CUfileHandle_t made = NULL;

	if (!ctx)
		return status;
	status.err = fh && descr ? check(descr) : CU_FILE_INVALID_VALUE;
	if (!status.err) {
		pthread_mutex_lock(&owners_lock);
		status = register_locked(ctx, descr, &made);
		pthread_mutex_unlock(&owners_lock);
	}
	if (!status.err)
		*fh = made;
	else
		pl_cf_log(PL_CF_ERROR, "file not registered: %s",
			  cufileop_status_error(status.err));
	PL_CF_COUNT(hdl_register_ops, !status.err);
	pl_cf_leave();
	errno = kept;
	return status;
}

void cuFileHandleDeregister(CUfileHandle_t fh)
{
	int kept = errno;

	if (!pl_cf_enter())
		return;
	PL_CF_COUNT(hdl_deregister_ops, pl_cf_table_remove(&table, fh));
	pl_cf_leave();
	errno = kept;
}

void pl_cf_handles_clear(void)
{
	pl_cf_table_clear(&table);
}

void pl_cf_handles_forget(void)
{
	pthread_mutex_init(&owners_lock, NULL);
	for (int i = 0; i < nr_owners; i++)
		owners[i] = NULL;
	pl_cf_table_forget(&table);
}
