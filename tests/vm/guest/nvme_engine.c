// SPDX-License-Identifier: MIT
/*
 * Files of the library that are namespaces of a controller which programs drive: data goes straight into GPU
 * memory that is pinned, and every byte is where it belongs, whatever way it took.
 */
#include <pthread.h>

#include "engine.h"
#include "nvme_lab.h"

#define DRIVE "slow0"
#define NAME "nvme:" DRIVE "/1"
#define DRIVE_BYTES (16 * MIB)
/* Parts of the drive, which is slow, that may be written: nobody compares them from outside. */
#define PART (8 * MIB)
#define PART_BYTES (4 * MIB)
#define END (DRIVE_BYTES - 256 * KIB)
#define END_BYTES (256 * KIB)

static const struct {
	size_t at, bytes, offset;
	bool straight;
} cases[] = {
	{ 0, 2 * MIB, PART + MIB, true },
	{ 0, 512, PART + 512, true },
	{ 4096, 8192, PART + 8192, true },
	{ 65536 - 512, 128 * KIB, PART + 512, true },
	{ 1000, 300 * KIB, PART + 1024, true },
	{ 4, 64 * KIB, PART + 4096, true },
	{ 3, 64 * KIB, PART + 4096, false },
	{ 0, 1000, PART + 512, false },
	{ 4096, 4096, PART + 100, false },
	{ 65536 + 1024, 512 * KIB + 512, PART + 3 * MIB, true },
	{ 8192, 1 * MIB, END, true }, /* past the end */
	{ 0, 4096, DRIVE_BYTES, false },
};

#define NR_CASES (sizeof(cases) / sizeof(*cases))

/* What the drive holds in these parts, as the kernel sees it. */
static unsigned char *drive_content(void)
{
	unsigned char *data = host_alloc(DRIVE_BYTES);
	int fd = drive_open(DRIVE, O_RDONLY | O_DIRECT);

	expect(pread(fd, data + PART, PART_BYTES, PART) == (ssize_t)PART_BYTES);
	expect(pread(fd, data + END, END_BYTES, END) == (ssize_t)END_BYTES);
	close(fd);
	return data;
}

static void registered(struct engine *e)
{
	expect(peerlane_buffer_register(e->ctx, e->gpu, ROOM, 0) == 0);
}

static void reads(struct engine *e, struct peerlane_file *file, const unsigned char *data)
{
	for (size_t i = 0; i < NR_CASES; i++) {
		size_t off = cases[i].offset, want = cases[i].bytes, before = p2p_bytes(e);
		bool straight = cases[i].straight && !e->no_p2p;
		ssize_t n = peerlane_read(file, e->gpu + cases[i].at, want, (off_t)off);

		if (want > DRIVE_BYTES - off)
			want = DRIVE_BYTES - off;
		if (n != (ssize_t)want)
			fail("read case %zu: %zd and not %zu", i, n, want);
		memcpy(e->model + cases[i].at, data + off, want);
		check_gpu(e, "read", i);
		if (p2p_bytes(e) - before != (straight ? want : 0))
			fail("read case %zu: %zu bytes by p2p", i, p2p_bytes(e) - before);
	}
}

static void writes(struct engine *e, struct peerlane_file *file, unsigned char *data)
{
	unsigned char *seen = host_alloc(DRIVE_BYTES);

	for (size_t i = 0; i < NR_CASES; i++) {
		size_t off = cases[i].offset, bytes = cases[i].bytes, before = p2p_bytes(e);
		bool straight = cases[i].straight && !e->no_p2p;
		ssize_t n, want = (ssize_t)bytes;

		if (bytes > DRIVE_BYTES - off)
			want = off == DRIVE_BYTES ? -ENOSPC : (ssize_t)(DRIVE_BYTES - off);
		fill(e->model, ROOM, 100 + i);
		expect(peerlane_gpu_copy(e->ctx, e->gpu, e->model, ROOM) == 0);
		n = peerlane_write(file, e->gpu + cases[i].at, bytes, (off_t)off,
				   i % 2 ? PEERLANE_DURABLE : 0);
		if (n != want)
			fail("write case %zu: %zd and not %zd", i, n, want);
		if (n > 0)
			memcpy(data + off, e->model + cases[i].at, (size_t)n);
		if (p2p_bytes(e) - before != (straight ? (size_t)want : 0))
			fail("write case %zu: %zu bytes by p2p", i, p2p_bytes(e) - before);
	}
	/* By the way through host memory, which is another one. */
	expect(peerlane_read(file, seen, PART_BYTES, PART) == (ssize_t)PART_BYTES);
	expect(memcmp(seen, data + PART, PART_BYTES) == 0);
	expect(peerlane_read(file, seen, END_BYTES, END) == (ssize_t)END_BYTES);
	expect(memcmp(seen, data + END, END_BYTES) == 0);
	free(seen);
}

/* For a look from outside: the library's memory, pinned once more. */
static void memory_of(struct engine *e, struct memory *memory)
{
	struct peerlane_info info = { 0 };

	*memory = (struct memory){ .dev = dev_open(), .address = (uintptr_t)e->gpu, .bytes = ROOM };
	expect(dev_pin(memory->dev, memory->address, ROOM, 0, &memory->pin) == 0);
	memory->physical = calloc(memory->pin.map_bytes / GPU_PAGE, sizeof(uint64_t));
	info.handle = memory->pin.handle;
	info.physical = (uintptr_t)memory->physical;
	info.nr_room = (uint32_t)(memory->pin.map_bytes / GPU_PAGE);
	expect(ioctl(memory->dev, PEERLANE_IOC_INFO, &info) == 0);
}

static void check_tool(void)
{
	setenv("PEERLANE_BACKEND", "simgpu", 1);
	command("peerlane check " NAME " | sed -n '/^A read/,$p'", "read: p2p");
	unsetenv("PEERLANE_BACKEND");
}

int test_nvme_kmod_engine(void)
{
	unsigned char *data = drive_content();
	struct pci pci = take_drive(DRIVE, "kmod");
	struct peerlane_verdict v;
	struct peerlane_file *file;
	struct memory memory;
	struct engine e;

	engine_open(&e);
	file = open_file(&e, NAME, O_RDWR);
	/* What is not registered goes through host memory, and the reason is told. */
	v = verdict(&e, file, PEERLANE_READ, MIB);
	expect(!v.usable && strstr(v.reason, "not registered") && strstr(v.fix, "register"));
	e.no_p2p = true;
	reads(&e, file, data);
	e.no_p2p = false;
	registered(&e);
	expect(verdict(&e, file, PEERLANE_READ, MIB).usable);
	expect(verdict(&e, file, PEERLANE_WRITE, MIB).usable);
	reads(&e, file, data);
	writes(&e, file, data);
	/* The last of each is compared from outside. */
	expect(peerlane_read(file, e.gpu, MIB, 4 * MIB) == (ssize_t)MIB);
	expect(peerlane_write(file, e.gpu + 3 * MIB, MIB, 0, 0) == (ssize_t)MIB);
	memory_of(&e, &memory);
	say_bar(&memory, 0, MIB, DRIVE, 4 * MIB);
	say_disk(DRIVE, 0, MIB, &memory, 3 * MIB);
	expect(dev_unpin(memory.dev, memory.pin.handle) == 0);
	close(memory.dev);
	printf("p2p bytes %zu\n", p2p_bytes(&e));
	/* The library's own test, and the tool's. */
	say_direct(p2p_bytes(&e) + 2 * TEST_BYTES);
	/* Released while the file is open, and the other way round. */
	expect(nvme_counter("mapped_bytes") > 0);
	expect(peerlane_buffer_release(e.ctx, e.gpu) == 0);
	expect(!verdict(&e, file, PEERLANE_READ, MIB).usable);
	registered(&e);
	expect(verdict(&e, file, PEERLANE_READ, MIB).usable);
	expect(peerlane_file_close(file) == 0);
	nvme_wait_idle();
	expect(dev_counters(dev_open()).pins == 0);
	engine_close(&e);
	check_tool();
	give_back(pci, DRIVE);
	return 0;
}

/* The same where p2p is switched off: all is right, and nothing goes straight. */
int test_nvme_kmod_engine_staged(void)
{
	unsigned char *data = drive_content();
	struct pci pci = take_drive(DRIVE, "kmod");
	struct peerlane_verdict v;
	struct peerlane_file *file;
	struct engine e;

	setenv("PEERLANE_FLAGS", "no-p2p", 1);
	engine_open(&e);
	unsetenv("PEERLANE_FLAGS");
	file = open_file(&e, NAME, O_RDWR);
	registered(&e);
	v = verdict(&e, file, PEERLANE_READ, MIB);
	expect(!v.usable && strstr(v.reason, "switched off"));
	e.no_p2p = true;
	reads(&e, file, data);
	writes(&e, file, data);
	expect(p2p_bytes(&e) == 0);
	say_direct(0);
	engine_close(&e);
	give_back(pci, DRIVE);
	return 0;
}

/* Where the controller cannot reach the GPU, or nobody knows how it could: said, and the data is right. */
static int refused(const char *driver, const char *reason)
{
	unsigned char *data = drive_content();
	struct pci pci = take_drive(DRIVE, driver);
	struct peerlane_verdict v;
	struct peerlane_file *file;
	char name[64];
	struct engine e;

	engine_open(&e);
	snprintf(name, sizeof(name), "nvme:%s:%s/1", driver, pci.text);
	file = open_file(&e, name, O_RDWR);
	registered(&e);
	v = verdict(&e, file, PEERLANE_READ, MIB);
	expect(!v.usable && strstr(v.reason, reason) && v.fix[0]);
	e.no_p2p = true;
	reads(&e, file, data);
	say_direct(0);
	engine_close(&e);
	give_back(pci, DRIVE);
	return 0;
}

int test_nvme_kmod_engine_refused(void)
{
	return refused("kmod", "does not allow");
}

int test_nvme_vfio_engine(void)
{
	return refused("vfio", "peerlane_nvme");
}

struct reader {
	struct peerlane_file *file;
	char *gpu;
	ssize_t result;
};

static void *read_slowly(void *arg)
{
	struct reader *r = arg;

	r->result = peerlane_read(r->file, r->gpu, PART_BYTES, PART);
	return NULL;
}

/* Reads into other memory until it is told to stop: each of them must be right. */
struct other {
	struct engine *e;
	struct peerlane_file *file;
	const unsigned char *data;
	char *gpu;
	bool stop;
	unsigned int nr;
};

static void *read_other(void *arg)
{
	unsigned char *seen = host_alloc(64 * KIB);
	struct other *o = arg;

	while (!__atomic_load_n(&o->stop, __ATOMIC_ACQUIRE)) {
		size_t off = PART + o->nr % 64 * 64 * KIB;
		ssize_t n = peerlane_read(o->file, o->gpu, 64 * KIB, (off_t)off);

		if (n != 64 * (ssize_t)KIB)
			fail("another read: %zd", n);
		expect(peerlane_gpu_copy(o->e->ctx, seen, o->gpu, 64 * KIB) == 0);
		expect(memcmp(seen, o->data + off, 64 * KIB) == 0);
		o->nr++;
	}
	free(seen);
	return NULL;
}

/* GPU memory is freed while the controller writes it: the request ends, others notice nothing. */
int test_nvme_kmod_engine_freed(void)
{
	unsigned char *data = drive_content();
	struct pci pci = take_drive(DRIVE, "kmod");
	pthread_t slow, beside;
	struct reader r;
	struct other o;
	struct engine e;
	void *memory;
	size_t before;

	engine_open(&e);
	r.file = open_file(&e, NAME, O_RDWR);
	expect(peerlane_gpu_alloc(e.ctx, 0, 64 * KIB, &memory) == 0);
	expect(peerlane_buffer_register(e.ctx, memory, 64 * KIB, 0) == 0);
	o = (struct other){ .e = &e, .file = r.file, .data = data, .gpu = memory };
	expect(pthread_create(&beside, NULL, read_other, &o) == 0);
	for (unsigned int i = 0; i < 3; i++) {
		long long stops = nvme_counter("nr_stops");

		registered(&e);
		r.gpu = e.gpu;
		expect(verdict(&e, r.file, PEERLANE_READ, PART_BYTES).usable);
		expect(pthread_create(&slow, NULL, read_slowly, &r) == 0);
		sleep_ms(60 + 30 * i);
		expect(peerlane_gpu_free(e.ctx, e.gpu) == 0);
		expect(pthread_join(slow, NULL) == 0);
		printf("freed meanwhile: %zd; stops %lld\n", r.result,
		       nvme_counter("nr_stops") - stops);
		while (nvme_counter("nr_stops") == stops)
			sleep_ms(20);
		expect(nvme_counter("nr_stops") == stops + 1);
		expect(r.result == -EFAULT || r.result == (ssize_t)PART_BYTES);
		expect(peerlane_buffer_release(e.ctx, r.gpu) == 0);
		/* Other memory goes the same way at once. */
		engine_renew(&e);
		registered(&e);
		before = p2p_bytes(&e);
		expect(peerlane_read(r.file, e.gpu, MIB, PART) == (ssize_t)MIB);
		expect(p2p_bytes(&e) >= before + MIB);
		expect(peerlane_gpu_copy(e.ctx, e.seen, e.gpu, MIB) == 0);
		expect(memcmp(e.seen, data + PART, MIB) == 0);
		expect(peerlane_buffer_release(e.ctx, e.gpu) == 0);
	}
	__atomic_store_n(&o.stop, true, __ATOMIC_RELEASE);
	expect(pthread_join(beside, NULL) == 0);
	printf("%u reads beside it\n", o.nr);
	/* That memory goes straight again, too. */
	before = p2p_bytes(&e);
	expect(peerlane_read(r.file, o.gpu, 64 * KIB, 0) == 64 * (ssize_t)KIB);
	expect(p2p_bytes(&e) == before + 64 * KIB);
	expect(peerlane_file_close(r.file) == 0);
	expect(peerlane_gpu_free(e.ctx, o.gpu) == 0);
	engine_close(&e);
	nvme_wait_idle();
	give_back(pci, DRIVE);
	return 0;
}
