// SPDX-License-Identifier: MIT
/* Transports to the software controller: in this process, or served by another one. */
#include "transport_sim.h"

#include "shared_fd.h"
#include "why.h"

#include <peerlane/nvme_spec.h>

#include <simnvme.h>

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define PAGE ((size_t)4096)
#define GPU_PAGE ((size_t)65536)
#define RW (PL_SIMNVME_READ | PL_SIMNVME_WRITE)
/* Addresses are never given out twice: use after unmap is a fault. */
#define FIRST_IOVA 0x100000000ull
#define IOVA_ALIGN 0x100000ull
#define LAST_IOVA 0x3fff00000000ull
#define CLIENT_IOVAS 0xe00000000ull
/* Where the controller's own memory is. */
#define BAR_BUS 0x400000000000ull

struct sim_map {
	struct pl_nvme_mapping m;
	struct sim_map *next;
	/* Memory that alloc() made. */
	int fd;
	void *memory;
	size_t memory_bytes;
	/* What the controller knows: parts, in whole pages of 4096. */
	size_t nr_parts;
	struct sim_part {
		uint64_t iova;
		size_t bytes;
	} parts[];
};

struct sim {
	struct pl_nvme_transport t;
	struct pl_simnvme *c;		  /* in this process */
	struct pl_simnvme_client *client; /* or elsewhere */
	struct pl_simnvme_server *server; /* in this process, and serving those that were let in */
	bool has_thread, scatter;
	pthread_mutex_t lock; /* guards what follows */
	uint64_t next_iova, last_iova;
	struct sim_map *maps;
};

static struct sim *sim_of(struct pl_nvme_transport *t)
{
	return (struct sim *)t;
}

static bool sim_gone(struct pl_nvme_transport *t)
{
	const volatile uint32_t *csts =
		(const volatile uint32_t *)((volatile char *)t->bar0.ptr + PL_NVME_REG_CSTS);

	if (__atomic_load_n(csts, __ATOMIC_ACQUIRE) == UINT32_MAX)
		return true;
	return !sim_of(t)->c && pl_simnvme_client_gone(sim_of(t)->client);
}

/* Addresses for so many bytes: 0 if there are none left. */
static uint64_t take_iova(struct sim *s, size_t bytes)
{
	uint64_t iova = 0;

	pthread_mutex_lock(&s->lock);
	if (s->next_iova < s->last_iova && bytes <= s->last_iova - s->next_iova) {
		iova = s->next_iova;
		/* Something stays free behind it. */
		s->next_iova = (iova + bytes + IOVA_ALIGN) / IOVA_ALIGN * IOVA_ALIGN;
	}
	pthread_mutex_unlock(&s->lock);
	return iova;
}

static int map_part(struct sim *s, uint64_t iova, char *cpu, size_t bytes)
{
	uint64_t offset;
	int fd, rc;

	if (s->c)
		return pl_simnvme_map(s->c, iova, cpu, bytes, RW);
	fd = pl_nvme_shared_fd(cpu, bytes, &offset);
	if (fd < 0)
		return fd;
	rc = pl_simnvme_client_map(s->client, iova, fd, offset, bytes, RW);
	close(fd);
	return rc;
}

static void unmap_parts(struct sim *s, struct sim_map *map)
{
	while (map->nr_parts) {
		const struct sim_part *part = &map->parts[--map->nr_parts];

		if (s->c)
			pl_simnvme_unmap(s->c, part->iova, part->bytes);
		else if (s->client)
			pl_simnvme_client_unmap(s->client, part->iova, part->bytes);
	}
}

/*
 * Map memory as pages of page_bytes, each of which is a part of its own, backwards and with holes
 * between them, or as one run. Only pages of 4096 that the memory touches become reachable.
 */
static int make_map(struct sim *s, char *cpu, size_t bytes, size_t offset, size_t page_bytes,
		    bool scatter, struct sim_map **out)
{
	size_t nr = (offset + bytes + page_bytes - 1) / page_bytes, stride = page_bytes;
	size_t nr_parts = scatter ? nr : 1;
	struct sim_map *map;
	uint64_t *pages, iova;
	int rc = 0;

	if (scatter)
		stride *= 2;
	map = calloc(1, sizeof(*map) + nr_parts * sizeof(*map->parts));
	pages = calloc(nr, sizeof(*pages));
	if (!map || !pages) {
		rc = -ENOMEM;
		goto err_free;
	}
	iova = take_iova(s, nr * stride);
	if (!iova) {
		rc = -ENOSPC;
		goto err_free;
	}
	for (size_t i = 0; i < nr; i++)
		pages[i] = iova + (scatter ? nr - 1 - i : i) * stride;
	for (size_t i = 0; i < nr_parts && !rc; i++) {
		/* From and to: in bytes from the start of the first page. */
		size_t from = i ? i * page_bytes : offset;
		size_t to = scatter && i != nr - 1 ? (i + 1) * page_bytes : offset + bytes;

		from -= from % PAGE;
		to = (to + PAGE - 1) / PAGE * PAGE;
		rc = map_part(s, pages[i] + (from - i * page_bytes), cpu - offset + from,
			      to - from);
		if (!rc)
			map->parts[map->nr_parts++] =
				(struct sim_part){ pages[i] + (from - i * page_bytes), to - from };
	}
	if (rc)
		goto err_unmap;
	map->fd = -1;
	map->m = (struct pl_nvme_mapping){
		.cpu = cpu,
		.bytes = bytes,
		.offset = offset,
		.page_bytes = page_bytes,
		.nr_pages = nr,
		.pages = pages,
	};
	*out = map;
	return 0;

err_unmap:
	unmap_parts(s, map);
err_free:
	free(pages);
	free(map);
	return rc;
}

static void enter(struct sim *s, struct sim_map *map)
{
	pthread_mutex_lock(&s->lock);
	map->next = s->maps;
	s->maps = map;
	pthread_mutex_unlock(&s->lock);
}

static int sim_map(struct pl_nvme_transport *t, const struct pl_nvme_region *region,
		   const struct pl_nvme_mapping **out)
{
	bool is_gpu = region->kind == PL_NVME_GPU;
	size_t page = is_gpu ? GPU_PAGE : PAGE, offset = (uintptr_t)region->ptr % page;
	char *cpu = is_gpu ? region->cpu : region->ptr;
	struct sim *s = sim_of(t);
	struct sim_map *map;
	int rc;

	if (!region->bytes || (uintptr_t)region->ptr + region->bytes < (uintptr_t)region->ptr)
		return -EINVAL;
	/* Where the CPU does not reach a GPU's memory, neither does this controller. */
	if (!cpu || ((uintptr_t)cpu ^ (uintptr_t)region->ptr) % PAGE)
		return is_gpu ? -EOPNOTSUPP : -EFAULT;
	if (sim_gone(t))
		return -ENODEV;
	/* Pages of a GPU are never beside each other: drivers must not count on it. */
	rc = make_map(s, cpu, region->bytes, offset, page, is_gpu || s->scatter, &map);
	if (rc)
		return rc;
	enter(s, map);
	*out = &map->m;
	return 0;
}

static int sim_alloc(struct pl_nvme_transport *t, size_t bytes, const struct pl_nvme_mapping **out)
{
	struct sim *s = sim_of(t);
	struct sim_map *map;
	void *memory;
	size_t room;
	int fd, rc;

	if (!bytes || bytes > SIZE_MAX - PAGE)
		return -ENOMEM;
	if (sim_gone(t))
		return -ENODEV;
	room = (bytes + PAGE - 1) / PAGE * PAGE;
	fd = memfd_create("peerlane-nvme", MFD_CLOEXEC);
	if (fd < 0)
		return -ENOMEM;
	memory = ftruncate(fd, (off_t)room)
			 ? MAP_FAILED
			 : mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED) {
		rc = -ENOMEM;
		goto err_close;
	}
	rc = make_map(s, memory, room, 0, PAGE, false, &map);
	if (rc)
		goto err_unmap;
	map->fd = fd;
	map->memory = memory;
	map->memory_bytes = room;
	map->m.bytes = bytes;
	enter(s, map);
	*out = &map->m;
	return 0;

err_unmap:
	munmap(memory, room);
err_close:
	close(fd);
	return rc;
}

static void destroy_map(struct sim *s, struct sim_map *map)
{
	unmap_parts(s, map);
	if (map->memory) {
		munmap(map->memory, map->memory_bytes);
		close(map->fd);
	}
	free((void *)map->m.pages);
	free(map);
}

static void sim_unmap(struct pl_nvme_transport *t, const struct pl_nvme_mapping *mapping)
{
	struct sim *s = sim_of(t);
	struct sim_map **at, *map;

	if (!mapping)
		return;
	pthread_mutex_lock(&s->lock);
	for (at = &s->maps; *at && &(*at)->m != mapping;)
		at = &(*at)->next;
	map = *at;
	if (map)
		*at = map->next;
	pthread_mutex_unlock(&s->lock);
	if (map)
		destroy_map(s, map);
}

static void sim_close(struct pl_nvme_transport *t)
{
	struct sim *s = sim_of(t);

	if (!t)
		return;
	/*
	 * The controller first, so that it touches nothing any more. One that is elsewhere sees to that when
	 * the connection ends.
	 */
	pl_simnvme_disconnect(s->client);
	s->client = NULL;
	pl_simnvme_unserve(s->server);
	if (s->c)
		pl_simnvme_stop(s->c);
	while (s->maps) {
		struct sim_map *map = s->maps;

		s->maps = map->next;
		destroy_map(s, map);
	}
	pl_simnvme_destroy(s->c);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

static struct sim *make_sim(const struct pl_nvme_transport_ops *ops)
{
	struct sim *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->t.ops = ops;
	s->next_iova = FIRST_IOVA;
	s->last_iova = LAST_IOVA;
	pthread_mutex_init(&s->lock, NULL);
	return s;
}

/* Take the transport's own keys out of the address; the rest is the controller's. */
static int take_keys(struct sim *s, const char *address, char *rest)
{
	char *copy = strdup(address), *next = copy, *word;

	if (!copy)
		return -ENOMEM;
	s->has_thread = true;
	while ((word = strsep(&next, ","))) {
		if (!strcmp(word, "thread=0")) {
			s->has_thread = false;
		} else if (!strcmp(word, "scatter=1")) {
			s->scatter = true;
		} else {
			rest = stpcpy(rest, word);
			rest = stpcpy(rest, ",");
		}
	}
	*rest = '\0';
	free(copy);
	return 0;
}

static int sim_open(const char *address, struct pl_nvme_transport **out)
{
	struct sim *s = make_sim(&pl_nvme_transport_sim);
	char *rest = malloc(strlen(address) + 2), why[256];
	int rc = s && rest ? take_keys(s, address, rest) : -ENOMEM;

	if (!rc) {
		rc = pl_simnvme_create(rest, &s->c, why, sizeof(why));
		if (rc)
			pl_nvme_why("%s", why);
	}
	if (!rc && s->has_thread)
		rc = pl_simnvme_start(s->c);
	free(rest);
	if (rc) {
		if (s)
			sim_close(&s->t);
		return rc;
	}
	s->t.bar0.ptr = pl_simnvme_bar(s->c, &s->t.bar0.bytes);
	s->t.bar0.bus = BAR_BUS;
	*out = &s->t;
	return 0;
}

static int use_client(struct pl_simnvme_client *client, struct pl_nvme_transport **out)
{
	struct sim *s = make_sim(&pl_nvme_transport_sim_unix);

	if (!s) {
		pl_simnvme_disconnect(client);
		return -ENOMEM;
	}
	s->has_thread = true;
	s->client = client;
	/* Clients of one controller share its addresses: each takes its own part of them. */
	s->next_iova = FIRST_IOVA + pl_simnvme_client_base(s->client);
	s->last_iova = s->next_iova + CLIENT_IOVAS;
	s->t.bar0.ptr = pl_simnvme_client_bar(s->client, &s->t.bar0.bytes);
	s->t.bar0.bus = BAR_BUS;
	*out = &s->t;
	return 0;
}

static int sim_unix_open(const char *address, struct pl_nvme_transport **out)
{
	struct pl_simnvme_client *client;
	int rc = pl_simnvme_connect(address, &client);

	if (rc == -ENOENT || rc == -ECONNREFUSED) {
		pl_nvme_why("nobody serves there");
		return -ENODEV;
	}
	if (rc)
		return rc;
	return use_client(client, out);
}

static int sim_unix_adopt(int fd, struct pl_nvme_transport **out)
{
	struct pl_simnvme_client *client;
	int rc = pl_simnvme_adopt(fd, &client);

	if (!rc)
		rc = use_client(client, out);
	/* As the module has it: registers are only to be looked at. */
	if (!rc &&
	    mprotect((void *)(uintptr_t)(*out)->bar0.ptr, PL_NVME_REG_DOORBELLS, PROT_READ)) {
		rc = -errno;
		sim_close(*out);
	}
	return rc;
}

/* A controller in this process gets a server, of which this process is the first client. */
static int start_serving(struct sim *s)
{
	struct pl_simnvme_client *client = NULL;
	int pair[2], rc;

	if (!s->has_thread || s->next_iova > FIRST_IOVA + CLIENT_IOVAS)
		return -EOPNOTSUPP;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return -errno;
	rc = pl_simnvme_serve_one(s->c, pair[0], &s->server);
	if (rc) {
		close(pair[0]);
		close(pair[1]);
		return rc;
	}
	rc = pl_simnvme_adopt(pair[1], &client);
	if (rc) {
		pl_simnvme_unserve(s->server);
		s->server = NULL;
		return rc;
	}
	s->client = client;
	/* The clients' addresses come behind these. */
	s->last_iova = FIRST_IOVA + CLIENT_IOVAS;
	return 0;
}

static int sim_grant(struct pl_nvme_transport *t, size_t bar0_bytes, struct pl_nvme_grant *out)
{
	struct sim *s = sim_of(t);
	int rc = 0;

	(void)bar0_bytes; /* its BAR is one file */
	pthread_mutex_lock(&s->lock);
	if (!s->client)
		rc = start_serving(s);
	pthread_mutex_unlock(&s->lock);
	if (rc)
		return rc;
	out->kind = pl_nvme_transport_sim_unix.name;
	return pl_simnvme_client_grant(s->client, &out->fd, &out->id);
}

static void sim_revoke(struct pl_nvme_transport *t, uint64_t id)
{
	pl_simnvme_client_revoke(sim_of(t)->client, id);
}

static int sim_reset(struct pl_nvme_transport *t)
{
	struct sim *s = sim_of(t);

	if (sim_gone(t))
		return -ENODEV;
	if (!s->c)
		return pl_simnvme_client_reset(s->client);
	pl_simnvme_reset(s->c);
	return 0;
}

static void sim_idle(struct pl_nvme_transport *t)
{
	struct sim *s = sim_of(t);

	if (s->has_thread)
		sched_yield();
	else
		pl_simnvme_step(s->c);
}

/* They differ in how the controller is found. */
#define SIM_OPS(sim_name, sim_open_fn, sim_adopt_fn)                                               \
	{                                                                                          \
		.name = (sim_name), .open = (sim_open_fn), .adopt = (sim_adopt_fn),                \
		.close = sim_close, .map = sim_map, .unmap = sim_unmap, .alloc = sim_alloc,        \
		.free = sim_unmap, .gone = sim_gone, .reset = sim_reset, .idle = sim_idle,         \
		.grant = sim_grant, .revoke = sim_revoke,                                          \
	}

const struct pl_nvme_transport_ops pl_nvme_transport_sim = SIM_OPS("sim", sim_open, NULL);
const struct pl_nvme_transport_ops pl_nvme_transport_sim_unix =
	SIM_OPS("sim-unix", sim_unix_open, sim_unix_adopt);
