// SPDX-License-Identifier: MIT
/*
 * The library while GPU memory is freed: requests end, and others go on.
 */
#include "engine.h"

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

static void *free_later(void *data)
{
	struct later *later = data;

	usleep(later->us);
	expect(peerlane_gpu_free(later->e->ctx, later->e->gpu) == 0);
	return NULL;
}

void later_start(struct later *later, struct engine *e, unsigned int most_us)
{
	later->e = e;
	later->us = (unsigned int)rand() % most_us;
	expect(pthread_create(&later->thread, NULL, free_later, later) == 0);
}

void later_wait(struct later *later)
{
	expect(pthread_join(later->thread, NULL) == 0);
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
		later_start(&later, &e, 3000);
		do {
			n = peerlane_read(file, gpu, MIB, 0);
		} while (n == (ssize_t)MIB);
		later_wait(&later);
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
