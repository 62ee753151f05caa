/* SPDX-License-Identifier: MIT */
/* A copy that is put into a folder. */
#ifndef PL_FOLDER_H
#define PL_FOLDER_H

#include <stddef.h>

/* The last part of a path, without a slash at its end; empty for "/". */
struct pl_folder_base {
	char text[256];
};
struct pl_folder_base pl_folder_base(const char *path);

/*
 * If *dst is a folder, makes *dst the path of @name in it, kept in @buf. Returns 0 or a negative errno, which was
 * said: a path that ends in a slash must be a folder.
 */
int pl_folder_enter(const char **dst, const char *name, char *buf, size_t size);

#endif
