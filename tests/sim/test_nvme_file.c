// SPDX-License-Identifier: MIT
/* Files named nvme:CONTROLLER/NSID, on the software controller. */
#include "sim/sim_fixture.h"

#include <pthread.h>
#include <sys/wait.h>

#define SIZE (4 * MIB)

static struct peerlane *ctx;

static int setup(void **state)
{
	sim_test_setup(state);
	ctx = sim_open(0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	peerlane_close(ctx);
	return 0;
}

#define nvme_test(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* A name such as "nvme:sim:file=.../disk,size=4M,bs=512/1"; good until the next. */
static const char *name_of(const char *disk, unsigned int bs, const char *more)
{
	static char name[700];

	snprintf(name, sizeof(name), "nvme:sim:file=%s,size=4M,bs=%u%s/1", sim_path(disk), bs,
		 more);
	return name;
}

static const char *fresh(const char *disk, unsigned int bs, const char *more)
{
	sim_make_file(disk, SIZE, 3);
	return name_of(disk, bs, more);
}

static enum peerlane_path chosen(struct peerlane_file *file, enum peerlane_op op, void *gpu,
				 size_t bytes, off_t offset, struct peerlane_explanation *ex)
{
	memset(ex, 0, sizeof(*ex));
	ex->size = sizeof(*ex);
	assert_int_equal(peerlane_explain(file, op, gpu, bytes, offset, ex), 0);
	return ex->chosen;
}

/* Offsets and lengths at, before and behind the edges of blocks; what is around stays as it was. */
static void any_offset(void **state)
{
	static const size_t at[] = { 0, 1, 511, 512, 513, 4095, 4096, 4097, MIB - 5, MIB };
	static const size_t lengths[] = { 1, 100, 511, 512, 513, 4096, 5000, MIB + 7 };
	const unsigned int sizes[] = { 512, 4096 };
	char *gpu = sim_alloc(ctx, 2 * MIB);

	(void)state;
	for (int s = 0; s < 2; s++) {
		struct peerlane_file *file = sim_file(ctx, fresh("disk", sizes[s], ""), O_RDWR);
		const char *path = sim_path("disk");

		for (size_t i = 0; i < sizeof(at) / sizeof(at[0]); i++)
			for (size_t j = 0; j < sizeof(lengths) / sizeof(lengths[0]); j++) {
				off_t offset = (off_t)at[i];
				size_t n = lengths[j];

				sim_gpu_set(ctx, gpu, 0x55, n);
				assert_int_equal(peerlane_read(file, gpu, n, offset), n);
				sim_assert_gpu(ctx, gpu, n, offset, 3);
				sim_gpu_pattern(ctx, gpu, n, offset, 4);
				assert_int_equal(peerlane_write(file, gpu, n, offset, 0), n);
				sim_assert_file(path, offset, n, 4);
				if (at[i])
					sim_assert_file(path, 0, at[i], 3);
				sim_assert_file(path, offset + (off_t)n, SIZE - n - at[i], 3);
				sim_gpu_pattern(ctx, gpu, n, offset, 3);
				assert_int_equal(peerlane_write(file, gpu, n, offset, 0), n);
			}
		sim_assert_file(path, 0, SIZE, 3);
		assert_int_equal(peerlane_file_close(file), 0);
	}
	peerlane_gpu_free(ctx, gpu);
}

/* The namespace ends where it ends. */
static void the_end(void **state)
{
	struct peerlane_file *file = sim_file(ctx, fresh("disk", 512, ""), O_RDWR);
	char *gpu = sim_alloc(ctx, MIB), *host = malloc(MIB);

	(void)state;
	for (int pass = 0; pass < 2; pass++) {
		assert_int_equal(peerlane_read(file, gpu, MIB, SIZE - 4096), 4096);
		sim_assert_gpu(ctx, gpu, 4096, SIZE - 4096, 3);
		assert_int_equal(peerlane_read(file, gpu, 10, SIZE - 3), 3);
		assert_int_equal(peerlane_read(file, gpu, 10, SIZE), 0);
		assert_int_equal(peerlane_read(file, gpu, 10, SIZE + 12345), 0);
		assert_int_equal(peerlane_write(file, gpu, 512, SIZE, 0), -ENOSPC);
		sim_gpu_pattern(ctx, gpu, MIB, SIZE - 1024, 3);
		assert_int_equal(peerlane_write(file, gpu, MIB, SIZE - 1024, 0), 1024);
		/* Once more by DMA. */
		if (!pass)
			assert_int_equal(peerlane_buffer_register(ctx, gpu, MIB, 0), 0);
	}
	assert_int_equal(peerlane_read(file, host, 1000, SIZE - 500), 500);
	assert_int_equal(sim_differs(host, 500, SIZE - 500, 3), 500);
	sim_assert_file(sim_path("disk"), 0, SIZE, 3);
	assert_int_equal(sim_file_size(sim_path("disk")), SIZE);
	peerlane_buffer_release(ctx, gpu);
	peerlane_gpu_free(ctx, gpu);
	free(host);
}

/* Registered GPU memory is reached by the controller itself; other memory is copied. */
static void straight(void **state)
{
	struct peerlane_file *file = sim_file(ctx, fresh("disk", 512, ""), O_RDWR);
	char *gpu = sim_alloc(ctx, 2 * MIB);
	struct peerlane_explanation ex;
	uint64_t before;

	(void)state;
	assert_int_equal(chosen(file, PEERLANE_READ, gpu, MIB, 0, &ex), PEERLANE_PATH_COPY);
	assert_non_null(strstr(ex.verdicts[PEERLANE_PATH_P2P].reason, "not registered"));
	assert_string_equal(ex.fs, "nvme");
	assert_string_equal(ex.device, "SIM0001/1");
	assert_int_equal(ex.dio_align, 512);
	assert_int_equal(ex.file_bytes, SIZE);
	assert_int_equal(peerlane_read(file, gpu, MIB, 0), MIB);
	assert_int_equal(sim_stats(ctx).read.path_bytes[PEERLANE_PATH_P2P], 0);

	assert_int_equal(peerlane_buffer_register(ctx, gpu, 2 * MIB, 0), 0);
	assert_int_equal(chosen(file, PEERLANE_READ, gpu, MIB, 512, &ex), PEERLANE_PATH_P2P);
	sim_gpu_set(ctx, gpu, 0, 2 * MIB);
	assert_int_equal(peerlane_read(file, gpu + 1024, MIB, 512), MIB);
	sim_assert_gpu(ctx, gpu + 1024, MIB, 512, 3);
	sim_assert_gpu_is(ctx, gpu, 0, 1024);
	sim_assert_gpu_is(ctx, gpu + 1024 + MIB, 0, MIB - 1024);
	assert_int_equal(sim_stats(ctx).read.path_bytes[PEERLANE_PATH_P2P], MIB);
	sim_gpu_pattern(ctx, gpu, MIB, 2 * MIB, 8);
	assert_int_equal(peerlane_write(file, gpu, MIB, 2 * MIB, PEERLANE_DURABLE), MIB);
	sim_assert_file(sim_path("disk"), 2 * MIB, MIB, 8);
	sim_assert_file(sim_path("disk"), 0, 2 * MIB, 3);
	sim_assert_file(sim_path("disk"), 3 * MIB, MIB, 3);
	assert_int_equal(sim_stats(ctx).write.path_bytes[PEERLANE_PATH_P2P], MIB);

	/* Parts of blocks and odd addresses are copied, and right. */
	before = sim_stats(ctx).read.path_bytes[PEERLANE_PATH_P2P];
	assert_int_equal(chosen(file, PEERLANE_READ, gpu, 1000, 0, &ex), PEERLANE_PATH_COPY);
	assert_non_null(strstr(ex.verdicts[PEERLANE_PATH_P2P].reason, "whole blocks"));
	assert_int_equal(peerlane_read(file, gpu, 1000, 0), 1000);
	assert_int_equal(peerlane_read(file, gpu + 1, 4096, 0), 4096);
	sim_assert_gpu(ctx, gpu + 1, 4096, 0, 3);
	assert_int_equal(sim_stats(ctx).read.path_bytes[PEERLANE_PATH_P2P], before);
	assert_int_equal(peerlane_buffer_release(ctx, gpu), 0);

	/* Freed though it is registered: an error, not somebody else's memory. */
	assert_int_equal(peerlane_buffer_register(ctx, gpu, 2 * MIB, 0), 0);
	assert_int_equal(peerlane_read(file, gpu, MIB, 0), MIB);
	assert_int_equal(peerlane_gpu_free(ctx, gpu), 0);
	assert_int_equal(peerlane_read(file, gpu, MIB, 0), -EFAULT);
	assert_int_equal(peerlane_buffer_release(ctx, gpu), 0);
}

static void switched_off(void **state)
{
	struct peerlane *other = sim_open(PEERLANE_NO_P2P);
	struct peerlane_file *file = sim_file(other, fresh("disk", 512, ""), O_RDONLY);
	char *gpu = sim_alloc(other, MIB);
	struct peerlane_explanation ex;

	(void)state;
	assert_int_equal(peerlane_buffer_register(other, gpu, MIB, 0), 0);
	assert_int_equal(chosen(file, PEERLANE_READ, gpu, MIB, 0, &ex), PEERLANE_PATH_COPY);
	assert_non_null(strstr(ex.verdicts[PEERLANE_PATH_P2P].reason, "switched off"));
	assert_int_equal(peerlane_read(file, gpu, MIB, 0), MIB);
	sim_assert_gpu(other, gpu, MIB, 0, 3);
	assert_int_equal(sim_stats(other).read.path_bytes[PEERLANE_PATH_P2P], 0);
	sim_close(other, file, gpu);
}

/* Writers of parts of one block, and of whole blocks, do not undo each other. */
#define WRITERS 4
#define ROUNDS 60
struct writer {
	pthread_t thread;
	struct peerlane_file *file;
	unsigned int number;
	int failed;
};

static void *write_parts(void *arg)
{
	struct writer *w = arg;
	char piece[1024];

	for (int i = 0; i < ROUNDS && !w->failed; i++)
		for (int block = 0; block < 2; block++) {
			memset(piece, (int)(w->number * ROUNDS + (unsigned int)i), sizeof(piece));
			w->failed = peerlane_write(w->file, piece, sizeof(piece),
						   (off_t)(block * 4096 + (int)w->number * 1024),
						   0) != sizeof(piece);
		}
	return NULL;
}

static void parts_of_one_block(void **state)
{
	struct writer writers[WRITERS];
	char host[8192];

	(void)state;
	for (unsigned int i = 0; i < WRITERS; i++) {
		/* Files of their own, of one controller. */
		writers[i] = (struct writer){ .number = i };
		writers[i].file = sim_file(
			ctx, i ? name_of("disk", 4096, "") : fresh("disk", 4096, ""), O_RDWR);
	}
	for (unsigned int i = 0; i < WRITERS; i++)
		assert_int_equal(pthread_create(&writers[i].thread, NULL, write_parts, &writers[i]),
				 0);
	for (unsigned int i = 0; i < WRITERS; i++) {
		pthread_join(writers[i].thread, NULL);
		assert_int_equal(writers[i].failed, 0);
	}
	assert_int_equal(peerlane_read(writers[0].file, host, sizeof(host), 0), sizeof(host));
	for (unsigned int i = 0; i < sizeof(host); i++)
		assert_int_equal((unsigned char)host[i],
				 (i % 4096 / 1024 * ROUNDS + ROUNDS - 1) & 0xff);
}

/* A controller is opened once, and found by its serial number. */
static void by_serial(void **state)
{
	struct peerlane_file *a, *b, *other;
	char host[512], text[1024];

	(void)state;
	assert_int_equal(peerlane_file_open(ctx, "nvme:TWO/1", O_RDWR, 0, &a), -ENODEV);
	sim_assert_error(-ENODEV, "TWO");
	snprintf(text, sizeof(text), "sim:serial=ONE,size=1M|sim:serial=TWO,size=2M,ns=2|sim:what");
	setenv("PEERLANE_NVME", text, 1);
	a = sim_file(ctx, "nvme:TWO/1", O_RDWR);
	b = sim_file(ctx, "nvme:TWO/1", O_RDWR);
	other = sim_file(ctx, "nvme:TWO/2", O_RDWR);
	memset(host, 7, sizeof(host));
	assert_int_equal(peerlane_write(a, host, 512, 512, 0), 512);
	memset(host, 0, sizeof(host));
	/* It is memory: only the same controller has it. */
	assert_int_equal(peerlane_read(b, host, 512, 512), 512);
	assert_int_equal(host[511], 7);
	assert_int_equal(peerlane_read(other, host, 512, 512), 512);
	assert_int_equal(host[511], 0);
	assert_int_equal(peerlane_read(other, host, 512, 2 * MIB), 0);
	peerlane_file_close(a);
	peerlane_file_close(b);
	peerlane_file_close(other);
	a = sim_file(ctx, "nvme:ONE/1", O_RDONLY);
	assert_int_equal(peerlane_read(a, host, 512, MIB - 512), 512);
	assert_int_equal(peerlane_file_open(ctx, "nvme:THREE/1", O_RDWR, 0, &b), -EINVAL);
	setenv("PEERLANE_NVME", "sim:serial=ONE,size=1M", 1);
	assert_int_equal(peerlane_file_open(ctx, "nvme:THREE/1", O_RDWR, 0, &b), -ENODEV);
}

static void bad_names(void **state)
{
	static const char *const names[] = {
		"nvme:",	   "nvme:/1",	   "nvme:SIM0001",
		"nvme:sim:",	   "nvme:sim:/",   "nvme:sim:/x",
		"nvme:sim:/0",	   "nvme:sim:/1x", "nvme:sim:/4294967295",
		"nvme:sim:bs=3/1", "nvme:what:x/1"
	};
	struct peerlane_file *file;

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		assert_int_equal(peerlane_file_open(ctx, names[i], O_RDWR, 0, &file), -EINVAL);
	assert_int_equal(peerlane_file_open(ctx, "nvme:sim:bs=3/1", O_RDWR, 0, &file), -EINVAL);
	sim_assert_error(-EINVAL, "bs=3");
	assert_int_equal(peerlane_file_open(ctx, "nvme:sim:/2", O_RDWR, 0, &file), -ENXIO);
	sim_assert_error(-ENXIO, "no such namespace");
	assert_int_equal(
		peerlane_file_open(ctx, "nvme:sim:/1", O_RDWR | O_CREAT | O_EXCL, 0, &file),
		-EEXIST);
	assert_int_equal(peerlane_file_open(ctx, "nvme:sim:/1", O_RDWR | O_APPEND, 0, &file),
			 -EINVAL);
	/* A file of that name is had by another one. */
	assert_int_equal(peerlane_file_open(ctx, "./nvme:sim:", O_RDWR, 0, &file), -ENOENT);
}

static void access_mode(void **state)
{
	struct peerlane_file *r = sim_file(ctx, fresh("disk", 4096, ""), O_RDONLY);
	struct peerlane_file *w = sim_file(ctx, name_of("disk", 4096, ""), O_WRONLY | O_DSYNC);
	char host[100];

	(void)state;
	sim_pattern(host, sizeof(host), 50, 6);
	assert_int_equal(peerlane_write(r, host, sizeof(host), 50, 0), -EBADF);
	assert_int_equal(peerlane_read(w, host, sizeof(host), 50), -EBADF);
	/* Part of a block is read for that all the same. */
	assert_int_equal(peerlane_write(w, host, sizeof(host), 50, 0), sizeof(host));
	assert_int_equal(peerlane_file_sync(w), 0);
	sim_assert_file(sim_path("disk"), 0, 50, 3);
	sim_assert_file(sim_path("disk"), 50, 100, 6);
	sim_assert_file(sim_path("disk"), 150, 5000, 3);
}

/* What fails once is tried again; what fails for good says how far the good bytes reach. */
static void failing_drive(void **state)
{
	struct peerlane_file *file;
	char *gpu = sim_alloc(ctx, 2 * MIB);
	ssize_t n;

	(void)state;
	file = sim_file(ctx, fresh("disk", 512, ",rule=status opcode=read nth=2 code=0x006"),
			O_RDWR);
	for (int i = 0; i < 4; i++)
		assert_int_equal(peerlane_read(file, gpu, 4096, i * 4096), 4096);
	peerlane_file_close(file);
	/* Block 2100 is at byte 1075200. */
	file = sim_file(ctx,
			fresh("disk", 512, ",rule=status opcode=read lba=2100 code=0x281 dnr=1"),
			O_RDWR);
	for (int pass = 0; pass < 2; pass++) {
		assert_int_equal(peerlane_read(file, gpu, 512, 2099 * 512), 512);
		assert_int_equal(peerlane_read(file, gpu, 512, 2100 * 512), -ENODATA);
		sim_assert_error(-ENODATA, "SIM0001/1: read of 1 blocks from 2100 on");
		sim_assert_error(-ENODATA, "Unrecovered Read Error (media and data integrity, "
					   "status 0x281), do not retry");
		n = peerlane_read(file, gpu, 2 * MIB, 0);
		assert_in_range(n, 1, 2100 * 512);
		sim_assert_gpu(ctx, gpu, (size_t)n, 0, 3);
		/* Part of a block that cannot be read cannot be written; the whole can. */
		assert_int_equal(peerlane_write(file, gpu, 10, 2100 * 512, 0), -ENODATA);
		if (!pass)
			assert_int_equal(peerlane_buffer_register(ctx, gpu, 2 * MIB, 0), 0);
	}
	peerlane_file_close(file);
	file = sim_file(ctx, fresh("disk", 512, ",rule=status opcode=flush code=0x006 dnr=1"),
			O_RDWR);
	assert_int_equal(peerlane_file_sync(file), -EIO);
	assert_int_equal(peerlane_write(file, gpu, 512, 0, 0), 512);
	assert_int_equal(peerlane_write(file, gpu, 512, 0, PEERLANE_DURABLE), -EIO);
	peerlane_file_close(file);
	file = sim_file(ctx, fresh("disk", 512, ",rule=remove opcode=write"), O_RDWR);
	assert_int_equal(peerlane_write(file, gpu, 512, 0, 0), -ENODEV);
	sim_assert_error(-ENODEV, "gone");
	assert_int_equal(peerlane_read(file, gpu, 512, 0), -ENODEV);
	peerlane_file_close(file);
	peerlane_buffer_release(ctx, gpu);
	peerlane_gpu_free(ctx, gpu);
}

/* Batches and streams go there as well. */
static void batch_and_stream(void **state)
{
	struct peerlane_file *file = sim_file(ctx, fresh("disk", 4096, ""), O_RDWR);
	char *gpu = sim_alloc(ctx, MIB);
	struct peerlane_event events[16];
	struct peerlane_io io[16];
	struct peerlane_batch *batch;
	size_t bytes = 70000;
	off_t offset = 12345;
	ssize_t result = -1;
	void *stream;

	(void)state;
	for (int i = 0; i < 16; i++)
		io[i] = (struct peerlane_io){ .file = file,
					      .addr = gpu + i * 10000,
					      .bytes = 10000,
					      .offset = i * 10000,
					      .op = PEERLANE_READ };
	assert_int_equal(peerlane_batch_create(ctx, 16, &batch), 0);
	assert_int_equal(peerlane_batch_submit(batch, io, 16), 0);
	assert_int_equal(peerlane_batch_wait(batch, 16, events, 16, NULL), 16);
	for (int i = 0; i < 16; i++)
		assert_int_equal(events[i].result, 10000);
	peerlane_batch_destroy(batch);
	sim_assert_gpu(ctx, gpu, 160000, 0, 3);
	assert_int_equal(peerlane_gpu_stream_create(ctx, 0, &stream), 0);
	assert_int_equal(peerlane_read_async(file, gpu, &bytes, &offset, &result, stream, 0), 0);
	assert_int_equal(peerlane_gpu_stream_sync(ctx, stream), 0);
	assert_int_equal(result, bytes);
	sim_assert_gpu(ctx, gpu, bytes, offset, 3);
	peerlane_gpu_stream_destroy(ctx, stream);
	peerlane_gpu_free(ctx, gpu);
}

/* A controller that contexts share goes with the last file; buffers and files end in any order. */
static void contexts_share(void **state)
{
	struct peerlane *other = sim_open(0);
	struct peerlane_file *a = sim_file(ctx, "nvme:sim:serial=SHARE,size=2M/1", O_RDWR);
	struct peerlane_file *b = sim_file(other, "nvme:SHARE/1", O_RDWR);
	char *gpu = sim_alloc(ctx, MIB), *gpu2 = sim_alloc(other, MIB);
	struct peerlane_file *c;

	(void)state;
	assert_int_equal(peerlane_buffer_register(ctx, gpu, MIB, 0), 0);
	assert_int_equal(peerlane_buffer_register(other, gpu2, MIB, 0), 0);
	sim_gpu_pattern(ctx, gpu, MIB, 0, 5);
	assert_int_equal(peerlane_write(a, gpu, MIB, 0, 0), MIB);
	assert_int_equal(peerlane_read(b, gpu2, MIB, 0), MIB);
	sim_assert_gpu(other, gpu2, MIB, 0, 5);
	peerlane_file_close(a);
	/* The buffer is mapped still, and goes before the controller. */
	assert_int_equal(peerlane_buffer_release(ctx, gpu), 0);
	peerlane_gpu_free(ctx, gpu);
	/* The other way round: the context takes file and buffer with it. */
	peerlane_close(other);
	assert_int_equal(peerlane_file_open(ctx, "nvme:SHARE/1", O_RDWR, 0, &c), -ENODEV);
}

/* A child of fork() cannot use it, and leaves it alone. */
static void forked(void **state)
{
	/* Were it shut down, it would be gone. */
	struct peerlane_file *file =
		sim_file(ctx, fresh("disk", 512, ",rule=remove on=shutdown"), O_RDWR);
	char *gpu = sim_alloc(ctx, MIB);
	int status;
	pid_t child;

	(void)state;
	assert_int_equal(peerlane_buffer_register(ctx, gpu, MIB, 0), 0);
	assert_int_equal(peerlane_read(file, gpu, MIB, 0), MIB);
	child = fork();
	if (!child) {
		int wrong = peerlane_read(file, gpu, 512, 0) >= 0;

		peerlane_close(ctx);
		_exit(wrong);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(peerlane_read(file, gpu, MIB, MIB), MIB);
	sim_assert_gpu(ctx, gpu, MIB, MIB, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		nvme_test(any_offset),	       nvme_test(the_end),
		nvme_test(straight),	       nvme_test(switched_off),
		nvme_test(parts_of_one_block), nvme_test(by_serial),
		nvme_test(bad_names),	       nvme_test(access_mode),
		nvme_test(failing_drive),      nvme_test(batch_and_stream),
		nvme_test(contexts_share),     nvme_test(forked),
	};

	sim_alarm(170);
	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown);
}
