// SPDX-License-Identifier: MIT
/* Malformed files: each is refused with words that name the tensor and the fault, and nothing is kept. */
#include "model_fixture.h"

#include <sys/stat.h>

static struct peerlane *ctx;

/* A tensor of 4 bytes called t, with something in place of one member. */
#define T(dtype, shape, offsets)                                                                   \
	"{\"t\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
#define GOOD "{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}"

static const struct {
	const char *header;
	size_t data_bytes;
	const char *words;
} cases[] = {
	/* JSON */
	{ "", 0, "case: |header does not begin with {" },
	{ " {}", 0, "header does not begin with {" },
	{ "[]", 0, "header does not begin with {" },
	{ "{", 0, "JSON|byte 1|name in quotes" },
	{ "{}{}", 0, "JSON|nothing may follow" },
	{ "{}x", 0, "JSON|nothing may follow" },
	{ "{,}", 0, "JSON|name in quotes" },
	{ "{\"t\"", 0, "JSON|colon" },
	{ "{\"t\":", 0, "\"t\"|JSON|value must follow" },
	{ "{\"t\":}", 0, "\"t\"|JSON" },
	{ "{\"t\":/**/" GOOD "}", 4, "\"t\"|JSON" },
	{ "{\"t\":" GOOD, 4, "JSON|comma or the end" },
	{ "{\"t\":" GOOD ",}", 4, "JSON|name in quotes" },
	{ "{\"t\":" GOOD "\"u\"}", 4, "JSON|comma or the end" },
	{ "{t:" GOOD "}", 4, "JSON|name in quotes" },
	{ "{'t':" GOOD "}", 4, "JSON|name in quotes" },
	{ "{\"t\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4],}}", 4, "\"t\"|JSON" },
	{ "{\"t\":{\"dtype\":\"U8\",\"shape\":[4,],\"data_offsets\":[0,4]}}", 4, "\"t\"|JSON" },
	{ "{\"t\":{'dtype':\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, "\"t\"|JSON" },
	{ "{\"t\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]", 4,
	  "\"t\"|ends too early" },
	{ "{\"\xff\":" GOOD "}", 4, "JSON|utf-8" },
	{ "{\"\xc0\x80\":" GOOD "}", 4, "tensor|UTF-8" },
	{ "{\"\xed\xa0\x80\":" GOOD "}", 4, "tensor|UTF-8" },
	{ "{\"a\\u0000b\":" GOOD "}", 4, "JSON|NUL" },
	{ "{\"t\":{\"dtype\\u0000\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4,
	  "\"t\"|NUL" },
	{ "{\"a\nb\":" GOOD "}", 4, "JSON|control character" },
	{ T("\"U8\"", "[4]", "[00,4]"), 4, "\"t\"|JSON|zero" },
	/* Twice */
	{ "{\"t\":" GOOD ",\"t\":" GOOD "}", 4, "tensor \"t\"|twice" },
	{ "{\"t\":" GOOD ",\"\\u0074\":" GOOD "}", 4, "tensor \"t\"|twice" },
	{ "{\"t\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4,
	  "tensor \"t\"|twice" },
	{ "{\"__metadata__\":{\"a\":\"1\",\"a\":\"1\"}}", 0, "__metadata__|\"a\"|twice" },
	{ "{\"__metadata__\":{},\"__metadata__\":{}}", 0, "__metadata__|twice" },
	/* Metadata */
	{ "{\"__metadata__\":[]}", 0, "__metadata__|not an object" },
	{ "{\"__metadata__\":{\"a\":1}}", 0, "__metadata__|\"a\"|not text" },
	{ "{\"__metadata__\":{\"a\":null}}", 0, "__metadata__|\"a\"|not text" },
	{ "{\"__metadata__\":{\"a\":\"x\\u0000\"}}", 0, "JSON|NUL" },
	{ "{\"__metadata__\":{\"a\":\"\xc0\x80\"}}", 0, "__metadata__|\"a\"|not text" },
	{ "{\"__metadata__\":{\"a\"}}", 0, "JSON|colon" },
	{ "{\"__metadata__\":{\"peerlane.xxh3:t\":\"0123\"},\"t\":" GOOD "}", 4,
	  "tensor \"t\"|checksum" },
	{ "{\"__metadata__\":{\"peerlane.xxh3:t\":\"0123456789abcdeF\"},\"t\":" GOOD "}", 4,
	  "tensor \"t\"|checksum" },
	/* Members */
	{ "{\"t\":1}", 4, "tensor \"t\"|not an object" },
	{ "{\"t\":null}", 4, "tensor \"t\"|not an object" },
	{ "{\"t\":[]}", 4, "tensor \"t\"|not an object" },
	{ "{\"t\":{}}", 4, "tensor \"t\"|dtype is missing" },
	{ T("\"F7\"", "[4]", "[0,4]"), 4, "tensor \"t\"|unknown dtype \"F7\"" },
	{ T("\"u8\"", "[4]", "[0,4]"), 4, "tensor \"t\"|unknown dtype \"u8\"" },
	{ T("8", "[4]", "[0,4]"), 4, "tensor \"t\"|dtype" },
	{ T("\"U8\\u0000\"", "[4]", "[0,4]"), 4, "tensor \"t\"|NUL" },
	{ "{\"t\":{\"dtype\":\"U8\",\"data_offsets\":[0,4]}}", 4, "tensor \"t\"|shape is missing" },
	{ T("\"U8\"", "4", "[0,4]"), 4, "tensor \"t\"|shape" },
	{ T("\"U8\"", "[-4]", "[0,4]"), 4, "tensor \"t\"|shape" },
	{ T("\"U8\"", "[4.0]", "[0,4]"), 4, "tensor \"t\"|shape" },
	{ T("\"U8\"", "[4e0]", "[0,4]"), 4, "tensor \"t\"|shape" },
	{ T("\"U8\"", "[\"4\"]", "[0,4]"), 4, "tensor \"t\"|shape" },
	{ T("\"U8\"", "[true]", "[0,4]"), 4, "tensor \"t\"|shape" },
	{ T("\"U8\"", "[NaN]", "[0,4]"), 4, "tensor \"t\"|shape" },
	{ T("\"U8\"", "[04]", "[0,4]"), 4, "tensor \"t\"|JSON" },
	{ T("\"U8\"", "[[4]]", "[0,4]"), 4, "tensor \"t\"|shape" },
	{ "{\"t\":{\"dtype\":\"U8\",\"shape\":[4]}}", 4, "tensor \"t\"|data_offsets are missing" },
	{ T("\"U8\"", "[4]", "[0]"), 4, "tensor \"t\"|data_offsets" },
	{ T("\"U8\"", "[4]", "[0,4,4]"), 4, "tensor \"t\"|data_offsets" },
	{ T("\"U8\"", "[4]", "[0,-4]"), 4, "tensor \"t\"|data_offsets" },
	{ T("\"U8\"", "[4]", "[4,0]"), 4, "tensor \"t\"|ends before it begins" },
	/* Sizes */
	{ T("\"U8\"", "[5]", "[0,4]"), 4, "tensor \"t\"|5 bytes|are 4" },
	{ T("\"U16\"", "[1]", "[0,4]"), 4, "tensor \"t\"|2 bytes|are 4" },
	{ T("\"F4\"", "[3]", "[0,2]"), 2, "tensor \"t\"|whole number of bytes" },
	{ T("\"F6_E2M3\"", "[2]", "[0,2]"), 2, "tensor \"t\"|whole number of bytes" },
	{ T("\"U8\"", "[4294967296,4294967296]", "[0,0]"), 0, "tensor \"t\"|overflows" },
	{ T("\"U8\"", "[4294967296,4294967296,0]", "[0,0]"), 0, "tensor \"t\"|overflows" },
	{ T("\"F64\"", "[2305843009213693952]", "[0,0]"), 0, "tensor \"t\"|overflows" },
	{ T("\"U8\"", "[0,9223372036854775807]", "[0,0]"), 0, "tensor \"t\"|shape" },
	{ T("\"U8\"", "[99999999999999999999999,0]", "[0,0]"), 0, "tensor \"t\"|shape" },
	{ T("\"U8\"", "[4]", "[18446744073709551612,18446744073709551616]"), 4,
	  "tensor \"t\"|data_offsets" },
	/* The data together */
	{ T("\"U8\"", "[4]", "[0,4]"), 3, "tensor \"t\"|ends at byte 4|only 3|truncated" },
	{ T("\"U8\"", "[4]", "[0,4]"), 0, "tensor \"t\"|truncated" },
	{ T("\"U8\"", "[4]", "[0,4]"), 5, "tensor \"t\"|1 bytes follow" },
	{ "{}", 1, "1 bytes of data, but no tensors" },
	{ T("\"U8\"", "[4]", "[1,5]"), 5, "tensor \"t\"|gap of 1 bytes" },
	{ "{\"a\":" GOOD ",\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[3,7]}}", 7,
	  "tensor \"b\"|overlaps that of \"a\"" },
	{ "{\"a\":" GOOD ",\"b\":" GOOD "}", 4, "tensor \"b\"|overlaps that of \"a\"" },
	{ "{\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[6,10]},\"a\":" GOOD "}", 10,
	  "tensor \"b\"|gap of 2 bytes" },
	{ "{\"a\":" GOOD ",\"z\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[2,2]}}", 4,
	  "tensor \"z\"|overlaps" },
	/* A name that would write to the terminal. */
	{ "{\"a\\u001b[2Jb\":1}", 0, "tensor \"a?[2Jb\"" },
};

static void corpus(void **state)
{
	(void)state;
	ctx = sim_open(0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		mf_refused(ctx, mf_file("case", cases[i].header, cases[i].data_bytes, 0), -EUCLEAN,
			   cases[i].words);
	sim_close(ctx, NULL, NULL);
}

static void lengths(void **state)
{
	const char empty[8] = { 0 };

	(void)state;
	ctx = sim_open(0);
	mf_refused(ctx, mf_text("l", "", 0), -EUCLEAN, "l: not a safetensors file: it is empty");
	mf_refused(ctx, mf_text("l", "\2\0\0\0\0\0\0", 7), -EUCLEAN,
		   "l: not a safetensors file|only 7 bytes");
	mf_refused(ctx, mf_text("l", empty, 8), -EUCLEAN,
		   "l: not a safetensors file: |does not begin with {");
	mf_refused(ctx, mf_text("l", "\3\0\0\0\0\0\0\0{}", 10), -EUCLEAN,
		   "l: not a safetensors file, or cut short: |3 bytes|only 10");
	mf_refused(ctx, mf_text("l", "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10), -EUCLEAN,
		   "l: not a safetensors file: |18446744073709551615|100000000");
	mf_refused(ctx, mf_text("l", "\1\xe1\xf5\5\0\0\0\0{}", 10), -EUCLEAN,
		   "100000001|100000000");
	mf_refused(ctx, mf_text("l", "\0\xe1\xf5\5\0\0\0\0{}", 10), -EUCLEAN, "100000000|only 10");
	mf_refused(ctx, mf_text("l", "\2\0\0\0\0\0\0\0{\0", 10), -EUCLEAN, "name in quotes");
	sim_close(ctx, NULL, NULL);
}

/* Other formats are named: whoever has such a file knows what to do then. */
static void other_formats(void **state)
{
	static const struct {
		const char *begin, *words;
	} files[] = {
		{ "GGUF\3\0\0\0\0\0", "l: not a safetensors file: it is GGUF" },
		{ "PK\3\4\0\0\10\10\0\0", "l: not a safetensors file: it is a ZIP" },
		{ "\x80\2}q\1.\0\0\0\0", "l: not a safetensors file: it is a pickle" },
		{ "\x89HDF\r\n\x1a\n\0\0", "l: not a safetensors file: it is HDF5" },
		{ "\x93NUMPY\1\0v\0", "l: not a safetensors file: it is a NumPy" },
		{ "version ht", "l: not a safetensors file: |git lfs pull" },
		{ "<!DOCTYPE ", "l: not a safetensors file: it is a web page" },
		{ "<html><hea", "l: not a safetensors file: it is a web page" },
		{ "hello, wor", "l: not a safetensors file: the header would be" },
	};

	(void)state;
	ctx = sim_open(0);
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		mf_refused(ctx, mf_text("l", files[i].begin, 10), -EUCLEAN, files[i].words);
	sim_close(ctx, NULL, NULL);
}

/* Deeper than anything has to be, and more dimensions than anyone has. */
static void depth(void **state)
{
	char text[2048] = "{\"t\":{\"x\":";
	size_t len = strlen(text);
	uint64_t ones[65];
	struct mf_header h;
	struct peerlane_model *m;

	(void)state;
	ctx = sim_open(0);
	memset(text + len, '[', 1000);
	mf_refused(ctx, mf_file("deep", text, 0, 0), -EUCLEAN, "tensor \"t\"|JSON|deep");
	for (int i = 0; i < 65; i++)
		ones[i] = 1;
	mf_begin(&h);
	mf_tensor(&h, "t", "U8", ones, 64, 1);
	m = mf_open(ctx, mf_end(&h, "dims", 0, 0));
	assert_int_equal(mf_get(m, "t").nr_dims, 64);
	peerlane_model_close(m);
	mf_begin(&h);
	mf_tensor(&h, "t", "U8", ones, 65, 1);
	mf_refused(ctx, mf_end(&h, "dims", 0, 0), -EUCLEAN, "tensor \"t\"|65 dimensions");
	sim_close(ctx, NULL, NULL);
}

/* Every shorter file is refused, and so is every file with one more byte. */
static void truncated(void **state)
{
	const char *path = mf_file("whole", T("\"U8\"", "[4]", "[0,4]"), 4, 7);
	struct peerlane_model *m = (struct peerlane_model *)-1;
	off_t bytes = sim_file_size(path);

	(void)state;
	ctx = sim_open(0);
	assert_int_equal(truncate(path, bytes + 1), 0);
	mf_refused(ctx, path, -EUCLEAN, "tensor \"t\"|1 bytes follow");
	for (off_t n = bytes - 1; n >= 0; n--) {
		assert_int_equal(truncate(path, n), 0);
		assert_int_equal(peerlane_model_open(ctx, path, &m), -EUCLEAN);
	}
	sim_close(ctx, NULL, NULL);
}

/* A name too long for a message leaves room for the fault. */
static void long_names(void **state)
{
	char *header = malloc(100000), name[300];
	int at = sprintf(header, "{\"");

	(void)state;
	ctx = sim_open(0);
	for (int i = 0; i < 30000; i++)
		at += sprintf(header + at, "\303\244");
	sprintf(header + at, "\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,5]}}");
	memset(name, 'n', 250);
	name[250] = '\0';
	mf_refused(ctx, mf_file(name, header, 5, 0), -EUCLEAN,
		   "nnn|tensor \"\303\244|\303\244...\"|4 bytes|are 5");
	free(header);
	sim_close(ctx, NULL, NULL);
}

static void not_files(void **state)
{
	const char *path = sim_path("pipe");

	(void)state;
	ctx = sim_open(0);
	mf_refused(ctx, sim_path("none"), -ENOENT, "none");
	mf_refused(ctx, sim_path("none.json"), -ENOENT, "none.json");
	mf_refused(ctx, "/dev/null", -EINVAL, "null|not a regular file");
	assert_int_equal(mkfifo(path, 0600), 0);
	mf_refused(ctx, path, -EINVAL, "pipe|not a regular file");
	path = sim_path("folder");
	assert_int_equal(mkdir(path, 0700), 0);
	mf_refused(ctx, path, -ENOENT, "folder|no safetensors file");
	sim_close(ctx, NULL, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(corpus),    sim_test(lengths),	   sim_test(other_formats), sim_test(depth),
		sim_test(truncated), sim_test(long_names), sim_test(not_files),
	};

	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown);
}
