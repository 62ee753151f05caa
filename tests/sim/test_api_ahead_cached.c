// SPDX-License-Identifier: MIT
/* A file in the page cache that is read from front to back is read ahead by the workers; and never is anything given
 * out that is older than the call: the file is changed in every way while pieces of it are full already. */
#include "sim/ahead_rig.h"

#include <pthread.h>

/* More than there are CPUs on some machines, and enough for the engine to think it worth it. */
#define ENV "THREADS=6"
#define PAGE 4096ul

/* Nothing is known of it and nothing was asked for. */
static void reopen(struct rig *r)
{
	assert_int_equal(peerlane_file_close(r->file), 0);
	r->file = sim_file(r->ctx, r->path, O_RDONLY);
}

static void sequence(void **state)
{
	static const char *const envs[] = { ENV, ENV " SIM_ASYNC=300", ENV " POOL_BYTES=8M",
					    ENV " POOL_BYTES=2M" };
	struct rig r;

	(void)state;
	for (int i = 0; i < 4; i++) {
		start(&r, true, envs[i]);
		read_calls(&r, 8, BYTES / CALL);
		assert_in_range(ahead(&r), i < 2 ? BYTES / 2 : 1, BYTES);
		read_last(&r);
		/* Once around again. */
		read_calls(&r, 0, BYTES / CALL);
		rig_close(&r);
	}
}

/* Long ones are several pieces, and nothing has to be aligned. */
static void sizes(void **state)
{
	static const size_t sizes[] = { 4 * CALL, 300 * KIB, 700001, CALL + 1, 3 * CALL - 4097 };
	struct rig r;

	(void)state;
	start(&r, true, ENV);
	rig_close(&r);
	for (unsigned int i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		rig_open(&r, true, ENV, 0);
		for (off_t at = 13; at + (off_t)sizes[i] <= (off_t)BYTES; at += (off_t)sizes[i]) {
			sim_gpu_set(r.ctx, r.gpu, 0xee, sizes[i]);
			assert_int_equal(peerlane_read(r.file, r.gpu, sizes[i], at), sizes[i]);
			sim_assert_gpu(r.ctx, r.gpu, sizes[i], at, 1);
		}
		assert_in_range(ahead(&r), 2 * sizes[i], BYTES);
		rig_close(&r);
	}
}

static void switched_off(void **state)
{
	static const struct {
		const char *env;
		unsigned int flags;
	} ways[] = { { ENV, PEERLANE_NO_AHEAD }, { ENV, PEERLANE_SAVE_CPU }, { "THREADS=2", 0 } };
	struct rig r;

	(void)state;
	for (unsigned int i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		rig_open(&r, true, ways[i].env, ways[i].flags);
		read_calls(&r, 0, 12);
		assert_int_equal(ahead(&r), 0);
		rig_close(&r);
	}
}

/* The pages of a change wait to be written back, or are written back already: then only the times tell. */
static void changed(void **state)
{
	struct rig r;

	(void)state;
	for (int how = BY_WRITE; how <= BY_US; how++) {
		for (int synced = 0; synced < 2; synced++) {
			start(&r, true, ENV);
			change(&r, (enum change)how, 8 * CALL + 4096, 64 * KIB);
			if (synced)
				warm(r.path);
			assert_changed(&r);
			read_calls(&r, 9, 16);
			rig_close(&r);
		}
	}
}

/* A store into a page that is dirty already shows nowhere, so a file with a writable mapping is not read ahead. */
static void stored_again(void **state)
{
	const off_t at = 12 * CALL + 2 * PAGE;
	char mem[100], *map;
	struct rig r;
	int fd;

	(void)state;
	start(&r, true, ENV);
	fd = open(r.path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	map = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, at);
	assert_true(map != MAP_FAILED);
	sim_pattern(map, sizeof(mem), at, 3);
	sim_nap_ms(120);
	reopen(&r);
	read_calls(&r, 0, 10);
	sim_pattern(map, sizeof(mem), at, 2);
	read_calls(&r, 10, 12);
	assert_int_equal(peerlane_read(r.file, r.gpu, CALL, 12 * CALL), CALL);
	sim_assert_gpu(r.ctx, r.gpu + 2 * PAGE, sizeof(mem), at, 2);
	munmap(map, PAGE);
	close(fd);
	rig_close(&r);
}

static void out_of_step(void **state)
{
	(void)state;
	check_out_of_step(true, ENV);
}

static void truncated(void **state)
{
	(void)state;
	check_truncated(true, ENV);
}

static void restless(void **state)
{
	(void)state;
	check_restless(true, ENV);
}

/* The child has the descriptors, but not the threads that fill. */
static void closed_or_forked(void **state)
{
	unsigned int fds = sim_count_fds();
	struct rig r;

	(void)state;
	for (int i = 0; i < 4; i++) {
		start(&r, true, i % 2 ? ENV : ENV " SIM_ASYNC=300");
		if (i == 2) {
			fork_and_close(&r);
			read_calls(&r, 8, 12);
		}
		if (i == 3)
			peerlane_close(r.ctx);
		else
			rig_close(&r);
		assert_int_equal(sim_count_fds(), fds);
	}
}

#define NR_THREADS 4

struct team {
	struct rig *r;
	unsigned int next, wrong; /* atomic */
};

/* Each thread takes the next call; they come out of turn, but not by far. */
static void *read_in_turns(void *arg)
{
	struct team *t = arg;
	char *gpu = sim_alloc(t->r->ctx, CALL);
	unsigned int i;

	while ((i = __atomic_fetch_add(&t->next, 1, __ATOMIC_RELAXED)) < BYTES / CALL) {
		off_t at = (off_t)(i * CALL);

		if (peerlane_read(t->r->file, gpu, CALL, at) != (ssize_t)CALL ||
		    sim_gpu_differs(t->r->ctx, gpu, CALL, at, 1) != CALL)
			__atomic_fetch_add(&t->wrong, 1, __ATOMIC_RELAXED);
	}
	peerlane_gpu_free(t->r->ctx, gpu);
	return NULL;
}

static void several_threads(void **state)
{
	pthread_t threads[NR_THREADS];
	struct rig r;

	(void)state;
	start(&r, true, ENV);
	for (int round = 0; round < 5; round++) {
		struct team team = { .r = &r };
		uint64_t before = ahead(&r);

		for (int i = 0; i < NR_THREADS; i++)
			assert_int_equal(pthread_create(&threads[i], NULL, read_in_turns, &team),
					 0);
		for (int i = 0; i < NR_THREADS; i++)
			pthread_join(threads[i], NULL);
		assert_int_equal(team.wrong, 0);
		assert_true(round < 4 || ahead(&r) > before);
	}
	rig_close(&r);
}

struct writer {
	struct rig *r;
	uint64_t step; /* the last that is in the file for certain; atomic */
	int stop;
};

/* Counts in the first word of call 20, with pauses long enough for times to look settled. The file is open for writing no
 * longer than that takes. */
static void *count_up(void *arg)
{
	struct writer *w = arg;
	uint64_t step = 0;
	bool good = true;

	while (good && !__atomic_load_n(&w->stop, __ATOMIC_ACQUIRE)) {
		int fd = open(w->r->path, O_RDWR | O_CLOEXEC);

		step++;
		good = pwrite(fd, &step, sizeof(step), 20 * CALL) == sizeof(step) && !fdatasync(fd);
		close(fd);
		if (good)
			__atomic_store_n(&w->step, step, __ATOMIC_RELEASE);
		sim_nap_ms(step % 2 ? 80 : 1);
	}
	return NULL;
}

/* A read gives at least what was in the file before the read began. */
static void never_older(void **state)
{
	struct writer w = { 0 };
	uint64_t before, got;
	pthread_t thread;
	struct rig r;

	(void)state;
	start(&r, true, ENV);
	w.r = &r;
	assert_int_equal(pthread_create(&thread, NULL, count_up, &w), 0);
	for (int round = 0; round < (sim_slow() ? 10 : 40); round++) {
		read_calls(&r, 10, 20);
		before = __atomic_load_n(&w.step, __ATOMIC_ACQUIRE);
		assert_int_equal(peerlane_read(r.file, r.gpu, CALL, 20 * CALL), CALL);
		assert_int_equal(peerlane_gpu_copy(r.ctx, &got, r.gpu, sizeof(got)), 0);
		assert_true(!before || got >= before);
	}
	__atomic_store_n(&w.stop, 1, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(sequence),	   sim_test(sizes),	  sim_test(switched_off),
		sim_test(out_of_step),	   sim_test(changed),	  sim_test(stored_again),
		sim_test(truncated),	   sim_test(restless),	  sim_test(closed_or_forked),
		sim_test(several_threads), sim_test(never_older),
	};

	sim_alarm(300);
	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown);
}
