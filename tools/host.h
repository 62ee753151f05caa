/* SPDX-License-Identifier: MIT */
/* Small text files of /proc and /sys. */
#ifndef PL_HOST_H
#define PL_HOST_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

struct pl_host_path {
	char text[PATH_MAX];
};

/* Path below PEERLANE_ROOT, so that another machine's /proc and /sys can be looked at. */
struct pl_host_path pl_host_path(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* First line of a file, or "" where there is none; returns whether it could be read. */
bool pl_host_line(char *buf, size_t size, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Last component of what a link points to; returns whether it is a link. */
bool pl_host_link(char *buf, size_t size, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

bool pl_host_exists(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Calls fn with the name of each entry of a directory, in order; returns how many. */
typedef void (*pl_host_entry_fn)(void *arg, const char *name);
int pl_host_list(const char *dir, pl_host_entry_fn fn, void *arg);

#endif
