// SPDX-License-Identifier: MIT
/*
 * Measures a libcufile.so.0 (NVIDIA's, or any other of its ABI) in a process of its own, or
 * libpeerlane.so.0 by the same loop. One run is one shape; the result is one JSON object on stdout.
 */
#include "cuda_min.h"
#include "cufile_min.h"
#include "native_min.h"
#include "shape.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct pl_cufile_min cf;

static struct pl_shape shape = { .nr_threads = 1, .batch = 1, .repeat = 3, .seconds = 10 };

static struct {
	const char *lib, *native, *who;
	size_t size_bytes, create_bytes;
	bool direct, unregistered, verify, udev_record;
} opt = { .size_bytes = 1 << 20 };

/* The file and the memory of the calls. A slot is one call's place in both. */
static struct {
	struct pl_cuda_min cuda;
	int fd;
	void *handle;
	uint64_t base, salt;
	unsigned char *touched; /* a byte per slot: moved at least once */
} io;

/* What a worker needs for batches. */
struct own {
	void *batch;
	struct pl_cufile_io *io;
	struct pl_cufile_event *events;
};

/* What stands before the name of a call where one is told. */
static const char *prefix(void)
{
	return opt.native ? "native " : "cuFile";
}

/* 0, or -EIO after saying which call failed and how */
static int check(const char *call, struct pl_cufile_error e)
{
	if (!e.err)
		return 0;
	pl_shape_complain("%s%s: %d (%s)", prefix(), call, e.err, pl_cufile_min_name(e.err));
	if (e.err == 5011)
		pl_shape_complain("  behind it CUDA's %d (%s)", e.cu_err,
				  pl_cuda_min_name(&io.cuda, e.cu_err));
	return -EIO;
}

static int check_cuda(const char *call, int result)
{
	if (!result)
		return 0;
	pl_shape_complain("%s: CUDA %d (%s)", call, result, pl_cuda_min_name(&io.cuda, result));
	return -EIO;
}

/* The content of a file of ours: word i is a mixed i, so a piece in a wrong place is seen. */
static void fill(void *buffer, size_t bytes, off_t at, uint64_t salt)
{
	uint64_t *word = buffer;
	size_t i;

	for (i = 0; i < bytes / sizeof(*word); i++)
		word[i] = pl_shape_mix(((uint64_t)at / sizeof(*word) + i) ^ salt);
}

static int move(bool write, int fd, void *buffer, size_t bytes, off_t at)
{
	int err = pl_shape_move(write, fd, buffer, bytes, at);

	if (err == -ENODATA)
		pl_shape_complain("%s ends early, within %zu bytes at %lld", shape.file, bytes,
				  (long long)at);
	else if (err)
		pl_shape_complain("%s: %s", shape.file, strerror(-err));
	return err;
}

static int create_file(void)
{
	size_t at, bytes = opt.create_bytes & ~(size_t)7;
	void *buffer = malloc(PL_SHAPE_CHUNK_BYTES);
	int fd, err = buffer ? 0 : -ENOMEM;

	fd = open(shape.file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0)
		err = pl_shape_complain_errno(shape.file);
	for (at = 0; !err && at < bytes; at += PL_SHAPE_CHUNK_BYTES) {
		size_t n = bytes - at < PL_SHAPE_CHUNK_BYTES ? bytes - at : PL_SHAPE_CHUNK_BYTES;

		fill(buffer, n, (off_t)at, 0);
		err = move(true, fd, buffer, n, (off_t)at);
	}
	if (!err && fsync(fd))
		err = pl_shape_complain_errno(shape.file);
	if (fd >= 0)
		close(fd);
	free(buffer);
	return err;
}

static int write_udev_record(void)
{
	char record[PL_CUFILE_MIN_RECORD_BYTES] = "";
	int err = pl_cufile_min_udev_record(shape.file, record);

	if (!err)
		pl_shape_complain("%s written", record);
	else if (err == -EEXIST)
		pl_shape_complain("%s is there already, left as it is", record);
	else if (err == -ENOTSUP)
		pl_shape_complain("%s is not on ext4 or xfs on a disk: no udev record written",
				  shape.file);
	else
		pl_shape_complain("%s: %s", *record ? record : shape.file, strerror(-err));
	return err == -EEXIST ? 0 : err;
}

/* A registered buffer is named by its base, any other by the address itself. */
static void aim(size_t slot, void **base, off_t *buffer_offset)
{
	uint64_t at = (uint64_t)slot * opt.size_bytes;

	*base = (void *)(uintptr_t)(opt.unregistered ? io.base + at : io.base);
	*buffer_offset = opt.unregistered ? 0 : (off_t)at;
}

static int do_call(size_t slot)
{
	off_t at = (off_t)(slot * opt.size_bytes), buffer_offset;
	void *base;
	ssize_t n;

	aim(slot, &base, &buffer_offset);
	n = shape.write ? cf.write(io.handle, base, opt.size_bytes, at, buffer_offset)
			: cf.read(io.handle, base, opt.size_bytes, at, buffer_offset);
	if (n == (ssize_t)opt.size_bytes) {
		io.touched[slot] = 1;
		return 0;
	}
	if (n >= 0) {
		pl_shape_complain("%s%s at %lld: moved %zd of %zu bytes", prefix(),
				  shape.write ? "Write" : "Read", (long long)at, n, opt.size_bytes);
		return -EIO;
	}
	/* a code of the library comes negated, or as -1 with the code in errno */
	n = n == -1 ? errno : -n;
	pl_shape_complain("%s%s at %lld: %zd (%s)", prefix(), shape.write ? "Write" : "Read",
			  (long long)at, n, pl_cufile_min_name((int)n));
	return -EIO;
}

static int do_batch(struct pl_shape_worker *w, size_t first_op)
{
	struct own *own = w->own;
	unsigned int i, nr, left = shape.batch;
	size_t slot;

	for (i = 0; i < shape.batch; i++) {
		slot = pl_shape_pick(w, first_op + i);
		own->io[i] = (struct pl_cufile_io){ .mode = PL_CUFILE_MODE_BATCH,
						    .handle = io.handle,
						    .opcode = shape.write ? PL_CUFILE_WRITE
									  : PL_CUFILE_READ,
						    .cookie = (void *)slot };
		aim(slot, &own->io[i].batch.base, &own->io[i].batch.buffer_offset);
		own->io[i].batch.file_offset = (off_t)(slot * opt.size_bytes);
		own->io[i].batch.size = opt.size_bytes;
	}
	if (check("BatchIOSubmit", cf.batch_submit(own->batch, shape.batch, own->io, 0)))
		return -EIO;
	while (left) {
		nr = left;
		if (check("BatchIOGetStatus",
			  cf.batch_status(own->batch, left, &nr, own->events, NULL)))
			return -EIO;
		for (i = 0; i < nr; i++) {
			const struct pl_cufile_event *ev = &own->events[i];

			if (ev->status != PL_CUFILE_COMPLETE || ev->ret != opt.size_bytes) {
				pl_shape_complain(
					"a batch entry ended with status 0x%x, result %zd",
					ev->status, (ssize_t)ev->ret);
				return -EIO;
			}
			io.touched[(size_t)ev->cookie] = 1;
		}
		left -= nr < left ? nr : left;
	}
	return 0;
}

static int do_group(struct pl_shape_worker *w, size_t first_op)
{
	return shape.batch > 1 ? do_batch(w, first_op) : do_call(pl_shape_pick(w, first_op));
}

static int worker_setup(struct pl_shape_worker *w)
{
	struct own *own;

	if (check_cuda("cuCtxSetCurrent", pl_cuda_min_enter(&io.cuda)))
		return -EIO;
	if (shape.batch == 1)
		return 0;
	w->own = own = calloc(1, sizeof(*own));
	if (own) {
		own->io = calloc(shape.batch, sizeof(*own->io));
		own->events = calloc(shape.batch, sizeof(*own->events));
	}
	if (!own || !own->io || !own->events) {
		pl_shape_complain("out of memory");
		return -ENOMEM;
	}
	return check("BatchIOSetUp", cf.batch_setup(&own->batch, shape.batch));
}

static void worker_teardown(struct pl_shape_worker *w)
{
	struct own *own = w->own;

	if (!own)
		return;
	if (own->batch)
		cf.batch_destroy(own->batch);
	free(own->io);
	free(own->events);
	free(own);
}

/* Fills the GPU's buffer: with what is to be written, or with what no read may leave there. */
static int prepare_buffer(void *host, size_t bytes)
{
	size_t at;

	io.salt = shape.write ? pl_shape_mix(pl_shape_now_ns()) : 0;
	if (check_cuda("cuMemAlloc", io.cuda.mem_alloc(&io.base, bytes)) ||
	    check_cuda("cuMemsetD8", io.cuda.memset_d8(io.base, 0x5a, bytes)))
		return -EIO;
	for (at = 0; shape.write && at < bytes; at += PL_SHAPE_CHUNK_BYTES) {
		size_t n = bytes - at < PL_SHAPE_CHUNK_BYTES ? bytes - at : PL_SHAPE_CHUNK_BYTES;

		fill(host, n, (off_t)at, io.salt);
		if (check_cuda("cuMemcpyHtoD", io.cuda.memcpy_htod(io.base + at, host, n)))
			return -EIO;
	}
	return check_cuda("cuCtxSynchronize", io.cuda.ctx_synchronize());
}

/* Read: the buffer against the file. Write: the file against what the buffer was filled with. */
static int verify_piece(int fd, void *host, void *other, off_t at, size_t bytes)
{
	if (move(false, fd, other, bytes, at))
		return -EIO;
	if (shape.write)
		fill(host, bytes, at, io.salt);
	else if (check_cuda("cuMemcpyDtoH",
			    io.cuda.memcpy_dtoh(host, io.base + (uint64_t)at, bytes)))
		return -EIO;
	if (memcmp(host, other, bytes)) {
		pl_shape_complain("wrong data in the %zu bytes at %lld", bytes, (long long)at);
		return -EILSEQ;
	}
	return 0;
}

static int verify(void *host, size_t nr_slots)
{
	int fd = open(shape.file, O_RDONLY | O_CLOEXEC), err = 0;
	void *other = malloc(PL_SHAPE_CHUNK_BYTES);
	size_t slot, at;

	if (fd < 0)
		err = pl_shape_complain_errno(shape.file);
	else if (!other)
		err = -ENOMEM;
	for (slot = 0; !err && slot < nr_slots; slot++) {
		for (at = 0; !err && io.touched[slot] && at < opt.size_bytes;
		     at += PL_SHAPE_CHUNK_BYTES) {
			size_t left = opt.size_bytes - at;

			err = verify_piece(fd, host, other, (off_t)(slot * opt.size_bytes + at),
					   left < PL_SHAPE_CHUNK_BYTES ? left
								       : PL_SHAPE_CHUNK_BYTES);
		}
	}
	if (fd >= 0)
		close(fd);
	free(other);
	return err;
}

static void report(struct pl_shape_run *run, int version)
{
	static const char *const bools[] = { "false", "true" };
	struct pl_shape_figures f;

	pl_shape_summarise(&shape, &f, run->repeats, run->lat_ns, atomic_load(&run->nr_lat));
	printf("{\"who\":\"%s\",\"version\":%d,\"op\":\"%s\",\"size\":%zu,\"threads\":%u,"
	       "\"batch\":%u,\"random\":%s,\"cold\":%s,\"direct\":%s,\"registered\":%s,",
	       opt.who, version, shape.write ? "write" : "read", opt.size_bytes, shape.nr_threads,
	       shape.batch, bools[shape.random], bools[shape.cold], bools[opt.direct],
	       bools[!opt.unregistered]);
	pl_shape_print(&shape, &f);
	printf(",\"verified\":%s}\n", bools[opt.verify]);
}

/* The calls of one shape on an open handle; a first call outside the clock lets it warm up. */
static int run_shape(struct pl_shape_run *run, int version)
{
	size_t bytes = run->nr_slots * opt.size_bytes;
	void *host = malloc(PL_SHAPE_CHUNK_BYTES);
	int err = host ? prepare_buffer(host, bytes) : -ENOMEM;
	void *base = (void *)(uintptr_t)io.base;
	unsigned int i;

	if (!err && !opt.unregistered)
		err = check("BufRegister", cf.buf_register(base, bytes, 0));
	if (err)
		goto out;
	err = shape.cold ? 0 : pl_shape_prepare_cache(&shape, bytes);
	if (!err)
		err = do_call(0);
	for (i = 0; !err && i < shape.repeat; i++) {
		if (shape.cold)
			err = pl_shape_prepare_cache(&shape, bytes);
		if (!err)
			err = pl_shape_run_repeat(run);
	}
	if (!err && opt.verify)
		err = verify(host, run->nr_slots);
	if (!err)
		report(run, version);
	if (!opt.unregistered)
		cf.buf_deregister(base);
out:
	free(host);
	return err;
}

static int open_handle(void)
{
	struct pl_cufile_descr descr = { .type = PL_CUFILE_TYPE_FD };
	int flags = (shape.write ? O_RDWR : O_RDONLY) | O_CLOEXEC | (opt.direct ? O_DIRECT : 0);
	struct pl_cufile_error e;

	io.fd = open(shape.file, flags);
	if (io.fd < 0)
		return pl_shape_complain_errno(shape.file);
	descr.handle.fd = io.fd;
	e = cf.handle_register(&io.handle, &descr);
	if (e.err == 5027)
		pl_shape_complain(
			"5027 here mostly means that the udev database does not know the disk:\n"
			"  /run/udev/data/bMAJOR:MINOR of the disk must hold the lines\n"
			"  E:ID_FS_TYPE=ext4 (or xfs) and E:ID_FS_USAGE=filesystem;\n"
			"  as root, --udev-record writes them where the record is missing");
	return check("HandleRegister", e);
}

/* Slots and groups of the shape, and the arrays sized by them. */
static int plan(struct pl_shape_run *run)
{
	struct stat st;
	int err;

	if (stat(shape.file, &st))
		return pl_shape_complain_errno(shape.file);
	err = pl_shape_plan(run, st.st_size, opt.size_bytes);
	if (err)
		return err;
	io.touched = calloc(run->nr_slots, 1);
	if (!io.touched || pl_shape_run_init(run)) {
		pl_shape_complain("out of memory");
		return -ENOMEM;
	}
	return 0;
}

static const char help[] =
	"usage: peer_cufile --file PATH [--op read|write] [options]\n"
	"Measures libcufile.so.0 between a file and GPU memory; prints one JSON object.\n"
	"Sizes take K, M and G. A write overwrites the file.\n"
	"  --file PATH       the file\n"
	"  --create BYTES    write the file first (alone: do only that)\n"
	"  --op read|write   direction (read)\n"
	"  --size BYTES      size of one call, a multiple of 8 (1M)\n"
	"  --threads N       threads that call (1)\n"
	"  --batch N         N calls at once through cuFileBatchIO*; latencies are a batch's (1)\n"
	"  --random          calls at random places instead of in order\n"
	"  --cold            O_DIRECT, the page cache dropped before each repeat\n"
	"  --cached          the file read into the page cache first (this is the default)\n"
	"  --direct          O_DIRECT also when cached\n"
	"  --bytes TOTAL     bytes of one repeat (the file's size)\n"
	"  --seconds MAX     longest time of one repeat (10)\n"
	"  --repeat R        repeats; gbps is their median (3)\n"
	"  --unregistered    no cuFileBufRegister\n"
	"  --verify          compare the data after the timing\n"
	"  --udev-record     as root: write the disk's udev record if it is missing\n"
	"  --lib PATH        the library to measure (libcufile.so.0 where it is usually found)\n"
	"  --native PATH     measure this libpeerlane.so.0 instead, by the same loop\n"
	"  --who NAME        the name in the result (libcufile; with --native peerlane)\n"
	"  --config PATH     its cufile.json; without one the library takes built-in settings\n"
	"Exit: 0 measured, 1 a call failed or wrong data, 2 usage, 77 no GPU or no library.\n"
	"The library writes its log to the working directory; CUFILE_LOGFILE_PATH moves it.\n";

enum {
	OPTION_CREATE = PL_SHAPE_OWN,
	OPTION_SIZE,
	OPTION_DIRECT,
	OPTION_UNREGISTERED,
	OPTION_VERIFY,
	OPTION_UDEV_RECORD,
	OPTION_LIB,
	OPTION_NATIVE,
	OPTION_WHO,
	OPTION_CONFIG,
};

static const struct option options[] = {
	PL_SHAPE_OPTIONS,
	{ "create", 1, NULL, OPTION_CREATE },
	{ "size", 1, NULL, OPTION_SIZE },
	{ "direct", 0, NULL, OPTION_DIRECT },
	{ "unregistered", 0, NULL, OPTION_UNREGISTERED },
	{ "verify", 0, NULL, OPTION_VERIFY },
	{ "udev-record", 0, NULL, OPTION_UDEV_RECORD },
	{ "lib", 1, NULL, OPTION_LIB },
	{ "native", 1, NULL, OPTION_NATIVE },
	{ "who", 1, NULL, OPTION_WHO },
	{ "config", 1, NULL, OPTION_CONFIG },
	{ NULL, 0, NULL, 0 },
};

static int parse_value(int c, const char *text)
{
	switch (c) {
	case OPTION_LIB:
		opt.lib = text;
		return 0;
	case OPTION_NATIVE:
		opt.native = text;
		return 0;
	case OPTION_WHO:
		opt.who = text;
		return strpbrk(text, "\"\\") ? -EINVAL : 0;
	case OPTION_CONFIG:
		return setenv("CUFILE_ENV_PATH_JSON", text, 1) ? -ENOMEM : 0;
	case OPTION_CREATE:
		return pl_shape_parse_size(text, &opt.create_bytes);
	case OPTION_SIZE:
		return pl_shape_parse_size(text, &opt.size_bytes) || opt.size_bytes % 8 ? -EINVAL
											: 0;
	}
	return -EINVAL;
}

static void parse_flag(int c)
{
	opt.direct |= c == OPTION_DIRECT || c == PL_SHAPE_COLD;
	opt.unregistered |= c == OPTION_UNREGISTERED;
	opt.verify |= c == OPTION_VERIFY;
	opt.udev_record |= c == OPTION_UDEV_RECORD;
}

/* Return: 0, 1 when only help was asked for, -EINVAL */
static int parse(int argc, char **argv)
{
	int err = pl_shape_parse(&shape, argc, argv, options, parse_value, parse_flag);

	if (err)
		return err;
	if (!opt.who)
		opt.who = opt.native ? "peerlane" : "libcufile";
	if (optind < argc)
		pl_shape_complain("%s: not understood", argv[optind]);
	else if (shape.cached && shape.cold)
		pl_shape_complain("--cold and --cached exclude each other");
	else if (opt.native && opt.lib)
		pl_shape_complain(
			"--native and --lib exclude each other: one run measures one library");
	else if (!shape.file)
		pl_shape_complain("--file is needed; --help tells more");
	else
		return 0;
	return -EINVAL;
}

static int open_library(void)
{
	const char *why;
	int err = opt.native ? pl_native_min_open(&cf, opt.native, &why)
			     : pl_cufile_min_open(&cf, opt.lib, &why);

	if (err)
		pl_shape_complain("skipped: no usable %s: %s",
				  opt.native ? "libpeerlane" : "libcufile", why);
	return err;
}

int main(int argc, char **argv)
{
	struct pl_shape_run run = { .shape = &shape,
				    .setup = worker_setup,
				    .group = do_group,
				    .teardown = worker_teardown };
	int version = 0, err = parse(argc, argv);

	if (err) {
		fputs(err > 0 ? help : "", stdout);
		return err > 0 ? EXIT_SUCCESS : PL_SHAPE_EXIT_USAGE;
	}
	if ((opt.create_bytes && create_file()) || (opt.udev_record && write_udev_record()))
		return EXIT_FAILURE;
	if ((opt.create_bytes || opt.udev_record) && !shape.op_given)
		return EXIT_SUCCESS;
	if (pl_cuda_min_open(&io.cuda, 0)) {
		pl_shape_complain("skipped: no GPU: %s (%s)", io.cuda.why,
				  pl_cuda_min_name(&io.cuda, io.cuda.result));
		return PL_SHAPE_EXIT_SKIP;
	}
	if (open_library())
		return PL_SHAPE_EXIT_SKIP;
	run.nr_threads = shape.nr_threads;
	err = plan(&run);
	if (err)
		goto out;
	err = check("DriverOpen", cf.driver_open());
	if (err)
		goto out;
	err = check("GetVersion", cf.get_version(&version));
	if (!err)
		err = open_handle();
	if (err)
		goto close_driver;
	err = run_shape(&run, version);
	cf.handle_deregister(io.handle);
close_driver:
	cf.driver_close();
out:
	free(io.touched);
	pl_shape_run_fini(&run);
	return err ? EXIT_FAILURE : EXIT_SUCCESS;
}
