// SPDX-License-Identifier: MIT
/*
 * The path p2p where it cannot be taken: the reason and the fix are named, the data comes another
 * way, and the module's device is opened once. The device is played by this program.
 */
#include "fake/cuda_fixture.h"

#include <fcntl.h>
#include <peerlane/peerlane.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <uapi/peerlane.h>
#include <unistd.h>

#define BYTES (1u << 20)

/* What the device does. */
static struct {
	int open_errno, hello_errno, pin_errno;
	uint64_t features;
	unsigned int verdict, reason;
	int fd;
	uint32_t domain_high; /* of the GPU */
	unsigned int nr_opened, nr_pinned, nr_unpinned, nr_asked;
} device;

int open(const char *path, int flags, ...)
{
	va_list ap;
	mode_t mode;

	va_start(ap, flags);
	mode = va_arg(ap, mode_t);
	va_end(ap);
	if (strcmp(path, "/dev/peerlane") != 0)
		return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
	device.nr_opened++;
	if (device.open_errno) {
		errno = device.open_errno;
		return -1;
	}
	device.fd = memfd_create("peerlane", MFD_CLOEXEC);
	assert_int_equal(ftruncate(device.fd, 16 << 20), 0);
	return device.fd;
}

static int fails(int err)
{
	errno = err;
	return err ? -1 : 0;
}

static int play(unsigned long request, void *arg)
{
	struct peerlane_hello *hello = arg;
	struct peerlane_pin *pin = arg;
	struct peerlane_route *route = arg;

	switch (request) {
	case PEERLANE_IOC_HELLO:
		hello->version = 7;
		hello->oldest = 5;
		hello->features = device.features;
		hello->max_pin_bytes = 1ull << 30;
		return fails(device.hello_errno);
	case PEERLANE_IOC_PIN:
		if (device.pin_errno)
			return fails(device.pin_errno);
		pin->handle = ++device.nr_pinned;
		pin->map_offset = 0;
		pin->skip_bytes = pin->address % 65536;
		pin->map_bytes = (pin->skip_bytes + pin->length + 65535) / 65536 * 65536;
		pin->gpu_pci = 0x100;
		pin->gpu_domain_high = device.domain_high;
		return 0;
	case PEERLANE_IOC_UNPIN:
		device.nr_unpinned++;
		return 0;
	case PEERLANE_IOC_ROUTE:
		device.nr_asked++;
		route->verdict = device.verdict;
		route->reason = device.reason;
		return 0;
	default:
		return fails(ENOTTY);
	}
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (device.fd && fd == device.fd && _IOC_TYPE(request) == PEERLANE_IOC_MAGIC)
		return play(request, arg);
	return (int)syscall(SYS_ioctl, fd, request, arg);
}

static char path[] = "test_p2p.XXXXXX";
static unsigned char *data, *seen;
static struct peerlane *ctx;
static struct peerlane_file *file;
static char *memory;

static void begin(unsigned int flags, int file_flags)
{
	struct peerlane_options opt = { .size = sizeof(opt), .backend = "cuda", .flags = flags };
	void *addr;

	assert_int_equal(peerlane_open(&ctx, &opt), 0);
	assert_int_equal(peerlane_file_open(ctx, path, file_flags, 0, &file), 0);
	assert_int_equal(peerlane_gpu_alloc(ctx, 0, BYTES, &addr), 0);
	memory = addr;
}

static void end(void)
{
	assert_int_equal(peerlane_file_close(file), 0);
	assert_int_equal(peerlane_gpu_free(ctx, memory), 0);
	peerlane_close(ctx);
	assert_int_equal(device.nr_pinned, device.nr_unpinned);
}

static void says(enum peerlane_op op, size_t at, const char *reason, const char *fix)
{
	struct peerlane_explanation ex = { .size = sizeof(ex) };
	const struct peerlane_verdict *v = &ex.verdicts[PEERLANE_PATH_P2P];

	assert_int_equal(peerlane_explain(file, op, memory + at, BYTES / 2, 0, &ex), 0);
	assert_false(v->usable);
	if (!strstr(v->reason, reason) || !strstr(v->fix, fix))
		fail_msg("\"%s\" (%s), and not \"%s\" (%s)", v->reason, v->fix, reason, fix);
}

/* The data comes, and not by p2p. */
static void reads(void)
{
	struct peerlane_stats st = { .size = sizeof(st) };

	assert_int_equal(peerlane_read(file, memory, BYTES, 0), BYTES);
	assert_int_equal(peerlane_gpu_copy(ctx, seen, memory, BYTES), 0);
	assert_memory_equal(seen, data, BYTES);
	assert_int_equal(peerlane_stats_get(ctx, &st), 0);
	assert_int_equal(st.read.path_bytes[PEERLANE_PATH_P2P], 0);
}

/* Memory that was pinned is memory whose synchronous copies have ended when they return. */
static void exposed(void)
{
	__typeof__(cuPointerGetAttributes) *get;
	unsigned int sync = 0;
	void *where = &sync;
	int what = CU_PTR_SYNC_MEMOPS;

	load(&get, "cuPointerGetAttributes");
	assert_int_equal(get(1, &what, &where, (uintptr_t)memory), 0);
	assert_int_equal(sync, 1);
}

static void refused(const char *reason, const char *fix)
{
	begin(0, O_RDWR | O_DIRECT);
	says(PEERLANE_READ, 0, reason, fix);
	reads();
	says(PEERLANE_WRITE, 0, reason, fix);
	assert_int_equal(device.nr_opened, 1);
	if (device.nr_pinned)
		exposed();
	end();
}

static void test_no_device(void **state)
{
	(void)state;
	device.open_errno = ENOENT;
	refused("not loaded", "modprobe peerlane");
	device.nr_opened = 0;
	device.open_errno = EACCES;
	refused("no permission", "group peerlane");
	device.nr_opened = 0;
	device.open_errno = EMFILE;
	refused("/dev/peerlane", "");
}

static void test_hello(void **state)
{
	(void)state;
	device.hello_errno = EPROTO;
	refused("versions 5 to 7", "of this version");
	device.nr_opened = 0;
	device.hello_errno = ENOTTY;
	refused("does not answer", "");
	device.nr_opened = 0;
	device.hello_errno = 0;
	device.features = 0;
	refused("knows no driver", "modprobe peerlane_nvidia");
}

static void test_pin(void **state)
{
	static const struct {
		int err;
		const char *reason, *fix;
	} cases[] = { { EBUSY, "conflicts", "RmForceDisableIomapWC=1\"" },
		      { EINVAL, "can pin this memory", "" },
		      { EOPNOTSUPP, "stays when it is freed", "" },
		      { EIO, "could not be pinned", "" } };

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		device.nr_opened = 0;
		device.pin_errno = cases[i].err;
		refused(cases[i].reason, cases[i].fix);
	}
}

static void test_route(void **state)
{
	static const struct {
		unsigned int reason;
		const char *text, *fix;
	} cases[] = {
		{ PEERLANE_REASON_NO_DEVICE, "does not name one block device", "ext4" },
		{ PEERLANE_REASON_VIRTUAL, "no drive below it", "" },
		{ PEERLANE_REASON_NOT_PCI, "not a PCI device", "NVMe" },
		{ PEERLANE_REASON_TOPOLOGY, "ACS", "ACS" },
		{ PEERLANE_REASON_QUEUE, "peer-to-peer pages", "pages=generic" },
		{ PEERLANE_REASON_SWIOTLB, "swiotlb=force", "command line" },
		{ PEERLANE_REASON_DMA_MASK, "cannot address", "IOMMU" },
		{ PEERLANE_REASON_REVOKED, "freed", "" },
		{ 99, "does not know", "update" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		device.nr_opened = 0;
		device.verdict = PEERLANE_ROUTE_NO;
		device.reason = cases[i].reason;
		refused(cases[i].text, cases[i].fix);
	}
}

/* GPUs whose addresses differ only in the upper half of the domain are two. */
static void test_domains(void **state)
{
	void *other;

	(void)state;
	device.reason = PEERLANE_REASON_SWIOTLB;
	begin(0, O_RDWR | O_DIRECT);
	says(PEERLANE_READ, 0, "swiotlb", "command line");
	says(PEERLANE_READ, 0, "swiotlb", "command line");
	assert_int_equal(device.nr_asked, 1);
	device.domain_high = 1;
	device.reason = PEERLANE_REASON_DMA_MASK;
	assert_int_equal(peerlane_gpu_alloc(ctx, 0, BYTES, &other), 0);
	assert_int_equal(peerlane_gpu_free(ctx, memory), 0);
	memory = other;
	says(PEERLANE_READ, 0, "cannot address", "IOMMU");
	assert_int_equal(device.nr_asked, 2);
	end();
}

/* The mapping is not the GPU's memory: the test finds out, whatever the module says. */
static void test_self_test(void **state)
{
	(void)state;
	device.reason = PEERLANE_REASON_SWITCH;
	for (device.verdict = PEERLANE_ROUTE_TEST; device.verdict <= PEERLANE_ROUTE_YES;
	     device.verdict++) {
		device.nr_opened = 0;
		refused("the test failed", "dmesg");
	}
}

static void test_request(void **state)
{
	(void)state;
	device.open_errno = ENOENT;
	begin(PEERLANE_NO_P2P, O_RDWR | O_DIRECT);
	says(PEERLANE_READ, 0, "switched off", "no-p2p");
	reads();
	end();
	/* Nothing is tried where it could not help. */
	assert_int_equal(device.nr_opened, 0);
	begin(0, O_RDWR);
	/* Registered or not, it is tried once. */
	assert_int_equal(peerlane_buffer_register(ctx, memory, BYTES, 0), 0);
	reads();
	assert_int_equal(peerlane_buffer_release(ctx, memory), 0);
	reads();
	assert_int_equal(device.nr_opened, 1);
	end();
	device.open_errno = 0;
	begin(0, O_RDWR);
	says(PEERLANE_WRITE, 0, "without O_DIRECT", "O_DIRECT");
	says(PEERLANE_READ, 3, "not aligned", "aligned alike");
	end();
}

static int begin_device(void **state)
{
	(void)state;
	memset(&device, 0, sizeof(device));
	device.features = PEERLANE_FEATURE_PROVIDER | PEERLANE_FEATURE_GENERIC;
	setenv("PEERLANE_LIBCUDA", fake_path, 1);
	return 0;
}

static int end_device(void **state)
{
	(void)state;
	assert_clean();
	return 0;
}

/* A file that can be read with O_DIRECT; false where there is none. */
static bool make_file(void)
{
	int fd = mkstemp(path), direct;

	assert_true(fd >= 0);
	data = malloc(BYTES);
	seen = malloc(BYTES);
	fill(data, BYTES, 1);
	assert_int_equal(write(fd, data, BYTES), BYTES);
	fsync(fd);
	close(fd);
	direct = open(path, O_RDONLY | O_DIRECT);
	if (direct >= 0)
		close(direct);
	return direct >= 0;
}

#define P2P_TEST(name) cmocka_unit_test_setup_teardown(test_##name, begin_device, end_device)

int main(void)
{
	const struct CMUnitTest tests[] = {
		P2P_TEST(no_device), P2P_TEST(hello),	  P2P_TEST(pin),     P2P_TEST(route),
		P2P_TEST(domains),   P2P_TEST(self_test), P2P_TEST(request),
	};
	int status;

	/* Of the fixture, for tests of the back end alone. */
	(void)setup;
	(void)teardown;
	(void)wait_mark;
	if (make_file()) {
		status = RUN_TESTS(tests);
	} else {
		puts("the file system here has no O_DIRECT");
		status = 77;
	}
	unlink(path);
	free(data);
	free(seen);
	return status;
}
