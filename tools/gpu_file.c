/* SPDX-License-Identifier: MIT */
/* peerlane bench gpu file: random reads of an ordinary file, beside threads that call pread. */
#include "commands.h"
#include "gpu_pread.h"
#include "gpu_reads.h"
#include "human.h"
#include "message.h"
#include "resident.h"
#include "stop.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct file_args {
	struct pl_gpu_args common;
	const char *dir, *path; /* path NULL: a file is made in dir */
	uint64_t size, bytes, spoil;
};

#define AT(member) offsetof(struct file_args, member)

static const struct pl_option options[] = {
	{ "dir", PL_OPTION_TEXT, AT(dir), "DIR",
	  "Where the file is made, which is gone afterwards (default $TMPDIR, or /tmp).", 0, 0 },
	{ "size", PL_OPTION_SIZE, AT(size), "SIZE",
	  "Bytes of one read: 512, 1K, 2K or a multiple of 4K (default 4K).", 512, 2 << 20 },
	{ "bytes", PL_OPTION_SIZE, AT(bytes), "SIZE",
	  "Bytes of the file that is made (default 1G for a GPU, else 1M).", 4096, 0x1p40 },
	{ "spoil", PL_OPTION_SIZE, AT(spoil), "N",
	  "Change a byte of block N first, or of compared read N of FILE, to see that it is found.",
	  0, 0x1p40 },
	PL_GPU_COUNT_OPTION(struct file_args),
	PL_GPU_SECONDS_OPTION(struct file_args),
	PL_GPU_OPTIONS(struct file_args),
	{ 0 },
};

#define PIECE ((size_t)64 << 20)

static int write_all(int fd, const struct file_args *a)
{
	const size_t most = a->bytes < PIECE ? (size_t)a->bytes : PIECE;
	char *piece = malloc(most);
	int err = piece ? 0 : -ENOMEM;

	for (uint64_t at = 0; !err && at < a->bytes; at += most) {
		const size_t bytes = a->bytes - at < most ? (size_t)(a->bytes - at) : most;
		ssize_t n;

		pl_gpu_pattern(piece, at, bytes);
		if (a->spoil != UINT64_MAX && a->spoil * 512 >= at && a->spoil * 512 < at + bytes)
			piece[a->spoil * 512 - at + 511] ^= 1;
		n = pwrite(fd, piece, bytes, (off_t)at);
		if (n < 0)
			err = -errno;
		else if ((size_t)n < bytes)
			err = -ENOSPC;
	}
	free(piece);
	return err;
}

/* A file without a name, in the page cache. Its descriptor or a negative errno. */
static int make_file(const struct file_args *a)
{
	char path[4096];
	int fd, err;

	snprintf(path, sizeof(path), "%s/peerlane-bench-XXXXXX", a->dir);
	fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0) {
		err = -errno;
		pl_message_error("%s: %s", a->dir, strerror(-err));
		return err;
	}
	unlink(path);
	err = write_all(fd, a);
	if (err) {
		pl_message_error("%s: %s", a->dir, strerror(-err));
		close(fd);
		return err;
	}
	/* Pages that are being written meanwhile would be in the way. */
	fsync(fd);
	return fd;
}

static uint64_t cached_reads(struct peerlane_device *dev, unsigned int nr_queues)
{
	struct peerlane_device_stats stats = { .size = sizeof(stats) };
	uint64_t sum = 0;

	for (unsigned int i = 0; i < nr_queues; i++)
		if (!peerlane_device_get_stats(dev, i, &stats))
			sum += stats.cached;
	return sum;
}

/* Every block of a file that was made; a sample of one that was given. */
static int verify(struct pl_gpu_reads *r, const struct file_args *a, int fd)
{
	return a->path ? pl_gpu_reads_sample(r, fd, a->spoil) : pl_gpu_reads_verify(r);
}

static int measure_row(struct pl_gpu_bench *b, const struct file_args *a, int fd,
		       struct pl_gpu_row *row)
{
	struct peerlane_device_options opt = pl_gpu_bench_options(b, row, a->size);
	struct peerlane_device *dev;
	struct pl_gpu_reads r;
	int err = peerlane_device_open_files(&dev, &opt, &fd, 1);

	if (err)
		return pl_gpu_bench_complain("file", err);
	pl_gpu_bench_describe(b, dev);
	err = pl_gpu_reads_init(&r, b, row, dev, (uint32_t)a->size);
	/* The end of the file may be part of a block. */
	r.k.nr_ios = a->bytes / a->size;
	if (!err)
		err = verify(&r, a, fd);
	if (!err)
		err = pl_gpu_reads_measure(&r);
	/* For this each block must say which is next. */
	if (!err && b->result.nr_rows == 1 && !a->path)
		err = pl_gpu_reads_latency(&r);
	if (!err)
		err = pl_gpu_pread_measure(b, row, fd, a->size, r.k.nr_ios, opt.nr_threads);
	if (!err && b->result.nr_rows == b->args.threads.nr)
		pl_report_value(&b->report, "cached_reads",
				json_object_new_int64((int64_t)cached_reads(dev, row->queues)),
				"page cache", "%lld reads of the last row came from it at once",
				(long long)cached_reads(dev, row->queues));
	pl_gpu_reads_fini(&r);
	return pl_gpu_bench_shut(dev, err);
}

static int measure(struct pl_gpu_bench *b, const struct file_args *a, int fd)
{
	const int64_t resident = pl_resident_bytes(fd, a->bytes);
	int err = 0;

	if (a->path)
		pl_report_text(&b->report, "file_name", NULL, "%s", a->path);
	pl_report_value(&b->report, "cached_bytes", json_object_new_int64(resident), "file",
			"%s%s, %s of %s in the page cache", a->path ? "" : "made in ",
			a->path ? a->path : a->dir, pl_human_size((uint64_t)resident).text,
			pl_human_size(a->bytes).text);
	for (unsigned int i = 0; !err && i < b->args.threads.nr; i++) {
		struct pl_gpu_row *row =
			pl_gpu_bench_row(b, (unsigned int)b->args.threads.values[i]);

		err = row ? measure_row(b, a, fd, row) : -ENOSPC;
	}
	return err;
}

/* Opens a file that was given; *bytes: what it has, in whole reads. */
static int open_file(const char *path, uint64_t size, uint64_t *bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat st;
	off_t end;

	if (fd < 0 || fstat(fd, &st)) {
		pl_message_error("%s: %s", path, strerror(errno));
	} else if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode)) {
		pl_message_error("%s: is neither a file nor a block device", path);
	} else {
		end = lseek(fd, 0, SEEK_END);
		*bytes = end > 0 ? (uint64_t)end / size * size : 0;
		if (*bytes)
			return fd;
		pl_message_error("%s: has less than --size, %llu bytes", path,
				 (unsigned long long)size);
	}
	if (fd >= 0)
		close(fd);
	return -EINVAL;
}

static bool options_fit(const struct file_args *a)
{
	if (!a->path || (!a->dir && !a->bytes))
		return true;
	pl_message_error("--%s is for a file that is made, and %s is given",
			 a->dir ? "dir" : "bytes", a->path);
	return false;
}

static int run_on(struct pl_gpu_bench *b, struct file_args *a)
{
	int err, fd = a->path ? open_file(a->path, a->size, &a->bytes) : -1;

	if (a->path && fd < 0)
		return fd;
	/* Of a file that is given, the sample is spoiled and not a block. */
	if (pl_gpu_reads_check(b, &a->bytes, a->size, a->path ? UINT64_MAX : a->spoil)) {
		pl_report_fini(&b->report);
		err = -EINVAL;
	} else {
		if (!a->path)
			fd = make_file(a);
		pl_gpu_reads_tell(b, (uint32_t)a->size, a->bytes, a->path);
		err = fd < 0 ? fd : measure(b, a, fd);
	}
	if (fd >= 0)
		close(fd);
	return err;
}

static int run(const struct pl_command *self, int argc, char **argv)
{
	struct file_args args = { .size = 4096, .spoil = UINT64_MAX };
	struct pl_gpu_bench b;
	int status, err, first = pl_option_parse(self, argc, argv, &args, &status);

	if (first < 0)
		return status;
	args.path = first < argc ? argv[first] : NULL;
	if (!options_fit(&args))
		return PL_EXIT_USAGE;
	if (!args.dir)
		args.dir = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
	pl_stop_catch();
	err = pl_gpu_bench_open(&b, &args.common, "file", 400000, 4000);
	if (err)
		return pl_gpu_bench_close(&b, err);
	b.result.limit_name = "pread IOPS";
	b.result.limit =
		"as many threads of the CPU as there are proxies, that only call pread, each "
		"into one buffer; many buffers: into as many as there are slots";
	return pl_gpu_bench_close(&b, run_on(&b, &args));
}

const struct pl_command pl_command_gpu_file = {
	.name = "bench gpu file",
	.summary = "Random reads of an ordinary file.",
	.args = "[options] [FILE]",
	.detail =
		"Kernels read blocks at random places of FILE, or of a file that is made for it "
		"and "
		"is in the page cache; threads of the CPU serve them. Before each row every block "
		"of "
		"a file that was made is read through the row's queues and compared, of FILE some "
		"random reads are compared with pread; the passes that are timed check that each "
		"read succeeds. Beside it "
		"stand as many threads that only call pread on the same file, each into one "
		"buffer; "
		"and the same into as many buffers as the row has slots, which is what the proxies "
		"do.",
	.exits = PL_GPU_EXITS,
	.options = options,
	.max_args = 1,
	.run = run,
};
