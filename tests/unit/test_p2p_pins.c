// SPDX-License-Identifier: MIT
/*
 * Pins of GPU memory for drives: none is left, none is taken from somebody who uses it, none is used after its memory
 * has gone; and the test of a drive, which must say "not known" where it cannot tell. The module is played.
 */
#include "context.h"
#include "p2p.h"

#include "fake/played_module.h"
#include "fake/serve_fixture.h"

#define BYTES (1 * MIB)
#define MAX_OWN 64u /* of p2p_pin.c */

static char path[] = "test_p2p_pins.XXXXXX";

static void begin(int file_flags)
{
	const struct peerlane_options opt = { .size = sizeof(opt), .backend = "cuda" };

	strict(0);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_int_equal(pwrite(fd, pattern, ROOM, 0), ROOM);
	assert_int_equal(fsync(fd), 0);
	assert_int_equal(peerlane_open(&ctx, &opt), 0);
	assert_int_equal(peerlane_file_open(ctx, path, file_flags | O_DIRECT, 0, &file), 0);
}

static void end(void)
{
	close_context();
	assert_int_equal(played.nr_pinned, played.nr_unpinned);
	memset(&played, 0, sizeof(played));
}

/* A read that could go by p2p; how many bytes did. */
static uint64_t read_p2p(uint64_t addr)
{
	uint64_t before = stats().read.path_bytes[PEERLANE_PATH_P2P];

	assert_int_equal(peerlane_read(file, to(addr), BYTES, 0), BYTES);
	assert_like_file(addr, 0, BYTES);
	return stats().read.path_bytes[PEERLANE_PATH_P2P] - before;
}

/* Memory that cannot be mapped, or is longer than the module pins, is not used, and not left pinned. */
static void test_refused(void **state)
{
	uint64_t addr = gpu_alloc(BYTES);

	(void)state;
	begin(O_RDWR);
	assert_int_equal(read_p2p(addr), BYTES);
	end();
	played.no_map = true;
	begin(O_RDWR);
	assert_int_equal(read_p2p(addr), 0);
	assert_in_range(played.nr_pinned, 1, 10);
	assert_int_equal(played.nr_pinned, played.nr_unpinned);
	end();
	played.max_pin_bytes = 64 * KIB;
	begin(O_RDWR);
	assert_int_equal(read_p2p(addr), 0);
	assert_int_equal(played.nr_pinned, 0);
	end();
	assert_int_equal(cu.cuMemFree_v2(addr), 0);
}

/* The pin of page @i of the memory, with as many users. */
static int pin(uint64_t addr, unsigned int i, struct pl_p2p_pin **out)
{
	const struct pl_mem mem = { .kind = PL_MEM_DEVICE,
				    .base = addr + i * 4096ul,
				    .bytes = 4096 };

	return pl_p2p_pin_get(&ctx->p2p, &mem, NULL, out);
}

/* As many as there may be, all in use: one more is refused, until one is not used any more. */
static void test_room(void **state)
{
	uint64_t addr = gpu_alloc((MAX_OWN + 1) * 4096ul);
	struct pl_p2p_pin *pins[MAX_OWN + 1];
	unsigned int before, undone;

	(void)state;
	begin(O_RDWR);
	/* Opens the device. */
	assert_int_equal(peerlane_read(file, to(addr), 4096, 0), 4096);
	before = played.nr_pinned;
	for (unsigned int i = 0; i < MAX_OWN; i++) {
		assert_int_equal(pin(addr, i, &pins[i]), 0);
		pins[i]->own.users = 1;
	}
	assert_in_range(played.nr_pinned - before, MAX_OWN - 1, MAX_OWN);
	undone = played.nr_unpinned;
	assert_int_equal(pin(addr, MAX_OWN, &pins[MAX_OWN]), -ENOSPC);
	assert_int_equal(played.nr_unpinned, undone);
	for (unsigned int i = 0; i < MAX_OWN; i++)
		pins[i]->own.users = i != 5;
	assert_int_equal(pin(addr, MAX_OWN, &pins[MAX_OWN]), 0);
	assert_int_equal(played.nr_unpinned, undone + 1);
	for (unsigned int i = 0; i < MAX_OWN; i++)
		if (i != 5)
			pins[i]->own.users = 0;
	end();
	assert_int_equal(cu.cuMemFree_v2(addr), 0);
}

/* Memory was freed and is there again at the same address: it gets another pin, whoever still has the old one. */
static void test_revoked(void **state)
{
	uint64_t addr = gpu_alloc(BYTES);
	struct pl_p2p_pin *old, *new;

	(void)state;
	begin(O_RDWR);
	assert_int_equal(read_p2p(addr), BYTES);
	assert_int_equal(pin(addr, 0, &old), 0);
	old->own.users = 2;
	old->dead = true;
	assert_int_equal(pin(addr, 0, &new), 0);
	assert_ptr_not_equal(new, old);
	assert_false(new->dead);
	old->own.users = 0;
	end();
	assert_int_equal(cu.cuMemFree_v2(addr), 0);
}

/* A drive that could not be tested, since the file cannot be read, is not used. */
static void test_not_tested(void **state)
{
	uint64_t addr = gpu_alloc(BYTES);

	(void)state;
	begin(O_WRONLY);
	assert_int_equal(cu.cuMemcpyHtoD_v2(addr, pattern, BYTES), 0);
	assert_int_equal(peerlane_write(file, to(addr), BYTES, 0, 0), BYTES);
	assert_int_equal(stats().write.path_bytes[PEERLANE_PATH_P2P], 0);
	end();
	begin(O_RDWR);
	assert_int_equal(peerlane_write(file, to(addr), BYTES, 0, 0), BYTES);
	assert_int_equal(stats().write.path_bytes[PEERLANE_PATH_P2P], BYTES);
	end();
	assert_int_equal(cu.cuMemFree_v2(addr), 0);
}

/* ------------------------------------------------------------------ the test of a drive */

/* What a drive holds, and what of that arrives in the GPU. */
struct drive {
	unsigned char holds;
	bool changes, wrong;
	unsigned int nr_read;
};

static int drive_to_host(void *arg, void *mem, size_t bytes, off_t offset)
{
	struct drive *d = arg;

	(void)offset;
	memset(mem, d->holds + (d->changes ? (int)d->nr_read : 0), bytes);
	d->nr_read++;
	return 1;
}

static int drive_to_gpu(void *arg, const struct pl_p2p_pin *to_pin, size_t bytes, off_t offset)
{
	const struct drive *d = arg;

	(void)offset;
	memset(to_pin->map + to_pin->skip, d->holds, bytes);
	if (d->wrong)
		to_pin->map[to_pin->skip + bytes - 1] ^= 1;
	return 1;
}

static int try_drive(struct drive d, bool zeros_tell)
{
	const struct pl_p2p_trial trial = { .read_host = drive_to_host,
					    .read_gpu = drive_to_gpu,
					    .arg = &d,
					    .size = 1 << 20,
					    .align = 512,
					    .zeros_tell = zeros_tell };
	int result = pl_p2p_trial_run(ctx, &trial, 0);

	/* Its memory is pinned no longer. */
	assert_in_range(played.nr_pinned - played.nr_unpinned, 0, 1);
	return result;
}

static void test_trial(void **state)
{
	uint64_t addr = gpu_alloc(BYTES);

	(void)state;
	begin(O_RDWR);
	/* Opens the device. */
	assert_int_equal(read_p2p(addr), BYTES);
	assert_int_equal(try_drive((struct drive){ .holds = 7 }, false), 1);
	assert_int_equal(try_drive((struct drive){ .holds = 7, .wrong = true }, false), 0);
	/* Somebody writes the file meanwhile. */
	assert_int_equal(try_drive((struct drive){ .holds = 7, .changes = true }, false), -1);
	/* Zeros may come from a hole, which no drive has seen. */
	assert_int_equal(try_drive((struct drive){ .holds = 0 }, false), -1);
	assert_int_equal(try_drive((struct drive){ .holds = 0 }, true), 1);
	end();
	assert_int_equal(cu.cuMemFree_v2(addr), 0);
}

/* A file that can be opened with O_DIRECT; false where there is none. */
static bool make_file(void)
{
	int made = mkstemp(path), direct = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);

	if (made >= 0)
		close(made);
	if (direct >= 0)
		close(direct);
	return direct >= 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = { TEST(refused), TEST(room), TEST(revoked),
					    TEST(not_tested), TEST(trial) };
	int status = 77;

	/* Of the fixture, for files of another kind. */
	(void)open_context;
	if (make_file())
		status = RUN_TESTS(tests);
	else
		puts("the file system here has no O_DIRECT");
	unlink(path);
	return status;
}
