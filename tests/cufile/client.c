// SPDX-License-Identifier: MIT
/*
 * A program that knows libcufile only by its name, as most do: it reads a file into host memory.
 *   client dlopen FILE   finds the library by dlopen(), so through LD_LIBRARY_PATH
 *   client global FILE   uses what is loaded already, so what LD_PRELOAD brought
 */
#define _GNU_SOURCE
#include "../../cufile/cufile.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	CUfileDescr_t descr = { .type = CU_FILE_HANDLE_TYPE_OPAQUE_FD };
	__typeof__(&cuFileHandleRegister) reg;
	__typeof__(&cuFileRead) rd;
	void *lib = RTLD_DEFAULT;
	struct link_map *map;
	CUfileHandle_t fh;
	char text[256];
	Dl_info info;
	ssize_t n;

	if (argc < 3)
		return 2;
	if (!strcmp(argv[1], "dlopen")) {
		lib = dlopen("libcufile.so.0", RTLD_NOW);
		if (!lib || dlinfo(lib, RTLD_DI_LINKMAP, &map)) {
			fprintf(stderr, "%s\n", dlerror());
			return 1;
		}
	}
	*(void **)(void *)&reg = dlsym(lib, "cuFileHandleRegister");
	*(void **)(void *)&rd = dlsym(lib, "cuFileRead");
	descr.handle.fd = open(argv[2], O_RDONLY);
	if (!reg || !rd || reg(&fh, &descr).err)
		return 1;
	n = rd(fh, text, sizeof(text), 0, 0);
	if (n < 0 || !dladdr(*(void **)(void *)&rd, &info))
		return 1;
	printf("%s\n%.*s\n", info.dli_fname, (int)n, text);
	return 0;
}
