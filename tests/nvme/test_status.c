// SPDX-License-Identifier: MIT
/* What a status means: as an errno, and in words. */
#include "nvme_test.h"

static void test_errnos(void **state)
{
	(void)state;
	assert_int_equal(peerlane_nvme_errno(0), 0);
	assert_int_equal(peerlane_nvme_errno(PL_NVME_SC_INVALID_OPCODE), -EOPNOTSUPP);
	assert_int_equal(peerlane_nvme_errno(PL_NVME_SC_INVALID_FIELD), -EINVAL);
	assert_int_equal(peerlane_nvme_errno(PL_NVME_SC_LBA_RANGE), -ERANGE);
	assert_int_equal(peerlane_nvme_errno(PL_NVME_SC_INVALID_NS), -ENXIO);
	assert_int_equal(peerlane_nvme_errno(PL_NVME_SC_CAPACITY), -ENOSPC);
	assert_int_equal(peerlane_nvme_errno(PL_NVME_SC_COMPARE_FAILED), -EILSEQ);
	assert_int_equal(peerlane_nvme_errno(PL_NVME_SC_READ_ERROR), -ENODATA);
	assert_int_equal(peerlane_nvme_errno(PL_NVME_SC_ACCESS_DENIED), -EACCES);
	assert_int_equal(peerlane_nvme_errno(PL_NVME_SC_WRITE_PROTECTED), -EROFS);
	assert_int_equal(peerlane_nvme_errno(PL_NVME_SC_NOT_READY), -EAGAIN);
	assert_int_equal(peerlane_nvme_errno(PL_NVME_SC_ABORTED), -ECANCELED);
	assert_int_equal(peerlane_nvme_errno(PL_NVME_SC_WRITE_FAULT), -EIO);
	/* A code of 0 is success in one type only. */
	assert_int_equal(peerlane_nvme_errno(PL_NVME_SC_CQ_INVALID), -EIO);
}

/* The words for a status with these bits. */
static const char *words(unsigned int status, bool dnr, bool more)
{
	static char text[128];
	struct peerlane_nvme_completion cpl = { .err = peerlane_nvme_errno(status),
						.status = (uint16_t)status,
						.dnr = dnr,
						.more = more };

	assert_ptr_equal(peerlane_nvme_status_text(&cpl, text, sizeof(text)), text);
	return text;
}

static void test_words(void **state)
{
	(void)state;
	assert_string_equal(words(0, false, false), "success");
	assert_string_equal(
		words(PL_NVME_SC_READ_ERROR, true, false),
		"Unrecovered Read Error (media and data integrity, status 0x281), do not retry");
	assert_string_equal(
		words(PL_NVME_SC_INVALID_FIELD, false, true),
		"Invalid Field in Command (generic, status 0x002), the error log has more");
	assert_string_equal(words(PL_NVME_SC_INVALID_QID, true, true),
			    "Invalid Queue Identifier (command specific, status 0x101), do not "
			    "retry, the error log has more");
	assert_string_equal(words(PL_NVME_SC_PATH_HOST, false, false),
			    "Host Pathing Error (path related, status 0x370)");
	assert_string_equal(words(0x7c1, false, false),
			    "Unknown Status (vendor specific, status 0x7c1)");
	assert_string_equal(words(0x4ff, false, false), "Unknown Status (reserved, status 0x4ff)");
}

/* Ended by the driver: the status it fills in says nothing. */
static void test_own_words(void **state)
{
	static const struct {
		int err;
		const char *word;
	} cases[] = {
		{ -ETIMEDOUT, "in time" },
		{ -ECONNRESET, "reset" },
		{ -ENODEV, "gone" },
		{ -EIO, "Input/output error" },
	};
	struct peerlane_nvme_completion cpl = { .status = PL_NVME_SC_PATH_HOST_ABORTED };
	char text[128];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		cpl.err = cases[i].err;
		peerlane_nvme_status_text(&cpl, text, sizeof(text));
		assert_non_null(strstr(text, cases[i].word));
		assert_null(strstr(text, "status"));
	}
	/* Aborted by the controller, which the driver had asked for. */
	cpl = (struct peerlane_nvme_completion){ .err = -ETIMEDOUT, .status = PL_NVME_SC_ABORTED };
	assert_non_null(strstr(peerlane_nvme_status_text(&cpl, text, sizeof(text)), "in time"));
}

/* Every status fits into the room that is promised to be enough; less room cuts it. */
static void test_room(void **state)
{
	struct peerlane_nvme_completion cpl = { .err = -EIO, .dnr = 1, .more = 1 };
	char text[512];

	(void)state;
	for (unsigned int status = 1; status < 0x800; status++) {
		cpl.status = (uint16_t)status;
		assert_true(strlen(peerlane_nvme_status_text(&cpl, text, sizeof(text))) < 128);
	}
	cpl.status = PL_NVME_SC_WRITE_FAULT;
	assert_string_equal(peerlane_nvme_status_text(&cpl, text, 6), "Write");
	assert_string_equal(peerlane_nvme_status_text(&cpl, text, 1), "");
	assert_string_equal(peerlane_nvme_status_text(&cpl, text, 0), "");
	assert_string_equal(peerlane_nvme_status_text(&cpl, NULL, 6), "");
	assert_string_equal(peerlane_nvme_status_text(NULL, text, 6), "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_errnos),
		cmocka_unit_test(test_words),
		cmocka_unit_test(test_own_words),
		cmocka_unit_test(test_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
