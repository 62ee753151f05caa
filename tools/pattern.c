/* SPDX-License-Identifier: MIT */
/* What bench files hold: words that depend on their place. */
#include "pattern.h"

#include "message.h"
#include "progress.h"
#include "stop.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE_BYTES (1u << 20)
#define SAMPLE_BYTES 4096u
#define NR_SAMPLES 64u

uint64_t pl_pattern_hash(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

int pl_pattern_init(struct pl_pattern *p, size_t piece_bytes)
{
	size_t words = PL_PATTERN_PERIOD / 8;
	void *image;

	memset(p, 0, sizeof(*p));
	if (piece_bytes < PIECE_BYTES)
		piece_bytes = PIECE_BYTES;
	p->bytes = PL_PATTERN_PERIOD + ((piece_bytes + 4095) & ~(size_t)4095);
	if (posix_memalign(&image, 4096, p->bytes))
		return -ENOMEM;
	p->host = image;
	for (size_t i = 0; i < words; i++)
		((uint64_t *)image)[i] = pl_pattern_hash(i);
	for (size_t at = PL_PATTERN_PERIOD; at < p->bytes; at += PL_PATTERN_PERIOD) {
		size_t left = p->bytes - at;

		memcpy(p->host + at, p->host, left < PL_PATTERN_PERIOD ? left : PL_PATTERN_PERIOD);
	}
	return 0;
}

int pl_pattern_upload(struct pl_pattern *p, struct pl_session *s)
{
	int err = peerlane_gpu_alloc(s->ctx, s->gpu, p->bytes, &p->gpu);

	if (err) {
		p->gpu = NULL;
		pl_message_error("no GPU memory for %zu bytes to write: %s", p->bytes,
				 pl_session_reason(err).text);
		return err;
	}
	p->session = s;
	err = peerlane_gpu_copy(s->ctx, p->gpu, p->host, p->bytes);
	if (!err)
		err = peerlane_buffer_register(s->ctx, p->gpu, p->bytes, 0);
	if (err)
		pl_message_error("cannot fill GPU memory: %s", pl_session_reason(err).text);
	return err;
}

void pl_pattern_fini(struct pl_pattern *p)
{
	if (p->gpu) {
		peerlane_buffer_release(p->session->ctx, p->gpu);
		peerlane_gpu_free(p->session->ctx, p->gpu);
	}
	free(p->host);
	memset(p, 0, sizeof(*p));
}

size_t pl_pattern_start(uint64_t offset)
{
	return (size_t)(offset % PL_PATTERN_PERIOD);
}

static bool all_zero(const char *buf, size_t bytes)
{
	return !bytes || (!buf[0] && !memcmp(buf, buf + 1, bytes - 1));
}

bool pl_pattern_owns(const struct pl_pattern *p, int fd, uint64_t file_bytes)
{
	char buf[SAMPLE_BYTES];

	for (uint64_t i = 0; i < NR_SAMPLES; i++) {
		uint64_t at = file_bytes / NR_SAMPLES * i / SAMPLE_BYTES * SAMPLE_BYTES;
		ssize_t n = pread(fd, buf, sizeof(buf), (off_t)at);

		if (n < 0)
			return false;
		if (memcmp(buf, p->host + pl_pattern_start(at), (size_t)n) != 0 &&
		    (!at || !all_zero(buf, (size_t)n)))
			return false;
	}
	return true;
}

/* Part of the file that is handled at once: as far as the image goes without a turn. */
static size_t piece(uint64_t at, uint64_t bytes)
{
	return bytes - at < PIECE_BYTES ? (size_t)(bytes - at) : PIECE_BYTES;
}

int pl_pattern_fill(const struct pl_pattern *p, int fd, uint64_t bytes)
{
	struct pl_progress progress;
	uint64_t at = 0;

	pl_progress_start(&progress, "create", bytes);
	while (at < bytes) {
		ssize_t n = pwrite(fd, p->host + pl_pattern_start(at), piece(at, bytes), (off_t)at);
		int err = n < 0 ? -errno : 0;

		if (pl_stop_requested())
			err = -ECANCELED;
		if (err && err != -EINTR) {
			pl_progress_clear();
			return err;
		}
		at += n > 0 ? (uint64_t)n : 0;
		pl_progress_show(&progress, at);
	}
	pl_progress_clear();
	return 0;
}

int pl_pattern_check(const struct pl_pattern *p, int fd, uint64_t bytes, uint64_t *where)
{
	char *buf = malloc(PIECE_BYTES);
	struct pl_progress progress;
	int err = buf ? 0 : -ENOMEM;

	pl_progress_start(&progress, "verify", bytes);
	for (uint64_t at = 0; at < bytes && !err;) {
		ssize_t n = pread(fd, buf, piece(at, bytes), (off_t)at);

		*where = at;
		if (n < 0)
			err = -errno;
		else if (!n)
			err = -ENODATA;
		else if (memcmp(buf, p->host + pl_pattern_start(at), (size_t)n) != 0)
			err = -EBADMSG;
		else if (pl_stop_requested())
			err = -ECANCELED;
		at += n > 0 ? (uint64_t)n : 0;
		pl_progress_show(&progress, at);
	}
	pl_progress_clear();
	free(buf);
	return err;
}
