/* SPDX-License-Identifier: MIT */
/*
 * What the tests of libcufile share: the library under test, loaded by name so that it can be any
 * (CUFILE_LIB names it, else the one that was built), and a GPU, real or simulated.
 */
#ifndef TESTS_CUFILE_CF_H
#define TESTS_CUFILE_CF_H

#include "../../cufile/cufile.h"

#include <peerlane/gpu.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#undef cuFileDriverClose

#define KIB 1024ul
#define MIB (1024ul * 1024)

/* All public functions: those of 1.15, and what later versions added. */
#define CF_FUNCTIONS_1_15(X)                                                                       \
	X(cuFileBatchIOCancel)                                                                     \
	X(cuFileBatchIODestroy)                                                                    \
	X(cuFileBatchIOGetStatus)                                                                  \
	X(cuFileBatchIOSetUp)                                                                      \
	X(cuFileBatchIOSubmit)                                                                     \
	X(cuFileBufDeregister)                                                                     \
	X(cuFileBufRegister)                                                                       \
	X(cuFileDriverClose)                                                                       \
	X(cuFileDriverClose_v2)                                                                    \
	X(cuFileDriverGetProperties)                                                               \
	X(cuFileDriverOpen)                                                                        \
	X(cuFileDriverSetMaxCacheSize)                                                             \
	X(cuFileDriverSetMaxDirectIOSize)                                                          \
	X(cuFileDriverSetMaxPinnedMemSize)                                                         \
	X(cuFileDriverSetPollMode)                                                                 \
	X(cuFileGetBARSizeInKB)                                                                    \
	X(cuFileGetParameterBool)                                                                  \
	X(cuFileGetParameterMinMaxValue)                                                           \
	X(cuFileGetParameterPosixPoolSlabArray)                                                    \
	X(cuFileGetParameterSizeT)                                                                 \
	X(cuFileGetParameterString)                                                                \
	X(cuFileGetStatsL1)                                                                        \
	X(cuFileGetStatsL2)                                                                        \
	X(cuFileGetStatsL3)                                                                        \
	X(cuFileGetStatsLevel)                                                                     \
	X(cuFileGetVersion)                                                                        \
	X(cuFileHandleDeregister)                                                                  \
	X(cuFileHandleRegister)                                                                    \
	X(cuFileRead)                                                                              \
	X(cuFileReadAsync)                                                                         \
	X(cuFileSetParameterBool)                                                                  \
	X(cuFileSetParameterPosixPoolSlabArray)                                                    \
	X(cuFileSetParameterSizeT)                                                                 \
	X(cuFileSetParameterString)                                                                \
	X(cuFileSetStatsLevel)                                                                     \
	X(cuFileStatsReset)                                                                        \
	X(cuFileStatsStart)                                                                        \
	X(cuFileStatsStop)                                                                         \
	X(cuFileStreamDeregister)                                                                  \
	X(cuFileStreamRegister)                                                                    \
	X(cuFileUseCount)                                                                          \
	X(cuFileWrite)                                                                             \
	X(cuFileWriteAsync)

#define CF_FUNCTIONS_LATER(X)                                                                      \
	X(cuFileDriverGetP2PFlags)                                                                 \
	X(cuFileDriverSetP2PFlags)                                                                 \
	X(cuFileExportPCIeTopology)                                                                \
	X(cuFileGetParameterGpuBounceBufferSlabArray)                                              \
	X(cuFileReadv)                                                                             \
	X(cuFileSetParameterGpuBounceBufferSlabArray)                                              \
	X(cuFileWritev)

struct cf_library {
#define CF_MEMBER(name) __typeof__(&(name)) name;
	CF_FUNCTIONS_1_15(CF_MEMBER)
	CF_FUNCTIONS_LATER(CF_MEMBER)
#undef CF_MEMBER
};

extern struct cf_library cf;

/* Loads the library; ends the program with 77 when there is none. */
void cf_load(void);
/* The path it was loaded from. */
const char *cf_path(void);

/* A context on the same GPU, for memory and streams; made when first asked for. On CUDA it makes
 * the GPU's primary context current, as a program that uses CUDA would have done. */
struct peerlane *cf_gpu(void);
void cf_gpu_close(void);
char *cf_alloc(size_t bytes);
void cf_free(void *addr);
/* A function of the CUDA driver; NULL on the simulator. */
void *cf_cuda(const char *name);
/* Byte i of the pattern @seed. */
void cf_pattern(void *mem, size_t bytes, off_t offset, unsigned int seed);
void cf_fill(void *gpu, size_t bytes, off_t offset, unsigned int seed);
/* The first byte of GPU memory that differs from the pattern, or @bytes. */
size_t cf_differs(const void *gpu, size_t bytes, off_t offset, unsigned int seed);
/* The same of a file, read the plain way. */
size_t cf_file_differs(const char *path, size_t bytes, off_t offset, unsigned int seed);

/* Path of @name in a directory of the program's own, in $CF_DIR or /tmp; good until eight more were
 * asked for. */
const char *cf_file(const char *name);
/* A file with the pattern; gives back a descriptor. */
int cf_make(const char *name, size_t bytes, unsigned int seed, int flags);
void cf_remove_dir(void);
/* A handle, or NULL. */
CUfileHandle_t cf_register(int fd);

/* The library under test is ours. */
bool cf_is_ours(void);

#endif
