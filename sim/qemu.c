// SPDX-License-Identifier: MIT
/* The remote end of QEMU's x-pci-proxy-dev: configuration space, BAR0, and the guest's memory. */
#include "qemu.h"

#include <peerlane/nvme_spec.h>

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_FDS 8

enum command {
	SYNC_MEMORY,
	RETURN,
	CONFIG_WRITE,
	CONFIG_READ,
	BAR_WRITE,
	BAR_READ,
	SET_IRQ,
	RESET,
};

struct header {
	int32_t command;
	uint32_t pad;
	uint64_t bytes;
};

union payload {
	uint64_t value;
	struct {
		uint32_t at, value;
		int32_t bytes;
	} config;
	struct {
		uint64_t at[MAX_FDS], bytes[MAX_FDS], offset[MAX_FDS];
	} memory;
	struct {
		uint64_t at, value;
		uint32_t bytes;
		uint8_t is_memory, pad[3];
	} bar;
};

struct device {
	struct pl_simnvme *c;
	int sock;
	uint8_t *bar;
	size_t bar_bytes;
	uint32_t bar_size; /* what the BAR says: a power of two */
	uint8_t config[256];
	/* What of the guest's memory is mapped. */
	struct {
		uint64_t iova, bytes;
		void *memory;
	} ram[MAX_FDS];
	unsigned int nr_ram;
};

/* Offsets in configuration space. */
#define CONFIG_COMMAND 0x04
#define CONFIG_BAR0 0x10
#define CONFIG_SUBSYSTEM 0x2c
#define CONFIG_LINE 0x3c
#define CONFIG_PIN 0x3d

static void init_config(struct device *d)
{
	/* Vendor and device, which no drive has; revision; NVMe, of memory, of mass storage. */
	static const uint32_t first[] = { 0x4e561234, 0, 0x01080201 };

	memcpy(d->config, first, sizeof(first));
	memcpy(d->config + CONFIG_SUBSYSTEM, first, sizeof(*first));
	d->config[CONFIG_PIN] = 1; /* a pin, which drivers want to see */
}

/* Put a value into a field of which only some bits can be written. */
static void config_write(struct device *d, uint32_t at, uint32_t value, uint32_t bytes)
{
	uint32_t bar;

	if (at >= sizeof(d->config) || bytes > sizeof(d->config) - at || bytes > sizeof(value))
		return;
	if (at >= CONFIG_BAR0 && at + bytes <= CONFIG_BAR0 + 4)
		memcpy(d->config + at, &value, bytes);
	else if (at == CONFIG_COMMAND)
		memcpy(d->config + at, &value, bytes < 2 ? bytes : 2);
	else if (at == CONFIG_LINE)
		d->config[CONFIG_LINE] = (uint8_t)value;
	memcpy(&bar, d->config + CONFIG_BAR0, sizeof(bar));
	bar &= ~(d->bar_size - 1);
	memcpy(d->config + CONFIG_BAR0, &bar, sizeof(bar));
}

static uint64_t config_read(const struct device *d, uint32_t at, uint32_t bytes)
{
	uint64_t value = 0;

	if (at < sizeof(d->config) && bytes <= sizeof(d->config) - at && bytes <= sizeof(value))
		memcpy(&value, d->config + at, bytes);
	return value;
}

/* Let the controller do all that it can. */
static void run(struct device *d)
{
	unsigned int quiet = 0;

	while (quiet < 3)
		quiet = pl_simnvme_step(d->c) ? 0 : quiet + 1;
}

static void bar_write(struct device *d, uint64_t at, uint64_t value, uint32_t bytes)
{
	size_t offset = at & (d->bar_size - 1);

	if ((bytes != 4 && bytes != 8) || offset % bytes || offset + bytes > d->bar_bytes)
		return;
	if (bytes == 8)
		__atomic_store_n((uint64_t *)(d->bar + offset), value, __ATOMIC_RELEASE);
	else
		__atomic_store_n((uint32_t *)(d->bar + offset), (uint32_t)value, __ATOMIC_RELEASE);
	run(d);
}

static uint64_t bar_read(struct device *d, uint64_t at, uint32_t bytes)
{
	size_t offset = at & (d->bar_size - 1);
	uint64_t value = 0;

	if (bytes <= sizeof(value) && offset + bytes <= d->bar_bytes)
		memcpy(&value, d->bar + offset, bytes);
	return value;
}

static void forget_memory(struct device *d)
{
	while (d->nr_ram) {
		d->nr_ram--;
		pl_simnvme_unmap(d->c, d->ram[d->nr_ram].iova, d->ram[d->nr_ram].bytes);
		munmap(d->ram[d->nr_ram].memory, d->ram[d->nr_ram].bytes);
	}
}

static int take_memory(struct device *d, const union payload *p, const int *fds, unsigned int nr)
{
	forget_memory(d);
	for (unsigned int i = 0; i < nr; i++) {
		void *memory = mmap(NULL, p->memory.bytes[i], PROT_READ | PROT_WRITE, MAP_SHARED,
				    fds[i], (off_t)p->memory.offset[i]);
		int rc;

		if (memory == MAP_FAILED)
			return -errno;
		rc = pl_simnvme_map(d->c, p->memory.at[i], memory, p->memory.bytes[i],
				    PL_SIMNVME_READ | PL_SIMNVME_WRITE);
		if (rc) {
			munmap(memory, p->memory.bytes[i]);
			return rc;
		}
		d->ram[d->nr_ram].iova = p->memory.at[i];
		d->ram[d->nr_ram].bytes = p->memory.bytes[i];
		d->ram[d->nr_ram++].memory = memory;
	}
	return 0;
}

/* All of these bytes; descriptors that come with them, if there is room for any. 0, -EPIPE, errno. */
static int receive(int sock, void *to, size_t bytes, int *fds, unsigned int *nr_fds)
{
	union {
		char bytes[CMSG_SPACE(MAX_FDS * sizeof(int))];
		struct cmsghdr align;
	} control;
	char *at = to;

	while (bytes) {
		struct iovec iov = { .iov_base = at, .iov_len = bytes };
		struct msghdr msg = { .msg_iov = &iov,
				      .msg_iovlen = 1,
				      .msg_control = fds ? control.bytes : NULL,
				      .msg_controllen = fds ? sizeof(control.bytes) : 0 };
		ssize_t n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
		struct cmsghdr *cmsg = n > 0 && fds ? CMSG_FIRSTHDR(&msg) : NULL;

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EPIPE;
		if (cmsg && cmsg->cmsg_level == SOL_SOCKET && cmsg->cmsg_type == SCM_RIGHTS) {
			*nr_fds = (unsigned int)((cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int));
			memcpy(fds, CMSG_DATA(cmsg), *nr_fds * sizeof(int));
		}
		at += n;
		bytes -= (size_t)n;
	}
	return 0;
}

static int answer(struct device *d, uint64_t value)
{
	struct {
		struct header header;
		uint64_t value;
	} reply = { { .command = RETURN, .bytes = sizeof(value) }, value };

	return send(d->sock, &reply, sizeof(reply), MSG_NOSIGNAL) == sizeof(reply) ? 0 : -EPIPE;
}

static int carry_out(struct device *d, int command, const union payload *p, const int *fds,
		     unsigned int nr_fds)
{
	switch (command) {
	case SYNC_MEMORY:
		return take_memory(d, p, fds, nr_fds);
	case SET_IRQ:
		return 0;
	case CONFIG_WRITE:
		config_write(d, p->config.at, p->config.value, (uint32_t)p->config.bytes);
		return answer(d, 0);
	case CONFIG_READ:
		return answer(d, config_read(d, p->config.at, (uint32_t)p->config.bytes));
	case BAR_WRITE:
		bar_write(d, p->bar.at, p->bar.value, p->bar.bytes);
		return answer(d, 0);
	case BAR_READ:
		return answer(d, bar_read(d, p->bar.at, p->bar.bytes));
	case RESET:
		pl_simnvme_reset(d->c);
		return answer(d, 0);
	default:
		return -EPROTO;
	}
}

/* One message. */
static int serve(struct device *d)
{
	struct header header;
	union payload payload;
	unsigned int nr_fds = 0;
	int fds[MAX_FDS];
	int rc = receive(d->sock, &header, sizeof(header), fds, &nr_fds);

	/* A message that is too short is one of zeroes. */
	memset(&payload, 0, sizeof(payload));
	if (!rc && header.bytes > sizeof(payload))
		rc = -EPROTO;
	if (!rc && header.bytes)
		rc = receive(d->sock, &payload, header.bytes, NULL, NULL);
	if (!rc)
		rc = carry_out(d, header.command, &payload, fds, nr_fds);
	while (nr_fds)
		close(fds[--nr_fds]);
	return rc;
}

int pl_simnvme_qemu(struct pl_simnvme *c, int sock)
{
	struct device d = { .c = c, .sock = sock };
	int rc;

	d.bar = pl_simnvme_bar(c, &d.bar_bytes);
	for (d.bar_size = 16384; d.bar_size < d.bar_bytes;)
		d.bar_size *= 2;
	init_config(&d);
	do
		rc = serve(&d);
	while (!rc);
	forget_memory(&d);
	return rc == -EPIPE || rc == -ECONNRESET ? 0 : rc;
}
