// SPDX-License-Identifier: MIT
/*
 * PCI addresses as the module tells them: all of the domain, also where it has more than 16 bits. No
 * machine of QEMU has such a domain.
 */
#include "../../kmod/pci_number.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_domains(void **state)
{
	static const uint32_t domains[] = { 0, 1, 0xffff, 0x10000, 0x10001, 0x7fffffff };
	uint32_t high, number;

	(void)state;
	for (size_t i = 0; i < sizeof(domains) / sizeof(*domains); i++) {
		number = pl_pci_join(domains[i], 0xe1, 0x1f << 3 | 7, &high);
		assert_int_equal(number & 0xffff, 0xe1ff);
		assert_int_equal(number >> 16, domains[i] & 0xffff);
		assert_int_equal(high, domains[i] >> 16);
		assert_int_equal(pl_pci_domain(number, high), domains[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_domains) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
