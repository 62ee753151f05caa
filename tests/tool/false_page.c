// SPDX-License-Identifier: MIT
/*
 * A process with a descriptor that looks like a page of statistics and is none, or one that lies:
 * what "peerlane stat" must cope with. Prints "ready", then waits to be killed. Exits 77, with the
 * reason, where the kernel does not let it.
 */
#include "stats.h"

#include <errno.h>
#include <linux/fuse.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* In the root of a file system that is mounted nowhere, the link reads like that of a memfd. */
#define LINK "memfd:" PL_STATS_MEMFD " (deleted)"

static struct pl_stats_page page = {
	.magic = PL_STATS_MAGIC,
	.version = PL_STATS_VERSION,
	.bytes = sizeof(page),
	.backend = "sim",
	.program = "false-page",
	.stats.read = { .ok = 1, .bytes = 1000, .path_bytes = { [PEERLANE_PATH_COPY] = 1000 } },
};

static void need(int ok, const char *what)
{
	if (ok)
		return;
	printf("%s: %s\n", what, strerror(errno));
	exit(77);
}

/* A process that ends with this one. */
static pid_t child(void)
{
	pid_t pid = fork();

	need(pid >= 0, "fork");
	if (!pid)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return pid;
}

static int memory(size_t bytes, int seals)
{
	int fd = memfd_create(PL_STATS_MEMFD, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	need(fd >= 0, "memfd_create");
	need(!ftruncate(fd, (off_t)bytes), "ftruncate");
	need(write(fd, &page, sizeof(page)) >= 0, "write");
	need(!ftruncate(fd, (off_t)bytes), "ftruncate");
	need(!fcntl(fd, F_ADD_SEALS, seals), "F_ADD_SEALS");
	return fd;
}

static int sealed(void)
{
	return memory(sizeof(page), PL_STATS_SEALS);
}

static void make_good(void)
{
	sealed();
}

static void make_small(void)
{
	memory(sizeof(page) - 1, PL_STATS_SEALS);
}

static void make_large(void)
{
	memory(sizeof(page) + 1, PL_STATS_SEALS);
}

static void make_unsealed(void)
{
	memory(sizeof(page), 0);
}

static void make_growing(void)
{
	memory(sizeof(page), F_SEAL_SHRINK | F_SEAL_SEAL);
}

static void make_magic(void)
{
	page.magic[0] = 'p';
	sealed();
}

static void make_version(void)
{
	page.version++;
	sealed();
}

static void make_bytes(void)
{
	page.bytes = 8;
	sealed();
}

/* No string ends, and each byte would do something to a terminal. */
static void make_text(void)
{
	memset(page.backend, 0x1b, sizeof(page.backend));
	memset(page.program, 0x9b, sizeof(page.program));
	sealed();
}

static void make_counters(void)
{
	memset(&page.stats, 0xff, sizeof(page.stats));
	sealed();
}

/* Counters that run backwards while they are read. */
static void make_backwards(void)
{
	struct pl_stats_page *map =
		mmap(NULL, sizeof(page), PROT_READ | PROT_WRITE, MAP_SHARED, sealed(), 0);

	need(map != MAP_FAILED, "mmap");
	if (child())
		return;
	for (uint64_t n = UINT64_MAX;; n -= 1000)
		__atomic_store_n(&map->stats.read.bytes, n, __ATOMIC_RELAXED);
}

static void make_many(void)
{
	for (int i = 0; i < 300; i++)
		sealed();
}

/* Whoever opens it for reading waits, until the lease is taken away. */
static void make_lease(void)
{
	int made = sealed(), fd;
	char path[64];

	/* The kernel counts writers of files that were opened, not of this one that was made. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", made);
	fd = open(path, O_RDWR | O_CLOEXEC);
	need(fd >= 0, path);
	close(made);
	signal(SIGIO, SIG_IGN);
	need(!fcntl(fd, F_SETLEASE, F_WRLCK), "a lease on a memory file");
}

static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	need(fd >= 0 && write(fd, text, strlen(text)) > 0, path);
	close(fd);
}

/* A mount namespace of its own; without privileges in a user namespace, as its root. */
static void unshare_mounts(void)
{
	unsigned int uid = getuid(), gid = getgid();
	char map[32];

	need(!unshare(uid ? CLONE_NEWUSER | CLONE_NEWNS : CLONE_NEWNS),
	     "a mount namespace of its own");
	if (uid) {
		put("/proc/self/setgroups", "deny");
		snprintf(map, sizeof(map), "0 %u 1", uid);
		put("/proc/self/uid_map", map);
		snprintf(map, sizeof(map), "0 %u 1", gid);
		put("/proc/self/gid_map", map);
	}
	need(!mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), "private mounts");
}

static void hold(const char *dir)
{
	need(!chdir(dir), dir);
	need(open(LINK, O_PATH | O_CLOEXEC) >= 0, LINK);
	need(!chdir("/"), "/");
	need(!umount2(dir, MNT_DETACH), "umount");
}

static void enter_tmpfs(const char *dir)
{
	unshare_mounts();
	need(!mount("none", dir, "tmpfs", 0, NULL), "tmpfs in a mount namespace");
	need(!chdir(dir), dir);
}

static void make_fifo(const char *dir)
{
	enter_tmpfs(dir);
	need(!mkfifo(LINK, 0666), "mkfifo");
	hold(dir);
}

static void make_file(const char *dir)
{
	int fd;

	enter_tmpfs(dir);
	fd = open(LINK, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	need(fd >= 0 && write(fd, &page, sizeof(page)) == sizeof(page), "a file");
	hold(dir);
}

static size_t fuse_answer(const struct fuse_in_header *in, void *out)
{
	struct fuse_init_out *init = out;
	struct fuse_attr_out *attr = out;
	struct fuse_entry_out *entry = out;

	switch (in->opcode) {
	case FUSE_INIT:
		init->major = FUSE_KERNEL_VERSION;
		init->minor = FUSE_KERNEL_MINOR_VERSION;
		init->max_write = 4096;
		return sizeof(*init);
	case FUSE_GETATTR:
		attr->attr.ino = 1;
		attr->attr.nlink = 1;
		attr->attr.mode = S_IFDIR | 0755;
		return sizeof(*attr);
	case FUSE_LOOKUP:
		entry->nodeid = 2;
		entry->attr.ino = 2;
		entry->attr.nlink = 1;
		entry->attr.mode = S_IFREG | 0666;
		entry->attr.size = sizeof(page);
		return sizeof(*entry);
	}
	return 0;
}

/* Answers until the file has been looked up; whoever asks for more waits for ever. */
static void fuse_serve(int fd)
{
	static char request[1 << 17];
	struct {
		struct fuse_out_header head;
		char body[256];
	} out;
	const struct fuse_in_header *in = (const void *)request;

	while (read(fd, request, sizeof(request)) > 0) {
		memset(&out, 0, sizeof(out));
		out.head.unique = in->unique;
		out.head.len = (uint32_t)(sizeof(out.head) + fuse_answer(in, out.body));
		if (out.head.len == sizeof(out.head))
			out.head.error = -ENOSYS;
		if (in->opcode != FUSE_FORGET && write(fd, &out, out.head.len) < 0)
			break;
		if (in->opcode == FUSE_LOOKUP)
			break;
	}
	for (;;)
		pause();
}

static void make_fuse(const char *dir)
{
	int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	char options[64];

	need(fd >= 0, "/dev/fuse");
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
	unshare_mounts();
	need(!mount("none", dir, "fuse", MS_NODEV | MS_NOSUID, options), "FUSE");
	if (!child())
		fuse_serve(fd);
	hold(dir);
}

static const struct {
	const char *name;
	void (*make)(void);
	void (*make_in)(const char *dir);
} kinds[] = {
	{ "good", make_good, NULL },	       { "small", make_small, NULL },
	{ "large", make_large, NULL },	       { "unsealed", make_unsealed, NULL },
	{ "growing", make_growing, NULL },     { "magic", make_magic, NULL },
	{ "version", make_version, NULL },     { "bytes", make_bytes, NULL },
	{ "text", make_text, NULL },	       { "counters", make_counters, NULL },
	{ "backwards", make_backwards, NULL }, { "many", make_many, NULL },
	{ "lease", make_lease, NULL },	       { "fifo", NULL, make_fifo },
	{ "file", NULL, make_file },	       { "fuse", NULL, make_fuse },
};

int main(int argc, char **argv)
{
	for (size_t i = 0; argc == 3 && i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (strcmp(kinds[i].name, argv[1]) != 0)
			continue;
		page.pid = getpid();
		if (kinds[i].make)
			kinds[i].make();
		else
			kinds[i].make_in(argv[2]);
		puts("ready");
		fflush(stdout);
		for (;;)
			pause();
	}
	fputs("usage: false_page KIND EMPTY-DIRECTORY\n", stderr);
	return 2;
}
