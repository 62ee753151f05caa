/* SPDX-License-Identifier: MIT */
/* What prove asks /dev/peerlane: version, features, pins, routes, counters. */
#include "prove.h"

#include "host.h"
#include "human.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define DEVICE "/dev/peerlane"
#define PROBE_BYTES (1u << 20)
/* A device may still be at work on memory whose owner is gone. */
#define SETTLE_MS 30000

static int hello(int dev, struct peerlane_hello *h)
{
	*h = (struct peerlane_hello){ .version = PEERLANE_UAPI_VERSION,
				      .oldest = PEERLANE_UAPI_OLDEST };
	return ioctl(dev, PEERLANE_IOC_HELLO, h) ? -errno : 0;
}

int pl_prove_module_open(void)
{
	int dev = open(DEVICE, O_RDWR | O_CLOEXEC);
	struct peerlane_hello h;
	int err;

	if (dev < 0)
		return -errno;
	err = hello(dev, &h);
	if (!err)
		return dev;
	close(dev);
	return err;
}

int pl_prove_module_pin(int dev, const void *gpu, size_t bytes, unsigned int flags,
			struct peerlane_pin *pin, char **map)
{
	struct peerlane_unpin unpin = { 0 };
	int err;

	*pin = (struct peerlane_pin){ .address = (uintptr_t)gpu, .length = bytes, .flags = flags };
	if (ioctl(dev, PEERLANE_IOC_PIN, pin))
		return -errno;
	*map = mmap(NULL, pin->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, dev,
		    (off_t)pin->map_offset);
	if (*map != MAP_FAILED)
		return 0;
	err = -errno;
	unpin.handle = pin->handle;
	ioctl(dev, PEERLANE_IOC_UNPIN, &unpin);
	return err;
}

struct peerlane_counters pl_prove_module_counters(const struct pl_prove *p)
{
	struct peerlane_counters c = { 0 };

	if (ioctl(p->dev, PEERLANE_IOC_COUNTERS, &c))
		memset(&c, 0, sizeof(c));
	return c;
}

bool pl_prove_module_settled(const struct pl_prove *p, char *text, size_t size)
{
	const struct peerlane_counters *was = &p->start;
	struct peerlane_counters now;

	for (int ms = 0; ms < SETTLE_MS; ms += 20) {
		now = pl_prove_module_counters(p);
		if (now.files == was->files && now.pins == was->pins &&
		    now.pinned_bytes == was->pinned_bytes && now.mappings == was->mappings &&
		    now.lingering == was->lingering && now.uses == was->uses)
			return true;
		usleep(20000);
	}
	snprintf(text, size,
		 "the module does not let go: open files %llu (%llu at the start), pins %llu "
		 "(%llu), mappings %llu (%llu), pins that wait for a device %llu (%llu)",
		 (unsigned long long)now.files, (unsigned long long)was->files,
		 (unsigned long long)now.pins, (unsigned long long)was->pins,
		 (unsigned long long)now.mappings, (unsigned long long)was->mappings,
		 (unsigned long long)now.lingering, (unsigned long long)was->lingering);
	return false;
}

/* ------------------------------------------------------------------ preconditions */

static int refuse_open(struct pl_prove *p, int err)
{
	const char *fix = "see dmesg";

	if (err == -ENOENT || err == -ENXIO || err == -ENODEV)
		fix = "modprobe -a peerlane peerlane_nvidia (peerlane-kmod(7) says how to build "
		      "them)";
	else if (err == -EPROTO)
		fix = "install module and tool of the same release";
	else if (err == -EACCES || err == -EPERM)
		fix = "run this as root";
	pl_prove_report_line(&p->report, PL_PROVE_FAIL, "module", fix, DEVICE ": %s",
			     err == -ENOENT   ? "not there: the kernel module is not loaded"
			     : err == -EPROTO ? "the module speaks another version than this tool"
					      : strerror(-err));
	return -1;
}

static void add_parameter(void *arg, const char *name)
{
	char value[64], *text = arg;
	size_t len = strlen(text);

	if (pl_host_line(value, sizeof(value), "/sys/module/peerlane/parameters/%s", name))
		snprintf(text + len, 512 - len, "%s%s=%s", len ? ", " : "", name, value);
}

static void features(struct pl_prove *p, const struct peerlane_hello *h)
{
	bool pages = h->features & (PEERLANE_FEATURE_GENERIC | PEERLANE_FEATURE_P2PDMA);

	pl_prove_report_line(&p->report, pages ? PL_PROVE_PASS : PL_PROVE_FAIL, "pages",
			     pages ? NULL : "use a kernel that peerlane-kmod(7) names",
			     "the module can make pages of kind:%s%s%s",
			     h->features & PEERLANE_FEATURE_GENERIC ? " generic" : "",
			     h->features & PEERLANE_FEATURE_P2PDMA ? " p2pdma" : "",
			     pages ? "" : " none");
	if (h->features & PEERLANE_FEATURE_PERSISTENT)
		pl_prove_report_line(&p->report, PL_PROVE_PASS, "persistent_pins", NULL,
				     "the GPU's driver has them");
	else
		pl_prove_report_line(&p->report, PL_PROVE_FAIL, "persistent_pins",
				     "use a driver with nvidia_p2p_get_pages_persistent (open "
				     "kernel modules, 535 or newer), no confidential computing",
				     "the GPU's driver has none");
}

static int provider(struct pl_prove *p, const struct peerlane_hello *h)
{
	if (h->features & PEERLANE_FEATURE_PROVIDER) {
		pl_prove_report_line(&p->report, PL_PROVE_PASS, "provider", NULL,
				     "%u provider%s of GPU memory", h->nr_providers,
				     h->nr_providers == 1 ? "" : "s");
		return 0;
	}
	pl_prove_report_line(&p->report, PL_PROVE_FAIL, "provider",
			     "modprobe peerlane_nvidia, with NVIDIA's open kernel modules loaded",
			     "no driver gives GPU memory to the module");
	return -1;
}

int pl_prove_module(struct pl_prove *p)
{
	char version[64] = "", parameters[512] = "";
	struct peerlane_hello h;

	p->dev = pl_prove_module_open();
	if (p->dev < 0)
		return refuse_open(p, p->dev);
	if (hello(p->dev, &h))
		return refuse_open(p, -EPROTO);
	pl_host_line(version, sizeof(version), "/sys/module/peerlane/version");
	pl_prove_report_line(&p->report, PL_PROVE_PASS, "module", NULL, "loaded%s%s",
			     version[0] ? ", version " : "", version);
	pl_prove_report_line(&p->report, PL_PROVE_PASS, "uapi", NULL,
			     "module speaks %u to %u, this tool %u to %u", h.oldest, h.version,
			     PEERLANE_UAPI_OLDEST, PEERLANE_UAPI_VERSION);
	pl_host_list("/sys/module/peerlane/parameters", add_parameter, parameters);
	pl_prove_report_line(&p->report, PL_PROVE_NOTE, "parameters", NULL, "%s", parameters);
	features(p, &h);
	p->start = pl_prove_module_counters(p);
	if (p->start.files > 1 || p->start.pins)
		pl_prove_report_line(&p->report, PL_PROVE_NOTE, "others",
				     "stop other programs that use the module during this run",
				     "others have the module open: %llu files, %llu pins",
				     (unsigned long long)p->start.files - 1,
				     (unsigned long long)p->start.pins);
	return provider(p, &h);
}

/* ------------------------------------------------------------------ route */

static const char *kind_name(unsigned int kind)
{
	static const char *const names[] = { "unknown", "generic", "p2pdma", "foreign p2pdma" };

	return kind < sizeof(names) / sizeof(names[0]) ? names[kind] : names[0];
}

static const char *reason_name(unsigned int reason)
{
	static const struct {
		unsigned int reason;
		const char *name;
	} names[] = {
		{ PEERLANE_REASON_SWITCH, "below one PCIe switch" },
		{ PEERLANE_REASON_HOST_BRIDGE, "through the host bridge" },
		{ PEERLANE_REASON_ACS, "one switch, but ACS sends it through the host bridge" },
		{ PEERLANE_REASON_NO_DEVICE, "the file has no single block device" },
		{ PEERLANE_REASON_VIRTUAL, "stacked device: its members are asked" },
		{ PEERLANE_REASON_NOT_PCI, "the drive is not on PCI" },
		{ PEERLANE_REASON_TOPOLOGY, "the kernel does not allow this pair" },
		{ PEERLANE_REASON_QUEUE, "the drive's queue does not take such pages" },
		{ PEERLANE_REASON_SWIOTLB, "transfers are bounced (swiotlb)" },
		{ PEERLANE_REASON_DMA_MASK, "the drive cannot address the GPU: bounced" },
		{ PEERLANE_REASON_REVOKED, "the memory is gone" },
	};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (names[i].reason == reason)
			return names[i].name;
	return "a reason this tool does not know";
}

static void refuse_pin(struct pl_prove *p, int err)
{
	bool types = err == -EBUSY || err == -EINVAL;

	pl_prove_report_line(&p->report, PL_PROVE_FAIL, "pin",
			     types ? "see kernel_log and \"Limits\" in docs/kmod.md: memory types "
				     "may conflict"
				   : "see kernel_log",
			     "GPU memory cannot be pinned: %s", strerror(-err));
}

static void name_pci(char *text, size_t size, uint32_t pci)
{
	snprintf(text, size, "%04x:%02x:%02x.%x", pci >> 16 & 0xffff, pci >> 8 & 0xff,
		 pci >> 3 & 0x1f, pci & 7);
}

static void describe_pin(struct pl_prove *p, const struct peerlane_pin *pin)
{
	char pci[16];

	name_pci(pci, sizeof(pci), pin->gpu_pci);
	pl_prove_report_line(&p->report, PL_PROVE_PASS, "pin", NULL,
			     "pages of kind %s, GPU pages of %s, GPU at PCI %s",
			     kind_name(pin->page_kind), pl_human_size(pin->gpu_page_bytes).text,
			     pci);
	/* Not every back end names it. */
	if (!p->gpu.pci[0])
		memcpy(p->gpu.pci, pci, sizeof(pci));
}

static void describe_route(struct pl_prove *p, const struct peerlane_route *route)
{
	static const char *const verdicts[] = { "no", "test", "yes" };

	if (route->device_pci)
		name_pci(p->file.pci, sizeof(p->file.pci), route->device_pci);
	pl_prove_report_line(&p->report, PL_PROVE_NOTE, "module_verdict", NULL,
			     "%s: %s; IOMMU %s; PCI distance %d",
			     route->verdict < 3 ? verdicts[route->verdict] : "unknown",
			     reason_name(route->reason),
			     route->flags & PEERLANE_ROUTE_TRANSLATED ? "translates"
			     : route->flags & PEERLANE_ROUTE_IOMMU    ? "passes through"
								      : "none",
			     route->distance);
}

/* The pin's facts, and the module's own verdict. */
static int module_route(struct pl_prove *p, const void *gpu)
{
	struct peerlane_route route = { .fd = p->file.fd };
	struct peerlane_pin pin;
	int err, dev = pl_prove_module_open();
	char *map = NULL;

	err = dev < 0 ? dev : pl_prove_module_pin(dev, gpu, PROBE_BYTES, 0, &pin, &map);
	if (err) {
		refuse_pin(p, err);
		if (dev >= 0)
			close(dev);
		return -1;
	}
	describe_pin(p, &pin);
	route.handle = pin.handle;
	if (!ioctl(dev, PEERLANE_IOC_ROUTE, &route))
		describe_route(p, &route);
	munmap(map, pin.map_bytes);
	close(dev);
	return 0;
}

/* What the library would do, after its own test of the drive and the GPU. */
static bool library_route(struct pl_prove *p, struct peerlane_file *file, const void *gpu,
			  enum peerlane_op op)
{
	const char *name = op == PEERLANE_READ ? "route_read" : "route_write";
	struct peerlane_explanation ex = { .size = sizeof(ex) };
	int err = peerlane_explain(file, op, gpu, PROBE_BYTES, 0, &ex);
	const struct peerlane_verdict *v = &ex.verdicts[PEERLANE_PATH_P2P];

	if (err) {
		pl_prove_report_line(&p->report, PL_PROVE_FAIL, name, NULL, "%s",
				     pl_session_reason(err).text);
		return false;
	}
	pl_prove_report_line(&p->report, v->usable ? PL_PROVE_PASS : PL_PROVE_FAIL, name,
			     v->usable ? NULL : v->fix, "p2p %s: %s",
			     v->usable ? "is taken" : "is not taken", v->reason);
	return v->usable;
}

int pl_prove_route(struct pl_prove *p)
{
	struct peerlane_file *file;
	void *gpu = NULL;
	int err = peerlane_gpu_alloc(p->ctx, (int)p->args->gpu, PROBE_BYTES, &gpu);

	if (err) {
		pl_prove_report_line(&p->report, PL_PROVE_FAIL, "gpu_memory", NULL, "%s",
				     pl_session_reason(err).text);
		return -1;
	}
	err = module_route(p, gpu)
		      ? -EIO
		      : peerlane_file_open(p->ctx, p->file.path, O_RDWR | O_DIRECT, 0, &file);
	if (!err) {
		p->p2p = library_route(p, file, gpu, PEERLANE_READ);
		p->p2p = library_route(p, file, gpu, PEERLANE_WRITE) && p->p2p;
		peerlane_file_close(file);
	} else if (err != -EIO) {
		pl_prove_report_line(&p->report, PL_PROVE_FAIL, "direct_io",
				     "use a file system with O_DIRECT, such as ext4 or xfs", "%s",
				     pl_session_reason(err).text);
	}
	peerlane_gpu_free(p->ctx, gpu);
	return err ? -1 : 0;
}
