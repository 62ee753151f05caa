// SPDX-License-Identifier: MIT
/* Element types: their names in files and their sizes. */
#include <peerlane/model.h>

#include "error.h"

#include <string.h>

static const struct {
	const char *name;
	unsigned int bits;
} types[PEERLANE_DTYPE_NR] = {
	[PEERLANE_BOOL] = { "BOOL", 8 },
	[PEERLANE_F4] = { "F4", 4 },
	[PEERLANE_F6_E2M3] = { "F6_E2M3", 6 },
	[PEERLANE_F6_E3M2] = { "F6_E3M2", 6 },
	[PEERLANE_U8] = { "U8", 8 },
	[PEERLANE_I8] = { "I8", 8 },
	[PEERLANE_F8_E5M2] = { "F8_E5M2", 8 },
	[PEERLANE_F8_E4M3] = { "F8_E4M3", 8 },
	[PEERLANE_F8_E8M0] = { "F8_E8M0", 8 },
	[PEERLANE_F8_E4M3FNUZ] = { "F8_E4M3FNUZ", 8 },
	[PEERLANE_F8_E5M2FNUZ] = { "F8_E5M2FNUZ", 8 },
	[PEERLANE_I16] = { "I16", 16 },
	[PEERLANE_U16] = { "U16", 16 },
	[PEERLANE_F16] = { "F16", 16 },
	[PEERLANE_BF16] = { "BF16", 16 },
	[PEERLANE_I32] = { "I32", 32 },
	[PEERLANE_U32] = { "U32", 32 },
	[PEERLANE_F32] = { "F32", 32 },
	[PEERLANE_C64] = { "C64", 64 },
	[PEERLANE_F64] = { "F64", 64 },
	[PEERLANE_I64] = { "I64", 64 },
	[PEERLANE_U64] = { "U64", 64 },
};

const char *peerlane_dtype_name(enum peerlane_dtype dtype)
{
	return (unsigned int)dtype < PEERLANE_DTYPE_NR ? types[dtype].name : NULL;
}

unsigned int peerlane_dtype_bits(enum peerlane_dtype dtype)
{
	return (unsigned int)dtype < PEERLANE_DTYPE_NR ? types[dtype].bits : 0;
}

int peerlane_dtype_find(const char *name)
{
	if (!name)
		return pl_fail(-EINVAL, "the name of the type is NULL");
	for (int i = 0; i < PEERLANE_DTYPE_NR; i++)
		if (!strcmp(types[i].name, name))
			return i;
	return pl_fail(-ENOENT, "there is no element type \"%.40s\"", name);
}
