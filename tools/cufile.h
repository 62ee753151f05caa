/* SPDX-License-Identifier: MIT */
/* The configuration the drop-in libcufile.so.0 would run with. */
#ifndef PL_CUFILE_H
#define PL_CUFILE_H

#include "report.h"

/* Every setting, its value, where that came from and what it does. */
void pl_cufile_report(struct pl_report *r);

#endif
