// SPDX-License-Identifier: MIT
/* Content that tells where it belongs. */
#include "peer_data.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int pl_peer_check_cuda(const struct pl_peer_data *d, const char *call, int result)
{
	if (!result)
		return 0;
	pl_shape_complain("%s: CUDA %d (%s)", call, result, pl_cuda_min_name(&d->cuda, result));
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

static int move(const char *path, bool write, int fd, void *buffer, size_t bytes, off_t at)
{
	int err = pl_shape_move(write, fd, buffer, bytes, at);

	if (err == -ENODATA)
		pl_shape_complain("%s ends early, within %zu bytes at %lld", path, bytes,
				  (long long)at);
	else if (err)
		pl_shape_complain("%s: %s", path, strerror(-err));
	return err;
}

int pl_peer_create_file(const char *path, size_t bytes)
{
	size_t at;
	void *buffer = malloc(PL_SHAPE_CHUNK_BYTES);
	int fd, err = buffer ? 0 : -ENOMEM;

	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0)
		err = pl_shape_complain_errno(path);
	for (at = 0; !err && at < bytes; at += PL_SHAPE_CHUNK_BYTES) {
		size_t n = bytes - at < PL_SHAPE_CHUNK_BYTES ? bytes - at : PL_SHAPE_CHUNK_BYTES;

		fill(buffer, n, (off_t)at, 0);
		err = move(path, true, fd, buffer, n, (off_t)at);
	}
	if (!err && fsync(fd))
		err = pl_shape_complain_errno(path);
	if (fd >= 0)
		close(fd);
	free(buffer);
	return err;
}

static int fill_buffer(const struct pl_peer_data *d, void *host, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += PL_SHAPE_CHUNK_BYTES) {
		size_t n = bytes - at < PL_SHAPE_CHUNK_BYTES ? bytes - at : PL_SHAPE_CHUNK_BYTES;

		fill(host, n, (off_t)at, d->salt);
		if (pl_peer_check_cuda(d, "cuMemcpyHtoD",
				       d->cuda.memcpy_htod(d->base + at, host, n)))
			return -EIO;
	}
	return 0;
}

int pl_peer_data_prepare(struct pl_peer_data *d, const struct pl_shape *s, size_t bytes)
{
	void *host = s->write ? malloc(PL_SHAPE_CHUNK_BYTES) : NULL;
	int err = s->write && !host ? -ENOMEM : 0;

	d->salt = s->write ? pl_shape_mix(pl_shape_now_ns()) : 0;
	if (!err)
		err = pl_peer_check_cuda(d, "cuMemAlloc", d->cuda.mem_alloc(&d->base, bytes));
	if (!err)
		err = pl_peer_check_cuda(d, "cuMemsetD8", d->cuda.memset_d8(d->base, 0x5a, bytes));
	if (!err && s->write)
		err = fill_buffer(d, host, bytes);
	if (!err)
		err = pl_peer_check_cuda(d, "cuCtxSynchronize", d->cuda.ctx_synchronize());
	free(host);
	return err;
}

static int verify_piece(const struct pl_peer_data *d, const struct pl_shape *s, int fd, void *host,
			void *other, off_t at, size_t bytes)
{
	if (move(s->file, false, fd, other, bytes, at))
		return -EIO;
	if (s->write)
		fill(host, bytes, at, d->salt);
	else if (pl_peer_check_cuda(d, "cuMemcpyDtoH",
				    d->cuda.memcpy_dtoh(host, d->base + (uint64_t)at, bytes)))
		return -EIO;
	if (memcmp(host, other, bytes)) {
		pl_shape_complain("wrong data in the %zu bytes at %lld", bytes, (long long)at);
		return -EILSEQ;
	}
	return 0;
}

int pl_peer_data_verify(const struct pl_peer_data *d, const struct pl_shape *s, size_t nr_slots,
			size_t slot_bytes)
{
	int fd = open(s->file, O_RDONLY | O_CLOEXEC), err = 0;
	void *host = malloc(PL_SHAPE_CHUNK_BYTES), *other = malloc(PL_SHAPE_CHUNK_BYTES);

	if (fd < 0)
		err = pl_shape_complain_errno(s->file);
	else if (!host || !other)
		err = -ENOMEM;
	for (size_t slot = 0; !err && slot < nr_slots; slot++) {
		for (size_t at = 0; !err && d->touched[slot] && at < slot_bytes;
		     at += PL_SHAPE_CHUNK_BYTES) {
			size_t left = slot_bytes - at;

			err = verify_piece(d, s, fd, host, other, (off_t)(slot * slot_bytes + at),
					   left < PL_SHAPE_CHUNK_BYTES ? left
								       : PL_SHAPE_CHUNK_BYTES);
		}
	}
	if (fd >= 0)
		close(fd);
	free(host);
	free(other);
	return err;
}
