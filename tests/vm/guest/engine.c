// SPDX-License-Identifier: MIT
/*
 * The library on the test GPU: its path p2p moves the bytes it says it moves, and every byte is
 * where it belongs, whatever way it took.
 */
#include <pthread.h>
#include <sys/stat.h>

#include "engine.h"

static const struct {
	size_t at, bytes, offset;
	bool some; /* a part goes by p2p */
} cases[] = {
	{ 0, 4 * MIB, 0, true },
	{ 0, 512, 512, false },
	{ 4096, 8192, 8192, true },
	{ 65536 - 4096, 128 * KIB, 4096, true },
	{ 1000, 300 * KIB, 1000, true },
	{ 1000 + 4096, 300 * KIB + 77, 4096 * 7 + 1000, true },
	{ 3, 200 * KIB, 0, false },
	{ 100, 100, 5, false },
	{ 100, 5000, 8100, false },
	{ 65536 + 999, 1 * MIB + 1, 3 * 4096 + 999, true },
	{ 8192, 1 * MIB, 3 * MIB + 4096 * 3, true },
	{ 8192, 2 * MIB, 3 * MIB, true }, /* past the end */
	{ 1000, 1000, 4 * MIB, false },
	{ 0, 4096, 8 * MIB, false },
};

#define NR_CASES (sizeof(cases) / sizeof(*cases))

void read_cases(struct engine *e, const char *path)
{
	unsigned char *data = make_file(path, FILE_BYTES, 21);
	struct peerlane_file *file = open_file(e, path, O_RDONLY | O_DIRECT);

	expect(verdict(e, file, PEERLANE_READ, FILE_BYTES).usable == !e->no_p2p);
	for (size_t i = 0; i < NR_CASES; i++) {
		size_t off = cases[i].offset, before = p2p_bytes(e), want = cases[i].bytes;
		ssize_t n = peerlane_read(file, e->gpu + cases[i].at, want, (off_t)off);

		if (off + want > FILE_BYTES)
			want = off < FILE_BYTES ? FILE_BYTES - off : 0;
		if (n != (ssize_t)want)
			fail("read case %zu: %zd and not %zu", i, n, want);
		memcpy(e->model + cases[i].at, data + (want ? off : 0), want);
		check_gpu(e, "read", i);
		if ((cases[i].some && !e->no_p2p) != (p2p_bytes(e) > before) &&
		    cases[i].bytes > 4096)
			fail("read case %zu: %zu bytes by p2p", i, p2p_bytes(e) - before);
	}
	expect(peerlane_file_close(file) == 0);
	free(data);
}

void write_cases(struct engine *e, const char *path)
{
	unsigned char *data = make_file(path, FILE_BYTES, 22), *seen = host_alloc(16 * MIB);
	struct peerlane_file *file = open_file(e, path, O_RDWR | O_DIRECT);
	size_t size = FILE_BYTES;
	int fd = open(path, O_RDONLY);

	data = realloc(data, 16 * MIB);
	memset(data + size, 0, 16 * MIB - size);
	expect(verdict(e, file, PEERLANE_WRITE, 4 * MIB).usable == !e->no_p2p);
	for (size_t i = 0; i < NR_CASES; i++) {
		size_t off = cases[i].offset, bytes = cases[i].bytes, before = p2p_bytes(e);
		ssize_t n;

		/* Other bytes each time. */
		fill(e->model, ROOM, 100 + i);
		expect(peerlane_gpu_copy(e->ctx, e->gpu, e->model, ROOM) == 0);
		n = peerlane_write(file, e->gpu + cases[i].at, bytes, (off_t)off,
				   i % 2 ? PEERLANE_DURABLE : 0);
		if (n != (ssize_t)bytes)
			fail("write case %zu: %zd", i, n);
		memcpy(data + off, e->model + cases[i].at, bytes);
		if (off + bytes > size)
			size = off + bytes;
		expect(pread(fd, seen, 16 * MIB, 0) == (ssize_t)size);
		if (memcmp(seen, data, size) != 0)
			fail("write case %zu: the file is wrong", i);
		if (cases[i].some && (p2p_bytes(e) == before) != e->no_p2p)
			fail("write case %zu: %zu bytes by p2p", i, p2p_bytes(e) - before);
	}
	close(fd);
	expect(peerlane_file_close(file) == 0);
	free(data);
	free(seen);
}

/* A file opened without O_DIRECT: from the drive when cold, from the page cache when there. */
static void plain_cases(struct engine *e, const char *path)
{
	unsigned char *data = make_file(path, FILE_BYTES, 23);
	struct peerlane_file *file = open_file(e, path, O_RDONLY);
	int fd = open(path, O_RDONLY);
	size_t before = p2p_bytes(e);

	expect(peerlane_read(file, e->gpu, 2 * MIB, 0) == (ssize_t)(2 * MIB));
	expect(p2p_bytes(e) == before + 2 * MIB);
	memcpy(e->model, data, 2 * MIB);
	fill(e->model + 2 * MIB, ROOM - 2 * MIB, 5);
	expect(peerlane_gpu_copy(e->ctx, e->gpu + 2 * MIB, e->model + 2 * MIB, ROOM - 2 * MIB) ==
	       0);
	check_gpu(e, "plain", 0);
	expect(pread(fd, e->seen, 2 * MIB, 0) == (ssize_t)(2 * MIB));
	before = p2p_bytes(e);
	expect(peerlane_read(file, e->gpu, 2 * MIB, 0) == (ssize_t)(2 * MIB));
	expect(p2p_bytes(e) == before);
	check_gpu(e, "plain", 1);
	close(fd);
	expect(peerlane_file_close(file) == 0);
	free(data);
}

static int on_directory(const char *dir)
{
	char path[64];
	struct engine e;

	engine_open(&e);
	snprintf(path, sizeof(path), "%s/engine", dir);
	read_cases(&e, path);
	write_cases(&e, path);
	plain_cases(&e, path);
	/* The same with a registered buffer, which has a pin of its own. */
	expect(peerlane_buffer_register(e.ctx, e.gpu, ROOM, 0) == 0);
	fill(e.model, ROOM, 12);
	expect(peerlane_gpu_copy(e.ctx, e.gpu, e.model, ROOM) == 0);
	read_cases(&e, path);
	expect(peerlane_buffer_release(e.ctx, e.gpu) == 0);
	printf("p2p bytes %zu\n", p2p_bytes(&e));
	expect(p2p_bytes(&e) > 16 * MIB);
	say_direct(p2p_bytes(&e) + TEST_BYTES);
	engine_close(&e);
	unlink(path);
	return 0;
}

int test_engine_ext4(void)
{
	return on_directory("/mnt");
}

int test_engine_xfs(void)
{
	return on_directory("/xfs");
}

/* Many requests at once, of several sizes and alignments. */
void batch_cases(struct engine *e, const char *path)
{
	enum { NR = 64 };
	unsigned char *data = make_file(path, FILE_BYTES, 31), *seen = host_alloc(FILE_BYTES);
	struct peerlane_event events[NR];
	struct peerlane_batch *batch;
	struct peerlane_io io[NR];
	struct peerlane_file *file;
	int fd, got = 0;

	file = open_file(e, path, O_RDWR | O_DIRECT);
	expect(peerlane_batch_create(e->ctx, NR, &batch) == 0);
	for (int round = 0; round < 2; round++) {
		enum peerlane_op op = round ? PEERLANE_WRITE : PEERLANE_READ;

		if (round) {
			fill(e->model, ROOM, 32);
			expect(peerlane_gpu_copy(e->ctx, e->gpu, e->model, ROOM) == 0);
		}
		for (size_t i = 0; i < NR; i++) {
			size_t at = i * 64 * KIB, odd = i % 4 == 3 ? 700 : 0;

			io[i] = (struct peerlane_io){ .file = file,
						      .op = op,
						      .addr = e->gpu + at + odd,
						      .bytes = 60 * KIB + odd,
						      .offset = (off_t)(at + odd),
						      .cookie = &io[i] };
			if (round)
				memcpy(data + at + odd, e->model + at + odd, 60 * KIB + odd);
			else
				memcpy(e->model + at + odd, data + at + odd, 60 * KIB + odd);
		}
		expect(peerlane_batch_submit(batch, io, NR) == 0);
		for (got = 0; got < NR;) {
			int n = peerlane_batch_wait(batch, 1, events, NR, NULL);

			expect(n > 0);
			for (int i = 0; i < n; i++) {
				const struct peerlane_io *r = events[i].cookie;

				if (events[i].result != (ssize_t)r->bytes)
					fail("request %zd: %zd", r - io, events[i].result);
			}
			got += n;
		}
		check_gpu(e, "batch", (size_t)round);
	}
	fd = open(path, O_RDONLY);
	expect(pread(fd, seen, FILE_BYTES, 0) == (ssize_t)FILE_BYTES);
	expect(memcmp(seen, data, FILE_BYTES) == 0);
	close(fd);
	peerlane_batch_destroy(batch);
	expect(peerlane_file_close(file) == 0);
	free(data);
	free(seen);
}

int test_engine_batch(void)
{
	struct engine e;

	engine_open(&e);
	batch_cases(&e, "/mnt/batch");
	printf("p2p bytes %zu\n", p2p_bytes(&e));
	expect(p2p_bytes(&e) > 6 * MIB);
	say_direct(p2p_bytes(&e) + TEST_BYTES);
	engine_close(&e);
	unlink("/mnt/batch");
	return 0;
}

/* What the CPU fills in without the drive, and other users of the file: no DMA is counted. */
int test_engine_holes(void)
{
	unsigned char *data = host_alloc(FILE_BYTES), *seen = host_alloc(ROOM);
	int fd = open("/mnt/holes", O_RDWR | O_CREAT | O_TRUNC, 0600);
	struct peerlane_file *file;
	struct engine e;

	engine_open(&e);
	fill(data, 8192, 41);
	fill(data + MIB, 128 * KIB, 42);
	expect(pwrite(fd, data, 8192, 0) == 8192);
	expect(pwrite(fd, data + MIB, 128 * KIB, MIB) == 128 * (ssize_t)KIB);
	expect(ftruncate(fd, FILE_BYTES) == 0);
	/* Still dirty in the page cache. */
	file = open_file(&e, "/mnt/holes", O_RDWR | O_DIRECT);
	expect(peerlane_read(file, e.gpu, ROOM, 0) == (ssize_t)FILE_BYTES);
	memcpy(e.model, data, FILE_BYTES);
	check_gpu(&e, "holes", 0);
	/* A buffered write is seen, and so is ours by buffered readers; past the end as well. */
	for (size_t i = 0; i < 40; i++) {
		size_t at = i * 100 * KIB, off = i * 96 * KIB + 3 * MIB;

		fill(data + at, 64, i);
		expect(pwrite(fd, data + at, 64, (off_t)at) == 64);
		expect(peerlane_read(file, e.gpu, FILE_BYTES, 0) == (ssize_t)FILE_BYTES);
		expect(peerlane_gpu_copy(e.ctx, e.seen, e.gpu, FILE_BYTES) == 0);
		expect(memcmp(e.seen, data, FILE_BYTES) == 0);
		if (off + 64 * KIB > FILE_BYTES)
			continue;
		fill(data + off, 64 * KIB, i + 50);
		expect(peerlane_gpu_copy(e.ctx, e.gpu, data + off, 64 * KIB) == 0);
		expect(peerlane_write(file, e.gpu, 64 * KIB, (off_t)off, 0) == 64 * (ssize_t)KIB);
		expect(pread(fd, seen, ROOM, 0) == (ssize_t)FILE_BYTES);
		expect(memcmp(seen, data, FILE_BYTES) == 0);
	}
	expect(p2p_bytes(&e) > 100 * MIB);
	expect(peerlane_file_close(file) == 0);
	engine_close(&e);
	unlink("/mnt/holes");
	return 0;
}

struct slow_read {
	struct peerlane_file *file;
	char *gpu;
	ssize_t result;
};

static void *slow_reader(void *arg)
{
	struct slow_read *r = arg;

	r->result = peerlane_read(r->file, r->gpu, 4 * MIB, 0);
	return NULL;
}

/* GPU memory is freed while a drive writes it: the request ends, and others go on. */
int test_engine_freed(void)
{
	int fd = drive_open("slow0", O_RDONLY | O_DIRECT);
	unsigned char *data = host_alloc(MIB);
	struct slow_read r;
	struct engine e;
	int nr_cut = 0;
	pthread_t thread;
	void *memory;

	/* Few requests under way, so that others come when the memory is gone. */
	engine_open_depth(&e, 64 * KIB, 2);
	expect(peerlane_file_from_fd(e.ctx, fd, &r.file) == 0);
	expect(verdict(&e, r.file, PEERLANE_READ, 4 * MIB).usable);
	expect(pread(fd, data, MIB, 0) == (ssize_t)MIB);
	for (int i = 0; i < 4; i++) {
		size_t before = p2p_bytes(&e);

		r.gpu = e.gpu;
		r.result = -1;
		if (i % 2)
			expect(peerlane_buffer_register(e.ctx, e.gpu, ROOM, 0) == 0);
		expect(pthread_create(&thread, NULL, slow_reader, &r) == 0);
		sleep_ms(60 + 30 * (unsigned int)i);
		expect(peerlane_gpu_free(e.ctx, e.gpu) == 0);
		expect(pthread_join(thread, NULL) == 0);
		printf("freed meanwhile: %zd, %zu by p2p\n", r.result, p2p_bytes(&e) - before);
		expect(r.result <= (ssize_t)(4 * MIB));
		/* What is counted is true: it went there by DMA while the memory was there. */
		if (r.result >= 0)
			expect(p2p_bytes(&e) - before >= (size_t)r.result);
		nr_cut += r.result < (ssize_t)(4 * MIB);
		if (i % 2)
			expect(peerlane_buffer_release(e.ctx, r.gpu) == 0);
		/* Other memory goes the same way at once. */
		expect(peerlane_gpu_alloc(e.ctx, 0, ROOM, &memory) == 0);
		e.gpu = memory;
		before = p2p_bytes(&e);
		expect(peerlane_read(r.file, e.gpu, MIB, 0) == (ssize_t)MIB);
		expect(p2p_bytes(&e) == before + MIB);
		expect(peerlane_gpu_copy(e.ctx, e.seen, e.gpu, MIB) == 0);
		expect(memcmp(e.seen, data, MIB) == 0);
	}
	expect(nr_cut > 0);
	expect(peerlane_file_close(r.file) == 0);
	engine_close(&e);
	return 0;
}

int spoil_mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	int nr = 0;

	expect(maps);
	while (fgets(line, sizeof(line), maps)) {
		unsigned long start, end;

		if (!strstr(line, "/dev/peerlane") || sscanf(line, "%lx-%lx", &start, &end) != 2)
			continue;
		expect(mprotect((void *)start, end - start, PROT_NONE) == 0);
		nr++;
	}
	fclose(maps);
	return nr;
}

/* Transfers that fail by p2p go another way, and the next requests by p2p again. */
int test_engine_fallback(void)
{
	unsigned char *data = make_file("/mnt/fallback", FILE_BYTES, 71);
	unsigned char *seen = host_alloc(FILE_BYTES);
	int fd = open("/mnt/fallback", O_RDONLY);
	struct peerlane_file *file;
	struct engine e;
	size_t before;

	engine_open(&e);
	file = open_file(&e, "/mnt/fallback", O_RDWR | O_DIRECT);
	for (int round = 0; round < 6; round++) {
		bool write = round % 2;
		size_t bytes = round < 2 ? 64 * KIB : 3 * MIB + 100;

		if (round >= 4)
			expect(peerlane_buffer_register(e.ctx, e.gpu, ROOM, 0) == 0);
		before = p2p_bytes(&e);
		expect(peerlane_read(file, e.gpu, MIB, 0) == (ssize_t)MIB);
		expect(p2p_bytes(&e) == before + MIB);
		memcpy(e.model, data, MIB);
		expect(spoil_mappings() > 0);
		fill(e.model, ROOM, 80 + (uint64_t)round);
		expect(peerlane_gpu_copy(e.ctx, e.gpu, e.model, ROOM) == 0);
		before = p2p_bytes(&e);
		if (write) {
			expect(peerlane_write(file, e.gpu, bytes, 8192, 0) == (ssize_t)bytes);
			memcpy(data + 8192, e.model, bytes);
		} else {
			expect(peerlane_read(file, e.gpu, bytes, 8192) == (ssize_t)bytes);
			memcpy(e.model, data + 8192, bytes);
		}
		expect(p2p_bytes(&e) == before);
		check_gpu(&e, "fallback", (size_t)round);
		expect(pread(fd, seen, FILE_BYTES, 0) == (ssize_t)FILE_BYTES);
		expect(memcmp(seen, data, FILE_BYTES) == 0);
		if (round >= 4)
			expect(peerlane_buffer_release(e.ctx, e.gpu) == 0);
	}
	say_direct(p2p_bytes(&e) + TEST_BYTES);
	close(fd);
	expect(peerlane_file_close(file) == 0);
	engine_close(&e);
	unlink("/mnt/fallback");
	return 0;
}

/* Where the drive cannot reach the GPU, the library says so, and the data is right all the same. */
int test_engine_refused(void)
{
	unsigned char *data = make_file("/mnt/refused", FILE_BYTES, 51);
	char line[1024] = "";
	struct peerlane_verdict v;
	struct peerlane_file *file;
	struct engine e;
	FILE *f = fopen("/proc/cmdline", "r");

	expect(f && fgets(line, sizeof(line), f));
	fclose(f);
	engine_open(&e);
	file = open_file(&e, "/mnt/refused", O_RDWR | O_DIRECT);
	v = verdict(&e, file, PEERLANE_READ, FILE_BYTES);
	expect(!v.usable && v.fix[0]);
	expect(strstr(v.reason, strstr(line, "swiotlb=force") ? "swiotlb" : "does not allow"));
	expect(peerlane_read(file, e.gpu + 4096, ROOM - 4096, 0) == (ssize_t)FILE_BYTES);
	memcpy(e.model + 4096, data, FILE_BYTES);
	check_gpu(&e, "refused", 0);
	expect(p2p_bytes(&e) == 0);
	say_direct(0);
	expect(peerlane_file_close(file) == 0);
	engine_close(&e);
	unlink("/mnt/refused");
	return 0;
}

/* The module away, or not for this user: said in words, and everything works without it. */
static void without_module(void *arg)
{
	unsigned char *data = arg;
	struct peerlane_verdict v;
	struct peerlane_file *file;
	struct engine e;

	expect(setuid(1000) == 0);
	engine_open(&e);
	file = open_file(&e, "/mnt/users", O_RDONLY | O_DIRECT);
	v = verdict(&e, file, PEERLANE_READ, FILE_BYTES);
	expect(!v.usable && strstr(v.reason, "no permission") && strstr(v.fix, "group peerlane"));
	expect(peerlane_read(file, e.gpu, ROOM, 0) == (ssize_t)FILE_BYTES);
	memcpy(e.model, data, FILE_BYTES);
	check_gpu(&e, "no module", 0);
	expect(peerlane_file_close(file) == 0);
	engine_close(&e);
}

int test_engine_permission(void)
{
	unsigned char *data = make_file("/mnt/users", FILE_BYTES, 61);

	expect(chmod("/mnt", 0755) == 0 && chmod("/mnt/users", 0644) == 0);
	expect(chmod("/dev/peerlane", 0600) == 0);
	in_child(without_module, data, 0);
	expect(chmod("/dev/peerlane", 0666) == 0);
	say_direct(0);
	unlink("/mnt/users");
	return 0;
}

/* Every member of an array is asked, and data goes to all of them. */
int test_engine_raid(void)
{
	int array = array_start(0);
	unsigned char *data = host_alloc(4 * MIB);
	struct peerlane_file *file;
	struct engine e;

	engine_open(&e);
	expect(peerlane_file_from_fd(e.ctx, array, &file) == 0);
	expect(verdict(&e, file, PEERLANE_READ, 4 * MIB).usable);
	expect(pread(array, data, 4 * MIB, 0) == (ssize_t)(4 * MIB));
	expect(peerlane_read(file, e.gpu, 4 * MIB, 0) == (ssize_t)(4 * MIB));
	memcpy(e.model, data, 4 * MIB);
	check_gpu(&e, "raid", 0);
	expect(peerlane_write(file, e.gpu, 4 * MIB, 8 * MIB, 0) == (ssize_t)(4 * MIB));
	expect(pread(array, data, 4 * MIB, 8 * MIB) == (ssize_t)(4 * MIB));
	expect(memcmp(data, e.model, 4 * MIB) == 0);
	expect(p2p_bytes(&e) == 8 * MIB);
	/* The test read both drives, and the array. */
	say_direct(p2p_bytes(&e) + 3 * TEST_BYTES);
	expect(peerlane_file_close(file) == 0);
	engine_close(&e);
	array_stop(array);
	return 0;
}

void command(const char *line, const char *want)
{
	char text[16384];
	size_t n;
	FILE *f = popen(line, "r");

	expect(f);
	n = fread(text, 1, sizeof(text) - 1, f);
	text[n] = '\0';
	printf("$ %s\n%s", line, text);
	expect(pclose(f) == 0 && strstr(text, want));
}

/* The tool: what it says, and what it does. */
int test_engine_tool(void)
{
	setenv("PEERLANE_BACKEND", "simgpu", 1);
	command("peerlane check /mnt/src | sed -n '/^A read/,$p'", "read: p2p");
	command("peerlane cp --sync /mnt/src /mnt/copy && cmp /mnt/src /mnt/copy && echo same",
		"same");
	command("peerlane bench --direct --create --verify --bytes 8M --size 64K,1M --repeat 1 "
		"/mnt/bench && echo good",
		"good");
	command("peerlane bench --direct --op randwrite --verify --bytes 8M --size 4K,256K --batch "
		"8 "
		"--repeat 1 /mnt/bench && echo good",
		"good");
	unlink("/mnt/copy");
	unlink("/mnt/bench");
	return 0;
}
