// SPDX-License-Identifier: MIT
/* Files that are namespaces of NVMe controllers. */
#include "nvme_file.h"

#include "context.h"
#include "nvme_reach.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "nvme:"
/* What fails without "do not retry" is tried so often in all. */
#define TRIES 4

bool pl_nvme_file_named(const char *path)
{
	return !strncmp(path, PREFIX, strlen(PREFIX));
}

int64_t pl_nvme_file_size(const struct pl_nvme_file *f)
{
	return (int64_t)f->bytes;
}

unsigned int pl_nvme_file_block(const struct pl_nvme_file *f)
{
	return f->block_bytes;
}

void pl_nvme_file_name(const struct pl_nvme_file *f, char *out, size_t bytes)
{
	pl_text(out, bytes, "%s/%u", f->shared->info.serial, f->nsid);
}

/* Remembers why I/O failed: whoever asked for it may be another thread. */
static void note(const struct pl_nvme_file *f, const struct peerlane_nvme_io *io,
		 struct peerlane_nvme_completion *cpl, int err)
{
	struct pl_nvme_shared *s = f->shared;
	char text[128];

	if (!cpl->err)
		cpl->err = err;
	peerlane_nvme_status_text(cpl, text, sizeof(text));
	pthread_mutex_lock(&s->lock);
	s->failed = err;
	pl_text(s->words, sizeof(s->words), "%s/%u: %s of %u blocks from %llu on: %s",
		s->info.serial, f->nsid, io->opcode == PL_NVME_READ ? "read" : "write",
		io->nr_blocks, (unsigned long long)io->lba, text);
	pthread_mutex_unlock(&s->lock);
}

void pl_nvme_file_explain(const struct pl_nvme_file *f, int err)
{
	struct pl_nvme_shared *s = f->shared;

	pthread_mutex_lock(&s->lock);
	pl_fail(err, "%s", s->failed == err ? s->words : peerlane_strerror(err));
	pthread_mutex_unlock(&s->lock);
}

int pl_nvme_file_run(const struct pl_nvme_file *f, struct pl_nvme_lane *lane, uint8_t opcode,
		     struct peerlane_nvme_map *map, size_t at, uint64_t offset, size_t bytes)
{
	struct peerlane_nvme_io io = {
		.opcode = opcode,
		.flags = opcode == PL_NVME_WRITE && f->fua ? PEERLANE_NVME_FUA : 0,
		.nr_blocks = (uint32_t)(bytes / f->block_bytes),
		.lba = offset / f->block_bytes,
		.ns = f->ns,
		.map = map,
		.offset = at,
	};
	int err = 0;

	for (int i = 0; i < TRIES; i++) {
		struct peerlane_nvme_completion cpl = { 0 };

		err = peerlane_nvme_run(lane->queue, &io, &cpl);
		if (err)
			note(f, &io, &cpl, err);
		if (!err || cpl.dnr || err == -ENODEV || err == -ERANGE || err == -EINVAL ||
		    err == -EFAULT)
			break;
	}
	return err;
}

/* --- by way of a lane's memory --- */

static int read_part(const struct pl_nvme_file *f, struct pl_nvme_lane *lane, char *mem,
		     uint64_t offset, size_t bytes)
{
	size_t skip = offset % f->block_bytes;
	size_t span = (skip + bytes + f->block_bytes - 1) / f->block_bytes * f->block_bytes;
	int err = pl_nvme_file_run(f, lane, PL_NVME_READ, lane->map, 0, offset - skip, span);

	if (!err)
		memcpy(mem, lane->mem + skip, bytes);
	return err;
}

/* Fetches the blocks of which only a part will be written. */
static int fetch_ends(const struct pl_nvme_file *f, struct pl_nvme_lane *lane, uint64_t start,
		      size_t skip, size_t bytes, size_t span)
{
	size_t last = span - f->block_bytes;
	int err = 0;

	if (skip || bytes < f->block_bytes)
		err = pl_nvme_file_run(f, lane, PL_NVME_READ, lane->map, 0, start, f->block_bytes);
	if (!err && last && skip + bytes < span)
		err = pl_nvme_file_run(f, lane, PL_NVME_READ, lane->map, last, start + last,
				       f->block_bytes);
	return err;
}

static int write_part(const struct pl_nvme_file *f, struct pl_nvme_lane *lane, const char *mem,
		      uint64_t offset, size_t bytes)
{
	size_t skip = offset % f->block_bytes;
	size_t span = (skip + bytes + f->block_bytes - 1) / f->block_bytes * f->block_bytes;
	bool partial = span != bytes;
	int err = 0;

	if (partial)
		pthread_rwlock_wrlock(&f->shared->partial);
	else
		pthread_rwlock_rdlock(&f->shared->partial);
	if (partial)
		err = fetch_ends(f, lane, offset - skip, skip, bytes, span);
	if (!err) {
		memcpy(lane->mem + skip, mem, bytes);
		err = pl_nvme_file_run(f, lane, PL_NVME_WRITE, lane->map, 0, offset - skip, span);
	}
	pthread_rwlock_unlock(&f->shared->partial);
	return err;
}

/* What is left of @bytes before the end of the namespace. */
static size_t until_end(const struct pl_nvme_file *f, size_t bytes, uint64_t offset)
{
	if (offset >= f->bytes)
		return 0;
	return bytes < f->bytes - offset ? bytes : (size_t)(f->bytes - offset);
}

static ssize_t staged(const struct pl_nvme_file *f, enum peerlane_op op, char *mem, size_t bytes,
		      uint64_t offset)
{
	struct pl_nvme_lane *lane;
	size_t done = 0, n;
	int err;

	bytes = until_end(f, bytes, offset);
	if (!bytes)
		return op == PEERLANE_WRITE ? -ENOSPC : 0;
	err = pl_nvme_lane_take(f->shared, &lane);
	if (err)
		return err;
	while (!err && done < bytes) {
		n = PL_NVME_LANE_BYTES - (offset + done) % f->block_bytes;
		n = bytes - done < n ? bytes - done : n;
		if (op == PEERLANE_READ)
			err = read_part(f, lane, mem + done, offset + done, n);
		else
			err = write_part(f, lane, mem + done, offset + done, n);
		done += err ? 0 : n;
	}
	pl_nvme_lane_give(f->shared, lane);
	return done ? (ssize_t)done : err;
}

static ssize_t read_op(void *arg, void *mem, size_t bytes, off_t offset)
{
	return staged(arg, PEERLANE_READ, mem, bytes, (uint64_t)offset);
}

static ssize_t write_op(void *arg, const void *mem, size_t bytes, off_t offset)
{
	return staged(arg, PEERLANE_WRITE, (char *)(uintptr_t)mem, bytes, (uint64_t)offset);
}

static int sync_op(void *arg)
{
	const struct pl_nvme_file *f = arg;
	struct peerlane_nvme_io io = { .opcode = PL_NVME_FLUSH, .ns = f->ns };
	struct pl_nvme_lane *lane;
	int err;

	if (!f->shared->info.has_write_cache)
		return 0;
	err = pl_nvme_lane_take(f->shared, &lane);
	if (err)
		return err;
	err = peerlane_nvme_run(lane->queue, &io, NULL);
	pl_nvme_lane_give(f->shared, lane);
	return err;
}

static void release_op(void *arg)
{
	struct pl_nvme_file *f = arg;

	pl_nvme_shared_put(f->shared);
	free(f);
}

/* --- straight --- */

/* Whether the segment is whole blocks, and its memory may be mapped; *why says what is missing. */
static bool may_go_straight(const struct peerlane *ctx, const struct pl_seg *seg,
			    enum pl_mem_kind kind, const char **why)
{
	const struct pl_nvme_file *f = seg->op->file->nvme;

	if (kind != PL_MEM_DEVICE)
		*why = "this is not GPU memory";
	else if (ctx->opt.flags & (PEERLANE_NO_P2P | PEERLANE_NO_DIRECT))
		*why = "switched off by the options";
	else if (!seg->buf)
		*why = "the memory is not registered as a buffer";
	else if (((uint64_t)seg->offset | seg->bytes) % f->block_bytes)
		*why = "offset and length are not whole blocks";
	else if ((uintptr_t)seg->addr % 4)
		*why = "the memory's address is not a multiple of 4";
	else
		return true;
	return false;
}

static int run_straight(const struct pl_nvme_file *f, enum peerlane_op dir,
			const struct pl_seg *seg, struct peerlane_nvme_map *map, size_t bytes)
{
	size_t at = (uintptr_t)seg->addr - seg->buf->addr;
	struct pl_nvme_lane *lane;
	int err = pl_nvme_lane_take(f->shared, &lane);

	if (err)
		return err;
	if (dir == PEERLANE_WRITE)
		pthread_rwlock_rdlock(&f->shared->partial);
	err = pl_nvme_file_run(f, lane, dir == PEERLANE_READ ? PL_NVME_READ : PL_NVME_WRITE, map,
			       at, (uint64_t)seg->offset, bytes);
	if (dir == PEERLANE_WRITE)
		pthread_rwlock_unlock(&f->shared->partial);
	pl_nvme_lane_give(f->shared, lane);
	return err;
}

/* The whole segment at once; a negative errno if it must go another way. */
static int direct(struct peerlane *ctx, enum peerlane_op dir, const struct pl_seg *seg,
		  size_t bytes, int *err)
{
	const struct pl_nvme_file *f = seg->op->file->nvme;
	int rc = -EFAULT;

	/* Any GPU memory that is freed costs the controller all its maps of such memory. */
	for (int i = 0; i < 2 && rc == -EFAULT; i++) {
		struct peerlane_nvme_map *map = pl_nvme_reach(ctx, f, seg->buf, NULL);

		if (!map)
			return -EOPNOTSUPP;
		*err = pl_buffer_recheck(ctx, seg->buf);
		if (*err)
			return *err;
		rc = run_straight(f, dir, seg, map, bytes);
		if (rc == -EFAULT)
			pl_nvme_reach_lost(f, seg->buf);
	}
	return rc;
}

size_t pl_nvme_file_direct(struct peerlane *ctx, enum peerlane_op dir, const struct pl_seg *seg,
			   int *err)
{
	const struct pl_nvme_file *f = seg->op->file->nvme;
	size_t bytes = until_end(f, seg->bytes, (uint64_t)seg->offset);
	const char *why;

	if (!bytes || !seg->buf || !may_go_straight(ctx, seg, seg->buf->mem.kind, &why))
		return 0;
	/* Where it fails, going there piece by piece tells how far the good bytes reach. */
	if (direct(ctx, dir, seg, bytes, err))
		return 0;
	pl_stats_path(&ctx->stats, dir, PEERLANE_PATH_P2P, bytes);
	if (dir == PEERLANE_WRITE && bytes < seg->bytes)
		*err = -ENOSPC;
	return bytes;
}

void pl_nvme_file_judge(struct peerlane *ctx, const struct pl_seg *seg, const struct pl_mem *mem,
			struct peerlane_verdict *out)
{
	const struct pl_nvme_file *f = seg->op->file->nvme;
	const char *why, *fix = "";

	if (may_go_straight(ctx, seg, mem->kind, &why)) {
		out->usable = pl_nvme_reach(ctx, f, seg->buf, out) != NULL;
		return;
	}
	if (mem->kind == PL_MEM_DEVICE && !seg->buf)
		fix = "register it: peerlane_buffer_register()";
	pl_text(out->reason, sizeof(out->reason), "%s", why);
	pl_text(out->fix, sizeof(out->fix), "%s", fix);
}

/* --- opening --- */

/* Parts "CONTROLLER/NSID"; @name is to be freed. */
static int parse(const char *path, char **name, uint32_t *nsid)
{
	const char *rest = path + strlen(PREFIX), *slash = strrchr(rest, '/');
	unsigned long number = 0;
	char *end = NULL;

	if (slash && slash[1] >= '0' && slash[1] <= '9')
		number = strtoul(slash + 1, &end, 10);
	if (!end || *end || slash == rest || !number || number >= PL_NVME_NSID_ALL)
		return pl_fail(-EINVAL,
			       "%s: an NVMe file is named nvme:SERIAL/NSID or "
			       "nvme:ADDRESS/NSID",
			       path);
	*name = strndup(rest, (size_t)(slash - rest));
	if (!*name)
		return pl_fail(-ENOMEM, "no memory for a file");
	*nsid = (uint32_t)number;
	return 0;
}

static int check_flags(const char *path, int flags)
{
	if ((flags & O_CREAT) && (flags & O_EXCL))
		return pl_fail(-EEXIST, "%s: a namespace is not created by opening it", path);
	if (flags & O_APPEND)
		return pl_fail(-EINVAL, "%s: a namespace cannot be appended to", path);
	return 0;
}

static int open_ns(struct pl_nvme_file *f, const char *path, int flags)
{
	struct peerlane_nvme_ns_info info = { .size = sizeof(info) };
	int err = peerlane_nvme_ns_open(f->shared->nvme, f->nsid, &f->ns);

	if (!err)
		err = peerlane_nvme_ns_get_info(f->ns, &info);
	if (err)
		return pl_fail(err, "%s: %s", path,
			       err == -ENXIO	    ? "the controller has no such namespace"
			       : err == -EOPNOTSUPP ? "the namespace has a format that is not taken"
						    : strerrordesc_np(-err));
	if (info.read_only && (flags & O_ACCMODE) != O_RDONLY)
		return pl_fail(-EROFS, "%s: the namespace is write protected", path);
	f->block_bytes = info.block_bytes;
	f->bytes = info.nr_blocks * info.block_bytes;
	f->fua = flags & O_DSYNC;
	return 0;
}

static int make_file(struct peerlane *ctx, struct pl_nvme_file *f, int flags,
		     struct peerlane_file **out)
{
	struct peerlane_file_ops ops = {
		.size = sizeof(ops),
		.read = (flags & O_ACCMODE) != O_WRONLY ? read_op : NULL,
		.write = (flags & O_ACCMODE) != O_RDONLY ? write_op : NULL,
		.sync = sync_op,
		.release = release_op,
	};
	int err = peerlane_file_from_ops(ctx, &ops, f, out);

	if (err)
		return err;
	(*out)->nvme = f;
	pl_text((*out)->direct_why, sizeof((*out)->direct_why),
		"the file is a namespace that the NVMe driver of this library reads and writes");
	return 0;
}

int pl_nvme_file_open(struct peerlane *ctx, const char *path, int flags, struct peerlane_file **out)
{
	struct pl_nvme_file *f;
	char *name = NULL;
	int err = check_flags(path, flags);

	if (err)
		return err;
	f = calloc(1, sizeof(*f));
	if (!f)
		return pl_fail(-ENOMEM, "no memory for a file");
	err = parse(path, &name, &f->nsid);
	if (err)
		goto err_free;
	err = name ? pl_nvme_shared_get(name, &f->shared) : -ENOMEM;
	free(name);
	if (err)
		goto err_free;
	err = open_ns(f, path, flags);
	if (!err)
		err = make_file(ctx, f, flags, out);
	if (!err)
		return 0;

	pl_nvme_shared_put(f->shared);
err_free:
	free(f);
	return err;
}
