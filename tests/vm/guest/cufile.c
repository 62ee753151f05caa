// SPDX-License-Identifier: MIT
/*
 * The cuFile interface on the test GPU: reads, writes, batches and streams go between drive and
 * GPU memory, and its statistics say so.
 */
#include <cufile.h>

#include "engine.h"

#define PART (64 * KIB)
#define NR 16u

struct drop_in {
	struct engine e; /* for GPU memory and a stream; it reads and writes nothing */
	unsigned char *data;
	CUfileHandle_t fh;
	int fd;
	size_t bytes; /* read and written by whole blocks so far */
};

static void ok(CUfileError_t status, int line)
{
	if (status.err)
		fail("line %d: cuFile error %d", line, status.err);
}

#define OK(call) ok(call, __LINE__)

static void drop_in_open(struct drop_in *d)
{
	CUfileDescr_t descr = { .type = CU_FILE_HANDLE_TYPE_OPAQUE_FD };

	memset(d, 0, sizeof(*d));
	setenv("PEERLANE_BACKEND", "simgpu", 1);
	d->data = make_file("/mnt/cufile", FILE_BYTES, 61);
	engine_open(&d->e);
	d->fd = open("/mnt/cufile", O_RDWR | O_DIRECT);
	expect(d->fd >= 0);
	OK(cuFileDriverOpen());
	OK(cuFileSetStatsLevel(3));
	OK(cuFileStatsStart());
	descr.handle.fd = d->fd;
	OK(cuFileHandleRegister(&d->fh, &descr));
	OK(cuFileBufRegister(d->e.gpu, ROOM, 0));
}

static void drop_in_close(struct drop_in *d)
{
	OK(cuFileBufDeregister(d->e.gpu));
	cuFileHandleDeregister(d->fh);
	OK(cuFileDriverClose());
	close(d->fd);
	engine_close(&d->e);
	free(d->data);
	unlink("/mnt/cufile");
}

/* GPU memory and file are what they must be. */
static void check(struct drop_in *d, const char *what)
{
	int fd = open("/mnt/cufile", O_RDONLY);

	check_gpu(&d->e, what, 0);
	expect(pread(fd, d->e.seen, FILE_BYTES, 0) == (ssize_t)FILE_BYTES);
	if (memcmp(d->e.seen, d->data, FILE_BYTES) != 0)
		fail("%s: the file is wrong", what);
	close(fd);
}

static void single(struct drop_in *d)
{
	expect(cuFileRead(d->fh, d->e.gpu, MIB, 4096, 8192) == (ssize_t)MIB);
	memcpy(d->e.model + 8192, d->data + 4096, MIB);
	expect(cuFileWrite(d->fh, d->e.gpu, MIB, 2 * MIB, 3 * MIB) == (ssize_t)MIB);
	memcpy(d->data + 2 * MIB, d->e.model + 3 * MIB, MIB);
	d->bytes += 2 * MIB;
	/* No whole block in them. */
	expect(cuFileRead(d->fh, d->e.gpu, 100, 5, 0) == 100);
	memcpy(d->e.model, d->data + 5, 100);
	expect(cuFileWrite(d->fh, d->e.gpu, 50, 7, 0) == 50);
	memcpy(d->data + 7, d->e.model, 50);
	check(d, "single");
}

static void batch(struct drop_in *d)
{
	CUfileIOEvents_t events[NR];
	CUfileIOParams_t io[NR];
	CUfileBatchHandle_t handle;
	unsigned int nr, got = 0;

	OK(cuFileBatchIOSetUp(&handle, NR));
	for (unsigned int i = 0; i < NR; i++) {
		size_t at = i * PART, from = MIB + at;
		bool write = i % 4 == 3;

		io[i] = (CUfileIOParams_t){ .mode = CUFILE_BATCH,
					    .u.batch = { .devPtr_base = d->e.gpu,
							 .devPtr_offset = (off_t)from,
							 .file_offset = (off_t)at,
							 .size = PART },
					    .fh = d->fh,
					    .opcode = write ? CUFILE_WRITE : CUFILE_READ };
		if (write)
			memcpy(d->data + at, d->e.model + from, PART);
		else
			memcpy(d->e.model + from, d->data + at, PART);
	}
	OK(cuFileBatchIOSubmit(handle, NR, io, 0));
	while (got < NR) {
		nr = NR;
		OK(cuFileBatchIOGetStatus(handle, 1, &nr, events, NULL));
		for (unsigned int i = 0; i < nr; i++)
			expect(events[i].status == CUFILE_COMPLETE && events[i].ret == PART);
		got += nr;
	}
	cuFileBatchIODestroy(handle);
	d->bytes += NR * PART;
	check(d, "batch");
}

static void stream(struct drop_in *d)
{
	size_t size = MIB;
	off_t first = 0, second = MIB, buf = 0, other = 2 * MIB;
	ssize_t results[3] = { -1, -1, -1 };
	void *s;

	expect(peerlane_gpu_stream_create(d->e.ctx, 0, &s) == 0);
	OK(cuFileStreamRegister((CUstream)s, 0));
	OK(cuFileWriteAsync(d->fh, d->e.gpu, &size, &second, &other, &results[0], (CUstream)s));
	OK(cuFileReadAsync(d->fh, d->e.gpu, &size, &second, &buf, &results[1], (CUstream)s));
	OK(cuFileReadAsync(d->fh, d->e.gpu, &size, &first, &other, &results[2], (CUstream)s));
	expect(peerlane_gpu_stream_sync(d->e.ctx, s) == 0);
	for (int i = 0; i < 3; i++)
		expect(results[i] == (ssize_t)MIB);
	memcpy(d->data + MIB, d->e.model + 2 * MIB, MIB);
	memcpy(d->e.model, d->data + MIB, MIB);
	memcpy(d->e.model + 2 * MIB, d->data, MIB);
	OK(cuFileStreamDeregister((CUstream)s));
	peerlane_gpu_stream_destroy(d->e.ctx, s);
	d->bytes += 3 * MIB;
	check(d, "stream");
}

/* @p2p: the path was to be had. */
static void check_stats(bool p2p)
{
	static CUfileStatsLevel3_t s;
	const CUfilePerGpuStats_t *g = &s.per_gpu_stats[0];
	const CUfileStatsLevel1_t *l1 = &s.detailed.basic;
	/* One read, 12 in the batch, two on the stream; one write, 4, one. */
	unsigned int reads = p2p ? 15 : 0, writes = p2p ? 6 : 0;

	OK(cuFileGetStatsL3(&s));
	printf("reads: %llu p2p, %llu posix; writes: %llu p2p, %llu posix; batch: %llu p2p, %llu "
	       "posix\n",
	       (unsigned long long)g->n_p2p_reads, (unsigned long long)g->n_posix_reads,
	       (unsigned long long)g->n_p2p_writes, (unsigned long long)g->n_posix_writes,
	       (unsigned long long)l1->batch_p2p_submit_ops.ok,
	       (unsigned long long)l1->batch_posix_processed_ops.ok);
	expect(g->n_total_reads == 16 && g->n_p2p_reads == reads);
	expect(g->n_posix_reads == 16 - reads && g->n_nvfs_reads == 0);
	expect(g->n_total_writes == 7 && g->n_p2p_writes == writes);
	expect(g->n_posix_writes == 7 - writes);
	expect(l1->batch_p2p_submit_ops.ok == (p2p ? NR : 0));
	expect(l1->batch_posix_enqueued_ops.ok == (p2p ? 0 : NR));
	expect(l1->batch_posix_processed_ops.ok == (p2p ? 0 : NR));
	expect(l1->batch_processed_ops.ok == NR);
}

static void all(bool p2p)
{
	struct drop_in d;

	drop_in_open(&d);
	single(&d);
	batch(&d);
	stream(&d);
	check_stats(p2p);
	if (p2p)
		say_direct(d.bytes + TEST_BYTES);
	drop_in_close(&d);
}

int test_engine_cufile(void)
{
	all(true);
	/* Through the host: nothing more is counted, from inside or outside. */
	setenv("CUFILE_FORCE_COMPAT_MODE", "true", 1);
	all(false);
	return 0;
}
