// SPDX-License-Identifier: MIT
/*
 * What is called durable survives a loss of power: the image below a mounted ext4 is copied right after the call, and
 * the copy is mounted. What only the page cache or an open journal transaction had is not in it. Every way to ask for
 * it: each kind of write with PEERLANE_DURABLE, peerlane_file_sync(), peerlane_model_save(). Needs root for the mounts.
 */
#include "fault.h"

#include <peerlane/model.h>

#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* Longer than a unit, so that several are in flight at a time. */
#define BYTES (2 * MIB)
#define PIECES 8u

static struct peerlane *ctx;
static char *gpu;
static const char *live;     /* where the file system is mounted */
static char copy[300];	     /* where its copy will be */
static unsigned int nr_done; /* names and patterns of files differ */

/* From @offset on the file has @bytes of the pattern @seed, which begins with its byte @at. */
static void check_bytes(const char *path, size_t bytes, off_t offset, uint64_t at, uint64_t seed)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char *mem = malloc(bytes);

	CHECK(mem && fd >= 0);
	CHECK_EQ(pread(fd, mem, bytes, offset), bytes);
	CHECK_EQ(fault_differs(mem, bytes, at, seed), bytes);
	free(mem);
	close(fd);
}

/* Mounts what the device has at this moment. There may be no loop device left for it just then. */
static void lose_power(void)
{
	char command[1200];
	unsigned int tries = 0;

	snprintf(command, sizeof(command),
		 "dev=$(findmnt -n -o SOURCE %s) && "
		 "cp --sparse=always \"$(cat /sys/block/${dev#/dev/}/loop/backing_file)\" %s.img",
		 live, copy);
	CHECK(!system(command)); /* NOLINT(cert-env33-c) */
	snprintf(command, sizeof(command), "mount -o loop %s.img %s 2>%s.why", copy, copy, copy);
	while (system(command)) { /* NOLINT(cert-env33-c) */
		if (++tries == 20)
			fault_skip("no second loop device here");
		usleep(500000);
	}
}

static void power_back(void)
{
	CHECK(!umount2(copy, MNT_DETACH));
}

enum way { PLAIN, VECTOR, BATCH, STREAM, SYNC, NR_WAYS };
static const char *const way_name[] = { "write", "writev", "batch", "stream", "file_sync" };

static ssize_t by_vector(struct peerlane_file *f, size_t bytes, off_t offset)
{
	struct iovec iov[PIECES];

	for (unsigned int i = 0; i < PIECES; i++) {
		iov[i].iov_base = gpu + bytes / PIECES * i;
		iov[i].iov_len = i < PIECES - 1 ? bytes / PIECES : bytes - bytes / PIECES * i;
	}
	return peerlane_writev(f, iov, PIECES, offset, PEERLANE_DURABLE);
}

static ssize_t by_batch(struct peerlane_file *f, size_t bytes, off_t offset)
{
	struct peerlane_io io[PIECES];
	struct peerlane_event events[PIECES];
	struct peerlane_batch *b;
	ssize_t sum = 0;

	for (unsigned int i = 0; i < PIECES; i++) {
		size_t at = bytes / PIECES * i;

		io[i] = (struct peerlane_io){
			.file = f,
			.addr = gpu + at,
			.bytes = i < PIECES - 1 ? bytes / PIECES : bytes - at,
			.offset = offset + (off_t)at,
			.op = PEERLANE_WRITE,
			.flags = PEERLANE_DURABLE,
		};
	}
	CHECK_EQ(peerlane_batch_create(ctx, PIECES, &b), 0);
	CHECK_EQ(peerlane_batch_submit(b, io, PIECES), 0);
	CHECK_EQ(peerlane_batch_wait(b, PIECES, events, PIECES, NULL), PIECES);
	for (unsigned int i = 0; i < PIECES; i++)
		sum += events[i].result;
	peerlane_batch_destroy(b);
	return sum;
}

static ssize_t by_stream(struct peerlane_file *f, size_t bytes, off_t offset)
{
	ssize_t result = -1;
	void *stream;

	CHECK_EQ(peerlane_gpu_stream_create(ctx, 0, &stream), 0);
	CHECK_EQ(peerlane_write_async(f, gpu, &bytes, &offset, &result, stream, PEERLANE_DURABLE),
		 0);
	CHECK_EQ(peerlane_gpu_stream_sync(ctx, stream), 0);
	peerlane_gpu_stream_destroy(ctx, stream);
	return result;
}

static ssize_t durable_write(enum way way, struct peerlane_file *f, size_t bytes, off_t offset)
{
	ssize_t n;

	switch (way) {
	case VECTOR:
		return by_vector(f, bytes, offset);
	case BATCH:
		return by_batch(f, bytes, offset);
	case STREAM:
		return by_stream(f, bytes, offset);
	case SYNC:
		n = peerlane_write(f, gpu, bytes, offset, 0);
		CHECK_EQ(peerlane_file_sync(f), 0);
		return n;
	default:
		return peerlane_write(f, gpu, bytes, offset, PEERLANE_DURABLE);
	}
}

/* @old: over data that is in the page cache; else the file grows. */
static void one(enum way way, int open_flags, size_t bytes, off_t offset, bool old)
{
	char name[32], path[600];
	uint64_t seed = 100 + ++nr_done;
	struct peerlane_file *f;

	CASE("%s, %s%s, %zu bytes at %lld", way_name[way], open_flags & O_DIRECT ? "O_DIRECT" : "",
	     old ? " overwriting" : "", bytes, (long long)offset);
	snprintf(name, sizeof(name), "file%u", nr_done);
	snprintf(path, sizeof(path), "%s/%s", live, name);
	if (old) {
		fault_make_file(path, bytes + (size_t)offset, 1);
		sync();
	}
	f = fault_file(ctx, path, O_CREAT | O_RDWR | open_flags);
	fault_pattern(fault_see(gpu), bytes, (uint64_t)offset, seed);
	CHECK_EQ(durable_write(way, f, bytes, offset), bytes);
	lose_power();
	snprintf(path, sizeof(path), "%s/%s", copy, name);
	check_bytes(path, bytes, offset, (uint64_t)offset, seed);
	power_back();
	CHECK_EQ(peerlane_file_close(f), 0);
	snprintf(path, sizeof(path), "%s/%s", live, name);
	CHECK(!unlink(path));
}

static void save(const char *name, const char *old)
{
	const uint64_t bytes = BYTES;
	struct peerlane_model_source t = {
		.name = "t", .dtype = PEERLANE_U8, .nr_dims = 1, .shape = &bytes, .addr = gpu
	};
	uint64_t seed = 100 + ++nr_done;
	struct stat st;
	char path[600];

	CASE("peerlane_model_save(), %s", old);
	snprintf(path, sizeof(path), "%s/%s", live, name);
	fault_pattern(fault_see(gpu), BYTES, 0, seed);
	CHECK_EQ(peerlane_model_save(ctx, path, &t, 1, NULL, NULL), 0);
	lose_power();
	snprintf(path, sizeof(path), "%s/%s", copy, name);
	CHECK(!stat(path, &st));
	CHECK(st.st_size > (off_t)BYTES);
	/* The only tensor ends where the file does. */
	check_bytes(path, BYTES, st.st_size - (off_t)BYTES, 0, seed);
	power_back();
}

int main(void)
{
	fault_begin(110);
	/* Nothing is committed because time passes. */
	live = fault_mount("ext4", 32, "-q -F -m 0", "commit=600");
	snprintf(copy, sizeof(copy), "%s/copy", fault_dir());
	CHECK(!mkdir(copy, 0700));
	ctx = fault_open(0, 0);
	gpu = fault_gpu(ctx, BYTES);
	for (enum way way = 0; way < NR_WAYS; way++) {
		one(way, 0, BYTES, 0, false);
		one(way, 0, BYTES, 0, true);
		one(way, O_DIRECT, BYTES, 0, false);
		one(way, O_DIRECT, 100, 5000, false);
		one(way, O_DIRECT, BYTES - 4096 - 77, 333, false);
	}
	save("checkpoint", "new");
	save("checkpoint", "over an old one");
	CHECK_EQ(peerlane_gpu_free(ctx, gpu), 0);
	peerlane_close(ctx);
	return 0;
}
