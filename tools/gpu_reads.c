/* SPDX-License-Identifier: MIT */
/* Reads by kernels from a device whose blocks hold a known pattern: checked, timed, and one alone. */
#include "gpu_reads.h"

#include "human.h"
#include "message.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PART ((size_t)8 << 20) /* less is not worth a thread */
#define MOST_PARTS 64u
#define SAMPLES 64
#define STRING_(x) #x
#define STRING(x) STRING_(x)

struct part {
	pthread_t thread;
	char *to;
	uint64_t at;
	size_t bytes;
	bool own_thread;
};

static void *fill(void *arg)
{
	const struct part *p = arg;

	for (size_t i = 0; i < p->bytes; i += 8) {
		const uint64_t word = plk_word((p->at + i) / 8);

		memcpy(p->to + i, &word, 8);
	}
	return NULL;
}

static size_t parts_of(size_t bytes)
{
	const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	size_t nr = bytes / PART;

	nr = cpus > 0 && nr > (size_t)cpus ? (size_t)cpus : nr;
	return nr > MOST_PARTS ? MOST_PARTS : nr ? nr : 1;
}

void pl_gpu_pattern(char *to, uint64_t at, size_t bytes)
{
	const size_t nr = parts_of(bytes), each = bytes / nr / 8 * 8;
	struct part parts[MOST_PARTS];

	for (size_t i = 0; i < nr; i++) {
		struct part *p = &parts[i];

		*p = (struct part){ .to = to + i * each, .at = at + i * each, .bytes = each };
		if (i == nr - 1)
			p->bytes = bytes - i * each;
		else
			p->own_thread = !pthread_create(&p->thread, NULL, fill, p);
		if (!p->own_thread)
			fill(p);
	}
	for (size_t i = 0; i < nr; i++)
		if (parts[i].own_thread)
			pthread_join(parts[i].thread, NULL);
}

int pl_gpu_reads_check(const struct pl_gpu_bench *b, uint64_t *bytes, uint64_t size, uint64_t spoil)
{
	if (!*bytes)
		*bytes = pl_gpu_run_on_gpu(&b->run) ? 1u << 30 : 1u << 20;
	if (size % 4096 && size != 512 && size != 1024 && size != 2048) {
		pl_message_error("--size: %llu is not 512, 1024, 2048 or a multiple of 4096",
				 (unsigned long long)size);
		return -EINVAL;
	}
	if (*bytes % size) {
		pl_message_error("--bytes: %llu is not a multiple of --size, %llu",
				 (unsigned long long)*bytes, (unsigned long long)size);
		return -EINVAL;
	}
	if (spoil != UINT64_MAX && spoil >= *bytes / 512) {
		pl_message_error("--spoil: there are %llu blocks, from 0",
				 (unsigned long long)*bytes / 512);
		return -EINVAL;
	}
	return 0;
}

int pl_gpu_reads_init(struct pl_gpu_reads *r, struct pl_gpu_bench *b, struct pl_gpu_row *row,
		      struct peerlane_device *dev, uint32_t io_bytes)
{
	struct peerlane_device_info info = { .size = sizeof(info) };
	struct peerlane_device_space space = { .size = sizeof(space) };
	void *memory;
	int err;

	memset(r, 0, sizeof(*r));
	r->bench = b;
	r->row = row;
	r->dev = dev;
	err = peerlane_device_get_info(dev, &info);
	if (!err)
		err = peerlane_device_get_space(dev, 0, &space);
	if (!err)
		err = pl_kmem_alloc(&b->run.kmem, 2 * (size_t)row->threads * io_bytes, &memory);
	if (err)
		return pl_gpu_bench_complain("reads", err);
	r->k = (struct plk_read){
		.queues = info.queues,
		.counts = b->run.counts,
		.memory = memory,
		.nr_ios = space.nr_blocks * space.block_bytes / io_bytes,
		.per_lane = pl_gpu_bench_per_lane(b, row),
		.timeout_ns = PL_GPU_TIMEOUT_NS,
		.nr_warps = pl_gpu_bench_warps(b, row),
		.nr_queues = row->queues,
		.lanes = b->run.lanes,
		.bytes = io_bytes,
		.block_bytes = space.block_bytes,
		.nsid = space.nsid,
	};
	return 0;
}

void pl_gpu_reads_fini(struct pl_gpu_reads *r)
{
	if (r->bench)
		pl_kmem_free(&r->bench->run.kmem, r->k.memory);
}

int pl_gpu_reads_verify(struct pl_gpu_reads *r)
{
	struct plk_read k = r->k;
	double seconds;

	k.order = PLK_SWEEP;
	k.per_lane = (k.nr_ios + r->row->threads - 1) / r->row->threads;
	return pl_gpu_bench_pass(r->bench, &pl_gpu_kernel_read, k.nr_warps, &k, k.nr_ios, &seconds);
}

int pl_gpu_reads_measure(struct pl_gpu_reads *r)
{
	int err = pl_gpu_bench_fit(r->bench, &pl_gpu_kernel_read, r->k.nr_warps, &r->k,
				   &r->k.per_lane, r->row->threads);

	r->row->ios = r->k.per_lane * r->row->threads;
	if (!err)
		err = pl_gpu_bench_passes(r->bench, &pl_gpu_kernel_read, r->k.nr_warps, &r->k,
					  r->row->ios, &r->row->seconds);
	return err;
}

int pl_gpu_reads_direct(struct pl_gpu_reads *r, const char *memory)
{
	struct plk_read k = r->k;
	double seconds;
	int err;

	k.direct = memory;
	err = pl_gpu_bench_passes(r->bench, &pl_gpu_kernel_direct, k.nr_warps, &k, r->row->ios,
				  &seconds);
	if (!err && seconds > 0)
		r->row->limit = (double)r->row->ios / seconds;
	return err;
}

int pl_gpu_reads_latency(struct pl_gpu_reads *r)
{
	struct plk_read k = r->k;
	double seconds, us;
	int err;

	k.order = PLK_CHASE;
	k.nr_warps = 1;
	k.per_lane = pl_gpu_run_on_gpu(&r->bench->run) ? 10000 : 100;
	if (k.per_lane > r->bench->args.count)
		k.per_lane = r->bench->args.count;
	err = pl_gpu_bench_passes(r->bench, &pl_gpu_kernel_read, 1, &k, k.per_lane, &seconds);
	if (err)
		return err;
	us = seconds / (double)k.per_lane * 1e6;
	pl_report_value(&r->bench->report, "latency_us", pl_jsonout_number(us), "latency",
			"%.2f us for one read alone, each after the one before", us);
	return 0;
}

/* What a lane brought must be in one of its two pieces. */
static int compare_lane(struct pl_gpu_reads *r, int fd, uint64_t place, const char *memory,
			char *scratch, bool spoil)
{
	const size_t bytes = r->k.bytes;
	const off_t at = (off_t)(place * bytes);
	ssize_t n = pread(fd, scratch, bytes, at);
	int err = pl_kmem_get(&r->bench->run.kmem, scratch + bytes, memory, 2 * bytes);

	if (n != (ssize_t)bytes || err) {
		err = err ? err : n < 0 ? -errno : -EIO;
		return pl_gpu_bench_complain("verify", err);
	}
	if (spoil)
		scratch[0] ^= 1;
	if (!memcmp(scratch, scratch + bytes, bytes) ||
	    !memcmp(scratch, scratch + 2 * bytes, bytes))
		return 0;
	pl_message_error("wrong data in the read at byte %lld of the file", (long long)at);
	return -EBADMSG;
}

/* One read of each lane, of which nothing can be left from before. */
static int sample_once(struct pl_gpu_reads *r, int fd, uint64_t seed, uint64_t spoil, char *scratch)
{
	const uint64_t nr = r->row->threads;
	struct plk_read k = r->k;
	double seconds;
	int err = 0;

	k.per_lane = 1;
	k.seed = seed;
	memset(scratch, 0xa5, 2 * (size_t)k.bytes);
	for (uint64_t i = 0; !err && i < nr; i++)
		err = pl_kmem_put(&r->bench->run.kmem, k.memory + 2 * i * k.bytes, scratch,
				  2 * (size_t)k.bytes);
	if (!err)
		err = pl_gpu_bench_pass(r->bench, &pl_gpu_kernel_read, k.nr_warps, &k, nr,
					&seconds);
	for (uint64_t i = 0; !err && i < nr; i++)
		err = compare_lane(r, fd, plk_below_(plk_mix(seed + i), k.nr_ios),
				   k.memory + 2 * i * k.bytes, scratch, i == spoil);
	return err;
}

int pl_gpu_reads_sample(struct pl_gpu_reads *r, int fd, uint64_t spoil)
{
	char *scratch = malloc(3 * (size_t)r->k.bytes);
	int err = 0;

	if (!scratch)
		return pl_gpu_bench_complain("verify", -ENOMEM);
	for (uint64_t nr = 0; !err && nr < SAMPLES; nr += r->row->threads)
		err = sample_once(r, fd, (nr + 1) << 32, spoil - nr, scratch);
	free(scratch);
	return err;
}

void pl_gpu_reads_tell(struct pl_gpu_bench *b, uint32_t io_bytes, uint64_t bytes, bool sampled)
{
	const unsigned int registers = pl_gpu_run_registers(&pl_gpu_kernel_read);

	b->result.io_bytes = io_bytes;
	pl_report_value(&b->report, "io_bytes", json_object_new_int64(io_bytes), "reads",
			"%s at random places of %s", pl_human_short(io_bytes).text,
			pl_human_size(bytes).text);
	pl_report_value(&b->report, "bytes", json_object_new_int64((int64_t)bytes), NULL, "-");
	pl_report_value(&b->report, "verified", json_object_new_boolean(true), NULL, "-");
	pl_report_text(&b->report, "verification", "verified", "%s; then each read succeeded",
		       sampled ? "before each row " STRING(SAMPLES) " random reads or more against "
								    "pread"
			       : "before each row all blocks, every byte, through its queues");
	pl_report_value(&b->report, "registers", json_object_new_int64(registers), "registers",
			"%u a thread (ptxas for sm_90)", registers);
}
