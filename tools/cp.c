/* SPDX-License-Identifier: MIT */
/* peerlane cp: a file through GPU memory to another file. */
#include "cleanup.h"
#include "commands.h"
#include "error.h"
#include "compare.h"
#include "folder.h"
#include "human.h"
#include "message.h"
#include "progress.h"
#include "route.h"
#include "session.h"
#include "stop.h"
#include "transfer.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

struct cp_args {
	bool verify, sync, force;
	unsigned int gpu;
	uint64_t chunk_bytes;
	const char *backend;
};

static const struct pl_option options[] = {
	{ "verify", PL_OPTION_FLAG, offsetof(struct cp_args, verify), NULL,
	  "Read both files again and compare them before DST gets its name (default).", 0, 0 },
	{ "no-verify", PL_OPTION_UNFLAG, offsetof(struct cp_args, verify), NULL, "Do not compare.",
	  0, 0 },
	{ "force", PL_OPTION_FLAG, offsetof(struct cp_args, force), NULL,
	  "Replace DST if it exists.", 0, 0 },
	{ "sync", PL_OPTION_FLAG, offsetof(struct cp_args, sync), NULL,
	  "Make DST durable before the command ends; it is then verified from the drive.", 0, 0 },
	{ "chunk", PL_OPTION_SIZE, offsetof(struct cp_args, chunk_bytes), "SIZE",
	  "Bytes of one of the two pieces of GPU memory used (default 64M).", 4096, 0x1p40 },
	{ "gpu", PL_OPTION_COUNT, offsetof(struct cp_args, gpu), "N",
	  "Go through GPU number N (default 0).", 0, 0 },
	{ "backend", PL_OPTION_CHOICE, offsetof(struct cp_args, backend), "auto|cuda|sim",
	  "GPU back end: CUDA, the simulator, or CUDA if it works (default).", 0, 0 },
	{ 0 },
};

/* A copy under way. The temporary name exists as long as temp is not empty. */
struct copy {
	const struct cp_args *args;
	const char *src, *dst;
	char into[PATH_MAX]; /* DST, where that is a folder */
	char dir[PATH_MAX];
	char temp[PATH_MAX];
	int src_fd, dst_fd;
	struct stat st;
	double seconds;
	struct pl_route_text read_path, write_path;
};

static int open_source(struct copy *c)
{
	c->src_fd = open(c->src, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (c->src_fd < 0 || fstat(c->src_fd, &c->st)) {
		pl_message_error("%s: %s", c->src, pl_error_open(c->src, errno));
		return -1;
	}
	if (!S_ISREG(c->st.st_mode)) {
		pl_message_error("%s: %s", c->src,
				 S_ISDIR(c->st.st_mode) ? "is a directory"
							: "is not a regular file");
		return -1;
	}
	return 0;
}

static int check_target(struct copy *c)
{
	struct stat st;

	if (pl_folder_enter(&c->dst, pl_folder_base(c->src).text, c->into, sizeof(c->into)))
		return -1;
	if (!stat(c->dst, &st) && st.st_dev == c->st.st_dev && st.st_ino == c->st.st_ino) {
		pl_message_error("%s and %s are the same file", c->src, c->dst);
		return -1;
	}
	if (!stat(c->dst, &st) && S_ISDIR(st.st_mode)) {
		pl_message_error("%s: is a directory, and cannot be replaced by a file", c->dst);
		return -1;
	}
	if (lstat(c->dst, &st))
		return 0;
	if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode)) {
		pl_message_error("%s: is not a regular file", c->dst);
		return -1;
	}
	if (!c->args->force) {
		pl_message_error("%s: exists; --force replaces it", c->dst);
		return -1;
	}
	return 0;
}

static int make_temp(struct copy *c)
{
	char copy[PATH_MAX];

	if (snprintf(copy, sizeof(copy), "%s", c->dst) >= (int)sizeof(copy) ||
	    snprintf(c->dir, sizeof(c->dir), "%s", dirname(copy)) >= (int)sizeof(c->dir) ||
	    snprintf(c->temp, sizeof(c->temp), "%s/.peerlane-cp.XXXXXX", c->dir) >=
		    (int)sizeof(c->temp)) {
		c->temp[0] = 0;
		pl_message_error("%s: %s", c->dst, strerror(ENAMETOOLONG));
		return -1;
	}
	c->dst_fd = mkostemp(c->temp, O_CLOEXEC);
	if (c->dst_fd < 0) {
		c->temp[0] = 0;
		pl_message_error("cannot make a file in %s: %s", c->dir,
				 pl_error_open(c->dst, errno));
		return -1;
	}
	if (ftruncate(c->dst_fd, c->st.st_size)) {
		pl_message_error("%s: %s", c->dst, strerror(errno));
		return -1;
	}
	return 0;
}

static int transfer(struct copy *c, struct pl_session *s, struct pl_transfer *t)
{
	struct pl_route reads = pl_route_now(s->ctx, PEERLANE_READ);
	struct pl_route writes = pl_route_now(s->ctx, PEERLANE_WRITE);
	uint64_t start = pl_progress_now();
	int err = pl_transfer_run(t);

	if (!err && c->args->sync) {
		err = peerlane_file_sync(t->dst);
		if (err)
			snprintf(t->error, sizeof(t->error), "making it durable: %s",
				 pl_session_reason(err).text);
	}
	c->seconds = (double)(pl_progress_now() - start) / 1e9;
	if (err && err != -ECANCELED)
		pl_message_error("%s to %s: %s", c->src, c->dst, t->error);
	reads = pl_route_since(s->ctx, PEERLANE_READ, reads);
	writes = pl_route_since(s->ctx, PEERLANE_WRITE, writes);
	c->read_path = pl_route_name(&reads);
	c->write_path = pl_route_name(&writes);
	return err;
}

static int move_data(struct copy *c)
{
	struct pl_session session;
	struct pl_transfer t = {
		.session = &session,
		.src_fd = c->src_fd,
		.bytes = (uint64_t)c->st.st_size,
		.chunk_bytes = (size_t)c->args->chunk_bytes,
	};
	int err = pl_session_open(&session, c->args->backend, c->args->gpu, 0);

	if (err)
		return err;
	err = peerlane_file_from_fd(session.ctx, c->src_fd, &t.src);
	if (!err)
		err = peerlane_file_from_fd(session.ctx, c->dst_fd, &t.dst);
	if (err)
		pl_message_error("%s to %s: %s", c->src, c->dst, pl_session_reason(err).text);
	else
		err = transfer(c, &session, &t);
	if (t.dst)
		peerlane_file_close(t.dst);
	if (t.src)
		peerlane_file_close(t.src);
	pl_session_close(&session);
	return err;
}

static int verify(struct copy *c)
{
	struct stat st;
	uint64_t where;
	int err;

	/* Data that is safe on the drive is dropped from memory, so that the drive is asked. */
	if (c->args->sync)
		posix_fadvise(c->dst_fd, 0, 0, POSIX_FADV_DONTNEED);
	err = pl_compare_files(c->src_fd, c->dst_fd, (uint64_t)c->st.st_size, &where);
	if (err == -EBADMSG)
		pl_message_error("verify: %s and the copy differ at byte %llu", c->src,
				 (unsigned long long)where);
	else if (err && err != -ECANCELED)
		pl_message_error("verify at byte %llu: %s", (unsigned long long)where,
				 strerror(-err));
	if (!err && (fstat(c->src_fd, &st) || st.st_size != c->st.st_size)) {
		pl_message_error("%s: its size changed while it was copied", c->src);
		err = -EIO;
	}
	return err;
}

/* Gives the copy its name; an existing file is replaced only when that was asked for. */
static int name_target(struct copy *c)
{
	PL_AUTO_FD int dir = -1;
	int err;

	if (fchmod(c->dst_fd, c->st.st_mode & 0777)) {
		pl_message_error("%s: cannot set its mode: %s", c->dst, strerror(errno));
		return -1;
	}
	err = renameat2(AT_FDCWD, c->temp, AT_FDCWD, c->dst, c->args->force ? 0 : RENAME_NOREPLACE);
	if (err && errno == EINVAL && !c->args->force) {
		/* The file system lacks that kind of rename; a link never replaces either. */
		err = link(c->temp, c->dst);
		if (!err)
			unlink(c->temp);
	}
	if (err) {
		pl_message_error("%s: %s", c->dst, strerror(errno));
		return -1;
	}
	c->temp[0] = 0;
	if (!c->args->sync)
		return 0;
	dir = open(c->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0 || fsync(dir)) {
		pl_message_error("%s: cannot make its name durable: %s", c->dst, strerror(errno));
		return -1;
	}
	return 0;
}

static int copy_file(struct copy *c)
{
	if (open_source(c) || check_target(c) || make_temp(c))
		return -1;
	if (move_data(c))
		return -1;
	if (c->args->verify && verify(c))
		return -1;
	return pl_stop_requested() ? -1 : name_target(c);
}

static int run(const struct pl_command *self, int argc, char **argv)
{
	struct cp_args args = { .verify = true, .chunk_bytes = 64u << 20 };
	struct copy c = { .args = &args, .src_fd = -1, .dst_fd = -1 };
	int status, err, first = pl_option_parse(self, argc, argv, &args, &status);

	if (first < 0)
		return status;
	c.src = argv[first];
	c.dst = argv[first + 1];
	pl_stop_catch();
	err = copy_file(&c);
	if (c.temp[0])
		unlink(c.temp);
	if (c.src_fd >= 0)
		close(c.src_fd);
	if (c.dst_fd >= 0)
		close(c.dst_fd);
	if (err && pl_stop_requested()) {
		pl_message_error("interrupted; %s was not made", c.dst);
		return pl_stop_status();
	}
	if (err)
		return 1;
	printf("%s -> %s: %s in %.3f s, %.2f GB/s, read %s, write %s, %s\n", c.src, c.dst,
	       pl_human_size((uint64_t)c.st.st_size).text, c.seconds,
	       c.seconds > 0 ? (double)c.st.st_size / c.seconds / 1e9 : 0, c.read_path.text,
	       c.write_path.text, args.verify ? "verified" : "not verified");
	return 0;
}

const struct pl_command pl_command_cp = {
	.name = "cp",
	.summary = "Copy a file through GPU memory, and verify the copy.",
	.args = "[options] SRC DST",
	.detail = "Reads SRC into GPU memory and writes it from there to a temporary file beside "
		  "DST, which gets the name DST when all is done. If DST is a folder, the copy "
		  "goes into it under SRC's name. Holes stay holes, the mode is "
		  "kept. A copy that fails or is interrupted leaves nothing behind.",
	.exits = "0  copied\n"
		 "1  not copied; nothing was left behind\n"
		 "2  the options are wrong\n"
		 "130  interrupted by SIGINT (143 by SIGTERM)",
	.options = options,
	.min_args = 2,
	.max_args = 2,
	.run = run,
};
