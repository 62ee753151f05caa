// SPDX-License-Identifier: MIT
/* Faults in the file calls of this program: see shim.h. */
/* Both names of each call are defined here, so they must not be made one. */
#undef _FILE_OFFSET_BITS
#include "shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct shim shim = { .read_error_at = -1, .write_error_at = -1, .error = EIO };

static atomic_ulong hits;

void shim_clear(void)
{
	shim = (struct shim){ .read_error_at = -1, .write_error_at = -1, .error = EIO };
}

void shim_file(const char *path)
{
	struct stat sb;

	if (stat(path, &sb))
		abort();
	shim.dev = sb.st_dev;
	shim.ino = sb.st_ino;
}

unsigned long shim_hits(void)
{
	return atomic_exchange(&hits, 0);
}

static uint32_t roll(void)
{
	static _Thread_local uint64_t state;

	if (!state)
		state = (uint64_t)(uintptr_t)&state | 1;
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 32);
}

static bool ours(int fd)
{
	struct stat sb;

	return shim.ino && !fstat(fd, &sb) && sb.st_ino == shim.ino && sb.st_dev == shim.dev;
}

static void delay(void)
{
	struct timespec ts = { .tv_nsec = 0 };

	if (!shim.delay_us)
		return;
	ts.tv_nsec = (long)(roll() % (shim.delay_us + 1)) * 1000;
	nanosleep(&ts, NULL);
}

/* How many of @bytes may go; -1 with errno if none and an error. */
static ssize_t allowed(int fd, size_t bytes, off_t offset, int64_t bad)
{
	if (!ours(fd))
		return (ssize_t)bytes;
	delay();
	if (shim.eintr_of && roll() % shim.eintr_of == 0) {
		atomic_fetch_add(&hits, 1);
		errno = EINTR;
		return -1;
	}
	if (bad >= 0 && offset <= bad && offset + (off_t)bytes > bad) {
		atomic_fetch_add(&hits, 1);
		bytes = (size_t)(bad - offset);
		/* An O_DIRECT transfer ends at a block. */
		if (fcntl(fd, F_GETFL) & O_DIRECT)
			bytes &= ~511ul;
		if (!bytes) {
			errno = shim.error;
			return -1;
		}
	} else if (bad >= 0 && offset > bad && offset < bad + 4096) {
		atomic_fetch_add(&hits, 1);
		errno = shim.error;
		return -1;
	}
	if (shim.short_of && bytes > 1 && roll() % shim.short_of == 0) {
		atomic_fetch_add(&hits, 1);
		bytes = 1 + roll() % (bytes - 1);
	}
	return (ssize_t)bytes;
}

/* --- direct and buffered writes kept apart --- */

static atomic_uint writes_in[2]; /* buffered, direct */
static atomic_ulong nr_writes[2];
static atomic_bool dirty;
static atomic_ulong collisions;

unsigned long shim_collisions(unsigned long nr[2])
{
	for (int i = 0; i < 2; i++)
		nr[i] = atomic_exchange(&nr_writes[i], 0);
	return atomic_exchange(&collisions, 0);
}

/* Which kind of write begins; -1: not one that is watched. */
static int write_begins(int fd)
{
	int direct;

	if (!shim.apart || !ours(fd))
		return -1;
	direct = !!(fcntl(fd, F_GETFL) & O_DIRECT);
	atomic_fetch_add(&writes_in[direct], 1);
	atomic_fetch_add(&nr_writes[direct], 1);
	if (!direct)
		atomic_store(&dirty, true);
	if (atomic_load(&writes_in[!direct]) || (direct && atomic_load(&dirty)))
		atomic_fetch_add(&collisions, 1);
	delay();
	return direct;
}

/* As a file system does that finds that it cannot write this place directly. */
static bool refused(int fd)
{
	if (!shim.refuse_of || !ours(fd) || !(fcntl(fd, F_GETFL) & O_DIRECT) ||
	    roll() % shim.refuse_of)
		return false;
	atomic_fetch_add(&hits, 1);
	return true;
}

static void write_ended(int kind)
{
	if (kind >= 0)
		atomic_fetch_sub(&writes_in[kind], 1);
}

/* The call of the same name behind ours. */
#define REAL(name, type)                                                                           \
	static void *found;                                                                        \
	type real;                                                                                 \
	if (!__atomic_load_n(&found, __ATOMIC_ACQUIRE))                                            \
		__atomic_store_n(&found, dlsym(RTLD_NEXT, name), __ATOMIC_RELEASE);                \
	real = (type)(uintptr_t)__atomic_load_n(&found, __ATOMIC_ACQUIRE)

typedef ssize_t (*read_fn)(int, void *, size_t, off_t);
typedef ssize_t (*write_fn)(int, const void *, size_t, off_t);
typedef ssize_t (*vector_fn)(int, const struct iovec *, int, off_t, int);
typedef int (*sync_fn)(int);
typedef int (*range_fn)(int, off64_t, off64_t, unsigned int);
typedef ssize_t (*copy_fn)(pid_t, const struct iovec *, unsigned long, const struct iovec *,
			   unsigned long, unsigned long);

static ssize_t do_read(read_fn real, int fd, void *mem, size_t bytes, off_t offset)
{
	ssize_t n = allowed(fd, bytes, offset, shim.read_error_at);

	if (n < 0)
		return n;
	/* A direct read of an odd length is refused by the kernel: read it all and say less. */
	if ((size_t)n < bytes) {
		ssize_t got = real(fd, mem, bytes, offset);

		if (got <= n)
			return got;
		/* What a failing device did not give is not in memory either. */
		memset((char *)mem + n, 0xee, (size_t)(got - n));
		return n;
	}
	return real(fd, mem, bytes, offset);
}

static ssize_t do_write(write_fn real, int fd, const void *mem, size_t bytes, off_t offset)
{
	ssize_t n = allowed(fd, bytes, offset, shim.write_error_at);

	if (n < 0)
		return n;
	n = real(fd, mem, (size_t)n, offset);
	/* The short length did not suit O_DIRECT: then not a byte goes. */
	if (n < 0 && errno == EINVAL && shim.ino)
		errno = shim.write_error_at >= 0 && offset + (off_t)bytes > shim.write_error_at
				? shim.error
				: EINTR;
	return n;
}

static ssize_t do_vector(vector_fn real, bool write, int fd, const struct iovec *iov, int nr,
			 off_t offset, int flags)
{
	struct iovec one = iov[0];
	int kind;
	ssize_t n;

	if (nr != 1 || (flags & RWF_NOWAIT))
		return real(fd, iov, nr, offset, flags);
	if (write && refused(fd)) {
		errno = EINVAL;
		return -1;
	}
	n = allowed(fd, one.iov_len, offset, write ? shim.write_error_at : shim.read_error_at);
	if (n < 0)
		return n;
	one.iov_len = (size_t)n;
	kind = write ? write_begins(fd) : -1;
	n = real(fd, &one, 1, offset, flags);
	write_ended(kind);
	if (n < 0 && errno == EINVAL && shim.ino && one.iov_len < iov[0].iov_len)
		errno = one.iov_len && write && shim.write_error_at >= 0 ? shim.error : EINTR;
	return n;
}

ssize_t pread(int fd, void *mem, size_t bytes, off_t offset)
{
	REAL("pread", read_fn);
	return do_read(real, fd, mem, bytes, offset);
}

ssize_t pread64(int fd, void *mem, size_t bytes, off64_t offset)
{
	REAL("pread64", read_fn);
	return do_read(real, fd, mem, bytes, offset);
}

ssize_t pwrite(int fd, const void *mem, size_t bytes, off_t offset)
{
	REAL("pwrite", write_fn);
	return do_write(real, fd, mem, bytes, offset);
}

ssize_t pwrite64(int fd, const void *mem, size_t bytes, off64_t offset)
{
	REAL("pwrite64", write_fn);
	return do_write(real, fd, mem, bytes, offset);
}

ssize_t preadv2(int fd, const struct iovec *iov, int nr, off_t offset, int flags)
{
	REAL("preadv2", vector_fn);
	return do_vector(real, false, fd, iov, nr, offset, flags);
}

ssize_t preadv64v2(int fd, const struct iovec *iov, int nr, off64_t offset, int flags)
{
	REAL("preadv64v2", vector_fn);
	return do_vector(real, false, fd, iov, nr, offset, flags);
}

ssize_t pwritev2(int fd, const struct iovec *iov, int nr, off_t offset, int flags)
{
	REAL("pwritev2", vector_fn);
	return do_vector(real, true, fd, iov, nr, offset, flags);
}

ssize_t pwritev64v2(int fd, const struct iovec *iov, int nr, off64_t offset, int flags)
{
	REAL("pwritev64v2", vector_fn);
	return do_vector(real, true, fd, iov, nr, offset, flags);
}

int fdatasync(int fd)
{
	REAL("fdatasync", sync_fn);
	if (shim.sync_error && ours(fd)) {
		atomic_fetch_add(&hits, 1);
		errno = shim.sync_error;
		return -1;
	}
	return real(fd);
}

int sync_file_range(int fd, off64_t offset, off64_t bytes, unsigned int flags)
{
	REAL("sync_file_range", range_fn);
	int rc = real(fd, offset, bytes, flags);

	if (shim.apart && ours(fd) && (flags & SYNC_FILE_RANGE_WAIT_AFTER))
		atomic_store(&dirty, false);
	return rc;
}

ssize_t process_vm_readv(pid_t pid, const struct iovec *to, unsigned long nr_to,
			 const struct iovec *from, unsigned long nr_from, unsigned long flags)
{
	struct iovec one;
	REAL("process_vm_readv", copy_fn);
	if (shim.copy_of && nr_to == 1 && to->iov_len > 4096 && roll() % shim.copy_of == 0) {
		atomic_fetch_add(&hits, 1);
		if (roll() % 2) {
			errno = EFAULT;
			return -1;
		}
		one = *to;
		one.iov_len = 1 + roll() % (to->iov_len - 1);
		return real(pid, &one, 1, from, nr_from, flags);
	}
	return real(pid, to, nr_to, from, nr_from, flags);
}

/* --- settings of a program that does not know of us --- */

static void set(const char *word, const char *value)
{
	long long v = atoll(value);

	if (!strcmp(word, "path"))
		shim_file(value);
	else if (!strcmp(word, "read_error_at"))
		shim.read_error_at = v;
	else if (!strcmp(word, "write_error_at"))
		shim.write_error_at = v;
	else if (!strcmp(word, "error"))
		shim.error = (int)v;
	else if (!strcmp(word, "short_of"))
		shim.short_of = (unsigned int)v;
	else if (!strcmp(word, "eintr_of"))
		shim.eintr_of = (unsigned int)v;
	else if (!strcmp(word, "delay_us"))
		shim.delay_us = (unsigned int)v;
	else if (!strcmp(word, "sync_error"))
		shim.sync_error = (int)v;
	else if (!strcmp(word, "copy_of"))
		shim.copy_of = (unsigned int)v;
	else if (!strcmp(word, "refuse_of"))
		shim.refuse_of = (unsigned int)v;
	else if (!strcmp(word, "apart"))
		shim.apart = v;
	else
		abort();
}

__attribute__((constructor)) static void from_environment(void)
{
	const char *text = getenv("PEERLANE_SHIM");
	char *copy, *save, *word, *value;

	if (!text)
		return;
	copy = strdup(text);
	for (word = strtok_r(copy, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
		value = strchr(word, '=');
		if (!value)
			abort();
		*value++ = '\0';
		set(word, value);
	}
	free(copy);
}
