/* SPDX-License-Identifier: MIT */
/* peerlane bench gpu file: random reads of an ordinary file, beside threads that call pread. */
#include "commands.h"
#include "gpu_pread.h"
#include "gpu_reads.h"
#include "message.h"
#include "resident.h"
#include "stop.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct file_args {
	struct pl_gpu_args common;
	const char *dir;
	uint64_t size, bytes, spoil;
};

#define AT(member) offsetof(struct file_args, member)

static const struct pl_option options[] = {
	{ "dir", PL_OPTION_TEXT, AT(dir), "DIR",
	  "Where the file is made, which is gone afterwards (default $TMPDIR, or /tmp).", 0, 0 },
	{ "size", PL_OPTION_SIZE, AT(size), "SIZE",
	  "Bytes of one read: 512, 1K, 2K or a multiple of 4K (default 4K).", 512, 2 << 20 },
	{ "bytes", PL_OPTION_SIZE, AT(bytes), "SIZE",
	  "Bytes of the file (default 1G for a GPU, else 1M).", 4096, 0x1p40 },
	{ "spoil", PL_OPTION_SIZE, AT(spoil), "N",
	  "Change a byte of block N first, to see that it is found.", 0, 0x1p40 },
	PL_GPU_COUNT_OPTION(struct file_args),
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
	if (!err)
		err = pl_gpu_reads_verify(&r);
	if (!err)
		err = pl_gpu_reads_measure(&r);
	if (!err && b->result.nr_rows == 1)
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

static int measure(struct pl_gpu_bench *b, const struct file_args *a)
{
	int fd = make_file(a), err = fd < 0 ? fd : 0;
	int64_t resident;

	if (err)
		return err;
	resident = pl_resident_bytes(fd, a->bytes);
	pl_report_value(&b->report, "cached_bytes", json_object_new_int64(resident), "file",
			"in %s, %lld of %llu bytes in the page cache", a->dir, (long long)resident,
			(unsigned long long)a->bytes);
	for (unsigned int i = 0; !err && i < b->args.threads.nr; i++) {
		struct pl_gpu_row *row =
			pl_gpu_bench_row(b, (unsigned int)b->args.threads.values[i]);

		err = row ? measure_row(b, a, fd, row) : -ENOSPC;
	}
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
	if (!args.dir)
		args.dir = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
	pl_stop_catch();
	err = pl_gpu_bench_open(&b, &args.common, "file", 400000, 4000);
	if (!err && pl_gpu_reads_check(&b, &args.bytes, args.size, args.spoil)) {
		pl_gpu_bench_close(&b, -EINVAL);
		return PL_EXIT_USAGE;
	}
	if (err)
		return pl_gpu_bench_close(&b, err);
	b.result.limit_name = "pread IOPS";
	b.result.limit =
		"as many threads of the CPU as there are proxies, that only call pread, each "
		"into one buffer; many buffers: into as many as there are slots";
	pl_gpu_reads_tell(&b, (uint32_t)args.size, args.bytes);
	return pl_gpu_bench_close(&b, measure(&b, &args));
}

const struct pl_command pl_command_gpu_file = {
	.name = "bench gpu file",
	.summary = "Random reads of an ordinary file.",
	.args = "[options]",
	.detail =
		"Kernels read blocks at random places of a file that is in the page cache; threads "
		"of the CPU serve them. Before each row every block is read through its queues and "
		"compared; the passes that are timed check that each read succeeds. Beside it "
		"stand as many threads that only call pread on the same file, each into one "
		"buffer; "
		"and the same into as many buffers as the row has slots, which is what the proxies "
		"do.",
	.exits = PL_GPU_EXITS,
	.options = options,
	.run = run,
};
