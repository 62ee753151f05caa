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

/* A link below the root to @target, which is relative to its place. */
static void put_link(const char *name, const char *target)
{
	char path[256];

	put(name, NULL);
	snprintf(path, sizeof(path), "%s/%s", root, name);
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(symlink(target, path), 0);
}

static void add(void *arg, const char *controller, const char *transport)
{
	char *out = arg, path[256];

	snprintf(path, sizeof(path), "%s/transport", controller);
	assert_int_equal(access(path, F_OK), 0);
	strcat(strcat(out, out[0] ? " " : ""), transport);
}

/* What is said of a disk or partition; "" where it is not reached by a network. */
static const char *transport(const char *name)
{
	static char out[64];
	char path[256];
	bool found;

	snprintf(path, sizeof(path), "%s/%s", root, name);
	out[0] = '\0';
	found = pl_fabric_each(path, add, out);
	assert_int_equal(found, out[0] != '\0');
	return out;
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
	assert_string_equal(transport("paths/nvme5n1"), "rdma rdma");
	assert_string_equal(transport("paths/nvme6n1"), "");
	assert_string_equal(transport("paths/nvme7n1"), "tcp");
}

static void test_address(void **state)
{
	static const struct {
		const char *list, *to, *from;
	} cases[] = {
		{ "traddr=10.0.0.1,trsvcid=4420", "10.0.0.1", "" },
		{ "traddr=fd00::1,trsvcid=4420,host_traddr=fd00::2", "fd00::1", "fd00::2" },
		{ "host_traddr=10.0.0.2,trsvcid=4420,traddr=10.0.0.1", "10.0.0.1", "10.0.0.2" },
		{ "trsvcid=4420", "", "" },
	};
	char path[256], to[64], from[64];

	(void)state;
	snprintf(path, sizeof(path), "%s/ctl", root);
	assert_false(pl_fabric_address(path, to, from, sizeof(to)));
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		put("ctl/address", cases[i].list);
		assert_int_equal(pl_fabric_address(path, to, from, sizeof(to)), !!cases[i].to[0]);
		assert_string_equal(to, cases[i].to);
		assert_string_equal(from, cases[i].from);
	}
}

static void test_interface(void **state)
{
	char name[32] = "";

	(void)state;
	assert_true(pl_fabric_interface("fe80::1%ib3", "", name, sizeof(name)));
	assert_string_equal(name, "ib3");
	assert_true(pl_fabric_interface("fe80::1%ib3", "fe80::2%ib4", name, sizeof(name)));
	assert_string_equal(name, "ib4");
	assert_false(pl_fabric_interface("host.example", "", name, sizeof(name)));
	/* From an address that nobody here has (it is for documentation). */
	assert_false(pl_fabric_interface("127.0.0.1", "192.0.2.77", name, sizeof(name)));
	assert_true(pl_fabric_interface("127.0.0.1", "", name, sizeof(name)));
	assert_string_equal(name, "lo");
	assert_true(pl_fabric_interface("192.0.2.77", "127.0.0.1", name, sizeof(name)));
	assert_string_equal(name, "lo");
}

/* A PCI device of the made-up sysfs, and an adapter that is one, or a part of one. */
static void put_pci(const char *name, const char *driver)
{
	char path[128], target[64];

	snprintf(path, sizeof(path), "sys/devices/pci0/%s/subsystem", name);
	put_link(path, "../../../bus/pci");
	snprintf(path, sizeof(path), "sys/devices/pci0/%s/driver", name);
	snprintf(target, sizeof(target), "../../../bus/pci/drivers/%s", driver);
	put_link(path, target);
}

static void put_adapter(const char *name, const char *device, const char *interface)
{
	char path[128], target[128];

	snprintf(path, sizeof(path), "sys/class/infiniband/%s/ports/1/gid_attrs/ndevs/0", name);
	put(path, "other0");
	snprintf(path, sizeof(path), "sys/class/infiniband/%s/ports/1/gid_attrs/ndevs/3", name);
	if (interface)
		put(path, interface);
	snprintf(path, sizeof(path), "sys/class/infiniband/%s/device", name);
	snprintf(target, sizeof(target), "../../../devices/%s", device);
	if (device[0])
		put_link(path, target);
}

/* "NAME ADDRESS" of the adapter of an interface, "NAME software", or "none". */
static const char *adapter_of(const char *interface)
{
	struct pl_fabric_adapter adapter;
	static char out[128];
	char sys[64];

	snprintf(sys, sizeof(sys), "%s/sys", root);
	if (!pl_fabric_adapter_of(sys, interface, &adapter))
		return "none";
	if (adapter.software)
		snprintf(out, sizeof(out), "%s software", adapter.name);
	else
		snprintf(out, sizeof(out), "%s %llx", adapter.name,
			 (unsigned long long)adapter.pci);
	return out;
}

static void test_adapters(void **state)
{
	(void)state;
	assert_string_equal(adapter_of("eth0"), "none");
	put_pci("0000:3b:00.1", "mlx5_core");
	put_pci("10001:01:00.0", "mlx5_core");
	put_pci("0000:5e:00.0", "hfi1");
	put_adapter("mlx5_0", "pci0/0000:3b:00.1", "eth0");
	assert_string_equal(adapter_of("eth0"), "mlx5_0 3b01");
	assert_string_equal(adapter_of("eth1"), "none");
	/* Behind a domain of VMD; and as a sub-function. */
	put_adapter("mlx5_1", "pci0/10001:01:00.0", "eth1");
	assert_string_equal(adapter_of("eth1"), "mlx5_1 100010100");
	put_link("sys/devices/pci0/0000:3b:00.1/sf.2/subsystem", "../../../../bus/auxiliary");
	put_adapter("mlx5_2", "pci0/0000:3b:00.1/sf.2", "eth2");
	assert_string_equal(adapter_of("eth2"), "mlx5_2 3b01");
	/* InfiniBand: the addresses are not those of the interface, but the device is its. */
	put_link("sys/class/net/ib0/device", "../../../devices/pci0/10001:01:00.0");
	assert_string_equal(adapter_of("ib0"), "mlx5_1 100010100");
}

/* Adapters whose data the CPU copies, and interfaces that do not tell which adapter it is. */
static void test_software(void **state)
{
	(void)state;
	put_adapter("rxe0", "", "eth5");
	assert_string_equal(adapter_of("eth5"), "rxe0 software");
	put_link("sys/devices/platform/thing/subsystem", "../../../bus/platform");
	put_adapter("odd0", "platform/thing", "eth6");
	assert_string_equal(adapter_of("eth6"), "odd0 software");
	put_adapter("hfi1_0", "pci0/0000:5e:00.0", "eth7");
	assert_string_equal(adapter_of("eth7"), "hfi1_0 software");
	/* Software on the interface of a real one: the kernel may take either. */
	put_adapter("rxe1", "", "eth0");
	assert_string_equal(adapter_of("eth0"), "none");
}

static void test_whole(void **state)
{
	struct pl_fabric_adapter adapter;
	char sys[64], controller[64];

	(void)state;
	snprintf(sys, sizeof(sys), "%s/sys", root);
	snprintf(controller, sizeof(controller), "%s/whole", root);
	assert_false(pl_fabric_adapter(sys, controller, &adapter));
	put("whole/address", "traddr=192.0.2.77,trsvcid=4420,host_traddr=127.0.0.1");
	assert_false(pl_fabric_adapter(sys, controller, &adapter));
	put_adapter("mlx5_9", "pci0/0000:3b:00.1", "lo");
	assert_true(pl_fabric_adapter(sys, controller, &adapter));
	assert_string_equal(adapter.name, "mlx5_9");
	assert_int_equal(adapter.pci, 0x3b01);
}

static void test_words(void **state)
{
	static const struct {
		const char *transport;
		enum pl_fabric_way way;
		const char *why, *fix;
	} cases[] = {
		{ "tcp", PL_FABRIC_UNKNOWN, "the CPU copies", "RDMA spares" },
		{ "tcp", PL_FABRIC_SOFTWARE, "the CPU copies", "RDMA spares" },
		{ "rdma", PL_FABRIC_SOFTWARE, "the CPU copies", "real RDMA adapter" },
		{ "rdma", PL_FABRIC_UNKNOWN, "could not be found", "host_traddr" },
		{ "rdma", PL_FABRIC_OLD, "too old", "install" },
		{ "loop", PL_FABRIC_UNKNOWN, "own NVMe target", "below it" },
		{ "fc", PL_FABRIC_UNKNOWN, "by network", "this machine" },
	};
	const char *why, *fix;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		pl_fabric_explain(cases[i].transport, cases[i].way, &why, &fix);
		if (!strstr(why, cases[i].why) || !strstr(fix, cases[i].fix))
			fail_msg("case %zu: \"%s\" (%s)", i, why, fix);
		/* They fit where they go. */
		assert_true(strlen(why) < 160 && strlen(fix) < 160);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_controller), cmocka_unit_test(test_paths),
		cmocka_unit_test(test_address),	   cmocka_unit_test(test_interface),
		cmocka_unit_test(test_adapters),   cmocka_unit_test(test_software),
		cmocka_unit_test(test_whole),	   cmocka_unit_test(test_words),
	};
	char command[64];
	int status;

	if (!mkdtemp(root))
		return 1;
	status = cmocka_run_group_tests(tests, NULL, NULL);
	snprintf(command, sizeof(command), "rm -rf %s", root);
	return system(command) ? 1 : status;
}
