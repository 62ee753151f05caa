/* SPDX-License-Identifier: MIT */
/* A copy that is put into a folder. */
#include "folder.h"

#include "message.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct pl_folder_base pl_folder_base(const char *path)
{
	struct pl_folder_base base;
	size_t len = strlen(path);
	size_t from;

	while (len && path[len - 1] == '/')
		len--;
	for (from = len; from && path[from - 1] != '/'; from--)
		;
	snprintf(base.text, sizeof(base.text), "%.*s", (int)(len - from), path + from);
	return base;
}

int pl_folder_enter(const char **dst, const char *name, char *buf, size_t size)
{
	const size_t len = strlen(*dst);
	const int slash = len && (*dst)[len - 1] == '/';
	struct stat st;

	if (stat(*dst, &st) || !S_ISDIR(st.st_mode)) {
		if (!slash)
			return 0;
		pl_message_error("%s: is not a folder", *dst);
		return -ENOTDIR;
	}
	if (snprintf(buf, size, "%s%s%s", *dst, slash ? "" : "/", name) >= (int)size) {
		pl_message_error("%s: %s", *dst, strerror(ENAMETOOLONG));
		return -ENAMETOOLONG;
	}
	*dst = buf;
	return 0;
}
