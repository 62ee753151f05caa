/* SPDX-License-Identifier: MIT */
/* Memory that a load reads into and writes from: of the host or of a GPU, mapped for the controller. */
#include "nvme_memory.h"

#include "message.h"
#include "pattern.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <uapi/peerlane.h>
#include <unistd.h>

#define PIN_DEVICE "/dev/peerlane"

static void fill(uint64_t *words, size_t bytes)
{
	for (size_t i = 0; i < bytes / 8; i++)
		words[i] = pl_pattern_hash(i);
}

static int fill_gpu(struct pl_drive_memory *m, size_t bytes)
{
	uint64_t *words = malloc(bytes);
	int err = -ENOMEM;

	if (words) {
		fill(words, bytes);
		err = peerlane_gpu_copy(m->session->ctx, m->gpu, words, bytes);
	}
	free(words);
	return err;
}

/* GPU memory that is not simulated has bus addresses once the kernel module has pinned it. */
static int pin(struct pl_drive_memory *m, size_t bytes)
{
	struct peerlane_hello hello = { .version = PEERLANE_UAPI_VERSION,
					.oldest = PEERLANE_UAPI_OLDEST };
	struct peerlane_pin call = { .address = (uintptr_t)m->gpu, .length = bytes };

	m->pin_fd = open(PIN_DEVICE, O_RDWR | O_CLOEXEC);
	if (m->pin_fd < 0 || ioctl(m->pin_fd, PEERLANE_IOC_HELLO, &hello) ||
	    ioctl(m->pin_fd, PEERLANE_IOC_PIN, &call)) {
		pl_message_error("the GPU memory cannot be pinned: %s: %s", PIN_DEVICE,
				 strerror(errno));
		return -errno;
	}
	m->pin = call.handle;
	return 0;
}

static int map_gpu(struct pl_drive_memory *m, const struct pl_drive *d, size_t bytes)
{
	struct peerlane_nvme_memory memory = {
		.size = sizeof(memory),
		.flags = PEERLANE_NVME_MEMORY_GPU,
		.ptr = m->gpu,
		.bytes = bytes,
		.cpu = peerlane_sim_host(m->gpu),
	};
	int err = memory.cpu ? 0 : pin(m, bytes);

	if (err)
		return err;
	memory.pin_fd = m->pin_fd;
	memory.handle = m->pin;
	err = peerlane_nvme_map(d->nvme, &memory, &m->map);
	if (err)
		pl_message_error("%s: GPU memory cannot be mapped for this controller: %s",
				 d->address, strerror(-err));
	return err;
}

int pl_drive_memory_init(struct pl_drive_memory *m, const struct pl_drive *d,
			 struct pl_session *session, size_t bytes)
{
	void *host;
	int err;

	*m = (struct pl_drive_memory){ .session = session, .pin_fd = -1 };
	if (!session) {
		err = peerlane_nvme_map_alloc(d->nvme, bytes, &host, &m->map);
		if (err)
			pl_message_error("%s: no memory of %zu bytes for the controller: %s",
					 d->address, bytes, strerror(-err));
		else
			fill(host, bytes);
		return err;
	}
	err = peerlane_gpu_alloc(session->ctx, session->gpu, bytes, &m->gpu);
	if (!err)
		err = fill_gpu(m, bytes);
	if (err)
		pl_message_error("no GPU memory of %zu bytes: %s", bytes,
				 pl_session_reason(err).text);
	else
		err = map_gpu(m, d, bytes);
	if (err)
		pl_drive_memory_fini(m);
	return err;
}

void pl_drive_memory_fini(struct pl_drive_memory *m)
{
	peerlane_nvme_unmap(m->map);
	if (m->pin_fd >= 0)
		close(m->pin_fd);
	if (m->session && m->gpu)
		peerlane_gpu_free(m->session->ctx, m->gpu);
	*m = (struct pl_drive_memory){ .pin_fd = -1 };
}
