// SPDX-License-Identifier: MIT
/* Lanes that were given up while a copy might still read them: nobody has one before that is over, and then it is as any
 * other. And lanes there was no memory for. The GPU is played by this program. */
#include "context.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#define POOL (4ul << 20)

struct pl_queue {
	int made;
};

struct pl_mark {
	int made;
};

static bool stuck; /* no copy ends */

static bool no_memory;

static int pin_alloc(struct pl_gpu *g, size_t bytes, void **out)
{
	(void)g;
	*out = no_memory ? NULL : malloc(bytes);
	return *out ? 0 : -ENOMEM;
}

/* Where the library gets ordinary memory instead. */
void *mmap(void *addr, size_t bytes, int prot, int flags, int fd, off_t offset)
{
	if (no_memory) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	return (void *)syscall(SYS_mmap, addr, bytes, prot, flags, fd, offset);
}

static void pin_free(struct pl_gpu *g, void *addr, size_t bytes)
{
	(void)g;
	(void)bytes;
	free(addr);
}

static int queue_create(struct pl_gpu *g, void *owner, struct pl_queue **out)
{
	(void)g;
	(void)owner;
	*out = calloc(1, sizeof(**out));
	return 0;
}

static void queue_destroy(struct pl_gpu *g, struct pl_queue *q)
{
	(void)g;
	free(q);
}

static int mark_create(struct pl_gpu *g, struct pl_queue *q, struct pl_mark **out)
{
	(void)g;
	(void)q;
	*out = calloc(1, sizeof(**out));
	return 0;
}

static void mark_destroy(struct pl_gpu *g, struct pl_mark *m)
{
	(void)g;
	free(m);
}

static int copy(struct pl_gpu *g, struct pl_queue *q, enum pl_dir dir, const struct pl_copy *list,
		unsigned int nr, struct pl_mark *m)
{
	(void)g;
	(void)q;
	(void)dir;
	(void)list;
	(void)nr;
	(void)m;
	return 0;
}

static int mark_done(struct pl_gpu *g, struct pl_mark *m)
{
	(void)g;
	(void)m;
	return stuck ? 0 : 1;
}

static const struct pl_gpu_ops played = {
	.name = "played",
	.pin_alloc = pin_alloc,
	.pin_free = pin_free,
	.queue_create = queue_create,
	.queue_destroy = queue_destroy,
	.mark_create = mark_create,
	.mark_destroy = mark_destroy,
	.copy = copy,
	.mark_done = mark_done,
};

static struct pl_gpu played_gpu = { .ops = &played };
static struct peerlane ctx = { .gpu = &played_gpu, .opt = { .timeout_ms = 1 } };

static int setup(void **state)
{
	(void)state;
	stuck = false;
	assert_int_equal(pl_stats_init(&ctx.stats, "played"), 0);
	assert_int_equal(pl_pool_init(&ctx.pool, POOL, 64 * 1024), 0);
	pl_convoys_init(&ctx.convoys);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	pl_pool_fini(&ctx);
	pl_convoys_fini(&ctx, false);
	pl_stats_fini(&ctx.stats);
	return 0;
}

/* Gives a lane up to a copy that does not end. */
static void lose(struct pl_lane *lane, struct pl_ride *ride)
{
	struct pl_convoy *convoy = pl_convoy_get(&ctx, &ctx);
	static char to[8];

	assert_non_null(convoy);
	*ride = (struct pl_ride){
		.copy = { .dst = to, .src = lane->mem, .bytes = sizeof(to) },
	};
	stuck = true;
	pl_convoy_join(convoy, ride);
	assert_true(pl_convoy_leave(convoy, ride));
	lane->lost = true;
	lane->convoy = convoy;
	lane->convoy_number = ride->number;
	pl_lane_release(&ctx, lane);
}

/* Takes every lane there is. Returns how many, which all go back. */
static unsigned int count_lanes(const struct pl_lane *without, const struct pl_lane *with)
{
	struct pl_lane *lanes[256];
	unsigned int nr = 0;
	bool found = false;

	while (nr < 256 && !pl_lane_acquire(&ctx, 1, 1, &lanes[nr])) {
		assert_ptr_not_equal(lanes[nr], without);
		found |= lanes[nr] == with;
		nr++;
	}
	assert_in_range(nr, 1, 255);
	assert_true(found == (with != NULL));
	for (unsigned int i = 0; i < nr; i++)
		pl_lane_release(&ctx, lanes[i]);
	return nr;
}

static void test_recovered(void **state)
{
	unsigned int all = count_lanes(NULL, NULL);
	struct pl_lane *lane = NULL;
	struct pl_ride ride;

	(void)state;
	assert_int_equal(pl_lane_acquire(&ctx, 1, 1, &lane), 0);
	lose(lane, &ride);
	pl_pool_reclaim(&ctx);
	assert_true(lane->lost);
	assert_int_equal(count_lanes(lane, NULL), all - 1);
	stuck = false;
	pl_pool_reclaim(&ctx);
	assert_false(lane->lost);
	/* What it was lost to is not asked again: its numbers wrap around. */
	assert_null(lane->convoy);
	assert_null(lane->serve);
	assert_int_equal(count_lanes(NULL, lane), all);
}

/* The same for a lane's own copies. */
static void test_copies(void **state)
{
	struct pl_lane *lane = NULL;
	struct pl_lane_queue *q;

	(void)state;
	assert_int_equal(pl_lane_acquire(&ctx, 1, 1, &lane), 0);
	assert_int_equal(pl_lane_queue(&ctx, lane, &ctx, &q), 0);
	stuck = true;
	lane->lost = true;
	pl_lane_release(&ctx, lane);
	pl_pool_reclaim(&ctx);
	assert_true(lane->lost);
	stuck = false;
	pl_pool_reclaim(&ctx);
	assert_false(lane->lost);
}

/* Lanes that could not be made are made when there is memory again. */
static void test_no_memory(void **state)
{
	unsigned int all = count_lanes(NULL, NULL);
	struct pl_lane *lane;

	teardown(state);
	setup(state);
	no_memory = true;
	for (unsigned int i = 0; i < 2 * all; i++)
		assert_int_equal(pl_lane_acquire(&ctx, 1, 1, &lane), -ENOMEM);
	no_memory = false;
	assert_int_equal(count_lanes(NULL, NULL), all);
}

/* Who waits for a lane gets the one that has recovered meanwhile. */
static void test_waiter(void **state)
{
	struct pl_lane *lanes[256], *lane;
	struct pl_ride ride;
	unsigned int nr = 0;

	(void)state;
	while (nr < 256 && !pl_lane_acquire(&ctx, 1, 1, &lanes[nr]))
		nr++;
	lose(lanes[0], &ride);
	assert_int_equal(pl_lane_acquire(&ctx, 1, 1, &lane), -ETIMEDOUT);
	stuck = false;
	assert_int_equal(pl_lane_acquire(&ctx, 1, 1, &lane), 0);
	assert_ptr_equal(lane, lanes[0]);
	for (unsigned int i = 0; i < nr; i++)
		pl_lane_release(&ctx, lanes[i]);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(recovered),
		TEST(copies),
		TEST(no_memory),
		TEST(waiter),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
