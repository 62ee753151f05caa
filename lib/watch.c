// SPDX-License-Identifier: MIT
/* Watches of files, by inotify. */
#include "watch.h"

#include "context.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <unistd.h>

struct pl_watch {
	struct pl_watch *next;
	int wd;
	unsigned int users;
	uint64_t changes;
	bool gone; /* the system has dropped it: nothing can be told any more */
};

void pl_watcher_init(struct pl_watcher *w)
{
	pl_lock_init(&w->lock);
	w->fd = -1;
	w->watches = NULL;
}

void pl_watcher_fini(struct pl_watcher *w)
{
	if (w->fd >= 0)
		close(w->fd);
	w->fd = -1;
	while (w->watches) {
		struct pl_watch *watch = w->watches;

		w->watches = watch->next;
		free(watch);
	}
}

static struct pl_watch *find(struct pl_watcher *w, int wd)
{
	struct pl_watch *watch = w->watches;

	while (watch && watch->wd != wd)
		watch = watch->next;
	return watch;
}

/* A watch for @wd, which is new or had before; lock held. */
static struct pl_watch *get(struct pl_watcher *w, int wd)
{
	struct pl_watch *watch = find(w, wd);

	if (!watch) {
		watch = calloc(1, sizeof(*watch));
		if (!watch) {
			inotify_rm_watch(w->fd, wd);
			return NULL;
		}
		watch->wd = wd;
		watch->next = w->watches;
		w->watches = watch;
	}
	watch->users++;
	return watch;
}

struct pl_watch *pl_watch_get(struct pl_watcher *w, int fd)
{
	struct pl_watch *watch = NULL;
	char path[32];
	int wd = -1;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	pthread_mutex_lock(&w->lock);
	if (w->fd < 0)
		w->fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (w->fd >= 0)
		wd = inotify_add_watch(w->fd, path, IN_MODIFY);
	if (wd >= 0)
		watch = get(w, wd);
	pthread_mutex_unlock(&w->lock);
	return watch;
}

void pl_watch_put(struct pl_watcher *w, struct pl_watch *watch)
{
	struct pl_watch **p;

	if (!watch)
		return;
	pthread_mutex_lock(&w->lock);
	if (!--watch->users) {
		for (p = &w->watches; *p != watch; p = &(*p)->next)
			;
		*p = watch->next;
		inotify_rm_watch(w->fd, watch->wd);
		free(watch);
	}
	pthread_mutex_unlock(&w->lock);
}

/* Notes what an event tells; one without a file says that some were lost. Lock held. */
static void note(struct pl_watcher *w, const struct inotify_event *e)
{
	for (struct pl_watch *watch = w->watches; watch; watch = watch->next) {
		if (watch->wd != e->wd && e->wd >= 0)
			continue;
		watch->changes++;
		watch->gone |= (e->mask & IN_IGNORED) != 0;
	}
}

/* Lock held. */
static void drain(struct pl_watcher *w)
{
	char events[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
	ssize_t n;

	while ((n = read(w->fd, events, sizeof(events))) > 0) {
		for (char *at = events; at < events + n;) {
			const struct inotify_event *e = (const struct inotify_event *)(void *)at;

			note(w, e);
			at += sizeof(*e) + e->len;
		}
	}
}

uint64_t pl_watch_changes(struct pl_watcher *w, struct pl_watch *watch)
{
	uint64_t changes;

	pthread_mutex_lock(&w->lock);
	drain(w);
	watch->changes += watch->gone;
	changes = watch->changes;
	pthread_mutex_unlock(&w->lock);
	return changes;
}
