// SPDX-License-Identifier: MIT
/*
 * Files whose bytes are not simply blocks of a drive: compressed, inline, with checksums,
 * journalled, shared with other files.
 */
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/mount.h>

#include "engine.h"

#define BYTES (2 * MIB + 1000)

/* A new file with attributes (FS_*_FL), of noise or of what can be compressed. */
static void make(const char *path, size_t bytes, int attributes, bool noise)
{
	unsigned char *data = host_alloc(bytes + 8);
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), flags = 0;

	expect(fd >= 0);
	if (attributes) {
		expect(ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0);
		flags |= attributes;
		expect(ioctl(fd, FS_IOC_SETFLAGS, &flags) == 0);
	}
	fill(data, bytes, bytes);
	for (size_t i = 0; !noise && i < bytes; i++)
		data[i] = 'a' + data[i] % 8;
	expect(pwrite(fd, data, bytes, 0) == (ssize_t)bytes && fsync(fd) == 0);
	close(fd);
	free(data);
}

/* Small enough to lie beside the file's own data, and then grows out of there. */
static void grow(const char *path, size_t bytes, const char *reason, const char *fix)
{
	unsigned char *seen = host_alloc(MIB);
	struct peerlane_verdict v;
	struct peerlane_file *file;
	struct engine e;
	int fd;

	make(path, bytes, 0, true);
	expect(extent_flags(path) & FIEMAP_EXTENT_DATA_INLINE);
	fd = open(path, O_RDWR | O_CLOEXEC);
	expect(pread(fd, seen, MIB, 0) == (ssize_t)bytes);
	engine_open(&e);
	file = open_file(&e, path, O_RDWR | O_DIRECT);
	v = verdict(&e, file, PEERLANE_READ, bytes);
	expect(!v.usable && strstr(v.reason, reason) && strstr(v.fix, fix));
	expect(peerlane_read(file, e.gpu + 4096, MIB, 0) == (ssize_t)bytes);
	memcpy(e.model + 4096, seen, bytes);
	check_gpu(&e, "inline", 0);
	/* Another's write is seen, ours by others. */
	expect(pwrite(fd, "other", 5, 3) == 5);
	memcpy(seen + 3, "other", 5);
	expect(peerlane_write(file, e.gpu, 10, 20, 0) == 10);
	memcpy(seen + 20, e.model, 10);
	expect(peerlane_read(file, e.gpu + 4096, MIB, 0) == (ssize_t)bytes);
	memcpy(e.model + 4096, seen, bytes);
	check_gpu(&e, "inline", 1);
	expect(extent_flags(path) & FIEMAP_EXTENT_DATA_INLINE);
	/* Now it is too long. */
	expect(peerlane_write(file, e.gpu, 128 * KIB, (off_t)bytes - 10, 0) == 128 * (ssize_t)KIB);
	memcpy(seen + bytes - 10, e.model, 128 * KIB);
	bytes += 128 * KIB - 10;
	expect(pread(fd, e.seen, MIB, 0) == (ssize_t)bytes && !memcmp(e.seen, seen, bytes));
	expect(peerlane_read(file, e.gpu, MIB, 0) == (ssize_t)bytes);
	memcpy(e.model, seen, bytes);
	check_gpu(&e, "inline", 2);
	expect(!(extent_flags(path) & FIEMAP_EXTENT_DATA_INLINE));
	expect(p2p_bytes(&e) == 0);
	say_direct(0);
	expect(peerlane_file_close(file) == 0);
	engine_close(&e);
	close(fd);
	free(seen);
	unlink(path);
}

/* A clone of a file is written: the file itself must not change, nor the clone with it. */
static void cloned(const char *from, const char *to, const char *reason, const char *fix)
{
	struct below b = {
		.path = to, .bytes = BYTES, .grows = true, .reason = reason, .fix = fix
	};
	unsigned char *data = make_file(from, BYTES, 95), *seen = host_alloc(MIB * 3);

	for (int round = 0; round < 2; round++) {
		const char *other = round ? to : from;
		ssize_t bytes;
		int in, out;

		unlink(to);
		in = open(from, O_RDONLY | O_CLOEXEC);
		out = open(to, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		expect(in >= 0 && out >= 0 && ioctl(out, FICLONE, in) == 0);
		expect(extent_flags(to) & FIEMAP_EXTENT_SHARED);
		close(out);
		close(in);
		b.path = round ? from : to;
		below_check(&b);
		in = open(other, O_RDONLY | O_CLOEXEC);
		for (int again = 0; again < 2; again++) {
			bytes = pread(in, seen, 3 * MIB, 0);
			expect(bytes == (ssize_t)BYTES && !memcmp(seen, data, BYTES));
			expect(posix_fadvise(in, 0, 0, POSIX_FADV_DONTNEED) == 0);
		}
		close(in);
	}
	free(data);
	free(seen);
	unlink(from);
	unlink(to);
}

#define NO_DEVICE "does not name one block device"

/* Checksums are made and checked by the CPU, data is packed: not for p2p. */
int test_engine_btrfs(void)
{
	struct below b = {
		.bytes = BYTES, .grows = true, .reason = NO_DEVICE, .fix = "ext4 or xfs"
	};

	b.path = "/btrfs/summed";
	make(b.path, BYTES, 0, true);
	below_check(&b);
	b.path = "/btrfs/packed";
	make(b.path, BYTES, FS_COMPR_FL, false);
	expect(extent_flags(b.path) & FIEMAP_EXTENT_ENCODED);
	below_check(&b);
	b.path = "/btrfs/bare";
	make(b.path, BYTES, FS_NOCOW_FL, true);
	below_check(&b);
	grow("/btrfs/small", 1500, "no whole block", "");
	cloned("/btrfs/from", "/btrfs/to", NO_DEVICE, "ext4 or xfs");
	unlink("/btrfs/summed");
	unlink("/btrfs/packed");
	unlink("/btrfs/bare");
	return 0;
}

/* The second partition of a drive, with ext4 that may have inline data. */
static void mount_ext4(const char *options)
{
	char path[DISK_PATH];

	disk_path("serial", "parts0", path);
	strcat(path, "p2");
	expect(mount(path, "/ext4", "ext4", 0, options) == 0);
}

#define NO_DIRECT "does not do O_DIRECT (ext4)"

/* All data goes through the journal, by the page cache. */
int test_engine_journal(void)
{
	struct below b = { .path = "/ext4/journal", .bytes = BYTES, .grows = true };

	mount_ext4("data=journal");
	b.reason = NO_DIRECT;
	b.fix = "O_DIRECT";
	make(b.path, BYTES, 0, true);
	below_check(&b);
	expect(umount("/ext4") == 0);
	/* One such file among others: below them the drive is the same. With delayed allocation
	 * the kernel does not heed the flag. */
	mount_ext4("nodelalloc");
	b.path = "/ext4/one";
	make(b.path, BYTES, FS_JOURNAL_DATA_FL, true);
	below_check(&b);
	b.path = "/ext4/other";
	b.reason = b.fix = NULL;
	make(b.path, BYTES, 0, true);
	below_check(&b);
	expect(umount("/ext4") == 0);
	return 0;
}

int test_engine_inline(void)
{
	mount_ext4("");
	grow("/ext4/small", 120, NO_DIRECT, "O_DIRECT");
	expect(umount("/ext4") == 0);
	return 0;
}

int test_engine_reflink(void)
{
	cloned("/xfs/from", "/xfs/to", NULL, NULL);
	return 0;
}
