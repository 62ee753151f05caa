/* SPDX-License-Identifier: MIT */
/* Batches. */
#ifndef PL_CF_BATCH_H
#define PL_CF_BATCH_H

void pl_cf_batches_clear(void);
void pl_cf_batches_forget(void);

#endif
