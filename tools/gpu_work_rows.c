/* SPDX-License-Identifier: MIT */
/* Work on rows: a sum of all words, and a scan of two columns. */
#include "gpu_work.h"

#include <errno.h>
#include <string.h>

#define NR_KEYS 1000u
#define LOW 100u
#define HIGH 200u /* one row in ten */

static int make_sum(struct pl_gpu_work *w)
{
	uint64_t *words = (uint64_t *)w->memory;

	w->elements = w->bytes / 8;
	w->sum = 0;
	for (uint64_t i = 0; i < w->elements; i++)
		words[i] = plk_word(i);
	for (uint64_t i = 0; i < w->elements; i++)
		w->sum += words[i];
	return 0;
}

static void spoil_sum(struct pl_gpu_work *w)
{
	w->memory[w->bytes - 1] ^= 1;
}

/* Keys fill the first half, values the other. */
static int make_scan(struct pl_gpu_work *w)
{
	uint32_t *keys = (uint32_t *)w->memory, *values = (uint32_t *)(w->memory + w->bytes / 2);

	w->elements = w->bytes / 8;
	w->sum = w->found = 0;
	for (uint64_t i = 0; i < w->elements; i++) {
		const uint64_t chance = plk_mix(i);

		keys[i] = (uint32_t)(w->ordered ? i * NR_KEYS / w->elements : chance % NR_KEYS);
		values[i] = (uint32_t)(chance >> 32);
	}
	for (uint64_t i = 0; i < w->elements; i++)
		if (keys[i] >= LOW && keys[i] < HIGH) {
			w->found++;
			w->sum += values[i];
		}
	w->shape.nr_rows = w->elements;
	w->shape.values_at = w->bytes / 2;
	w->shape.low = LOW;
	w->shape.high = HIGH;
	return 0;
}

static void spoil_scan(struct pl_gpu_work *w)
{
	uint32_t *key = (uint32_t *)w->memory + w->elements - 1;

	*key = *key >= LOW && *key < HIGH ? HIGH : LOW;
}

static int run_rows(struct pl_gpu_work *w, struct plk_array *k, double *seconds)
{
	struct plk_counts n;
	int err = pl_gpu_run_kernel(&w->bench->run, w->kind->kernel, k->nr_warps, k, &n, seconds);

	if (err)
		return err;
	if (n.failed)
		return pl_gpu_bench_complain("array", -(int)n.a_status);
	if (n.done != w->elements)
		return pl_gpu_work_wrong(w, "rows", n.done, w->elements);
	if (n.found != w->found)
		return pl_gpu_work_wrong(w, "rows found", n.found, w->found);
	return n.sum == w->sum ? 0 : pl_gpu_work_wrong(w, "sum", n.sum, w->sum);
}

const struct pl_gpu_work_kind pl_gpu_work_sum = {
	.kernel = &pl_gpu_kernel_sum,
	.unit = "words/s",
	.element_bytes = 8,
	.make = make_sum,
	.spoil = spoil_sum,
	.run = run_rows,
};

const struct pl_gpu_work_kind pl_gpu_work_scan = {
	.kernel = &pl_gpu_kernel_scan,
	.unit = "rows/s",
	.element_bytes = 8,
	.make = make_scan,
	.spoil = spoil_scan,
	.run = run_rows,
};
