// SPDX-License-Identifier: MIT
/* NVMe controllers that files of this process share: the table, and the search by serial number. */
#include "nvme_shared.h"

#include "error.h"
#include "nvme_reach.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODULE_DEVICES "/sys/bus/pci/drivers/peerlane_nvme"

pthread_mutex_t pl_nvme_table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct pl_nvme_shared *table;

/* --- controllers --- */

static void destroy(struct pl_nvme_shared *s)
{
	struct pl_nvme_lane *lane;

	pl_nvme_reach_end(s);
	while ((lane = s->free)) {
		s->free = lane->next;
		free(lane);
	}
	/* Deletes the queues, and unmaps what is left. */
	peerlane_nvme_close(s->nvme);
	pthread_rwlock_destroy(&s->partial);
	pthread_mutex_destroy(&s->lock);
	pthread_cond_destroy(&s->freed);
	free(s->address);
	free(s);
}

static void init_locks(struct pl_nvme_shared *s)
{
	pthread_rwlockattr_t attr;

	/* Else writers of whole blocks could keep those of parts waiting for ever. */
	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&s->partial, &attr);
	pthread_rwlockattr_destroy(&attr);
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->freed, NULL);
}

static int open_address(const char *address, struct pl_nvme_shared **out)
{
	struct pl_nvme_shared *s = calloc(1, sizeof(*s));
	int err = -ENOMEM;

	if (!s)
		return err;
	init_locks(s);
	s->pid = getpid();
	s->info.size = sizeof(s->info);
	s->address = strdup(address);
	if (s->address)
		err = peerlane_nvme_open(&s->nvme, address, NULL);
	if (err)
		s->nvme = NULL;
	else
		err = peerlane_nvme_get_info(s->nvme, &s->info);
	if (err) {
		destroy(s);
		return err;
	}
	*out = s;
	return 0;
}

static struct pl_nvme_shared *find_open(const char *name, bool by_address)
{
	struct pl_nvme_shared *s = table;
	pid_t pid = getpid();

	while (s && (s->pid != pid || strcmp(by_address ? s->address : s->info.serial, name) != 0))
		s = s->next;
	return s;
}

/* Opens @address if it is not open, and keeps it if its serial number is @serial. */
static int try_address(const char *address, const char *serial, struct pl_nvme_shared **out)
{
	struct pl_nvme_shared *s;
	int err;

	if (find_open(address, true))
		return -ENODEV; /* and it is another one */
	err = open_address(address, &s);
	if (err)
		return err;
	if (!strcmp(s->info.serial, serial)) {
		*out = s;
		return 0;
	}
	destroy(s);
	return -ENODEV;
}

/* Addresses of PEERLANE_NVME, parted by |. */
static int search_named(const char *serial, struct pl_nvme_shared **out)
{
	const char *list = getenv("PEERLANE_NVME");
	char *copy, *rest, *address;
	int err = -ENODEV, worst = -ENODEV;

	rest = copy = strdup(list ? list : "");
	while (rest && (address = strsep(&rest, "|"))) {
		if (*address)
			err = try_address(address, serial, out);
		if (!err)
			break;
		if (err != -ENODEV)
			worst = err;
	}
	free(copy);
	return err ? worst : 0;
}

/* Devices bound to the kernel module. */
static int search_bound(const char *serial, struct pl_nvme_shared **out)
{
	DIR *dir = opendir(MODULE_DEVICES);
	int err = -ENODEV, worst = -ENODEV;
	struct dirent *entry;
	char address[300];

	while (dir && (entry = readdir(dir))) {
		if (!strchr(entry->d_name, ':'))
			continue;
		snprintf(address, sizeof(address), "kmod:%s", entry->d_name);
		err = try_address(address, serial, out);
		if (!err)
			break;
		if (err != -ENODEV)
			worst = err;
	}
	if (dir)
		closedir(dir);
	return err ? worst : 0;
}

/* Whether a name is an address: it says the transport first. */
static bool is_address(const char *name)
{
	return strchr(name, ':');
}

static int find(const char *name, struct pl_nvme_shared **out)
{
	int err, named;

	if (is_address(name))
		return open_address(name, out);
	named = search_named(name, out);
	if (!named)
		return 0;
	err = search_bound(name, out);
	return err == -ENODEV ? named : err;
}

static int say(const char *name, int err)
{
	const char *why = peerlane_nvme_why();

	if (err == -ENODEV && !is_address(name))
		return pl_fail(err,
			       "no NVMe controller with the serial number %s: neither open, nor in "
			       "PEERLANE_NVME, nor bound to the module peerlane_nvme",
			       name);
	return pl_fail(err, "the NVMe controller %s cannot be opened: %s", name,
		       *why ? why : strerrordesc_np(-err));
}

int pl_nvme_shared_get(const char *name, struct pl_nvme_shared **out)
{
	struct pl_nvme_shared *s;
	int err = 0;

	pthread_mutex_lock(&pl_nvme_table_lock);
	s = find_open(name, is_address(name));
	if (!s) {
		err = find(name, &s);
		if (!err) {
			s->next = table;
			table = s;
		}
	}
	if (!err) {
		s->users++;
		*out = s;
	}
	pthread_mutex_unlock(&pl_nvme_table_lock);
	return err ? say(name, err) : 0;
}

void pl_nvme_shared_put(struct pl_nvme_shared *s)
{
	struct pl_nvme_shared **at = &table;

	if (s->pid != getpid())
		return;
	pthread_mutex_lock(&pl_nvme_table_lock);
	if (!--s->users) {
		while (*at != s)
			at = &(*at)->next;
		*at = s->next;
		destroy(s);
	}
	pthread_mutex_unlock(&pl_nvme_table_lock);
}

/* --- lanes --- */

static int make_lane(struct pl_nvme_shared *s, struct pl_nvme_lane **out)
{
	struct peerlane_nvme_queue_options opt = { .size = sizeof(opt) };
	struct pl_nvme_lane *lane = calloc(1, sizeof(*lane));
	void *mem;
	int err;

	if (!lane)
		return -ENOMEM;
	err = peerlane_nvme_map_alloc(s->nvme, PL_NVME_LANE_BYTES, &mem, &lane->map);
	if (err)
		goto err_free;
	lane->mem = mem;
	err = peerlane_nvme_queue_create(s->nvme, &opt, &lane->queue);
	if (err)
		goto err_unmap;
	*out = lane;
	return 0;

err_unmap:
	peerlane_nvme_unmap(lane->map);
err_free:
	free(lane);
	return err;
}

int pl_nvme_lane_take(struct pl_nvme_shared *s, struct pl_nvme_lane **out)
{
	int err = 0;

	pthread_mutex_lock(&s->lock);
	for (;;) {
		if (s->free) {
			*out = s->free;
			s->free = s->free->next;
			break;
		}
		if (s->nr_lanes < PL_NVME_LANES) {
			err = make_lane(s, out);
			if (!err)
				s->nr_lanes++;
			/* Fewer will do. */
			if (!err || !s->nr_lanes)
				break;
			err = 0;
		}
		pthread_cond_wait(&s->freed, &s->lock);
	}
	pthread_mutex_unlock(&s->lock);
	return err;
}

void pl_nvme_lane_give(struct pl_nvme_shared *s, struct pl_nvme_lane *lane)
{
	pthread_mutex_lock(&s->lock);
	lane->next = s->free;
	s->free = lane;
	pthread_cond_signal(&s->freed);
	pthread_mutex_unlock(&s->lock);
}
