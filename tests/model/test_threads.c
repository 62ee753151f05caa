// SPDX-License-Identifier: MIT
/* One model, loaded by several threads at once, each into memory of its own. */
#include "model_fixture.h"

#include <pthread.h>

#define NR_THREADS 4
#define NR_TENSORS 300

static struct peerlane *ctx;
static struct peerlane_model *model;

static void *work(void *arg)
{
	const int number = (int)(intptr_t)arg;
	struct peerlane_model_part *parts = calloc(NR_TENSORS, sizeof(*parts));
	struct peerlane_model_memory *mem = NULL;
	struct peerlane_model_stats stats = { .size = sizeof(stats) };
	struct peerlane_tensor t = { .size = sizeof(t) };
	struct peerlane_model_file f = { .size = sizeof(f) };
	intptr_t bad = 0;

	for (size_t i = 0; i < NR_TENSORS; i++)
		parts[i].tensor = i;
	for (int round = 0; round < 3 && !bad; round++) {
		unsigned int flags = (number + round) % 2 ? PEERLANE_MODEL_PER_TENSOR : 0;

		bad = peerlane_model_memory_alloc(model, parts, NR_TENSORS, 0, flags, &mem) ||
		      peerlane_model_load(model, parts, NR_TENSORS, NULL, &stats) ||
		      peerlane_model_get_file(model, 0, &f);
		for (size_t i = 0; i < NR_TENSORS && !bad; i++)
			bad = peerlane_model_get_tensor(model, i, &t) ||
			      sim_gpu_differs(ctx, parts[i].addr, t.bytes,
					      (off_t)(t.offset - f.data_offset), 8) != t.bytes;
		peerlane_model_memory_free(mem);
		mem = NULL;
	}
	/* The words of a failure are those of the thread that had it. */
	if (peerlane_model_find(model, number % 2 ? "odd" : "even") != -ENOENT)
		bad = 1;
	free(parts);
	return (void *)bad;
}

static void together(void **state)
{
	pthread_t threads[NR_THREADS];
	struct mf_header h;
	char name[16];
	void *bad;

	(void)state;
	ctx = sim_open(0);
	mf_begin(&h);
	for (uint64_t i = 0; i < NR_TENSORS; i++) {
		const uint64_t bytes = 1 + i * 37 % 5000;

		snprintf(name, sizeof(name), "t%u", (unsigned int)i);
		mf_tensor(&h, name, "U8", &bytes, 1, bytes);
	}
	model = mf_open(ctx, mf_end(&h, "shared", 0, 8));
	for (intptr_t i = 0; i < NR_THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)i), 0);
	for (int i = 0; i < NR_THREADS; i++) {
		assert_int_equal(pthread_join(threads[i], &bad), 0);
		assert_null(bad);
	}
	peerlane_model_close(model);
	sim_close(ctx, NULL, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(together),
	};

	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown);
}
