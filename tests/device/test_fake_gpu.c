// SPDX-License-Identifier: MIT
/*
 * Devices on a GPU, over the fake libcuda: what lies in GPU memory, pinned memory and registered registers,
 * and that all of it is given back. No kernel runs there: the test fetches the queues, puts slots of its own
 * into them, and works on the rings as a kernel would.
 */
#include "serve_test.h"

#include <peerlane/gpu.h>

#include "fake/cuda_abi.h"

#define BLOCKS 256u

static __typeof__(fake_cuda_leaks) *leaks;
static __typeof__(fake_cuda_violations) *violations;
static __typeof__(fake_cuda_fail) *inject;
static struct peerlane *ctx;

static void assert_clean(void)
{
	char text[1024];

	if (leaks(text, sizeof(text)))
		fail_msg("leaked: %s", text);
	if (violations(text, sizeof(text)))
		fail_msg("rules broken: %s", text);
}

static int open_context(void **state)
{
	const struct peerlane_options opt = { .size = sizeof(opt), .backend = "cuda" };

	(void)state;
	return peerlane_open(&ctx, &opt);
}

static int close_context(void **state)
{
	(void)state;
	inject(NULL);
	peerlane_close(ctx);
	assert_clean();
	return 0;
}

/* Fetch memory of the GPU. */
static void *fetched(const void *gpu, size_t bytes)
{
	void *here = aligned_alloc(128, (bytes + 127) / 128 * 128);

	assert_int_equal(peerlane_gpu_copy(ctx, here, gpu, bytes), 0);
	return here;
}

/* The queues of a load, with slots, marks and addresses where the CPU reaches them. */
static void queues_fetch(struct load *l)
{
	const size_t slots = (size_t)l->info.ports_per_queue * l->info.slots_per_port;
	struct pld_queue *q = fetched(l->info.queues, l->info.nr_queues * sizeof(*q));

	for (uint32_t i = 0; i < l->info.nr_queues; i++) {
		q[i].slots = fetched(q[i].slots, slots * sizeof(*q[i].slots));
		for (size_t k = 0; k < slots; k++)
			assert_int_equal(q[i].slots[k], 0);
		if (q[i].marks)
			q[i].marks = fetched(q[i].marks, q[i].depth * sizeof(*q[i].marks));
		if (q[i].bounce_dma)
			q[i].bounce_dma =
				fetched(q[i].bounce_dma, slots * sizeof(*q[i].bounce_dma));
		assert_int_equal(pld_load_relaxed_sys32(q[i].stop), 0);
		/* The rings are the CPU's, too: memory of the GPU cannot be touched. */
		assert_int_equal(q[i].sq[0].cid | q[i].cq[0].status, 0);
	}
	l->info.queues = q;
}

static void queues_drop(struct load *l)
{
	for (uint32_t i = 0; i < l->info.nr_queues; i++) {
		free(l->info.queues[i].slots);
		free(l->info.queues[i].marks);
		free((void *)(uintptr_t)l->info.queues[i].bounce_dma);
	}
	free(l->info.queues);
}

/* Twice, with a reset between: it puts the queues into GPU memory anew. */
static void check_device(struct peerlane_device *dev)
{
	struct peerlane_device_stats st = { .size = sizeof(st) };
	struct load l;

	for (int i = 0; i < 2; i++) {
		load_init(&l, dev, 2);
		assert_true(l.info.on_gpu);
		assert_true(l.info.has_bounce);
		l.nr_blocks = BLOCKS;
		queues_fetch(&l);
		load_run_well(&l);
		assert_int_equal(peerlane_device_get_stats(dev, 0, &st), 0);
		queues_drop(&l);
		load_fini(&l);
		peerlane_device_stop(dev);
		assert_int_equal(peerlane_device_reset(dev), 0);
	}
}

static struct peerlane_device_options options(void)
{
	return (struct peerlane_device_options){ .size = sizeof(struct peerlane_device_options),
						 .ctx = ctx,
						 .nr_queues = 2,
						 .depth = 16,
						 .ports_per_queue = 2 };
}

static void test_files(void **state)
{
	const struct peerlane_device_options opt = options();
	int fd = file_make(tmp_dir(), (size_t)BLOCKS * BLOCK);
	struct peerlane_device *dev;
	char text[1024];

	(void)state;
	assert_int_equal(peerlane_device_open_files(&dev, &opt, &fd, 1), 0);
	peerlane_device_describe(dev, text, sizeof(text));
	assert_non_null(strstr(text, "kernels run on the GPU"));
	check_device(dev);
	peerlane_device_close(dev);
	close(fd);
}

static void test_memory(void **state)
{
	const struct peerlane_device_options opt = options();
	struct peerlane_device *dev;
	void *memory;

	(void)state;
	assert_int_equal(peerlane_device_open_memory(&dev, &opt, (size_t)BLOCKS * BLOCK, &memory),
			 0);
	for (uint32_t i = 0; i < BLOCKS; i++)
		fill_block((char *)memory + (size_t)i * BLOCK, i);
	check_device(dev);
	peerlane_device_close(dev);
}

static struct peerlane_nvme *open_sim(void)
{
	struct peerlane_nvme_options opt = { .size = sizeof(opt), .flags = PEERLANE_NVME_NO_DBBUF };
	struct peerlane_nvme *nvme;

	assert_int_equal(peerlane_nvme_open(&nvme, "sim:size=1M", &opt), 0);
	return nvme;
}

/* The software controller, whose data go by way of host memory, since no CPU stores into GPU memory. */
static void test_controller(void **state)
{
	struct peerlane_device_options opt = options();
	struct peerlane_nvme *nvme = open_sim();
	struct peerlane_device_map *map = NULL;
	struct peerlane_nvme_memory m = {
		.size = sizeof(m), .flags = PEERLANE_NVME_MEMORY_GPU, .bytes = 65536, .pin_fd = -1
	};
	struct peerlane_device *dev;
	struct load l;

	(void)state;
	opt.flags = PEERLANE_DEVICE_BOUNCE;
	assert_int_equal(peerlane_device_open_nvme(&dev, &opt, &nvme, 1, 1), 0);
	load_init(&l, dev, 2);
	l.nr_blocks = BLOCKS;
	queues_fetch(&l);
	/* Each block once: 8 lanes. */
	l.rounds = BLOCKS / (l.nr_warps * l.nr_lanes);
	l.opcode = PL_NVME_WRITE;
	load_run_well(&l);
	queues_drop(&l);
	load_fini(&l);
	assert_int_equal(peerlane_device_reset(dev), 0);
	check_device(dev);
	peerlane_device_close(dev);

	/* Straight into GPU memory: it says that it cannot. */
	opt.flags = 0;
	assert_int_equal(peerlane_device_open_nvme(&dev, &opt, &nvme, 1, 1), 0);
	assert_int_equal(peerlane_gpu_alloc(ctx, 0, m.bytes, &m.ptr), 0);
	assert_int_equal(peerlane_device_map(dev, &m, 4096, &map), -EOPNOTSUPP);
	assert_null(map);
	assert_int_equal(peerlane_gpu_free(ctx, m.ptr), 0);
	peerlane_device_close(dev);
	peerlane_nvme_close(nvme);
}

/* Each call of the driver fails once: opening says so, and nothing is left. */
static void test_driver_fails(void **state)
{
	static const char *const calls[] = { "cuMemHostAlloc", "cuMemHostGetDevicePointer_v2",
					     "cuMemAlloc_v2", "cuMemcpyAsync",
					     "cuMemHostRegister_v2" };
	struct peerlane_device_options opt = options();
	struct peerlane_nvme *nvme = open_sim();
	struct peerlane_device *dev = NULL;
	unsigned int failures = 0;

	(void)state;
	opt.flags = PEERLANE_DEVICE_BOUNCE;
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		for (int nth = 0; nth < 4; nth++) {
			char rule[64];
			int err;

			snprintf(rule, sizeof(rule), "%s:%d:2", calls[i], nth);
			inject(rule);
			err = peerlane_device_open_nvme(&dev, &opt, &nvme, 1, 1);
			inject(NULL);
			failures += err != 0;
			if (err)
				assert_true(err == -ENOMEM || err == -EREMOTEIO ||
					    err == -EOPNOTSUPP);
			else
				peerlane_device_close(dev);
		}
	}
	assert_true(failures >= 5);
	opt.gpu = 99;
	assert_int_equal(peerlane_device_open_nvme(&dev, &opt, &nvme, 1, 1), -ENODEV);
	peerlane_nvme_close(nvme);
}

static void load_symbol(void *library, void *to, const char *name)
{
	void *symbol = dlsym(library, name);

	assert_non_null(symbol);
	memcpy(to, &symbol, sizeof(symbol));
}

static int find_fake(void **state)
{
	void *library = dlopen(getenv("FAKE_LIBCUDA"), RTLD_NOW);

	(void)state;
	if (!library)
		return -1;
	setenv("PEERLANE_LIBCUDA", getenv("FAKE_LIBCUDA"), 1);
	load_symbol(library, &leaks, "fake_cuda_leaks");
	load_symbol(library, &violations, "fake_cuda_violations");
	load_symbol(library, &inject, "fake_cuda_fail");
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_files, open_context, close_context),
		cmocka_unit_test_setup_teardown(test_memory, open_context, close_context),
		cmocka_unit_test_setup_teardown(test_controller, open_context, close_context),
		cmocka_unit_test_setup_teardown(test_driver_fails, open_context, close_context),
	};

	if (!getenv("FAKE_LIBCUDA")) {
		puts("FAKE_LIBCUDA does not name the fake libcuda");
		return 77;
	}
	return cmocka_run_group_tests(tests, find_fake, NULL);
}
