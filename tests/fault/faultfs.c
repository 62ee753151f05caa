// SPDX-License-Identifier: MIT
/*
 * faultfs DIRECTORY MOUNTPOINT: shows the files of a directory, with faults in them. The settings
 * are words in the file DIRECTORY/.faults, read again at each request: "read_error=BYTE",
 * "write_error=BYTE" (and "errno=N"), "short=1" for reads that come short of what there is,
 * "delay_ms=N" before each, and "hang=1" until it is taken out. A request of an io_uring meets
 * them like any other.
 */
#define FUSE_USE_VERSION 35
#include <fuse3/fuse.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *base;

struct faults {
	long long read_error, write_error, delay_ms, hang, error, is_short;
};

static void number(const char *text, const char *word, long long *out)
{
	const char *at = strstr(text, word);

	if (at)
		*out = atoll(at + strlen(word));
}

static struct faults faults_now(void)
{
	struct faults f = { .read_error = -1, .write_error = -1, .error = EIO };
	char path[512], text[256] = "";
	int fd;

	snprintf(path, sizeof(path), "%s/.faults", base);
	fd = open(path, O_RDONLY);
	if (fd >= 0) {
		(void)!read(fd, text, sizeof(text) - 1);
		close(fd);
	}
	number(text, "read_error=", &f.read_error);
	number(text, "write_error=", &f.write_error);
	number(text, "delay_ms=", &f.delay_ms);
	number(text, "hang=", &f.hang);
	number(text, "errno=", &f.error);
	number(text, "short=", &f.is_short);
	return f;
}

static struct faults meet(void)
{
	struct faults f = faults_now();

	if (f.delay_ms)
		usleep((useconds_t)f.delay_ms * 1000);
	while (f.hang) {
		usleep(20000);
		f = faults_now();
	}
	return f;
}

static void name(char *out, size_t bytes, const char *path)
{
	snprintf(out, bytes, "%s%s", base, path);
}

static int fs_getattr(const char *path, struct stat *sb, struct fuse_file_info *fi)
{
	char real[512];

	(void)fi;
	name(real, sizeof(real), path);
	return lstat(real, sb) ? -errno : 0;
}

static int fs_open(const char *path, struct fuse_file_info *fi)
{
	char real[512];
	int fd;

	name(real, sizeof(real), path);
	fd = open(real, fi->flags & ~(O_DIRECT | O_NOFOLLOW));
	if (fd < 0)
		return -errno;
	fi->fh = (uint64_t)fd;
	return 0;
}

static int fs_release(const char *path, struct fuse_file_info *fi)
{
	(void)path;
	close((int)fi->fh);
	return 0;
}

static int fs_truncate(const char *path, off_t size, struct fuse_file_info *fi)
{
	char real[512];

	(void)fi;
	name(real, sizeof(real), path);
	return truncate(real, size) ? -errno : 0;
}

/* How many of @bytes may pass; negative errno if the first may not. */
static long long pass(size_t bytes, off_t offset, long long bad, long long error)
{
	if (bad < 0 || offset + (off_t)bytes <= bad)
		return (long long)bytes;
	return offset < bad ? bad - offset : -error;
}

static int fs_read(const char *path, char *buf, size_t bytes, off_t offset,
		   struct fuse_file_info *fi)
{
	struct faults f = meet();
	long long n = pass(bytes, offset, f.read_error, f.error);
	ssize_t got;

	(void)path;
	if (n < 0)
		return (int)n;
	/* The kernel takes a short answer for the end of the file and forgets the rest of it. */
	if (n < (long long)bytes)
		return -(int)f.error;
	if (f.is_short && (fi->flags & O_DIRECT) && n > 512)
		n = n / 2 & ~511ll;
	got = pread((int)fi->fh, buf, (size_t)n, offset);
	return got < 0 ? -errno : (int)got;
}

static int fs_write(const char *path, const char *buf, size_t bytes, off_t offset,
		    struct fuse_file_info *fi)
{
	struct faults f = meet();
	long long n = pass(bytes, offset, f.write_error, f.error);
	ssize_t got;

	(void)path;
	if (n < 0)
		return (int)n;
	got = pwrite((int)fi->fh, buf, (size_t)n, offset);
	return got < 0 ? -errno : (int)got;
}

static void *fs_init(struct fuse_conn_info *conn, struct fuse_config *config)
{
	(void)conn;
	config->attr_timeout = 0;
	config->entry_timeout = 0;
	return NULL;
}

static const struct fuse_operations ops = {
	.init = fs_init,
	.getattr = fs_getattr,
	.open = fs_open,
	.release = fs_release,
	.truncate = fs_truncate,
	.read = fs_read,
	.write = fs_write,
};

int main(int argc, char **argv)
{
	char foreground[] = "-f";
	char *args[] = { argv[0], argc > 2 ? argv[2] : NULL, foreground, NULL };

	if (argc != 3) {
		fprintf(stderr, "usage: %s DIRECTORY MOUNTPOINT\n", argv[0]);
		return 2;
	}
	base = argv[1];
	return fuse_main(3, args, &ops, NULL);
}
