// SPDX-License-Identifier: MIT
/*
 * A device that fails when the page cache is written back: ext4 on a loop device whose backing file
 * is on a tmpfs with no room left. Whatever a write's parts took to get there, a call that vouches for
 * them (a durable write, a sync) must tell the error, whether the file was opened with O_DIRECT or not.
 * Needs root for the mounts.
 */
#include "fault.h"

#include <peerlane/model.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define FILE_BYTES (64 * KIB)

static const char *mount_dir;
static unsigned int nr_files;

/* Files made while there was room: two blocks of data, then a hole. */
static void make_files(unsigned int nr)
{
	static const char blocks[8192];
	char path[300];

	for (unsigned int i = 0; i < nr; i++) {
		int fd;

		snprintf(path, sizeof(path), "%s/%u", mount_dir, i);
		fd = open(path, O_CREAT | O_RDWR, 0600);
		CHECK(fd >= 0 && !ftruncate(fd, FILE_BYTES));
		CHECK_EQ(pwrite(fd, blocks, sizeof(blocks), 0), sizeof(blocks));
		CHECK(!fsync(fd));
		close(fd);
	}
	sync();
}

static void use_up(const char *dir)
{
	static char zeros[MIB];
	char path[300];
	int fd;

	memset(zeros, 1, sizeof(zeros));
	snprintf(path, sizeof(path), "%s/rest", dir);
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	CHECK(fd >= 0);
	while (write(fd, zeros, sizeof(zeros)) > 0)
		;
	while (write(fd, zeros, 1) > 0)
		;
	close(fd);
}

/* One request; its result, or the first error of the calls that ask for what is durable. */
struct manner {
	const char *name;
	ssize_t (*write)(struct peerlane *ctx, struct peerlane_file *f, char *gpu, size_t bytes,
			 off_t offset, unsigned int flags);
};

static ssize_t write_single(struct peerlane *ctx, struct peerlane_file *f, char *gpu, size_t bytes,
			    off_t offset, unsigned int flags)
{
	(void)ctx;
	return peerlane_write(f, gpu, bytes, offset, flags);
}

static ssize_t write_vector(struct peerlane *ctx, struct peerlane_file *f, char *gpu, size_t bytes,
			    off_t offset, unsigned int flags)
{
	struct iovec iov[2] = { { gpu, bytes / 3 }, { gpu + bytes / 3, bytes - bytes / 3 } };

	(void)ctx;
	return peerlane_writev(f, iov, 2, offset, flags);
}

static ssize_t write_batch(struct peerlane *ctx, struct peerlane_file *f, char *gpu, size_t bytes,
			   off_t offset, unsigned int flags)
{
	struct peerlane_io io = { .file = f,
				  .addr = gpu,
				  .bytes = bytes,
				  .offset = offset,
				  .op = PEERLANE_WRITE,
				  .flags = flags };
	struct peerlane_event e;
	struct peerlane_batch *b;

	CHECK_EQ(peerlane_batch_create(ctx, 1, &b), 0);
	CHECK_EQ(peerlane_batch_submit(b, &io, 1), 0);
	CHECK_EQ(peerlane_batch_wait(b, 1, &e, 1, NULL), 1);
	peerlane_batch_destroy(b);
	return e.result;
}

static ssize_t write_stream(struct peerlane *ctx, struct peerlane_file *f, char *gpu, size_t bytes,
			    off_t offset, unsigned int flags)
{
	ssize_t result = -12345;
	void *stream;

	CHECK_EQ(peerlane_gpu_stream_create(ctx, 0, &stream), 0);
	CHECK_EQ(peerlane_write_async(f, gpu, &bytes, &offset, &result, stream, flags), 0);
	CHECK_EQ(peerlane_gpu_stream_sync(ctx, stream), 0);
	peerlane_gpu_stream_destroy(ctx, stream);
	return result;
}

static const struct manner manners[] = {
	{ "single", write_single },
	{ "vector", write_vector },
	{ "batch", write_batch },
	{ "stream", write_stream },
};

/* A write that the device does not take: durable, or made durable after. */
static void play(const struct manner *m, int open_flags, unsigned int flags, size_t bytes)
{
	struct peerlane *ctx = fault_open(0, 0);
	struct peerlane_file *f;
	char path[300], *gpu = fault_gpu(ctx, 16 * KIB);
	int other, err = 0;
	ssize_t n;

	CASE("%s, %s, %s, %zu bytes", m->name, open_flags & O_DIRECT ? "O_DIRECT" : "buffered",
	     flags ? "durable" : "then sync", bytes);
	snprintf(path, sizeof(path), "%s/%u", mount_dir, nr_files++);
	other = open(path, O_RDWR);
	CHECK(other >= 0);
	f = fault_file(ctx, path, O_RDWR | open_flags);
	n = m->write(ctx, f, gpu, bytes, 8192 + 5000, flags);
	if (n >= 0 && !flags)
		err = peerlane_file_sync(f);
	if (n == (ssize_t)bytes && (flags || !err))
		fault_fail(__FILE__, __LINE__, "vouched for data that is not on the device");
	/* Nor was the error taken away from others. */
	CHECK(fdatasync(other) && (errno == ENOSPC || errno == EIO));
	close(other);
	peerlane_file_close(f);
	CHECK_EQ(peerlane_gpu_free(ctx, gpu), 0);
	peerlane_close(ctx);
}

/* The blocks of the write's beginning are on the device, its odd end finds no room: a short write. */
static void play_short(unsigned int flags)
{
	struct peerlane *ctx = fault_open(0, 0);
	struct peerlane_file *f;
	char path[300], *gpu = fault_gpu(ctx, 16 * KIB);
	ssize_t n;

	CASE("short, %s", flags ? "durable" : "then sync");
	snprintf(path, sizeof(path), "%s/%u", mount_dir, nr_files++);
	f = fault_file(ctx, path, O_RDWR | O_DIRECT);
	n = peerlane_write(f, gpu, 4196, 4096, flags);
	if (!flags) {
		CHECK_EQ(n, 4096);
		n = peerlane_file_sync(f);
	}
	if (n != -EIO)
		CHECK_EQ(n, -ENOSPC);
	peerlane_file_close(f);
	CHECK_EQ(peerlane_gpu_free(ctx, gpu), 0);
	peerlane_close(ctx);
}

/* A model is not put in place unless its data is there. */
static void play_model(void)
{
	const uint64_t bytes = 40000;
	struct peerlane_model_source t = {
		.name = "t", .dtype = PEERLANE_U8, .nr_dims = 1, .shape = &bytes
	};
	struct peerlane *ctx = fault_open(0, 0);
	char path[300], *gpu = fault_gpu(ctx, bytes);
	int err;

	CASE("a model");
	snprintf(path, sizeof(path), "%s/model", mount_dir);
	t.addr = gpu;
	err = peerlane_model_save(ctx, path, &t, 1, NULL, NULL);
	if (err != -EIO)
		CHECK_EQ(err, -ENOSPC);
	CHECK(access(path, F_OK) && errno == ENOENT);
	CHECK_EQ(peerlane_gpu_free(ctx, gpu), 0);
	peerlane_close(ctx);
}

int main(void)
{
	static const int open_flags[] = { 0, O_DIRECT, O_APPEND, O_DIRECT | O_APPEND };
	static const unsigned int flags[] = { PEERLANE_DURABLE, 0 };
	static const size_t bytes[] = { 100, 12000 };
	const char *backing;

	fault_begin(60);
	backing = fault_images = fault_mount("tmpfs", 16, "", "");
	mount_dir =
		fault_mount("ext4", 64, "-q -F -b 4096 -O ^has_journal -E lazy_itable_init=0", "");
	make_files(66);
	use_up(backing);
	for (size_t d = 0; d < 2; d++)
		play_short(flags[d]);
	play_model();
	for (size_t m = 0; m < 4; m++)
		for (size_t o = 0; o < 4; o++)
			for (size_t d = 0; d < 2; d++)
				for (size_t b = 0; b < 2; b++)
					play(&manners[m], open_flags[o], flags[d], bytes[b]);
	return 0;
}
