// SPDX-License-Identifier: MIT
/*
 * What the tests of the library stand on.
 */
#include "engine.h"

void engine_renew(struct engine *e)
{
	void *memory;

	expect(peerlane_gpu_alloc(e->ctx, 0, ROOM, &memory) == 0);
	e->gpu = memory;
}

void engine_open_depth(struct engine *e, size_t slot_bytes, unsigned int depth)
{
	struct peerlane_options opt = { .size = sizeof(opt),
					.backend = "simgpu",
					.slot_bytes = slot_bytes,
					.queue_depth = depth };

	if (peerlane_open(&e->ctx, &opt))
		fail("no context");
	expect(!strcmp(peerlane_backend(e->ctx), "simgpu"));
	engine_renew(e);
	e->no_p2p = false;
	e->model = host_alloc(ROOM);
	e->seen = host_alloc(ROOM);
	fill(e->model, ROOM, 11);
	expect(peerlane_gpu_copy(e->ctx, e->gpu, e->model, ROOM) == 0);
}

void engine_open(struct engine *e)
{
	engine_open_depth(e, 0, 0);
}

void engine_close(struct engine *e)
{
	if (e->gpu)
		expect(peerlane_gpu_free(e->ctx, e->gpu) == 0);
	peerlane_close(e->ctx);
	free(e->model);
	free(e->seen);
}

struct peerlane_stats stats_of(struct engine *e)
{
	struct peerlane_stats st = { .size = sizeof(st) };

	expect(peerlane_stats_get(e->ctx, &st) == 0);
	return st;
}

size_t p2p_written(struct engine *e)
{
	return stats_of(e).write.path_bytes[PEERLANE_PATH_P2P];
}

size_t p2p_bytes(struct engine *e)
{
	struct peerlane_stats st = stats_of(e);

	return st.read.path_bytes[PEERLANE_PATH_P2P] + st.write.path_bytes[PEERLANE_PATH_P2P];
}

unsigned char *make_file(const char *path, size_t bytes, uint64_t seed)
{
	unsigned char *data = host_alloc(bytes + 4096);
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);

	fill(data, bytes & ~7ul, seed);
	expect(fd >= 0 && pwrite(fd, data, bytes, 0) == (ssize_t)bytes && fsync(fd) == 0);
	expect(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
	close(fd);
	return data;
}

struct peerlane_file *open_file(struct engine *e, const char *path, int flags)
{
	struct peerlane_file *file;

	if (peerlane_file_open(e->ctx, path, flags, 0600, &file))
		fail("%s: not opened", path);
	return file;
}

struct peerlane_verdict verdict(struct engine *e, struct peerlane_file *file, enum peerlane_op op,
				size_t bytes)
{
	struct peerlane_explanation ex = { .size = sizeof(ex) };
	struct peerlane_verdict *v = &ex.verdicts[PEERLANE_PATH_P2P];

	expect(peerlane_explain(file, op, e->gpu, bytes, 0, &ex) == 0);
	printf("%s: p2p %d: %s (%s)\n", op == PEERLANE_READ ? "read" : "write", v->usable,
	       v->reason, v->fix);
	return *v;
}

void check_gpu(struct engine *e, const char *what, size_t n)
{
	expect(peerlane_gpu_copy(e->ctx, e->seen, e->gpu, ROOM) == 0);
	if (!memcmp(e->seen, e->model, ROOM))
		return;
	for (size_t i = 0; i < ROOM; i++)
		if (e->seen[i] != e->model[i])
			fail("%s, case %zu: byte %zu of GPU memory is wrong", what, n, i);
}

void command(const char *line, const char *want)
{
	char text[16384];
	size_t n;
	FILE *f = popen(line, "r");

	expect(f);
	n = fread(text, 1, sizeof(text) - 1, f);
	text[n] = '\0';
	printf("$ %s\n%s", line, text);
	expect(pclose(f) == 0 && strstr(text, want));
}
