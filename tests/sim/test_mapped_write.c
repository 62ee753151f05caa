// SPDX-License-Identifier: MIT
/* Writes through the mapping that stays with a file: which take it and which do not, that they are
 * like write(2) in all a program can see, and what becomes of the mapping. */
#include "sim/sim_fixture.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>

#define FILE_BYTES (24 * MIB + 4321)
#define TMPFS 0x01021994l
#define EXT4 0xef53l

static struct peerlane *ctx;
static struct peerlane_file *file;
static const char *path;
static char *gpu;

static void begin_with(const char *env, unsigned int flags, int open_flags)
{
	sim_env(env);
	ctx = sim_open(flags);
	path = sim_make_file("mapped", FILE_BYTES, 1);
	file = sim_file(ctx, path, open_flags);
	gpu = sim_alloc(ctx, FILE_BYTES);
}

static void begin(const char *env)
{
	begin_with(env, 0, O_RDWR);
}

static void end(void)
{
	assert_int_equal(peerlane_gpu_free(ctx, gpu), 0);
	peerlane_close(ctx);
}

/* Bytes that went through a mapping so far. */
static uint64_t mapped(void)
{
	return sim_stats(ctx).mapped_write_bytes;
}

/* Lines of this process's maps with @name in them; the address of the last in @at. */
static unsigned int maps_of(const char *name, uintptr_t *at)
{
	FILE *f = fopen("/proc/self/maps", "re");
	unsigned int nr = 0;
	char line[512];

	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (!strstr(line, name))
			continue;
		nr++;
		if (at)
			*at = strtoul(line, NULL, 16);
	}
	fclose(f);
	return nr;
}

/* A write that is seen to go through the mapping. A short one over pages that were just written
 * back is plain, and makes them dirty: then it is done again. */
static void write_mapped(const char *mem, size_t bytes, off_t offset)
{
	uint64_t before;
	int tries = 3;

	do {
		before = mapped();
		assert_int_equal(peerlane_write(file, mem, bytes, offset, 0), bytes);
	} while (mapped() != before + bytes && --tries);
	assert_int_equal(mapped() - before, bytes);
}

static bool fs_fits(void)
{
	struct statfs fs;

	assert_int_equal(statfs(sim_path(""), &fs), 0);
	return fs.f_type == EXT4 || fs.f_type == TMPFS || fs.f_type == 0x58465342l ||
	       fs.f_type == 0x9123683el;
}

static int needs_fs(void **state)
{
	sim_test_setup(state);
	if (!fs_fits())
		skip();
	return 0;
}

/* --- which writes take it --- */

static void sizes(const char *env, bool host)
{
	static const size_t list[] = { 1,	100,	  4096,	      4097,    65536,
				       65537,	200000,	  262144,     1 * MIB, MIB + 5,
				       8 * MIB, 20 * MIB, FILE_BYTES, 100,     4096 };
	unsigned int seed = 2;
	char *mem;

	begin(env);
	mem = host ? malloc(FILE_BYTES) : gpu;
	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		off_t at = list[i] == FILE_BYTES ? 0 : (off_t)(FILE_BYTES - list[i]) / 3;

		if (host)
			sim_pattern(mem, list[i], at, seed);
		else
			sim_gpu_pattern(ctx, mem, list[i], at, seed);
		write_mapped(mem, list[i], at);
		sim_assert_file(path, at, list[i], seed++);
	}
	assert_int_equal(sim_file_size(path), FILE_BYTES);
	if (host)
		free(mem);
	end();
}

static void every_size(void **state)
{
	(void)state;
	sizes("THREADS=1", false);
	sizes("THREADS=6", false);
	sizes("THREADS=4 SIM_ASYNC=100", false);
	sizes("THREADS=4", true);
	sizes("THREADS=2 SLOT_BYTES=64K POOL_BYTES=1M", false);
}

/* Neither before nor behind what was to be written a byte is changed. */
static void neighbours_stay(void **state)
{
	(void)state;
	begin("");
	for (size_t bytes = 1; bytes < 300000; bytes = bytes * 3 + 1) {
		off_t at = 8191 + (off_t)bytes;

		sim_gpu_pattern(ctx, gpu, bytes, at, 7);
		assert_int_equal(peerlane_write(file, gpu, bytes, at, 0), bytes);
		sim_assert_file(path, 0, (size_t)at, 1);
		sim_assert_file(path, at, bytes, 7);
		sim_assert_file(path, at + (off_t)bytes, MIB, 1);
		sim_gpu_pattern(ctx, gpu, bytes, at, 1);
		assert_int_equal(peerlane_write(file, gpu, bytes, at, 0), bytes);
	}
	assert_true(mapped() > 0);
	sim_assert_file(path, 0, FILE_BYTES, 1);
	end();
}

static void refuses(unsigned int flags, int open_flags, unsigned int write_flags)
{
	begin_with("", flags, open_flags);
	for (size_t bytes = 4096; bytes <= 16 * MIB; bytes *= 64) {
		sim_gpu_pattern(ctx, gpu, bytes, 0, 3);
		assert_int_equal(peerlane_write(file, gpu, bytes, 0, write_flags), bytes);
		sim_assert_file(path,
				open_flags & O_APPEND ? sim_file_size(path) - (off_t)bytes : 0,
				open_flags & O_APPEND ? 0 : bytes, 3);
	}
	assert_int_equal(mapped(), 0);
	assert_int_equal(maps_of(path, NULL), 0);
	end();
}

static void not_taken(void **state)
{
	(void)state;
	refuses(PEERLANE_NO_MAPPED_WRITE, O_RDWR, 0);
	refuses(0, O_RDWR | O_APPEND, 0);
	refuses(0, O_RDWR | O_DSYNC, 0);
	refuses(0, O_RDWR | O_DIRECT, 0);
	refuses(0, O_WRONLY, 0);
	refuses(0, O_RDWR, PEERLANE_DURABLE);
}

/* Past the end the file grows; the part before it is plain, too. */
static void past_the_end(void **state)
{
	uint64_t before;
	off_t size;

	(void)state;
	begin("");
	sim_gpu_pattern(ctx, gpu, MIB, FILE_BYTES - 1000, 1);
	assert_int_equal(peerlane_write(file, gpu, MIB, FILE_BYTES - 1000, 0), MIB);
	sim_gpu_pattern(ctx, gpu, 4096, FILE_BYTES + MIB - 1005, 1);
	assert_int_equal(peerlane_write(file, gpu, 4096, FILE_BYTES + MIB - 1005, 0), 4096);
	assert_int_equal(mapped(), 0);
	size = FILE_BYTES + MIB - 1005 + 4096;
	assert_int_equal(sim_file_size(path), size);
	/* In the last page, where a mapping would take it and the file not grow. */
	assert_true(size % 4096 && size % 4096 < 4000);
	sim_gpu_pattern(ctx, gpu, 60, size - 10, 1);
	write_mapped(gpu, 10, size - 10);
	before = mapped();
	assert_int_equal(peerlane_write(file, gpu, 60, size - 10, 0), 60);
	assert_int_equal(mapped(), before);
	assert_int_equal(sim_file_size(path), size + 50);
	sim_assert_file(path, 0, (size_t)size + 50, 1);
	end();
}

/* What is not in memory is not read only to be overwritten. */
static void not_in_memory(void **state)
{
	struct statfs fs;

	(void)state;
	assert_int_equal(statfs(sim_path(""), &fs), 0);
	if (fs.f_type == TMPFS)
		skip();
	begin("");
	sim_gpu_pattern(ctx, gpu, MIB, 0, 3);
	sim_chill(path);
	assert_int_equal(peerlane_write(file, gpu, MIB, 0, 0), MIB);
	assert_int_equal(mapped(), 0);
	/* Now it is. */
	assert_int_equal(peerlane_write(file, gpu, MIB, 0, 0), MIB);
	assert_int_equal(mapped(), MIB);
	sim_assert_file(path, 0, MIB, 3);
	sim_assert_file(path, MIB, 4 * MIB, 1);
	end();
}

static void read_only(void **state)
{
	(void)state;
	begin_with("", 0, O_RDONLY);
	assert_int_equal(peerlane_write(file, gpu, 4096, 0, 0), -EBADF);
	assert_int_equal(peerlane_write(file, gpu, MIB, 0, 0), -EBADF);
	assert_int_equal(peerlane_read(file, gpu, MIB, 0), MIB);
	assert_int_equal(maps_of(path, NULL), 0);
	end();
}

/* Minor faults of this process while it writes. */
static long faults_of(size_t bytes)
{
	struct rusage a, b;

	assert_int_equal(getrusage(RUSAGE_SELF, &a), 0);
	write_mapped(gpu, bytes, 0);
	assert_int_equal(getrusage(RUSAGE_SELF, &b), 0);
	return b.ru_minflt - a.ru_minflt;
}

/* Pages that were written back are protected in the mapping: a short write over them is plain, and
 * a long one does not meet the pages one by one. */
static void written_back(void **state)
{
	struct statfs fs;
	long first, again;

	(void)state;
	assert_int_equal(statfs(sim_path(""), &fs), 0);
	if (fs.f_type == TMPFS)
		skip();
	begin("THREADS=1");
	sim_gpu_pattern(ctx, gpu, 16 * MIB, 0, 3);
	/* Once for the other memory it takes, once for a mapping that is new. */
	faults_of(16 * MIB);
	assert_int_equal(peerlane_file_close(file), 0);
	file = sim_file(ctx, path, O_RDWR);
	first = faults_of(16 * MIB);
	assert_int_equal(peerlane_file_sync(file), 0);
	again = faults_of(16 * MIB);
	if (again > first + 200)
		fail_msg("%ld faults, and %ld after writing back", first, again);
	sim_assert_file(path, 0, 16 * MIB, 3);
	assert_int_equal(peerlane_file_sync(file), 0);
	for (size_t at = 0; at < 16 * MIB; at += 64 * KIB)
		assert_int_equal(peerlane_write(file, gpu + at, 4096, (off_t)at, 0), 4096);
	again = faults_of(16 * MIB);
	if (again > first + 200)
		fail_msg("%ld faults, and %ld after short writes", first, again);
	sim_assert_file(path, 0, 16 * MIB, 3);
	sim_assert_file(path, 16 * MIB, FILE_BYTES - 16 * MIB, 1);
	end();
}

/* --- what becomes of the mapping --- */

static void lifetime(void **state)
{
	unsigned int before;

	(void)state;
	begin("THREADS=2");
	assert_int_equal(peerlane_read(file, gpu, FILE_BYTES, 0), FILE_BYTES);
	assert_int_equal(maps_of(path, NULL), 0);
	write_mapped(gpu, 100, 5);
	assert_int_equal(maps_of(path, NULL), 1);
	before = sim_count_maps();
	for (off_t at = 0; at < 2000; at++)
		assert_int_equal(peerlane_write(file, gpu, 100, at * 12345, 0), 100);
	assert_int_equal(maps_of(path, NULL), 1);
	assert_true(sim_count_maps() < before + 8);
	assert_int_equal(peerlane_file_close(file), 0);
	assert_int_equal(maps_of(path, NULL), 0);
	/* And a context that is closed takes them along. */
	file = sim_file(ctx, path, O_RDWR);
	write_mapped(gpu, 100, 5);
	assert_int_equal(maps_of(path, NULL), 1);
	end();
	assert_int_equal(maps_of(path, NULL), 0);
}

/* A file that grows gets a longer window in the place of the old one. */
static void growth(void **state)
{
	off_t size = 1 * MIB;
	uint64_t before;

	(void)state;
	begin("THREADS=2");
	assert_int_equal(truncate(path, size), 0);
	sim_gpu_pattern(ctx, gpu, MIB, 0, 4);
	assert_int_equal(peerlane_write(file, gpu, MIB, 0, 0), MIB);
	for (; size < (off_t)(20 * MIB); size += MIB) {
		sim_gpu_pattern(ctx, gpu, MIB, size, 4);
		before = mapped();
		assert_int_equal(peerlane_write(file, gpu, MIB, size, 0), MIB);
		assert_int_equal(mapped(), before);
		write_mapped(gpu, MIB, size);
		assert_int_equal(maps_of(path, NULL), 1);
	}
	sim_assert_file(path, 0, (size_t)size, 4);
	end();
}

/* Far apart in a very long file of holes: windows, more than are kept at a time. */
static void windows(void **state)
{
	const off_t gib = 1l << 30, places = 20;
	uint64_t before;
	int fd;

	(void)state;
	begin("THREADS=2");
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	if (ftruncate(fd, places * 16 * gib)) {
		close(fd);
		end();
		skip();
	}
	sim_gpu_pattern(ctx, gpu, MIB, 0, 5);
	for (off_t i = 0; i < places; i++)
		assert_int_equal(peerlane_write(file, gpu, MIB, i * 16 * gib - (i ? 5000 : 0), 0),
				 MIB);
	before = mapped();
	for (int round = 0; round < 3; round++) {
		for (off_t i = 0; i < places; i++) {
			off_t at = i * 16 * gib - (i ? 5000 : 0);
			char mem[9000];

			sim_gpu_pattern(ctx, gpu, 9000, at, 6 + (unsigned int)round);
			assert_int_equal(peerlane_write(file, gpu, 9000, at, 0), 9000);
			assert_int_equal(pread(fd, mem, 9000, at), 9000);
			assert_int_equal(sim_differs(mem, 9000, at, 6 + (unsigned int)round), 9000);
		}
	}
	assert_true(mapped() > before);
	assert_in_range(maps_of(path, NULL), 1, 8);
	/* Room is made for a place that is written much. */
	before = mapped();
	for (int i = 0; i < 200; i++)
		assert_int_equal(peerlane_write(file, gpu, MIB - 5000, 19 * 16 * gib, 0),
				 MIB - 5000);
	assert_true(mapped() - before > 100 * MIB);
	assert_in_range(maps_of(path, NULL), 1, 8);
	close(fd);
	end();
}

/* The mapping is not the child's: what the child has there instead is left alone. */
static void forked(void **state)
{
	uintptr_t at = 0;
	int status;
	pid_t pid;

	(void)state;
	begin("THREADS=2");
	sim_gpu_pattern(ctx, gpu, MIB, 0, 5);
	assert_int_equal(peerlane_write(file, gpu, MIB, 0, 0), MIB);
	assert_int_equal(maps_of(path, &at), 1);
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		char *own = mmap((void *)at, MIB, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

		if ((uintptr_t)own != at || maps_of(path, NULL))
			_exit(2);
		own[0] = 1;
		if (peerlane_write(file, own, 100, 0, 0) != -EOWNERDEAD)
			_exit(3);
		peerlane_close(ctx);
		own[1] = own[0];
		_exit(own[1] == 1 ? 0 : 4);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	sim_gpu_pattern(ctx, gpu, 2 * MIB, 0, 6);
	assert_int_equal(peerlane_write(file, gpu, 2 * MIB, 0, 0), 2 * MIB);
	assert_int_equal(mapped(), 3 * MIB);
	sim_assert_file(path, 0, 2 * MIB, 6);
	end();
}

/* --- the same bytes as with write(2) --- */

#define THREADS 8
#define PIECE 10000ul

struct writer {
	unsigned int index;
	int bad;
};

/* Every eighth piece of the file, in parts of many sizes; neighbours share pages. */
static void *write_pieces(void *arg)
{
	struct writer *w = arg;
	unsigned int seed = w->index + 1;
	char mem[PIECE];

	for (size_t i = w->index; (i + 1) * PIECE <= FILE_BYTES; i += THREADS) {
		size_t at = i * PIECE, left = PIECE;

		sim_pattern(mem, PIECE, (off_t)at, 9);
		while (left) {
			size_t n = (size_t)rand_r(&seed) % left + 1, done = PIECE - left;

			w->bad |= peerlane_write(file, mem + done, n, (off_t)(at + done), 0) !=
				  (ssize_t)n;
			left -= n;
		}
	}
	return NULL;
}

static void many_threads(void **state)
{
	struct writer w[THREADS];
	pthread_t threads[THREADS];
	size_t all = FILE_BYTES / PIECE * PIECE;

	(void)state;
	begin("THREADS=4");
	for (unsigned int i = 0; i < THREADS; i++) {
		w[i] = (struct writer){ .index = i };
		assert_int_equal(pthread_create(&threads[i], NULL, write_pieces, &w[i]), 0);
	}
	for (unsigned int i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_join(threads[i], NULL), 0);
		assert_int_equal(w[i].bad, 0);
	}
	/* But for what was written back meanwhile. */
	assert_in_range(mapped(), all / 2, all);
	assert_int_equal(maps_of(path, NULL), 1);
	sim_assert_file(path, 0, all, 9);
	sim_assert_file(path, (off_t)all, FILE_BYTES - all, 1);
	end();
}

/* Large ones at once, each to its own part, with growth of the file beside them. */
static void *write_megabytes(void *arg)
{
	struct writer *w = arg;
	char *mem = malloc(3 * MIB);

	for (int round = 0; round < 6 && mem; round++) {
		size_t n = round % 2 ? 3 * MIB : 700000;
		off_t at = (off_t)(w->index * 3 * MIB);

		sim_pattern(mem, n, at, 20 + (unsigned int)round);
		w->bad |= peerlane_write(file, mem, n, at, 0) != (ssize_t)n;
	}
	w->bad |= !mem;
	free(mem);
	return NULL;
}

static void many_threads_large(void **state)
{
	struct writer w[THREADS];
	pthread_t threads[THREADS];

	(void)state;
	begin("THREADS=4");
	for (unsigned int i = 0; i < THREADS; i++) {
		w[i] = (struct writer){ .index = i };
		assert_int_equal(pthread_create(&threads[i], NULL, write_megabytes, &w[i]), 0);
	}
	for (int i = 1; i < 50; i++)
		assert_int_equal(truncate(path, (off_t)(FILE_BYTES + (size_t)i * MIB)), 0);
	for (unsigned int i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_join(threads[i], NULL), 0);
		assert_int_equal(w[i].bad, 0);
	}
	assert_in_range(mapped(), 9 * THREADS * MIB, THREADS * 3 * (3 * MIB + 700000));
	sim_assert_file(path, 0, THREADS * 3 * MIB, 25);
	assert_int_equal(sim_file_size(path), FILE_BYTES + 49 * MIB);
	end();
}

#define NR 512

/* 4 KiB each, in any order, two to a place never. */
static void batch(void **state)
{
	struct peerlane_event *events = calloc(NR, sizeof(*events));
	struct peerlane_io *io = calloc(NR, sizeof(*io));
	struct peerlane_batch *b;
	uint64_t before;

	(void)state;
	begin("THREADS=3");
	assert_non_null(events);
	assert_non_null(io);
	sim_gpu_pattern(ctx, gpu, FILE_BYTES, 0, 8);
	assert_int_equal(peerlane_batch_create(ctx, NR, &b), 0);
	for (size_t i = 0; i < NR; i++) {
		size_t at = i * 7 % NR * 9000 + i % 3;

		io[i] = (struct peerlane_io){ .file = file,
					      .addr = gpu + at,
					      .bytes = 4096,
					      .offset = (off_t)at,
					      .op = PEERLANE_WRITE,
					      .cookie = &io[i] };
	}
	assert_int_equal(peerlane_batch_submit(b, io, NR), 0);
	assert_int_equal(peerlane_batch_wait(b, NR, events, NR, NULL), NR);
	for (size_t i = 0; i < NR; i++) {
		struct peerlane_io *r = events[i].cookie;

		assert_int_equal(events[i].result, 4096);
		sim_assert_file(path, r->offset, 4096, 8);
		sim_assert_file(path, r->offset + 4096, 9000 - 4096 - 3, 1);
	}
	before = mapped();
	assert_in_range(before, NR / 2 * 4096, NR * 4096);
	/* Durable ones are plain. */
	for (size_t i = 0; i < 8; i++)
		io[i].flags = PEERLANE_DURABLE;
	assert_int_equal(peerlane_batch_submit(b, io, 8), 0);
	assert_int_equal(peerlane_batch_wait(b, 8, events, 8, NULL), 8);
	assert_int_equal(mapped(), before);
	peerlane_batch_destroy(b);
	end();
	free(io);
	free(events);
}

/* What was synced is on the device, not only in the page cache. */
static void synced(void **state)
{
	size_t bytes = 5 * MIB;
	char *mem = aligned_alloc(4096, bytes);
	int fd;

	(void)state;
	begin("");
	assert_non_null(mem);
	sim_gpu_pattern(ctx, gpu, bytes, 0, 3);
	for (size_t at = 0; at < MIB; at += 4096)
		assert_int_equal(peerlane_write(file, gpu + at, 4096, (off_t)at, 0), 4096);
	assert_int_equal(peerlane_write(file, gpu + MIB, bytes - MIB, MIB, 0), bytes - MIB);
	assert_in_range(mapped(), bytes / 2, bytes);
	assert_int_equal(peerlane_file_sync(file), 0);
	assert_int_equal(peerlane_file_close(file), 0);
	fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	if (fd >= 0) {
		assert_int_equal(pread(fd, mem, bytes, 0), bytes);
		assert_int_equal(sim_differs(mem, bytes, 0, 3), bytes);
		close(fd);
	}
	sim_chill(path);
	sim_assert_file(path, 0, bytes, 3);
	sim_assert_file(path, (off_t)bytes, FILE_BYTES - bytes, 1);
	free(mem);
	end();
}

/* The pages are mapped while the data is on its way. If it does not come, they are as they were, and the next write
 * goes through all the same. */
static void no_data(void **state)
{
	static const char *const envs[] = { "THREADS=4", "THREADS=4 SIM_ASYNC=200" };

	(void)state;
	for (unsigned int i = 0; i < 2; i++) {
		begin(envs[i]);
		sim_gpu_pattern(ctx, gpu, MIB, 3 * MIB, 2);
		assert_int_equal(peerlane_sim_inject(ctx, "copy", 0, 1000), 0);
		assert_int_equal(peerlane_write(file, gpu, MIB, 3 * MIB, 0), -EREMOTEIO);
		assert_int_equal(peerlane_sim_inject(ctx, "copy", 0, 0), 0);
		sim_assert_file(path, 0, FILE_BYTES, 1);
		write_mapped(gpu, MIB, 3 * MIB);
		sim_assert_file(path, 0, 3 * MIB, 1);
		sim_assert_file(path, 3 * MIB, MIB, 2);
		sim_assert_file(path, 4 * MIB, FILE_BYTES - 4 * MIB, 1);
		end();
	}
}

#define mapped_test(name) cmocka_unit_test_setup(name, needs_fs)

int main(void)
{
	const struct CMUnitTest tests[] = {
		mapped_test(every_size),
		mapped_test(neighbours_stay),
		mapped_test(not_taken),
		mapped_test(past_the_end),
		mapped_test(not_in_memory),
		mapped_test(read_only),
		mapped_test(written_back),
		mapped_test(lifetime),
		mapped_test(growth),
		mapped_test(windows),
		mapped_test(forked),
		mapped_test(many_threads),
		mapped_test(many_threads_large),
		mapped_test(batch),
		mapped_test(synced),
		mapped_test(no_data),
	};

	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown) ? 1 : 0;
}
