/* SPDX-License-Identifier: MIT */
/* A new file that takes the place of an old one when it is complete, and not before. */
#ifndef PL_MODEL_REPLACE_H
#define PL_MODEL_REPLACE_H

#include <stdbool.h>

struct pl_replace {
	char *path;	  /* symbolic links followed */
	const char *name; /* inside of @path */
	char *temp;	  /* name, or NULL */
	int dir_fd;	  /* of their folder */
	int fd;		  /* of the new file, open for reading and writing */
};

/* Makes the temporary file beside @path. */
int pl_replace_begin(struct pl_replace *r, const char *path);
/* Gives it the name of the old one. @sync: both survive a power failure from then on. */
int pl_replace_commit(struct pl_replace *r, bool sync);
/* Removes it unless it was given that name, and frees what is held. */
void pl_replace_end(struct pl_replace *r);

#endif
