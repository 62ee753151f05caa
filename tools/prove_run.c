/* SPDX-License-Identifier: MIT */
/* A check of prove that moves data: what GPU memory must hold, and which path bytes took. */
#include "prove.h"

#include "human.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1u << 20)
#define BLOCK 4096u
/* Shorter ones the library may move by another path. */
#define LEAST (2 * BLOCK)

bool pl_prove_run_wrong(struct pl_prove_run *r, const char *fmt, ...)
{
	va_list ap;

	if (r->wrong[0])
		return false;
	va_start(ap, fmt);
	vsnprintf(r->wrong, sizeof(r->wrong), fmt, ap);
	va_end(ap);
	return false;
}

bool pl_prove_run_refill(struct pl_prove_run *r, uint64_t seed)
{
	int err;

	pl_prove_file_pattern(r->model, r->room, 0, seed);
	err = peerlane_gpu_copy(r->ctx, r->gpu, r->model, r->room);
	return err ? pl_prove_run_wrong(r, "copy to the GPU: %s", pl_session_reason(err).text)
		   : true;
}

bool pl_prove_run_begin(struct pl_prove_run *r, struct pl_prove *p, const char *name)
{
	uint64_t room = p->file.bytes / 4;
	void *gpu = NULL;
	int err;

	memset(r, 0, sizeof(*r));
	r->prove = p;
	r->name = name;
	r->ctx = p->ctx;
	r->room = room < 16 * MIB ? (size_t)room : 16 * MIB;
	r->model = malloc(r->room);
	r->seen = malloc(r->room);
	r->before.size = sizeof(r->before);
	peerlane_stats_get(r->ctx, &r->before);
	err = r->model && r->seen ? 0 : -ENOMEM;
	if (!err)
		err = peerlane_gpu_alloc(r->ctx, (int)p->args->gpu, r->room, &gpu);
	r->gpu = gpu;
	if (!err)
		err = peerlane_file_open(r->ctx, p->file.path, O_RDWR | O_DIRECT, 0, &r->file);
	if (err)
		return pl_prove_run_wrong(r, "%s", pl_session_reason(err).text);
	return pl_prove_run_refill(r, 1);
}

/* "12 MiB by p2p, 4 KiB by copy", since the run began. Returns the bytes by p2p. */
static uint64_t paths(struct pl_prove_run *r, char *text, size_t size)
{
	struct peerlane_stats now = { .size = sizeof(now) };
	uint64_t by[PEERLANE_PATH_NR] = { 0 };
	size_t len = 0;

	peerlane_stats_get(r->ctx, &now);
	for (int i = 0; i < PEERLANE_PATH_NR && len < size; i++) {
		by[i] = now.read.path_bytes[i] + now.write.path_bytes[i] -
			r->before.read.path_bytes[i] - r->before.write.path_bytes[i];
		if (by[i] || i == PEERLANE_PATH_P2P)
			len += (size_t)snprintf(text + len, size - len, "%s%s by %s",
						len ? ", " : "", pl_human_size(by[i]).text,
						peerlane_path_name((enum peerlane_path)i));
	}
	return by[PEERLANE_PATH_P2P];
}

void pl_prove_run_end(struct pl_prove_run *r, const char *what)
{
	struct pl_prove_report *report = &r->prove->report;
	char text[256] = "";
	uint64_t p2p = paths(r, text, sizeof(text));
	int err = 0;

	if (r->file)
		err = peerlane_file_close(r->file);
	if (r->gpu && peerlane_gpu_free(r->ctx, r->gpu))
		pl_prove_run_wrong(r, "GPU memory cannot be freed");
	if (err)
		pl_prove_run_wrong(r, "the file cannot be closed: %s", pl_session_reason(err).text);
	if (r->wrong[0])
		pl_prove_report_line(report, PL_PROVE_FAIL, r->name, NULL, "%s", r->wrong);
	else if (p2p < r->must)
		pl_prove_report_line(report, PL_PROVE_FAIL, r->name,
				     "see route_read and route_write",
				     "all bytes are right, but they did not go by p2p: %s of %s "
				     "that must (%s)",
				     pl_human_size(p2p).text, pl_human_size(r->must).text, text);
	else
		pl_prove_report_line(report, PL_PROVE_PASS, r->name, NULL,
				     "%s: %llu requests, %s, all bytes right; %s", what,
				     (unsigned long long)r->nr, pl_human_size(r->bytes).text, text);
	free(r->model);
	free(r->seen);
}

void pl_prove_run_count(struct pl_prove_run *r, const void *gpu, size_t bytes, uint64_t offset)
{
	r->nr++;
	r->bytes += bytes;
	if (bytes >= LEAST && !(((uintptr_t)gpu | bytes | offset) % BLOCK))
		r->must += bytes;
}

bool pl_prove_run_same(struct pl_prove_run *r, const char *what, const unsigned char *seen,
		       const unsigned char *want, size_t bytes)
{
	if (!memcmp(seen, want, bytes))
		return true;
	for (size_t i = 0; i < bytes; i++)
		if (seen[i] != want[i])
			return pl_prove_run_wrong(r,
						  "WRONG DATA, %s: byte %zu is 0x%02x, not 0x%02x",
						  what, i, seen[i], want[i]);
	return false;
}

/* Whether the file or the transfer is to blame for byte @i of GPU memory. */
static void blame(struct pl_prove_run *r, size_t i, size_t at, size_t bytes, uint64_t offset)
{
	unsigned long long place = offset + i - at;
	size_t len = strlen(r->wrong);
	unsigned char byte;

	if (at == SIZE_MAX)
		return;
	if (i < at || i - at >= bytes)
		snprintf(r->wrong + len, sizeof(r->wrong) - len, "; it lies beside what was read");
	else if (!pl_prove_file_read(&r->prove->file, &byte, 1, place))
		snprintf(r->wrong + len, sizeof(r->wrong) - len,
			 "; a plain read of byte %llu of the file gives 0x%02x: %s", place, byte,
			 byte == r->model[i] ? "the transfer went wrong"
					     : "the file is not as written");
}

bool pl_prove_run_look(struct pl_prove_run *r, const char *what, size_t at, size_t bytes,
		       uint64_t offset)
{
	int err = peerlane_gpu_copy(r->ctx, r->seen, r->gpu, r->room);

	if (err)
		return pl_prove_run_wrong(r, "copy from the GPU: %s", pl_session_reason(err).text);
	if (pl_prove_run_same(r, what, r->seen, r->model, r->room))
		return true;
	for (size_t i = 0; i < r->room; i++)
		if (r->seen[i] != r->model[i]) {
			blame(r, i, at, bytes, offset);
			break;
		}
	return false;
}
