/* SPDX-License-Identifier: MIT */
/*
 * Our own interface behind the calls of cufile_min.h, found at run time, so that one loop measures
 * the engine by itself and through cuFile.
 */
#ifndef PEERLANE_BENCH_NATIVE_MIN_H
#define PEERLANE_BENCH_NATIVE_MIN_H

#include "cufile_min.h"

/**
 * pl_native_min_open - load a libpeerlane.so.0; it stays loaded
 * @cf: filled in with calls that pass on to it, once per process
 * @path: the library
 * @why: what is missing, valid until the next call of the dynamic loader
 *
 * A call that fails says on stderr what the library has to say about it, and gives a positive errno
 * where cuFile gives its code. The version is 0: the library has none to ask for.
 *
 * Return: 0; -ENOENT without the library, -ENOSYS when it lacks a call. @why is set on failure.
 */
int pl_native_min_open(struct pl_cufile_min *cf, const char *path, const char **why);

#endif
