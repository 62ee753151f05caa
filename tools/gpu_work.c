/* SPDX-License-Identifier: MIT */
/* peerlane bench gpu sum, scan and bfs: work on an array that the cache cannot hold. */
#include "gpu_work.h"

#include "commands.h"
#include "human.h"
#include "message.h"
#include "stop.h"

#include <errno.h>
#include <string.h>

struct work_args {
	struct pl_gpu_args common;
	uint64_t bytes, page, cache;
	unsigned int edges;
	bool spoil, ordered;
};

#define AT(member) offsetof(struct work_args, member)

#define WORK_OPTIONS                                                                               \
	{ "bytes",                                                                                 \
	  PL_OPTION_SIZE,                                                                          \
	  AT(bytes),                                                                               \
	  "SIZE",                                                                                  \
	  "Bytes of the data, a multiple of 64K (default 1G for a GPU, else 256K).",               \
	  65536,                                                                                   \
	  0x1p36 },                                                                                \
		{ "cache",                                                                         \
		  PL_OPTION_SIZE,                                                                  \
		  AT(cache),                                                                       \
		  "SIZE",                                                                          \
		  "Bytes of pages that the cache holds (default: a quarter of the data).",         \
		  4096,                                                                            \
		  0x1p40 },                                                                        \
		{ "page",                                                                          \
		  PL_OPTION_SIZE,                                                                  \
		  AT(page),                                                                        \
		  "SIZE",                                                                          \
		  "Bytes of a page, a power of two from 512 to 64K (default 4K).",                 \
		  512,                                                                             \
		  65536 },                                                                         \
		{ "seconds",                                                                       \
		  PL_OPTION_DECIMAL,                                                               \
		  AT(common.seconds),                                                              \
		  "SECONDS",                                                                       \
		  "Begin no other run of a row after this time, even if --repeat says so.",        \
		  0.001,                                                                           \
		  1e6 },                                                                           \
		{ "spoil",                                                                         \
		  PL_OPTION_FLAG,                                                                  \
		  AT(spoil),                                                                       \
		  NULL,                                                                            \
		  "Change the data after the CPU has worked on them, to see that it is found.",    \
		  0,                                                                               \
		  0 },                                                                             \
		PL_GPU_OPTIONS(struct work_args)

static const struct pl_option options[] = {
	WORK_OPTIONS,
	{ 0 },
};

static const struct pl_option scan_options[] = {
	{ "ordered", PL_OPTION_FLAG, AT(ordered), NULL,
	  "Rows lie in the order of their keys, as those of a log do by time, not at random.", 0,
	  0 },
	WORK_OPTIONS,
	{ 0 },
};

static const struct pl_option bfs_options[] = {
	{ "edges", PL_OPTION_COUNT, AT(edges), "N", "Edges of a vertex, on average (default 64).",
	  4, 1024 },
	WORK_OPTIONS,
	{ 0 },
};

int pl_gpu_work_wrong(const struct pl_gpu_work *w, const char *what, uint64_t got, uint64_t want)
{
	pl_message_error("%s: wrong result: %s is %llu, and %llu on the CPU", w->kind->kernel->name,
			 what, (unsigned long long)got, (unsigned long long)want);
	return -EBADMSG;
}

/* Where the data are read from. */
enum source {
	ARRAY,	/* through the cache, with what the run before left in it */
	PINNED, /* host memory, by the kernel itself */
	COPIED, /* GPU memory, to which all is copied first */
};

static int run_once(struct pl_gpu_work *w, struct pl_gpu_cache *c, enum source source, char *copy,
		    double *seconds)
{
	struct plk_array k = c->k;
	uint64_t start;
	double copying = 0;
	int err = 0;

	k.nr_rows = w->shape.nr_rows;
	k.values_at = w->shape.values_at;
	k.low = w->shape.low;
	k.high = w->shape.high;
	k.edges_at = w->shape.edges_at;
	if (source == PINNED) {
		/* CUDA has one address for pinned memory, for the CPU and for kernels. */
		k.direct = w->memory;
	} else if (source == COPIED) {
		k.direct = copy;
		start = pld_clock_ns();
		err = pl_kmem_put(&w->bench->run.kmem, copy, w->memory, w->bytes);
		copying = (double)(pld_clock_ns() - start) / 1e9;
	}
	if (err)
		return pl_gpu_bench_complain("data", err);
	err = w->kind->run(w, &k, seconds);
	*seconds += copying;
	return err;
}

/* The middle of some runs, after one that is not counted; *first is that one. */
static int run_some(struct pl_gpu_work *w, struct pl_gpu_cache *c, enum source source, char *copy,
		    double *seconds, double *first)
{
	const double most = w->bench->args.seconds;
	double times[101], spent = 0;
	unsigned int nr = 0;
	int err = 0;

	/* One that counts is run in any case. */
	while (!err && nr <= w->bench->args.repeat && (nr < 2 || most <= 0 || spent < most)) {
		err = run_once(w, c, source, copy, &times[nr]);
		if (pl_stop_requested())
			err = -ECANCELED;
		spent += err ? 0 : times[nr++];
	}
	if (err)
		return err;
	w->nr_runs = nr;
	*seconds = pl_gpu_bench_middle(times + 1, nr - 1);
	if (first)
		*first = times[0];
	return 0;
}

/* In words: what the cache did in all runs through it, and how fast it was while empty. */
static int tell_array(struct pl_gpu_work *w, struct pl_gpu_cache *c, double first)
{
	struct pl_gpu_bench *b = w->bench;
	struct pld_array_stats s;
	double rate = first > 0 ? (double)w->elements / first : 0;
	int err = pl_gpu_cache_stats(c, &s);

	if (err || b->result.nr_rows != b->args.threads.nr)
		return err;
	pl_report_value(&b->report, "first_iops", pl_jsonout_number(rate), "empty cache",
			"%s %s in the first run, which is not in the table",
			pl_human_count(rate).text, w->kind->unit);
	pl_report_value(&b->report, "hits", json_object_new_int64((int64_t)s.hits), "cache",
			"%s, %llu miss%s, %s; %s read in %s", pl_human_nr(s.hits, "hit").text,
			(unsigned long long)s.misses, s.misses == 1 ? "" : "es",
			pl_human_nr(s.evictions, "eviction").text, pl_human_size(s.bytes_read).text,
			pl_human_nr(w->nr_runs, "run").text);
	pl_report_value(&b->report, "misses", json_object_new_int64((int64_t)s.misses), NULL, "-");
	pl_report_value(&b->report, "evictions", json_object_new_int64((int64_t)s.evictions), NULL,
			"-");
	pl_report_value(&b->report, "bytes_read", json_object_new_int64((int64_t)s.bytes_read),
			NULL, "-");
	return 0;
}

static int measure_all(struct pl_gpu_work *w, struct pl_gpu_cache *c, struct pl_gpu_row *row)
{
	double pinned = 0, copied = 0, first = 0;
	void *copy = NULL;
	int err;

	row->ios = w->elements;
	err = run_some(w, c, ARRAY, NULL, &row->seconds, &first);
	if (!err)
		err = tell_array(w, c, first);
	if (!err)
		err = run_some(w, c, PINNED, NULL, &pinned, NULL);
	if (!err)
		err = pl_kmem_alloc(&w->bench->run.kmem, w->bytes, &copy);
	if (!err)
		err = run_some(w, c, COPIED, copy, &copied, NULL);
	pl_kmem_free(&w->bench->run.kmem, copy);
	row->limit = pinned > 0 ? (double)w->elements / pinned : 0;
	row->copied = copied > 0 ? (double)w->elements / copied : 0;
	return err;
}

static int measure_row(struct pl_gpu_bench *b, const struct work_args *a,
		       const struct pl_gpu_work_kind *kind, struct pl_gpu_row *row)
{
	struct peerlane_device_options opt = pl_gpu_bench_options(b, row, (size_t)a->page);
	struct pl_gpu_work w = { .kind = kind,
				 .bench = b,
				 .bytes = a->bytes,
				 .nr_warps = pl_gpu_bench_warps(b, row),
				 .edges = a->edges,
				 .ordered = a->ordered };
	struct pl_gpu_cache c = { 0 };
	struct peerlane_device *dev;
	void *memory;
	int err = peerlane_device_open_memory(&dev, &opt, a->bytes, &memory);

	if (err)
		return pl_gpu_bench_complain("emulated drive", err);
	w.memory = memory;
	pl_gpu_bench_describe(b, dev);
	err = kind->make(&w);
	if (err)
		pl_gpu_bench_complain("data", err);
	if (!err && a->spoil)
		kind->spoil(&w);
	if (!err)
		err = pl_gpu_cache_init(&c, b, row, dev, a->bytes, a->cache, (uint32_t)a->page);
	if (!err)
		err = measure_all(&w, &c, row);
	pl_gpu_cache_fini(&c);
	if (kind->end)
		kind->end(&w);
	return pl_gpu_bench_shut(dev, err);
}

static int measure(struct pl_gpu_bench *b, const struct work_args *a,
		   const struct pl_gpu_work_kind *kind)
{
	unsigned int registers = pl_gpu_run_registers(kind->kernel);
	int err = 0;

	b->result.io_bytes = kind->element_bytes;
	b->result.unit = kind->unit;
	b->result.limit_name = "pinned";
	b->result.limit =
		"the same kernel reading pinned host memory itself; copied first: reading "
		"GPU memory, with the copy of all data before it";
	pl_report_value(&b->report, "bytes", json_object_new_int64((int64_t)a->bytes), "data",
			"%s in pages of %s, of which the cache holds %s",
			pl_human_size(a->bytes).text, pl_human_short(a->page).text,
			pl_human_size(a->cache).text);
	pl_report_value(&b->report, "cache_bytes", json_object_new_int64((int64_t)a->cache), NULL,
			"-");
	pl_report_value(&b->report, "verified", json_object_new_boolean(true), "verified",
			"the result of every run is that of the CPU");
	pl_report_value(&b->report, "registers", json_object_new_int64(registers), "registers",
			"%u a thread (ptxas for sm_90)", registers);
	for (unsigned int i = 0; !err && i < b->args.threads.nr; i++) {
		struct pl_gpu_row *row =
			pl_gpu_bench_row(b, (unsigned int)b->args.threads.values[i]);

		err = row ? measure_row(b, a, kind, row) : -ENOSPC;
	}
	return err;
}

static int run(const struct pl_command *self, int argc, char **argv)
{
	const struct pl_gpu_work_kind *kind = self == &pl_command_gpu_sum    ? &pl_gpu_work_sum
					      : self == &pl_command_gpu_scan ? &pl_gpu_work_scan
									     : &pl_gpu_work_bfs;
	struct work_args args = { .page = 4096, .edges = 64 };
	struct pl_gpu_bench b;
	int status, err, first = pl_option_parse(self, argc, argv, &args, &status);

	if (first < 0)
		return status;
	pl_stop_catch();
	err = pl_gpu_bench_open(&b, &args.common, strrchr(self->name, ' ') + 1, 1, 1);
	if (!err && pl_gpu_cache_sizes(&b, 1u << 30, &args.bytes, &args.cache, args.page)) {
		pl_gpu_bench_close(&b, -EINVAL);
		return PL_EXIT_USAGE;
	}
	if (err)
		return pl_gpu_bench_close(&b, err);
	/* Much data are made anew for each row: on a GPU one is enough. */
	if (!args.common.threads.nr && pl_gpu_run_on_gpu(&b.run))
		b.args.threads = (struct pl_option_list){ 1, { 32768 } };
	return pl_gpu_bench_close(&b, measure(&b, &args, kind));
}

#define COMPARED                                                                                   \
	" The data lie on an emulated drive and are more than the cache holds; what a run leaves " \
	"in "                                                                                      \
	"the cache the next one finds, and the first, with an empty one, is shown apart. Beside "  \
	"it "                                                                                      \
	"stand "                                                                                   \
	"the "                                                                                     \
	"same kernel that reads pinned host memory itself, and a copy of all data to the GPU "     \
	"with "                                                                                    \
	"the kernel after it. Every result is compared with that of the CPU."

const struct pl_command pl_command_gpu_sum = {
	.name = "bench gpu sum",
	.summary = "Add up an array.",
	.args = "[options]",
	.detail = "Kernels add up all words of an array." COMPARED,
	.exits = PL_GPU_EXITS,
	.options = options,
	.run = run,
};

const struct pl_command pl_command_gpu_scan = {
	.name = "bench gpu scan",
	.summary = "Filter a column and add up another.",
	.args = "[options]",
	.detail =
		"Kernels look for rows whose key is in a range, one in ten, and add up the values "
		"of these; keys and values are columns." COMPARED,
	.exits = PL_GPU_EXITS,
	.options = scan_options,
	.run = run,
};

const struct pl_command pl_command_gpu_bfs = {
	.name = "bench gpu bfs",
	.summary = "Search through a graph, level by level.",
	.args = "[options]",
	.detail = "Kernels find how far each vertex of a graph is from the first; offsets and "
		  "edges are "
		  "in the array, what was seen in memory of the GPU." COMPARED,
	.exits = PL_GPU_EXITS,
	.options = bfs_options,
	.run = run,
};
