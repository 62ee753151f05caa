// SPDX-License-Identifier: MIT
/* Which path a request would take, and for every better one why not. */
#include "cache.h"
#include "context.h"
#include "io.h"
#include "nvme_file.h"
#include "p2p.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static const char *const names[] = {
	[PEERLANE_PATH_P2P] = "p2p",	       [PEERLANE_PATH_MAPPED] = "mapped",
	[PEERLANE_PATH_IN_PLACE] = "in-place", [PEERLANE_PATH_COPY] = "copy",
	[PEERLANE_PATH_DIRECT] = "direct",
};

const char *peerlane_path_name(enum peerlane_path path)
{
	return (unsigned int)path < PEERLANE_PATH_NR ? names[path] : "unknown";
}

static const char *kind_name(enum pl_mem_kind kind)
{
	switch (kind) {
	case PL_MEM_DEVICE:
		return "device";
	case PL_MEM_MANAGED:
		return "managed";
	case PL_MEM_PINNED:
		return "pinned";
	default:
		return "host";
	}
}

struct question {
	struct peerlane *ctx;
	struct peerlane_file *file;
	enum peerlane_op op;
	struct pl_op request;
	struct pl_seg seg;
	struct pl_mem mem;
	struct pl_buffer *buf;
	int64_t cached;
	struct peerlane_explanation *out;
};

static struct peerlane_verdict *verdict(struct question *q, enum peerlane_path path, int usable)
{
	struct peerlane_verdict *v = &q->out->verdicts[path];

	v->path = path;
	v->usable = usable;
	return v;
}

#define REASON(v, ...) pl_text((v)->reason, sizeof((v)->reason), __VA_ARGS__)
#define FIX(v, ...) pl_text((v)->fix, sizeof((v)->fix), __VA_ARGS__)

static void judge_mapped(struct question *q)
{
	struct peerlane_verdict *v = verdict(q, PEERLANE_PATH_MAPPED, q->seg.host != NULL);

	if (q->seg.host) {
		REASON(v, "the CPU can address this memory: file I/O goes straight into it");
	} else if (q->mem.host) {
		REASON(v, "switched off by the options");
		FIX(v, "remove no-mapped from PEERLANE_FLAGS or the options");
	} else {
		REASON(v, "the GPU memory is not mapped for the CPU");
	}
}

static void judge_in_place(struct question *q)
{
	struct peerlane_verdict *v = verdict(q, PEERLANE_PATH_IN_PLACE, 0);

	if (q->op == PEERLANE_WRITE) {
		REASON(v, "only for reads");
	} else if (q->file->callbacks) {
		REASON(v, "the page cache has nothing of this file");
	} else if (q->cached < (int64_t)q->seg.bytes) {
		REASON(v, q->cached < 0 ? "how much is cached is unknown: the kernel does not tell"
					: "the range is not wholly in the page cache");
	} else if (pl_window_wanted(q->ctx, &q->seg, v->reason, sizeof(v->reason))) {
		v->usable = 1;
		REASON(v, "a large read of cached data; saves CPU time");
	}
}

/* Whether more than half of a write goes through the page cache. */
static bool mostly_odd(const struct question *q)
{
	return q->file->fd >= 0 &&
	       (q->file->append || pl_io_odd_bytes(q->file, &q->seg) > q->seg.bytes / 2);
}

/* A read of up to this size goes through the page cache without a look at what is in it. */
#define SMALL (64 * 1024u)
#define SMALL_TEXT "reads of up to 64 KiB"

static bool copies(const struct question *q)
{
	if (q->file->want_direct && q->file->fd_direct >= 0 &&
	    !(q->ctx->opt.flags & PEERLANE_NO_DIRECT))
		return q->op == PEERLANE_WRITE && mostly_odd(q);
	return q->op == PEERLANE_WRITE || q->cached < 0 || q->seg.bytes <= SMALL ||
	       q->file->fd_direct < 0 || (q->ctx->opt.flags & PEERLANE_NO_DIRECT) ||
	       q->cached >= (int64_t)q->seg.bytes / 2;
}

static void judge_p2p(struct question *q)
{
	struct peerlane_verdict *v = verdict(q, PEERLANE_PATH_P2P, 0);

	if (q->file->nvme) {
		pl_nvme_file_judge(q->ctx, &q->seg, &q->mem, v);
		return;
	}
	pl_p2p_judge(q->ctx, &q->seg, q->op, &q->mem, q->buf, v);
	if (!v->usable || !copies(q))
		return;
	v->usable = 0;
	REASON(v, q->op == PEERLANE_WRITE ? "most of the range is not whole blocks"
		  : q->seg.bytes <= SMALL ? "not used for " SMALL_TEXT
		  : q->cached < 0 ? "how much is cached is unknown: the kernel does not tell"
				  : "the data is in the page cache: it is cheaper from there");
}

static void judge_copy(struct question *q)
{
	struct peerlane_verdict *v =
		verdict(q, PEERLANE_PATH_COPY, q->file->fd >= 0 || q->file->callbacks);

	if (q->seg.host) {
		v->usable = 0;
		REASON(v, "not needed: the CPU can address this memory");
	} else if (q->file->nvme) {
		REASON(v, "the NVMe driver of this library uses host memory, which is copied");
	} else if (q->file->callbacks) {
		REASON(v, "functions of the program read and write this file");
	} else if (q->file->fd < 0) {
		REASON(v, "no second descriptor without O_DIRECT could be had");
		FIX(v, "mount /proc");
	} else if (copies(q)) {
		REASON(v, q->op == PEERLANE_WRITE ? "writes go through the page cache"
			  : q->seg.bytes <= SMALL ? SMALL_TEXT " go through the page cache"
			  : q->cached < 0
				  ? "how much is cached is unknown: the kernel does not tell"
				  : "the data is in the page cache");
	} else {
		v->usable = 0;
		REASON(v, q->file->want_direct ? "the file was opened with O_DIRECT"
					       : "the data is not in the page cache");
	}
}

static void judge_direct(struct question *q)
{
	struct peerlane_verdict *v = verdict(q, PEERLANE_PATH_DIRECT, 0);

	if (q->ctx->opt.flags & PEERLANE_NO_DIRECT) {
		REASON(v, "switched off by the options");
		FIX(v, "remove no-direct from PEERLANE_FLAGS or the options");
	} else if (q->file->fd_direct < 0) {
		REASON(v, "%s", q->file->direct_why);
		if (!q->file->callbacks)
			FIX(v, "none needed on tmpfs; else use a file system with O_DIRECT");
	} else if (q->seg.host) {
		REASON(v, "not needed: the CPU can address this memory");
	} else if (copies(q)) {
		REASON(v, q->op == PEERLANE_WRITE ? "the file was opened without O_DIRECT"
			  : q->seg.bytes <= SMALL ? "not used for " SMALL_TEXT
			  : q->cached < 0
				  ? "how much is cached is unknown: the kernel does not tell"
				  : "the data is in the page cache");
		if (q->file->want_direct)
			REASON(v, "most of the range is not whole blocks");
		else if (q->op == PEERLANE_WRITE)
			FIX(v, "open it with O_DIRECT to bypass the page cache");
	} else {
		v->usable = 1;
		REASON(v, "%s, by %s",
		       q->op == PEERLANE_READ ? "the data must come from the device"
					      : "the file was opened with O_DIRECT",
		       q->ctx->ring_why ? "threads" : "io_uring");
	}
}

/* Name of the block device under the file: the last part of its sysfs link. */
static void device_name(dev_t dev, char *out, size_t bytes)
{
	char path[64], link[PATH_MAX];
	const char *base;
	ssize_t n;

	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u", major(dev), minor(dev));
	n = readlink(path, link, sizeof(link) - 1);
	if (n <= 0)
		return;
	link[n] = '\0';
	base = strrchr(link, '/');
	pl_text(out, bytes, "%s", base ? base + 1 : link);
}

static void judge_ahead(struct question *q)
{
	const char *why = q->op == PEERLANE_READ ? pl_ahead_why(&q->seg)
						 : "only reads are read ahead";

	pl_text(q->out->ahead_reason, sizeof(q->out->ahead_reason), "%s", why ? why : "");
}

static void describe(struct question *q)
{
	struct peerlane_explanation *out = q->out;

	pl_text(out->io_engine, sizeof(out->io_engine), "%s",
		q->file->nvme	   ? "nvme"
		: q->ctx->ring_why ? "threads"
				   : "io_uring");
	if (q->ctx->ring_why && !q->file->nvme)
		pl_text(out->io_reason, sizeof(out->io_reason), "%s", q->ctx->ring_why);
	pl_text(out->fs, sizeof(out->fs), "%s",
		q->file->nvme	     ? "nvme"
		: q->file->callbacks ? "callbacks"
		: q->file->block     ? "block device"
				     : pl_file_fs_name(q->file->magic));
	if (q->file->nvme)
		pl_nvme_file_name(q->file->nvme, out->device, sizeof(out->device));
	else
		device_name(q->file->dev, out->device, sizeof(out->device));
	out->dio_align = q->file->nvme		   ? pl_nvme_file_block(q->file->nvme)
			 : q->file->fd_direct >= 0 ? q->file->align
						   : 0;
	out->file_bytes = pl_file_size(q->file);
	out->cached_bytes = q->cached;
	pl_text(out->memory, sizeof(out->memory), "%s", kind_name(q->mem.kind));
	out->gpu = q->mem.gpu;
}

static void judge(struct question *q)
{
	judge_p2p(q);
	judge_mapped(q);
	judge_in_place(q);
	judge_copy(q);
	judge_direct(q);
	judge_ahead(q);
	q->out->nr_verdicts = PEERLANE_PATH_NR;
	for (unsigned int i = 0; i < PEERLANE_PATH_NR; i++) {
		if (q->out->verdicts[i].usable) {
			q->out->chosen = q->out->verdicts[i].path;
			break;
		}
	}
}

int peerlane_explain(struct peerlane_file *file, enum peerlane_op op, const void *addr,
		     size_t bytes, off_t offset, struct peerlane_explanation *out)
{
	PL_KEEP_ERRNO;
	struct question q = { .file = file, .op = op, .out = out, .request.file = file };
	int err;

	if (!out || out->size != sizeof(*out) || op > PEERLANE_WRITE)
		return pl_fail(-EINVAL, "the explanation struct is NULL or of an unknown size");
	err = pl_io_check(file, op, bytes, offset);
	if (err)
		return err;
	q.ctx = file->ctx;
	err = pl_io_segment(q.ctx, &q.seg, op, &q.request, addr, bytes, offset, &q.buf);
	if (!err)
		err = q.ctx->gpu->ops->query(q.ctx->gpu, addr, &q.mem);
	if (!err) {
		memset(out, 0, sizeof(*out));
		out->size = sizeof(*out);
		if (op == PEERLANE_READ)
			q.seg.bytes = pl_io_until_end(file, bytes, offset);
		q.cached = file->readable && file->fd >= 0 && q.seg.bytes
				   ? pl_cache_resident(file->fd, offset, q.seg.bytes)
				   : -1;
		describe(&q);
		judge(&q);
	}
	pl_buffer_put(q.buf);
	pl_file_put(file);
	return err;
}
