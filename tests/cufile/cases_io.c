// SPDX-License-Identifier: MIT
/* Cases: files, memory, reads and writes. */
#include "case.h"

#include <sys/mman.h>

static void say_register(CUfileFileHandleType type, int fd, const CUfileFSOps_t *ops)
{
	CUfileDescr_t descr = { .type = type, .handle.fd = fd, .fs_ops = ops };
	CUfileHandle_t fh = NULL;

	say_status(cf.cuFileHandleRegister(&fh, &descr));
}

CASE(null_handle, "HandleRegister: NULL", "5022 5022")
{
	CUfileDescr_t descr = { .type = CU_FILE_HANDLE_TYPE_OPAQUE_FD, .handle.fd = 0 };
	CUfileHandle_t fh;

	cf_gpu();
	say_status(cf.cuFileHandleRegister(&fh, NULL));
	say_status(cf.cuFileHandleRegister(NULL, &descr));
}

CASE(bad_fd, "HandleRegister: no descriptor", "5022 5022")
{
	cf_gpu();
	say_register(CU_FILE_HANDLE_TYPE_OPAQUE_FD, -1, NULL);
	say_register(CU_FILE_HANDLE_TYPE_OPAQUE_FD, 987, NULL);
}

CASE(not_a_file, "HandleRegister: folder, pipe", "5018 5018")
{
	int ends[2];

	cf_gpu();
	say_register(CU_FILE_HANDLE_TYPE_OPAQUE_FD, open("/", O_RDONLY | O_CLOEXEC), NULL);
	if (pipe2(ends, O_CLOEXEC))
		return;
	say_register(CU_FILE_HANDLE_TYPE_OPAQUE_FD, ends[0], NULL);
}

CASE(other_types, "HandleRegister: other types", "5008 5008 5008 5008")
{
	int fd = cf_make("f", 4096, 1, O_RDWR);

	cf_gpu();
	say_register(CU_FILE_HANDLE_TYPE_OPAQUE_WIN32, fd, NULL);
	say_register((CUfileFileHandleType)0, fd, NULL);
	say_register((CUfileFileHandleType)9, fd, NULL);
	say_register(CU_FILE_HANDLE_TYPE_USERSPACE_FS, fd, NULL);
}

static ssize_t fs_read(const void *handle, char *mem, size_t bytes, loff_t offset,
		       const cufileRDMAInfo_t *info)
{
	(void)handle;
	(void)info;
	cf_pattern(mem, bytes, offset, 5);
	return (ssize_t)bytes;
}

CASE_BUT(user_space, "USERSPACE_FS: read calls the table", "0 5000 same", "5022 -1 errno 22 other",
	 "the real library wants a descriptor and never calls the table")
{
	static const CUfileFSOps_t ops = { .read = fs_read };
	CUfileDescr_t descr = { .type = CU_FILE_HANDLE_TYPE_USERSPACE_FS,
				.handle.handle = &descr,
				.fs_ops = &ops };
	char *mem = cf_alloc(8192);
	CUfileHandle_t fh;

	cf_fill(mem, 8192, 0, 1);
	say_status(cf.cuFileHandleRegister(&fh, &descr));
	say_count(cf.cuFileRead(fh, mem, 5000, 100, 0));
	say(cf_differs(mem, 5000, 100, 5) == 5000 ? "same" : "other");
}

CASE(append, "HandleRegister: O_APPEND", "5019")
{
	cf_gpu();
	say_register(CU_FILE_HANDLE_TYPE_OPAQUE_FD, cf_make("f", 4096, 1, O_RDWR | O_APPEND), NULL);
}

CASE(twice, "HandleRegister: the same descriptor twice, and again later", "0 5028 0")
{
	CUfileDescr_t descr = { .type = CU_FILE_HANDLE_TYPE_OPAQUE_FD };
	CUfileHandle_t fh;

	cf_gpu();
	descr.handle.fd = cf_make("f", 4096, 1, O_RDWR | O_DIRECT);
	say_status(cf.cuFileHandleRegister(&fh, &descr));
	say_register(CU_FILE_HANDLE_TYPE_OPAQUE_FD, descr.handle.fd, NULL);
	cf.cuFileHandleDeregister(fh);
	say_register(CU_FILE_HANDLE_TYPE_OPAQUE_FD, descr.handle.fd, NULL);
}

CASE(modes, "HandleRegister: read-only, write-only, without O_DIRECT", "0 0 0")
{
	cf_gpu();
	say_register(CU_FILE_HANDLE_TYPE_OPAQUE_FD, cf_make("a", 4096, 1, O_RDONLY | O_DIRECT),
		     NULL);
	say_register(CU_FILE_HANDLE_TYPE_OPAQUE_FD, cf_make("b", 4096, 1, O_WRONLY | O_DIRECT),
		     NULL);
	say_register(CU_FILE_HANDLE_TYPE_OPAQUE_FD, cf_make("c", 4096, 1, O_RDWR), NULL);
}

CASE_BUT(tmpfs, "HandleRegister and Read: tmpfs", "0 4096 same", "5027",
	 "ours refuses no file that can be read")
{
	CUfileDescr_t descr = { .type = CU_FILE_HANDLE_TYPE_OPAQUE_FD };
	char *mem = cf_alloc(4096), host[4096];
	CUfileError_t status;
	CUfileHandle_t fh;

	cf_pattern(host, 4096, 0, 3);
	descr.handle.fd = memfd_create("cf", MFD_CLOEXEC);
	if (write(descr.handle.fd, host, 4096) != 4096)
		return;
	status = cf.cuFileHandleRegister(&fh, &descr);
	say_status(status);
	if (status.err)
		return;
	say_count(cf.cuFileRead(fh, mem, 4096, 0, 0));
	say(cf_differs(mem, 4096, 0, 3) == 4096 ? "same" : "other");
}

CASE(garbage_deregister, "HandleDeregister: no handle", "survived 1")
{
	cf_gpu();
	cf.cuFileDriverOpen();
	cf.cuFileHandleDeregister(NULL);
	cf.cuFileHandleDeregister((void *)0x1234);
	say("survived %ld", cf.cuFileUseCount());
}

CASE(buffers, "BufRegister: bad, twice, nested", "5022 5022 0 5023 0 0 0")
{
	char *mem = cf_alloc(MIB);

	say_status(cf.cuFileBufRegister(NULL, 4096, 0));
	say_status(cf.cuFileBufRegister(mem, 0, 0));
	say_status(cf.cuFileBufRegister(mem, MIB, 0));
	say_status(cf.cuFileBufRegister(mem, MIB, 0));
	say_status(cf.cuFileBufRegister(mem + 65536, 65536, 0));
	say_status(cf.cuFileBufDeregister(mem + 65536));
	say_status(cf.cuFileBufDeregister(mem));
}

CASE(buffer_too_long, "BufRegister: beyond the allocation", "5014")
{
	char *mem = cf_alloc(2 * MIB);

	say_status(cf.cuFileBufRegister(mem, 64 * MIB, 0));
}

CASE(buffer_overflow, "BufRegister: a length that overflows", "5014 5014")
{
	char *mem = cf_alloc(2 * MIB);

	say_status(cf.cuFileBufRegister(mem, SIZE_MAX, 0));
	say_status(cf.cuFileBufRegister(mem, SIZE_MAX - 4095, 0));
}

CASE(buffer_host, "BufRegister: host memory, flags", "0 0 0 0")
{
	char *mem = aligned_alloc(4096, 65536);

	cf_gpu();
	say_status(cf.cuFileBufRegister(mem, 65536, 0));
	say_status(cf.cuFileBufDeregister(mem));
	say_status(cf.cuFileBufRegister(mem, 65536, 0x77));
	say_status(cf.cuFileBufDeregister(mem));
}

CASE(buffer_unknown, "BufDeregister: NULL, unknown", "5022 5024")
{
	char *mem = cf_alloc(4096);

	cf.cuFileDriverOpen();
	say_status(cf.cuFileBufDeregister(NULL));
	say_status(cf.cuFileBufDeregister(mem));
}

/* A handle of a file of 64 KiB, and memory. */
static CUfileHandle_t start(char **mem, int flags)
{
	CUfileHandle_t fh;

	*mem = cf_alloc(2 * MIB);
	fh = cf_register(cf_make("f", 65536, 1, flags));
	if (!fh)
		say("not registered");
	errno = 0;
	return fh;
}

CASE(past_registered, "Read, Write: past the registered range",
     "0 -1 errno 5017 -1 errno 5017 4096")
{
	char *mem;
	CUfileHandle_t fh = start(&mem, O_RDWR | O_DIRECT);

	say_status(cf.cuFileBufRegister(mem, 65536, 0));
	say_count(cf.cuFileRead(fh, mem, 65536, 0, 4096));
	errno = 0;
	say_count(cf.cuFileWrite(fh, mem, 4096, 0, 65536));
	say_count(cf.cuFileRead(fh, mem, 4096, 0, 61440));
}

CASE(past_allocation, "Read: unregistered, past the allocation", "-1 errno 1")
{
	char *mem;
	CUfileHandle_t fh = start(&mem, O_RDWR | O_DIRECT);

	say_count(cf.cuFileRead(fh, mem, 64 * MIB, 0, 0));
}

CASE(bad_arguments, "Read: NULL memory, NULL handle, no handle",
     "-1 errno 22 -1 errno 22 -1 errno 22")
{
	char *mem;
	CUfileHandle_t fh = start(&mem, O_RDWR | O_DIRECT);

	say_count(cf.cuFileRead(fh, NULL, 4096, 0, 0));
	errno = 0;
	say_count(cf.cuFileRead(NULL, mem, 4096, 0, 0));
	errno = 0;
	say_count(cf.cuFileRead(mem, mem, 4096, 0, 0));
}

CASE(bad_offsets, "Read, Write: negative offsets",
     "-1 errno 5022 -1 errno 5 -1 errno 5022 -1 errno 5")
{
	char *mem;
	CUfileHandle_t fh = start(&mem, O_RDWR | O_DIRECT);

	say_count(cf.cuFileRead(fh, mem, 4096, -1, 0));
	errno = 0;
	say_count(cf.cuFileRead(fh, mem, 4096, 0, -1));
	errno = 0;
	say_count(cf.cuFileWrite(fh, mem, 4096, -1, 0));
	errno = 0;
	say_count(cf.cuFileWrite(fh, mem, 4096, 0, -1));
}

CASE(write_read_only, "Write: read-only descriptor", "-1 errno 5")
{
	char *mem;
	CUfileHandle_t fh = start(&mem, O_RDONLY | O_DIRECT);

	say_count(cf.cuFileWrite(fh, mem, 4096, 0, 0));
}

CASE(read_write_only, "Read: write-only descriptor", "-1 errno 5019")
{
	char *mem;
	CUfileHandle_t fh = start(&mem, O_WRONLY | O_DIRECT);

	say_count(cf.cuFileRead(fh, mem, 4096, 0, 0));
}

CASE_BUT(stale, "Read: deregistered handle; the count", "-1 errno 5027 1", "-1 errno 5027 0",
	 "the real library drops a driver reference")
{
	char *mem;
	CUfileHandle_t fh = start(&mem, O_RDWR | O_DIRECT);

	cf.cuFileHandleDeregister(fh);
	errno = 0;
	say_count(cf.cuFileRead(fh, mem, 4096, 0, 0));
	say("%ld", cf.cuFileUseCount());
}

CASE(ends, "Read: nothing, at the end, after it, across it", "0 0 0 536 same")
{
	char *mem;
	CUfileHandle_t fh = start(&mem, O_RDWR | O_DIRECT);

	say_count(cf.cuFileRead(fh, mem, 0, 0, 0));
	say_count(cf.cuFileRead(fh, mem, 4096, 65536, 0));
	say_count(cf.cuFileRead(fh, mem, 4096, 1000000, 0));
	say_count(cf.cuFileRead(fh, mem, 4096, 65000, 0));
	say(cf_differs(mem, 536, 65000, 1) == 536 ? "same" : "other");
}

CASE(odd, "Write, Read: odd lengths and offsets", "12345 12345 same")
{
	char *mem;
	CUfileHandle_t fh = start(&mem, O_RDWR | O_DIRECT);

	cf_fill(mem + 77, 12345, 4099, 8);
	say_count(cf.cuFileWrite(fh, mem, 12345, 4099, 77));
	say_count(cf.cuFileRead(fh, mem, 12345, 4099, 33));
	say(cf_differs(mem + 33, 12345, 4099, 8) == 12345 ? "same" : "other");
}

CASE(host_io, "Read: host memory", "5000 same")
{
	char *mem, host[5000], want[5000];
	CUfileHandle_t fh = start(&mem, O_RDWR);

	cf_pattern(want, 5000, 7, 1);
	say_count(cf.cuFileRead(fh, host, 5000, 7, 0));
	say(memcmp(host, want, 5000) ? "other" : "same");
}

CASE(after_close, "Read: after the driver was closed", "-1 errno 5027")
{
	char *mem;
	CUfileHandle_t fh = start(&mem, O_RDWR);

	cf.cuFileDriverClose();
	errno = 0;
	say_count(cf.cuFileRead(fh, mem, 4096, 0, 0));
}
