/* SPDX-License-Identifier: MIT */
/*
 * Small cases, each run in a process of its own against whatever library is loaded. A case says
 * what it saw in a few words; they are compared with what ours must give, and printed beside what
 * another library gives.
 */
#ifndef TESTS_CUFILE_CASE_H
#define TESTS_CUFILE_CASE_H

#include "cf.h"

struct cf_case {
	struct cf_case *next;
	const char *name;
	const char *want; /* of our library */
	const char *real; /* of NVIDIA's 1.15.1, where that is another: see recorded-1.15.1.txt */
	const char *note; /* why */
	void (*run)(void);
};

void cf_case_add(struct cf_case *c);
/* Adds words to what the case saw. */
void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* A status: its code; with that of CUDA where it is another than 0. */
void say_status(CUfileError_t status);
/* A count; or -1 and errno. */
void say_count(ssize_t n);

#define CASE_BUT(id, text, wanted, real_gives, reason)                                             \
	static void id(void);                                                                      \
	__attribute__((constructor)) static void id##_add(void)                                    \
	{                                                                                          \
		static struct cf_case c = { .name = (text),                                        \
					    .want = (wanted),                                      \
					    .real = (real_gives),                                  \
					    .note = (reason),                                      \
					    .run = id };                                           \
		cf_case_add(&c);                                                                   \
	}                                                                                          \
	static void id(void)

#define CASE(id, text, wanted) CASE_BUT(id, text, wanted, NULL, NULL)

#endif
