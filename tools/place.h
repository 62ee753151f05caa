/* SPDX-License-Identifier: MIT */
/* Where a file lives: file system, mount, inode. */
#ifndef PL_PLACE_H
#define PL_PLACE_H

#include "report.h"

/* Adds what is known of the open file fd, which was named path, to the report. */
void pl_place_report(struct pl_report *r, const char *path, int fd);

#endif
