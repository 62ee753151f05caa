// SPDX-License-Identifier: MIT
/* main() of the fuzz programs. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NR_FILES 64

static uint64_t state;

uint64_t fuzz_rnd(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}

static void change_digit(uint8_t *text, size_t at, size_t len)
{
	while (at < len && (text[at] < '0' || text[at] > '9'))
		at++;
	if (at < len)
		text[at] = (uint8_t)('0' + fuzz_rnd() % 10);
}

size_t fuzz_change_text(uint8_t *text, size_t first, size_t len, size_t room, const char *pieces,
			unsigned int most)
{
	const size_t nr = strlen(pieces);

	for (uint64_t n = fuzz_rnd() % most; n; n--) {
		size_t at = first + fuzz_rnd() % (len - first), run = 1 + fuzz_rnd() % 8;

		switch (fuzz_rnd() % 5) {
		case 0:
			text[at] = (uint8_t)fuzz_rnd();
			break;
		case 1:
			text[at] = (uint8_t)pieces[fuzz_rnd() % nr];
			break;
		case 2:
			change_digit(text, at, len);
			break;
		case 3:
			if (at + run < len) {
				memmove(text + at, text + at + run, len - at - run);
				len -= run;
			}
			break;
		default:
			if (len + run < room) {
				memmove(text + at + run, text + at, len - at);
				memcpy(text + at, pieces + fuzz_rnd() % (nr - 8), run);
				len += run;
			}
			break;
		}
	}
	return len;
}

static int write_files(const char *folder, uint8_t *data)
{
	for (int i = 0; i < NR_FILES; i++) {
		size_t bytes = fuzz_program.make(data, fuzz_program.room);
		char path[512];
		FILE *file;

		snprintf(path, sizeof(path), "%s/seed-%d", folder, i);
		file = fopen(path, "we");
		if (!file || fwrite(data, 1, bytes, file) != bytes || fclose(file))
			return 1;
	}
	return 0;
}

/* Other inputs every day, and the same ones for all who run it that day. */
static uint64_t default_seed(void)
{
	const char *given = getenv("FUZZ_SEED");
	time_t now = time(NULL);
	struct tm day;

	if (given && *given)
		return strtoull(given, NULL, 10);
	gmtime_r(&now, &day);
	return (uint64_t)(day.tm_year + 1900) * 10000 + (uint64_t)(day.tm_mon + 1) * 100 +
	       (uint64_t)day.tm_mday;
}

int main(int argc, char **argv)
{
	time_t end = time(NULL) + (argc > 2 ? atoi(argv[2]) : 3);
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : default_seed();
	uint8_t *data = malloc(fuzz_program.room);
	unsigned long nr = 0;
	int failed = 0;

	if (!data)
		return 1;
	state = seed * 0x9e3779b97f4a7c15ull + 1;
	if (argc > 3) {
		failed = write_files(argv[3], data);
		free(data);
		return failed;
	}
	/* Before anything can go wrong. */
	printf("seed %lu; FUZZ_SEED=%lu repeats it\n", (unsigned long)seed, (unsigned long)seed);
	fflush(stdout);
	if (fuzz_program.begin)
		fuzz_program.begin();
	for (; time(NULL) < end || nr < fuzz_program.least; nr++) {
		LLVMFuzzerTestOneInput(data, fuzz_program.make(data, fuzz_program.room));
		if (fuzz_program.after)
			fuzz_program.after(nr);
	}
	printf("%lu inputs\n", nr);
	if (fuzz_program.end)
		fuzz_program.end();
	free(data);
	return 0;
}
