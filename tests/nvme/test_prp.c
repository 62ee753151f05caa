// SPDX-License-Identifier: MIT
/* PRPs and SGLs: every edge by itself, and random ones against a naive reading of what was built. */
#include "nvme_test.h"

#include "map.h"
#include "prp.h"
#include "sgl.h"

#define PAGE ((size_t)4096)
#define AREA ((size_t)8 << 20)

static uint64_t state_rnd = 88172645463325252u;

static uint64_t rnd(uint64_t below)
{
	state_rnd ^= state_rnd << 13;
	state_rnd ^= state_rnd >> 7;
	state_rnd ^= state_rnd << 17;
	return state_rnd % below;
}

/* Memory on a bus of its own. */
struct memory {
	struct fake *f;
	char *data, *lists;
	const struct pl_nvme_mapping *data_map, *lists_map;
	struct pl_nvme_pages v, l;
	uint64_t *joined[2];
	unsigned int page_shift;
};

static int try_setup(struct memory *m, bool scattered, size_t page_bytes, unsigned int page_shift,
		     size_t skip)
{
	struct pl_nvme_region region = { .kind = PL_NVME_HOST, .pin_fd = -1 };
	struct peerlane_nvme *nvme;
	int rc;

	memset(m, 0, sizeof(*m));
	m->f = fake_new();
	/* Opening it once gives it its transport. */
	assert_int_equal(fake_open(m->f, NULL, &nvme), 0);
	peerlane_nvme_close(nvme);
	m->f->cap |= (uint64_t)(page_shift - 12) << PL_NVME_CAP_MPSMIN_SHIFT;
	m->f->scattered = scattered;
	m->f->page_bytes = page_bytes;
	m->page_shift = page_shift;
	m->data = aligned_alloc(65536, AREA);
	m->lists = aligned_alloc(65536, AREA);
	memset(m->lists, 0x5a, AREA);
	region.ptr = m->data + skip;
	region.bytes = AREA - skip;
	assert_int_equal(m->f->t.ops->map(&m->f->t, &region, &m->data_map), 0);
	m->f->page_bytes = page_bytes < (size_t)1 << page_shift ? (size_t)1 << page_shift
								: page_bytes;
	region.ptr = m->lists;
	region.bytes = AREA;
	assert_int_equal(m->f->t.ops->map(&m->f->t, &region, &m->lists_map), 0);
	rc = pl_nvme_pages_join(m->data_map, page_shift, &m->v, &m->joined[0]);
	assert_int_equal(pl_nvme_pages_join(m->lists_map, page_shift, &m->l, &m->joined[1]), 0);
	return rc;
}

static void setup(struct memory *m, bool scattered, size_t page_bytes, unsigned int page_shift,
		  size_t skip)
{
	assert_int_equal(try_setup(m, scattered, page_bytes, page_shift, skip), 0);
}

static void teardown(struct memory *m)
{
	m->f->t.ops->unmap(&m->f->t, m->data_map);
	m->f->t.ops->unmap(&m->f->t, m->lists_map);
	free(m->joined[0]);
	free(m->joined[1]);
	fake_free(m->f);
	free(m->data);
	free(m->lists);
}

/* What was built, read naively, is the bytes [at, at + bytes) of the memory. */
static void same(struct memory *m, const struct pl_nvme_sqe *sqe, const char *at, size_t bytes)
{
	struct fake_piece *pieces;
	size_t nr;

	assert_int_equal(fake_walk(m->f, sqe, bytes, &pieces, &nr), 0);
	for (size_t i = 0; i < nr; i++) {
		assert_ptr_equal(pieces[i].ptr, at);
		at += pieces[i].bytes;
		assert_true(pieces[i].bytes <= bytes);
		bytes -= pieces[i].bytes;
	}
	assert_int_equal(bytes, 0);
	free(pieces);
}

static int prp(struct memory *m, size_t offset, size_t bytes, size_t list_at, size_t list_bytes,
	       struct pl_nvme_sqe *sqe)
{
	memset(sqe, 0, sizeof(*sqe));
	return pl_nvme_prp_build(&m->v, offset, bytes, (size_t)1 << m->page_shift, &m->l, list_at,
				 list_bytes, &sqe->dptr);
}

/* Bytes of data, offset into the first page, entries of the list (0 none). */
static const struct {
	size_t bytes, offset;
	unsigned int entries;
} edges[] = {
	{ 4, 0, 0 },
	{ 4, 4092, 0 },
	{ 8, 4092, 0 },
	{ 512, 0, 0 },
	{ 4096, 0, 0 },
	{ 4096, 4, 0 },
	{ 8192, 0, 0 },
	{ 8192, 4, 2 },
	{ 8196, 0, 2 },
	{ 3 * 4096, 0, 2 },
	{ 3 * 4096, 512, 3 },
	{ 512 * 4096, 0, 511 },
	{ 512 * 4096, 4, 512 },
	{ 513 * 4096, 0, 512 },
	{ 513 * 4096, 4, 513 },
	{ 514 * 4096, 0, 513 },
	{ 1024 * 4096, 0, 1023 },
	{ 1024 * 4096, 4092, 1024 },
};

static void test_edges(void **state)
{
	struct memory m;

	(void)state;
	setup(&m, true, PAGE, 12, 0);
	for (size_t i = 0; i < sizeof(edges) / sizeof(edges[0]); i++) {
		/* Pages of the list but the last give one entry to the chain. */
		size_t n = edges[i].entries, chains = n > 512 ? (n - 2) / 511 : 0;
		size_t need = (n + chains) * 8, room;
		struct pl_nvme_sqe sqe;

		memset(m.lists, 0x5a, AREA);
		assert_int_equal(prp(&m, edges[i].offset, edges[i].bytes, 0, need, &sqe), 0);
		same(&m, &sqe, m.data + edges[i].offset, edges[i].bytes);
		/* Not one entry more is written than needed. */
		if (need)
			assert_true((unsigned char)m.lists[need - 1] != 0x5a);
		assert_int_equal((unsigned char)m.lists[need], 0x5a);
		if (!need)
			continue;
		/* With one entry less it is refused, and nothing beyond the room is touched. */
		memset(m.lists, 0x5a, AREA);
		assert_int_equal(prp(&m, edges[i].offset, edges[i].bytes, 0, need - 8, &sqe),
				 -ENOBUFS);
		assert_int_equal((unsigned char)m.lists[need - 8], 0x5a);
		/* What is kept for every command of this length is enough. */
		room = pl_nvme_prp_lists_bytes(edges[i].bytes, PAGE);
		assert_true(room >= need);
	}
	teardown(&m);
}

static void test_lists_bytes(void **state)
{
	(void)state;
	assert_int_equal(pl_nvme_prp_lists_bytes(512, PAGE), 0);
	assert_int_equal(pl_nvme_prp_lists_bytes(4096, PAGE), 0);
	assert_int_equal(pl_nvme_prp_lists_bytes(4100, PAGE), 0);
	assert_int_equal(pl_nvme_prp_lists_bytes(4104, PAGE), 16);
	assert_int_equal(pl_nvme_prp_lists_bytes(8192, PAGE), 16);
	assert_int_equal(pl_nvme_prp_lists_bytes(128 << 10, PAGE), 256);
	assert_int_equal(pl_nvme_prp_lists_bytes(1 << 20, PAGE), 2048);
	assert_int_equal(pl_nvme_prp_lists_bytes(2 << 20, PAGE), 4096);
	assert_int_equal(pl_nvme_prp_lists_bytes((2 << 20) + 4096, PAGE), 8192);
	assert_int_equal(pl_nvme_prp_lists_bytes(1 << 20, 2 * PAGE), 1024);
	/* 1023 entries: 511 and a chain, 512. */
	assert_int_equal(pl_nvme_prp_lists_bytes(1023 * 4096, PAGE), 8192);
	assert_int_equal(pl_nvme_prp_lists_bytes(1024 * 4096, PAGE), 12288);
}

/* One run is one descriptor; pages that do not follow each other are one each. */
static void test_sgl_edges(void **state)
{
	struct pl_nvme_sqe sqe = { .flags = PL_NVME_PSDT_SGL };
	struct memory m;

	(void)state;
	setup(&m, false, PAGE, 12, 0);
	assert_true(m.v.contiguous);
	assert_int_equal(pl_nvme_sgl_build(&m.v, 3, AREA - 3, PAGE, &m.l, 0, 0, &sqe.dptr), 0);
	assert_int_equal(sqe.dptr.sgl.type, PL_NVME_SGL_DATA << 4);
	same(&m, &sqe, m.data + 3, AREA - 3);
	teardown(&m);

	setup(&m, true, PAGE, 12, 0);
	assert_false(m.v.contiguous);
	/* 256 descriptors fill a page; one more makes a second segment. */
	assert_int_equal(pl_nvme_sgl_build(&m.v, 0, 256 * PAGE, PAGE, &m.l, 0, 4096, &sqe.dptr), 0);
	assert_int_equal(sqe.dptr.sgl.type, PL_NVME_SGL_LAST_SEGMENT << 4);
	assert_int_equal(sqe.dptr.sgl.length, 4096);
	same(&m, &sqe, m.data, 256 * PAGE);
	assert_int_equal(pl_nvme_sgl_build(&m.v, 0, 257 * PAGE, PAGE, &m.l, 0, 4096, &sqe.dptr),
			 -ENOBUFS);
	assert_int_equal(
		pl_nvme_sgl_build(&m.v, 0, 257 * PAGE, PAGE, &m.l, 0, 4096 + 16, &sqe.dptr),
		-ENOBUFS);
	assert_int_equal(
		pl_nvme_sgl_build(&m.v, 0, 257 * PAGE, PAGE, &m.l, 0, 4096 + 32, &sqe.dptr), 0);
	assert_int_equal(sqe.dptr.sgl.type, PL_NVME_SGL_SEGMENT << 4);
	same(&m, &sqe, m.data, 257 * PAGE);
	teardown(&m);
}

/* Random memory, ranges and places of the list, PRP and SGL. */
static void test_property(void **state)
{
	(void)state;
	for (unsigned int round = 0; round < 40; round++) {
		unsigned int page_shift = 12 + (unsigned int)rnd(2);
		size_t page_bytes = rnd(2) ? 65536 : (size_t)1 << page_shift;
		struct memory m;

		setup(&m, rnd(3) != 0, page_bytes, page_shift,
		      rnd(2) ? rnd(70000) & ~(size_t)3 : 0);
		for (unsigned int i = 0; i < 100; i++) {
			size_t offset = rnd(rnd(2) ? 9000 : m.v.bytes - 4) & ~(size_t)3;
			size_t most = m.v.bytes - offset, bytes = 1 + rnd(rnd(2) ? 20000 : most);
			size_t list_at = rnd(20000) & ~(size_t)15;
			struct pl_nvme_sqe sqe;

			bytes = bytes < most ? bytes : most;
			assert_int_equal(prp(&m, offset, bytes, list_at, AREA - list_at, &sqe), 0);
			same(&m, &sqe, m.v.cpu + offset, bytes);
			/* At a multiple of what is kept for it, that is enough. */
			list_at = pl_nvme_prp_lists_bytes(bytes, (size_t)1 << page_shift);
			assert_int_equal(prp(&m, offset, bytes, 3 * list_at, list_at, &sqe), 0);
			same(&m, &sqe, m.v.cpu + offset, bytes);

			offset += rnd(4);
			most = m.v.bytes - offset;
			bytes = bytes < most ? bytes : most;
			list_at = rnd(20000) & ~(size_t)15;
			memset(&sqe, 0, sizeof(sqe));
			sqe.flags = PL_NVME_PSDT_SGL;
			assert_int_equal(pl_nvme_sgl_build(&m.v, offset, bytes,
							   (size_t)1 << page_shift, &m.l, list_at,
							   AREA - list_at, &sqe.dptr),
					 0);
			same(&m, &sqe, m.v.cpu + offset, bytes);
		}
		teardown(&m);
	}
}

/* Controller pages larger than those of the transport: only where these lie together. */
static void test_join(void **state)
{
	struct memory m;

	(void)state;
	assert_int_equal(try_setup(&m, false, PAGE, 13, 0), 0);
	assert_non_null(m.joined[0]);
	for (size_t i = 0; i < AREA; i += 4096)
		assert_ptr_equal(fake_at(m.f, pl_nvme_bus(&m.v, i), 1), m.data + i);
	teardown(&m);
	assert_int_equal(try_setup(&m, true, PAGE, 13, 0), -EOPNOTSUPP);
	m.joined[0] = NULL;
	teardown(&m);
}

/* Descriptions that make no sense are refused, whoever made them. */
static void test_bad_mapping(void **state)
{
	uint64_t pages[3] = { 0x10000, 0x30000, 0x20000 }, *joined;
	const struct pl_nvme_mapping good = {
		.bytes = 8192,
		.offset = 16,
		.page_bytes = 4096,
		.nr_pages = 3,
		.pages = pages,
	};
	struct pl_nvme_mapping m = good;
	struct pl_nvme_pages v;

	(void)state;
	assert_int_equal(pl_nvme_pages_join(&m, 12, &v, &joined), 0);
	assert_null(joined);
	assert_false(v.contiguous);
	m.nr_pages = 2;
	assert_int_equal(pl_nvme_pages_join(&m, 12, &v, &joined), -EPROTO);
	m = good;
	m.page_bytes = 5000;
	assert_int_equal(pl_nvme_pages_join(&m, 12, &v, &joined), -EPROTO);
	m = good;
	m.page_bytes = 2048;
	assert_int_equal(pl_nvme_pages_join(&m, 12, &v, &joined), -EPROTO);
	m = good;
	m.offset = 4096;
	assert_int_equal(pl_nvme_pages_join(&m, 12, &v, &joined), -EPROTO);
	m = good;
	m.bytes = 0;
	assert_int_equal(pl_nvme_pages_join(&m, 12, &v, &joined), -EPROTO);
	m = good;
	m.bytes = SIZE_MAX;
	assert_int_equal(pl_nvme_pages_join(&m, 12, &v, &joined), -EPROTO);
	m = good;
	pages[1] += 512;
	assert_int_equal(pl_nvme_pages_join(&m, 12, &v, &joined), -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_edges),	  cmocka_unit_test(test_lists_bytes),
		cmocka_unit_test(test_sgl_edges), cmocka_unit_test(test_property),
		cmocka_unit_test(test_join),	  cmocka_unit_test(test_bad_mapping),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
