// SPDX-License-Identifier: MIT
/*
 * The library while drives fail or go, memory is freed and processes die: each request says what it
 * did, or why not, and a process with another drive notices nothing.
 */
#include <pthread.h>
#include <sys/mount.h>

#include "engine.h"

/* Where the drive bad0 fails, in reads and in writes; see outside.py. */
#define BAD_READ MIB
#define BAD_WRITE (2 * MIB)
#define BAD_BYTES (4 * MIB)
/* A part of the drive slow0 that no other test looks at. */
#define SLOW_WRITE (8 * MIB)

#define DRIVER "/sys/bus/pci/drivers/nvme/"

static bool drive_error(ssize_t n)
{
	/* Which of the first two depends on what the drive says was wrong. */
	return n == -EIO || n == -ENODATA;
}

static bool gone_error(ssize_t n)
{
	/* The first for requests that the kernel had taken already. */
	return n == -EIO || n == -ENXIO;
}

/* ------------------------------------------------------------------ a drive that fails */

struct bad {
	struct engine e;
	struct peerlane_file *file;
	int fd;
	unsigned char *disk; /* what is on it */
};

/* A read that may meet the bad block: what it says was read is right. */
static ssize_t read_bad(struct bad *b, size_t offset, size_t bytes)
{
	ssize_t n = peerlane_read(b->file, b->e.gpu, bytes, (off_t)offset);

	if (n > 0) {
		expect(peerlane_gpu_copy(b->e.ctx, b->e.seen, b->e.gpu, (size_t)n) == 0);
		expect(memcmp(b->e.seen, b->disk + offset, (size_t)n) == 0);
	}
	return n;
}

static void read_errors(struct bad *b)
{
	size_t before;
	ssize_t n;

	n = read_bad(b, 0, 2 * MIB);
	if (n <= 0 || n > (ssize_t)BAD_READ)
		fail("a read across the bad block: %zd", n);
	n = read_bad(b, BAD_READ, 64 * KIB);
	if (!drive_error(n))
		fail("a read of the bad block: %zd", n);
	n = read_bad(b, BAD_READ - 4096, 8192);
	if (n != 4096 && !drive_error(n))
		fail("a small read across the bad block: %zd", n);
	/* A drive that fails is no reason to leave the path. */
	before = p2p_bytes(&b->e);
	n = read_bad(b, BAD_READ + 4096, MIB);
	if (n != (ssize_t)MIB || p2p_bytes(&b->e) != before + MIB)
		fail("a read behind the bad block: %zd, %zu by p2p", n, p2p_bytes(&b->e) - before);
}

/* A write that may meet the bad block: what it says was written is on the drive. */
static ssize_t write_bad(struct bad *b, size_t offset, size_t bytes, uint64_t seed)
{
	ssize_t n;

	fill(b->e.model, bytes, seed);
	expect(peerlane_gpu_copy(b->e.ctx, b->e.gpu, b->e.model, bytes) == 0);
	n = peerlane_write(b->file, b->e.gpu, bytes, (off_t)offset, 0);
	expect(pread(b->fd, b->disk + offset, bytes, (off_t)offset) == (ssize_t)bytes);
	if (n > 0 && memcmp(b->disk + offset, b->e.model, (size_t)n) != 0)
		fail("%zd bytes written at %zu are not there", n, offset);
	return n;
}

static void write_errors(struct bad *b, uint64_t seed)
{
	size_t before;
	ssize_t n;

	n = write_bad(b, BAD_WRITE - 512 * KIB, MIB, seed);
	if (n <= 0 || n > (ssize_t)(512 * KIB))
		fail("a write across the bad block: %zd", n);
	n = write_bad(b, BAD_WRITE, 64 * KIB, seed + 1);
	if (!drive_error(n))
		fail("a write of the bad block: %zd", n);
	before = p2p_bytes(&b->e);
	n = write_bad(b, BAD_WRITE + 64 * KIB, MIB, seed + 2);
	if (n != (ssize_t)MIB || p2p_bytes(&b->e) != before + MIB)
		fail("a write behind the bad block: %zd, %zu by p2p", n, p2p_bytes(&b->e) - before);
}

/* Many at once: those that fail say so, the others are right. */
static void batch_errors(struct bad *b)
{
	enum { NR = 16 };
	size_t piece = 2 * MIB / NR;
	struct peerlane_event events[NR];
	struct peerlane_batch *batch;
	struct peerlane_io io[NR];
	int got, failed = 0;

	expect(peerlane_batch_create(b->e.ctx, NR, &batch) == 0);
	for (size_t i = 0; i < NR; i++)
		io[i] = (struct peerlane_io){ .file = b->file,
					      .op = PEERLANE_READ,
					      .addr = b->e.gpu + i * piece,
					      .bytes = piece,
					      .offset = (off_t)(i * piece),
					      .cookie = &io[i] };
	expect(peerlane_batch_submit(batch, io, NR) == 0);
	for (int left = NR; left; left -= got) {
		got = peerlane_batch_wait(batch, 1, events, NR, NULL);
		expect(got > 0);
		for (int i = 0; i < got; i++) {
			const struct peerlane_io *r = events[i].cookie;

			if (events[i].result == (ssize_t)piece) {
				expect(peerlane_gpu_copy(b->e.ctx, b->e.seen, r->addr, piece) == 0);
				expect(memcmp(b->e.seen, b->disk + r->offset, piece) == 0);
			} else if (drive_error(events[i].result)) {
				failed++;
			} else {
				fail("batch: %zd", events[i].result);
			}
		}
	}
	peerlane_batch_destroy(batch);
	/* Staged again one by one, so that neighbours of the bad block do not suffer with it. */
	expect(failed == 1);
}

struct later {
	struct engine *e;
	unsigned int us;
};

static void *free_later(void *data)
{
	struct later *later = data;

	usleep(later->us);
	expect(peerlane_gpu_free(later->e->ctx, later->e->gpu) == 0);
	return NULL;
}

/* The memory goes while the drive fails. */
static void freed_meanwhile(struct bad *b)
{
	struct later later = { .e = &b->e, .us = (unsigned int)rand() % 4000 };
	pthread_t thread;
	ssize_t n;

	expect(pthread_create(&thread, NULL, free_later, &later) == 0);
	n = peerlane_read(b->file, b->e.gpu, 2 * MIB, 0);
	expect(pthread_join(thread, NULL) == 0);
	if (n > (ssize_t)BAD_READ || (n <= 0 && !drive_error(n) && n != -EFAULT))
		fail("a read of a bad drive into memory that was freed: %zd", n);
	engine_renew(&b->e);
}

int test_engine_errors(void)
{
	struct bystander other;
	unsigned int nr = rounds(12);
	struct bad b;

	bystander_start(&other);
	b.fd = drive_open("bad0", O_RDWR | O_DIRECT);
	b.disk = host_alloc(BAD_BYTES);
	expect(pread(b.fd, b.disk, BAD_READ, 0) == (ssize_t)BAD_READ);
	expect(pread(b.fd, b.disk + BAD_READ + 4096, BAD_BYTES - BAD_READ - 4096,
		     (off_t)(BAD_READ + 4096)) == (ssize_t)(BAD_BYTES - BAD_READ - 4096));
	engine_open(&b.e);
	expect(peerlane_file_from_fd(b.e.ctx, b.fd, &b.file) == 0);
	expect(verdict(&b.e, b.file, PEERLANE_READ, MIB).usable);
	for (unsigned int i = 0; i < nr; i++) {
		if (i % 2)
			expect(peerlane_buffer_register(b.e.ctx, b.e.gpu, ROOM, 0) == 0);
		read_errors(&b);
		write_errors(&b, 3 * i);
		batch_errors(&b);
		if (i % 2)
			expect(peerlane_buffer_release(b.e.ctx, b.e.gpu) == 0);
		freed_meanwhile(&b);
	}
	printf("%u rounds\n", nr);
	expect(peerlane_file_close(b.file) == 0);
	engine_close(&b.e);
	close(b.fd);
	free(b.disk);
	bystander_end(&other);
	return 0;
}

/* ------------------------------------------------------------------ a drive that goes */

/**
 * struct user - a thread that reads or writes without end, until an error
 * @file: what
 * @memory: from or to where
 * @write: which
 * @gpu_goes: so does the GPU
 * @first: offset of the first request
 * @want: what reads must give; what writes give
 * @stop: end without an error
 * @nr_full: requests that were done in whole
 * @ended: there will be no more
 * @last: what the last one said
 */
struct user {
	struct engine *e;
	struct peerlane_file *file;
	bool write;
	bool gpu_goes;
	size_t first;
	unsigned char *want;
	bool stop;
	unsigned int nr_full;
	bool ended;
	ssize_t last;
};

#define USE_BYTES (512 * KIB)

static void *use(void *data)
{
	struct user *u = data;
	struct engine *e = u->e;
	int err;

	do {
		if (u->write)
			u->last = peerlane_write(u->file, e->gpu, USE_BYTES, (off_t)u->first, 0);
		else
			u->last = peerlane_read(u->file, e->gpu, USE_BYTES, (off_t)u->first);
		if (u->last > 0 && !u->write) {
			/* The GPU may have gone just now. */
			err = peerlane_gpu_copy(e->ctx, e->seen, e->gpu, (size_t)u->last);
			if (err && !(u->gpu_goes && err == -EREMOTEIO))
				fail("a copy from the GPU: %d", err);
			if (!err)
				expect(memcmp(e->seen, u->want, (size_t)u->last) == 0);
		}
		__atomic_fetch_add(&u->nr_full, u->last == (ssize_t)USE_BYTES, __ATOMIC_RELEASE);
	} while (u->last > 0 && !__atomic_load_n(&u->stop, __ATOMIC_ACQUIRE));
	__atomic_store_n(&u->ended, true, __ATOMIC_RELEASE);
	return NULL;
}

/* Start, and let it do something. */
static void use_start(struct user *u, pthread_t *thread)
{
	if (u->write)
		expect(peerlane_gpu_copy(u->e->ctx, u->e->gpu, u->want, USE_BYTES) == 0);
	u->nr_full = 0;
	u->ended = false;
	expect(pthread_create(thread, NULL, use, u) == 0);
	while (!__atomic_load_n(&u->nr_full, __ATOMIC_ACQUIRE) &&
	       !__atomic_load_n(&u->ended, __ATOMIC_ACQUIRE))
		sleep_ms(1);
	usleep((useconds_t)rand() % 100000);
}

int test_engine_unplugged(void)
{
	unsigned char *data = host_alloc(USE_BYTES), *seen = host_alloc(USE_BYTES);
	unsigned int nr = rounds(6), nr_full = 0;
	struct bystander other;
	struct user u = { 0 };
	struct engine e;
	pthread_t thread;
	size_t before;
	char pci[32];
	int fd;

	bystander_start(&other);
	srand(1);
	drive_pci("slow0", pci, sizeof(pci));
	engine_open_depth(&e, 64 * KIB, 2);
	u.e = &e;
	for (unsigned int i = 0; i < nr; i++) {
		fd = drive_open("slow0", O_RDWR | O_DIRECT);
		u.write = i % 2;
		u.first = u.write ? SLOW_WRITE : 0;
		if (u.write)
			fill(data, USE_BYTES, i);
		else
			expect(pread(fd, data, USE_BYTES, 0) == (ssize_t)USE_BYTES);
		u.want = data;
		expect(peerlane_file_from_fd(e.ctx, fd, &u.file) == 0);
		before = p2p_bytes(&e);
		use_start(&u, &thread);
		expect(p2p_bytes(&e) > before);
		expect(echo(DRIVER "unbind", pci) == 0);
		expect(pthread_join(thread, NULL) == 0);
		if (!gone_error(u.last))
			fail("%s of a drive that is gone: %zd", u.write ? "a write" : "a read",
			     u.last);
		/* It stays so, with and without the path. */
		expect(gone_error(peerlane_read(u.file, e.gpu, 64 * KIB, 0)));
		expect(gone_error(peerlane_read(u.file, e.gpu + 100, 1000, 7)));
		expect(gone_error(peerlane_write(u.file, e.gpu, 64 * KIB, (off_t)SLOW_WRITE, 0)));
		expect(gone_error(peerlane_write(u.file, e.gpu + 1, 1000, (off_t)SLOW_WRITE, 0)));
		expect(peerlane_file_close(u.file) == 0);
		close(fd);
		nr_full += u.nr_full;

		/* Back again: other name perhaps, same data, same path. */
		expect(echo(DRIVER "bind", pci) == 0);
		expect(drive_wait("slow0", 60000));
		fd = drive_open("slow0", O_RDONLY | O_DIRECT);
		expect(peerlane_file_from_fd(e.ctx, fd, &u.file) == 0);
		before = p2p_bytes(&e);
		expect(peerlane_read(u.file, e.gpu, USE_BYTES, (off_t)u.first) ==
		       (ssize_t)USE_BYTES);
		expect(p2p_bytes(&e) == before + USE_BYTES);
		expect(peerlane_gpu_copy(e.ctx, seen, e.gpu, USE_BYTES) == 0);
		expect(memcmp(seen, data, USE_BYTES) == 0);
		expect(peerlane_file_close(u.file) == 0);
		close(fd);
	}
	printf("%u rounds, %u requests done before\n", nr, nr_full);
	engine_close(&e);
	bystander_end(&other);
	return 0;
}

/* The same below a file system: it gives up, and finds its data again. */
int test_engine_unplugged_fs(void)
{
	unsigned int nr = rounds(2);
	struct bystander other;
	struct user u = { 0 };
	char pci[32], device[DISK_PATH];
	struct engine e;
	pthread_t thread;
	size_t before;

	bystander_start(&other);
	srand(2);
	drive_pci("xfs0", pci, sizeof(pci));
	u.want = make_file("/xfs/unplugged", USE_BYTES, 91);
	engine_open_depth(&e, 64 * KIB, 2);
	u.e = &e;
	for (unsigned int i = 0; i < nr; i++) {
		u.write = i % 2;
		u.file = open_file(&e, "/xfs/unplugged", O_RDWR | O_DIRECT);
		before = p2p_bytes(&e);
		use_start(&u, &thread);
		expect(p2p_bytes(&e) > before);
		expect(echo(DRIVER "unbind", pci) == 0);
		expect(pthread_join(thread, NULL) == 0);
		if (!gone_error(u.last))
			fail("%s of a file whose drive is gone: %zd",
			     u.write ? "a write" : "a read", u.last);
		expect(peerlane_file_close(u.file) == 0);
		expect(umount2("/xfs", 0) == 0);

		expect(echo(DRIVER "bind", pci) == 0);
		expect(drive_wait("xfs0", 60000));
		disk_path("serial", "xfs0", device);
		expect(mount(device, "/xfs", "xfs", 0, NULL) == 0);
		u.file = open_file(&e, "/xfs/unplugged", O_RDONLY | O_DIRECT);
		expect(peerlane_read(u.file, e.gpu, USE_BYTES, 0) == (ssize_t)USE_BYTES);
		expect(peerlane_gpu_copy(e.ctx, e.seen, e.gpu, USE_BYTES) == 0);
		expect(memcmp(e.seen, u.want, USE_BYTES) == 0);
		expect(peerlane_file_close(u.file) == 0);
	}
	printf("%u rounds\n", nr);
	engine_close(&e);
	unlink("/xfs/unplugged");
	free(u.want);
	bystander_end(&other);
	return 0;
}

/* ------------------------------------------------------------------ processes, modules, the GPU */

static void use_for_ever(void *data)
{
	unsigned int round = *(unsigned int *)data;
	int fd = drive_open(round % 2 ? "raw0" : "slow0", O_RDONLY | O_DIRECT);
	struct peerlane_file *file;
	struct engine e;

	engine_open(&e);
	expect(peerlane_file_from_fd(e.ctx, fd, &file) == 0);
	if (round % 3 == 0)
		expect(peerlane_buffer_register(e.ctx, e.gpu, ROOM, 0) == 0);
	for (;;)
		expect(peerlane_read(file, e.gpu, 4 * MIB, 0) == (ssize_t)(4 * MIB));
}

int test_engine_killed(void)
{
	unsigned int nr = rounds(12);
	struct bystander other;

	bystander_start(&other);
	srand(3);
	for (unsigned int i = 0; i < nr; i++)
		in_child(use_for_ever, &i, 1 + (unsigned int)rand() % 250);
	printf("%u rounds\n", nr);
	bystander_end(&other);
	return 0;
}

/* Memory is freed at any moment of a request. */
int test_engine_freed_loop(void)
{
	int fd = drive_open("raw0", O_RDONLY | O_DIRECT);
	unsigned char *data = host_alloc(MIB);
	unsigned int nr = rounds(60), nr_cut = 0;
	struct peerlane_file *file;
	struct bystander other;
	struct later later;
	struct engine e;
	pthread_t thread;
	ssize_t n;

	bystander_start(&other);
	srand(4);
	engine_open_depth(&e, 64 * KIB, 2);
	expect(peerlane_file_from_fd(e.ctx, fd, &file) == 0);
	expect(pread(fd, data, MIB, 0) == (ssize_t)MIB);
	for (unsigned int i = 0; i < nr; i++) {
		char *gpu = e.gpu;
		size_t before;

		if (i % 2)
			expect(peerlane_buffer_register(e.ctx, gpu, ROOM, 0) == 0);
		later.e = &e;
		later.us = (unsigned int)rand() % 3000;
		expect(pthread_create(&thread, NULL, free_later, &later) == 0);
		do {
			n = peerlane_read(file, gpu, MIB, 0);
		} while (n == (ssize_t)MIB);
		expect(pthread_join(thread, NULL) == 0);
		if (n != -EFAULT && (n <= 0 || n > (ssize_t)MIB))
			fail("a read into memory that was freed: %zd", n);
		nr_cut += n > 0;
		if (i % 2)
			expect(peerlane_buffer_release(e.ctx, gpu) == 0);
		engine_renew(&e);
		before = p2p_bytes(&e);
		expect(peerlane_read(file, e.gpu, MIB, 0) == (ssize_t)MIB);
		expect(p2p_bytes(&e) == before + MIB);
		expect(peerlane_gpu_copy(e.ctx, e.seen, e.gpu, MIB) == 0);
		expect(memcmp(e.seen, data, MIB) == 0);
	}
	printf("%u rounds, %u reads cut short\n", nr, nr_cut);
	expect(peerlane_file_close(file) == 0);
	engine_close(&e);
	close(fd);
	free(data);
	bystander_end(&other);
	return 0;
}

/* None of the modules goes while a context uses them, and trying disturbs no request. */
int test_engine_unload(void)
{
	static const char *const modules[] = { "simgpu", "peerlane", "peerlane_nvidia" };
	int fd = drive_open("raw0", O_RDWR | O_DIRECT);
	unsigned char *data = host_alloc(USE_BYTES);
	unsigned int nr = rounds(200);
	struct bystander other;
	struct user u = { 0 };
	struct engine e;
	pthread_t thread;

	bystander_start(&other);
	engine_open(&e);
	expect(pread(fd, data, USE_BYTES, 0) == (ssize_t)USE_BYTES);
	u.e = &e;
	u.want = data;
	expect(peerlane_file_from_fd(e.ctx, fd, &u.file) == 0);
	use_start(&u, &thread);
	for (unsigned int i = 0; i < nr; i++)
		for (size_t m = 0; m < sizeof(modules) / sizeof(*modules); m++)
			expect_errno(rmmod(modules[m]), EWOULDBLOCK);
	__atomic_store_n(&u.stop, true, __ATOMIC_RELEASE);
	expect(pthread_join(thread, NULL) == 0);
	expect(u.last == (ssize_t)USE_BYTES);
	expect(p2p_bytes(&e) == u.nr_full * USE_BYTES);
	printf("%u rounds, %u requests meanwhile\n", nr, u.nr_full);
	expect(peerlane_file_close(u.file) == 0);
	engine_close(&e);
	close(fd);
	free(data);
	bystander_end(&other);
	return 0;
}

/* The GPU loses its driver under a context: requests end, and so can the context. */
static void lose_gpu(void *data)
{
	const char *pci = data;
	int fd = drive_open("slow0", O_RDONLY | O_DIRECT);
	struct user u = { 0 };
	struct engine e;
	pthread_t thread;

	engine_open_depth(&e, 64 * KIB, 2);
	u.e = &e;
	u.gpu_goes = true;
	u.want = host_alloc(USE_BYTES);
	expect(pread(fd, u.want, USE_BYTES, 0) == (ssize_t)USE_BYTES);
	expect(peerlane_file_from_fd(e.ctx, fd, &u.file) == 0);
	use_start(&u, &thread);
	expect(echo("/sys/bus/pci/drivers/simgpu/unbind", pci) == 0);
	expect(pthread_join(thread, NULL) == 0);
	printf("the GPU is gone: %zd after %u requests\n", u.last, u.nr_full);
	expect(u.last == -EREMOTEIO || u.last == -EFAULT);
	expect(peerlane_read(u.file, e.gpu, MIB, 0) < 0);
	expect(peerlane_file_close(u.file) == 0);
	peerlane_gpu_free(e.ctx, e.gpu);
	e.gpu = NULL;
	engine_close(&e);
}

int test_engine_gpu_gone(void)
{
	unsigned int nr = rounds(3);
	char pci[32];
	uint64_t at;

	srand(5);
	at = gpu_state(gpu_open()).pci;
	snprintf(pci, sizeof(pci), "%04x:%02x:%02x.%x", (unsigned int)(at >> 16),
		 (unsigned int)(at >> 8) & 0xff, (unsigned int)(at >> 3) & 0x1f,
		 (unsigned int)at & 7);
	for (unsigned int i = 0; i < nr; i++) {
		in_child(lose_gpu, pci, 0);
		expect(echo("/sys/bus/pci/drivers/simgpu/bind", pci) == 0);
		while (access("/dev/simgpu", F_OK))
			sleep_ms(1);
	}
	printf("%u rounds\n", nr);
	return 0;
}
