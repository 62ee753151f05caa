// SPDX-License-Identifier: MIT
/*
 * Who may open a controller: without privilege only where the machine keeps the controller to the memory
 * that was mapped for it. What the machine does is told by how it was booted.
 */
#include <dirent.h>
#include <sys/stat.h>
#include <uapi/peerlane_nvme.h>

#include "nvme_lab.h"

/* Alone in its IOMMU group; and, where that is to be shown, one of two functions of a device. */
#define ALONE "slow0"
#define BESIDE "raid1"

/* Was the kernel started with this? */
static bool booted_with(const char *word)
{
	char line[4096];
	FILE *file = fopen("/proc/cmdline", "r");

	expect(file && fgets(line, sizeof(line), file));
	fclose(file);
	for (char *save, *at = strtok_r(line, " \n", &save); at; at = strtok_r(NULL, " \n", &save))
		if (!strcmp(at, word))
			return true;
	return false;
}

static unsigned int group_size(struct pci pci)
{
	struct dirent *entry;
	unsigned int nr = 0;
	char path[128];
	DIR *dir;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/iommu_group/devices", pci.text);
	dir = opendir(path);
	while (dir && (entry = readdir(dir)))
		nr += entry->d_name[0] != '.';
	if (dir)
		closedir(dir);
	return nr;
}

/* What the module is to say of it; @lazy: the group was made so. */
static void want(struct pci pci, bool lazy, char *words, size_t size)
{
	words[0] = '\0';
	if (!booted_with("intel_iommu=on")) {
		snprintf(words, size, "untranslated");
		return;
	}
	if (lazy || !booted_with("iommu.strict=1"))
		strcat(words, " lazy");
	if (group_size(pci) > 1)
		strcat(words, " shared-group");
	if (booted_with("intremap=off"))
		strcat(words, " interrupts");
	if (!words[0])
		strcat(words, " yes");
	memmove(words, words + 1, strlen(words));
}

struct visit {
	struct pci pci;
	char path[64];
	char words[64];
};

/* What is missing, in the words of a user who is nobody special. */
static void unprivileged(void *data)
{
	static const struct {
		const char *word, *cure;
	} cures[] = { { "untranslated", "intel_iommu=on" },
		      { "lazy", "iommu.strict=1" },
		      { "shared-group", "another slot" },
		      { "interrupts", "interrupt remapping" } };
	struct visit *v = data;
	bool yes = !strcmp(v->words, "yes");
	int fd;

	expect(setgid(1000) == 0 && setuid(1000) == 0);
	fd = open(v->path, O_RDWR);
	printf("unprivileged: %s\n", fd < 0 ? strerror(errno) : "opened");
	expect(yes ? fd >= 0 : fd < 0 && errno == EPERM);
	close(fd);
	/* The library and the tool say why, and what to do. */
	expect(tool("identify kmod:%s", v->pci.text) == !yes);
	for (size_t i = 0; i < sizeof(cures) / sizeof(*cures); i++)
		if (!strstr(tool_said, cures[i].cure) != !strstr(v->words, cures[i].word))
			fail("'%s' is said wrongly", cures[i].cure);
	expect(tool("list") == 0);
	expect(!strstr(tool_said, "CAP_SYS_RAWIO") == yes);
}

static void visit(struct visit *v, bool lazy)
{
	struct peerlane_nvmedev_info info = { 0 };
	char path[96], words[64];
	FILE *file;
	int fd;

	want(v->pci, lazy, v->words, sizeof(v->words));
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/peerlane_confined", v->pci.text);
	file = fopen(path, "r");
	expect(file && fgets(words, sizeof(words), file));
	fclose(file);
	words[strcspn(words, "\n")] = '\0';
	if (strcmp(words, v->words) != 0)
		fail("'%s' and not '%s'", words, v->words);
	printf("%s: %s\n", v->pci.text, words);
	expect(chmod(v->path, 0666) == 0);
	in_child(unprivileged, v, 0);
	/* Root always may. */
	fd = greeted(v->path);
	expect(ioctl(fd, PEERLANE_NVMEDEV_IOC_INFO, &info) == 0);
	expect(!(info.flags & PEERLANE_NVMEDEV_TRANSLATED) == !booted_with("intel_iommu=on"));
	close(fd);
}

static struct visit begin(const char *serial)
{
	struct visit v = { .pci = take_drive(serial, "kmod") };

	node_of(v.pci, v.path, sizeof(v.path));
	return v;
}

/* Lets the group of a controller forget addresses late, which a running kernel can be told to. */
static void make_lazy(struct pci pci)
{
	char path[128];

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/iommu_group/type", pci.text);
	expect(echo(path, "DMA-FQ") == 0);
}

int test_nvme_kmod_confined(void)
{
	struct visit v = begin(ALONE);
	bool confined;

	visit(&v, false);
	confined = !strcmp(v.words, "yes");
	if (confined) {
		make_lazy(v.pci);
		visit(&v, true);
	}
	give_back(v.pci, ALONE);
	if (!confined)
		return 0;
	/* Nothing but its neighbour is in the way of the other one. */
	v = begin(BESIDE);
	visit(&v, false);
	expect(!strcmp(v.words, "shared-group"));
	give_back(v.pci, BESIDE);
	return 0;
}
