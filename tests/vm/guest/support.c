// SPDX-License-Identifier: MIT
/*
 * What the guest's tests stand on: the GPU, the module, the drives.
 */
#include <dirent.h>
#include <glob.h>
#include <liburing.h>
#include <setjmp.h>
#include <sys/syscall.h>
#include <time.h>

#include "guest.h"

int gpu_open(void)
{
	int fd = open("/dev/simgpu", O_RDWR | O_CLOEXEC);

	expect(fd >= 0);
	return fd;
}

uint64_t gpu_alloc(int gpu, size_t bytes)
{
	struct simgpu_alloc alloc = { .bytes = bytes };

	expect(ioctl(gpu, SIMGPU_IOC_ALLOC, &alloc) == 0);
	return alloc.address;
}

void gpu_free(int gpu, uint64_t address)
{
	__u64 argument = address;

	expect(ioctl(gpu, SIMGPU_IOC_FREE, &argument) == 0);
}

void gpu_copy(int gpu, uint64_t address, void *user, size_t bytes, bool to_gpu)
{
	struct simgpu_copy copy = {
		.address = address, .bytes = bytes, .user = (uintptr_t)user, .to_gpu = to_gpu
	};

	expect(ioctl(gpu, SIMGPU_IOC_COPY, &copy) == 0);
}

void gpu_fault(int gpu, uint32_t what, uint32_t value, uint32_t times)
{
	struct simgpu_fault fault = { .what = what, .value = value, .times = times };

	expect(ioctl(gpu, SIMGPU_IOC_FAULT, &fault) == 0);
}

struct simgpu_state gpu_state(int gpu)
{
	struct simgpu_state state;

	expect(ioctl(gpu, SIMGPU_IOC_STATE, &state) == 0);
	return state;
}

int dev_open(void)
{
	struct peerlane_hello hello = { .version = PEERLANE_UAPI_VERSION,
					.oldest = PEERLANE_UAPI_OLDEST };
	int fd = open("/dev/peerlane", O_RDWR | O_CLOEXEC);

	expect(fd >= 0);
	expect(ioctl(fd, PEERLANE_IOC_HELLO, &hello) == 0);
	return fd;
}

int dev_pin(int dev, uint64_t address, size_t bytes, uint32_t flags, struct peerlane_pin *pin)
{
	*pin = (struct peerlane_pin){ .address = address, .length = bytes, .flags = flags };
	return ioctl(dev, PEERLANE_IOC_PIN, pin);
}

int dev_unpin(int dev, uint32_t handle)
{
	struct peerlane_unpin unpin = { .handle = handle };

	return ioctl(dev, PEERLANE_IOC_UNPIN, &unpin);
}

struct peerlane_counters dev_counters(int dev)
{
	struct peerlane_counters counters;

	expect(ioctl(dev, PEERLANE_IOC_COUNTERS, &counters) == 0);
	return counters;
}

void memory_open(struct memory *memory, size_t bytes, uint32_t flags)
{
	struct peerlane_info info = { 0 };

	memset(memory, 0, sizeof(*memory));
	memory->gpu = gpu_open();
	memory->dev = dev_open();
	memory->bytes = bytes;
	memory->address = gpu_alloc(memory->gpu, bytes);
	expect(dev_pin(memory->dev, memory->address, bytes, flags, &memory->pin) == 0);
	memory->map = mmap(NULL, memory->pin.map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
			   memory->dev, (off_t)memory->pin.map_offset);
	expect(memory->map != MAP_FAILED);
	memory->physical = calloc(memory->pin.map_bytes / GPU_PAGE, sizeof(uint64_t));
	info.handle = memory->pin.handle;
	info.physical = (uintptr_t)memory->physical;
	info.nr_room = (uint32_t)(memory->pin.map_bytes / GPU_PAGE);
	expect(ioctl(memory->dev, PEERLANE_IOC_INFO, &info) == 0);
}

void memory_close(struct memory *memory)
{
	munmap(memory->map, memory->pin.map_bytes);
	expect(dev_unpin(memory->dev, memory->pin.handle) == 0);
	gpu_free(memory->gpu, memory->address);
	close(memory->dev);
	close(memory->gpu);
	free(memory->physical);
}

/* The first word of a file in /sys/block/NAME/device is @value. */
static bool disk_is(const char *name, const char *key, const char *value)
{
	char path[300], text[64];
	bool is;
	FILE *file;

	snprintf(path, sizeof(path), "/sys/block/%s/device/%s", name, key);
	file = fopen(path, "r");
	is = file && fscanf(file, "%63s", text) == 1 && !strcmp(text, value);
	if (file)
		fclose(file);
	return is;
}

bool disk_find(const char *key, const char *value, char *path)
{
	struct dirent *entry;
	DIR *dir = opendir("/sys/block");

	expect(dir);
	path[0] = '\0';
	while (!path[0] && (entry = readdir(dir))) {
		/* A path of a drive with several is hidden: it has no node. */
		snprintf(path, DISK_PATH, "/dev/%.48s", entry->d_name);
		if (access(path, F_OK) || !disk_is(entry->d_name, key, value))
			path[0] = '\0';
	}
	closedir(dir);
	return path[0];
}

void disk_path(const char *key, const char *value, char *path)
{
	if (!disk_find(key, value, path))
		fail("no disk whose %s is %s", key, value);
}

int drive_open(const char *serial, int flags)
{
	char path[DISK_PATH];
	int fd;

	disk_path("serial", serial, path);
	fd = open(path, flags | O_CLOEXEC);
	expect(fd >= 0);
	return fd;
}

void drive_pci(const char *serial, char *pci, size_t room)
{
	char path[DISK_PATH], pattern[160], target[256];
	glob_t paths;
	size_t i;

	disk_path("serial", serial, path);
	pci[0] = '\0';
	/* With multipath in the kernel a namespace belongs to several controllers. */
	snprintf(pattern, sizeof(pattern), "/sys/block/%s/device/{,nvme*/}device",
		 path + strlen("/dev/"));
	expect(glob(pattern, GLOB_BRACE, NULL, &paths) == 0);
	for (i = 0; i < paths.gl_pathc; i++) {
		ssize_t n = readlink(paths.gl_pathv[i], target, sizeof(target) - 1);

		if (n <= 0)
			continue;
		target[n] = '\0';
		if (strchr(strrchr(target, '/'), ':'))
			snprintf(pci, room, "%s", strrchr(target, '/') + 1);
	}
	globfree(&paths);
	expect(pci[0]);
}

bool drive_wait(const char *serial, unsigned int ms)
{
	char path[DISK_PATH];
	int fd;

	for (; ms; ms--) {
		/* The node comes before the disk can be opened. */
		fd = disk_find("serial", serial, path) ? open(path, O_RDONLY | O_CLOEXEC) : -1;
		if (fd >= 0) {
			close(fd);
			return true;
		}
		sleep_ms(1);
	}
	return false;
}

int echo(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY), ret;

	expect(fd >= 0);
	ret = write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -1;
	close(fd);
	return ret;
}

int rmmod(const char *name)
{
	return (int)syscall(SYS_delete_module, name, O_NONBLOCK);
}

unsigned int rounds(unsigned int usual)
{
	const char *text = getenv("ROUNDS");
	unsigned long wanted = text ? strtoul(text, NULL, 10) : 0;

	return wanted ? (unsigned int)wanted : usual;
}

void *host_alloc(size_t bytes)
{
	void *memory = NULL;

	expect(posix_memalign(&memory, 4096, bytes) == 0);
	memset(memory, 0, bytes);
	return memory;
}

void fill(void *to, size_t bytes, uint64_t seed)
{
	uint64_t *words = to;
	size_t i;

	for (i = 0; i < bytes / 8; i++) {
		seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
		words[i] = seed ^ (seed >> 29);
	}
}

void sleep_ms(unsigned int ms)
{
	usleep(ms * 1000);
}

double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

void say_direct(size_t bytes)
{
	printf("DIRECT %zu\n", bytes);
}

/* A range of memory in pieces that lie in one GPU page. */
static size_t piece_of(size_t at, size_t left)
{
	size_t room = GPU_PAGE - at % GPU_PAGE;

	return left < room ? left : room;
}

void say_bar(const struct memory *memory, size_t at, size_t bytes, const char *what, size_t offset)
{
	size_t piece;

	for (; bytes; at += piece, offset += piece, bytes -= piece) {
		piece = piece_of(at, bytes);
		printf("EXPECT bar %llu %zu %s %zu\n",
		       (unsigned long long)memory->physical[at / GPU_PAGE] + at % GPU_PAGE, piece,
		       what, offset);
	}
}

void say_disk(const char *what, size_t offset, size_t bytes, const struct memory *memory, size_t at)
{
	size_t piece;

	for (; bytes; at += piece, offset += piece, bytes -= piece) {
		piece = piece_of(at, bytes);
		printf("EXPECT %s %zu %zu bar %llu\n", what, offset, piece,
		       (unsigned long long)memory->physical[at / GPU_PAGE] + at % GPU_PAGE);
	}
}

struct slow {
	struct io_uring ring;
	unsigned int nr;
	int fd;
};

struct slow *slow_start(char *to, size_t bytes, size_t piece)
{
	struct slow *slow = calloc(1, sizeof(*slow));
	struct io_uring_sqe *sqe;
	size_t at;

	slow->fd = drive_open("slow0", O_RDONLY | O_DIRECT);
	expect(io_uring_queue_init(256, &slow->ring, 0) == 0);
	for (at = 0; at < bytes; at += piece) {
		sqe = io_uring_get_sqe(&slow->ring);
		expect(sqe);
		io_uring_prep_read(sqe, slow->fd, to + at, (unsigned int)piece, at);
		slow->nr++;
	}
	expect(io_uring_submit(&slow->ring) == (int)slow->nr);
	return slow;
}

bool slow_done(struct slow *slow)
{
	return io_uring_cq_ready(&slow->ring) >= slow->nr;
}

int slow_finish(struct slow *slow)
{
	struct io_uring_cqe *cqe;
	int failed = 0;

	for (; slow->nr; slow->nr--) {
		expect(io_uring_wait_cqe(&slow->ring, &cqe) == 0);
		if (cqe->res <= 0)
			failed++;
		io_uring_cqe_seen(&slow->ring, cqe);
	}
	io_uring_queue_exit(&slow->ring);
	close(slow->fd);
	free(slow);
	return failed;
}

bool pages_reused(struct memory *memory)
{
	size_t nr = gpu_state(memory->gpu).free_bytes / GPU_PAGE, i, j;
	struct peerlane_pin pin;
	uint64_t address, *physical = calloc(nr, sizeof(*physical));
	struct peerlane_info info = { .physical = (uintptr_t)physical, .nr_room = (uint32_t)nr };
	bool found = false;

	/* All that is left. */
	address = gpu_alloc(memory->gpu, nr * GPU_PAGE);
	expect(dev_pin(memory->dev, address, nr * GPU_PAGE, PEERLANE_PIN_PERSISTENT, &pin) == 0);
	info.handle = pin.handle;
	expect(ioctl(memory->dev, PEERLANE_IOC_INFO, &info) == 0);
	for (i = 0; i < nr; i++)
		for (j = 0; j < memory->pin.map_bytes / GPU_PAGE; j++)
			found |= physical[i] == memory->physical[j];
	expect(dev_unpin(memory->dev, pin.handle) == 0);
	gpu_free(memory->gpu, address);
	free(physical);
	return found;
}

void wait_sigbus(const volatile char *at)
{
	int i;

	for (i = 0; i < 500 && !raises_sigbus(at); i++)
		sleep_ms(20);
	expect(raises_sigbus(at));
}

void wait_given_back(struct memory *memory)
{
	int i;

	for (i = 0; i < 500 && dev_counters(memory->dev).pins; i++)
		sleep_ms(20);
	expect(dev_counters(memory->dev).pins == 0 && dev_counters(memory->dev).lingering == 0);
	expect(gpu_state(memory->gpu).nr_persistent == 0 && gpu_state(memory->gpu).nr_pins == 0);
	expect(gpu_state(memory->gpu).nr_allocs == 0);
}

void in_child(void (*child)(void *), void *data, unsigned int kill_ms)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	expect(pid >= 0);
	if (!pid) {
		child(data);
		fflush(stdout);
		_exit(0);
	}
	if (kill_ms) {
		sleep_ms(kill_ms);
		kill(pid, SIGKILL);
	}
	expect(waitpid(pid, &status, 0) == pid);
	if (kill_ms)
		expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	else
		expect(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static sigjmp_buf after_fault;

static void on_fault(int number)
{
	siglongjmp(after_fault, number);
}

/* Is there no memory any more? */
bool raises_sigbus(const volatile char *at)
{
	struct sigaction action = { .sa_handler = on_fault }, before;
	volatile int number;

	sigaction(SIGBUS, &action, &before);
	number = sigsetjmp(after_fault, 1);
	if (!number)
		(void)*at;
	sigaction(SIGBUS, &before, NULL);
	return number == SIGBUS;
}
