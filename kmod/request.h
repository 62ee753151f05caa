/* SPDX-License-Identifier: MIT */
/* What the calls of all our devices check alike. */
#ifndef PEERLANE_REQUEST_H
#define PEERLANE_REQUEST_H

#include <linux/string.h>

/* Every member called reserved must be zero. */
#define reserved_clear(request) (!memchr_inv((request)->reserved, 0, sizeof((request)->reserved)))

#endif
