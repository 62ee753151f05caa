/* SPDX-License-Identifier: MIT */
/* What prove says of the machine: rights, kernel, driver, IOMMU, buses. No names, no serial numbers. */
#include "prove.h"

#include "cleanup.h"
#include "host.h"
#include "human.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <unistd.h>

#define CAP_SYS_RAWIO_BIT 17

static int rights(struct pl_prove *p)
{
	PL_AUTO_FILE FILE *f = fopen("/proc/self/status", "re");
	unsigned long long caps = 0;
	char line[256];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "CapEff: %llx", &caps) == 1)
			break;
	if (geteuid() == 0 && (caps >> CAP_SYS_RAWIO_BIT & 1)) {
		pl_prove_report_line(&p->report, PL_PROVE_PASS, "root", NULL,
				     "root, with CAP_SYS_RAWIO");
		return 0;
	}
	pl_prove_report_line(&p->report, PL_PROVE_FAIL, "root",
			     "run it with sudo, not in a container",
			     "not root, or without CAP_SYS_RAWIO");
	return -1;
}

/* The lines of the kernel's configuration that matter here. */
static void config(struct pl_prove *p, const char *release)
{
	static const char *const wanted[] = { "CONFIG_ZONE_DEVICE",
					      "CONFIG_PCI_P2PDMA",
					      "CONFIG_IOMMU_DEFAULT_PASSTHROUGH",
					      "CONFIG_IOMMU_DEFAULT_DMA_LAZY",
					      "CONFIG_IOMMU_DEFAULT_DMA_STRICT",
					      "CONFIG_SWIOTLB_DYNAMIC" };
	PL_AUTO_FILE FILE *f = fopen(pl_host_path("/boot/config-%s", release).text, "re");
	char line[256], text[512] = "";
	size_t len = 0;

	while (f && fgets(line, sizeof(line), f))
		for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
			if (!strncmp(line, wanted[i], strlen(wanted[i])) &&
			    line[strlen(wanted[i])] == '=' && len < sizeof(text)) {
				line[strcspn(line, "\n")] = 0;
				len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%s",
							len ? ", " : "", line);
			}
	pl_prove_report_line(&p->report, PL_PROVE_NOTE, "kernel_config", NULL, "%s",
			     len ? text : "not readable (no /boot/config-RELEASE)");
}

/* Only words about DMA: others of the command line may be anybody's secrets. */
static void dma_words(char *out, size_t size)
{
	static const char *const starts[] = { "iommu", "intel_iommu", "amd_iommu", "swiotlb",
					      "pci=" };
	char line[4096];
	size_t len = 0;

	out[0] = 0;
	pl_host_line(line, sizeof(line), "/proc/cmdline");
	for (char *save, *word = strtok_r(line, " ", &save); word && len < size;
	     word = strtok_r(NULL, " ", &save))
		for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++)
			if (!strncmp(word, starts[i], strlen(starts[i]))) {
				len += (size_t)snprintf(out + len, size - len, " %s", word);
				break;
			}
}

static void dma(struct pl_prove *p)
{
	int units = pl_host_list("/sys/class/iommu", NULL, NULL);
	char words[512];

	dma_words(words, sizeof(words));
	pl_prove_report_line(&p->report, PL_PROVE_NOTE, "iommu", NULL, "%d unit%s active", units,
			     units == 1 ? "" : "s");
	if (strstr(words, "swiotlb=force"))
		pl_prove_report_line(&p->report, PL_PROVE_FAIL, "swiotlb",
				     "boot without swiotlb=force",
				     "the kernel bounces every transfer; command line:%s", words);
	else
		pl_prove_report_line(&p->report, PL_PROVE_PASS, "swiotlb", NULL,
				     "not forced; command line:%s", words[0] ? words : " nothing");
}

/* The line may end with the name of the machine that built the driver: only its numbers count. */
static void driver(struct pl_prove *p)
{
	char line[256], version[32] = "";
	bool open;

	if (!pl_host_line(line, sizeof(line), "/proc/driver/nvidia/version")) {
		bool needed = !strcmp(p->args->backend, "cuda");

		pl_prove_report_line(&p->report, needed ? PL_PROVE_FAIL : PL_PROVE_NOTE,
				     "nvidia_driver",
				     needed ? "load NVIDIA's open kernel modules" : NULL,
				     "not running (no /proc/driver/nvidia/version)");
		return;
	}
	open = strstr(line, "Open Kernel Module");
	for (char *save, *word = strtok_r(line, " \t", &save); word && !version[0];
	     word = strtok_r(NULL, " \t", &save))
		if (strspn(word, "0123456789.") == strlen(word) && strchr(word, '.'))
			snprintf(version, sizeof(version), "%s", word);
	pl_prove_report_line(&p->report, open ? PL_PROVE_PASS : PL_PROVE_FAIL, "nvidia_driver",
			     open ? NULL : "install NVIDIA's open kernel modules", "%s, %s",
			     version, open ? "open kernel modules" : "not the open kernel modules");
}

int pl_prove_machine(struct pl_prove *p)
{
	int err = rights(p);
	struct utsname u;

	if (!uname(&u)) {
		pl_prove_report_line(&p->report, PL_PROVE_NOTE, "kernel", NULL, "%s %s", u.release,
				     u.machine);
		config(p, u.release);
	}
	dma(p);
	driver(p);
	return err;
}

/* ------------------------------------------------------------------ the drive and the GPU */

/* Where a device hangs: the bridges above it, outermost first. */
static void topology(struct pl_prove *p, const char *name, const char *pci)
{
	char real[PATH_MAX], speed[48], width[16], node[16], group[32], type[32] = "";
	const char *start;

	if (!realpath(pl_host_path("/sys/bus/pci/devices/%s", pci).text, real))
		return;
	start = strstr(real, "/pci");
	pl_host_line(speed, sizeof(speed), "/sys/bus/pci/devices/%s/current_link_speed", pci);
	pl_host_line(width, sizeof(width), "/sys/bus/pci/devices/%s/current_link_width", pci);
	pl_host_line(node, sizeof(node), "/sys/bus/pci/devices/%s/numa_node", pci);
	if (pl_host_link(group, sizeof(group), "/sys/bus/pci/devices/%s/iommu_group", pci))
		pl_host_line(type, sizeof(type), "/sys/kernel/iommu_groups/%s/type", group);
	pl_prove_report_line(&p->report, PL_PROVE_NOTE, name, NULL,
			     "%s; link %s x%s; NUMA node %s; IOMMU group type %s",
			     start ? start + 1 : pci, speed[0] ? speed : "unknown",
			     width[0] ? width : "?", node[0] ? node : "?", type[0] ? type : "none");
}

/* Names of memory types in [start, end], each once. */
static void memory_types(struct pl_prove *p, unsigned long long start, unsigned long long end)
{
	PL_AUTO_FILE FILE *f =
		fopen(pl_host_path("/sys/kernel/debug/x86/pat_memtype_list").text, "re");
	unsigned long long from, to;
	char line[256], type[48], found[256] = "";
	size_t len = 0;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "PAT: [mem 0x%llx-0x%llx] %47s", &from, &to, type) == 3 &&
		    from <= end && to > start && !strstr(found, type) && len < sizeof(found))
			len += (size_t)snprintf(found + len, sizeof(found) - len, " %s", type);
	pl_prove_report_line(&p->report, PL_PROVE_NOTE, "memory_types", NULL, "of the GPU's BAR:%s",
			     len ? found
			     : f ? " none"
				 : " not readable (debugfs is not mounted, or not x86)");
}

/* The largest memory region of the GPU: that is where its memory is seen. */
static void gpu_bar(struct pl_prove *p)
{
	PL_AUTO_FILE FILE *f =
		fopen(pl_host_path("/sys/bus/pci/devices/%s/resource", p->gpu.pci).text, "re");
	unsigned long long start, end, best_start = 0, best_end = 0;
	char line[128];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%llx %llx", &start, &end) == 2 && end > start &&
		    end - start > best_end - best_start) {
			best_start = start;
			best_end = end;
		}
	if (!best_end)
		return;
	pl_prove_report_line(&p->report, PL_PROVE_NOTE, "gpu_bar", NULL, "%s",
			     pl_human_size(best_end - best_start + 1).text);
	memory_types(p, best_start, best_end);
}

/* The controller of a block device: the innermost PCI device above it. */
static void find_pci(struct pl_prove_file *f, const char *real)
{
	unsigned int domain, bus, slot, function;
	const char *at = real;
	int used;

	while ((at = strchr(at, '/'))) {
		at++;
		if (sscanf(at, "%x:%x:%x.%x%n", &domain, &bus, &slot, &function, &used) == 4 &&
		    used < (int)sizeof(f->pci))
			snprintf(f->pci, sizeof(f->pci), "%.*s", used, at);
	}
}

static void drive(struct pl_prove *p, const char *real)
{
	char model[64] = "", firmware[32] = "", disk[64];
	const char *name = strrchr(real, '/') + 1;

	snprintf(p->file.device, sizeof(p->file.device), "%s", name);
	find_pci(&p->file, real);
	/* A partition's disk is the folder above. */
	snprintf(disk, sizeof(disk), "%s%s", name,
		 pl_host_exists("/sys/class/block/%s/partition", name) ? "/.." : "");
	pl_host_line(model, sizeof(model), "/sys/class/block/%s/device/model", disk);
	pl_host_line(firmware, sizeof(firmware), "/sys/class/block/%s/device/firmware_rev", disk);
	pl_prove_report_line(&p->report, PL_PROVE_NOTE, "drive", NULL, "%s: %s, firmware %s", name,
			     model[0] ? model : "model unknown",
			     firmware[0] ? firmware : "unknown");
	if (p->file.pci[0])
		topology(p, "drive_pci", p->file.pci);
}

void pl_prove_machine_place(struct pl_prove *p)
{
	struct peerlane_explanation ex = { .size = sizeof(ex) };
	struct peerlane_file *file;
	char real[PATH_MAX];
	struct stat st;
	char memory[8];

	if (!peerlane_file_from_fd(p->ctx, p->file.fd, &file)) {
		peerlane_explain(file, PEERLANE_READ, memory, 1, 0, &ex);
		peerlane_file_close(file);
	}
	pl_prove_report_line(&p->report, PL_PROVE_NOTE, "file", NULL,
			     "scratch file of %s on %s, blocks of %u",
			     pl_human_size(p->file.bytes).text, ex.fs, ex.dio_align);
	if (!fstat(p->file.fd, &st) &&
	    realpath(pl_host_path("/sys/dev/block/%u:%u", major(st.st_dev), minor(st.st_dev)).text,
		     real))
		drive(p, real);
	topology(p, "gpu_pci", p->gpu.pci);
	gpu_bar(p);
}

int pl_prove_gpu(struct pl_prove *p)
{
	int nr, err = pl_prove_context(p, 0, &p->ctx);

	if (err) {
		p->ctx = NULL;
		pl_prove_report_line(&p->report, PL_PROVE_FAIL, "gpu",
				     "'peerlane check' says what CUDA lacks", "%s",
				     pl_session_reason(err).text);
		return -1;
	}
	nr = peerlane_gpu_count(p->ctx);
	p->gpu.size = sizeof(p->gpu);
	err = peerlane_gpu_get_info(p->ctx, (int)p->args->gpu, &p->gpu);
	if (nr <= 0 || err) {
		pl_prove_report_line(&p->report, PL_PROVE_FAIL, "gpu", NULL,
				     "no GPU number %u: there are %d", p->args->gpu, nr);
		return -1;
	}
	pl_prove_report_line(&p->report, PL_PROVE_PASS, "gpu", NULL, "%s, %s, driver %s, PCI %s",
			     p->gpu.name, pl_human_size(p->gpu.memory_bytes).text, p->gpu.driver,
			     p->gpu.pci[0] ? p->gpu.pci : "unknown");
	return 0;
}
