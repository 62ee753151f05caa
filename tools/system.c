/* SPDX-License-Identifier: MIT */
/* What of this machine decides how data can move: kernel, limits, IOMMU, modules, GPUs. */
#include "system.h"

#include "cleanup.h"
#include "host.h"
#include "human.h"

#include <errno.h>
#include <linux/io_uring.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>

#ifndef __NR_cachestat
#define __NR_cachestat 451
#endif

static void report_io_uring(struct pl_report *r)
{
	struct io_uring_params params = { 0 };
	char disabled[16];
	int fd = (int)syscall(__NR_io_uring_setup, 1, &params);
	int err = errno;
	const char *why = strerror(err);

	pl_host_line(disabled, sizeof(disabled), "/proc/sys/kernel/io_uring_disabled");
	if (disabled[0])
		pl_report_value(r, "io_uring_disabled", json_object_new_int(atoi(disabled)), NULL,
				" ");
	pl_report_value(r, "io_uring", json_object_new_boolean(fd >= 0), NULL, " ");
	if (fd >= 0) {
		close(fd);
		pl_report_text(r, "io_uring_reason", "io_uring", "allowed");
		return;
	}
	if (err == ENOSYS)
		why = "the kernel has none";
	else if (err == EPERM && disabled[0] && disabled[0] != '0')
		why = "switched off by sysctl kernel.io_uring_disabled";
	else if (err == EPERM)
		why = "forbidden, as by a container's seccomp profile";
	pl_report_text(r, "io_uring_reason", "io_uring", "not available: %s", why);
}

static void report_cachestat(struct pl_report *r)
{
	/* A bad descriptor: the kernel knows the call if that is all it minds. */
	bool known = syscall(__NR_cachestat, -1, NULL, NULL, 0) < 0 && errno != ENOSYS &&
		     errno != EPERM;

	pl_report_value(r, "cachestat", json_object_new_boolean(known), "cachestat", "%s",
			known ? "available" : "not available: older than Linux 6.5, or forbidden");
}

static void report_cpus(struct pl_report *r)
{
	long nr = sysconf(_SC_NPROCESSORS_ONLN);
	int usable = (int)nr, nodes = 0;
	char online[128];
	cpu_set_t set;

	if (!sched_getaffinity(0, sizeof(set), &set))
		usable = CPU_COUNT(&set);
	while (pl_host_exists("/sys/devices/system/node/node%d", nodes))
		nodes++;
	pl_host_line(online, sizeof(online), "/sys/devices/system/node/online");
	pl_report_value(r, "cpus_online", json_object_new_int((int)nr), NULL, " ");
	pl_report_value(r, "numa_nodes", json_object_new_int(nodes), NULL, " ");
	pl_report_value(r, "cpus_usable", json_object_new_int(usable), "processors",
			"%d usable of %ld, NUMA node%s %s", usable, nr, nodes == 1 ? "" : "s",
			online[0] ? online : "unknown");
}

static void report_memlock(struct pl_report *r)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_MEMLOCK, &lim))
		return;
	if (lim.rlim_cur == RLIM_INFINITY)
		pl_report_value(r, "memlock_bytes", json_object_new_int64(-1), "locked memory",
				"unlimited");
	else
		pl_report_value(r, "memlock_bytes", json_object_new_int64((int64_t)lim.rlim_cur),
				"locked memory", "at most %s (ulimit -l)",
				pl_human_size(lim.rlim_cur).text);
}

/* The pool on its way to a GPU is in huge pages where the kernel gives some: the word in brackets. */
static void report_huge_pages(struct pl_report *r)
{
	char line[128], *start, *end = NULL;
	const char *word = "none";

	pl_host_line(line, sizeof(line), "/sys/kernel/mm/transparent_hugepage/enabled");
	start = strchr(line, '[');
	if (start)
		end = strchr(++start, ']');
	if (end) {
		*end = 0;
		word = start;
	}
	if (!strcmp(word, "none") || !strcmp(word, "never"))
		pl_report_text(r, "huge_pages", "huge pages",
			       "%s: cold reads may take longer; fix: echo madvise "
			       ">/sys/kernel/mm/transparent_hugepage/enabled",
			       word);
	else
		pl_report_text(r, "huge_pages", "huge pages", "%s", word);
}

/* What tells that we run in a container, or NULL. */
static const char *container(void)
{
	static char line[512];

	if (pl_host_exists("/.dockerenv"))
		return "docker";
	if (pl_host_exists("/run/.containerenv"))
		return "podman";
	if (pl_host_line(line, sizeof(line), "/run/systemd/container"))
		return line;
	if (pl_host_line(line, sizeof(line), "/proc/1/cgroup")) {
		if (strstr(line, "kubepods"))
			return "kubernetes";
		if (strstr(line, "docker"))
			return "docker";
		if (strstr(line, "lxc"))
			return "lxc";
	}
	return NULL;
}

/* Mode of the system call filter from /proc/self/status; 0 for none. */
static int seccomp(void)
{
	PL_AUTO_FILE FILE *f = fopen("/proc/self/status", "re");
	char line[256];
	int mode = 0;

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, "Seccomp:", 8))
			mode = atoi(line + 8);
	return mode;
}

static void report_container(struct pl_report *r)
{
	const char *name = container();
	int filter = seccomp();

	pl_report_value(r, "container", name ? json_object_new_string(name) : NULL, NULL, " ");
	pl_report_value(r, "seccomp", json_object_new_boolean(filter), "container", "%s%s",
			name ? name : "no sign of one",
			filter ? ", system calls are filtered (seccomp)" : "");
}

void pl_system_report(struct pl_report *r)
{
	struct utsname u;

	pl_report_section(r, "system", "System");
	if (!uname(&u))
		pl_report_text(r, "kernel", "kernel", "%s %s", u.release, u.machine);
	report_io_uring(r);
	report_cachestat(r);
	report_cpus(r);
	report_memlock(r);
	report_huge_pages(r);
	report_container(r);
}

/* Words of the kernel command line that concern DMA. */
static void dma_words(char *out, size_t size)
{
	static const char *const starts[] = { "iommu",	 "intel_iommu", "amd_iommu",
					      "swiotlb", "pci=",	"arm-smmu" };
	char line[4096];
	size_t len = 0;

	out[0] = 0;
	pl_host_line(line, sizeof(line), "/proc/cmdline");
	for (char *save, *word = strtok_r(line, " ", &save); word;
	     word = strtok_r(NULL, " ", &save))
		for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++) {
			if (strncmp(word, starts[i], strlen(starts[i])) != 0 || len >= size)
				continue;
			len += (size_t)snprintf(out + len, size - len, "%s%s", len ? " " : "",
						word);
			break;
		}
}

static void add_name(void *arg, const char *name)
{
	json_object_array_add(arg, json_object_new_string(name));
}

void pl_system_report_iommu(struct pl_report *r)
{
	struct json_object *units = json_object_new_array();
	int nr = pl_host_list("/sys/class/iommu", add_name, units);
	int groups = pl_host_list("/sys/kernel/iommu_groups", NULL, NULL);
	char words[512], slabs[32];

	pl_report_section(r, "iommu", "IOMMU");
	pl_report_value(r, "groups", json_object_new_int(groups), NULL, " ");
	if (nr)
		pl_report_value(r, "units", units, "hardware", "%d active, %s", nr,
				pl_human_nr((uint64_t)groups, "group").text);
	else
		pl_report_value(r, "units", units, "hardware", "none active");
	dma_words(words, sizeof(words));
	pl_report_text(r, "command_line", words[0] ? "command line" : NULL, "%s", words);
	if (strstr(words, "swiotlb=force"))
		pl_report_text(r, "swiotlb", "swiotlb", "forced: every DMA is bounced");
	else if (pl_host_line(slabs, sizeof(slabs), "/sys/kernel/debug/swiotlb/io_tlb_nslabs"))
		pl_report_text(r, "swiotlb", "swiotlb", "%s slabs of 2 KiB, used where needed",
			       slabs);
	else
		pl_report_text(r, "swiotlb", "swiotlb", "not forced");
}

static bool loaded(const char *name)
{
	PL_AUTO_FILE FILE *f = fopen(pl_host_path("/proc/modules").text, "re");
	char line[512];
	size_t len = strlen(name);

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, name, len) && line[len] == ' ')
			return true;
	return false;
}

void pl_system_report_modules(struct pl_report *r)
{
	static const struct {
		const char *name, *use;
	} modules[] = {
		{ "nvidia", "driver of the GPU" },
		{ "nvidia_uvm", "CUDA memory" },
		{ "nvidia_fs", "GPUDirect Storage; not needed here" },
		{ "nvidia_peermem", "GPU memory for RDMA" },
		{ "gdrdrv", "GPU memory mapped for the CPU" },
		{ "peerlane", "DMA between drives and GPU memory" },
	};
	char version[64];

	pl_report_section(r, "modules", "Kernel modules");
	for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++) {
		bool on = loaded(modules[i].name);

		pl_host_line(version, sizeof(version), "/sys/module/%s/version", modules[i].name);
		pl_report_value(r, modules[i].name, json_object_new_boolean(on), modules[i].name,
				"%s%s%s (%s)", on ? "loaded" : "not loaded",
				on && version[0] ? ", version " : "", on ? version : "",
				modules[i].use);
	}
}
