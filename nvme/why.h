/* SPDX-License-Identifier: MIT */
/* Why a controller could not be opened, in words; see peerlane_nvme_why(). */
#ifndef PL_NVME_WHY_H
#define PL_NVME_WHY_H

/* Says it, for this thread, where more is known than an errno tells. */
void pl_nvme_why(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* An open ended with @err, which is given back: if nobody has said why, what the errno means. */
int pl_nvme_why_opened(int err);

#endif
