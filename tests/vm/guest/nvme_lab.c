// SPDX-License-Identifier: MIT
/*
 * Controllers that programs drive: what their tests share.
 */
#include <dirent.h>
#include <stdarg.h>
#include <uapi/peerlane_nvme.h>

#include "nvme_lab.h"

#define DRIVER "/sys/bus/pci/drivers/peerlane_nvme/"

char tool_said[4096];

struct pci pci_of(const char *serial)
{
	struct pci pci;

	drive_pci(serial, pci.text, sizeof(pci.text));
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
	struct pci pci = pci_of(serial);

	if (tool("bind --driver %s %s", driver, pci.text))
		fail("the drive cannot be had");
	return pci;
}

void give_back(struct pci pci, const char *serial)
{
	if (tool("unbind %s", pci.text))
		fail("the drive cannot be given back");
	if (!drive_wait(serial, 60000))
		fail("the kernel does not find the drive again");
}

void node_of(struct pci pci, char *path, size_t size)
{
	char *name;

	expect(tool("bind %s", pci.text) == 0);
	name = strstr(tool_said, "(/dev/");
	expect(name);
	snprintf(path, size, "%.*s", (int)strcspn(name + 1, ")"), name + 1);
}

int greeted(const char *path)
{
	struct peerlane_nvmedev_hello hello = { .version = PEERLANE_NVMEDEV_UAPI_VERSION };
	int fd = open(path, O_RDWR | O_CLOEXEC);

	expect(fd >= 0);
	expect(ioctl(fd, PEERLANE_NVMEDEV_IOC_HELLO, &hello) == 0);
	return fd;
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
	return nvme_counter("files") <= 0 && nvme_counter("clients") <= 0 &&
	       nvme_counter("mappings") <= 0 && nvme_counter("mapped_bytes") <= 0 &&
	       nvme_counter("locked_pages") <= 0;
}

void nvme_held(void)
{
	printf("controllers: files %lld clients %lld mappings %lld bytes %lld pages %lld\n",
	       nvme_counter("files"), nvme_counter("clients"), nvme_counter("mappings"),
	       nvme_counter("mapped_bytes"), nvme_counter("locked_pages"));
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

long long pages_held(void)
{
	long long value, held = 0;
	char name[64];
	FILE *file;
	int fd;

	/* Each processor counts for itself until it is asked. */
	fd = open("/proc/sys/vm/stat_refresh", O_RDONLY);
	expect(fd >= 0);
	(void)!read(fd, name, sizeof(name));
	close(fd);
	file = fopen("/proc/vmstat", "r");
	expect(file);
	while (fscanf(file, "%63s %lld", name, &value) == 2) {
		if (!strcmp(name, "nr_foll_pin_acquired"))
			held += value;
		if (!strcmp(name, "nr_foll_pin_released"))
			held -= value;
	}
	fclose(file);
	return held;
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
