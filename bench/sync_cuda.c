// SPDX-License-Identifier: MIT
/* Loads the CUDA driver for sync_cost, and a kernel that takes its time. */
#include "sync_cuda.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define X(symbol, args) int(*symbol) args;
CALLS(X)
#undef X

/* Waits @p_ns, then fills @p_words words at @p_dst; one block. */
static const char ptx[] = ".version 6.3\n.target sm_75\n.address_size 64\n"
			  ".visible .entry spin(.param .u64 p_dst, .param .u64 p_words,\n"
			  "	.param .u32 p_value, .param .u64 p_ns)\n"
			  "{\n"
			  "	.reg .pred %p<3>;\n"
			  "	.reg .b32 %r<4>;\n"
			  "	.reg .b64 %rd<10>;\n"
			  "	ld.param.u64 %rd1, [p_dst];\n"
			  "	cvta.to.global.u64 %rd1, %rd1;\n"
			  "	ld.param.u64 %rd2, [p_words];\n"
			  "	ld.param.u32 %r1, [p_value];\n"
			  "	ld.param.u64 %rd3, [p_ns];\n"
			  "	mov.u64 %rd4, %globaltimer;\n"
			  "WAIT:\n"
			  "	mov.u64 %rd5, %globaltimer;\n"
			  "	sub.u64 %rd6, %rd5, %rd4;\n"
			  "	setp.lt.u64 %p1, %rd6, %rd3;\n"
			  "	@%p1 bra WAIT;\n"
			  "	mov.u32 %r2, %tid.x;\n"
			  "	cvt.u64.u32 %rd7, %r2;\n"
			  "	mov.u32 %r3, %ntid.x;\n"
			  "	cvt.u64.u32 %rd8, %r3;\n"
			  "FILL:\n"
			  "	setp.ge.u64 %p2, %rd7, %rd2;\n"
			  "	@%p2 bra END;\n"
			  "	shl.b64 %rd9, %rd7, 2;\n"
			  "	add.u64 %rd9, %rd9, %rd1;\n"
			  "	st.global.u32 [%rd9], %r1;\n"
			  "	add.u64 %rd7, %rd7, %rd8;\n"
			  "	bra FILL;\n"
			  "END:\n"
			  "	ret;\n"
			  "}\n";

void *primary, *second;
void *ours;
void *blocking, *apart;
void *event;
unsigned char *pinned, *pageable;
static void *kernel;

void need(int result, const char *what)
{
	if (!result)
		return;
	printf("%s: CUDA error %d\n", what, result);
	exit(1);
}

int spin(void *stream, uint64_t dst, size_t bytes, unsigned char value, uint64_t ns)
{
	uint32_t word = value * 0x01010101u;
	uint64_t words = bytes / 4;
	void *args[] = { &dst, &words, &word, &ns };

	return cuLaunchKernel(kernel, 1, 1, 1, 256, 1, 1, 0, stream, args, NULL);
}

int set_sync(uint64_t addr)
{
	const unsigned int yes = 1;

	return cuPointerSetAttribute(&yes, PTR_SYNC_MEMOPS, addr);
}

bool load_cuda(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW), *sym;

	if (!lib)
		return false;
#define X(symbol, args)                                                                            \
	sym = dlsym(lib, #symbol);                                                                 \
	if (!sym) {                                                                                \
		printf("no %s\n", #symbol);                                                        \
		return false;                                                                      \
	}                                                                                          \
	memcpy(&symbol, &sym, sizeof(sym));
	CALLS(X)
#undef X
	return true;
}

void start_cuda(void)
{
	char name[80] = "";
	int version = 0;
	void *module, *host;

	NEED(cuInit(0));
	cuDriverGetVersion(&version);
	cuDeviceGetName(name, sizeof(name), 0);
	printf("%s, CUDA %d\n", name, version);
	NEED(cuDevicePrimaryCtxRetain(&primary, 0));
	NEED(cuCtxCreate_v2(&second, 0, 0));
	NEED(cuCtxSetCurrent(primary));
	NEED(cuStreamCreateWithPriority(&ours, 1, -5));
	NEED(cuStreamCreateWithPriority(&blocking, 0, 0));
	NEED(cuStreamCreateWithPriority(&apart, 1, 0));
	NEED(cuEventCreate(&event, 2));
	NEED(cuModuleLoadData(&module, ptx));
	NEED(cuModuleGetFunction(&kernel, module, "spin"));
	NEED(cuMemHostAlloc(&host, LARGE, 1));
	pinned = host;
	pageable = malloc(LARGE);
}
