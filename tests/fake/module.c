// SPDX-License-Identifier: MIT
/* Kernels of the fake libcuda: it knows three by name and does on the CPU what they do. */
#include "fake.h"

#include <stdlib.h>

#define MAX_PIECES 128u

struct piece {
	uint64_t dst, src, bytes;
};

typedef fake_take take_fn;

struct function {
	struct module *module;
	take_fn take;
};

struct module {
	struct module *next;
	struct fake_context *ctx;
	struct function functions[3]; /* those of kernels[] that the image has */
};

static struct module *modules;

static struct module *find(void *handle)
{
	struct module *m;

	for (m = modules; m && m != handle; m = m->next)
		;
	if (!m)
		fake_violation("a module that is not there");
	return m;
}

static void destroy(struct module *m)
{
	struct module **at = &modules;

	while (*at != m)
		at = &(*at)->next;
	*at = m->next;
	free(m);
}

/* Where one byte of GPU memory is. */
static char *byte_at(uint64_t addr)
{
	size_t bytes = 1;

	return fake_range_host(addr, true, &bytes);
}

/* Kernels run with the lock held: they are for small memory. */
static int run_reverse(struct fake_op *op, bool live)
{
	if (!live)
		return CU_OK;
	if (!fake_range_covers(op->dst, op->bytes))
		return CU_ILLEGAL_ADDRESS;
	for (uint64_t i = 0; i < op->bytes / 2; i++) {
		char *a = byte_at(op->dst + i), *b = byte_at(op->dst + op->bytes - 1 - i);
		char c = *a;

		*a = *b;
		*b = c;
	}
	return CU_OK;
}

static int take_reverse(struct fake_op *op, unsigned int nr_blocks, void **args)
{
	(void)nr_blocks;
	op->run = run_reverse;
	op->dst = *(uint64_t *)args[0];
	op->bytes = *(uint64_t *)args[1];
	return CU_OK;
}

static int run_scatter(struct fake_op *op, bool live)
{
	const struct piece *pieces = op->owned;

	for (uint32_t i = 0; live && i < op->value; i++) {
		const struct piece *p = &pieces[i];

		if (!fake_range_covers(p->dst, p->bytes) || !fake_range_covers(p->src, p->bytes))
			return CU_ILLEGAL_ADDRESS;
		for (uint64_t at = 0; at < p->bytes; at++)
			*byte_at(p->dst + at) = *byte_at(p->src + at);
	}
	return CU_OK;
}

static int take_scatter(struct fake_op *op, unsigned int nr_blocks, void **args)
{
	if (nr_blocks > MAX_PIECES)
		return CU_INVALID_VALUE;
	op->run = run_scatter;
	op->value = nr_blocks;
	op->owned = malloc(nr_blocks * sizeof(struct piece));
	if (!op->owned)
		return CU_OUT_OF_MEMORY;
	memcpy(op->owned, args[0], nr_blocks * sizeof(struct piece));
	return CU_OK;
}

static const struct {
	const char *name, *entry;
	take_fn take;
} kernels[] = {
	{ "reverse", ".entry reverse(", take_reverse },
	{ "peerlane_scatter", ".entry peerlane_scatter(", take_scatter },
	{ "peerlane_serve", ".entry peerlane_serve(", fake_take_serve },
};

/* Takes PTX text. Loading may wait for the work of the context, so it does. */
int cuModuleLoadData(void **module, const void *image)
{
	struct fake_context *ctx;
	struct module *m;
	int result = fake_begin(__func__, &ctx);

	if (result)
		return result;
	if (!strstr(image, ".version") || !strstr(image, ".entry"))
		return fake_end(CU_INVALID_PTX);
	fake_wait_alone(ctx);
	m = calloc(1, sizeof(*m));
	if (!m)
		return fake_end(CU_OUT_OF_MEMORY);
	for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++)
		if (strstr(image, kernels[i].entry))
			m->functions[i] = (struct function){ m, kernels[i].take };
	m->ctx = ctx;
	m->next = modules;
	modules = m;
	*module = m;
	return fake_end(CU_OK);
}

int cuModuleUnload(void *module)
{
	struct fake_context *ctx;
	struct module *m;
	int result = fake_begin_undo(__func__, &ctx);

	if (result)
		return result;
	m = find(module);
	if (!m || m->ctx != ctx)
		return fake_end(CU_INVALID_HANDLE);
	fake_wait_alone(ctx);
	destroy(m);
	return fake_end(CU_OK);
}

int cuModuleGetFunction(void **function, void *module, const char *name)
{
	struct fake_context *ctx;
	struct module *m;
	int result = fake_begin(__func__, &ctx);

	if (result)
		return result;
	m = find(module);
	if (!m)
		return fake_end(CU_INVALID_HANDLE);
	for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++) {
		if (m->functions[i].take && !strcmp(name, kernels[i].name)) {
			*function = &m->functions[i];
			return fake_end(CU_OK);
		}
	}
	return fake_end(CU_NOT_FOUND);
}

static struct function *find_function(void *handle, const struct fake_context *ctx)
{
	for (struct module *m = modules; m; m = m->next)
		for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++)
			if (handle == &m->functions[i] && m->ctx == ctx)
				return handle;
	fake_violation("a function that is not of the current context, or unloaded");
	return NULL;
}

int cuLaunchKernel(void *function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
		   unsigned int block_x, unsigned int block_y, unsigned int block_z,
		   unsigned int shared_bytes, void *stream, void **args, void **extra)
{
	struct fake_op op = { 0 };
	struct fake_context *ctx;
	struct fake_stream *s;
	struct function *f;
	int result = fake_begin(__func__, &ctx);

	(void)shared_bytes;
	if (result)
		return result;
	f = find_function(function, ctx);
	s = fake_stream_find(stream, ctx);
	if (!f || !s)
		return fake_end(CU_INVALID_HANDLE);
	if (!grid_x || !grid_y || !grid_z || !block_x || !block_y || !block_z ||
	    block_x > 1024 / block_y / block_z || !args || extra)
		return fake_end(CU_INVALID_VALUE);
	result = f->take(&op, grid_x, args);
	return fake_end(result ? result : fake_queue(s, &op, NULL));
}

unsigned int fake_modules_drop(struct fake_context *ctx)
{
	struct module *m = modules, *next;
	unsigned int nr = 0;

	for (; m; m = next) {
		next = m->next;
		if (m->ctx == ctx) {
			destroy(m);
			nr++;
		}
	}
	return nr;
}

void fake_modules_report(struct fake_report *report)
{
	int nr = 0;

	for (struct module *m = modules; m; m = m->next)
		nr++;
	fake_report_add(report, nr, "modules");
}
