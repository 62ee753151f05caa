/* SPDX-License-Identifier: MIT */
/*
 * Fuzz programs: what one takes is LLVMFuzzerTestOneInput(), which libFuzzer can call as well (FUZZ_LIB). Without
 * it main() of fuzz_main.c calls it, with inputs that the program makes by random numbers:
 *
 *   PROGRAM [SEED [SECONDS]]	at least as many inputs as it wants, and for so long (3)
 *				SEED is by default $FUZZ_SEED, or else today's date
 *   PROGRAM SEED 0 FOLDER	writes some inputs there, for libFuzzer to begin with
 */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/**
 * struct fuzz - a program
 * @room: bytes of its longest input
 * @least: inputs there must be
 * @begin: called first; may be NULL
 * @make: makes an input, returns its length
 * @after: called after each input, with the number of those before; may be NULL
 * @end: called last, prints what was done; may be NULL
 */
struct fuzz {
	size_t room;
	unsigned long least;
	void (*begin)(void);
	size_t (*make)(uint8_t *out, size_t room);
	void (*after)(unsigned long nr);
	void (*end)(void);
};

/* Each program has one. */
extern const struct fuzz fuzz_program;

/* A random number of the seed. */
uint64_t fuzz_rnd(void);

/*
 * Change a text a few times, up to @most: single bytes, digits, runs taken out, runs of @pieces put in. What stands
 * before @first stays. @pieces has more than 8 letters, the text more than @first bytes. Returns its new length.
 */
size_t fuzz_change_text(uint8_t *text, size_t first, size_t len, size_t room, const char *pieces,
			unsigned int most);

#endif
