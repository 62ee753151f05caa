/* SPDX-License-Identifier: MIT */
/* For the tests with cmocka: the library, and assertions in its terms. */
#ifndef TESTS_CUFILE_CF_TEST_H
#define TESTS_CUFILE_CF_TEST_H

#include "cf.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define assert_ok(status) assert_int_equal((status).err, CU_FILE_SUCCESS)
#define assert_code(status, code) assert_int_equal((status).err, code)

/* Each test begins with the driver closed, and must leave it so. */
static inline int cf_setup(void **state)
{
	(void)state;
	while (cf.cuFileUseCount() > 0)
		cf.cuFileDriverClose();
	return 0;
}

static inline int cf_teardown(void **state)
{
	return cf_setup(state);
}

#define cf_test(name) cmocka_unit_test_setup_teardown(name, cf_setup, cf_teardown)

static inline CUfileHandle_t cf_open(const char *name, size_t bytes, unsigned int seed, int flags)
{
	CUfileHandle_t fh = cf_register(cf_make(name, bytes, seed, flags));

	assert_non_null(fh);
	return fh;
}

/* Ends with a message if the program still runs after @seconds. */
static inline void cf_alarm(unsigned int seconds)
{
	alarm(seconds);
}

#endif
