// SPDX-License-Identifier: MIT
/* What keeps users without privilege from a controller of peerlane_nvme, in words. */
#include "confined.h"

#include <stdio.h>
#include <string.h>

static const struct {
	const char *word, *text;
} reasons[] = {
	{ "untranslated", "no IOMMU translates (boot with intel_iommu=on iommu.passthrough=0)" },
	{ "lazy", "the IOMMU forgets late (boot with iommu.strict=1)" },
	{ "shared-group", "its IOMMU group has other devices (try another slot)" },
	{ "interrupts", "no interrupt remapping (a setting of the firmware)" },
};

void pl_nvme_confined_text(const char *words, char *text, size_t size)
{
	const char *before = ": ";
	size_t len;

	if (!strcmp(words, "yes")) {
		snprintf(text, size, "nothing but the right to open its device");
		return;
	}
	len = (size_t)snprintf(text, size, "CAP_SYS_RAWIO");
	for (size_t i = 0; i < sizeof(reasons) / sizeof(*reasons); i++)
		if (strstr(words, reasons[i].word) && len < size) {
			len += (size_t)snprintf(text + len, size - len, "%s%s", before,
						reasons[i].text);
			before = "; ";
		}
}
