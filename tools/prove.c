/* SPDX-License-Identifier: MIT */
/* peerlane prove: shows on a machine with a GPU and a drive that the path p2p works, and writes a report. */
#include "prove.h"

#include "commands.h"
#include "human.h"
#include "message.h"
#include "pattern.h"
#include "progress.h"
#include "stop.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { PASSED = 0, FAILED = 1, NOT_RUN = 2 };

#define AT(member) offsetof(struct pl_prove_args, member)

static const struct pl_option options[] = {
	{ "report", PL_OPTION_TEXT, AT(report), "FILE",
	  "Where to write the report (default peerlane-prove-DATE.txt).", 0, 0 },
	{ "size", PL_OPTION_SIZE, AT(size), "SIZE",
	  "Size of the scratch file (default 1G, or half of the room there is).", 16777216,
	  0x1p40 },
	{ "gpu", PL_OPTION_COUNT, AT(gpu), "N", "Use GPU number N (default 0).", 0, 0 },
	{ "rounds", PL_OPTION_COUNT, AT(rounds), "N",
	  "How often memory is freed and processes are killed (default 100).", 1, 1000000 },
	{ "seconds", PL_OPTION_DECIMAL, AT(seconds), "SECONDS",
	  "Time of each of the eight measurements (default 5).", 0.01, 3600 },
	{ "quick", PL_OPTION_FLAG, AT(quick), NULL,
	  "A first look: 64 MiB, 10 rounds, measurements of a second.", 0, 0 },
	{ "reuse", PL_OPTION_FLAG, AT(reuse), NULL,
	  "Take FILE if it is there and an interrupted prove left it.", 0, 0 },
	{ "backend", PL_OPTION_CHOICE, AT(backend), "cuda|simgpu",
	  "The GPU: CUDA (default), or the test GPU of the project's VM lab.", 0, 0 },
	{ "json", PL_OPTION_FLAG, AT(json), NULL,
	  "Print the report as JSON; the report file stays text.", 0, 0 },
	{ 0 },
};

uint64_t pl_prove_random(struct pl_prove *p, uint64_t below)
{
	return pl_pattern_hash(++p->random) % below;
}

int pl_prove_context(const struct pl_prove *p, unsigned int flags, struct peerlane **out)
{
	struct peerlane_options opt = { .size = sizeof(opt),
					.flags = flags,
					.backend = p->args->backend };

	return peerlane_open(out, &opt);
}

/* Settings of the library would change what is proved. */
static void clean_environment(void)
{
	static const char *const names[] = { "PEERLANE_BACKEND",     "PEERLANE_POOL_BYTES",
					     "PEERLANE_SLOT_BYTES",  "PEERLANE_THREADS",
					     "PEERLANE_QUEUE_DEPTH", "PEERLANE_TIMEOUT_MS",
					     "PEERLANE_FLAGS" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unsetenv(names[i]);
}

static void introduce(struct pl_prove *p)
{
	struct pl_prove_report *r = &p->report;
	time_t now = time(NULL);
	struct tm tm;
	char date[32];

	strftime(date, sizeof(date), "%Y-%m-%d %H:%M UTC", gmtime_r(&now, &tm));
	pl_prove_report_text(r, "peerlane prove %d.%d.%d, %s", PEERLANE_VERSION_MAJOR,
			     PEERLANE_VERSION_MINOR, PEERLANE_VERSION_PATCH, date);
	if (strcmp(p->args->backend, "cuda") != 0)
		pl_prove_report_text(r, "SIMULATED GPU: THIS REPORT SAYS NOTHING ABOUT HARDWARE");
	pl_prove_report_text(
		r,
		"Checks this machine, then reads and writes a scratch file of %s between drive and "
		"GPU,\nfrees GPU memory under reads %u times, kills processes %u times, measures "
		"for "
		"about %.0f s,\nand reads the kernel's log. The scratch file is removed at the "
		"end.",
		pl_human_size(p->file.bytes).text, p->args->rounds, p->args->rounds,
		p->args->seconds * 8);
	pl_jsonout_add_text(r->root, "date", date);
	pl_jsonout_add_flag(r->root, "simulated", strcmp(p->args->backend, "cuda") != 0);
}

/* Whether all is there that the checks need. */
static bool preconditions(struct pl_prove *p)
{
	bool good;
	int err;

	pl_prove_report_text(&p->report, "\nPreconditions");
	good = !pl_prove_machine(p);
	/* Named all at once, as far as one does not need the other. */
	good = !pl_prove_module(p) && good;
	good = !pl_prove_gpu(p) && good;
	if (!good)
		return false;
	err = pl_prove_file_fill(&p->file);
	if (err) {
		pl_prove_report_line(&p->report, PL_PROVE_FAIL, "file", NULL,
				     "the scratch file cannot be written: %s", strerror(-err));
		return false;
	}
	good = !pl_prove_route(p);
	pl_prove_machine_place(p);
	return good;
}

static void close_context(struct pl_prove *p)
{
	peerlane_close(p->ctx);
	p->ctx = NULL;
}

struct phase {
	const char *title;
	void (*run)(struct pl_prove *p);
	bool own_context; /* it opens what it needs */
	bool p2p;	  /* says nothing without that path */
};

static const struct phase phases[] = {
	{ "Reads", pl_prove_reads, false, false },
	{ "Writes", pl_prove_writes, false, false },
	{ "Many at once", pl_prove_many, false, false },
	{ "Memory freed under reads", pl_prove_revocations, true, true },
	{ "Processes killed", pl_prove_kills, true, true },
	{ "Descriptors in other processes", pl_prove_handles, true, true },
	{ "Speed", pl_prove_speed, true, true },
};

static void run_phases(struct pl_prove *p)
{
	for (size_t i = 0; i < sizeof(phases) / sizeof(phases[0]) && !pl_stop_requested(); i++) {
		const struct phase *ph = &phases[i];

		if (ph->own_context && p->ctx) {
			close_context(p);
			pl_prove_settled(p, "transfers_settled");
		}
		pl_prove_report_text(&p->report, "\n%s", ph->title);
		if (ph->p2p && !p->p2p)
			pl_prove_report_line(&p->report, PL_PROVE_NOTE, "skipped", NULL,
					     "says nothing where p2p is not taken");
		else
			ph->run(p);
	}
	if (p->ctx)
		close_context(p);
}

/* Nothing but what was written was changed. */
static void unharmed(struct pl_prove *p)
{
	int64_t where;

	pl_prove_file_drop(&p->file, 0, 0);
	if (pl_prove_file_holds(&p->file, 0, p->file.bytes, &where))
		pl_prove_report_line(&p->report, PL_PROVE_PASS, "file_unharmed", NULL,
				     "the whole file holds what it must");
	else
		pl_prove_report_line(&p->report, PL_PROVE_FAIL, "file_unharmed", NULL,
				     "WRONG DATA in the file at byte %lld", (long long)where);
}

static void conclude(struct pl_prove *p, bool ran)
{
	const unsigned int *n = p->report.counts;

	if (pl_stop_requested())
		pl_prove_report_line(&p->report, PL_PROVE_FAIL, "interrupted", NULL,
				     "the run is not complete");
	if (!ran)
		pl_prove_report_text(&p->report, "\nNot run: a precondition is missing.");
	pl_prove_report_text(&p->report, "%s%u passed, %u failed, %u notes", ran ? "\n" : "",
			     n[PL_PROVE_PASS], n[PL_PROVE_FAIL], n[PL_PROVE_NOTE]);
	if (p->args->json) {
		pl_jsonout_add_count(p->report.root, "passed", n[PL_PROVE_PASS]);
		pl_jsonout_add_count(p->report.root, "failed", n[PL_PROVE_FAIL]);
		pl_jsonout_add_count(p->report.root, "notes", n[PL_PROVE_NOTE]);
		json_object_object_add(p->report.root, "checks", json_object_get(p->report.checks));
		json_object_object_add(p->report.root, "measurements",
				       json_object_get(p->measured));
		pl_jsonout_print(p->report.root, stdout);
	}
	fprintf(stderr, "The report is in %s; it names no machine, person or serial number.\n",
		p->report.path);
}

static int prove(struct pl_prove *p)
{
	int err = pl_prove_nursery_start(p);
	bool ran = false;

	if (err) {
		pl_message_error("cannot fork: %s", strerror(-err));
		return NOT_RUN;
	}
	introduce(p);
	pl_prove_log_start(p);
	if (preconditions(p)) {
		ran = true;
		run_phases(p);
		pl_prove_report_text(&p->report, "\nAfterwards");
		if (!pl_stop_requested())
			unharmed(p);
	} else if (p->ctx) {
		close_context(p);
	}
	pl_prove_log_end(p, ran);
	pl_prove_nursery_end(p);
	if (p->dev >= 0)
		close(p->dev);
	conclude(p, ran);
	return !ran ? NOT_RUN : p->report.counts[PL_PROVE_FAIL] ? FAILED : PASSED;
}

static int set_up_and_prove(struct pl_prove *p, const char *report)
{
	int status = NOT_RUN;

	p->measured = json_object_new_array();
	if (!pl_prove_report_open(&p->report, report, p->args->json)) {
		if (!pl_prove_file_create(&p->file, p->args)) {
			pl_stop_catch();
			status = prove(p);
		} else {
			/* There is nothing to report. */
			unlink(report);
		}
		pl_prove_file_remove(&p->file);
	}
	pl_prove_report_close(&p->report);
	json_object_put(p->measured);
	return pl_stop_requested() ? pl_stop_exit(-EINTR) : status;
}

static int run(const struct pl_command *self, int argc, char **argv)
{
	struct pl_prove_args args = { .backend = "cuda" };
	struct pl_prove p = { .args = &args, .dev = -1, .file = { .fd = -1 }, .log = { .fd = -1 } };
	int status, first = pl_option_parse(self, argc, argv, &args, &status);
	time_t now = time(NULL);
	char report[64];
	struct tm tm;

	if (first < 0)
		return status;
	if (!args.rounds)
		args.rounds = args.quick ? 10 : 100;
	if (args.seconds <= 0)
		args.seconds = args.quick ? 1 : 5;
	clean_environment();
	strftime(report, sizeof(report), "peerlane-prove-%Y%m%d-%H%M%S.txt", gmtime_r(&now, &tm));
	p.file.path = argv[first];
	return set_up_and_prove(&p, args.report ? args.report : report);
}

const struct pl_command pl_command_prove = {
	.name = "prove",
	.summary = "Show that drive and GPU exchange data directly; write a report.",
	.args = "[options] FILE",
	.detail = "For a machine with a GPU, an NVMe drive and the kernel modules, as root. Checks "
		  "every precondition, then reads and writes FILE, a scratch file that it creates "
		  "and removes, by the path p2p, and compares every byte; frees GPU memory and "
		  "kills processes meanwhile; measures p2p beside the staged path; and reads the "
		  "kernel's log. The report says pass or fail line by line. It has no host name, "
		  "user name, path, serial number or network address, so that it can be sent to "
		  "the project.",
	.exits = "0  everything passed\n"
		 "1  something failed; the report says what\n"
		 "2  a precondition is missing, FILE cannot be made, or the options are wrong\n"
		 "130  interrupted by SIGINT (143 by SIGTERM); FILE is removed",
	.options = options,
	.min_args = 1,
	.max_args = 1,
	.run = run,
};
