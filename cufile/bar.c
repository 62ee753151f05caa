// SPDX-License-Identifier: MIT
/* The size of BAR 1, as the kernel tells it. */
#include "bar.h"

#include <peerlane/gpu.h>

#include <inttypes.h>
#include <stdio.h>

#define NR_LINES 6 /* those after it are no BARs of the device's own */
#define IS_MEMORY 0x200u

/*
 * The file has a line for each BAR: first address, last address, flags. A 64-bit BAR takes two lines
 * and the second is empty, so BAR 1 is not line 1 where BAR 0 has 64 bits, as on Hopper.
 */
size_t pl_cf_bar_read(const char *path)
{
	uint64_t start, end, flags;
	size_t kb = 0;
	FILE *f = fopen(path, "re");

	if (!f)
		return 0;
	for (int line = 0, found = 0; line < NR_LINES && found < 2; line++) {
		if (fscanf(f, "%" SCNx64 " %" SCNx64 " %" SCNx64, &start, &end, &flags) != 3)
			break;
		if (!(flags & IS_MEMORY) || end <= start)
			continue;
		found++;
		kb = found == 2 ? (size_t)((end - start + 1) >> 10) : 0;
	}
	fclose(f);
	return kb;
}

size_t pl_cf_bar_kb(struct peerlane *ctx, int gpu)
{
	struct peerlane_gpu_info info = { .size = sizeof(info) };
	char path[80];

	if (peerlane_gpu_get_info(ctx, gpu, &info) || !info.pci[0])
		return 0;
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/resource", info.pci);
	return pl_cf_bar_read(path);
}
