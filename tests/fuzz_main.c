// SPDX-License-Identifier: MIT
/* main() of the fuzz programs. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define NR_FILES 64

static uint64_t state;

uint64_t fuzz_rnd(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
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

int main(int argc, char **argv)
{
	time_t end = time(NULL) + (argc > 2 ? atoi(argv[2]) : 3);
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
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
	if (fuzz_program.begin)
		fuzz_program.begin();
	for (; time(NULL) < end || nr < fuzz_program.least; nr++) {
		LLVMFuzzerTestOneInput(data, fuzz_program.make(data, fuzz_program.room));
		if (fuzz_program.after)
			fuzz_program.after(nr);
	}
	printf("%lu inputs, seed %lu\n", nr, (unsigned long)seed);
	if (fuzz_program.end)
		fuzz_program.end();
	free(data);
	return 0;
}
