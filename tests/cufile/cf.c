// SPDX-License-Identifier: MIT
/* The library under test, memory of the GPU, and files with a known pattern. */
#include "cf.h"

#include <dlfcn.h>
#include <ftw.h>
#include <limits.h>

struct cf_library cf;
static char path[PATH_MAX];
static char dir[PATH_MAX];
static pid_t dir_owner;
static struct peerlane *gpu;

const char *cf_path(void)
{
	return path;
}

bool cf_is_ours(void)
{
	return cf.cuFileReadv && strstr(path, "nvidia") == NULL && getenv("CF_REAL") == NULL;
}

void cf_load(void)
{
	const char *named = getenv("CUFILE_LIB"), *build = getenv("PEERLANE_BUILD");
	void *lib;

	snprintf(path, sizeof(path), "%s%s",
		 named	 ? named
		 : build ? build
			 : "build",
		 named ? "" : "/cufile/libcufile.so.0");
	lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		printf("no library to test: %s\n", dlerror());
		exit(77);
	}
#define LOAD(name) *(void **)(void *)&cf.name = dlsym(lib, #name);
	CF_FUNCTIONS_1_15(LOAD)
	CF_FUNCTIONS_LATER(LOAD)
#undef LOAD
#define NEED(name)                                                                                 \
	if (!cf.name) {                                                                            \
		printf("%s has no %s\n", path, #name);                                             \
		exit(1);                                                                           \
	}
	CF_FUNCTIONS_1_15(NEED)
#undef NEED
}

/* ------------------------------------------------------------------ GPU */

void *cf_cuda(const char *name)
{
	const char *path_of = getenv("PEERLANE_LIBCUDA");
	void *lib;

	if (strcmp(peerlane_backend(cf_gpu()), "cuda") != 0)
		return NULL;
	lib = dlopen(path_of ? path_of : "libcuda.so.1", RTLD_NOW);
	return lib ? dlsym(lib, name) : NULL;
}

/* Makes the primary context of GPU 0 current in this thread. */
static void make_current(void)
{
	int (*retain)(void **context, int device);
	int (*set)(void *context);
	void *context;

	*(void **)(void *)&retain = cf_cuda("cuDevicePrimaryCtxRetain");
	*(void **)(void *)&set = cf_cuda("cuCtxSetCurrent");
	if (retain && set && !retain(&context, 0))
		set(context);
}

struct peerlane *cf_gpu(void)
{
	if (gpu)
		return gpu;
	if (peerlane_open(&gpu, NULL)) {
		printf("no GPU back end\n");
		exit(77);
	}
	if (!strcmp(peerlane_backend(gpu), "cuda"))
		make_current();
	return gpu;
}

void cf_gpu_close(void)
{
	peerlane_close(gpu);
	gpu = NULL;
}

char *cf_alloc(size_t bytes)
{
	void *addr;

	if (peerlane_gpu_alloc(cf_gpu(), 0, bytes, &addr)) {
		printf("no GPU memory\n");
		exit(1);
	}
	return addr;
}

void cf_free(void *addr)
{
	peerlane_gpu_free(cf_gpu(), addr);
}

/* ------------------------------------------------------------------ patterns */

void cf_pattern(void *mem, size_t bytes, off_t offset, unsigned int seed)
{
	unsigned char *p = mem;

	for (size_t i = 0; i < bytes; i++) {
		uint64_t v = ((uint64_t)offset + i + 1) * 0x9e3779b97f4a7c15ull + seed;

		p[i] = (unsigned char)(v >> 40);
	}
}

static size_t differs(const char *mem, size_t bytes, off_t offset, unsigned int seed)
{
	char *want = malloc(bytes + 1);
	size_t i = 0;

	cf_pattern(want, bytes, offset, seed);
	while (i < bytes && mem[i] == want[i])
		i++;
	free(want);
	return i;
}

void cf_fill(void *addr, size_t bytes, off_t offset, unsigned int seed)
{
	char *mem = malloc(bytes);

	cf_pattern(mem, bytes, offset, seed);
	if (peerlane_gpu_copy(cf_gpu(), addr, mem, bytes))
		exit(1);
	free(mem);
}

size_t cf_differs(const void *addr, size_t bytes, off_t offset, unsigned int seed)
{
	char *mem = malloc(bytes);
	size_t at;

	if (peerlane_gpu_copy(cf_gpu(), mem, addr, bytes))
		exit(1);
	at = differs(mem, bytes, offset, seed);
	free(mem);
	return at;
}

size_t cf_file_differs(const char *name, size_t bytes, off_t offset, unsigned int seed)
{
	char *mem = malloc(bytes + 1);
	int fd = open(name, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : pread(fd, mem, bytes, offset);
	size_t at = n == (ssize_t)bytes ? differs(mem, bytes, offset, seed) : 0;

	close(fd);
	free(mem);
	return at;
}

/* ------------------------------------------------------------------ files */

static int remove_one(const char *name, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(name);
}

void cf_remove_dir(void)
{
	if (dir[0] && dir_owner == getpid())
		nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	dir[0] = '\0';
}

const char *cf_file(const char *name)
{
	static _Thread_local char names[8][PATH_MAX + 64];
	static _Thread_local unsigned int next;
	const char *base = getenv("CF_DIR");
	char *out = names[next++ % 8];

	if (!dir[0]) {
		snprintf(dir, sizeof(dir), "%s/cufile-test.XXXXXX", base ? base : "/tmp");
		if (!mkdtemp(dir)) {
			printf("no directory %s: %s\n", dir, strerror(errno));
			exit(1);
		}
		dir_owner = getpid();
		atexit(cf_remove_dir);
	}
	snprintf(out, sizeof(names[0]), "%s/%s", dir, name);
	return out;
}

int cf_make(const char *name, size_t bytes, unsigned int seed, int flags)
{
	const char *file = cf_file(name);
	int fd = open(file, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	char *mem = malloc(bytes + 1);

	cf_pattern(mem, bytes, 0, seed);
	if (fd < 0 || write(fd, mem, bytes) != (ssize_t)bytes || fsync(fd)) {
		printf("cannot make %s: %s\n", file, strerror(errno));
		exit(1);
	}
	free(mem);
	close(fd);
	fd = open(file, flags | O_CLOEXEC);
	/* Not all file systems do direct I/O: the test is about other things. */
	if (fd < 0 && (flags & O_DIRECT))
		fd = open(file, (flags & ~O_DIRECT) | O_CLOEXEC);
	return fd;
}

CUfileHandle_t cf_register(int fd)
{
	CUfileDescr_t descr = { .type = CU_FILE_HANDLE_TYPE_OPAQUE_FD, .handle.fd = fd };
	CUfileHandle_t fh = NULL;

	return cf.cuFileHandleRegister(&fh, &descr).err ? NULL : fh;
}
