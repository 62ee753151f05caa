// SPDX-License-Identifier: MIT
/* The transports to the software controller: opening, mappings of every kind, reset, removal. */
#include "server.h"

#include "../../nvme/transport_sim.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static void turn(void *arg)
{
	struct pl_nvme_transport *t = arg;

	t->ops->idle(t);
}

/* Open one and bring the controller up, with memory of alloc(). */
static struct pl_nvme_transport *start(const struct pl_nvme_transport_ops *ops, const char *address,
				       struct host *h)
{
	const struct pl_nvme_mapping *m;
	struct pl_nvme_transport *t;

	assert_int_equal(ops->open(address, &t), 0);
	assert_ptr_equal(t->ops, ops);
	assert_int_equal(t->ops->alloc(t, 4u << 20, &m), 0);
	assert_int_equal(m->offset, 0);
	assert_int_equal(m->page_bytes, 4096);
	assert_int_equal(m->nr_pages, 1024);
	for (size_t i = 0; i < m->nr_pages; i++)
		assert_true(m->pages[i] == m->pages[0] + 4096 * i);
	memset(h, 0, sizeof(*h));
	h->bar = (uint8_t *)t->bar0.ptr;
	h->bar_bytes = t->bar0.bytes;
	h->memory = m->cpu;
	h->iova = m->pages[0];
	h->page = 4096;
	h->turn = turn;
	h->turn_arg = t;
	host_set_admin(h, 16);
	host_enable(h);
	host_create(h, 1, 16);
	return t;
}

/* Write blocks of 512 out of a mapping, from an offset on, and read them back to another. */
static void move(struct host *h, uint8_t opcode, const struct pl_nvme_mapping *m, uint32_t nr)
{
	uint64_t list_at, *list = host_alloc(h, 4096, &list_at);
	uint64_t first = m->offset & ~(uint64_t)4095, at = m->offset;
	uint32_t nr_pages = (uint32_t)((m->offset % 4096 + nr * 512 + 4095) / 4096);
	uint64_t prp1 = m->pages[at / m->page_bytes] + at % m->page_bytes;

	/* The controller's pages of 4096 out of the larger ones of the mapping. */
	for (uint32_t i = 1; i < nr_pages; i++) {
		at = first + 4096ull * i;
		list[i - 1] = m->pages[at / m->page_bytes] + at % m->page_bytes;
	}
	assert_int_equal(
		host_status(h, 1,
			    host_rw(opcode, 1, 0, nr, prp1, nr_pages == 2 ? list[0] : list_at)),
		0);
}

static void fill(uint8_t *p, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		p[i] = (uint8_t)(i * 7 + i / 250);
}

static void in_this_process(const char *address, bool scattered)
{
	struct pl_nvme_region region = { .kind = PL_NVME_HOST, .pin_fd = -1 };
	const struct pl_nvme_mapping *from, *to, *again;
	struct host h;
	struct pl_nvme_transport *t = start(&pl_nvme_transport_sim, address, &h);
	uint8_t *memory = malloc(100000);
	uint32_t nr = 100;

	fill(memory, 50 * 512 * 2);
	/* Memory of malloc(), not aligned to pages. */
	region.ptr = memory + 4 - (uintptr_t)memory % 4;
	region.bytes = 40000;
	assert_int_equal(t->ops->map(t, &region, &from), 0);
	assert_ptr_equal(from->cpu, region.ptr);
	assert_int_equal(from->offset, (uintptr_t)region.ptr % 4096);
	assert_int_equal(from->nr_pages, (from->offset + 40000 + 4095) / 4096);
	for (size_t i = 1; i < from->nr_pages; i++)
		assert_int_equal(from->pages[i] == from->pages[i - 1] + 4096, !scattered);
	region.ptr = (uint8_t *)region.ptr + 44000;
	assert_int_equal(t->ops->map(t, &region, &to), 0);
	/* The same memory twice: at other addresses. */
	assert_int_equal(t->ops->map(t, &region, &again), 0);
	assert_true(to->pages[0] != again->pages[0]);
	nr = 40000 / 512 > 64 ? 64 : 40000 / 512;
	move(&h, PL_NVME_WRITE, from, nr);
	move(&h, PL_NVME_READ, to, nr);
	assert_memory_equal(from->cpu, to->cpu, nr * 512);
	memset(to->cpu, 0, nr * 512);
	move(&h, PL_NVME_READ, again, nr);
	assert_memory_equal(from->cpu, to->cpu, nr * 512);
	/* Unmapped means out of reach. */
	uint64_t gone = again->pages[0] + again->offset;

	t->ops->unmap(t, again);
	assert_int_equal(host_status(&h, 1, host_rw(PL_NVME_READ, 1, 0, 1, gone & ~3ull, 0)),
			 PL_NVME_SC_DATA_TRANSFER);
	t->ops->unmap(t, to);
	/* Left over: close() takes it. */
	t->ops->close(t);
	free(memory);
}

static void host_memory(void **state)
{
	(void)state;
	in_this_process("size=1M", false);
	in_this_process("size=1M,thread=0", false);
	in_this_process("scatter=1,size=1M,thread=0", true);
}

static void gpu_memory(void **state)
{
	struct pl_nvme_region region = { .kind = PL_NVME_GPU, .pin_fd = -1 };
	const struct pl_nvme_mapping *from, *to;
	struct host h;
	struct pl_nvme_transport *t = start(&pl_nvme_transport_sim, "thread=0", &h);
	uint8_t *gpu =
		mmap(NULL, 1u << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)state;
	fill(gpu, 1u << 20);
	/* An address of the GPU's own, an offset into its page of 64 KiB, three pages. */
	region.ptr = (void *)(0x7f0000000000 + 0x3000);
	region.cpu = gpu + 0x3000;
	region.bytes = 0x1f000;
	assert_int_equal(t->ops->map(t, &region, &from), 0);
	assert_int_equal(from->page_bytes, 65536);
	assert_int_equal(from->offset, 0x3000);
	assert_int_equal(from->nr_pages, 3);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(from->pages[i] % 65536, 0);
	assert_true(from->pages[1] != from->pages[0] + 65536);
	region.ptr = (void *)0x7f0000100000;
	region.cpu = gpu + 0x40000;
	assert_int_equal(t->ops->map(t, &region, &to), 0);
	assert_int_equal(to->nr_pages, 2);
	move(&h, PL_NVME_WRITE, from, 0x1f000 / 512);
	move(&h, PL_NVME_READ, to, 0x1f000 / 512);
	assert_memory_equal(gpu + 0x3000, gpu + 0x40000, 0x1f000);
	/* What is before the memory in its page is not reachable. */
	assert_int_equal(host_status(&h, 1, host_rw(PL_NVME_READ, 1, 0, 1, from->pages[0], 0)),
			 PL_NVME_SC_DATA_TRANSFER);
	region.cpu = NULL;
	assert_int_equal(t->ops->map(t, &region, &to), -EOPNOTSUPP);
	region.cpu = gpu;
	region.bytes = 0;
	assert_int_equal(t->ops->map(t, &region, &to), -EINVAL);
	t->ops->close(t);
	munmap(gpu, 1u << 20);
}

static void reset_and_removal(void **state)
{
	struct pl_nvme_region region = { .kind = PL_NVME_HOST, .bytes = 4096 };
	const struct pl_nvme_mapping *m;
	struct host h;
	struct pl_nvme_transport *t =
		start(&pl_nvme_transport_sim, "rule=remove opcode=flush,thread=0", &h);

	(void)state;
	assert_false(t->ops->gone(t));
	assert_int_equal(t->ops->reset(t), 0);
	assert_int_equal(host_read32(&h, PL_NVME_REG_CSTS), 0);
	host_set_admin(&h, 16);
	host_enable(&h);
	host_create(&h, 1, 16);
	host_put(&h, 1, (struct pl_nvme_sqe){ .opcode = PL_NVME_FLUSH, .nsid = 1 });
	host_ring(&h, 1);
	host_turns(&h, 5);
	assert_true(t->ops->gone(t));
	assert_int_equal(t->ops->reset(t), -ENODEV);
	assert_int_equal(t->ops->alloc(t, 4096, &m), -ENODEV);
	region.ptr = &h;
	assert_int_equal(t->ops->map(t, &region, &m), -ENODEV);
	t->ops->close(t);
}

static void refused(void **state)
{
	struct pl_nvme_transport *t = NULL;

	(void)state;
	assert_int_equal(pl_nvme_transport_sim.open("nonsense=1", &t), -EINVAL);
	assert_int_equal(pl_nvme_transport_sim.open("size=5", &t), -EINVAL);
	assert_int_equal(pl_nvme_transport_sim.open("thread=1", &t), -EINVAL);
	assert_int_equal(pl_nvme_transport_sim.open("file=/not/there", &t), -ENOENT);
	assert_int_equal(pl_nvme_transport_sim_unix.open("/not/there", &t), -ENODEV);
	assert_null(t);
}

static void in_another_process(void **state)
{
	struct pl_nvme_region region = { .kind = PL_NVME_HOST, .pin_fd = -1, .bytes = 8192 };
	const struct pl_nvme_mapping *from, *to;
	struct pl_nvme_transport *t;
	int stop, fd;
	uint8_t *shared;
	struct host h;
	pid_t pid;

	(void)state;
	pid = server_start("size=1M", &stop);
	t = start(&pl_nvme_transport_sim_unix, server_path, &h);
	/* Private memory cannot be shared; that of a memfd can, from any page of it on. */
	region.ptr = malloc(8192);
	assert_int_equal(t->ops->map(t, &region, &from), -EOPNOTSUPP);
	free(region.ptr);
	fd = memfd_create("test", MFD_CLOEXEC);
	assert_int_equal(ftruncate(fd, 65536), 0);
	shared = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(shared, MAP_FAILED);
	fill(shared, 65536);
	region.ptr = shared + 4096 + 100;
	assert_int_equal(t->ops->map(t, &region, &from), 0);
	region.ptr = shared + 32768;
	assert_int_equal(t->ops->map(t, &region, &to), 0);
	move(&h, PL_NVME_WRITE, from, 16);
	move(&h, PL_NVME_READ, to, 16);
	assert_memory_equal(shared + 4196, shared + 32768, 8192);
	/* Without a descriptor it cannot be given away. */
	close(fd);
	region.ptr = shared;
	assert_int_equal(t->ops->map(t, &region, &to), -EOPNOTSUPP);
	assert_int_equal(t->ops->reset(t), 0);
	t->ops->close(t);
	munmap(shared, 65536);
	server_stop(pid, stop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(host_memory),	      cmocka_unit_test(gpu_memory),
		cmocka_unit_test(reset_and_removal),  cmocka_unit_test(refused),
		cmocka_unit_test(in_another_process),
	};

	return cmocka_run_group_tests(tests, server_setup, server_teardown);
}
