// SPDX-License-Identifier: MIT
/*
 * Measures cuFileReadAsync of a libcufile.so.0, whichever, in a process of its own: calls of one
 * size in order over a cached file, spread over some streams, waited for once at the end.
 */
#include "cuda_min.h"
#include "symbols.h"

#include "../cufile/cufile.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#undef cuFileDriverClose

#define EXIT_SKIP 77
#define MAX_STREAMS 64
#define MAX_REPEAT 99

static struct {
	const char *lib, *file, *who;
	size_t size, total;
	unsigned int streams, repeat;
} opt = { .lib = "libcufile.so.0", .who = "libcufile", .size = 1 << 20, .streams = 4, .repeat = 5 };

static struct calls {
	__typeof__(&cuFileDriverOpen) open;
	__typeof__(&cuFileDriverClose_v2) close;
	__typeof__(&cuFileHandleRegister) handle_register;
	__typeof__(&cuFileHandleDeregister) handle_deregister;
	__typeof__(&cuFileBufRegister) buf_register;
	__typeof__(&cuFileBufDeregister) buf_deregister;
	__typeof__(&cuFileStreamRegister) stream_register;
	__typeof__(&cuFileReadAsync) read_async;
} cf;

struct call {
	size_t size;
	off_t file, buf;
	ssize_t bytes;
};

static struct pl_cuda_min cuda;
static void *streams[MAX_STREAMS];

static int complain(const char *what, const char *why, int status)
{
	fprintf(stderr, "stream_cufile: %s: %s\n", what, why);
	return status;
}

static double now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static int load(void)
{
	static const struct pl_symbol symbols[] = {
		{ "cuFileDriverOpen", offsetof(struct calls, open) },
		{ "cuFileDriverClose_v2", offsetof(struct calls, close) },
		{ "cuFileHandleRegister", offsetof(struct calls, handle_register) },
		{ "cuFileHandleDeregister", offsetof(struct calls, handle_deregister) },
		{ "cuFileBufRegister", offsetof(struct calls, buf_register) },
		{ "cuFileBufDeregister", offsetof(struct calls, buf_deregister) },
		{ "cuFileStreamRegister", offsetof(struct calls, stream_register) },
		{ "cuFileReadAsync", offsetof(struct calls, read_async) },
	};
	void *lib = dlopen(opt.lib, RTLD_NOW | RTLD_LOCAL);
	const char *missing;

	if (!lib)
		return complain("skipped", dlerror(), EXIT_SKIP);
	missing = pl_symbols_load(lib, symbols, sizeof(symbols) / sizeof(symbols[0]), &cf);
	if (missing)
		return complain("skipped: not in the library", missing, EXIT_SKIP);
	return 0;
}

/* One pass over the file. Each stream has its own piece of memory. */
static int pass(CUfileHandle_t fh, char *mem, struct call *calls, size_t nr, double *seconds)
{
	double began = now_s();

	for (size_t i = 0; i < nr; i++) {
		struct call *c = &calls[i];
		unsigned int s = (unsigned int)(i % opt.streams);

		*c = (struct call){ .size = opt.size,
				    .file = (off_t)(i * opt.size),
				    .buf = (off_t)(s * opt.size) };
		if (cf.read_async(fh, mem, &c->size, &c->file, &c->buf, &c->bytes, streams[s]).err)
			return complain("cuFileReadAsync", "refused", EXIT_FAILURE);
	}
	for (unsigned int s = 0; s < opt.streams; s++)
		if (cuda.stream_synchronize(streams[s]))
			return complain("stream", "failed", EXIT_FAILURE);
	*seconds = now_s() - began;
	for (size_t i = 0; i < nr; i++)
		if (calls[i].bytes != (ssize_t)opt.size)
			return complain("a read", "not all bytes", EXIT_FAILURE);
	return 0;
}

static int by_value(const void *a, const void *b)
{
	double d = *(const double *)a - *(const double *)b;

	return d < 0 ? -1 : d > 0;
}

static int measure(CUfileHandle_t fh, char *mem)
{
	size_t nr = opt.total / opt.size;
	struct call *calls = calloc(nr, sizeof(*calls));
	double seconds[MAX_REPEAT];
	int err = calls ? pass(fh, mem, calls, nr, &seconds[0]) : EXIT_FAILURE;

	for (unsigned int r = 0; r < opt.repeat && !err; r++)
		err = pass(fh, mem, calls, nr, &seconds[r]);
	free(calls);
	if (err)
		return err;
	qsort(seconds, opt.repeat, sizeof(seconds[0]), by_value);
	printf("{\"who\": \"%s\", \"op\": \"read\", \"mode\": \"stream\", \"size\": %zu, "
	       "\"streams\": %u, \"bytes\": %zu, \"repeat\": %u, \"gbps\": %.3f}\n",
	       opt.who, opt.size, opt.streams, nr * opt.size, opt.repeat,
	       (double)(nr * opt.size) / seconds[opt.repeat / 2] / 1e9);
	return 0;
}

/* Reads the file once, so that it is in the page cache. */
static int warm(int fd)
{
	static char part[1 << 20];
	struct stat st;

	if (fstat(fd, &st))
		return complain(opt.file, strerror(errno), EXIT_FAILURE);
	if (!opt.total || opt.total > (size_t)st.st_size)
		opt.total = (size_t)st.st_size;
	if (opt.total < opt.size)
		return complain(opt.file, "shorter than one call", EXIT_FAILURE);
	for (off_t at = 0; at < st.st_size; at += (off_t)sizeof(part))
		if (pread(fd, part, sizeof(part), at) < 0)
			return complain(opt.file, strerror(errno), EXIT_FAILURE);
	return 0;
}

static int with_gpu(int fd)
{
	CUfileDescr_t descr = { .type = CU_FILE_HANDLE_TYPE_OPAQUE_FD, .handle.fd = fd };
	CUfileHandle_t fh;
	uint64_t mem;
	int err;

	if (cuda.mem_alloc(&mem, opt.streams * opt.size))
		return complain("GPU memory", "refused", EXIT_FAILURE);
	for (unsigned int s = 0; s < opt.streams; s++)
		if (cuda.stream_create(&streams[s], 1, 0))
			return complain("stream", "refused", EXIT_FAILURE);
	if (cf.open().err || cf.handle_register(&fh, &descr).err ||
	    cf.buf_register((void *)mem, opt.streams * opt.size, 0).err)
		return complain("registering", "refused", EXIT_FAILURE);
	for (unsigned int s = 0; s < opt.streams; s++)
		cf.stream_register(streams[s], 0);
	err = measure(fh, (char *)mem);
	cf.buf_deregister((void *)mem);
	cf.handle_deregister(fh);
	cf.close();
	return err;
}

static const char help[] =
	"usage: stream_cufile --file PATH [options]\n"
	"Measures stream-ordered reads of a libcufile.so.0; prints one JSON object.\n"
	"  --lib PATH     the library (libcufile.so.0 where the loader finds it)\n"
	"  --who NAME     the name in the result (libcufile)\n"
	"  --size BYTES   size of one call (1048576)\n"
	"  --streams N    streams the calls are spread over (4)\n"
	"  --bytes TOTAL  bytes of one pass (the file's size)\n"
	"  --repeat R     passes; gbps is their median (5)\n"
	"Exit: 0 measured, 1 a call failed, 2 usage, 77 no GPU or no library.\n";

static const struct option options[] = {
	{ "file", 1, NULL, 'f' },   { "lib", 1, NULL, 'l' },	 { "who", 1, NULL, 'w' },
	{ "size", 1, NULL, 's' },   { "streams", 1, NULL, 'n' }, { "bytes", 1, NULL, 'b' },
	{ "repeat", 1, NULL, 'r' }, { "help", 0, NULL, 'h' },	 { NULL, 0, NULL, 0 },
};

/* 0, or an exit status; -1 when only help was asked for. */
static int parse(int argc, char **argv)
{
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		unsigned long v = optarg ? strtoul(optarg, NULL, 10) : 0;

		switch (c) {
		case 'f':
			opt.file = optarg;
			break;
		case 'l':
			opt.lib = optarg;
			break;
		case 'w':
			opt.who = optarg;
			break;
		case 's':
			opt.size = v;
			break;
		case 'b':
			opt.total = v;
			break;
		case 'n':
			opt.streams = (unsigned int)v;
			break;
		case 'r':
			opt.repeat = (unsigned int)v;
			break;
		case 'h':
			return -1;
		default:
			return 2;
		}
	}
	if (!opt.file || !opt.size || !opt.streams || opt.streams > MAX_STREAMS || !opt.repeat ||
	    opt.repeat > MAX_REPEAT || optind < argc)
		return complain("usage", "--help tells more", 2);
	return 0;
}

int main(int argc, char **argv)
{
	int status = parse(argc, argv), fd;

	if (status) {
		fputs(status < 0 ? help : "", stdout);
		return status < 0 ? 0 : status;
	}
	if (pl_cuda_min_open(&cuda, 0))
		return complain("skipped: no GPU", cuda.why, EXIT_SKIP);
	status = load();
	if (status)
		return status;
	fd = open(opt.file, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return complain(opt.file, strerror(errno), EXIT_FAILURE);
	status = warm(fd);
	if (!status)
		status = with_gpu(fd);
	close(fd);
	return status;
}
