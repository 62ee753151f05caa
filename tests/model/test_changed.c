// SPDX-License-Identifier: MIT
/* Files that change between opening and the end of a load, and files of more than 4 GiB. */
#include "model_fixture.h"

#include <sys/stat.h>

#define BYTES (300 * KIB)

static struct peerlane *ctx;
static const char *path;

static struct peerlane_model *make(struct peerlane_model_part *p,
				   struct peerlane_model_memory **mem)
{
	const uint64_t bytes = BYTES;
	struct mf_header h;
	struct peerlane_model *m;

	mf_begin(&h);
	mf_tensor(&h, "t", "U8", &bytes, 1, bytes);
	path = mf_end(&h, "changing", 0, 1);
	m = mf_open(ctx, path);
	*p = mf_whole(m, "t");
	assert_int_equal(peerlane_model_memory_alloc(m, p, 1, 0, 0, mem), 0);
	return m;
}

/* The same size, another time of change: as a write does, whatever the clock's steps. */
static int write_into(void)
{
	const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = 1234567 } };

	return utimensat(AT_FDCWD, path, times, 0);
}

static int change_size(void)
{
	return truncate(path, sim_file_size(path) - 1);
}

static int lose_half(void)
{
	return truncate(path, (off_t)(BYTES / 2));
}

static int add_bytes(void)
{
	return truncate(path, sim_file_size(path) + 100);
}

/* As a program does that sets the time back, or a clock that does not move. */
static int add_in_secret(void)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT } };
	struct stat st;
	int err = stat(path, &st);

	times[1] = st.st_mtim;
	return err ? err : add_bytes() ? -1 : utimensat(AT_FDCWD, path, times, 0);
}

static int (*const changes[])(void) = { write_into, change_size, lose_half, add_bytes,
					add_in_secret };

static void before_load(void **state)
{
	struct peerlane_model_part p;
	struct peerlane_model_memory *mem;
	struct peerlane_model *m;

	(void)state;
	ctx = sim_open(0);
	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		m = make(&p, &mem);
		sim_gpu_set(ctx, p.addr, 0x55, BYTES);
		assert_int_equal(changes[i](), 0);
		assert_int_equal(peerlane_model_load(m, &p, 1, NULL, NULL), -ESTALE);
		sim_assert_error(-ESTALE, "changing");
		/* Nothing was read. */
		sim_assert_gpu_is(ctx, p.addr, 0x55, BYTES);
		peerlane_model_memory_free(mem);
		peerlane_model_close(m);
	}
	sim_close(ctx, NULL, NULL);
}

/* In the middle of the load: when it says that it begins, and when it says that all is there. */
static int change_at;
static int (*change)(void);

static int meddle(void *arg, uint64_t done, uint64_t total)
{
	(void)arg;
	if ((change_at == 0 && done == 0) || (change_at == 1 && done == total))
		assert_int_equal(change(), 0);
	return 0;
}

static void during_load(void **state)
{
	struct peerlane_model_load_options opt = { .size = sizeof(opt), .progress = meddle };
	struct peerlane_model_part p;
	struct peerlane_model_memory *mem;
	struct peerlane_model *m;

	(void)state;
	ctx = sim_open(0);
	for (change_at = 0; change_at < 2; change_at++) {
		for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
			change = changes[i];
			m = make(&p, &mem);
			assert_int_equal(peerlane_model_load(m, &p, 1, &opt, NULL), -ESTALE);
			sim_assert_error(-ESTALE, "changing");
			peerlane_model_memory_free(mem);
			peerlane_model_close(m);
		}
	}
	sim_close(ctx, NULL, NULL);
}

/* One that takes the place of the file is another file: the open one is loaded as it was. */
static void replaced(void **state)
{
	struct peerlane_model_part p;
	struct peerlane_model_memory *mem;
	struct peerlane_model *m;
	const char *other;

	(void)state;
	ctx = sim_open(0);
	m = make(&p, &mem);
	other = mf_file("other", "{}", 0, 0);
	assert_int_equal(rename(other, path), 0);
	assert_int_equal(peerlane_model_load(m, &p, 1, NULL, NULL), 0);
	mf_assert_part(ctx, m, &p, 1);
	peerlane_model_memory_free(mem);
	peerlane_model_close(m);
	sim_close(ctx, NULL, NULL);
}

/* Positions and sizes above 32 bits, in a file of holes. */
static void large(void **state)
{
	const uint64_t gib = 1ull << 30, tail = 5000, middle = 257 * MIB;
	struct peerlane_model_stats stats = { .size = sizeof(stats) };
	struct peerlane_model_part p[2];
	struct peerlane_model_memory *mem;
	struct peerlane_model *m;
	char header[512], want[5000], *got = malloc(5000), *host;
	uint64_t data;
	int fd;

	(void)state;
	ctx = sim_open(0);
	/* A header without its data; then the file grows. */
	snprintf(header, sizeof(header),
		 "{\"big\":{\"dtype\":\"U8\",\"shape\":[5,1024,1024,1024],"
		 "\"data_offsets\":[0,%llu]},\"middle\":{\"dtype\":\"U8\",\"shape\":[257,1048576],"
		 "\"data_offsets\":[%llu,%llu]},\"tail\":{\"dtype\":\"U8\",\"shape\":[5000],"
		 "\"data_offsets\":[%llu,%llu]}}",
		 5 * (unsigned long long)gib, 5 * (unsigned long long)gib,
		 5 * (unsigned long long)gib + middle, 5 * (unsigned long long)gib + middle,
		 5 * (unsigned long long)gib + middle + tail);
	path = mf_file("large", header, 0, 0);
	data = 8 + strlen(header);
	sim_pattern(want, tail, 0, 3);
	fd = open(path, O_WRONLY);
	assert_true(fd >= 0);
	/* All of the tail, and a little of the other two: in the last of the five, and near the end. */
	assert_int_equal(pwrite(fd, want, tail, (off_t)(data + 5 * gib + middle)), tail);
	assert_int_equal(pwrite(fd, want, tail, (off_t)(data + 4 * gib + 12345)), tail);
	assert_int_equal(pwrite(fd, want, tail, (off_t)(data + 5 * gib + 256 * MIB)), tail);
	close(fd);
	m = mf_open(ctx, path);
	assert_int_equal(mf_get(m, "big").bytes, 5 * gib);
	assert_int_equal(mf_get(m, "tail").offset, data + 5 * gib + middle);
	p[0] = mf_whole(m, "tail");
	p[1] = mf_whole(m, "big");
	p[1].flags = PEERLANE_MODEL_SLICE;
	p[1].dim = 1;
	p[1].stop = 1; /* 1 MiB of each of the five */
	assert_int_equal(peerlane_model_memory_alloc(m, p, 2, 0, 0, &mem), 0);
	assert_int_equal(p[1].bytes, 5 * MIB);
	assert_int_equal(peerlane_model_load(m, p, 2, NULL, &stats), 0);
	assert_int_equal(stats.file_bytes, 5 * MIB + tail);
	assert_int_equal(peerlane_gpu_copy(ctx, got, p[0].addr, tail), 0);
	assert_memory_equal(got, want, tail);
	assert_int_equal(peerlane_gpu_copy(ctx, got, (char *)p[1].addr + 4 * MIB + 12345, tail), 0);
	assert_memory_equal(got, want, tail);
	sim_assert_gpu_is(ctx, p[1].addr, 0, 4 * MIB + 12345);
	peerlane_model_memory_free(mem);
	/* Too large for a batch. */
	host = malloc(middle);
	assert_non_null(host);
	p[0] = mf_whole(m, "middle");
	p[0].addr = host;
	assert_int_equal(peerlane_model_load(m, p, 1, NULL, &stats), 0);
	assert_int_equal(stats.bytes, middle);
	assert_int_equal(stats.nr_requests, 1);
	assert_memory_equal(host + 256 * MIB, want, tail);
	assert_int_equal(host[256 * MIB - 1], 0);
	free(host);
	peerlane_model_close(m);
	/* A size that would be right in 32 bits. */
	assert_int_equal(truncate(path, (off_t)(data + gib + middle + tail)), 0);
	mf_refused(ctx, path, -EUCLEAN, "tensor \"big\"|5368709120|truncated");
	free(got);
	sim_close(ctx, NULL, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(before_load),
		sim_test(during_load),
		sim_test(replaced),
		sim_test(large),
	};

	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown);
}
