/* SPDX-License-Identifier: MIT */
/* Small text files of /proc and /sys. */
#include "host.h"

#include "cleanup.h"

#include <dirent.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>

__attribute__((format(printf, 1, 0))) static struct pl_host_path vpath(const char *fmt, va_list ap)
{
	const char *root = getenv("PEERLANE_ROOT");
	struct pl_host_path p;
	int len = snprintf(p.text, sizeof(p.text), "%s", root ? root : "");

	if (len >= 0 && (size_t)len < sizeof(p.text))
		vsnprintf(p.text + len, sizeof(p.text) - (size_t)len, fmt, ap);
	return p;
}

struct pl_host_path pl_host_path(const char *fmt, ...)
{
	struct pl_host_path p;
	va_list ap;

	va_start(ap, fmt);
	p = vpath(fmt, ap);
	va_end(ap);
	return p;
}

bool pl_host_line(char *buf, size_t size, const char *fmt, ...)
{
	PL_AUTO_FILE FILE *f = NULL;
	struct pl_host_path p;
	size_t len;
	va_list ap;

	va_start(ap, fmt);
	p = vpath(fmt, ap);
	va_end(ap);
	buf[0] = 0;
	f = fopen(p.text, "re");
	if (!f || !fgets(buf, (int)size, f))
		return false;
	len = strcspn(buf, "\n");
	while (len && buf[len - 1] == ' ')
		len--;
	buf[len] = 0;
	return true;
}

bool pl_host_link(char *buf, size_t size, const char *fmt, ...)
{
	struct pl_host_path p;
	char target[PATH_MAX];
	const char *last;
	ssize_t len;
	va_list ap;

	va_start(ap, fmt);
	p = vpath(fmt, ap);
	va_end(ap);
	buf[0] = 0;
	len = readlink(p.text, target, sizeof(target) - 1);
	if (len < 0)
		return false;
	target[len] = 0;
	last = strrchr(target, '/');
	snprintf(buf, size, "%s", last ? last + 1 : target);
	return true;
}

bool pl_host_exists(const char *fmt, ...)
{
	struct pl_host_path p;
	struct stat st;
	va_list ap;

	va_start(ap, fmt);
	p = vpath(fmt, ap);
	va_end(ap);
	return stat(p.text, &st) == 0;
}

int pl_host_list(const char *dir, pl_host_entry_fn fn, void *arg)
{
	struct dirent **entries;
	int nr = scandir(pl_host_path("%s", dir).text, &entries, NULL, alphasort);
	int given = 0;

	for (int i = 0; i < nr; i++) {
		if (entries[i]->d_name[0] != '.') {
			given++;
			if (fn)
				fn(arg, entries[i]->d_name);
		}
		free(entries[i]);
	}
	if (nr >= 0)
		free(entries);
	return given;
}
