// SPDX-License-Identifier: MIT
/* Proxies over files: cached, cold and direct, all shapes, writes, ends of files, wrong commands. */
#include "serve_test.h"

#include <sys/resource.h>

#define FILE_BLOCKS 256u

struct shape {
	unsigned int nr_queues, depth, nr_ports, slots_per_port, nr_lanes, nr_threads;
};

static struct peerlane_device *open_files(const struct shape *s, const int *fds, unsigned int nr)
{
	struct peerlane_device_options opt = { .size = sizeof(opt),
					       .nr_queues = s->nr_queues,
					       .depth = s->depth,
					       .ports_per_queue = s->nr_ports,
					       .slots_per_port = s->slots_per_port,
					       .nr_threads = s->nr_threads };
	struct peerlane_device *dev;

	assert_int_equal(peerlane_device_open_files(&dev, &opt, fds, nr), 0);
	return dev;
}

static void check_read(const struct shape *s, int fd)
{
	struct peerlane_device *dev = open_files(s, &fd, 1);
	struct load l;

	load_init(&l, dev, s->nr_lanes);
	load_run_well(&l);
	/* Again: what a kernel leaves behind is what the next one begins with. */
	load_run_well(&l);
	assert_int_equal(TOTAL(dev, commands), 2 * l.served);
	assert_int_equal(TOTAL(dev, bytes_read), 2 * l.served * BLOCK);
	assert_int_equal(TOTAL(dev, errors) + TOTAL(dev, bad_completions), 0);
	load_fini(&l);
	peerlane_device_close(dev);
}

static const struct shape shapes[] = {
	{ 1, 2, 1, 1, 1, 1 },	 /* one slot */
	{ 1, 4, 3, 1, 1, 1 },	 /* shared, full, wraps often */
	{ 2, 64, 4, 8, 4, 2 },	 /* shared, more slots than lanes */
	{ 1, 64, 1, 16, 32, 1 }, /* fewer slots than lanes */
	{ 2, 64, 1, 0, 32, 2 },	 /* a whole warp */
};

static void check_all_shapes(int fd)
{
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
		check_read(&shapes[i], fd);
}

static void test_cached(void **state)
{
	int fd = file_make(tmp_dir(), (size_t)FILE_BLOCKS * BLOCK);

	(void)state;
	check_all_shapes(fd);
	close(fd);
}

static void test_tmpfs(void **state)
{
	int fd;

	(void)state;
	if (access("/dev/shm", W_OK))
		skip();
	fd = file_make("/dev/shm", (size_t)FILE_BLOCKS * BLOCK);
	check_all_shapes(fd);
	close(fd);
}

/* Not in the page cache, as far as the file system lets go of it. */
static void test_cold(void **state)
{
	const struct shape s = { 2, 64, 2, 8, 8, 1 };
	int fd = file_make(tmp_dir(), (size_t)FILE_BLOCKS * BLOCK);

	(void)state;
	assert_int_equal(fsync(fd), 0);
	for (int i = 0; i < 3; i++) {
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		check_read(&s, fd);
	}
	close(fd);
}

static void test_direct(void **state)
{
	const struct shape s = { 2, 64, 2, 8, 8, 2 };
	int fd = file_make(tmp_dir(), (size_t)FILE_BLOCKS * BLOCK);
	struct peerlane_device_stats st = { .size = sizeof(st) };
	struct peerlane_device *dev;
	struct load l;

	(void)state;
	assert_int_equal(fsync(fd), 0);
	if (fcntl(fd, F_SETFL, O_DIRECT)) {
		close(fd);
		skip();
	}
	dev = open_files(&s, &fd, 1);
	load_init(&l, dev, s.nr_lanes);
	/* 4096 bytes a block, wherever 512 are too few. */
	l.io_blocks = 8;
	load_run_well(&l);
	assert_int_equal(peerlane_device_get_stats(dev, 0, &st), 0);
	assert_int_equal(st.cached, 0);
	load_fini(&l);
	peerlane_device_close(dev);
	close(fd);
}

/* More commands at a time than the io_uring of a proxy takes. */
#define MANY_QUEUES 6u
#define MANY_SLOTS 60u

static void test_many_at_a_time(void **state)
{
	const struct shape s = { MANY_QUEUES, 64, 1, MANY_SLOTS, 1, 1 };
	static struct pld_io io[MANY_QUEUES][MANY_SLOTS];
	struct peerlane_device_info info = { .size = sizeof(info) };
	int fd = file_make(tmp_dir(), (size_t)MANY_QUEUES * MANY_SLOTS * BLOCK);
	struct pld_port port[MANY_QUEUES];
	struct pld_completion cpl;
	struct peerlane_device *dev = open_files(&s, &fd, 1);
	char *memory = aligned_alloc(16, BLOCK), block[BLOCK];

	(void)state;
	assert_int_equal(peerlane_device_get_info(dev, &info), 0);
	for (uint32_t q = 0; q < MANY_QUEUES; q++) {
		pld_port_open(&port[q], &info.queues[q], 0, 1);
		for (uint32_t k = 0; k < MANY_SLOTS; k++) {
			io[q][k] = (struct pld_io){ .opcode = PL_NVME_WRITE,
						    .nsid = 1,
						    .lba = q * MANY_SLOTS + k,
						    .nr_blocks = 1,
						    .bytes = BLOCK,
						    .memory = memory };
			fill_block(memory, 7000 + io[q][k].lba);
			assert_int_equal(pld_io_start(&port[q], 1, &io[q][k]), 0);
		}
	}
	for (uint32_t q = 0; q < MANY_QUEUES; q++)
		for (uint32_t k = 0; k < MANY_SLOTS; k++)
			assert_int_equal(pld_io_wait(&port[q], &io[q][k], FOR_EVER, &cpl), 0);
	for (uint32_t i = 0; i < MANY_QUEUES * MANY_SLOTS; i++) {
		assert_int_equal(pread(fd, block, BLOCK, (off_t)i * BLOCK), BLOCK);
		assert_true(block_is(block, 7000 + i));
	}
	peerlane_device_close(dev);
	free(memory);
	close(fd);
}

static void test_write(void **state)
{
	const struct shape s = { 2, 64, 2, 8, 4, 2 };
	int fd = file_make(tmp_dir(), 0);
	struct peerlane_device *dev;
	char block[BLOCK];
	struct load l;

	(void)state;
	assert_int_equal(ftruncate(fd, (off_t)FILE_BLOCKS * BLOCK), 0);
	dev = open_files(&s, &fd, 1);
	load_init(&l, dev, s.nr_lanes);
	l.opcode = PL_NVME_WRITE;
	l.rounds = FILE_BLOCKS / (l.nr_warps * l.nr_lanes);
	load_run_well(&l);
	assert_int_equal(l.served, FILE_BLOCKS);
	for (unsigned int i = 0; i < FILE_BLOCKS; i++) {
		assert_int_equal(pread(fd, block, BLOCK, (off_t)i * BLOCK), BLOCK);
		assert_true(block_is(block, i));
	}
	l.opcode = PL_NVME_READ;
	load_run_well(&l);
	load_fini(&l);
	peerlane_device_close(dev);
	close(fd);
}

/* Several files; each has a length of its own. */
static void test_two_files(void **state)
{
	const struct shape s = { 1, 64, 1, 8, 4, 1 };
	int fds[2] = { file_make(tmp_dir(), 16 * BLOCK), file_make(tmp_dir(), 64 * BLOCK) };
	struct peerlane_device *dev = open_files(&s, fds, 2);
	struct peerlane_device_space space = { .size = sizeof(space) };
	struct load l;

	(void)state;
	load_init(&l, dev, s.nr_lanes);
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(peerlane_device_get_space(dev, i, &space), 0);
		assert_int_equal(space.nsid, i + 1);
		assert_int_equal(space.block_bytes, BLOCK);
		assert_int_equal(space.nr_blocks, i ? 64 : 16);
		l.nsid = space.nsid;
		l.nr_blocks = (uint32_t)space.nr_blocks;
		load_run_well(&l);
	}
	assert_int_equal(peerlane_device_get_space(dev, 2, &space), -ENXIO);
	load_fini(&l);
	peerlane_device_close(dev);
	close(fds[0]);
	close(fds[1]);
}

/* One thread, one port, for single commands. */
struct single {
	int fd;
	struct peerlane_device *dev;
	struct peerlane_device_info info;
	struct pld_port port;
	char memory[8192] __attribute__((aligned(16)));
};

static void single_open(struct single *o, int fd)
{
	const struct shape s = { 1, 8, 1, 4, 1, 1 };

	memset(o, 0, sizeof(*o));
	o->fd = fd;
	o->dev = open_files(&s, &fd, 1);
	o->info.size = sizeof(o->info);
	assert_int_equal(peerlane_device_get_info(o->dev, &o->info), 0);
	pld_port_open(&o->port, o->info.queues, 0, 1);
}

static void single_close(struct single *o)
{
	peerlane_device_close(o->dev);
	close(o->fd);
}

static uint32_t single_do(struct single *o, uint8_t opcode, uint32_t nsid, uint64_t lba,
			  uint32_t nr)
{
	struct pld_io io = { .opcode = opcode,
			     .nsid = nsid,
			     .lba = lba,
			     .nr_blocks = nr,
			     .bytes = nr * BLOCK,
			     .memory = o->memory };

	return one_status(&o->port, &io);
}

/* The last block is not whole. */
static void check_end(int fd)
{
	char zero[BLOCK] = { 0 };
	struct single o;

	single_open(&o, fd);
	memset(o.memory, 0xee, sizeof(o.memory));
	assert_int_equal(single_do(&o, PL_NVME_READ, 1, 8, 3), 0);
	for (int i = 0; i < 2; i++)
		assert_true(block_is(o.memory + (size_t)i * BLOCK, 8 + (uint64_t)i));
	fill_block(o.memory + 4096, 10);
	assert_memory_equal(o.memory + 1024, o.memory + 4096, 100);
	assert_memory_equal(o.memory + 1024 + 100, zero, BLOCK - 100);
	/* The last block alone, and past it. */
	assert_int_equal(single_do(&o, PL_NVME_READ, 1, 10, 1), 0);
	assert_memory_equal(o.memory + 100, zero, BLOCK - 100);
	assert_int_equal(single_do(&o, PL_NVME_READ, 1, 10, 2), PL_NVME_SC_LBA_RANGE);
	assert_int_equal(single_do(&o, PL_NVME_READ, 1, 11, 1), PL_NVME_SC_LBA_RANGE);
	/* Written, it is whole. */
	fill_block(o.memory, 10);
	assert_int_equal(single_do(&o, PL_NVME_WRITE, 1, 10, 1), 0);
	assert_int_equal(lseek(fd, 0, SEEK_END), 11 * BLOCK);
	memset(o.memory, 0xee, sizeof(o.memory));
	assert_int_equal(single_do(&o, PL_NVME_READ, 1, 10, 1), 0);
	assert_true(block_is(o.memory, 10));
	assert_int_equal(single_do(&o, PL_NVME_FLUSH, 1, 0, 0), 0);
	single_close(&o);
}

static void test_end_of_file(void **state)
{
	int fd = file_make(tmp_dir(), 10 * BLOCK + 100);

	(void)state;
	check_end(fd);
	/* By io_uring, too. */
	fd = file_make(tmp_dir(), 10 * BLOCK + 100);
	assert_int_equal(fsync(fd), 0);
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	check_end(fd);
}

/* A file that was made shorter by others: an error, no zeros. */
static void test_truncated(void **state)
{
	struct single o;

	(void)state;
	single_open(&o, file_make(tmp_dir(), 16 * BLOCK));
	assert_int_equal(ftruncate(o.fd, 4 * BLOCK), 0);
	assert_int_equal(single_do(&o, PL_NVME_READ, 1, 3, 1), 0);
	assert_int_equal(single_do(&o, PL_NVME_READ, 1, 3, 2), PL_NVME_SC_READ_ERROR);
	assert_int_equal(single_do(&o, PL_NVME_READ, 1, 8, 1), PL_NVME_SC_READ_ERROR);
	assert_int_equal(TOTAL(o.dev, errors), 2);
	single_close(&o);
}

static void test_wrong_commands(void **state)
{
	struct pld_completion cpl;
	struct pld_request rq = { .opcode = PL_NVME_READ, .nsid = 1, .nr_blocks = 1 };
	struct single o;
	int token;

	(void)state;
	single_open(&o, file_make(tmp_dir(), 16 * BLOCK));
	assert_int_equal(single_do(&o, PL_NVME_READ, 0, 0, 1), PL_NVME_SC_INVALID_NS);
	assert_int_equal(single_do(&o, PL_NVME_READ, 2, 0, 1), PL_NVME_SC_INVALID_NS);
	assert_int_equal(single_do(&o, PL_NVME_FLUSH, PL_NVME_NSID_ALL, 0, 0),
			 PL_NVME_SC_INVALID_NS);
	assert_int_equal(single_do(&o, PL_NVME_COMPARE, 1, 0, 1), PL_NVME_SC_INVALID_OPCODE);
	assert_int_equal(single_do(&o, 0xc5, 1, 0, 1), PL_NVME_SC_INVALID_OPCODE);
	assert_int_equal(single_do(&o, PL_NVME_READ, 1, 16, 1), PL_NVME_SC_LBA_RANGE);
	assert_int_equal(single_do(&o, PL_NVME_READ, 1, 9, 8), PL_NVME_SC_LBA_RANGE);
	assert_int_equal(single_do(&o, PL_NVME_READ, 1, UINT64_MAX, 2), PL_NVME_SC_LBA_RANGE);
	/* Longer than a slot: not by pld_io, which would copy that much. */
	rq.nr_blocks = 9;
	rq.prp1 = o.info.queues->bounce_dma[0].first;
	token = pld_submit(&o.port, 1, &rq);
	pld_wait(&o.port, token, FOR_EVER, &cpl);
	assert_int_equal(cpl.status & 0x7ff, PL_NVME_SC_INVALID_FIELD);
	pld_free(&o.port, token);
	/* An address that is not the slot's: no proxy goes there. */
	rq.nr_blocks = 1;
	rq.prp1 = (uintptr_t)o.memory;
	token = pld_submit(&o.port, 1, &rq);
	pld_wait(&o.port, token, FOR_EVER, &cpl);
	assert_int_equal(cpl.status & 0x7ff, PL_NVME_SC_DATA_TRANSFER);
	assert_true(cpl.status >> 14 & 1); /* not to be retried */
	pld_free(&o.port, token);
	assert_int_equal(single_do(&o, PL_NVME_READ, 1, 5, 1), 0);
	assert_true(block_is(o.memory, 5));
	single_close(&o);
}

static void test_read_only(void **state)
{
	char path[64];
	struct single o;
	int fd = file_make(tmp_dir(), 16 * BLOCK);

	(void)state;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	single_open(&o, open(path, O_RDONLY | O_CLOEXEC));
	assert_int_equal(single_do(&o, PL_NVME_READ, 1, 5, 1), 0);
	assert_int_equal(single_do(&o, PL_NVME_WRITE, 1, 5, 1), PL_NVME_SC_READ_ONLY_RANGE);
	single_close(&o);
	close(fd);
}

/* No room in the file: its last block would make it longer than this process may make files. */
static void test_no_room(void **state)
{
	struct rlimit old, limit;
	struct single o;

	(void)state;
	single_open(&o, file_make(tmp_dir(), 10 * BLOCK + 100));
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	limit = old;
	limit.rlim_cur = 10 * BLOCK;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	assert_int_equal(single_do(&o, PL_NVME_WRITE, 1, 10, 1), PL_NVME_SC_CAPACITY);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_int_equal(single_do(&o, PL_NVME_WRITE, 1, 10, 1), 0);
	single_close(&o);
}

static void expect_refused(int fd, int err, const char *word)
{
	struct peerlane_error_info info = { .size = sizeof(info) };
	struct peerlane_device *dev = NULL;

	assert_int_equal(peerlane_device_open_files(&dev, NULL, &fd, 1), err);
	assert_null(dev);
	peerlane_error(&info);
	if (!strstr(info.text, word))
		fail_msg("\"%s\" does not say \"%s\"", info.text, word);
}

static void test_refusals(void **state)
{
	struct peerlane_device_options opt = { .size = sizeof(opt), .depth = 48 };
	struct peerlane_device *dev = NULL;
	int fd = file_make(tmp_dir(), 16 * BLOCK), dir = open("/", O_RDONLY | O_CLOEXEC);

	(void)state;
	expect_refused(-1, -EBADF, "file 0");
	expect_refused(dir, -EOPNOTSUPP, "neither");
	assert_int_equal(fcntl(fd, F_SETFL, O_APPEND), 0);
	expect_refused(fd, -EINVAL, "appending");
	assert_int_equal(fcntl(fd, F_SETFL, 0), 0);
	assert_int_equal(peerlane_device_open_files(&dev, &opt, &fd, 1), -EINVAL);
	opt = (struct peerlane_device_options){ .size = sizeof(opt), .slots_per_port = 64 };
	assert_int_equal(peerlane_device_open_files(&dev, &opt, &fd, 1), -EINVAL);
	opt = (struct peerlane_device_options){ .size = sizeof(opt), .max_transfer_bytes = 6000 };
	assert_int_equal(peerlane_device_open_files(&dev, &opt, &fd, 1), -EINVAL);
	opt = (struct peerlane_device_options){ .size = sizeof(opt), .block_bytes = 8192 };
	assert_int_equal(peerlane_device_open_files(&dev, &opt, &fd, 1), -EINVAL);
	opt = (struct peerlane_device_options){ .size = 3 };
	assert_int_equal(peerlane_device_open_files(&dev, &opt, &fd, 1), -EINVAL);
	assert_int_equal(peerlane_device_open_files(&dev, NULL, &fd, 0), -EINVAL);
	assert_int_equal(peerlane_device_open_memory(&dev, NULL, 1000, NULL), -EINVAL);
	assert_null(dev);
	peerlane_device_close(NULL);
	close(dir);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cached),	       cmocka_unit_test(test_tmpfs),
		cmocka_unit_test(test_cold),	       cmocka_unit_test(test_direct),
		cmocka_unit_test(test_many_at_a_time), cmocka_unit_test(test_write),
		cmocka_unit_test(test_two_files),      cmocka_unit_test(test_end_of_file),
		cmocka_unit_test(test_truncated),      cmocka_unit_test(test_wrong_commands),
		cmocka_unit_test(test_read_only),      cmocka_unit_test(test_no_room),
		cmocka_unit_test(test_refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
