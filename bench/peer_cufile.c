// SPDX-License-Identifier: MIT
/*
 * Measures a libcufile.so.0 (NVIDIA's, or any other of its ABI) in a process of its own, or
 * libpeerlane.so.0 by the same loop, or both in turns. One run is one shape; the result of each is a JSON object
 * on stdout.
 */
#include "cufile_min.h"
#include "native_min.h"
#include "peer_data.h"
#include "shape.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct pl_shape shape = { .nr_threads = 1, .batch = 1, .repeat = 3, .seconds = 10 };

static struct {
	const char *lib, *native, *who;
	size_t size_bytes, create_bytes;
	bool direct, unregistered, verify, udev_record, anew;
} opt = { .size_bytes = 1 << 20 };

static struct pl_peer_data data;

/* A library that is measured, and its file. */
struct side {
	const char *who;
	bool native;
	struct pl_cufile_min cf;
	int fd, version;
	void *handle;
	bool opened, registered;
	struct pl_shape_run run;
};

static struct side sides[2];
static unsigned int nr_sides;
static struct side *now; /* the one whose turn it is */

/* What a worker needs for batches. */
struct own {
	void *batch;
	struct pl_cufile_io *io;
	struct pl_cufile_event *events;
};

/* What stands before the name of a call where one is told. */
static const char *prefix(void)
{
	return now->native ? "native " : "cuFile";
}

/* 0, or -EIO after saying which call failed and how */
static int check(const char *call, struct pl_cufile_error e)
{
	if (!e.err)
		return 0;
	pl_shape_complain("%s%s: %d (%s)", prefix(), call, e.err, pl_cufile_min_name(e.err));
	if (e.err == 5011)
		pl_shape_complain("  behind it CUDA's %d (%s)", e.cu_err,
				  pl_cuda_min_name(&data.cuda, e.cu_err));
	return -EIO;
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

	*base = (void *)(uintptr_t)(opt.unregistered ? data.base + at : data.base);
	*buffer_offset = opt.unregistered ? 0 : (off_t)at;
}

static int do_call(size_t slot)
{
	off_t at = (off_t)(slot * opt.size_bytes), buffer_offset;
	void *base;
	ssize_t n;

	aim(slot, &base, &buffer_offset);
	n = shape.write ? now->cf.write(now->handle, base, opt.size_bytes, at, buffer_offset)
			: now->cf.read(now->handle, base, opt.size_bytes, at, buffer_offset);
	if (n == (ssize_t)opt.size_bytes) {
		data.touched[slot] = 1;
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
						    .handle = now->handle,
						    .opcode = shape.write ? PL_CUFILE_WRITE
									  : PL_CUFILE_READ,
						    .cookie = (void *)slot };
		aim(slot, &own->io[i].batch.base, &own->io[i].batch.buffer_offset);
		own->io[i].batch.file_offset = (off_t)(slot * opt.size_bytes);
		own->io[i].batch.size = opt.size_bytes;
	}
	if (check("BatchIOSubmit", now->cf.batch_submit(own->batch, shape.batch, own->io, 0)))
		return -EIO;
	while (left) {
		nr = left;
		if (check("BatchIOGetStatus",
			  now->cf.batch_status(own->batch, left, &nr, own->events, NULL)))
			return -EIO;
		for (i = 0; i < nr; i++) {
			const struct pl_cufile_event *ev = &own->events[i];

			if (ev->status != PL_CUFILE_COMPLETE || ev->ret != opt.size_bytes) {
				pl_shape_complain(
					"a batch entry ended with status 0x%x, result %zd",
					ev->status, (ssize_t)ev->ret);
				return -EIO;
			}
			data.touched[(size_t)ev->cookie] = 1;
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

	if (pl_peer_check_cuda(&data, "cuCtxSetCurrent", pl_cuda_min_enter(&data.cuda)))
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
	return check("BatchIOSetUp", now->cf.batch_setup(&own->batch, shape.batch));
}

static void worker_teardown(struct pl_shape_worker *w)
{
	struct own *own = w->own;

	if (!own)
		return;
	if (own->batch)
		now->cf.batch_destroy(own->batch);
	free(own->io);
	free(own->events);
	free(own);
}

static void report(const struct side *side)
{
	static const char *const bools[] = { "false", "true" };
	struct pl_shape_figures f;

	pl_shape_summarise(&shape, &f, side->run.repeats, side->run.lat_ns,
			   atomic_load(&side->run.nr_lat));
	printf("{\"who\":\"%s\",\"version\":%d,\"op\":\"%s\",\"size\":%zu,\"threads\":%u,"
	       "\"batch\":%u,\"random\":%s,\"cold\":%s,\"direct\":%s,\"registered\":%s,",
	       side->who, side->version, shape.write ? "write" : "read", opt.size_bytes,
	       shape.nr_threads, shape.batch, bools[shape.random], bools[shape.cold],
	       bools[opt.direct], bools[!opt.unregistered]);
	pl_shape_print(&shape, &f);
	for (unsigned int i = 0; i < shape.repeat; i++)
		printf("%s%.6f", i ? "," : ",\"gbps_each\":[", side->run.repeats[i].gbps);
	printf("],\"verified\":%s}\n", bools[opt.verify]);
}

static int open_handle(void)
{
	struct pl_cufile_descr descr = { .type = PL_CUFILE_TYPE_FD };
	int flags = (shape.write ? O_RDWR : O_RDONLY) | O_CLOEXEC | (opt.direct ? O_DIRECT : 0);
	struct pl_cufile_error e;

	now->fd = open(shape.file, flags);
	if (now->fd < 0)
		return pl_shape_complain_errno(shape.file);
	descr.handle.fd = now->fd;
	e = now->cf.handle_register(&now->handle, &descr);
	if (e.err == 5027)
		pl_shape_complain(
			"5027 here mostly means that the udev database does not know the disk:\n"
			"  /run/udev/data/bMAJOR:MINOR of the disk must hold the lines\n"
			"  E:ID_FS_TYPE=ext4 (or xfs) and E:ID_FS_USAGE=filesystem;\n"
			"  as root, --udev-record writes them where the record is missing");
	return check("HandleRegister", e);
}

/* Makes ready the library whose turn it is. close_side() is to follow in any case. */
static int open_side(size_t bytes)
{
	int err = check("DriverOpen", now->cf.driver_open());

	if (err)
		return err;
	now->opened = true;
	err = check("GetVersion", now->cf.get_version(&now->version));
	if (!err)
		err = open_handle();
	if (!err && !opt.unregistered)
		err = check("BufRegister",
			    now->cf.buf_register((void *)(uintptr_t)data.base, bytes, 0));
	now->registered = !err && !opt.unregistered;
	return err;
}

static void close_side(void)
{
	if (now->registered)
		now->cf.buf_deregister((void *)(uintptr_t)data.base);
	if (now->handle) {
		now->cf.handle_deregister(now->handle);
		close(now->fd);
	}
	if (now->opened)
		now->cf.driver_close();
	now->registered = now->opened = false;
	now->handle = NULL;
}

/* Makes the library whose turn it is ready for its next pass: one that was just opened works outside the clock first. */
static int prepare_side(size_t bytes, unsigned int pass)
{
	int err = 0;

	if (pass && opt.anew) {
		close_side();
		err = open_side(bytes);
	}
	if (!err && opt.anew)
		err = pl_shape_run_warm(&now->run);
	else if (!err && !pass)
		err = do_call(0);
	if (!err && shape.cold)
		err = pl_shape_prepare_cache(&shape, bytes);
	return err;
}

/* The repeats, of two libraries in turns. */
static int run_sides(size_t bytes)
{
	int err = shape.cold ? 0 : pl_shape_prepare_cache(&shape, bytes);

	for (unsigned int i = 0; !err && i < shape.repeat; i++) {
		for (now = sides; !err && now < sides + nr_sides; now++) {
			err = prepare_side(bytes, i);
			if (!err)
				err = pl_shape_run_repeat(&now->run);
		}
	}
	if (!err && opt.verify)
		err = pl_peer_data_verify(&data, &shape, sides[0].run.nr_slots, opt.size_bytes);
	for (now = sides; !err && now < sides + nr_sides; now++)
		report(now);
	return err;
}

/* Slots and groups of the shape, and the arrays sized by them. */
static int plan(void)
{
	struct stat st;
	int err = 0;

	if (stat(shape.file, &st))
		return pl_shape_complain_errno(shape.file);
	for (unsigned int i = 0; !err && i < nr_sides; i++) {
		struct pl_shape_run *run = &sides[i].run;

		run->shape = &shape;
		run->setup = worker_setup;
		run->group = do_group;
		run->teardown = worker_teardown;
		run->nr_threads = shape.nr_threads;
		err = pl_shape_plan(run, st.st_size, opt.size_bytes);
		if (!err && pl_shape_run_init(run)) {
			pl_shape_complain("out of memory");
			err = -ENOMEM;
		}
	}
	return err;
}

static int measure(void)
{
	size_t nr_slots = sides[0].run.nr_slots, bytes = nr_slots * opt.size_bytes;
	int err;

	data.touched = calloc(nr_slots, 1);
	err = data.touched ? pl_peer_data_prepare(&data, &shape, bytes) : -ENOMEM;
	for (now = sides; !err && now < sides + nr_sides; now++)
		err = open_side(bytes);
	if (!err)
		err = run_sides(bytes);
	for (now = sides; now < sides + nr_sides; now++) {
		close_side();
		pl_shape_run_fini(&now->run);
	}
	free(data.touched);
	return err;
}

static const char help[] =
	"usage: peer_cufile --file PATH [--op read|write] [options]\n"
	"Measures libcufile.so.0 between a file and GPU memory; prints a JSON object.\n"
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
	"  --native PATH     measure this libpeerlane.so.0 instead, by the same loop; with --lib\n"
	"                    both in one process, in turns, each with an object of its own\n"
	"  --anew            the library opened anew for each repeat: new threads, new memory\n"
	"  --who NAME        the name in the result (libcufile; with --native alone peerlane)\n"
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
	OPTION_ANEW,
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
	{ "anew", 0, NULL, OPTION_ANEW },
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
	opt.anew |= c == OPTION_ANEW;
}

/* Return: 0, 1 when only help was asked for, -EINVAL */
static int parse(int argc, char **argv)
{
	int err = pl_shape_parse(&shape, argc, argv, options, parse_value, parse_flag);

	if (err)
		return err;
	if (optind < argc)
		pl_shape_complain("%s: not understood", argv[optind]);
	else if (shape.cached && shape.cold)
		pl_shape_complain("--cold and --cached exclude each other");
	else if (!shape.file)
		pl_shape_complain("--file is needed; --help tells more");
	else
		return 0;
	return -EINVAL;
}

/* Loads what is to be measured. */
static int open_library(bool native)
{
	struct side *side = &sides[nr_sides];
	const char *why;
	int err = native ? pl_native_min_open(&side->cf, opt.native, &why)
			 : pl_cufile_min_open(&side->cf, opt.lib, &why);

	if (err) {
		pl_shape_complain("skipped: no usable %s: %s", native ? "libpeerlane" : "libcufile",
				  why);
		return err;
	}
	side->native = native;
	side->who = native ? "peerlane" : "libcufile";
	if (opt.who && (!native || !opt.lib))
		side->who = opt.who;
	nr_sides++;
	return 0;
}

int main(int argc, char **argv)
{
	int err = parse(argc, argv);

	if (err) {
		fputs(err > 0 ? help : "", stdout);
		return err > 0 ? EXIT_SUCCESS : PL_SHAPE_EXIT_USAGE;
	}
	if ((opt.create_bytes && pl_peer_create_file(shape.file, opt.create_bytes & ~(size_t)7)) ||
	    (opt.udev_record && write_udev_record()))
		return EXIT_FAILURE;
	if ((opt.create_bytes || opt.udev_record) && !shape.op_given)
		return EXIT_SUCCESS;
	if (pl_cuda_min_open(&data.cuda, 0)) {
		pl_shape_complain("skipped: no GPU: %s (%s)", data.cuda.why,
				  pl_cuda_min_name(&data.cuda, data.cuda.result));
		return PL_SHAPE_EXIT_SKIP;
	}
	if ((opt.native && open_library(true)) || ((opt.lib || !opt.native) && open_library(false)))
		return PL_SHAPE_EXIT_SKIP;
	err = plan();
	if (!err)
		err = measure();
	return err ? EXIT_FAILURE : EXIT_SUCCESS;
}
