// SPDX-License-Identifier: MIT
/* Calls of libraries, by their names. */
#include "symbols.h"

#include <dlfcn.h>
#include <string.h>

const char *pl_symbols_load(void *lib, const struct pl_symbol *list, size_t nr, void *table)
{
	size_t i;

	for (i = 0; i < nr; i++) {
		void *fn = dlsym(lib, list[i].name);

		if (!fn)
			return list[i].name;
		/* a pointer to data may not be assigned to one to a function; its bytes may */
		memcpy((char *)table + list[i].offset, &fn, sizeof(fn));
	}
	return NULL;
}
