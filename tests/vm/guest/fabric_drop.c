// SPDX-License-Identifier: MIT
/*
 * Connections that are lost while data of theirs goes into and out of GPU memory: every request ends,
 * with an error or with the right data, and nothing stays behind.
 */
#include <liburing.h>
#include <pthread.h>

#include "engine.h"
#include "fabric.h"

#define NR 256u
#define PIECE (64 * KIB)
#define READ_BYTES (4 * MIB)
/* The parts of slow0 that are read and written. */
#define PART_BYTES (8 * MIB)

enum cut {
	CUT_TARGET,	/* the target takes the drives away */
	CUT_NETWORK,	/* nothing arrives any more */
	CUT_DISCONNECT, /* the machine disconnects itself */
	CUT_TIMEOUT,	/* nobody does: the drive is slower than the requests may be */
	NR_CUTS,
};

static const char *const cut_names[NR_CUTS] = { "target", "network", "disconnect", "time-out" };

/* A read by the library, in a thread of its own. */
struct reader {
	struct peerlane_file *file;
	char *gpu;
	ssize_t result;
	pthread_t thread;
	bool done; /* atomic */
};

static void *read_all(void *arg)
{
	struct reader *r = arg;

	r->result = peerlane_read(r->file, r->gpu, READ_BYTES, 0);
	__atomic_store_n(&r->done, true, __ATOMIC_RELEASE);
	return NULL;
}

/* Waits until the target reads its drive, so that requests are under way. */
static void wait_reading(struct reader *r)
{
	char drive[64], path[96];
	unsigned int busy = 0;
	int i;

	drive_path("slow0", drive, sizeof(drive));
	snprintf(path, sizeof(path), "/sys/block/%s/stat", drive + strlen("/dev/"));
	for (i = 0; i < 60000 && !busy && !__atomic_load_n(&r->done, __ATOMIC_ACQUIRE); i++) {
		FILE *file = fopen(path, "re");

		/* The ninth number. */
		expect(file && fscanf(file, "%*u %*u %*u %*u %*u %*u %*u %*u %u", &busy) == 1);
		fclose(file);
		if (!busy)
			sleep_ms(1);
	}
}

/* The kernel's own way: reads into the mapping and writes out of it, all under way at once. */
struct pages {
	struct memory memory;
	struct io_uring ring;
	unsigned int nr;
	bool freed; /* the memory goes before they have ended; then there are no writes */
};

static bool is_write(const struct pages *p, size_t number)
{
	return !p->freed && number % 4 == 3;
}

static void pages_start(struct pages *p, int fd)
{
	unsigned int i;

	memory_open(&p->memory, NR * PIECE, 0);
	memset(p->memory.map, 0x5a, NR * PIECE);
	expect(io_uring_queue_init(NR, &p->ring, 0) == 0);
	for (i = 0; i < NR; i++) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(&p->ring);
		size_t at = i * PIECE;

		if (is_write(p, i))
			io_uring_prep_write(sqe, fd, p->memory.map + at, PIECE,
					    PART_BYTES + at % PART_BYTES);
		else
			io_uring_prep_read(sqe, fd, p->memory.map + at, PIECE, at % PART_BYTES);
		sqe->user_data = i;
	}
	expect(io_uring_submit(&p->ring) == (int)NR);
	p->nr = NR;
}

/* Waits for all; returns how many failed. Those that did not have brought what they should. */
static unsigned int pages_finish(struct pages *p, const unsigned char *data)
{
	struct io_uring_cqe *cqe;
	unsigned int failed = 0;

	for (; p->nr; p->nr--) {
		size_t at;

		expect(io_uring_wait_cqe(&p->ring, &cqe) == 0);
		at = cqe->user_data * PIECE;
		if (cqe->res < 0)
			failed++;
		else if (!p->freed && !is_write(p, cqe->user_data))
			expect(memcmp(p->memory.map + at, data + at % PART_BYTES,
				      (size_t)cqe->res) == 0);
		io_uring_cqe_seen(&p->ring, cqe);
	}
	io_uring_queue_exit(&p->ring);
	if (p->freed) {
		munmap(p->memory.map, p->memory.pin.map_bytes);
		close(p->memory.dev);
		close(p->memory.gpu);
		free(p->memory.physical);
	} else {
		fabric_memory_close(&p->memory);
	}
	return failed;
}

static void cut_now(struct fabric *fabric, enum cut cut)
{
	if (cut == CUT_TARGET)
		fabric_export(false);
	else if (cut == CUT_NETWORK)
		fabric_cable(fabric, false);
	else if (cut == CUT_DISCONNECT)
		fabric_disconnect(fabric);
}

static void mend(struct fabric *fabric, enum cut cut)
{
	if (cut == CUT_TARGET)
		fabric_export(true);
	else if (cut == CUT_NETWORK)
		fabric_cable(fabric, true);
	fabric_disconnect(fabric);
}

/* One connection and its end; returns how many requests it took with it. */
static unsigned int one(struct fabric *fabric, struct engine *e, enum cut cut,
			const unsigned char *data)
{
	struct reader r = { .gpu = e->gpu };
	struct pages pages = { .freed = cut == CUT_NETWORK };
	unsigned int failed;
	int fd;

	fabric_connect(fabric);
	fd = fabric_open("slow0", O_RDWR | O_DIRECT);
	fabric_hurry(fabric, cut == CUT_TIMEOUT ? 300 : 2000, cut == CUT_TIMEOUT ? 60 : 1);
	expect(peerlane_file_from_fd(e->ctx, fd, &r.file) == 0);
	pages_start(&pages, fd);
	expect(pthread_create(&r.thread, NULL, read_all, &r) == 0);
	wait_reading(&r);
	cut_now(fabric, cut);
	/* It waits for those that work on it. */
	if (pages.freed)
		gpu_free(pages.memory.gpu, pages.memory.address);
	expect(pthread_join(r.thread, NULL) == 0);
	failed = pages_finish(&pages, data);
	printf("%s, %s%s: read %zd, %u of %u into pages failed\n", fabric->transport,
	       cut_names[cut], pages.freed ? ", memory freed" : "", r.result, failed, NR);
	expect(r.result <= (ssize_t)READ_BYTES);
	expect(peerlane_gpu_copy(e->ctx, e->seen, e->gpu, ROOM) == 0);
	if (r.result > 0)
		expect(memcmp(e->seen, data, (size_t)r.result) == 0);
	expect(peerlane_file_close(r.file) == 0);
	close(fd);
	mend(fabric, cut);
	return failed + (r.result < (ssize_t)READ_BYTES);
}

/* The same context goes on with a new connection. */
static void again(struct fabric *fabric, struct engine *e, const unsigned char *data)
{
	struct peerlane_file *file;
	int fd;

	fabric_connect(fabric);
	fd = fabric_open("slow0", O_RDONLY | O_DIRECT);
	expect(peerlane_file_from_fd(e->ctx, fd, &file) == 0);
	expect(peerlane_read(file, e->gpu, MIB, 0) == (ssize_t)MIB);
	expect(peerlane_gpu_copy(e->ctx, e->seen, e->gpu, MIB) == 0);
	expect(memcmp(e->seen, data, MIB) == 0);
	expect(peerlane_file_close(file) == 0);
	close(fd);
	fabric_disconnect(fabric);
}

static int drop(const char *transport, bool dma)
{
	int fd = drive_open("slow0", O_RDONLY | O_DIRECT);
	unsigned char *data = host_alloc(PART_BYTES);
	struct fabric fabric;
	struct engine e;
	unsigned int failed = 0;

	expect(pread(fd, data, PART_BYTES, 0) == (ssize_t)PART_BYTES);
	close(fd);
	if (dma)
		fabric_start_dma(&fabric);
	else
		fabric_start(&fabric, transport);
	engine_open(&e);
	for (enum cut cut = 0; cut < NR_CUTS; cut++) {
		failed += one(&fabric, &e, cut, data);
		again(&fabric, &e, data);
	}
	/* Some must have been under way, or nothing was tested. */
	expect(failed > 0);
	engine_close(&e);
	fabric_stop(&fabric);
	free(data);
	say_direct(0);
	return 0;
}

int test_fabric_drop_tcp(void)
{
	return drop("tcp", false);
}

int test_fabric_drop_rdma(void)
{
	return drop("rdma", false);
}

/* The same where the adapter is given the addresses of GPU memory, by the library too. */
int test_fabric_drop_dma(void)
{
	return access(DMA_ADAPTER, F_OK) ? 77 : drop("rdma", true);
}
