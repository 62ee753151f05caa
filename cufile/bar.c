// SPDX-License-Identifier: MIT
/* The size of BAR 1, as the kernel tells it. */
#include "bar.h"

#include <peerlane/gpu.h>

#include <inttypes.h>
#include <stdio.h>

/* A line for each BAR: its first and its last address, and flags. */
size_t pl_cf_bar_read(const char *path)
{
	FILE *f = fopen(path, "re");
	uint64_t start = 0, end = 0;
	char line[80] = "";

	if (!f)
		return 0;
	for (int bar = 0; bar <= 1; bar++)
		if (!fgets(line, sizeof(line), f))
			line[0] = '\0';
	if (sscanf(line, "%" SCNx64 " %" SCNx64, &start, &end) != 2)
		start = end = 0;
	fclose(f);
	return end > start ? (size_t)((end - start + 1) >> 10) : 0;
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
