// SPDX-License-Identifier: MIT
/* Times, leases and watches of files. */
#include "steady.h"

#include "context.h"
#include "watch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <time.h>

/* Clocks of file systems tick every 1 to 10 ms; some keep whole seconds only, and are left out. */
#define QUIET_NS 50000000ll

/*
 * Asks for a read lease and gives it back: 0 if nobody has the file open for writing. Not by the program's own
 * description of the file, whose owner and signal are the program's.
 */
static int ask_lease(const struct peerlane_file *f)
{
	int fd = f->want_direct ? f->fd : f->fd_direct;

	if (fd < 0)
		return -EBADF;
	/* Somebody who opens the file between the next two calls waits for the second, and we get a signal: SIGIO
	 * would end the program, SIGURG is ignored unless there is a handler. */
	if (fcntl(fd, F_SETSIG, SIGURG) || fcntl(fd, F_SETLEASE, F_RDLCK))
		return errno == EAGAIN ? -EBUSY : -errno;
	fcntl(fd, F_SETLEASE, F_UNLCK);
	return 0;
}

static bool quiet(const struct stat *seen)
{
	struct timespec now;

	return !clock_gettime(CLOCK_REALTIME, &now) &&
	       (now.tv_sec - seen->st_ctim.tv_sec) * 1000000000ll + now.tv_nsec -
			       seen->st_ctim.tv_nsec >
		       QUIET_NS;
}

int pl_steady_begin(struct peerlane_file *f)
{
	struct pl_steady *s = &f->ahead.steady;
	int err;

	if (s->refused)
		return s->refused;
	if (!s->watch)
		s->watch = pl_watch_get(&f->ctx->watcher, f->fd);
	if (!s->watch)
		return s->refused = -ENOSPC;
	s->changes = pl_watch_changes(&f->ctx->watcher, s->watch);
	if (fstat(f->fd, &s->seen) || !quiet(&s->seen))
		return -EAGAIN;
	/* After the times: what was in flight when they were noted has ended, or counts as open. */
	err = ask_lease(f);
	if (err && err != -EBUSY && err != -ENOMEM)
		s->refused = err;
	return err;
}

static bool same_time(struct timespec a, struct timespec b)
{
	return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

bool pl_steady_still(struct peerlane_file *f)
{
	const struct pl_steady *s = &f->ahead.steady;
	struct stat now;

	return pl_watch_changes(&f->ctx->watcher, s->watch) == s->changes && !fstat(f->fd, &now) &&
	       now.st_size == s->seen.st_size && same_time(now.st_mtim, s->seen.st_mtim) &&
	       same_time(now.st_ctim, s->seen.st_ctim);
}

void pl_steady_fini(struct peerlane_file *f)
{
	pl_watch_put(&f->ctx->watcher, f->ahead.steady.watch);
}

const char *pl_steady_why(int err)
{
	switch (err) {
	case -EBUSY:
		return "somebody has the file open for writing";
	case -EAGAIN:
		return "the file was changed a moment ago";
	case -ENOSPC:
		return "the system has no inotify instance or watch left for this user";
	case -EACCES:
		return "the process neither owns the file nor has CAP_LEASE, so it cannot ask "
		       "whether others have it open for writing";
	default:
		return "the system grants no leases (fcntl F_SETLEASE) on this file, so it does "
		       "not tell whether others have it open for writing";
	}
}
