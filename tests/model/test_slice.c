// SPDX-License-Identifier: MIT
/* Slices along each dimension, against a copy element by element; and what was read of the file for them. */
#include "model_fixture.h"

static struct peerlane *ctx;
static unsigned int random_state = 1;

static unsigned int rnd(unsigned int below)
{
	random_state = random_state * 1103515245 + 12345;
	return (random_state >> 8) % below;
}

/* The slice of a tensor at @data, by the definition: bit by bit where elements are no bytes. */
static void naive(const unsigned char *data, const struct peerlane_tensor *t,
		  const struct peerlane_model_part *p, unsigned char *out)
{
	unsigned int bits = peerlane_dtype_bits(t->dtype);
	uint64_t n = 1, to = 0;

	for (unsigned int d = 0; d < t->nr_dims; d++)
		n *= t->shape[d];
	for (uint64_t i = 0; i < n; i++) {
		uint64_t index = i;

		for (unsigned int d = t->nr_dims - 1; d > p->dim; d--)
			index /= t->shape[d];
		index %= t->shape[p->dim];
		if (index < p->start || index >= p->stop)
			continue;
		if (bits % 8 == 0) {
			memcpy(out + to / 8, data + i * (bits / 8), bits / 8);
			to += bits;
			continue;
		}
		for (unsigned int b = 0; b < bits; b++, to++) {
			uint64_t from = i * bits + b;
			unsigned int bit = data[from / 8] >> (from % 8) & 1;

			out[to / 8] = (unsigned char)((out[to / 8] & ~(1u << (to % 8))) |
						      bit << (to % 8));
		}
	}
	assert_int_equal((to + 7) / 8, p->bytes);
}

static void check_slice(const struct peerlane_model *m, const struct peerlane_tensor *t,
			const unsigned char *data, struct peerlane_model_part *p, int gpu)
{
	struct peerlane_model_memory *mem;
	unsigned char *got, *want;

	assert_int_equal(peerlane_model_memory_alloc(m, p, 1, gpu, 0, &mem), 0);
	assert_int_equal(peerlane_model_load(m, p, 1, NULL, NULL), 0);
	got = malloc(p->bytes + 1);
	want = calloc(1, p->bytes + 1);
	if (p->bytes)
		assert_int_equal(peerlane_gpu_copy(ctx, got, p->addr, p->bytes), 0);
	naive(data, t, p, want);
	if (memcmp(got, want, p->bytes) != 0)
		fail_msg("%s: dimension %u [%llu, %llu) differs", t->name, p->dim,
			 (unsigned long long)p->start, (unsigned long long)p->stop);
	free(got);
	free(want);
	peerlane_model_memory_free(mem);
}

/* Whether a slice of sub-byte elements ends at bytes. */
static bool whole_bytes(const struct peerlane_tensor *t, const struct peerlane_model_part *p)
{
	uint64_t inner = peerlane_dtype_bits(t->dtype), outer = 1;

	for (unsigned int d = 0; d < p->dim; d++)
		outer *= t->shape[d];
	for (unsigned int d = p->dim + 1; d < t->nr_dims; d++)
		inner *= t->shape[d];
	return !(p->start * inner % 8) && !(p->stop * inner % 8) &&
	       (outer == 1 || !(t->shape[p->dim] * inner % 8));
}

static void one_tensor(enum peerlane_dtype dtype, const uint64_t *shape, unsigned int nr_dims)
{
	uint64_t bytes = peerlane_dtype_bits(dtype);
	struct peerlane_tensor t;
	struct peerlane_model *m;
	struct mf_header h;
	unsigned char *data;
	uint64_t lead = 1 + rnd(9);

	for (unsigned int d = 0; d < nr_dims; d++)
		bytes *= shape[d];
	if (bytes % 8)
		return;
	bytes /= 8;
	mf_begin(&h);
	mf_tensor(&h, "lead", "U8", &lead, 1, lead);
	mf_tensor(&h, "t", peerlane_dtype_name(dtype), shape, nr_dims, bytes);
	m = mf_open(ctx, mf_end(&h, "slice", rnd(8), 9));
	t = mf_get(m, "t");
	data = malloc(bytes + 1);
	sim_pattern(data, bytes, (off_t)lead, 9);
	for (unsigned int d = 0; d < nr_dims; d++) {
		for (int i = 0; i < 6; i++) {
			struct peerlane_model_part p = mf_whole(m, "t");

			p.flags = PEERLANE_MODEL_SLICE;
			p.dim = d;
			p.start = i < 2 ? 0 : rnd((unsigned int)shape[d] + 1);
			p.stop = i == 0 ? shape[d]
					: p.start + rnd((unsigned int)(shape[d] - p.start) + 1);
			if (whole_bytes(&t, &p)) {
				check_slice(m, &t, data, &p, i % 2 - 1);
			} else {
				uint64_t total;

				assert_int_equal(peerlane_model_layout(m, &p, 1, &total), -EINVAL);
				sim_assert_error(-EINVAL, "tensor \"t\": the slice begins or ends "
							  "inside a byte");
			}
		}
	}
	free(data);
	peerlane_model_close(m);
}

static void all_types(void **state)
{
	static const uint64_t shapes[][4] = {
		{ 64, 1, 1, 1 }, { 5, 8, 1, 1 }, { 8, 6, 4, 1 }, { 3, 4, 5, 8 }, { 1, 7, 1, 16 },
	};
	static const unsigned int dims[] = { 1, 2, 3, 4, 4 };

	(void)state;
	ctx = sim_open(0);
	for (int type = 0; type < PEERLANE_DTYPE_NR; type++)
		for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++)
			one_tensor((enum peerlane_dtype)type, shapes[i], dims[i]);
	sim_close(ctx, NULL, NULL);
}

/* Rows around the sizes at which slices are read in another way. */
static void all_widths(void **state)
{
	(void)state;
	ctx = sim_open(0);
	for (uint64_t width = 15 * KIB; width <= 36 * KIB; width += 5 * KIB + 8) {
		const uint64_t shape[] = { 3, 5, width };
		/* More than is read at a time. */
		const uint64_t many[] = { 300, width / 8 };

		one_tensor(PEERLANE_U16, shape, 3);
		one_tensor(PEERLANE_F64, many, 2);
	}
	sim_close(ctx, NULL, NULL);
}

/* Nothing but the slice is read where its pieces are wide, or far from each other. */
static void reads_little(void **state)
{
	static const struct {
		uint64_t rows, row, start, stop;
		uint64_t requests, file_bytes;
	} cases[] = {
		/* Wide pieces with narrow gaps. */
		{ 10, 40000, 0, 20000, 10, 200000 },
		/* Narrow pieces with wide gaps. */
		{ 10, 40000, 7, 8, 10, 10 },
		/* Narrow and close: one read, with the gaps between the pieces. */
		{ 10, 4000, 1000, 1010, 1, 9 * 4000 + 10 },
		/* All along: contiguous. */
		{ 10, 4000, 0, 4000, 1, 40000 },
		/* Nothing. */
		{ 10, 4000, 5, 5, 0, 0 },
	};
	struct peerlane_model_stats stats = { .size = sizeof(stats) };
	struct peerlane_model_memory *mem;
	struct peerlane_model *m;
	struct mf_header h;

	(void)state;
	ctx = sim_open(0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const uint64_t shape[] = { cases[i].rows, cases[i].row };
		struct peerlane_model_part p;

		mf_begin(&h);
		mf_tensor(&h, "t", "U8", shape, 2, shape[0] * shape[1]);
		m = mf_open(ctx, mf_end(&h, "little", 0, 1));
		p = mf_whole(m, "t");
		p.flags = PEERLANE_MODEL_SLICE;
		p.dim = 1;
		p.start = cases[i].start;
		p.stop = cases[i].stop;
		assert_int_equal(peerlane_model_memory_alloc(m, &p, 1, 0, 0, &mem), 0);
		assert_int_equal(peerlane_model_load(m, &p, 1, NULL, &stats), 0);
		assert_int_equal(stats.bytes, shape[0] * (p.stop - p.start));
		assert_int_equal(stats.nr_requests, cases[i].requests);
		assert_int_equal(stats.file_bytes, cases[i].file_bytes);
		peerlane_model_memory_free(mem);
		peerlane_model_close(m);
	}
	sim_close(ctx, NULL, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(all_types),
		sim_test(all_widths),
		sim_test(reads_little),
	};

	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown);
}
