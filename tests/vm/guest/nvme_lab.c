// SPDX-License-Identifier: MIT
/*
 * Controllers that programs drive: what their tests share.
 */
#include <dirent.h>
#include <stdarg.h>

#include "nvme_lab.h"

#define DRIVER "/sys/bus/pci/drivers/peerlane_nvme/"

char tool_said[4096];

struct pci drive_pci(const char *serial)
{
	struct pci pci = { "" };
	char path[300], text[64];
	struct dirent *entry;
	DIR *dir = opendir("/sys/class/nvme");
	FILE *file;

	expect(dir);
	while (!pci.text[0] && (entry = readdir(dir))) {
		snprintf(path, sizeof(path), "/sys/class/nvme/%s/serial", entry->d_name);
		file = fopen(path, "r");
		if (!file)
			continue;
		if (fscanf(file, "%63s", text) == 1 && !strcmp(text, serial)) {
			fclose(file);
			snprintf(path, sizeof(path), "/sys/class/nvme/%s/address", entry->d_name);
			file = fopen(path, "r");
			expect(file && fscanf(file, "%15s", pci.text) == 1);
		}
		fclose(file);
	}
	closedir(dir);
	if (!pci.text[0])
		fail("no drive %s", serial);
	return pci;
}

int tool(const char *fmt, ...)
{
	char command[512];
	size_t len;
	va_list ap;
	FILE *pipe;
	int status;

	len = (size_t)snprintf(command, sizeof(command), "/bin/peerlane nvme ");
	va_start(ap, fmt);
	vsnprintf(command + len, sizeof(command) - len, fmt, ap);
	va_end(ap);
	strncat(command, " 2>&1", sizeof(command) - strlen(command) - 1);
	fflush(stdout);
	pipe = popen(command, "r");
	expect(pipe);
	len = fread(tool_said, 1, sizeof(tool_said) - 1, pipe);
	tool_said[len] = 0;
	status = pclose(pipe);
	printf("%s: %d\n%s", command, WEXITSTATUS(status), tool_said);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

struct pci take_drive(const char *serial, const char *driver)
{
	struct pci pci = drive_pci(serial);

	if (tool("bind --driver %s %s", driver, pci.text))
		fail("the drive cannot be had");
	return pci;
}

/* Has the kernel a disk with this serial number? */
static bool disk_there(const char *serial)
{
	char path[300], text[64];
	struct dirent *entry;
	bool found = false;
	DIR *dir = opendir("/sys/block");
	FILE *file;

	expect(dir);
	while (!found && (entry = readdir(dir))) {
		snprintf(path, sizeof(path), "/sys/block/%s/device/serial", entry->d_name);
		file = fopen(path, "r");
		if (!file)
			continue;
		found = fscanf(file, "%63s", text) == 1 && !strcmp(text, serial);
		fclose(file);
		snprintf(path, sizeof(path), "/dev/%s", entry->d_name);
		found = found && !access(path, F_OK);
	}
	closedir(dir);
	return found;
}

void give_back(struct pci pci, const char *serial)
{
	double end = seconds() + 60;

	if (tool("unbind %s", pci.text))
		fail("the drive cannot be given back");
	while (!disk_there(serial)) {
		if (seconds() > end)
			fail("the kernel does not find the drive again");
		sleep_ms(20);
	}
}

long long nvme_counter(const char *name)
{
	long long value = -1;
	char path[128];
	FILE *file;

	snprintf(path, sizeof(path), DRIVER "%s", name);
	file = fopen(path, "r");
	if (!file)
		return -1;
	if (fscanf(file, "%lld", &value) != 1)
		value = -1;
	fclose(file);
	return value;
}

bool nvme_idle(void)
{
	return nvme_counter("files") <= 0 && nvme_counter("mappings") <= 0 &&
	       nvme_counter("mapped_bytes") <= 0 && nvme_counter("locked_pages") <= 0;
}

void nvme_held(void)
{
	printf("controllers: files %lld mappings %lld bytes %lld pages %lld\n",
	       nvme_counter("files"), nvme_counter("mappings"), nvme_counter("mapped_bytes"),
	       nvme_counter("locked_pages"));
}

void nvme_wait_idle(void)
{
	double end = seconds() + 60;

	while (!nvme_idle()) {
		if (seconds() > end) {
			nvme_held();
			fail("the module does not let go");
		}
		sleep_ms(10);
	}
}

struct pl_nvme_region region_of(const struct memory *memory, size_t at, size_t bytes)
{
	return (struct pl_nvme_region){ .kind = PL_NVME_GPU,
					.ptr = (void *)(uintptr_t)(memory->address + at),
					.bytes = bytes,
					.cpu = memory->map + at,
					.pin_fd = memory->dev,
					.handle = memory->pin.handle,
					.offset = at };
}
