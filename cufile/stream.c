// SPDX-License-Identifier: MIT
/*
 * Stream-ordered reads and writes. What a request's pointers say is looked at when the stream gets
 * there, unless the stream was registered with flags that say it is fixed.
 */
#include "stream.h"

#include "cufile.h"
#include "driver.h"
#include "error.h"
#include "io.h"
#include "log.h"
#include "stats.h"

#include "../lib/stream.h"

#include <errno.h>
#include <stdlib.h>

struct known {
	struct known *next;
	CUstream stream;
	unsigned int flags;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the list */
static struct known *streams;

struct request {
	struct peerlane *ctx;
	CUfileHandle_t fh;
	struct pl_cf_file *file; /* held */
	enum peerlane_op op;
	unsigned int fixed; /* CU_FILE_STREAM_FIXED_*: the values below count, not the pointers */
	void *base;
	const size_t *size;
	const off_t *file_offset, *buf_offset;
	size_t size_now;
	off_t file_offset_now, buf_offset_now;
	ssize_t *bytes;
	int gpu;
	struct pl_cf_io io; /* when its time has come */
};

/* Lock held. */
static struct known **find(CUstream stream)
{
	struct known **p;

	for (p = &streams; *p && (*p)->stream != stream; p = &(*p)->next)
		;
	return p;
}

/* Does not open the driver, nor does it need it. */
CUfileError_t cuFileStreamRegister(CUstream stream, unsigned int flags)
{
	CUfileError_t status = pl_cf_status(CU_FILE_SUCCESS);
	struct known *k = malloc(sizeof(*k));

	pthread_mutex_lock(&lock);
	if (!k || *find(stream)) {
		status.err = k ? CU_FILE_INVALID_VALUE : CU_FILE_NOMEM_ERROR;
		free(k);
	} else {
		*k = (struct known){ .next = streams, .stream = stream, .flags = flags };
		streams = k;
	}
	pthread_mutex_unlock(&lock);
	return status;
}

CUfileError_t cuFileStreamDeregister(CUstream stream)
{
	struct known **p, *k;

	pthread_mutex_lock(&lock);
	p = find(stream);
	k = *p;
	if (k)
		*p = k->next;
	pthread_mutex_unlock(&lock);
	free(k);
	return pl_cf_status(k ? CU_FILE_SUCCESS : CU_FILE_INVALID_VALUE);
}

static unsigned int flags_of(CUstream stream)
{
	unsigned int flags;

	pthread_mutex_lock(&lock);
	flags = *find(stream) ? (*find(stream))->flags : 0;
	pthread_mutex_unlock(&lock);
	return flags;
}

/* In a worker, when the stream has got there. */
static int begin(void *arg, struct pl_stream_what *what)
{
	struct request *r = arg;
	int err;

	r->io = (struct pl_cf_io){
		.file = r->file,
		.op = r->op,
		.base = r->base,
		.size = r->fixed & CU_FILE_STREAM_FIXED_FILE_SIZE ? r->size_now : *r->size,
		.file_offset = r->fixed & CU_FILE_STREAM_FIXED_FILE_OFFSET ? r->file_offset_now
									   : *r->file_offset,
		.buf_offset = r->fixed & CU_FILE_STREAM_FIXED_BUF_OFFSET ? r->buf_offset_now
									 : *r->buf_offset,
	};
	err = pl_cf_io_begin(&r->io, true);
	*what = (struct pl_stream_what){ .shift = (size_t)r->io.buf_offset,
					 .bytes = r->io.size,
					 .offset = r->io.file_offset };
	return err;
}

/* Also when it could not be done. */
static void end(void *arg, ssize_t n, size_t p2p)
{
	struct request *r = arg;

	if (r->io.file)
		pl_cf_io_end(&r->io, r->gpu, n, p2p);
	/* Some programs look at it instead of waiting for the stream: then the data is there, too. */
	__atomic_store_n(r->bytes, pl_cf_stream_count(n), __ATOMIC_RELEASE);
	pl_cf_file_put(r->fh);
	free(r);
}

/*
 * Hands the request to the engine. Of one without a length the count is 0 already when the call
 * returns: programs look at it without waiting for the stream. It is stored before the request is
 * queued, since its length may still change and then end() has the last word.
 */
static int run(struct request *r, CUstream stream, bool *queued)
{
	static const struct pl_stream_work work = { .begin = begin, .end = end };
	ssize_t before = *r->bytes, *bytes = r->bytes;
	bool empty = !r->size_now;
	int err;

	if (empty)
		*bytes = 0;
	err = pl_stream_run(r->file->file, r->op, r->base, r->size_now, r->file_offset_now, stream,
			    &work, r, queued);
	if (empty && !*queued)
		*bytes = before;
	return err;
}

/* Everything but the file is filled in. */
static CUfileError_t queue(struct request *r, CUstream stream)
{
	CUfileError_t status = pl_cf_status(CU_FILE_SUCCESS);
	enum pl_cf_found found;
	bool queued = false;
	int err;

	r->file = pl_cf_file_get(r->fh, &found);
	if (!r->file) {
		free(r);
		return pl_cf_status(found == PL_CF_STALE ? CU_FILE_HANDLE_NOT_REGISTERED
							 : CU_FILE_INVALID_VALUE);
	}
	if (r->op == PEERLANE_READ ? r->file->readable : r->file->writable) {
		/* Here, since it asks the driver. The lengths may still change. */
		pl_cf_file_explain(r->file, r->op, r->base, r->size_now, r->file_offset_now);
		r->gpu = pl_cf_stats_gpu(r->ctx, r->base);
		err = run(r, stream, &queued);
		/* A stream the back end does not know is the driver's error, not the caller's. */
		status = pl_cf_status_of(err == -EINVAL ? -EREMOTEIO : err);
	} else {
		status.err = CU_FILE_INVALID_FILE_OPEN_FLAG;
	}
	if (queued)
		return status;
	pl_cf_file_put(r->fh);
	free(r);
	return status;
}

static CUfileError_t submit(CUfileHandle_t fh, enum peerlane_op op, void *base, const size_t *size,
			    const off_t *file_offset, const off_t *buf_offset, ssize_t *bytes,
			    CUstream stream)
{
	CUfileError_t status;
	struct peerlane *ctx = pl_cf_enter_open(&status);
	struct request *r;

	if (!ctx)
		return status;
	if (!fh || !base || !size || !file_offset || !buf_offset || !bytes) {
		pl_cf_leave();
		return pl_cf_status(CU_FILE_INVALID_VALUE);
	}
	r = malloc(sizeof(*r));
	if (r) {
		*r = (struct request){ .ctx = ctx,
				       .fh = fh,
				       .op = op,
				       .fixed = flags_of(stream),
				       .base = base,
				       .size = size,
				       .file_offset = file_offset,
				       .buf_offset = buf_offset,
				       .bytes = bytes };
		r->size_now = *size;
		r->file_offset_now = *file_offset;
		r->buf_offset_now = *buf_offset;
		status = queue(r, stream);
	} else {
		status.err = CU_FILE_NOMEM_ERROR;
	}
	if (status.err)
		pl_cf_log(PL_CF_ERROR, "stream request refused: %s",
			  cufileop_status_error(status.err));
	pl_cf_leave();
	return status;
}

CUfileError_t cuFileReadAsync(CUfileHandle_t fh, void *base, size_t *size, off_t *file_offset,
			      off_t *buf_offset, ssize_t *bytes_read, CUstream stream)
{
	return submit(fh, PEERLANE_READ, base, size, file_offset, buf_offset, bytes_read, stream);
}

CUfileError_t cuFileWriteAsync(CUfileHandle_t fh, void *base, size_t *size, off_t *file_offset,
			       off_t *buf_offset, ssize_t *bytes_written, CUstream stream)
{
	return submit(fh, PEERLANE_WRITE, base, size, file_offset, buf_offset, bytes_written,
		      stream);
}

void pl_cf_streams_clear(void)
{
	pthread_mutex_lock(&lock);
	while (streams) {
		struct known *k = streams;

		streams = k->next;
		free(k);
	}
	pthread_mutex_unlock(&lock);
}

void pl_cf_streams_forget(void)
{
	pthread_mutex_init(&lock, NULL);
	pl_cf_streams_clear();
}
