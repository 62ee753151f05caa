// SPDX-License-Identifier: MIT
/*
 * Somebody holds pages of GPU memory that is freed, for as long as he likes: freeing waits for nobody, and
 * the memory is nobody else's before he lets go.
 */
#include <linux/fuse.h>
#include <linux/vfio.h>
#include <pthread.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "kept.h"
#include "nvme_lab.h"

/* It was freed, and stays what it was. */
static void check_kept(struct memory *memory)
{
	sleep_ms(300);
	kept_expect(memory->dev, memory->gpu, 0, 1, 1);
	expect(dev_counters(memory->dev).lingering == 1);
	expect(gpu_state(memory->gpu).nr_allocs == 1);
	/* This takes all other memory, pins and frees it. */
	expect(!pages_reused(memory));
}

static void check_back(struct memory *memory)
{
	wait_given_back(memory);
	expect(pages_reused(memory));
}

/* ------------------------------------------------------------------ a pipe */

#define WORD "what a dead program has left"

/* The owner puts a page into a pipe and ends: false where the kernel does not take it. */
static void splice_and_die(int to, int tell)
{
	struct memory memory;
	struct iovec iov;
	ssize_t got;

	memory_open(&memory, MIB, 0);
	memcpy(memory.map, WORD, sizeof(WORD));
	iov.iov_base = memory.map;
	iov.iov_len = 4096;
	got = vmsplice(to, &iov, 1, 0);
	/* Peer-to-peer pages go nowhere but to drives. */
	expect(got == (memory.pin.page_kind == PEERLANE_PAGES_GENERIC ? 4096 : -1));
	expect(write(tell, &got, sizeof(got)) == sizeof(got));
	expect(write(tell, memory.physical, MIB / GPU_PAGE * sizeof(uint64_t)) ==
	       (ssize_t)(MIB / GPU_PAGE * sizeof(uint64_t)));
	_exit(0);
}

/* A page in a pipe outlives the memory, its owner and all his descriptors. */
int test_holder_pipe(void)
{
	static uint64_t physical[MIB / GPU_PAGE];
	struct memory memory = { .bytes = MIB, .pin = { .map_bytes = MIB }, .physical = physical };
	int pipes[2], tells[2], status;
	char page[4096];
	ssize_t got;
	pid_t pid;

	expect(pipe(pipes) == 0 && pipe(tells) == 0);
	fflush(stdout);
	pid = fork();
	expect(pid >= 0);
	if (!pid)
		splice_and_die(pipes[1], tells[1]);
	expect(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status));
	expect(read(tells[0], &got, sizeof(got)) == sizeof(got));
	expect(read(tells[0], physical, sizeof(physical)) == sizeof(physical));
	memory.gpu = gpu_open();
	memory.dev = dev_open();
	if (got > 0) {
		check_kept(&memory);
		expect(read(pipes[0], page, sizeof(page)) == sizeof(page));
		expect(strcmp(page, WORD) == 0);
	}
	check_back(&memory);
	return 0;
}

/* ------------------------------------------------------------------ a file system that never answers */

#define ROOT "/tmp/holder"
#define FILE_NODE 2

union answer {
	struct fuse_init_out init;
	struct fuse_entry_out entry;
	struct fuse_attr_out attr;
	struct fuse_open_out open;
};

static struct fuse_attr attr_of(uint64_t node)
{
	return (struct fuse_attr){ .ino = node,
				   .size = node == FILE_NODE ? MIB : 0,
				   .mode = node == FILE_NODE ? S_IFREG | 0666 : S_IFDIR | 0777,
				   .nlink = 1,
				   .blksize = 4096 };
}

/* The answer to a request and its size, or minus an errno. */
static int answer_to(const struct fuse_in_header *in, union answer *out)
{
	*out = (union answer){ 0 };
	switch (in->opcode) {
	case FUSE_INIT:
		out->init.major = FUSE_KERNEL_VERSION;
		out->init.minor = FUSE_KERNEL_MINOR_VERSION;
		out->init.max_write = MIB;
		return sizeof(out->init);
	case FUSE_LOOKUP:
		out->entry.nodeid = FILE_NODE;
		out->entry.attr_valid = out->entry.entry_valid = 1000;
		out->entry.attr = attr_of(FILE_NODE);
		return sizeof(out->entry);
	case FUSE_GETATTR:
		out->attr.attr_valid = 1000;
		out->attr.attr = attr_of(in->nodeid);
		return sizeof(out->attr);
	case FUSE_OPEN:
		return sizeof(out->open);
	default:
		return -ENOSYS;
	}
}

/* Serves everything but reads, of which it only tells. */
static void serve(int fuse, int tell)
{
	static char request[2 * MIB];
	const struct fuse_in_header *in = (const void *)request;
	struct fuse_out_header head;
	struct iovec iov[2] = { { .iov_base = &head, .iov_len = sizeof(head) } };
	union answer out;
	int got;

	while (read(fuse, request, sizeof(request)) >= (ssize_t)sizeof(*in)) {
		if (in->opcode == FUSE_READ)
			expect(write(tell, "r", 1) == 1);
		if (in->opcode == FUSE_READ || in->opcode == FUSE_FORGET ||
		    in->opcode == FUSE_BATCH_FORGET || in->opcode == FUSE_INTERRUPT)
			continue;
		got = answer_to(in, &out);
		iov[1] = (struct iovec){ .iov_base = &out, .iov_len = got > 0 ? (size_t)got : 0 };
		head = (struct fuse_out_header){ .len = (uint32_t)(sizeof(head) + iov[1].iov_len),
						 .error = got < 0 ? got : 0,
						 .unique = in->unique };
		(void)!writev(fuse, iov, 2);
	}
}

/* The server, with the file system mounted; 0 if the kernel has none of this kind. */
static pid_t server_start(int tell)
{
	char options[80];
	int fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	pid_t pid;

	if (fuse < 0)
		return 0;
	mkdir(ROOT, 0755);
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", fuse);
	expect(mount("holder", ROOT, "fuse", 0, options) == 0);
	fflush(stdout);
	pid = fork();
	expect(pid >= 0);
	if (!pid) {
		serve(fuse, tell);
		_exit(0);
	}
	close(fuse);
	return pid;
}

/**
 * struct reading - a read that does not end
 * @to: where to
 * @tell: told 'e' when it ends
 * @error: what it ended with
 */
struct reading {
	char *to;
	int tell, error;
};

static void *read_for_ever(void *data)
{
	struct reading *reading = data;
	int fd = open(ROOT "/file", O_RDONLY | O_DIRECT);

	expect(fd >= 0);
	reading->error = pread(fd, reading->to, 256 * KIB, 0) < 0 ? errno : 0;
	expect(write(reading->tell, "e", 1) == 1);
	close(fd);
	return NULL;
}

/* Direct I/O on a file whose server never answers, until that dies. */
int test_holder_fuse(void)
{
	struct reading reading;
	struct memory memory;
	pthread_t thread;
	int tells[2];
	pid_t pid;
	char what;

	expect(pipe(tells) == 0);
	pid = server_start(tells[1]);
	if (!pid) {
		printf("this kernel has no FUSE\n");
		return SKIP;
	}
	memory_open(&memory, MIB, 0);
	reading = (struct reading){ .to = memory.map, .tell = tells[1] };
	expect(pthread_create(&thread, NULL, read_for_ever, &reading) == 0);
	expect(read(tells[0], &what, 1) == 1);
	/* The kernel gives only generic pages to such a file system. */
	expect(what == (memory.pin.page_kind == PEERLANE_PAGES_GENERIC ? 'r' : 'e'));
	gpu_free(memory.gpu, memory.address);
	if (what == 'r')
		check_kept(&memory);
	expect(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
	expect(pthread_join(thread, NULL) == 0);
	printf("the read ended with errno %d\n", reading.error);
	expect(reading.error);
	check_back(&memory);
	expect(umount2(ROOT, MNT_DETACH) == 0);
	return 0;
}

/* ------------------------------------------------------------------ VFIO */

#define DRIVE "bad0"
#define IOVA (256 * MIB)

/* A container with the group of a device in it. */
static int container_open(const char *pci, int *group)
{
	char path[128], link[256];
	int container;
	ssize_t got;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/iommu_group", pci);
	got = readlink(path, link, sizeof(link) - 1);
	expect(got > 0);
	link[got] = '\0';
	snprintf(path, sizeof(path), "/dev/vfio/%.32s", strrchr(link, '/') + 1);
	*group = open(path, O_RDWR | O_CLOEXEC);
	container = open("/dev/vfio/vfio", O_RDWR | O_CLOEXEC);
	expect(*group >= 0 && container >= 0);
	expect(ioctl(*group, VFIO_GROUP_SET_CONTAINER, &container) == 0);
	expect(ioctl(container, VFIO_SET_IOMMU, VFIO_TYPE1v2_IOMMU) == 0);
	return container;
}

static int map_dma(int container, const struct memory *memory, uint32_t flags)
{
	struct vfio_iommu_type1_dma_map map = { .argsz = sizeof(map),
						.flags = flags,
						.vaddr = (uintptr_t)memory->map,
						.iova = IOVA,
						.size = memory->bytes };

	return ioctl(container, VFIO_IOMMU_MAP_DMA, &map);
}

static void unmap_dma(int container, size_t bytes)
{
	struct vfio_iommu_type1_dma_unmap unmap = { .argsz = sizeof(unmap),
						    .iova = IOVA,
						    .size = bytes };

	expect(ioctl(container, VFIO_IOMMU_UNMAP_DMA, &unmap) == 0);
}

/*
 * VFIO takes such pages for reading, whatever the mapping says, and never lets go of them, not even when it is
 * closed: it takes them for memory without page structures. So this memory is lost until the machine
 * starts anew. All other memory goes on, and so does the GPU's driver. Nothing can follow this
 * test in its boot.
 */
int test_holder_vfio(void)
{
	struct pci pci = take_drive(DRIVE, "vfio");
	struct memory memory;
	int group, container = container_open(pci.text, &group);

	memory_open(&memory, MIB, 0);
	if (map_dma(container, &memory, VFIO_DMA_MAP_FLAG_READ | VFIO_DMA_MAP_FLAG_WRITE) == 0)
		printf("SAY VFIO writes as well\n");
	else if (map_dma(container, &memory, VFIO_DMA_MAP_FLAG_READ))
		fail("VFIO does not take the memory: errno %d", errno);
	gpu_free(memory.gpu, memory.address);
	check_kept(&memory);
	unmap_dma(container, memory.bytes);
	close(container);
	close(group);
	check_kept(&memory);
	munmap(memory.map, memory.pin.map_bytes);
	expect(dev_unpin(memory.dev, memory.pin.handle) == -1 && errno == EINPROGRESS);
	check_kept(&memory);
	give_back(pci, DRIVE);
	kept_for_ever(1);
	return 0;
}
