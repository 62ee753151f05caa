// SPDX-License-Identifier: MIT
/* Sharded models: good ones, and every way an index can be wrong. */
#include "model_fixture.h"

#include <sys/stat.h>

#define A "{\"dtype\":\"U8\",\"shape\":[100],\"data_offsets\":[0,100]}"
#define B "{\"dtype\":\"U8\",\"shape\":[50],\"data_offsets\":[100,150]}"

static struct peerlane *ctx;

static const char *index_file(const char *name, const char *text)
{
	return mf_text(name, text, strlen(text));
}

static void shards(void **state)
{
	struct peerlane_model_info info = { .size = sizeof(info) };
	struct peerlane_model_file f = { .size = sizeof(f) };
	struct peerlane_model_part *parts;
	struct peerlane_model_memory *mem;
	struct peerlane_model *m;
	size_t nr;

	(void)state;
	ctx = sim_open(0);
	assert_int_equal(mkdir(sim_path("sub"), 0700), 0);
	mf_file("one.safetensors", "{\"a\":" A ",\"b\":" B "}", 150, 1);
	mf_file("sub/two.safetensors", "{\"c\":" A ",\"unnamed\":" B "}", 150, 1);
	m = mf_open(ctx,
		    index_file("model.safetensors.index.json",
			       "{\"metadata\":{\"total_size\":250,\"x\":[1.5]},\"weight_map\":{"
			       "\"c\":\"sub/two.safetensors\",\"b\":\"one.safetensors\","
			       "\"a\":\"one.safetensors\"}}\n"));
	assert_int_equal(peerlane_model_get_info(m, &info), 0);
	assert_int_equal(info.nr_tensors, 3);
	assert_int_equal(info.nr_files, 2);
	assert_int_equal(info.bytes, 250);
	assert_int_equal(peerlane_model_find(m, "a"), 0);
	assert_int_equal(peerlane_model_find(m, "b"), 1);
	assert_int_equal(peerlane_model_find(m, "c"), 2);
	assert_int_equal(peerlane_model_find(m, "unnamed"), -ENOENT);
	assert_int_equal(mf_get(m, "c").file, 1);
	assert_int_equal(peerlane_model_get_file(m, 1, &f), 0);
	assert_non_null(strstr(f.path, "/sub/two.safetensors"));
	parts = mf_all(m, &nr);
	assert_int_equal(peerlane_model_memory_alloc(m, parts, nr, 0, 0, &mem), 0);
	assert_int_equal(peerlane_model_load(m, parts, nr, NULL, NULL), 0);
	for (size_t i = 0; i < nr; i++)
		mf_assert_part(ctx, m, &parts[i], 1);
	peerlane_model_memory_free(mem);
	free(parts);
	peerlane_model_close(m);
	/* The folder is the same model. */
	m = mf_open(ctx, sim_path("."));
	assert_int_equal(peerlane_model_get_info(m, &info), 0);
	assert_int_equal(info.nr_tensors, 3);
	peerlane_model_close(m);
	assert_int_equal(unlink(sim_path("model.safetensors.index.json")), 0);
	mf_file("model.safetensors", "{\"alone\":" A "}", 100, 1);
	m = mf_open(ctx, sim_path("."));
	mf_get(m, "alone");
	peerlane_model_close(m);
	sim_close(ctx, NULL, NULL);
}

static void make_folder(const char *name)
{
	assert_int_equal(mkdir(sim_path(name), 0700), 0);
}

/* Without the usual names the only model of a folder is taken, and an index before its shards. */
static void other_names(void **state)
{
	struct peerlane_model *m;

	(void)state;
	ctx = sim_open(0);
	make_folder("own");
	mf_file("own/diffusion.safetensors", "{\"alone\":" A "}", 100, 1);
	/* Neither hidden files nor others count. */
	mf_file("own/.temp.safetensors", "{}", 0, 1);
	mf_file("own/diffusion.safetensors.bak", "{}", 0, 1);
	m = mf_open(ctx, sim_path("own"));
	mf_get(m, "alone");
	peerlane_model_close(m);
	mf_file("own/more.safetensors", "{\"more\":" A "}", 100, 1);
	mf_refused(ctx, sim_path("own"), -EINVAL, "own|2 safetensors files and no index; name one");
	index_file("own/x.safetensors.index.json",
		   "{\"weight_map\":{\"alone\":\"diffusion.safetensors\","
		   "\"more\":\"more.safetensors\"}}");
	m = mf_open(ctx, sim_path("own"));
	mf_get(m, "alone");
	mf_get(m, "more");
	peerlane_model_close(m);
	index_file("own/y.safetensors.index.json", "{}");
	mf_refused(ctx, sim_path("own"), -EINVAL, "own|2 index files; name one of them");
	sim_close(ctx, NULL, NULL);
}

static const struct {
	const char *text;
	int err;
	const char *words;
} cases[] = {
	{ "", -EUCLEAN, "i.json|JSON|object" },
	{ "[]", -EUCLEAN, "i.json|JSON|object" },
	{ "{}", -EUCLEAN, "i.json: not the index of a model: no weight_map" },
	{ "{\"weight_map\":{}}", -EUCLEAN, "i.json|no weight_map" },
	{ "{\"weight_map\":[]}", -EUCLEAN, "i.json|JSON" },
	{ "{\"weight_map\":{\"a\":\"one\"}", -EUCLEAN, "i.json|JSON|comma or the end" },
	{ "{\"weight_map\":{\"a\":\"one\"}}x", -EUCLEAN, "i.json|JSON|nothing may follow" },
	{ "{\"weight_map\":{\"a\":\"one\"},\"weight_map\":{\"b\":\"one\"}}", -EUCLEAN,
	  "i.json|weight_map is there twice" },
	{ "{\"weight_map\":{\"a\":\"one\",\"a\":\"one\"}}", -EUCLEAN, "tensor \"a\"|twice" },
	{ "{\"weight_map\":{\"a\":1}}", -EUCLEAN, "tensor \"a\"|not the name" },
	{ "{\"weight_map\":{\"a\":\"o\\u0000ne\"}}", -EUCLEAN, "i.json|JSON|NUL" },
	{ "{\"weight_map\":{\"a\":\"\"}}", -EUCLEAN, "tensor \"a\"|not a file of the folder" },
	{ "{\"weight_map\":{\"a\":\"/etc/passwd\"}}", -EUCLEAN, "tensor \"a\"|not a file of" },
	{ "{\"weight_map\":{\"a\":\"..\"}}", -EUCLEAN, "tensor \"a\"|not a file of the folder" },
	{ "{\"weight_map\":{\"a\":\"../one\"}}", -EUCLEAN, "tensor \"a\"|not a file of" },
	{ "{\"weight_map\":{\"a\":\"x/../../one\"}}", -EUCLEAN, "tensor \"a\"|not a file of" },
	{ "{\"weight_map\":{\"a\":\"x/..\"}}", -EUCLEAN, "tensor \"a\"|not a file of" },
	{ "{\"weight_map\":{\"a\":\"x//..//one\"}}", -EUCLEAN, "tensor \"a\"|not a file of" },
	{ "{\"weight_map\":{\"a\":\"missing\"}}", -ENOENT, "i.json|shard \"missing\"|not there" },
	{ "{\"weight_map\":{\"a\":\"one\",\"b\":\"two\"}}", -ENOENT, "shard \"two\"|not there" },
	{ "{\"weight_map\":{\"a\":\"one\",\"c\":\"one\"}}", -EUCLEAN,
	  "tensor \"c\"|not in its shard one" },
	{ "{\"weight_map\":{\"a\":\"bad\"}}", -EUCLEAN, "bad|tensor \"t\"|gap" },
	{ "{\"weight_map\":{\"a\":\".\"}}", -EINVAL, "not a regular file" },
};

static void corpus(void **state)
{
	(void)state;
	ctx = sim_open(0);
	mf_file("one", "{\"a\":" A ",\"b\":" B "}", 150, 1);
	mf_file("bad", "{\"t\":" B "}", 150, 1);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		mf_refused(ctx, index_file("i.json", cases[i].text), cases[i].err, cases[i].words);
	/* Names with dots in them are no way out. */
	mf_file("..one", "{\"a\":" A "}", 100, 1);
	peerlane_model_close(
		mf_open(ctx, index_file("i.json", "{\"weight_map\":{\"a\":\"..one\"}}")));
	sim_close(ctx, NULL, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(shards),
		sim_test(other_names),
		sim_test(corpus),
	};

	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown);
}
