/* SPDX-License-Identifier: MIT */
/* peerlane bench gpu mixed: words of a cached array, read and written at random, beside memory without a cache. */
#include "commands.h"
#include "gpu_cache.h"
#include "gpu_reads.h"
#include "human.h"
#include "message.h"
#include "stop.h"

#include <errno.h>
#include <stdlib.h>

struct mixed_args {
	struct pl_gpu_args common;
	uint64_t page, bytes, cache;
	bool spoil;
};

#define AT(member) offsetof(struct mixed_args, member)

static const struct pl_option options[] = {
	{ "bytes", PL_OPTION_SIZE, AT(bytes), "SIZE",
	  "Bytes of the array, a multiple of 64K (default 64M for a GPU, else 256K).", 65536,
	  0x1p40 },
	{ "cache", PL_OPTION_SIZE, AT(cache), "SIZE",
	  "Bytes of pages that the cache holds (default: a quarter of the array).", 4096, 0x1p40 },
	{ "page", PL_OPTION_SIZE, AT(page), "SIZE",
	  "Bytes of a page, a power of two from 512 to 64K (default 4K).", 512, 65536 },
	{ "spoil", PL_OPTION_FLAG, AT(spoil), NULL,
	  "Change a byte of what was written, to see that it is found.", 0, 0 },
	PL_GPU_COUNT_OPTION(struct mixed_args),
	PL_GPU_SECONDS_OPTION(struct mixed_args),
	PL_GPU_OPTIONS(struct mixed_args),
	{ 0 },
};

/* What the drive must hold after the last pass: as it was at first, but for what the lanes wrote last. */
static int compare(const struct plk_array *k, const uint64_t *memory)
{
	const uint64_t nr = k->bytes / 8, lanes = (uint64_t)k->nr_warps * pld_count32(k->lanes);
	uint64_t *model = malloc((size_t)k->bytes);
	int err = 0;

	if (!model)
		return pl_gpu_bench_complain("model", -ENOMEM);
	pl_gpu_pattern((char *)model, 0, (size_t)k->bytes);
	for (uint64_t me = 0; me < lanes; me++)
		for (uint64_t i = 0; i < k->per_warp; i++) {
			const struct plk_step s = plk_step_(k, me, i);

			if (s.write)
				model[plk_place_(k, me, s.word)] = s.value;
		}
	for (uint64_t i = 0; !err && i < nr; i++)
		if (memory[i] != model[i]) {
			pl_message_error("the drive has %016llx in word %llu, and not %016llx",
					 (unsigned long long)memory[i], (unsigned long long)i,
					 (unsigned long long)model[i]);
			err = -EILSEQ;
		}
	free(model);
	return err;
}

/* Passes, each with other places and values; the first does not count. */
static int measure_passes(struct pl_gpu_bench *b, struct plk_array *k, struct pl_gpu_row *row,
			  double *seconds)
{
	double times[101];
	int err = 0;

	for (unsigned int i = 0; !err && i <= b->args.repeat; i++) {
		k->seed = i + 1;
		err = pl_gpu_bench_pass(b, &pl_gpu_kernel_mixed, k->nr_warps, k, row->ios,
					&times[i]);
		if (pl_stop_requested())
			err = -ECANCELED;
	}
	if (!err)
		*seconds = pl_gpu_bench_middle(times + 1, b->args.repeat);
	return err;
}

static int tell_stats(struct pl_gpu_bench *b, struct pl_gpu_cache *c)
{
	struct pld_array_stats s;
	int err = pl_gpu_cache_stats(c, &s);

	if (err || b->result.nr_rows != b->args.threads.nr)
		return err;
	pl_report_value(&b->report, "write_backs", json_object_new_int64((int64_t)s.write_backs),
			"cache", "%s and %s written back in the last row",
			pl_human_nr(s.evictions, "eviction").text,
			pl_human_nr(s.write_backs, "page").text);
	pl_report_value(&b->report, "evictions", json_object_new_int64((int64_t)s.evictions), NULL,
			"-");
	return 0;
}

static int measure_cache(struct pl_gpu_bench *b, const struct mixed_args *a, struct pl_gpu_cache *c,
			 struct pl_gpu_row *row, char *memory)
{
	struct plk_array k = c->k;
	double seconds;
	int err;

	k.per_warp = pl_gpu_bench_per_lane(b, row);
	err = pl_gpu_bench_fit(b, &pl_gpu_kernel_mixed, k.nr_warps, &k, &k.per_warp, row->threads);
	row->ios = k.per_warp * row->threads;
	if (!err)
		err = measure_passes(b, &k, row, &row->seconds);
	if (err)
		return err;
	k.order = PLK_SWEEP;
	err = pl_gpu_bench_pass(b, &pl_gpu_kernel_mixed, k.nr_warps, &k, 0, &seconds);
	if (!err)
		err = tell_stats(b, c);
	if (err)
		return err;
	if (a->spoil)
		memory[7] ^= 1;
	err = compare(&k, (const uint64_t *)(const void *)memory);
	if (err)
		return err;
	/* The same in memory without a cache: as much as the cache has. */
	k.order = PLK_RANDOM;
	k.direct = k.cache.frames;
	if (k.bytes > pl_gpu_cache_bytes(c))
		k.bytes = pl_gpu_cache_bytes(c);
	err = measure_passes(b, &k, row, &seconds);
	row->limit = !err && seconds > 0 ? (double)row->ios / seconds : 0;
	return err;
}

static int measure_row(struct pl_gpu_bench *b, const struct mixed_args *a, struct pl_gpu_row *row)
{
	struct peerlane_device_options opt = pl_gpu_bench_options(b, row, (size_t)a->page);
	struct peerlane_device *dev;
	struct pl_gpu_cache c = { 0 };
	void *memory;
	int err = peerlane_device_open_memory(&dev, &opt, a->bytes, &memory);

	if (err)
		return pl_gpu_bench_complain("emulated drive", err);
	pl_gpu_pattern(memory, 0, a->bytes);
	pl_gpu_bench_describe(b, dev);
	err = pl_gpu_cache_init(&c, b, row, dev, a->bytes, a->cache, (uint32_t)a->page);
	if (!err)
		err = measure_cache(b, a, &c, row, memory);
	pl_gpu_cache_fini(&c);
	return pl_gpu_bench_shut(dev, err);
}

static int check(struct mixed_args *a, const struct pl_gpu_bench *b)
{
	const struct pl_option_list *threads = &b->args.threads;

	if (pl_gpu_cache_sizes(b, 64u << 20, &a->bytes, &a->cache, a->page))
		return -EINVAL;
	for (unsigned int i = 0; i < threads->nr; i++)
		if (threads->values[i] > a->cache / 8 / PLK_WORDS / 2) {
			pl_message_error("--cache: %llu bytes are too few words for %llu threads",
					 (unsigned long long)a->cache,
					 (unsigned long long)threads->values[i]);
			return -EINVAL;
		}
	return 0;
}

static int run(const struct pl_command *self, int argc, char **argv)
{
	struct mixed_args args = { .page = 4096 };
	struct pl_gpu_bench b;
	unsigned int registers = pl_gpu_run_registers(&pl_gpu_kernel_mixed);
	int status, err, first = pl_option_parse(self, argc, argv, &args, &status);

	if (first < 0)
		return status;
	pl_stop_catch();
	err = pl_gpu_bench_open(&b, &args.common, "mixed", 4000000, 2000);
	if (!err && check(&args, &b)) {
		pl_gpu_bench_close(&b, -EINVAL);
		return PL_EXIT_USAGE;
	}
	if (err)
		return pl_gpu_bench_close(&b, err);
	b.result.io_bytes = 8;
	b.result.unit = "words/s";
	b.result.limit_name = "no cache";
	b.result.limit = "the same kernel on memory of the GPU without a cache";
	pl_report_value(&b.report, "bytes", json_object_new_int64((int64_t)args.bytes), "words",
			"half of them written, of %s in pages of %s, %s of them cached",
			pl_human_size(args.bytes).text, pl_human_short(args.page).text,
			pl_human_size(args.cache).text);
	pl_report_value(&b.report, "verified", json_object_new_boolean(true), "verified",
			"every word that was read, and the whole drive after each row");
	pl_report_value(&b.report, "registers", json_object_new_int64(registers), "registers",
			"%u a thread (ptxas for sm_90)", registers);
	for (unsigned int i = 0; !err && i < b.args.threads.nr; i++) {
		struct pl_gpu_row *row =
			pl_gpu_bench_row(&b, (unsigned int)b.args.threads.values[i]);

		err = row ? measure_row(&b, &args, row) : -ENOSPC;
	}
	return pl_gpu_bench_close(&b, err);
}

const struct pl_command pl_command_gpu_mixed = {
	.name = "bench gpu mixed",
	.summary = "Words of a cached array, read and written.",
	.args = "[options]",
	.detail = "Each thread reads and writes words of its own, at random, in an array that is "
		  "more than the cache holds, on an emulated drive; pages have words of many "
		  "threads. Every word that is read is compared with what was written last, and "
		  "afterwards all the drive with what it must hold. Beside it stands the same "
		  "kernel on memory of the GPU without a cache.",
	.exits = PL_GPU_EXITS,
	.options = options,
	.run = run,
};
