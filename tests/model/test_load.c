// SPDX-License-Identifier: MIT
/* Loading: memory of every kind, selections, few requests for many tensors, progress, bad parts. */
#include "model_fixture.h"

static struct peerlane *ctx;
static struct peerlane_model_stats stats = { .size = sizeof(stats) };

/* @nr tensors of @bytes each, t0, t1 ... */
static const char *make(const char *name, unsigned int nr, uint64_t bytes, unsigned int seed)
{
	struct mf_header h;
	char tensor[32];

	mf_begin(&h);
	for (unsigned int i = 0; i < nr; i++) {
		snprintf(tensor, sizeof(tensor), "t%u", i);
		mf_tensor(&h, tensor, "U8", &bytes, 1, bytes);
	}
	return mf_end(&h, name, 5, seed);
}

/* Ten thousand neighbours: one read for one allocation, few batches else. */
static void many_small(void **state)
{
	const unsigned int nr_tensors = sim_slow() ? 2000 : 10000, bytes = 16 * KIB;
	struct peerlane_model_part *parts;
	struct peerlane_model_memory *mem;
	struct peerlane_model *m;
	struct peerlane_stats before, after;
	size_t nr;

	(void)state;
	ctx = sim_open(0);
	m = mf_open(ctx, make("many", nr_tensors, bytes, 3));
	parts = mf_all(m, &nr);
	assert_int_equal(nr, nr_tensors);
	for (int gpu = -1; gpu < 1; gpu++) {
		for (unsigned int flags = 0; flags < 2; flags++) {
			assert_int_equal(
				peerlane_model_memory_alloc(m, parts, nr, gpu, flags, &mem), 0);
			before = sim_stats(ctx);
			assert_int_equal(peerlane_model_load(m, parts, nr, NULL, &stats), 0);
			after = sim_stats(ctx);
			assert_int_equal(stats.bytes, (uint64_t)nr_tensors * bytes);
			assert_int_equal(stats.file_bytes, stats.bytes);
			assert_true(stats.ns > 0);
			/* What the library says of itself, and what the engine counted. */
			assert_int_equal(stats.nr_requests, flags ? nr_tensors : 1);
			assert_int_equal(after.read.ok - before.read.ok, stats.nr_requests);
			for (size_t i = 0; i < nr; i++) {
				assert_int_equal((uintptr_t)parts[i].addr % 256, 0);
				mf_assert_part(ctx, m, &parts[i], 3);
			}
			if (!flags)
				assert_ptr_equal((char *)parts[0].addr + bytes, parts[1].addr);
			peerlane_model_memory_free(mem);
		}
	}
	free(parts);
	peerlane_model_close(m);
	sim_close(ctx, NULL, NULL);
}

/* Some tensors, in any order and one twice, into memory of the caller: around them nothing changes. */
static void selected(void **state)
{
	const unsigned int bytes = 5001;
	static const unsigned int which[] = { 7, 2, 3, 9, 2, 0 };
	struct peerlane_model_part parts[6];
	struct peerlane_model *m;
	char name[8], *gpu, *host;
	uint64_t total;

	(void)state;
	ctx = sim_open(0);
	m = mf_open(ctx, make("some", 10, bytes, 4));
	gpu = sim_alloc(ctx, 100000);
	host = malloc(100000);
	for (int on_host = 0; on_host < 2; on_host++) {
		char *base = on_host ? host : gpu;

		sim_gpu_set(ctx, base, 0xee, 100000);
		for (int i = 0; i < 6; i++) {
			snprintf(name, sizeof(name), "t%u", which[i]);
			parts[i] = mf_whole(m, name);
			parts[i].addr = base + 1 + i * (bytes + 7);
		}
		assert_int_equal(peerlane_model_load(m, parts, 6, NULL, &stats), 0);
		assert_int_equal(stats.bytes, 6 * bytes);
		assert_int_equal(stats.file_bytes, 6 * bytes);
		for (int i = 0; i < 6; i++) {
			mf_assert_part(ctx, m, &parts[i], 4);
			sim_assert_gpu_is(ctx, (char *)parts[i].addr + bytes, 0xee, 7);
		}
		sim_assert_gpu_is(ctx, base, 0xee, 1);
		/* Laid out by the library: neighbours in the file are one request. */
		assert_int_equal(peerlane_model_layout(m, parts, 6, &total), 0);
		for (int i = 0; i < 6; i++)
			parts[i].addr = base + parts[i].at;
		assert_int_equal(parts[5].at, 0); /* t0 */
		assert_int_equal(parts[2].at % 256, (parts[4].at + bytes) % 256);
		assert_true(total >= 6 * bytes && total < 6 * (bytes + 256));
		assert_int_equal(peerlane_model_load(m, parts, 6, NULL, &stats), 0);
		assert_int_equal(stats.nr_requests, 5); /* t0, t2, t2 and t3, t7, t9 */
		for (int i = 0; i < 6; i++)
			mf_assert_part(ctx, m, &parts[i], 4);
	}
	free(host);
	peerlane_model_close(m);
	sim_close(ctx, NULL, gpu);
}

/* Every header length makes another position of the data in the file and its pages. */
static void unaligned(void **state)
{
	struct peerlane_model_part *parts;
	struct peerlane_model_memory *mem;
	struct peerlane_model *m;
	const uint64_t odd = 3001, words = 1000;
	struct mf_header h;
	size_t nr;

	(void)state;
	ctx = sim_open(0);
	for (unsigned int padding = 0; padding < 9; padding++) {
		mf_begin(&h);
		mf_tensor(&h, "odd", "U8", &odd, 1, odd);
		mf_tensor(&h, "words", "F32", &words, 1, 4 * words);
		mf_tensor(&h, "more", "U16", &words, 1, 2 * words);
		m = mf_open(ctx, mf_end(&h, "unaligned", padding, padding));
		parts = mf_all(m, &nr);
		assert_int_equal(peerlane_model_memory_alloc(m, parts, nr, 0, 0, &mem), 0);
		/* In the file it follows; in memory elements are aligned. */
		assert_int_equal(parts[1].at % 256, 0);
		assert_int_equal(parts[2].at, parts[1].at + 4 * words);
		assert_int_equal(peerlane_model_load(m, parts, nr, NULL, &stats), 0);
		assert_int_equal(stats.nr_requests, 2);
		for (size_t i = 0; i < nr; i++)
			mf_assert_part(ctx, m, &parts[i], padding);
		peerlane_model_memory_free(mem);
		free(parts);
		peerlane_model_close(m);
	}
	sim_close(ctx, NULL, NULL);
}

struct told {
	unsigned int calls;
	uint64_t last, total, stop_at;
};

static int tell(void *arg, uint64_t done, uint64_t total)
{
	struct told *t = arg;

	assert_true(done >= t->last && done <= total);
	t->calls++;
	t->last = done;
	t->total = total;
	return done >= t->stop_at;
}

static void progress(void **state)
{
	struct told told = { .stop_at = UINT64_MAX };
	struct peerlane_model_load_options opt = { .size = sizeof(opt),
						   .progress = tell,
						   .progress_arg = &told };
	struct peerlane_model_part *parts;
	struct peerlane_model_memory *mem;
	struct peerlane_model *m;
	size_t nr;

	(void)state;
	ctx = sim_open(0);
	m = mf_open(ctx, make("progress", 3000, 64, 5));
	parts = mf_all(m, &nr);
	assert_int_equal(
		peerlane_model_memory_alloc(m, parts, nr, 0, PEERLANE_MODEL_PER_TENSOR, &mem), 0);
	assert_int_equal(peerlane_model_load(m, parts, nr, &opt, NULL), 0);
	assert_true(told.calls >= 3);
	assert_int_equal(told.last, 3000 * 64);
	assert_int_equal(told.total, 3000 * 64);
	/* Stopped before the first byte, and in the middle. */
	told = (struct told){ .stop_at = 0 };
	assert_int_equal(peerlane_model_load(m, parts, nr, &opt, NULL), -ECANCELED);
	assert_int_equal(told.calls, 1);
	told = (struct told){ .stop_at = 1 };
	assert_int_equal(peerlane_model_load(m, parts, nr, &opt, NULL), -ECANCELED);
	sim_assert_error(-ECANCELED, "stopped");
	assert_true(told.last < 3000 * 64);
	/* And it works again. */
	told = (struct told){ .stop_at = UINT64_MAX };
	assert_int_equal(peerlane_model_load(m, parts, nr, &opt, NULL), 0);
	for (size_t i = 0; i < nr; i += 100)
		mf_assert_part(ctx, m, &parts[i], 5);
	peerlane_model_memory_free(mem);
	free(parts);
	peerlane_model_close(m);
	sim_close(ctx, NULL, NULL);
}

static void bad_parts(void **state)
{
	struct peerlane_model_part parts[2] = { { 0 } };
	struct peerlane_model_load_options opt = { .size = sizeof(opt) };
	struct peerlane_model_memory *mem = (struct peerlane_model_memory *)-1;
	struct peerlane_model *m;
	char host[100];
	uint64_t bytes;

	(void)state;
	ctx = sim_open(0);
	m = mf_open(ctx, make("bad", 2, 100, 6));
	assert_int_equal(peerlane_model_load(NULL, parts, 1, NULL, NULL), -EINVAL);
	assert_int_equal(peerlane_model_load(m, NULL, 1, NULL, NULL), -EINVAL);
	assert_int_equal(peerlane_model_load(m, parts, 1, NULL, NULL), -EINVAL);
	sim_assert_error(-EINVAL, "part 0: tensor \"t0\": it has no memory");
	parts[0].addr = host;
	parts[1].addr = host;
	parts[1].tensor = 2;
	assert_int_equal(peerlane_model_load(m, parts, 2, NULL, NULL), -EINVAL);
	sim_assert_error(-EINVAL, "part 1: there is no tensor 2");
	parts[1].tensor = 1;
	parts[1].flags = 2;
	assert_int_equal(peerlane_model_load(m, parts, 2, NULL, NULL), -EINVAL);
	sim_assert_error(-EINVAL, "part 1: unknown flags");
	parts[1] = (struct peerlane_model_part){
		.tensor = 1, .flags = PEERLANE_MODEL_SLICE, .dim = 1, .addr = host
	};
	assert_int_equal(peerlane_model_load(m, parts, 2, NULL, NULL), -EINVAL);
	sim_assert_error(-EINVAL, "tensor \"t1\" has 1 dimensions, not 2");
	parts[1].dim = 0;
	parts[1].stop = 101;
	assert_int_equal(peerlane_model_layout(m, parts, 2, &bytes), -EINVAL);
	sim_assert_error(-EINVAL, "part 1: tensor \"t1\": [0, 101) is no slice of 100");
	parts[1].start = 60;
	parts[1].stop = 50;
	assert_int_equal(peerlane_model_memory_alloc(m, parts, 2, 0, 0, &mem), -EINVAL);
	sim_assert_error(-EINVAL, "[60, 50)");
	parts[1].stop = 60;
	assert_int_equal(peerlane_model_memory_alloc(m, parts, 2, 7, 0, &mem), -ENODEV);
	assert_int_equal(peerlane_model_memory_alloc(m, parts, 2, -2, 0, &mem), -EINVAL);
	assert_int_equal(peerlane_model_memory_alloc(m, parts, 2, 0, 2, &mem), -EINVAL);
	assert_int_equal(peerlane_model_memory_alloc(m, parts, 2, 0, 0, NULL), -EINVAL);
	assert_ptr_equal(mem, (struct peerlane_model_memory *)-1);
	peerlane_model_memory_free(NULL);
	opt.flags = 4;
	assert_int_equal(peerlane_model_load(m, parts, 1, &opt, NULL), -EINVAL);
	opt.flags = 0;
	opt.size = 1;
	assert_int_equal(peerlane_model_load(m, parts, 1, &opt, NULL), -EINVAL);
	/* Memory that is none: the tensor is named. */
	parts[0].addr = (void *)0x1000;
	assert_int_equal(peerlane_model_load(m, parts, 1, NULL, NULL), -EFAULT);
	sim_assert_error(-EFAULT, "tensor \"t0\"");
	peerlane_model_close(m);
	sim_close(ctx, NULL, NULL);
}

/* GPU memory that runs out leaves nothing behind; a GPU that fails is said so. */
static void gpu_faults(void **state)
{
	struct peerlane_model_memory *mem = NULL;
	struct peerlane_model_part *parts;
	struct peerlane_model *m;
	void *all;
	size_t nr;

	(void)state;
	sim_env("SIM_MEMORY=1M");
	ctx = sim_open(0);
	m = mf_open(ctx, make("faults", 20, 64 * KIB, 7));
	parts = mf_all(m, &nr);
	for (unsigned int flags = 0; flags < 2; flags++)
		assert_int_equal(peerlane_model_memory_alloc(m, parts, nr, 0, flags, &mem),
				 -ENOMEM);
	assert_null(mem);
	assert_int_equal(peerlane_gpu_alloc(ctx, 0, MIB, &all), 0);
	assert_int_equal(peerlane_gpu_free(ctx, all), 0);
	assert_int_equal(peerlane_model_memory_alloc(m, parts, 10, 0, 0, &mem), 0);
	assert_int_equal(peerlane_sim_inject(ctx, "copy", 0, 1000), 0);
	assert_int_equal(peerlane_model_load(m, parts, 10, NULL, NULL), -EREMOTEIO);
	sim_assert_error(-EREMOTEIO, "faults: tensor \"t0\"");
	assert_int_equal(peerlane_sim_inject(ctx, "copy", 0, 0), 0);
	assert_int_equal(peerlane_model_load(m, parts, 10, NULL, NULL), 0);
	mf_assert_part(ctx, m, &parts[9], 7);
	peerlane_model_memory_free(mem);
	free(parts);
	peerlane_model_close(m);
	sim_close(ctx, NULL, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(many_small), sim_test(selected),  sim_test(unaligned),
		sim_test(progress),   sim_test(bad_parts), sim_test(gpu_faults),
	};

	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown);
}
