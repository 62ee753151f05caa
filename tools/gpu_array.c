/* SPDX-License-Identifier: MIT */
/* peerlane bench gpu array: whole pages of a cached array, beside the same memory without a cache. */
#include "commands.h"
#include "gpu_cache.h"
#include "gpu_reads.h"
#include "human.h"
#include "message.h"
#include "stop.h"

#include <errno.h>

struct array_args {
	struct pl_gpu_args common;
	uint64_t page, cache, spoil;
	double hit_ratio;
};

#define AT(member) offsetof(struct array_args, member)

static const struct pl_option options[] = {
	{ "page", PL_OPTION_SIZE, AT(page), "SIZE",
	  "Bytes of a page, a power of two from 512 to 64K (default 4K).", 512, 65536 },
	{ "cache", PL_OPTION_SIZE, AT(cache), "SIZE",
	  "Bytes of pages that the cache holds (default 1G for a GPU, else 256K).", 4096, 0x1p40 },
	{ "hit-ratio", PL_OPTION_DECIMAL, AT(hit_ratio), "R",
	  "Share of the pages that are cached: the array is 1/R times the cache (default 1).", 0.01,
	  1 },
	{ "spoil", PL_OPTION_SIZE, AT(spoil), "N",
	  "Change a byte of block N first, to see that it is found.", 0, 0x1p40 },
	PL_GPU_COUNT_OPTION(struct array_args),
	PL_GPU_SECONDS_OPTION(struct array_args),
	PL_GPU_OPTIONS(struct array_args),
	{ 0 },
};

/* The time of some passes, and how many of their pages were cached. */
static int measure_hits(struct pl_gpu_bench *b, struct pl_gpu_cache *c, struct pl_gpu_row *row)
{
	struct pld_array_stats before, after;
	double ratio;
	int err = pl_gpu_cache_stats(c, &before);

	if (!err)
		err = pl_gpu_bench_passes(b, &pl_gpu_kernel_pages, c->k.nr_warps, &c->k, row->ios,
					  &row->seconds);
	if (!err)
		err = pl_gpu_cache_stats(c, &after);
	if (err || b->result.nr_rows != b->args.threads.nr)
		return err;
	after.hits -= before.hits;
	after.misses -= before.misses;
	ratio = (double)after.hits / (double)(after.hits + after.misses);
	pl_report_value(&b->report, "hit_ratio", pl_jsonout_number(ratio), "hit ratio",
			"%.4f, counted in the last row", ratio);
	return 0;
}

static int measure_cache(struct pl_gpu_bench *b, struct pl_gpu_cache *c, struct pl_gpu_row *row)
{
	struct plk_array k = c->k;
	const uint64_t nr_pages = k.bytes / k.page_bytes;
	double seconds;
	int err;

	k.order = PLK_SWEEP;
	k.per_warp = (nr_pages + k.nr_warps - 1) / k.nr_warps;
	err = pl_gpu_bench_pass(b, &pl_gpu_kernel_pages, k.nr_warps, &k, nr_pages, &seconds);
	if (err)
		return err;
	c->k.per_warp = (b->args.count + k.nr_warps - 1) / k.nr_warps;
	err = pl_gpu_bench_fit(b, &pl_gpu_kernel_pages, k.nr_warps, &c->k, &c->k.per_warp,
			       k.nr_warps);
	row->ios = c->k.per_warp * k.nr_warps;
	if (!err)
		err = measure_hits(b, c, row);
	if (err)
		return err;
	/* The same pages of memory without a cache: as much as the cache has. */
	k = c->k;
	k.direct = k.cache.frames;
	if (k.bytes > pl_gpu_cache_bytes(c))
		k.bytes = pl_gpu_cache_bytes(c);
	err = pl_gpu_bench_passes(b, &pl_gpu_kernel_pages, k.nr_warps, &k, row->ios, &seconds);
	row->limit = !err && seconds > 0 ? (double)row->ios / seconds : 0;
	return err;
}

static int measure_row(struct pl_gpu_bench *b, const struct array_args *a, struct pl_gpu_row *row)
{
	struct peerlane_device_options opt = pl_gpu_bench_options(b, row, (size_t)a->page);
	const uint64_t bytes =
		(uint64_t)((double)a->cache / a->hit_ratio) / (a->page * 8) * (a->page * 8);
	struct peerlane_device *dev;
	struct pl_gpu_cache c = { 0 };
	void *memory;
	int err = peerlane_device_open_memory(&dev, &opt, bytes, &memory);

	if (err)
		return pl_gpu_bench_complain("emulated drive", err);
	pl_gpu_pattern(memory, 0, bytes);
	if (a->spoil < bytes / 512)
		((char *)memory)[a->spoil * 512 + 511] ^= 1;
	pl_gpu_bench_describe(b, dev);
	err = pl_gpu_cache_init(&c, b, row, dev, bytes, a->cache, (uint32_t)a->page);
	if (!err)
		err = measure_cache(b, &c, row);
	pl_gpu_cache_fini(&c);
	return pl_gpu_bench_shut(dev, err);
}

static int measure(struct pl_gpu_bench *b, const struct array_args *a)
{
	int err = 0;

	for (unsigned int i = 0; !err && i < b->args.threads.nr; i++) {
		struct pl_gpu_row *row =
			pl_gpu_bench_row(b, (unsigned int)b->args.threads.values[i]);

		err = row ? measure_row(b, a, row) : -ENOSPC;
	}
	return err;
}

static int check(struct array_args *a, const struct pl_gpu_bench *b)
{
	if (!a->cache)
		a->cache = pl_gpu_run_on_gpu(&b->run) ? 1u << 30 : 256u << 10;
	return pl_gpu_cache_check(a->cache, a->page);
}

static int run(const struct pl_command *self, int argc, char **argv)
{
	struct array_args args = { .page = 4096, .hit_ratio = 1, .spoil = UINT64_MAX };
	struct pl_gpu_bench b;
	unsigned int registers = pl_gpu_run_registers(&pl_gpu_kernel_pages);
	int status, err, first = pl_option_parse(self, argc, argv, &args, &status);

	if (first < 0)
		return status;
	pl_stop_catch();
	err = pl_gpu_bench_open(&b, &args.common, "array", 16000000, 2000);
	if (!err && check(&args, &b)) {
		pl_gpu_bench_close(&b, -EINVAL);
		return PL_EXIT_USAGE;
	}
	if (err)
		return pl_gpu_bench_close(&b, err);
	b.result.io_bytes = args.page;
	b.result.unit = "pages/s";
	b.result.limit_name = "no cache";
	b.result.limit = "kernels that read as much memory where the pages lie, without a cache";
	pl_report_value(&b.report, "page_bytes", json_object_new_int64((int64_t)args.page), "pages",
			"%s, whole, at random, %s of them cached", pl_human_short(args.page).text,
			pl_human_size(args.cache).text);
	pl_report_value(&b.report, "verified", json_object_new_boolean(true), "verified",
			"all pages, every byte, before each row");
	pl_report_value(&b.report, "registers", json_object_new_int64(registers), "registers",
			"%u a thread (ptxas for sm_90)", registers);
	return pl_gpu_bench_close(&b, measure(&b, &args));
}

const struct pl_command pl_command_gpu_array = {
	.name = "bench gpu array",
	.summary = "Pages of a cached array.",
	.args = "[options]",
	.detail = "Warps read whole pages, at random, of an array that is cached in memory of the "
		  "GPU; those that are missing come from an emulated drive. Before each row every "
		  "page is read and compared. Beside it stand kernels that read as much of that "
		  "memory without a cache.",
	.exits = PL_GPU_EXITS,
	.options = options,
	.run = run,
};
