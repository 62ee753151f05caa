// SPDX-License-Identifier: MIT
/* Finds libcuda and the functions of cuda_api.h in it. */
#include "cuda_api.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct entry {
	size_t offset;
	const char *symbol;
	int required;
};

static const struct entry entries[] = {
#define X(member, symbol, args, required)                                                          \
	{ offsetof(struct pl_cuda_api, member), symbol, required },
	PL_CUDA_FUNCTIONS(X)
#undef X
};

int pl_cuda_api_load(struct pl_cuda_api *api, char *why, size_t why_bytes)
{
	const char *name = getenv("PEERLANE_LIBCUDA");
	void *lib;

	memset(api, 0, sizeof(*api));
	if (!name || !*name)
		name = "libcuda.so.1";
	lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		snprintf(why, why_bytes, "no CUDA driver: %s", dlerror());
		return -ENODEV;
	}
	for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
		void *sym = dlsym(lib, entries[i].symbol);

		if (!sym && entries[i].required) {
			snprintf(why, why_bytes,
				 "the CUDA driver has no %s: too old (12.0 is needed)",
				 entries[i].symbol);
			dlclose(lib);
			return -ENODEV;
		}
		memcpy((char *)api + entries[i].offset, &sym, sizeof(sym));
	}
	api->library = lib;
	return 0;
}

void pl_cuda_api_unload(struct pl_cuda_api *api)
{
	if (api->library)
		dlclose(api->library);
	api->library = NULL;
}
