/* SPDX-License-Identifier: MIT */
/*
 * What the kernel says while prove runs: its log, and its tracepoint of bounced transfers. A bounced
 * transfer is right and counted as p2p, but it went through host memory.
 */
#include "prove.h"

#include "cleanup.h"
#include "human.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECORD_BYTES 8192
#define MAX_LINES 60u
#define EVENT "events/swiotlb/swiotlb_bounced"
/* Levels of the log: up to this it is an error, and from the module even a warning is trouble. */
#define LEVEL_ERROR 3
#define LEVEL_WARNING 4

/* What no machine in good health says, whoever says it. */
static const char trouble[] =
	"WARNING:|BUG:|Oops|general protection|Call Trace|RIP:|blocked for more than|refcount_t|"
	"lockup|rcu.*(stall|detected)|KASAN|KFENCE|UBSAN|lockdep|circular locking|[Bb]ad page|"
	"conflicting memory "
	"types|DMAR:.*[Ff]ault|IO_PAGE_FAULT|AMD-Vi:.*(Event|fault)|smmu.*fault|"
	"AER:|PCIe Bus Error|[Mm]achine [Cc]heck|Hardware Error|swiotlb buffer is full|I/O error|"
	"nvme.*([Tt]imeout|[Aa]bort|reset|controller is down|frozen|Removing)|NVRM: Xid|"
	"(EXT4|XFS|BTRFS).*(error|corrupt|shutdown)";

/* An instance of its own: the machine's other traces are left alone. */
static void trace_start(struct pl_prove_log *log)
{
	static const char *const roots[] = { "/sys/kernel/tracing", "/sys/kernel/debug/tracing" };
	char path[256];
	int fd = -1;

	for (size_t i = 0; i < sizeof(roots) / sizeof(roots[0]) && fd < 0; i++) {
		snprintf(log->trace, sizeof(log->trace), "%s/instances/peerlane_prove_%d", roots[i],
			 (int)getpid());
		if (mkdir(log->trace, 0700))
			continue;
		snprintf(path, sizeof(path), "%s/" EVENT "/enable", log->trace);
		fd = open(path, O_WRONLY | O_CLOEXEC);
		if (fd < 0)
			rmdir(log->trace);
	}
	log->traced = fd >= 0 && write(fd, "1", 1) == 1;
	if (fd >= 0)
		close(fd);
	if (fd >= 0 && !log->traced)
		rmdir(log->trace);
}

void pl_prove_log_start(struct pl_prove *p)
{
	p->log.fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (p->log.fd >= 0)
		lseek(p->log.fd, 0, SEEK_END);
	trace_start(&p->log);
}

/* Times the drive's transfers were bounced. */
static void judge_trace(struct pl_prove *p)
{
	char path[256], *line = NULL;
	PL_AUTO_FILE FILE *f = NULL;
	unsigned long nr = 0;
	size_t size = 0;

	if (!p->log.traced) {
		pl_prove_report_line(&p->report, PL_PROVE_NOTE, "bounced",
				     "mount -t tracefs tracefs /sys/kernel/tracing",
				     "not known: no tracepoint swiotlb_bounced");
		return;
	}
	snprintf(path, sizeof(path), "%s/trace", p->log.trace);
	f = fopen(path, "re");
	while (f && getline(&line, &size, f) > 0)
		nr += p->file.pci[0] && strstr(line, "swiotlb_bounced") &&
		      strstr(line, p->file.pci);
	free(line);
	if (!p->file.pci[0])
		pl_prove_report_line(&p->report, PL_PROVE_NOTE, "bounced", NULL,
				     "not known: the drive is not one PCI device");
	else if (nr)
		pl_prove_report_line(
			&p->report, PL_PROVE_FAIL, "bounced",
			"find out why the kernel uses swiotlb for this drive",
			"the kernel bounced transfers of the drive through host memory: "
			"%lu times seen",
			nr);
	else
		pl_prove_report_line(&p->report, PL_PROVE_PASS, "bounced", NULL,
				     "the kernel bounced no transfer of the drive");
}

static void trace_end(struct pl_prove_log *log)
{
	char path[256];
	int fd;

	if (!log->traced)
		return;
	snprintf(path, sizeof(path), "%s/" EVENT "/enable", log->trace);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd >= 0) {
		if (write(fd, "0", 1) != 1)
			log->traced = false;
		close(fd);
	}
	rmdir(log->trace);
}

struct found {
	char *bad[MAX_LINES], *other[MAX_LINES];
	unsigned int nr_bad, nr_other;
	bool lost;
};

static void keep(char **list, unsigned int *nr, const char *text)
{
	if (*nr < MAX_LINES)
		list[*nr] = strdup(text);
	++*nr;
}

/* One record: "priority,number,time,flags;text\n", and lines with more of it. */
static void sort_record(struct found *found, const regex_t *regex, char *record)
{
	char *text = strchr(record, ';');
	long level = strtol(record, NULL, 10) & 7;

	if (!text)
		return;
	text++;
	text[strcspn(text, "\n")] = 0;
	if (!regexec(regex, text, 0, NULL, 0) ||
	    (level <= LEVEL_WARNING && strcasestr(text, "peerlane")))
		keep(found->bad, &found->nr_bad, text);
	else if (found->nr_bad && found->nr_bad < MAX_LINES && text[0] == ' ' &&
		 strstr(text, "+0x"))
		/* A call trace: symbols are worth keeping. */
		keep(found->bad, &found->nr_bad, text);
	else if (level <= LEVEL_ERROR)
		keep(found->other, &found->nr_other, text);
}

static void read_log(struct pl_prove_log *log, struct found *found, const regex_t *regex)
{
	char record[RECORD_BYTES];
	ssize_t n;

	for (;;) {
		n = read(log->fd, record, sizeof(record) - 1);
		if (n < 0 && errno == EPIPE) {
			found->lost = true;
			continue;
		}
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return;
		record[n] = 0;
		sort_record(found, regex, record);
	}
}

static void quote(struct pl_prove *p, char **list, unsigned int nr)
{
	for (unsigned int i = 0; i < nr && i < MAX_LINES; i++) {
		pl_prove_report_quote(&p->report, list[i] ? list[i] : "");
		free(list[i]);
	}
}

static void judge_log(struct pl_prove *p)
{
	struct found found = { 0 };
	regex_t regex;

	if (p->log.fd < 0 || regcomp(&regex, trouble, REG_EXTENDED)) {
		pl_prove_report_line(&p->report, PL_PROVE_FAIL, "kernel_log",
				     "run it where /dev/kmsg can be read, not in a container",
				     "cannot be read");
		return;
	}
	read_log(&p->log, &found, &regex);
	regfree(&regex);
	if (found.nr_bad)
		pl_prove_report_line(&p->report, PL_PROVE_FAIL, "kernel_log", NULL,
				     "%s of trouble:", pl_human_nr(found.nr_bad, "line").text);
	else if (found.lost)
		pl_prove_report_line(&p->report, PL_PROVE_FAIL, "kernel_log",
				     "boot with log_buf_len=8M, and run it again",
				     "a part of it was lost before it could be read");
	else
		pl_prove_report_line(&p->report, PL_PROVE_PASS, "kernel_log", NULL,
				     "no warning, fault or time-out during the run");
	quote(p, found.bad, found.nr_bad);
	if (found.nr_other)
		pl_prove_report_line(&p->report, PL_PROVE_NOTE, "kernel_log_other", NULL,
				     "%s of level error from elsewhere:",
				     pl_human_nr(found.nr_other, "line").text);
	quote(p, found.other, found.nr_other);
}

void pl_prove_log_end(struct pl_prove *p, bool ran)
{
	if (ran)
		judge_trace(p);
	trace_end(&p->log);
	/* Why memory cannot be pinned is said there, too. */
	if (p->dev >= 0)
		judge_log(p);
	if (p->log.fd >= 0)
		close(p->log.fd);
	p->log.fd = -1;
}
