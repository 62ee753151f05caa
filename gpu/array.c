// SPDX-License-Identifier: MIT
/* Set up arrays: how many sets, and where the metadata lie. */
#include <peerlane/device_array.h>

#include <stdbool.h>

#include <peerlane/device/cache.h>

#define MAX_FRAMES 0x7ffffff0u
#define DEFAULT_PAGE_BYTES 4096u
#define DEFAULT_WAYS 16u
#define MAX_WAYS 32u
#define SECOND ((uint64_t)1000000000)
#define LINE 128u

static bool is_power_of_two(uint32_t v)
{
	return v && !(v & (v - 1));
}

static bool bad_path(const struct pld_path *p)
{
	return !p->queues || !p->nr_queues || !p->slots_per_queue;
}

static bool bad_target(const struct pld_target *t, uint32_t log_page, uint32_t nr_paths)
{
	return t->log_block < 9 || t->log_block > log_page || t->path >= nr_paths;
}

/* Where the pages are stored, and how they are reached. Returns the command slots of all paths, or 0. */
static uint64_t describe_stripe(struct pld_stripe *s, const struct peerlane_array_options *opt)
{
	const uint32_t page_bytes = opt->page_bytes ? opt->page_bytes : DEFAULT_PAGE_BYTES;
	uint64_t nr_slots = 0;

	if (!opt->bytes || !is_power_of_two(page_bytes) || page_bytes < 512 || page_bytes > 65536 ||
	    !opt->nr_targets || opt->nr_targets > PLD_MAX_TARGETS || !opt->targets ||
	    !opt->nr_paths || opt->nr_paths > PLD_MAX_TARGETS || !opt->paths)
		return 0;
	s->bytes = opt->bytes;
	s->log_page = (uint32_t)__builtin_ctz(page_bytes);
	s->nr_targets = opt->nr_targets;
	s->nr_paths = opt->nr_paths;
	for (uint32_t i = 0; i < opt->nr_paths; i++) {
		if (bad_path(&opt->paths[i]))
			return 0;
		s->path[i] = opt->paths[i];
		s->path[i].first_slot = (uint32_t)nr_slots;
		nr_slots += (uint64_t)opt->paths[i].nr_queues * opt->paths[i].slots_per_queue;
	}
	for (uint32_t i = 0; i < opt->nr_targets; i++) {
		if (bad_target(&opt->targets[i], s->log_page, opt->nr_paths))
			return 0;
		s->target[i] = opt->targets[i];
	}
	return nr_slots <= UINT32_MAX ? nr_slots : 0;
}

/* As many sets as there can be, a power of two, and what is left over in more ways. */
static bool describe_sets(struct pld_cache *c, const struct peerlane_array_options *opt)
{
	uint64_t nr = opt->frames_bytes >> c->stripe.log_page, ways = opt->ways;

	if (nr > MAX_FRAMES)
		nr = MAX_FRAMES;
	if (!ways)
		ways = nr && nr < DEFAULT_WAYS ? nr : DEFAULT_WAYS;
	if (ways > MAX_WAYS || nr < ways)
		return false;
	while (nr >> (c->log_sets + 1) >= ways)
		c->log_sets++;
	nr >>= c->log_sets;
	c->ways = nr > MAX_WAYS ? MAX_WAYS : (uint32_t)nr;
	return true;
}

static uint64_t round_up(uint64_t v)
{
	return (v + LINE - 1) & ~(uint64_t)(LINE - 1);
}

/* All but the addresses. Returns the bytes of the metadata, or 0. */
static uint64_t describe(struct pld_cache *c, const struct peerlane_array_options *opt)
{
	static const struct pld_cache none;
	uint64_t nr_slots, bytes;

	*c = none;
	if (!opt || opt->size != sizeof(*opt))
		return 0;
	nr_slots = describe_stripe(&c->stripe, opt);
	if (!nr_slots || !describe_sets(c, opt))
		return 0;
	c->timeout_ns = opt->timeout_ns ? opt->timeout_ns : 30 * SECOND;
	c->busy_ns = opt->busy_ns ? opt->busy_ns : SECOND;
	bytes = round_up(sizeof(*c->stats));
	c->words = (uint64_t *)((char *)opt->metadata + bytes);
	bytes += round_up(((uint64_t)c->ways << c->log_sets) * sizeof(*c->words));
	c->sets = (uint32_t *)((char *)opt->metadata + bytes);
	bytes += round_up(((uint64_t)1 << c->log_sets) * sizeof(*c->sets));
	c->records = (uint32_t *)((char *)opt->metadata + bytes);
	return bytes + round_up(nr_slots * sizeof(*c->records));
}

uint64_t peerlane_array_metadata_bytes(const struct peerlane_array_options *opt)
{
	struct pld_cache cache;

	return describe(&cache, opt);
}

int peerlane_array_init(struct pld_cache *cache, const struct peerlane_array_options *opt)
{
	uint64_t nr_pages;

	if (!cache || !describe(cache, opt) || !opt->frames || !opt->metadata ||
	    (uintptr_t)opt->frames % 16 || (uintptr_t)opt->metadata % LINE)
		return -EINVAL;
	cache->frames = opt->frames;
	cache->stats = opt->metadata;
	nr_pages = (opt->bytes - 1) >> cache->stripe.log_page;
	return nr_pages >> cache->log_sets > UINT32_MAX ? -E2BIG : 0;
}
