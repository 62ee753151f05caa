// SPDX-License-Identifier: MIT
/*
 * No libcuda, a file that is none, and a libcuda that finds no GPU: asked for by name each is
 * -ENODEV with a sentence; otherwise the simulator serves.
 */
#include "cuda_api.h"
#include "fault.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static void try(const char *libcuda, const char *word)
{
	struct peerlane_options opt = { .size = sizeof(opt), .backend = "cuda" };
	struct peerlane_error_info info = { .size = sizeof(info) };
	struct peerlane *ctx = NULL;

	CASE("PEERLANE_LIBCUDA=%s", libcuda);
	setenv("PEERLANE_LIBCUDA", libcuda, 1);
	CHECK_EQ(peerlane_open(&ctx, &opt), -ENODEV);
	CHECK(!ctx);
	CHECK_EQ(peerlane_error(&info), 0);
	CHECK_EQ(info.err, -ENODEV);
	CHECK(strlen(info.text) > 10);
	CHECK(!word || strstr(info.text, word));
	printf("%s: %s\n", libcuda, info.text);
	for (int i = 0; i < 3; i++) {
		opt.backend = i ? NULL : "auto";
		CHECK_EQ(peerlane_open(&ctx, i == 2 ? NULL : &opt), 0);
		CHECK(!strcmp(peerlane_backend(ctx), "sim"));
		CHECK(peerlane_gpu_count(ctx) >= 1);
		peerlane_close(ctx);
	}
	opt.backend = "nonsense";
	CHECK_EQ(peerlane_open(&ctx, &opt), -EINVAL);
}

static void write_library(const char *source, const char *library)
{
	char command[512];
	FILE *f = fopen(source, "w");

	CHECK(f);
	fprintf(f, "int cuDriverGetVersion(int *v) { *v = 12080; return 0; }\n");
	fprintf(f, "int cuGetErrorName(int e, const char **s) { *s = \"NO_DEVICE\"; return 0; }\n");
	/* CUDA_ERROR_NO_DEVICE is what a driver without a GPU says. */
#define X(member, symbol, args, required)                                                          \
	if (strcmp(symbol, "cuDriverGetVersion") != 0 && strcmp(symbol, "cuGetErrorName") != 0)    \
		fprintf(f, "int %s(void) { return 100; }\n", symbol);
	PL_CUDA_FUNCTIONS(X)
#undef X
	fclose(f);
	snprintf(command, sizeof(command), "cc -shared -fPIC -o %s %s 2>/dev/null", library,
		 source);
	if (system(command)) /* NOLINT(cert-env33-c) */
		printf("no compiler for a library without a GPU: that case is left out\n");
}

int main(void)
{
	fault_begin(20);
	try("/nonexistent", NULL);
	fault_make_file(fault_path("not-a-library.so"), 5000, 1);
	try(fault_path("not-a-library.so"), NULL);
	write_library(fault_path("empty.c"), fault_path("libempty.so"));
	if (!access(fault_path("libempty.so"), R_OK))
		try(fault_path("libempty.so"), "NO_DEVICE");
	return 0;
}
