/* SPDX-License-Identifier: MIT */
/* How the tool writes numbers: for people, for programs, and what it says of rows it measured. */
#include "gpu_result.h"
#include "human.h"
#include "jsonout.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void people(void **state)
{
	(void)state;
	assert_string_equal(pl_human_nr(0, "file").text, "0 files");
	assert_string_equal(pl_human_nr(1, "file").text, "1 file");
	assert_string_equal(pl_human_nr(2, "file").text, "2 files");
	assert_string_equal(pl_human_size(1).text, "1 byte");
	assert_string_equal(pl_human_size(1000).text, "1000 bytes");
	assert_string_equal(pl_human_count(0.4).text, "0");
	assert_string_equal(pl_human_count(4024).text, "4024");
	assert_string_equal(pl_human_count(9999.4).text, "9999");
	assert_string_equal(pl_human_count(9999.6).text, "10.0 k");
	assert_string_equal(pl_human_count(12345).text, "12.3 k");
	assert_string_equal(pl_human_count(999499).text, "999 k");
	assert_string_equal(pl_human_count(999600).text, "1.00 M");
	assert_string_equal(pl_human_count(4.024e6).text, "4.02 M");
	assert_string_equal(pl_human_count(1.25e9).text, "1.25 G");
	assert_string_equal(pl_human_time(1).text, "1 ns");
	assert_string_equal(pl_human_time(512).text, "512 ns");
	assert_string_equal(pl_human_time(1024).text, "1.02 us");
	assert_string_equal(pl_human_time(16777216).text, "16.8 ms");
	assert_string_equal(pl_human_time(2147483648.0).text, "2.15 s");
	assert_string_equal(pl_human_time(1e12).text, "1000 s");
}

static void check_number(double value, const char *text)
{
	struct json_object *o = pl_jsonout_number(value);

	assert_string_equal(json_object_to_json_string(o), text);
	json_object_put(o);
}

static void programs(void **state)
{
	(void)state;
	check_number(0.00037704200000000001, "0.000377042");
	check_number(0, "0");
	check_number(1, "1");
	check_number(-2.5, "-2.5");
	check_number(100, "100");
	check_number(123456.4, "123456");
	check_number(0.9999999, "1");
	check_number(1.0 / 3, "0.333333");
	check_number(1e-9 / 3, "0.000000000333333");
	check_number(1234567890, "1234570000");
	check_number(NAN, "null");
	check_number(INFINITY, "null");
}

/* What is said of two rows. */
static char *told(double few, double many, bool on_gpu)
{
	struct pl_gpu_result r = { .what = "read",
				   .limit = "something",
				   .limit_name = "best",
				   .on_gpu = on_gpu,
				   .nr_rows = 2 };
	struct pl_report report;
	char *text;

	r.rows[0] = (struct pl_gpu_row){ .threads = 4, .ios = 100, .seconds = 100 / few };
	r.rows[1] = (struct pl_gpu_row){ .threads = 8, .ios = 100, .seconds = 100 / many };
	r.rows[1].limit = 2 * many;
	assert_int_equal(pl_report_init(&report), 0);
	pl_gpu_result_report(&r, &report);
	fflush(report.text);
	text = strdup(report.buf);
	assert_int_equal(json_object_object_length(json_object_object_get(report.root, "limit")),
			 2);
	pl_report_fini(&report);
	return text;
}

static void rows(void **state)
{
	char *text = told(1000, 4024, true);

	(void)state;
	assert_non_null(strstr(text, "peak            4024 IOPS with 8 threads\n"));
	assert_non_null(strstr(text, "of the limit    0.500\n"));
	/* The peak is not "enough for 0.9 of itself". */
	assert_null(strstr(text, "of the peak"));
	free(text);
	text = told(3.8e6, 4e6, true);
	assert_non_null(strstr(text, "peak            4 M IOPS with 8 threads\n"));
	assert_non_null(strstr(text, "enough          4 threads: 0.95 of the peak\n"));
	free(text);
	text = told(3.8e6, 4e6, false);
	assert_null(strstr(text, "of the limit"));
	assert_null(strstr(text, "of best"));
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(people),
		cmocka_unit_test(programs),
		cmocka_unit_test(rows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
