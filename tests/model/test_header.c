// SPDX-License-Identifier: MIT
/* What good files say of themselves: all types, shapes of every kind, metadata, order, padding, folders. */
#include "model_fixture.h"

#include <sys/stat.h>

static const struct {
	const char *name;
	unsigned int bits;
} dtypes[] = {
	{ "BOOL", 8 },	  { "F4", 4 },		{ "F6_E2M3", 6 },     { "F6_E3M2", 6 },
	{ "U8", 8 },	  { "I8", 8 },		{ "F8_E5M2", 8 },     { "F8_E4M3", 8 },
	{ "F8_E8M0", 8 }, { "F8_E4M3FNUZ", 8 }, { "F8_E5M2FNUZ", 8 }, { "I16", 16 },
	{ "U16", 16 },	  { "F16", 16 },	{ "BF16", 16 },	      { "I32", 32 },
	{ "U32", 32 },	  { "F32", 32 },	{ "C64", 64 },	      { "F64", 64 },
	{ "I64", 64 },	  { "U64", 64 },
};

#define NR_DTYPES (sizeof(dtypes) / sizeof(dtypes[0]))

static struct peerlane *ctx;

static void all_types(void **state)
{
	const uint64_t shape[] = { 3, 8, 5 };
	struct mf_header h;
	struct peerlane_model *m;
	struct peerlane_model_part *parts;
	struct peerlane_model_memory *mem;
	uint64_t at = 0;
	size_t nr;

	(void)state;
	ctx = sim_open(0);
	mf_begin(&h);
	for (size_t i = 0; i < NR_DTYPES; i++)
		mf_tensor(&h, dtypes[i].name, dtypes[i].name, shape, 3, 120 * dtypes[i].bits / 8);
	m = mf_open(ctx, mf_end(&h, "types", 3, 1));
	for (size_t i = 0; i < NR_DTYPES; i++) {
		struct peerlane_tensor t = mf_get(m, dtypes[i].name);

		assert_int_equal(t.dtype, i);
		assert_int_equal(t.bytes, 120 * dtypes[i].bits / 8);
		assert_int_equal(t.nr_dims, 3);
		assert_memory_equal(t.shape, shape, sizeof(shape));
		assert_int_equal(t.offset, 8 + h.len + at);
		at += t.bytes;
		assert_string_equal(peerlane_dtype_name(t.dtype), dtypes[i].name);
		assert_int_equal(peerlane_dtype_bits(t.dtype), dtypes[i].bits);
		assert_int_equal(peerlane_dtype_find(dtypes[i].name), i);
	}
	assert_int_equal(NR_DTYPES, PEERLANE_DTYPE_NR);
	assert_null(peerlane_dtype_name(PEERLANE_DTYPE_NR));
	assert_null(peerlane_dtype_name((enum peerlane_dtype) - 1));
	assert_int_equal(peerlane_dtype_bits(PEERLANE_DTYPE_NR), 0);
	assert_int_equal(peerlane_dtype_find("F7"), -ENOENT);
	sim_assert_error(-ENOENT, "F7");
	assert_int_equal(peerlane_dtype_find(NULL), -EINVAL);
	parts = mf_all(m, &nr);
	assert_int_equal(peerlane_model_memory_alloc(m, parts, nr, 0, 0, &mem), 0);
	assert_int_equal(peerlane_model_load(m, parts, nr, NULL, NULL), 0);
	for (size_t i = 0; i < nr; i++)
		mf_assert_part(ctx, m, &parts[i], 1);
	peerlane_model_memory_free(mem);
	free(parts);
	peerlane_model_close(m);
	sim_close(ctx, NULL, NULL);
}

static void odd_shapes(void **state)
{
	const char *header =
		"{\"scalar\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]},"
		"\"empty\":{\"dtype\":\"F32\",\"shape\":[4,0,9223372036854775806],"
		"\"data_offsets\":[8,8]},"
		"\"also empty\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[13,13]},"
		"\"\":{\"dtype\":\"I8\",\"shape\":[1,1,5,1],\"data_offsets\":[8,13]},"
		"\"gr\\u00fc\\u00dfe \\\"\\\\\\n\":{\"data_offsets\":[13,14],\"shape\":[1],"
		"\"dtype\":\"U8\",\"more\":{\"a\":[1,{\"b\":null}]}}}";
	struct peerlane_model_info info = { .size = sizeof(info) };
	struct peerlane_model_part *parts;
	struct peerlane_model_memory *mem;
	struct peerlane_model *m;
	struct peerlane_tensor t;
	size_t nr;

	(void)state;
	ctx = sim_open(0);
	m = mf_open(ctx, mf_file("odd", header, 14, 2));
	assert_int_equal(peerlane_model_get_info(m, &info), 0);
	assert_int_equal(info.nr_tensors, 5);
	assert_int_equal(info.nr_files, 1);
	assert_int_equal(info.bytes, 14);
	t = mf_get(m, "scalar");
	assert_int_equal(t.nr_dims, 0);
	assert_int_equal(t.bytes, 8);
	t = mf_get(m, "empty");
	assert_int_equal(t.bytes, 0);
	assert_int_equal(t.nr_dims, 3);
	t = mf_get(m, "");
	assert_int_equal(t.bytes, 5);
	mf_get(m, "gr\303\274\303\237e \"\\\n");
	/* In the order of the data. */
	assert_int_equal(peerlane_model_find(m, "scalar"), 0);
	assert_int_equal(peerlane_model_find(m, "empty"), 1);
	assert_int_equal(peerlane_model_find(m, ""), 2);
	assert_int_equal(peerlane_model_find(m, "also empty"), 3);
	parts = mf_all(m, &nr);
	for (int gpu = -1; gpu < 1; gpu++) {
		for (unsigned int flags = 0; flags < 2; flags++) {
			assert_int_equal(
				peerlane_model_memory_alloc(m, parts, nr, gpu, flags, &mem), 0);
			assert_int_equal(peerlane_model_load(m, parts, nr, NULL, NULL), 0);
			for (size_t i = 0; i < nr; i++)
				mf_assert_part(ctx, m, &parts[i], 2);
			peerlane_model_memory_free(mem);
		}
	}
	free(parts);
	peerlane_model_close(m);
	sim_close(ctx, NULL, NULL);
}

static void metadata(void **state)
{
	const char *header = "{ \"__metadata__\" : { \"format\" : \"pt\" , \"k\\u00e4\" : \"\" , "
			     "\"peerlane.xxh3:nobody\" : \"x\" } } \n";
	struct peerlane_model_file f = { .size = sizeof(f) };
	struct peerlane_model *m;
	const char *key, *value;

	(void)state;
	ctx = sim_open(0);
	m = mf_open(ctx, mf_file("meta", header, 0, 0));
	assert_int_equal(peerlane_model_get_file(m, 0, &f), 0);
	assert_int_equal(f.nr_metadata, 3);
	assert_int_equal(f.data_offset, 8 + strlen(header));
	assert_int_equal(f.bytes, f.data_offset);
	assert_non_null(strstr(f.path, "meta"));
	assert_int_equal(peerlane_model_metadata(m, 0, 0, &key, &value), 0);
	assert_string_equal(key, "format");
	assert_string_equal(value, "pt");
	assert_int_equal(peerlane_model_metadata(m, 0, 1, &key, &value), 0);
	assert_string_equal(key, "k\303\244");
	assert_string_equal(value, "");
	assert_int_equal(peerlane_model_metadata(m, 0, 3, &key, &value), -ENOENT);
	assert_int_equal(peerlane_model_metadata(m, 1, 0, &key, &value), -ENOENT);
	assert_int_equal(peerlane_model_metadata(m, 0, 0, NULL, &value), -EINVAL);
	peerlane_model_close(m);
	/* No tensors at all. */
	m = mf_open(ctx, mf_file("nothing", "{}", 0, 0));
	assert_int_equal(peerlane_model_load(m, NULL, 0, NULL, NULL), 0);
	peerlane_model_close(m);
	peerlane_model_close(NULL);
	sim_close(ctx, NULL, NULL);
}

/* The table has what each tensor says of itself, and names and shapes without gaps. */
static void table(void **state)
{
	struct peerlane_model_table all = { .size = sizeof(all) };
	struct peerlane_tensor t = { .size = sizeof(t) };
	struct peerlane_model *m;
	const uint64_t *lengths;
	const char *name;

	(void)state;
	ctx = sim_open(0);
	m = mf_open(ctx,
		    mf_file("table",
			    "{\"b\":{\"dtype\":\"U8\",\"shape\":[2,3],\"data_offsets\":[4,10]},"
			    "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
			    "\"\":{\"dtype\":\"I8\",\"shape\":[1,1,2],\"data_offsets\":[10,12]}}",
			    12, 0));
	assert_int_equal(peerlane_model_get_table(m, &all), 0);
	assert_int_equal(all.nr, 3);
	assert_int_equal(all.names_bytes, 5);
	assert_int_equal(all.nr_lengths, 5);
	assert_memory_equal(all.names, "a\0b\0", 5);
	name = all.names;
	lengths = all.lengths;
	for (size_t i = 0; i < all.nr; i++) {
		assert_int_equal(peerlane_model_get_tensor(m, i, &t), 0);
		assert_memory_equal(&t, &all.tensors[i], sizeof(t));
		assert_ptr_equal(t.name, name);
		assert_ptr_equal(t.shape, lengths);
		name += strlen(name) + 1;
		lengths += t.nr_dims;
	}
	assert_int_equal(all.lengths[1], 3);
	assert_int_equal(all.tensors[1].file, 0);
	peerlane_model_close(m);
	sim_close(ctx, NULL, NULL);
}

static void bad_calls(void **state)
{
	struct peerlane_model_info info = { .size = 1 };
	struct peerlane_model_file f = { .size = sizeof(f) };
	struct peerlane_tensor t = { .size = sizeof(t) };
	struct peerlane_model_table all = { .size = 1 };
	struct peerlane_model *m;
	const char *path = mf_file("calls", "{}", 0, 0);

	(void)state;
	ctx = sim_open(0);
	assert_int_equal(peerlane_model_open(NULL, path, &m), -EINVAL);
	assert_int_equal(peerlane_model_open(ctx, NULL, &m), -EINVAL);
	assert_int_equal(peerlane_model_open(ctx, path, NULL), -EINVAL);
	m = mf_open(ctx, path);
	assert_int_equal(peerlane_model_get_info(m, &info), -EINVAL);
	assert_int_equal(peerlane_model_get_info(NULL, &info), -EINVAL);
	assert_int_equal(peerlane_model_get_file(m, 1, &f), -ENOENT);
	f.size = 1;
	assert_int_equal(peerlane_model_get_file(m, 0, &f), -EINVAL);
	assert_int_equal(peerlane_model_get_tensor(m, 0, &t), -ENOENT);
	t.size = 1;
	assert_int_equal(peerlane_model_get_tensor(m, 0, &t), -EINVAL);
	assert_int_equal(peerlane_model_get_table(m, &all), -EINVAL);
	assert_int_equal(peerlane_model_get_table(NULL, &all), -EINVAL);
	assert_int_equal(peerlane_model_find(m, "x"), -ENOENT);
	sim_assert_error(-ENOENT, "\"x\"");
	assert_int_equal(peerlane_model_find(m, NULL), -EINVAL);
	peerlane_model_close(m);
	sim_close(ctx, NULL, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(all_types), sim_test(odd_shapes), sim_test(metadata),
		sim_test(table),     sim_test(bad_calls),
	};

	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown);
}
