// SPDX-License-Identifier: MIT
/*
 * The library while drives, processes or the GPU go, and while somebody tries to unload modules: each
 * request says what it did, or why not, and a process with another drive notices nothing.
 */
#include <sys/mount.h>

#include "engine.h"

/* A part of the drive slow0 that no other test looks at. */
#define SLOW_WRITE (8 * MIB)

#define DRIVER "/sys/bus/pci/drivers/nvme/"

static bool gone_error(ssize_t n)
{
	/* The first for requests that the kernel had taken already. */
	return n == -EIO || n == -ENXIO;
}

/**
 * struct user - a thread that reads or writes without end, until an error
 * @e: whose memory
 * @file: what
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

/* The drive goes while it is used, and the requests say so. */
static void unplug(struct user *u, const char *pci)
{
	size_t before = p2p_bytes(u->e);
	pthread_t thread;

	use_start(u, &thread);
	expect(p2p_bytes(u->e) > before);
	expect(echo(DRIVER "unbind", pci) == 0);
	expect(pthread_join(thread, NULL) == 0);
	if (!gone_error(u->last))
		fail("%s of a drive that is gone: %zd", u->write ? "a write" : "a read", u->last);
}

/* It comes back, perhaps by another name. */
static void plug(const char *serial, const char *pci)
{
	expect(echo(DRIVER "bind", pci) == 0);
	expect(drive_wait(serial, 60000));
}

/* Same data, same path. */
static void read_back(const struct user *u)
{
	size_t before = p2p_bytes(u->e);

	expect(peerlane_read(u->file, u->e->gpu, USE_BYTES, (off_t)u->first) == (ssize_t)USE_BYTES);
	expect(p2p_bytes(u->e) == before + USE_BYTES);
	expect(peerlane_gpu_copy(u->e->ctx, u->e->seen, u->e->gpu, USE_BYTES) == 0);
	expect(memcmp(u->e->seen, u->want, USE_BYTES) == 0);
}

/* One round on a drive without a file system. */
static void unplug_raw(struct user *u, const char *pci, unsigned int round)
{
	struct engine *e = u->e;
	int fd = drive_open("slow0", O_RDWR | O_DIRECT);

	u->write = round % 2;
	u->first = u->write ? SLOW_WRITE : 0;
	if (u->write)
		fill(u->want, USE_BYTES, round);
	else
		expect(pread(fd, u->want, USE_BYTES, 0) == (ssize_t)USE_BYTES);
	expect(peerlane_file_from_fd(e->ctx, fd, &u->file) == 0);
	unplug(u, pci);
	/* It stays so, with and without the path. */
	expect(gone_error(peerlane_read(u->file, e->gpu, 64 * KIB, 0)));
	expect(gone_error(peerlane_read(u->file, e->gpu + 100, 1000, 7)));
	expect(gone_error(peerlane_write(u->file, e->gpu, 64 * KIB, (off_t)SLOW_WRITE, 0)));
	expect(gone_error(peerlane_write(u->file, e->gpu + 1, 1000, (off_t)SLOW_WRITE, 0)));
	expect(peerlane_file_close(u->file) == 0);
	close(fd);

	plug("slow0", pci);
	fd = drive_open("slow0", O_RDONLY | O_DIRECT);
	expect(peerlane_file_from_fd(e->ctx, fd, &u->file) == 0);
	read_back(u);
	expect(peerlane_file_close(u->file) == 0);
	close(fd);
}

int test_engine_unplugged(void)
{
	unsigned int nr = rounds(6), nr_full = 0;
	struct bystander other;
	struct engine e;
	struct user u = { .e = &e, .want = host_alloc(USE_BYTES) };
	char pci[32];

	bystander_start(&other);
	srand(1);
	drive_pci("slow0", pci, sizeof(pci));
	engine_open_depth(&e, 64 * KIB, 2);
	for (unsigned int i = 0; i < nr; i++) {
		unplug_raw(&u, pci, i);
		nr_full += u.nr_full;
	}
	printf("%u rounds, %u requests done before\n", nr, nr_full);
	engine_close(&e);
	free(u.want);
	bystander_end(&other);
	return 0;
}

/* The same below a file system: it gives up, and finds its data again. */
int test_engine_unplugged_fs(void)
{
	unsigned int nr = rounds(2);
	struct bystander other;
	char pci[32], device[DISK_PATH];
	struct engine e;
	struct user u = { .e = &e };

	bystander_start(&other);
	srand(2);
	drive_pci("xfs0", pci, sizeof(pci));
	u.want = make_file("/xfs/unplugged", USE_BYTES, 91);
	engine_open_depth(&e, 64 * KIB, 2);
	for (unsigned int i = 0; i < nr; i++) {
		u.write = i % 2;
		u.file = open_file(&e, "/xfs/unplugged", O_RDWR | O_DIRECT);
		unplug(&u, pci);
		expect(peerlane_file_close(u.file) == 0);
		expect(umount2("/xfs", 0) == 0);

		plug("xfs0", pci);
		disk_path("serial", "xfs0", device);
		expect(mount(device, "/xfs", "xfs", 0, NULL) == 0);
		u.file = open_file(&e, "/xfs/unplugged", O_RDONLY | O_DIRECT);
		read_back(&u);
		expect(peerlane_file_close(u.file) == 0);
	}
	printf("%u rounds\n", nr);
	engine_close(&e);
	unlink("/xfs/unplugged");
	free(u.want);
	bystander_end(&other);
	return 0;
}

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
