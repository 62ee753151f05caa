// SPDX-License-Identifier: MIT
/* Finds a libpeerlane.so.0 and puts its calls behind those that cufile_min.h names. */
#include "native_min.h"

#include "shape.h"
#include "symbols.h"

#include <peerlane/peerlane.h>

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>

/* The library as loaded, and the one context, which cuFile keeps to itself too. */
static struct native {
	struct peerlane *ctx;
	__typeof__(peerlane_open) *open;
	__typeof__(peerlane_close) *close;
	__typeof__(peerlane_error) *error;
	__typeof__(peerlane_file_from_fd) *file_from_fd;
	__typeof__(peerlane_file_close) *file_close;
	__typeof__(peerlane_buffer_register) *buffer_register;
	__typeof__(peerlane_buffer_release) *buffer_release;
	__typeof__(peerlane_read) *read;
	__typeof__(peerlane_write) *write;
	__typeof__(peerlane_batch_create) *batch_create;
	__typeof__(peerlane_batch_submit) *batch_submit;
	__typeof__(peerlane_batch_wait) *batch_wait;
	__typeof__(peerlane_batch_destroy) *batch_destroy;
} pl;

static const struct pl_symbol symbols[] = {
	{ "peerlane_open", offsetof(struct native, open) },
	{ "peerlane_close", offsetof(struct native, close) },
	{ "peerlane_error", offsetof(struct native, error) },
	{ "peerlane_file_from_fd", offsetof(struct native, file_from_fd) },
	{ "peerlane_file_close", offsetof(struct native, file_close) },
	{ "peerlane_buffer_register", offsetof(struct native, buffer_register) },
	{ "peerlane_buffer_release", offsetof(struct native, buffer_release) },
	{ "peerlane_read", offsetof(struct native, read) },
	{ "peerlane_write", offsetof(struct native, write) },
	{ "peerlane_batch_create", offsetof(struct native, batch_create) },
	{ "peerlane_batch_submit", offsetof(struct native, batch_submit) },
	{ "peerlane_batch_wait", offsetof(struct native, batch_wait) },
	{ "peerlane_batch_destroy", offsetof(struct native, batch_destroy) },
};

/* A batch with room for its requests and events, so that no memory is allocated inside the clock. */
struct batch {
	struct peerlane_batch *engine;
	unsigned int capacity;
	struct peerlane_io *io;
	struct peerlane_event *events;
};

/* Says what the library knows about a failure of this thread, which is more than its errno. */
static void complain(const char *call)
{
	struct peerlane_error_info info = { .size = sizeof(info) };

	if (!pl.error(&info) && info.text[0])
		pl_shape_complain("%s: %s", call, info.text);
}

/* 0 or a negative errno as cuFile would give it */
static struct pl_cufile_error status(const char *call, int err)
{
	if (err)
		complain(call);
	return (struct pl_cufile_error){ .err = -err };
}

static struct pl_cufile_error driver_open(void)
{
	return status("peerlane_open", pl.open(&pl.ctx, NULL));
}

static struct pl_cufile_error driver_close(void)
{
	pl.close(pl.ctx);
	pl.ctx = NULL;
	return (struct pl_cufile_error){ 0 };
}

static struct pl_cufile_error get_version(int *version)
{
	*version = 0;
	return (struct pl_cufile_error){ 0 };
}

static struct pl_cufile_error handle_register(void **handle, struct pl_cufile_descr *descr)
{
	struct peerlane_file *file = NULL;
	int err = pl.file_from_fd(pl.ctx, descr->handle.fd, &file);

	*handle = file;
	return status("peerlane_file_from_fd", err);
}

static void handle_deregister(void *handle)
{
	status("peerlane_file_close", pl.file_close(handle));
}

static struct pl_cufile_error buf_register(const void *base, size_t bytes, int flags)
{
	return status(
		"peerlane_buffer_register",
		pl.buffer_register(pl.ctx, (void *)(uintptr_t)base, bytes, (unsigned int)flags));
}

static struct pl_cufile_error buf_deregister(const void *base)
{
	return status("peerlane_buffer_release",
		      pl.buffer_release(pl.ctx, (void *)(uintptr_t)base));
}

/* A count, or -1 with the code in errno, as cuFile gives it. */
static ssize_t count(const char *call, ssize_t n)
{
	if (n >= 0)
		return n;
	complain(call);
	errno = (int)-n;
	return -1;
}

static ssize_t do_read(void *handle, void *base, size_t size, off_t file, off_t buffer)
{
	return count("peerlane_read", pl.read(handle, (char *)base + buffer, size, file));
}

static ssize_t do_write(void *handle, const void *base, size_t size, off_t file, off_t buffer)
{
	return count("peerlane_write",
		     pl.write(handle, (const char *)base + buffer, size, file, 0));
}

static void batch_destroy(void *batch)
{
	struct batch *b = batch;

	pl.batch_destroy(b->engine);
	free(b->events);
	free(b->io);
	free(b);
}

static struct pl_cufile_error batch_setup(void **batch, unsigned int nr)
{
	struct pl_cufile_error e = { .err = ENOMEM };
	struct batch *b = calloc(1, sizeof(*b));

	if (!b)
		return e;
	b->capacity = nr;
	b->io = calloc(nr, sizeof(*b->io));
	b->events = calloc(nr, sizeof(*b->events));
	if (!b->io || !b->events)
		goto fail;
	e = status("peerlane_batch_create", pl.batch_create(pl.ctx, nr, &b->engine));
	if (e.err)
		goto fail;
	*batch = b;
	return e;
fail:
	batch_destroy(b);
	return e;
}

static struct pl_cufile_error batch_submit(void *batch, unsigned int nr, struct pl_cufile_io *io,
					   unsigned int flags)
{
	struct batch *b = batch;
	unsigned int i;

	(void)flags;
	if (nr > b->capacity)
		return (struct pl_cufile_error){ .err = EAGAIN };
	for (i = 0; i < nr; i++)
		b->io[i] = (struct peerlane_io){
			.file = io[i].handle,
			.addr = (char *)io[i].batch.base + io[i].batch.buffer_offset,
			.bytes = io[i].batch.size,
			.offset = io[i].batch.file_offset,
			.op = io[i].opcode == PL_CUFILE_WRITE ? PEERLANE_WRITE : PEERLANE_READ,
			.cookie = io[i].cookie,
		};
	return status("peerlane_batch_submit", pl.batch_submit(b->engine, b->io, nr));
}

/* A result below 0 stands in the event as it is; the failure has been in another thread, so there
 * is no sentence about it. */
static struct pl_cufile_error batch_status(void *batch, unsigned int min_nr, unsigned int *nr,
					   struct pl_cufile_event *events, struct timespec *timeout)
{
	struct batch *b = batch;
	unsigned int room = *nr < b->capacity ? *nr : b->capacity;
	int i, got = pl.batch_wait(b->engine, min_nr, b->events, room, timeout);

	*nr = got < 0 ? 0 : (unsigned int)got;
	for (i = 0; i < got; i++)
		events[i] = (struct pl_cufile_event){
			.cookie = b->events[i].cookie,
			.status = b->events[i].result < 0 ? PL_CUFILE_FAILED : PL_CUFILE_COMPLETE,
			.ret = (size_t)b->events[i].result,
		};
	return status("peerlane_batch_wait", got < 0 ? got : 0);
}

static const struct pl_cufile_min calls = {
	.driver_open = driver_open,
	.driver_close = driver_close,
	.get_version = get_version,
	.handle_register = handle_register,
	.handle_deregister = handle_deregister,
	.buf_register = buf_register,
	.buf_deregister = buf_deregister,
	.read = do_read,
	.write = do_write,
	.batch_setup = batch_setup,
	.batch_submit = batch_submit,
	.batch_status = batch_status,
	.batch_destroy = batch_destroy,
};

int pl_native_min_open(struct pl_cufile_min *cf, const char *path, const char **why)
{
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (!lib) {
		*why = dlerror();
		return -ENOENT;
	}
	*why = pl_symbols_load(lib, symbols, sizeof(symbols) / sizeof(symbols[0]), &pl);
	if (*why)
		return -ENOSYS;
	*cf = calls;
	return 0;
}
