// SPDX-License-Identifier: MIT
/*
 * strrev with the cuFile interface: the file is opened with O_DIRECT, read into GPU memory, turned
 * round there by a kernel and written back, whatever its length. A program that uses CUDA would
 * get memory and launch the kernel with that; here peerlane/gpu.h does, so it runs on a simulated
 * GPU too.
 */
#include <cufile.h>
#include <peerlane/gpu.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "reverse_ptx.h"

#define NR_BLOCKS 128u
#define NR_THREADS 256u

/* What reverse.cu does, for the simulated GPU. */
static void reverse_on_host(unsigned int block, unsigned int nr_blocks, void **args)
{
	void *addr = *(void **)args[0];
	unsigned long long n = *(unsigned long long *)args[1];
	char *s = peerlane_sim_host(addr);

	for (unsigned long long i = block; s && i < n / 2; i += nr_blocks) {
		char c = s[i];

		s[i] = s[n - 1 - i];
		s[n - 1 - i] = c;
	}
}

static const struct peerlane_kernel reverse = {
	.name = "reverse",
	.ptx = reverse_ptx,
	.host = reverse_on_host,
};

static int complain(const char *what, const char *why)
{
	fprintf(stderr, "strrev_gds: %s: %s\n", what, why);
	return -1;
}

/* What errno says after a failed cuFileRead or cuFileWrite. */
static const char *why_io(ssize_t got)
{
	if (got >= 0)
		return "not all of it";
	return IS_CUFILE_ERR(errno) ? CUFILE_ERRSTR(errno) : strerror(errno);
}

static int reverse_in_gpu(struct peerlane *gpu, void *addr, size_t bytes)
{
	unsigned long long n = bytes;
	void *args[] = { &addr, &n };
	const size_t arg_bytes[] = { sizeof(addr), sizeof(n) };
	void *stream;
	int err = peerlane_gpu_stream_create(gpu, 0, &stream);

	if (err)
		return complain("stream", peerlane_strerror(err));
	err = peerlane_gpu_launch(gpu, stream, &reverse, NR_BLOCKS, NR_THREADS, args, arg_bytes, 2);
	if (!err)
		err = peerlane_gpu_stream_sync(gpu, stream);
	peerlane_gpu_stream_destroy(gpu, stream);
	return err ? complain("kernel", peerlane_strerror(err)) : 0;
}

static int show(struct peerlane *gpu, const void *addr, size_t bytes)
{
	char *text = malloc(bytes);
	int err = !text || peerlane_gpu_copy(gpu, text, addr, bytes) ? -1 : 0;

	if (!err && (fwrite(text, 1, bytes, stdout) != bytes || putchar('\n') == EOF))
		err = -1;
	free(text);
	return err ? complain("standard output", "failed") : 0;
}

static int reverse_file(struct peerlane *gpu, CUfileHandle_t fh, const char *path, void *addr,
			size_t bytes)
{
	CUfileError_t status = cuFileBufRegister(addr, bytes, 0);
	ssize_t n;
	int err;

	if (status.err)
		return complain("memory", CUFILE_ERRSTR(status.err));
	n = cuFileRead(fh, addr, bytes, 0, 0);
	err = n == (ssize_t)bytes ? 0 : complain(path, why_io(n));
	if (!err)
		err = reverse_in_gpu(gpu, addr, bytes);
	if (!err) {
		n = cuFileWrite(fh, addr, bytes, 0, 0);
		err = n == (ssize_t)bytes ? 0 : complain(path, why_io(n));
	}
	if (!err)
		err = show(gpu, addr, bytes);
	cuFileBufDeregister(addr);
	if (!err)
		printf("See also %s\n", path);
	return err;
}

static int with_memory(struct peerlane *gpu, CUfileHandle_t fh, const char *path, size_t bytes)
{
	void *addr;
	int err = peerlane_gpu_alloc(gpu, 0, bytes, &addr);

	if (err)
		return complain("GPU memory", peerlane_strerror(err));
	err = reverse_file(gpu, fh, path, addr, bytes);
	peerlane_gpu_free(gpu, addr);
	return err;
}

static int with_file(struct peerlane *gpu, const char *path)
{
	CUfileDescr_t descr = { .type = CU_FILE_HANDLE_TYPE_OPAQUE_FD };
	CUfileError_t status;
	CUfileHandle_t fh;
	struct stat st;
	int fd = open(path, O_RDWR | O_DIRECT | O_CLOEXEC), err = 0;

	/* Not every file system does direct I/O; cuFile takes what it gets. */
	if (fd < 0 && errno == EINVAL)
		fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st))
		return complain(path, strerror(errno));
	descr.handle.fd = fd;
	status = cuFileHandleRegister(&fh, &descr);
	if (status.err) {
		close(fd);
		return complain(path, CUFILE_ERRSTR(status.err));
	}
	printf("sys_len : %lld\n", (long long)st.st_size);
	if (st.st_size)
		err = with_memory(gpu, fh, path, (size_t)st.st_size);
	cuFileHandleDeregister(fh);
	close(fd);
	return err;
}

int main(int argc, char **argv)
{
	const char *path = argc > 1 ? argv[1] : "test.txt";
	CUfileError_t status;
	struct peerlane *gpu;
	int err;

	if (argc > 2)
		return complain("usage", "strrev_gds [FILE]") ? EXIT_FAILURE : 0;
	err = peerlane_open(&gpu, NULL);
	if (err)
		return complain("GPU", peerlane_strerror(err)) ? EXIT_FAILURE : 0;
	status = cuFileDriverOpen();
	if (status.err) {
		err = complain("cuFileDriverOpen", CUFILE_ERRSTR(status.err));
	} else {
		err = with_file(gpu, path);
		cuFileDriverClose();
	}
	peerlane_close(gpu);
	return err || fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
}
