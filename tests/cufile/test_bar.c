// SPDX-License-Identifier: MIT
/* What is made of a PCI device's "resource" file. */
#include "cf_test.h"

#include "../../cufile/bar.h"

static size_t read_text(const char *text)
{
	FILE *f = fopen(cf_file("resource"), "we");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
	return pl_cf_bar_read(cf_file("resource"));
}

static void second_line(void **state)
{
	(void)state;
	assert_int_equal(read_text("0x00000000c0000000 0x00000000c0ffffff 0x0000000000040200\n"
				   "0x0000380000000000 0x0000383fffffffff 0x000000000014220c\n"
				   "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"),
			 268435456);
}

/* BAR 0 has 64 bits and takes the second line as well. */
static void third_line(void **state)
{
	(void)state;
	assert_int_equal(read_text("0x0000388042000000 0x0000388042ffffff 0x000000000014220c\n"
				   "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
				   "0x0000384000000000 0x0000387fffffffff 0x000000000014220c\n"
				   "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
				   "0x0000388040000000 0x0000388041ffffff 0x000000000014220c\n"
				   "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"),
			 268435456);
}

/* Ports are no window to memory; what comes after six lines is a ROM or belongs to virtual functions. */
static void others(void **state)
{
	(void)state;
	assert_int_equal(read_text("0x00000000c0000000 0x00000000c0ffffff 0x0000000000040200\n"
				   "0x000000000000e000 0x000000000000e07f 0x0000000000040101\n"
				   "0x0000380000000000 0x000038000fffffff 0x000000000014220c\n"),
			 262144);
	assert_int_equal(read_text("0x00000000c0000000 0x00000000c0ffffff 0x0000000000040200\n"
				   "0x0 0x0 0x0\n0x0 0x0 0x0\n0x0 0x0 0x0\n0x0 0x0 0x0\n"
				   "0x0 0x0 0x0\n"
				   "0x00000000c1000000 0x00000000c107ffff 0x0000000000046200\n"),
			 0);
}

static void nothing(void **state)
{
	(void)state;
	assert_int_equal(pl_cf_bar_read(cf_file("missing")), 0);
	assert_int_equal(read_text(""), 0);
	assert_int_equal(read_text("0x00000000c0000000 0x00000000c0ffffff 0x0000000000040200\n"),
			 0);
	assert_int_equal(read_text("0x1 0x2 0x200\nnothing of the kind\n"), 0);
	assert_int_equal(read_text("0x1 0x2 0x200\n0x0 0x0 0x0\n"), 0);
	assert_int_equal(read_text("0x1 0x2 0x200\n0xffffffff 0x1000 0x200\n"), 0);
}

/* The GPUs of the tests have no such window. */
static void of_a_gpu(void **state)
{
	(void)state;
	assert_int_equal(pl_cf_bar_kb(cf_gpu(), 99), 0);
	if (strcmp(peerlane_backend(cf_gpu()), "sim") == 0)
		assert_int_equal(pl_cf_bar_kb(cf_gpu(), 0), 0);
	cf_gpu_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(second_line), cmocka_unit_test(third_line),
		cmocka_unit_test(others),      cmocka_unit_test(nothing),
		cmocka_unit_test(of_a_gpu),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
