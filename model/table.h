/* SPDX-License-Identifier: MIT */
/* All tensors of a model as the caller sees them, with names and shapes that lie one after the other. */
#ifndef PL_MODEL_TABLE_H
#define PL_MODEL_TABLE_H

#include <peerlane/model.h>

/* Fills @m->table, once the entries are there. */
int pl_table_make(struct peerlane_model *m);
void pl_table_free(struct peerlane_model_table *table);

#endif
