// SPDX-License-Identifier: MIT
/* Checksums of tensors that are summed in several pieces, and of data that came from another file; and a header that is
 * too long to be read again. */
#include "model_fixture.h"
#include "sim/sim_fixture.h"

#define BYTES (9 * MIB + 5)
#define HEADER_MAX 100000000ul

static struct peerlane *ctx;

static int save(const char *path, const char *mem, uint64_t bytes,
		const struct peerlane_model_save_options *opt)
{
	struct peerlane_model_source t = {
		.name = "t", .dtype = PEERLANE_U8, .nr_dims = 1, .shape = &bytes, .addr = mem
	};

	return peerlane_model_save(ctx, path, &t, 1, opt, NULL);
}

/* Loads the tensor of the file, with its checksum looked at. */
static int load(const char *path, char *mem)
{
	struct peerlane_model_load_options opt = { .size = sizeof(opt),
						   .flags = PEERLANE_MODEL_CHECKSUM };
	struct peerlane_model *m = mf_open(ctx, path);
	struct peerlane_model_part p = mf_whole(m, "t");
	int err;

	p.addr = mem;
	err = peerlane_model_load(m, &p, 1, &opt, NULL);
	peerlane_model_close(m);
	return err;
}

/* A wrong byte is found wherever it is. */
static void all_pieces(void **state)
{
	static const off_t places[] = { 1, 4 * MIB, 5 * MIB, 8 * MIB, BYTES };
	struct peerlane_model_save_options opt = { .size = sizeof(opt),
						   .flags = PEERLANE_MODEL_CHECKSUM };
	const char *path = sim_path("long");
	char *mem = malloc(BYTES);
	int64_t size;
	int fd;

	(void)state;
	ctx = sim_open(0);
	sim_pattern(mem, BYTES, 0, 1);
	assert_int_equal(save(path, mem, BYTES, &opt), 0);
	assert_int_equal(load(path, mem), 0);
	size = sim_file_size(path);
	fd = open(path, O_RDWR);
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		char byte, wrong;

		/* Counted from the end, where the tensor ends too. */
		assert_int_equal(pread(fd, &byte, 1, size - places[i]), 1);
		wrong = (char)(byte ^ 0x10);
		assert_int_equal(pwrite(fd, &wrong, 1, size - places[i]), 1);
		assert_int_equal(load(path, mem), -EBADMSG);
		assert_int_equal(pwrite(fd, &byte, 1, size - places[i]), 1);
		assert_int_equal(load(path, mem), 0);
	}
	close(fd);
	free(mem);
	sim_close(ctx, NULL, NULL);
}

/* The metadata of a file is given to another one whose data is new: its checksums are not. */
static void from_elsewhere(void **state)
{
	const char *const old[] = { "format",		"pt",	  "peerlane.xxh3:t",
				    "0123456789abcdef", "author", "somebody" };
	struct peerlane_model_save_options opt = { .size = sizeof(opt),
						   .nr_metadata = 3,
						   .metadata = old };
	const char *path = sim_path("copied");
	char mem[100];

	(void)state;
	ctx = sim_open(0);
	sim_pattern(mem, sizeof(mem), 0, 1);
	for (unsigned int flags = 0; flags <= PEERLANE_MODEL_CHECKSUM;
	     flags += PEERLANE_MODEL_CHECKSUM) {
		struct peerlane_model *m;
		const char *key, *value;

		opt.flags = flags;
		assert_int_equal(save(path, mem, sizeof(mem), &opt), 0);
		assert_int_equal(load(path, mem), 0);
		m = mf_open(ctx, path);
		assert_int_equal(peerlane_model_metadata(m, 0, 0, &key, &value), 0);
		assert_string_equal(key, "format");
		assert_int_equal(peerlane_model_metadata(m, 0, 1, &key, &value), 0);
		assert_string_equal(key, "author");
		peerlane_model_close(m);
	}
	sim_close(ctx, NULL, NULL);
}

/* What a reader would refuse for its length is not written. */
static void long_header(void **state)
{
	const char *pair[] = { "k", NULL };
	struct peerlane_model_save_options opt = { .size = sizeof(opt),
						   .nr_metadata = 1,
						   .metadata = pair };
	const char *path = sim_path("too long");
	char *text;

	(void)state;
	if (sim_slow())
		skip();
	text = malloc(HEADER_MAX + 1);
	assert_non_null(text);
	memset(text, 'x', HEADER_MAX);
	text[HEADER_MAX] = '\0';
	pair[1] = text;
	ctx = sim_open(0);
	assert_int_equal(save(path, "data", 4, &opt), -E2BIG);
	sim_assert_error(-E2BIG, "a header of");
	assert_int_equal(access(path, F_OK), -1);
	free(text);
	sim_close(ctx, NULL, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(all_pieces),
		sim_test(from_elsewhere),
		sim_test(long_header),
	};

	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown);
}
