/* SPDX-License-Identifier: MIT */
/* An array over software controllers, and a model of what it holds. */
#ifndef PL_ARRAY_TEST_H
#define PL_ARRAY_TEST_H

#include "device_test.h"

#include <pthread.h>
#include <simnvme.h>
#include <sys/mman.h>
#include <unistd.h>

#include <peerlane/device/array.h>
#include <peerlane/device_array.h>

#define MAX_STORES 3u

/* What the test wants. */
struct plan {
	const char *config; /* of the controllers; NULL "sim:size=8M" */
	bool served; /* over a socket: counters and faults can be had, but the controller has its own
			mapping of the memory, which the thread sanitizer does not follow */
	unsigned int nr_targets;
	bool one_path; /* all targets are namespaces of one controller */
	uint32_t page, ways, nr_frames;
	uint64_t bytes;
	uint32_t element;
	unsigned int nr_warps, nr_lanes, rounds;
	uint32_t slots;		      /* of a port */
	bool bounce;		      /* data go by way of the host */
	bool exclusive;		      /* a queue for each group, else one for all */
	uint64_t timeout_ns, busy_ns; /* 0: for ever */
};

/* A controller and the frames as it sees them. */
struct store {
	struct pl_simnvme *c;
	struct pl_simnvme_server *server;
	char socket[64];
	struct queues s;
	struct peerlane_nvme_map *map, *lists;
	struct pld_dma *dma;
	struct peerlane_nvme_queue *q; /* the test's own */
};

struct bed {
	struct plan plan;
	unsigned int nr_stores;
	struct store store[MAX_STORES];
	struct pld_cache cache;
	void *metadata;
	uint64_t metadata_bytes;
	char *frames;
	size_t frames_bytes;
	int frames_fd;
	unsigned char *model; /* what the array must hold */
	uint64_t nr_elements;
	uint32_t wrong; /* counted by all lanes */
	uint32_t err_count[200];
};

static inline uint32_t lanes_of(unsigned int nr)
{
	return nr == 32 ? ~0u : (1u << nr) - 1;
}

static inline void note(struct bed *b, bool bad)
{
	if (bad)
		__atomic_fetch_add(&b->wrong, 1, __ATOMIC_RELAXED);
}

static inline void note_err(struct bed *b, int err)
{
	__atomic_fetch_add(&b->err_count[-err], 1, __ATOMIC_RELAXED);
}

static inline uint64_t mix(uint64_t v)
{
	v = (v ^ v >> 31) * 0x9e3779b97f4a7c15u;
	v = (v ^ v >> 29) * 0xbf58476d1ce4e5b9u;
	return v ^ v >> 32;
}

/* Element e after its n-th change. */
static inline void make_element(void *to, uint64_t e, uint32_t n, uint32_t bytes)
{
	for (uint32_t k = 0; k < bytes; k++)
		((unsigned char *)to)[k] = (unsigned char)mix(e << 24 ^ (uint64_t)n << 8 ^ k);
}

static inline void frames_open(struct bed *b)
{
	b->frames_bytes = (size_t)b->plan.nr_frames * b->plan.page;
	b->frames_fd = memfd_create("frames", MFD_CLOEXEC);
	assert_int_equal(ftruncate(b->frames_fd, (off_t)b->frames_bytes), 0);
	b->frames =
		mmap(NULL, b->frames_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, b->frames_fd, 0);
	assert_true(b->frames != MAP_FAILED);
}

/* Let a controller reach the frames. */
static inline void store_map(struct bed *b, struct store *st)
{
	const size_t page = st->s.q[0].page_bytes;
	void *lists;

	st->dma = calloc(b->plan.nr_frames, sizeof(*st->dma));
	assert_int_equal(peerlane_nvme_map_host(st->s.nvme, b->frames, b->frames_bytes, &st->map),
			 0);
	assert_int_equal(
		peerlane_nvme_map_alloc(st->s.nvme, b->plan.nr_frames * page, &lists, &st->lists),
		0);
	for (uint32_t i = 0; i < b->plan.nr_frames; i++) {
		uint64_t *list = (uint64_t *)((char *)lists + i * page);
		const size_t at = (size_t)i * b->plan.page;

		assert_int_equal(peerlane_nvme_map_address(st->map, at, &st->dma[i].first, NULL),
				 0);
		for (size_t k = 1; k * page < b->plan.page; k++)
			assert_int_equal(peerlane_nvme_map_address(st->map, at + k * page,
								   &list[k - 1], NULL),
					 0);
		st->dma[i].second = list[0];
		assert_int_equal(
			peerlane_nvme_map_address(st->lists, i * page, &st->dma[i].list, NULL), 0);
	}
}

/* Host memory for each slot, by whose way data go; nothing else is reachable then. */
static inline void store_bounce(struct bed *b, struct store *st)
{
	for (unsigned int i = 0; i < st->s.nr; i++) {
		struct pld_queue *q = &st->s.q[i];
		struct pieces p;

		pieces_open(&p, &st->s, q->nr_ports * q->slots_per_port, b->plan.page);
		q->bounce = p.memory;
		q->bounce_bytes = p.bytes;
		q->bounce_dma = p.dma;
	}
}

static inline void store_open(struct bed *b, struct store *st)
{
	const char *config = b->plan.config ? b->plan.config : "sim:size=8M";
	const unsigned int nr_queues = b->plan.exclusive ? b->plan.nr_warps : 1;
	const unsigned int nr_ports = b->plan.exclusive ? 1 : b->plan.nr_warps;
	const uint32_t depth = 1u << log2_of(nr_ports * b->plan.slots + 1);
	char why[200] = "", address[80];

	if (b->plan.served) {
		snprintf(st->socket, sizeof(st->socket), "/tmp/peerlane-array-%d-%d", (int)getpid(),
			 (int)(st - b->store));
		unlink(st->socket);
		if (pl_simnvme_create(config, &st->c, why, sizeof(why)))
			fail_msg("%s: %s", config, why);
		assert_int_equal(pl_simnvme_start(st->c), 0);
		assert_int_equal(pl_simnvme_serve(st->c, st->socket, &st->server), 0);
		snprintf(address, sizeof(address), "sim-unix:%s", st->socket);
		config = address;
	}
	queues_open(&st->s, config, nr_queues, depth < 2 ? 2 : depth, nr_ports, b->plan.slots);
	assert_int_equal(peerlane_nvme_queue_create(st->s.nvme, NULL, &st->q), 0);
	if (b->plan.bounce)
		store_bounce(b, st);
	else
		store_map(b, st);
}

/* Read or write the beginning of a target, with the driver's own queue. */
static inline void target_copy(struct bed *b, unsigned int target, uint8_t opcode, void *image,
			       size_t bytes)
{
	struct store *st = &b->store[b->plan.one_path ? 0 : target];
	struct peerlane_nvme_ns_info info = { .size = sizeof(info) };
	struct peerlane_nvme_ns *ns;
	struct peerlane_nvme_map *map;
	void *memory;

	assert_int_equal(peerlane_nvme_ns_open(st->s.nvme, b->plan.one_path ? target + 1 : 1, &ns),
			 0);
	assert_int_equal(peerlane_nvme_ns_get_info(ns, &info), 0);
	assert_int_equal(peerlane_nvme_map_alloc(st->s.nvme, bytes, &memory, &map), 0);
	if (opcode == PL_NVME_WRITE)
		memcpy(memory, image, bytes);
	assert_int_equal(
		peerlane_nvme_run(st->q,
				  &(struct peerlane_nvme_io){
					  .opcode = opcode,
					  .nr_blocks = (uint32_t)(bytes / info.block_bytes),
					  .ns = ns,
					  .map = map },
				  NULL),
		0);
	if (opcode == PL_NVME_READ)
		memcpy(image, memory, bytes);
	peerlane_nvme_unmap(map);
}

/* All pages of the array to or from the targets: what is beyond its end is 0xee there. */
static inline void bed_copy(struct bed *b, uint8_t opcode, unsigned char *data)
{
	const uint64_t page = b->plan.page, nr_pages = (b->plan.bytes + page - 1) / page;
	const size_t image_bytes = (nr_pages + b->plan.nr_targets - 1) / b->plan.nr_targets * page;
	unsigned char *image = malloc(image_bytes);

	for (unsigned int t = 0; t < b->plan.nr_targets; t++) {
		memset(image, 0xee, image_bytes);
		if (opcode == PL_NVME_READ)
			target_copy(b, t, opcode, image, image_bytes);
		for (uint64_t p = t; p < nr_pages; p += b->plan.nr_targets) {
			const uint64_t left = b->plan.bytes - p * page;
			const size_t nr = left < page ? left : page;
			unsigned char *there = image + p / b->plan.nr_targets * page;

			if (opcode == PL_NVME_WRITE)
				memcpy(there, data + p * page, nr);
			else
				memcpy(data + p * page, there, nr);
			for (size_t k = nr; k < page && opcode == PL_NVME_READ; k++)
				assert_int_equal(there[k], 0xee);
		}
		if (opcode == PL_NVME_WRITE)
			target_copy(b, t, opcode, image, image_bytes);
	}
	free(image);
}

static inline void bed_init_cache(struct bed *b)
{
	struct pld_target targets[MAX_STORES] = { 0 };
	struct pld_path paths[MAX_STORES] = { 0 };
	struct peerlane_array_options opt = {
		.size = sizeof(opt),
		.bytes = b->plan.bytes,
		.page_bytes = b->plan.page,
		.ways = b->plan.ways,
		.frames = b->frames,
		.frames_bytes = b->frames_bytes,
		.timeout_ns = b->plan.timeout_ns ? b->plan.timeout_ns : FOR_EVER,
		.busy_ns = b->plan.busy_ns ? b->plan.busy_ns : FOR_EVER,
		.targets = targets,
		.paths = paths,
		.nr_targets = b->plan.nr_targets,
		.nr_paths = b->nr_stores
	};

	for (unsigned int i = 0; i < b->nr_stores; i++) {
		struct pld_queue *q = b->store[i].s.q;

		paths[i] = (struct pld_path){ .queues = q,
					      .dma = b->store[i].dma,
					      .nr_queues = b->store[i].s.nr,
					      .slots_per_queue = q->nr_ports * q->slots_per_port };
	}
	for (unsigned int t = 0; t < b->plan.nr_targets; t++) {
		struct peerlane_nvme_ns_info info = { .size = sizeof(info) };

		targets[t].path = b->plan.one_path ? 0 : t;
		targets[t].nsid = b->plan.one_path ? t + 1 : 1;
		assert_int_equal(peerlane_nvme_ns_get_info(b->store[targets[t].path].s.ns, &info),
				 0);
		targets[t].log_block = log2_of(info.block_bytes);
	}
	b->metadata_bytes = peerlane_array_metadata_bytes(&opt);
	assert_true(b->metadata_bytes > 0);
	b->metadata = aligned_alloc(128, b->metadata_bytes);
	memset(b->metadata, 0, b->metadata_bytes);
	opt.metadata = b->metadata;
	assert_int_equal(peerlane_array_init(&b->cache, &opt), 0);
}

static inline void bed_open(struct bed *b, const struct plan *plan)
{
	memset(b, 0, sizeof(*b));
	b->plan = *plan;
	b->nr_stores = plan->one_path ? 1 : plan->nr_targets;
	b->nr_elements = plan->bytes / plan->element;
	frames_open(b);
	for (unsigned int i = 0; i < b->nr_stores; i++)
		store_open(b, &b->store[i]);
	b->model = calloc(1, plan->bytes + plan->page);
	for (uint64_t e = 0; e < b->nr_elements; e++)
		make_element(b->model + e * plan->element, e, 0, plan->element);
	bed_copy(b, PL_NVME_WRITE, b->model);
	bed_init_cache(b);
}

/* What a served controller has seen; and faults for it. */
static inline struct pl_simnvme_counters counters(struct bed *b)
{
	struct pl_simnvme_counters n;

	pl_simnvme_counters(b->store[0].c, &n);
	return n;
}

static inline void inject(struct bed *b, const char *script)
{
	char why[200] = "";

	if (pl_simnvme_inject(b->store[0].c, script, why, sizeof(why)))
		fail_msg("%s: %s", script, why);
}

/* Nothing is held, locked or on its way, and no page is in two frames. */
static inline void check_quiet(const struct bed *b)
{
	const uint32_t nr = b->cache.ways << b->cache.log_sets;

	for (uint32_t f = 0; f < nr; f++) {
		const uint64_t w = b->cache.words[f];

		assert_int_equal(w & (PLD_REFS | PLD_WRITERS), 0);
		assert_true(pld_state_(w) != PLD_FILLING && pld_state_(w) != PLD_WRITING);
		for (uint32_t g = f / b->cache.ways * b->cache.ways; g < f; g++)
			assert_false(pld_state_(w) != PLD_EMPTY &&
				     pld_is_of_(b->cache.words[g], (uint32_t)(w >> PLD_TAG_SHIFT)));
		if (pld_state_(w) == PLD_VALID)
			assert_int_equal(pld_set_(&b->cache, pld_page_of_(&b->cache, f, w)),
					 f / b->cache.ways);
	}
	for (uint32_t s = 0; s < 1u << b->cache.log_sets; s++)
		assert_false(b->cache.sets[s] & PLD_SET_LOCKED);
}

/* What the driver reads from the targets is what the model has. */
static inline void check_stored(struct bed *b)
{
	unsigned char *data = malloc(b->plan.bytes);

	bed_copy(b, PL_NVME_READ, data);
	assert_memory_equal(data, b->model, b->nr_elements * b->plan.element);
	free(data);
}

static inline void bed_run(struct bed *b, peerlane_cpu_fn fn)
{
	assert_int_equal(peerlane_cpu_run(b->plan.nr_warps, b->plan.nr_lanes, fn, b), 0);
}

static inline void bed_close(struct bed *b)
{
	for (unsigned int i = 0; i < b->nr_stores; i++) {
		struct store *st = &b->store[i];

		peerlane_nvme_queue_destroy(st->q);
		for (unsigned int k = 0; k < st->s.nr; k++)
			free((void *)(uintptr_t)st->s.q[k].bounce_dma);
		queues_close(&st->s);
		free(st->dma);
		pl_simnvme_unserve(st->server);
		pl_simnvme_destroy(st->c);
		if (st->socket[0])
			unlink(st->socket);
	}
	munmap(b->frames, b->frames_bytes);
	close(b->frames_fd);
	free(b->metadata);
	free(b->model);
}

#endif
