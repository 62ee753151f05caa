/* SPDX-License-Identifier: MIT */
/* peerlane prove: the parts of it, and what they share. */
#ifndef PL_PROVE_H
#define PL_PROVE_H

#include "jsonout.h"
#include "session.h"

#include <regex.h>
#include <uapi/peerlane.h>

struct pl_prove_args {
	const char *report, *backend;
	uint64_t size;
	unsigned int gpu, rounds;
	double seconds;
	bool quick, reuse, json;
};

/* --- prove_scrub.c: what identifies a machine or a person is taken out of a text --- */

struct pl_prove_scrub {
	char words[64][80]; /* host name, user, serial numbers */
	unsigned int nr_words;
	regex_t address, ipv4, mac, ipv6, uuid;
};

/* Returns 0 or -ENOMEM. */
int pl_prove_scrub_init(struct pl_prove_scrub *s);
void pl_prove_scrub_fini(struct pl_prove_scrub *s);
/* The scrubbed text, for the caller to free; NULL without memory. */
char *pl_prove_scrub_text(const struct pl_prove_scrub *s, const char *text);

/* --- prove_report.c: one line a check, on the screen and in the file as it comes --- */

enum pl_prove_result {
	PL_PROVE_PASS,
	PL_PROVE_FAIL,
	PL_PROVE_NOTE,
	PL_PROVE_NR_RESULTS,
};

struct pl_prove_report {
	struct pl_prove_scrub scrub;
	const char *path;
	int fd;
	bool quiet; /* nothing on standard output: JSON goes there */
	unsigned int counts[PL_PROVE_NR_RESULTS];
	struct json_object *root, *checks, *lines;
};

/* Returns 0 or a negative errno; what is wrong was said on standard error. */
int pl_prove_report_open(struct pl_prove_report *r, const char *path, bool json);
void pl_prove_report_close(struct pl_prove_report *r);
/* Text without a result: the beginning, headings. */
void pl_prove_report_text(struct pl_prove_report *r, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* "PASS name: text", and after that "; fix: ..." where @fix is not NULL. */
void pl_prove_report_line(struct pl_prove_report *r, enum pl_prove_result result, const char *name,
			  const char *fix, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
/* A line that belongs to the last check, as of the kernel's log. */
void pl_prove_report_quote(struct pl_prove_report *r, const char *text);

/* --- prove_file.c: the scratch file --- */

struct pl_prove_file {
	const char *path;
	char device[64]; /* name of the block device below */
	char pci[16];	 /* PCI address of its controller; "" if it is not on PCI */
	uint64_t bytes;
	int fd;	   /* buffered */
	bool made; /* and to be removed */
};

/* The base pattern; other seeds give other bytes. */
#define PL_PROVE_SEED 0

/* What a file with pattern @seed holds at @offset. */
void pl_prove_file_pattern(void *to, size_t bytes, uint64_t offset, uint64_t seed);
/* Creates it, or takes one that an earlier run left. 0 or a negative errno; it was said why. */
int pl_prove_file_create(struct pl_prove_file *f, const struct pl_prove_args *args);
/* Writes the base pattern and drops it from the page cache. */
int pl_prove_file_fill(struct pl_prove_file *f);
/* Writes out and drops a range from the page cache. */
void pl_prove_file_drop(const struct pl_prove_file *f, uint64_t offset, uint64_t bytes);
/* Plain buffered transfers of all bytes; 0 or a negative errno. */
int pl_prove_file_read(const struct pl_prove_file *f, void *to, size_t bytes, uint64_t offset);
int pl_prove_file_write(const struct pl_prove_file *f, const void *from, size_t bytes,
			uint64_t offset);
/* The base pattern again, on the drive and not in the page cache. */
int pl_prove_file_restore(const struct pl_prove_file *f, uint64_t offset, size_t bytes);
/* Whether a range holds the base pattern; else *@where is the first byte that does not, or -1 for
 * one that cannot be read. */
bool pl_prove_file_holds(const struct pl_prove_file *f, uint64_t offset, uint64_t bytes,
			 int64_t *where);
void pl_prove_file_remove(struct pl_prove_file *f);

/* --- prove_nursery.c: children that have never touched a GPU --- */

enum pl_prove_child {
	PL_PROVE_CHILD_READ,  /* reads and writes by p2p until it is killed */
	PL_PROVE_CHILD_UNPIN, /* gets a descriptor, unpins a handle of it, says so, waits */
	PL_PROVE_CHILD_HOLD,  /* gets a descriptor and waits */
};

struct pl_prove_nursery {
	pid_t pid;
	int fd;
};

struct pl_prove;

/* Before this process has a context: CUDA does not survive a fork. 0 or a negative errno. */
int pl_prove_nursery_start(struct pl_prove *p);
/* Starts a child; @fd goes to it, or is -1. Returns 0 or a negative errno. */
int pl_prove_nursery_begin(struct pl_prove *p, enum pl_prove_child kind, int fd, uint32_t value);
/* Waits until it is at work: what it says then, or -ETIMEDOUT. */
int pl_prove_nursery_ready(struct pl_prove *p);
/* Kills it. Returns its exit status as of waitpid(2), or a negative errno. */
int pl_prove_nursery_kill(struct pl_prove *p);
void pl_prove_nursery_end(struct pl_prove *p);

/* --- prove_log.c: the kernel's log and its tracepoint of bounced transfers --- */

struct pl_prove_log {
	int fd;
	bool traced;
	char trace[160];
};

void pl_prove_log_start(struct pl_prove *p);
/* Says what was heard; of transfers only if some @ran. */
void pl_prove_log_end(struct pl_prove *p, bool ran);

/* --- prove.c --- */

struct pl_prove {
	const struct pl_prove_args *args;
	struct pl_prove_report report;
	struct pl_prove_file file;
	struct pl_prove_nursery nursery;
	struct pl_prove_log log;
	struct peerlane *ctx;
	struct peerlane_gpu_info gpu;
	int dev; /* /dev/peerlane, for its counters */
	struct peerlane_counters start;
	bool p2p;	 /* the route is open */
	uint64_t random; /* state of pl_prove_random() */
	struct json_object *measured;
};

/* Repeatable: the same in every run. */
uint64_t pl_prove_random(struct pl_prove *p, uint64_t below);
/* A context of the back end that is proved. 0 or a negative errno. */
int pl_prove_context(const struct pl_prove *p, unsigned int flags, struct peerlane **out);

/* --- prove_machine.c, prove_module.c: the preconditions. 0, or -1: it cannot go on --- */

int pl_prove_machine(struct pl_prove *p);
void pl_prove_machine_place(struct pl_prove *p);
int pl_prove_module(struct pl_prove *p);
int pl_prove_gpu(struct pl_prove *p);
int pl_prove_route(struct pl_prove *p);

/* --- prove_module.c: /dev/peerlane itself --- */

int pl_prove_module_open(void);
/* Pins and maps GPU memory by the module. 0 or a negative errno. */
int pl_prove_module_pin(int dev, const void *gpu, size_t bytes, unsigned int flags,
			struct peerlane_pin *pin, char **map);
struct peerlane_counters pl_prove_module_counters(const struct pl_prove *p);
/* Waits until the module holds what it held at the start; else says what is left. */
bool pl_prove_module_settled(const struct pl_prove *p, char *text, size_t size);

/* --- prove_run.c: a check that moves data --- */

struct pl_prove_run {
	struct pl_prove *prove;
	const char *name;
	struct peerlane *ctx;
	struct peerlane_file *file; /* the scratch file, O_DIRECT */
	char *gpu;
	unsigned char *model, *seen; /* what @gpu must hold; room to look at it */
	size_t room;
	uint64_t nr, bytes, must; /* requests, their bytes, those that must go by p2p */
	struct peerlane_stats before;
	char wrong[640]; /* what went wrong first; empty: nothing */
};

/* Of the scratch file: the first half is only read, the next quarter written, the last is written
 * with what it holds. */
static inline uint64_t pl_prove_half(const struct pl_prove *p)
{
	return p->file.bytes / 2;
}

bool pl_prove_run_begin(struct pl_prove_run *r, struct pl_prove *p, const char *name);
/* Says how it went, and what path the bytes took. */
void pl_prove_run_end(struct pl_prove_run *r, const char *what);
/* Remembers the first thing that went wrong. Returns false. */
bool pl_prove_run_wrong(struct pl_prove_run *r, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* One more request; all of it must go by p2p if it is aligned. */
void pl_prove_run_count(struct pl_prove_run *r, const void *gpu, size_t bytes, uint64_t offset);
/* GPU memory is as it must be, all of it. Bytes from @at on were read at @offset of the file; with
 * SIZE_MAX it cannot be said which. */
bool pl_prove_run_look(struct pl_prove_run *r, const char *what, size_t at, size_t bytes,
		       uint64_t offset);
/* Compares, and names the first byte that is wrong. */
bool pl_prove_run_same(struct pl_prove_run *r, const char *what, const unsigned char *seen,
		       const unsigned char *want, size_t bytes);
bool pl_prove_run_refill(struct pl_prove_run *r, uint64_t seed);

/* --- the checks themselves --- */

void pl_prove_reads(struct pl_prove *p);
void pl_prove_writes(struct pl_prove *p);
void pl_prove_many(struct pl_prove *p);
void pl_prove_revocations(struct pl_prove *p);
void pl_prove_kills(struct pl_prove *p);
void pl_prove_handles(struct pl_prove *p);
void pl_prove_speed(struct pl_prove *p);
/* The module holds what it held at the start. */
void pl_prove_settled(struct pl_prove *p, const char *name);

#endif
