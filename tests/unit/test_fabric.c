// SPDX-License-Identifier: MIT
/* Drives that are reached by a network are told from others, in a made-up sysfs. */
#include "fabric.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char root[] = "test_fabric.XXXXXX";

/* Writes @text to a file below the root, with all directories it needs; a directory if NULL. */
static void put(const char *name, const char *text)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", root, name);
	for (char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		assert_true(!mkdir(path, 0755) || errno == EEXIST);
		*slash = '/';
	}
	if (!text) {
		assert_true(!mkdir(path, 0755) || errno == EEXIST);
		return;
	}
	f = fopen(path, "w");
	assert_non_null(f);
	assert_true(fprintf(f, "%s\n", text) > 0);
	fclose(f);
}

/* What is said of a disk or partition; "" where it is not reached by a network. */
static const char *transport(const char *name)
{
	static char out[16];
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", root, name);
	return pl_fabric_transport(path, out, sizeof(out)) ? out : "";
}

static void test_controller(void **state)
{
	(void)state;
	put("tcp/nvme0n1/device/transport", "tcp");
	put("tcp/nvme0n1/nvme0n1p1/partition", "1");
	put("local/nvme1n1/device/transport", "pcie");
	put("local/nvme1n1/nvme1n1p1/partition", "1");
	put("local/sda/device/model", "disk");
	put("local/none", NULL);
	assert_string_equal(transport("tcp/nvme0n1"), "tcp");
	assert_string_equal(transport("tcp/nvme0n1/nvme0n1p1"), "tcp");
	assert_string_equal(transport("local/nvme1n1"), "");
	assert_string_equal(transport("local/nvme1n1/nvme1n1p1"), "");
	assert_string_equal(transport("local/sda"), "");
	assert_string_equal(transport("local/none"), "");
	assert_string_equal(transport("nowhere"), "");
}

/* A multipath disk is below a subsystem, whose number is not that of a controller. */
static void test_paths(void **state)
{
	(void)state;
	put("paths/nvme5n1/device/nvme2/transport", "rdma");
	put("paths/nvme5n1/device/nvme3/transport", "rdma");
	put("paths/nvme5n1/device/nvme5n1/size", "8");
	put("paths/nvme5n1/device/subsysnqn", "nqn");
	put("paths/nvme6n1/device/nvme0/transport", "pcie");
	put("paths/nvme6n1/device/nvme1/transport", "pcie");
	put("paths/nvme7n1/device/nvme0/transport", "pcie");
	put("paths/nvme7n1/device/nvme1/transport", "tcp");
	assert_string_equal(transport("paths/nvme5n1"), "rdma");
	assert_string_equal(transport("paths/nvme6n1"), "");
	assert_string_equal(transport("paths/nvme7n1"), "tcp");
}

static void test_adapters(void **state)
{
	char path[256];

	(void)state;
	snprintf(path, sizeof(path), "%s/infiniband", root);
	assert_false(pl_fabric_software(path));
	put("infiniband/rxe0/node_type", "1: CA");
	assert_true(pl_fabric_software(path));
	put("infiniband/mlx5_0/device/subsystem", "");
	assert_false(pl_fabric_software(path));
}

static void test_words(void **state)
{
	static const struct {
		const char *transport;
		bool software;
		const char *why, *fix;
	} cases[] = {
		{ "tcp", false, "the CPU copies", "RDMA spares" },
		{ "tcp", true, "the CPU copies", "RDMA spares" },
		{ "rdma", true, "the CPU copies", "real RDMA adapter" },
		{ "rdma", false, "adapter writes host memory", "this machine" },
		{ "loop", false, "own NVMe target", "below it" },
		{ "fc", false, "by network", "this machine" },
	};
	const char *why, *fix;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		pl_fabric_explain(cases[i].transport, cases[i].software, &why, &fix);
		if (!strstr(why, cases[i].why) || !strstr(fix, cases[i].fix))
			fail_msg("case %zu: \"%s\" (%s)", i, why, fix);
		/* They fit where they go. */
		assert_true(strlen(why) < 160 && strlen(fix) < 160);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_controller),
		cmocka_unit_test(test_paths),
		cmocka_unit_test(test_adapters),
		cmocka_unit_test(test_words),
	};
	char command[64];
	int status;

	if (!mkdtemp(root))
		return 1;
	status = cmocka_run_group_tests(tests, NULL, NULL);
	snprintf(command, sizeof(command), "rm -rf %s", root);
	return system(command) ? 1 : status;
}
