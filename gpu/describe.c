// SPDX-License-Identifier: MIT
/* A device in words: who serves its queues, how data cross, and what is emulated. */
#include "device.h"
#include "proxy.h"

#include "files.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct text {
	char *at;
	size_t bytes, length;
};

static void add(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void add(struct text *t, const char *fmt, ...)
{
	const size_t from = t->length < t->bytes ? t->length : t->bytes;
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(t->at ? t->at + from : NULL, t->bytes - from, fmt, args);
	va_end(args);
	if (n > 0)
		t->length += (size_t)n;
}

/* What the software controllers that we know say of themselves. */
static bool is_simulated(struct peerlane_nvme *nvme)
{
	struct peerlane_nvme_info info = { .size = sizeof(info) };

	if (peerlane_nvme_get_info(nvme, &info))
		return false;
	return strstr(info.model, "Peerlane software") || strstr(info.model, "QEMU");
}

bool pl_device_emulated(const struct peerlane_device *dev)
{
	if (dev->server != PEERLANE_DEVICE_NVME)
		return dev->server != PEERLANE_DEVICE_FILES;
	for (uint32_t i = 0; i < dev->nr_controllers; i++)
		if (is_simulated(pl_controllers_get(dev, i)))
			return true;
	return false;
}

static void add_controllers(struct text *t, const struct peerlane_device *dev)
{
	for (uint32_t i = 0; i < dev->nr_controllers; i++) {
		struct peerlane_nvme_info info = { .size = sizeof(info) };
		struct peerlane_nvme *nvme = pl_controllers_get(dev, i);

		if (peerlane_nvme_get_info(nvme, &info))
			continue;
		add(t, "controller %u: %s, serial %s%s\n", i, info.model, info.serial,
		    is_simulated(nvme) ? " (EMULATED in software)" : "");
	}
	add(t, "rings: in %s memory; kernels ring the doorbells of the controllers\n",
	    dev->given_rings ? "GPU" : "host");
	add(t, "data: %s\n",
	    dev->has_bounce ? "by DMA to and from host memory, and from there by the threads that "
			      "want them"
			    : "by DMA of the controllers to and from mapped memory");
}

static void add_files(struct text *t, const struct peerlane_device *dev)
{
	const struct pl_files *files = dev->files;

	add(t, "served from %u file%s by %u thread%s of this process, without privileges\n",
	    files->nr, files->nr == 1 ? "" : "s", dev->shape.nr_threads,
	    dev->shape.nr_threads == 1 ? "" : "s");
	add(t, "rings and doorbells: in host memory\n");
	add(t,
	    "data: page cache or %s, to and from host memory, and from there by the threads "
	    "that want them\n",
	    files->no_ring ? "blocking I/O (io_uring is not allowed here)" : "io_uring");
}

size_t peerlane_device_describe(const struct peerlane_device *dev, char *text, size_t bytes)
{
	struct text t = { .at = bytes ? text : NULL, .bytes = text ? bytes : 0 };
	const struct pl_shape *s;

	if (!dev)
		return 0;
	s = &dev->shape;
	add(&t, "%u queue%s of depth %u, %u port%s of %u slot%s each; kernels run on %s\n",
	    s->nr_queues, s->nr_queues == 1 ? "" : "s", s->depth, s->nr_ports,
	    s->nr_ports == 1 ? "" : "s", s->slots_per_port, s->slots_per_port == 1 ? "" : "s",
	    pl_kmem_on_gpu(&dev->kmem) ? "the GPU" : "threads of the CPU");
	switch (dev->server) {
	case PEERLANE_DEVICE_NVME:
		add_controllers(&t, dev);
		break;
	case PEERLANE_DEVICE_FILES:
		add_files(&t, dev);
		break;
	case PEERLANE_DEVICE_MEMORY:
		add(&t, "EMULATED: a drive of host memory, played by %u thread%s\n", s->nr_threads,
		    s->nr_threads == 1 ? "" : "s");
		add(&t, "data: reads are fetched from there by the threads that want them; written "
			"data are copied by the proxies\n");
		break;
	case PEERLANE_DEVICE_INSTANT:
		add(&t, "EMULATED: everything is completed at once, by %u thread%s\n",
		    s->nr_threads, s->nr_threads == 1 ? "" : "s");
		add(&t, "data: none move\n");
		break;
	}
	return t.length;
}
