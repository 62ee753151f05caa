// SPDX-License-Identifier: MIT
/* Text from files: what is UTF-8 and what is not, and names that stand in messages. */
#include "sim/sim_fixture.h"

#include "../../model/words.h"

/* The first and the last of each length, and what stands on both sides of the surrogates. */
static void utf8(void **state)
{
	static const char *const good[] = {
		"",
		"a",
		"\x01",
		"\x7f",
		"\xc2\x80",
		"\xdf\xbf",
		"\xe0\xa0\x80",
		"\xef\xbf\xbf",
		"\xed\x9f\xbf",
		"\xee\x80\x80",
		"\xf0\x90\x80\x80",
		"\xf4\x8f\xbf\xbf",
		"a\xc3\xa4z",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		if (!pl_words_is_utf8(good[i]))
			fail_msg("number %zu is UTF-8", i);
}

static void not_utf8(void **state)
{
	static const char *const bad[] = {
		/* overlong: a shorter form is there */
		"\xc0\x80",
		"\xc1\xbf",
		"\xe0\x80\x80",
		"\xe0\x9f\xbf",
		"\xf0\x80\x80\x80",
		"\xf0\x8f\xbf\xbf",
		/* surrogates */
		"\xed\xa0\x80",
		"\xed\xbf\xbf",
		/* past the last character */
		"\xf4\x90\x80\x80",
		"\xf7\xbf\xbf\xbf",
		/* no first byte */
		"\x80",
		"\xbf",
		"\xf8\x88\x80\x80\x80",
		"\xff",
		/* cut off, or another character where one should go on */
		"\xc3",
		"\xe2\x82",
		"\xf0\x9f\x98",
		"\xc3z",
		"\xe2\x82z",
		"\xc3\xc3\xa4",
		"a\xc3\xa4\xa4",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (pl_words_is_utf8(bad[i]))
			fail_msg("number %zu is not UTF-8", i);
}

static void names(void **state)
{
	const size_t most = sizeof(((struct pl_words *)NULL)->text) - 4;
	char name[200], want[200];

	(void)state;
	assert_string_equal(pl_words_name("a\tb\x1b[31m\x7f").text, "a?b?[31m?");
	assert_string_equal(pl_words_file("/tmp/x/model").text, "model");
	assert_string_equal(pl_words_file("model").text, "model");
	/* As long as there is room, and one more. */
	memset(name, 'n', sizeof(name));
	name[most] = '\0';
	assert_string_equal(pl_words_name(name).text, name);
	name[most] = 'n';
	name[most + 1] = '\0';
	memset(want, 'n', most);
	strcpy(want + most, "...");
	assert_string_equal(pl_words_name(name).text, want);
	/* A character of two bytes is not cut in the middle. */
	memcpy(name + most - 1, "\xc3\xa4\xc3\xa4", 5);
	strcpy(want + most - 1, "...");
	assert_string_equal(pl_words_name(name).text, want);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(utf8),
		cmocka_unit_test(not_utf8),
		cmocka_unit_test(names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
