// SPDX-License-Identifier: MIT
/* A cold file read from front to back is read ahead; and never is anything given out that is older
 * than the call: the file is changed under the engine in every way, and dropped from the cache so
 * that only the engine's own copy could be stale. */
#include "sim/ahead_rig.h"

static void sequence(void **state)
{
	static const char *const envs[] = { "", "SIM_ASYNC=300" };
	struct rig r;

	(void)state;
	for (int i = 0; i < 2; i++) {
		start(&r, false, envs[i]);
		read_calls(&r, 8, BYTES / CALL);
		assert_in_range(ahead(&r), BYTES / 2, BYTES);
		read_last(&r);
		rig_close(&r);
	}
}

static void long_calls(void **state)
{
	struct rig r;

	(void)state;
	start(&r, false, "");
	for (off_t at = 8 * CALL; at + 4 * (off_t)CALL <= (off_t)BYTES; at += 4 * CALL) {
		assert_int_equal(peerlane_read(r.file, r.gpu, 4 * CALL, at), 4 * CALL);
		sim_assert_gpu(r.ctx, r.gpu, 4 * CALL, at, 1);
	}
	rig_close(&r);
}

static void switched_off(void **state)
{
	struct rig r;

	(void)state;
	rig_open(&r, false, "", PEERLANE_NO_AHEAD);
	read_calls(&r, 0, 12);
	assert_int_equal(ahead(&r), 0);
	rig_close(&r);
}

static void changed(void **state)
{
	struct rig r;

	(void)state;
	for (int how = BY_WRITE; how <= BY_US; how++) {
		start(&r, false, "");
		change(&r, (enum change)how, 8 * CALL + 4096, 64 * KIB);
		/* Out of the cache again: nothing but the times shows that anything happened. */
		sim_chill(r.path);
		assert_changed(&r);
		read_calls(&r, 9, 16);
		rig_close(&r);
	}
}

/* A change that is still only in the page cache, in the last of the pieces on their way. */
static void changed_later_piece(void **state)
{
	struct rig r;
	char mem[100];
	int fd;

	(void)state;
	start(&r, false, "");
	fd = open(r.path, O_RDWR | O_CLOEXEC);
	sim_pattern(mem, sizeof(mem), 10 * CALL + 5, 2);
	assert_int_equal(pwrite(fd, mem, sizeof(mem), 10 * CALL + 5), sizeof(mem));
	close(fd);
	read_calls(&r, 8, 10);
	assert_int_equal(peerlane_read(r.file, r.gpu, CALL, 10 * CALL), CALL);
	sim_assert_gpu(r.ctx, r.gpu + 5, sizeof(mem), 10 * CALL + 5, 2);
	sim_assert_gpu(r.ctx, r.gpu, 5, 10 * CALL, 1);
	rig_close(&r);
}

static void out_of_step(void **state)
{
	(void)state;
	check_out_of_step(false, "");
}

static void truncated(void **state)
{
	(void)state;
	check_truncated(false, "");
}

static void restless(void **state)
{
	(void)state;
	check_restless(false, "");
}

static void closed_on_the_way(void **state)
{
	struct rig r;

	(void)state;
	for (int i = 0; i < 3; i++) {
		start(&r, false, "");
		if (i == 1)
			peerlane_close(r.ctx);
		else
			rig_close(&r);
	}
}

static void forked(void **state)
{
	struct rig r;

	(void)state;
	start(&r, false, "");
	fork_and_close(&r);
	read_calls(&r, 8, 12);
	rig_close(&r);
}

/* Many files at once: some are read ahead, all are right, and lanes are left for others. */
static void many_files(void **state)
{
	struct peerlane_file *files[40];
	struct rig r;

	(void)state;
	start(&r, false, "");
	for (int i = 0; i < 40; i++)
		files[i] = sim_file(r.ctx, r.path, O_RDONLY);
	for (unsigned int c = 0; c < 5; c++) {
		for (int i = 0; i < 40; i++) {
			off_t at = (off_t)(c * CALL);

			assert_int_equal(peerlane_read(files[i], r.gpu, CALL, at), CALL);
			sim_assert_gpu(r.ctx, r.gpu, CALL, at, 1);
		}
		sim_chill(r.path);
	}
	for (int i = 0; i < 40; i++)
		assert_int_equal(peerlane_file_close(files[i]), 0);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(sequence),    sim_test(long_calls), sim_test(switched_off),
		sim_test(out_of_step), sim_test(changed),    sim_test(changed_later_piece),
		sim_test(truncated),   sim_test(restless),   sim_test(closed_on_the_way),
		sim_test(forked),      sim_test(many_files),
	};

	sim_alarm(300);
	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown);
}
