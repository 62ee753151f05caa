/* SPDX-License-Identifier: MIT */
/* Variables that clean up after themselves when they go out of scope. */
#ifndef PL_CLEANUP_H
#define PL_CLEANUP_H

#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PL_AUTO_FREE __attribute__((cleanup(pl_cleanup_free)))
#define PL_AUTO_FD __attribute__((cleanup(pl_cleanup_fd)))
#define PL_AUTO_FILE __attribute__((cleanup(pl_cleanup_file)))
#define PL_AUTO_JSON __attribute__((cleanup(pl_cleanup_json)))

static inline void pl_cleanup_free(void *p)
{
	free(*(void **)p);
}

static inline void pl_cleanup_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

static inline void pl_cleanup_file(FILE **f)
{
	if (*f)
		fclose(*f);
}

static inline void pl_cleanup_json(struct json_object **j)
{
	json_object_put(*j);
}

#endif
