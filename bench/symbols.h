/* SPDX-License-Identifier: MIT */
/* Looks up the calls of a library that was loaded at run time. */
#ifndef PEERLANE_BENCH_SYMBOLS_H
#define PEERLANE_BENCH_SYMBOLS_H

#include <stddef.h>

struct pl_symbol {
	const char *name;
	size_t offset; /* of the function pointer, in the table of calls */
};

/**
 * pl_symbols_load - fill in a table of function pointers
 * @lib: the library, as dlopen() gave it
 * @list: what to look up
 * @nr: how many those are
 * @table: the table
 *
 * Return: NULL, or the name of the first one that is missing.
 */
const char *pl_symbols_load(void *lib, const struct pl_symbol *list, size_t nr, void *table);

#endif
