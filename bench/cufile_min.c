// SPDX-License-Identifier: MIT
/* Finds a libcufile.so.0 and looks up the calls that cufile_min.h names. */
#define _GNU_SOURCE
#include "cufile_min.h"
#include "symbols.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static const struct pl_symbol symbols[] = {
	{ "cuFileDriverOpen", offsetof(struct pl_cufile_min, driver_open) },
	{ "cuFileDriverClose_v2", offsetof(struct pl_cufile_min, driver_close) },
	{ "cuFileGetVersion", offsetof(struct pl_cufile_min, get_version) },
	{ "cuFileHandleRegister", offsetof(struct pl_cufile_min, handle_register) },
	{ "cuFileHandleDeregister", offsetof(struct pl_cufile_min, handle_deregister) },
	{ "cuFileBufRegister", offsetof(struct pl_cufile_min, buf_register) },
	{ "cuFileBufDeregister", offsetof(struct pl_cufile_min, buf_deregister) },
	{ "cuFileRead", offsetof(struct pl_cufile_min, read) },
	{ "cuFileWrite", offsetof(struct pl_cufile_min, write) },
	{ "cuFileBatchIOSetUp", offsetof(struct pl_cufile_min, batch_setup) },
	{ "cuFileBatchIOSubmit", offsetof(struct pl_cufile_min, batch_submit) },
	{ "cuFileBatchIOGetStatus", offsetof(struct pl_cufile_min, batch_status) },
	{ "cuFileBatchIODestroy", offsetof(struct pl_cufile_min, batch_destroy) },
};

static const char *const error_names[] = {
	"SUCCESS",
	"DRIVER_NOT_INITIALIZED",
	"DRIVER_INVALID_PROPS",
	"DRIVER_UNSUPPORTED_LIMIT",
	"DRIVER_VERSION_MISMATCH",
	"DRIVER_VERSION_READ_ERROR",
	"DRIVER_CLOSING",
	"PLATFORM_NOT_SUPPORTED",
	"IO_NOT_SUPPORTED",
	"DEVICE_NOT_SUPPORTED",
	"NVFS_DRIVER_ERROR",
	"CUDA_DRIVER_ERROR",
	"CUDA_POINTER_INVALID",
	"CUDA_MEMORY_TYPE_INVALID",
	"CUDA_POINTER_RANGE_ERROR",
	"CUDA_CONTEXT_MISMATCH",
	"INVALID_MAPPING_SIZE",
	"INVALID_MAPPING_RANGE",
	"INVALID_FILE_TYPE",
	"INVALID_FILE_OPEN_FLAG",
	"DIO_NOT_SET",
	NULL,
	"INVALID_VALUE",
	"MEMORY_ALREADY_REGISTERED",
	"MEMORY_NOT_REGISTERED",
	"PERMISSION_DENIED",
	"DRIVER_ALREADY_OPEN",
	"HANDLE_NOT_REGISTERED",
	"HANDLE_ALREADY_REGISTERED",
	"DEVICE_NOT_FOUND",
	"INTERNAL_ERROR",
	"GETNEWFD_FAILED",
	NULL,
	"NVFS_SETUP_ERROR",
	"IO_DISABLED",
	"BATCH_SUBMIT_FAILED",
	"GPU_MEMORY_PINNING_FAILED",
	"BATCH_FULL",
	"ASYNC_NOT_SUPPORTED",
	"INTERNAL_BATCH_SETUP_ERROR",
	"INTERNAL_BATCH_SUBMIT_ERROR",
	"INTERNAL_BATCH_GETSTATUS_ERROR",
	"INTERNAL_BATCH_CANCEL_ERROR",
	"NOMEM_ERROR",
	"IO_ERROR",
	"INTERNAL_BUF_REGISTER_ERROR",
	"HASH_OPR_ERROR",
	"INVALID_CONTEXT_ERROR",
	"NVFS_INTERNAL_DRIVER_ERROR",
	"BATCH_NOCOMPAT_ERROR",
	"IO_MAX_ERROR",
};

const char *pl_cufile_min_name(int code)
{
	size_t i = (size_t)(code - 5000);

	if (code > 0 && code < 5000)
		return strerror(code);
	if (code < 0 || i >= sizeof(error_names) / sizeof(error_names[0]) || !error_names[i])
		return "unknown";
	return error_names[i];
}

static void *open_pattern(const char *pattern)
{
	void *lib = NULL;
	glob_t g;
	size_t i;

	if (glob(pattern, GLOB_NOSORT, NULL, &g))
		return NULL;
	for (i = 0; !lib && i < g.gl_pathc; i++)
		lib = dlopen(g.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
	globfree(&g);
	return lib;
}

/* The CUDA wheels put the library under the packages of the python3 that stands in PATH. */
static void *open_beside_python(void)
{
	char pattern[4096], *list, *rest, *dir;
	const char *path = getenv("PATH");
	void *lib = NULL;

	list = rest = path ? strdup(path) : NULL;
	while (!lib && rest && (dir = strsep(&rest, ":"))) {
		snprintf(pattern, sizeof(pattern), "%s/python3", dir);
		if (access(pattern, X_OK))
			continue;
		snprintf(pattern, sizeof(pattern),
			 "%s/../lib/python3*/*-packages/nvidia/*/lib/libcufile.so.0", dir);
		lib = open_pattern(pattern);
	}
	free(list);
	return lib;
}

static void *find_library(const char *path)
{
	static const char *const patterns[] = {
		"/usr/local/cuda*/lib64/libcufile.so.0",
		"/usr/local/cuda*/targets/*/lib/libcufile.so.0",
		"/usr/local/lib/python3*/*-packages/nvidia/*/lib/libcufile.so.0",
		"/usr/lib/python3*/*-packages/nvidia/*/lib/libcufile.so.0",
	};
	void *lib;
	size_t i;

	if (path)
		return dlopen(path, RTLD_NOW | RTLD_LOCAL);
	lib = dlopen("libcufile.so.0", RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		lib = open_beside_python();
	for (i = 0; !lib && i < sizeof(patterns) / sizeof(patterns[0]); i++)
		lib = open_pattern(patterns[i]);
	return lib;
}

int pl_cufile_min_open(struct pl_cufile_min *cf, const char *path, const char **why)
{
	void *lib = find_library(path);

	if (!lib) {
		*why = path ? dlerror() : "no libcufile.so.0 found";
		return -ENOENT;
	}
	*why = pl_symbols_load(lib, symbols, sizeof(symbols) / sizeof(symbols[0]), cf);
	return *why ? -ENOSYS : 0;
}

int pl_cufile_min_udev_record(const char *file, char *record)
{
	char text[64];
	const char *type;
	struct statfs fs;
	struct stat st;
	int fd, n, err = 0;

	if (stat(file, &st) || statfs(file, &fs))
		return -errno;
	type = fs.f_type == 0xef53 ? "ext4" : fs.f_type == 0x58465342 ? "xfs" : NULL;
	if (!type || !major(st.st_dev))
		return -ENOTSUP;
	(void)mkdir("/run/udev", 0755);
	(void)mkdir("/run/udev/data", 0755);
	snprintf(record, PL_CUFILE_MIN_RECORD_BYTES, "/run/udev/data/b%u:%u", major(st.st_dev),
		 minor(st.st_dev));
	fd = open(record, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	n = snprintf(text, sizeof(text), "E:ID_FS_TYPE=%s\nE:ID_FS_USAGE=filesystem\n", type);
	if (write(fd, text, (size_t)n) != n)
		err = -EIO;
	close(fd);
	return err;
}
