/* SPDX-License-Identifier: MIT */
/* peerlane check: what this machine can do, and which way a file's data would take. */
#include "cleanup.h"
#include "commands.h"
#include "cufile.h"
#include "error.h"
#include "graphics.h"
#include "human.h"
#include "message.h"
#include "place.h"
#include "session.h"
#include "system.h"

#include <peerlane/device.h>

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

#define PROBE_BYTES (1u << 20)

enum { BEST = 0, WORKS = 1, BROKEN = 2 };

struct check_args {
	bool json, quiet, cufile;
	unsigned int gpu;
	const char *backend;
};

static const struct pl_option options[] = {
	{ "json", PL_OPTION_FLAG, offsetof(struct check_args, json), NULL,
	  "Print everything as JSON.", 0, 0 },
	{ "quiet", PL_OPTION_FLAG, offsetof(struct check_args, quiet), NULL,
	  "Print only the last line, the verdict.", 0, 0 },
	{ "cufile", PL_OPTION_FLAG, offsetof(struct check_args, cufile), NULL,
	  "Add the configuration libcufile.so.0 would use, and where it is from.", 0, 0 },
	{ "gpu", PL_OPTION_COUNT, offsetof(struct check_args, gpu), "N",
	  "Check for GPU number N (default 0).", 0, 0 },
	{ "backend", PL_OPTION_CHOICE, offsetof(struct check_args, backend), "auto|cuda|sim",
	  "GPU back end: CUDA, the simulator, or CUDA if it works (default).", 0, 0 },
	{ 0 },
};

/* What was found out, worst first: the verdict. */
struct finding {
	int status;
	unsigned int gpu;      /* that was asked for */
	bool cuda;	       /* works */
	bool better;	       /* a path that could be had */
	bool directory, empty; /* of FILE */
	bool unknown;	       /* the paths of FILE */
	char text[512];
};

/* How a check of one direction ended. */
static void worse(struct finding *f, int status)
{
	if (status > f->status)
		f->status = status;
}

/*
 * Opens what is checked: the file itself, for writing too where that is allowed; in a directory a
 * nameless file, which goes when it is closed.
 */
static int open_probe(const char *path, const struct stat *st)
{
	static const char zeros[4096];
	int fd;

	if (!S_ISDIR(st->st_mode)) {
		fd = S_ISREG(st->st_mode) ? open(path, O_RDWR | O_CLOEXEC) : -1;
		return fd >= 0 ? fd : open(path, O_RDONLY | O_CLOEXEC);
	}
	fd = open(path, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	for (off_t at = 0; fd >= 0 && at < PROBE_BYTES; at += (off_t)sizeof(zeros))
		if (pwrite(fd, zeros, sizeof(zeros), at) != sizeof(zeros)) {
			close(fd);
			return -1;
		}
	return fd;
}

static void report_verdicts(struct pl_report *r, const struct peerlane_explanation *ex)
{
	struct json_object *list = json_object_new_array();

	for (unsigned int i = 0; i < ex->nr_verdicts && i < PEERLANE_PATH_NR; i++) {
		const struct peerlane_verdict *v = &ex->verdicts[i];
		struct json_object *o = json_object_new_object();

		json_object_object_add(o, "path",
				       json_object_new_string(peerlane_path_name(v->path)));
		json_object_object_add(o, "usable", json_object_new_boolean(v->usable));
		json_object_object_add(o, "chosen", json_object_new_boolean(v->path == ex->chosen));
		json_object_object_add(o, "reason", json_object_new_string(v->reason));
		json_object_object_add(o, "fix", json_object_new_string(v->fix));
		json_object_array_add(list, o);
		pl_report_label(r, peerlane_path_name(v->path), "%s: %s",
				v->path == ex->chosen ? "taken"
				: v->usable	      ? "possible"
						      : "no",
				v->reason);
		if (!v->usable && v->fix[0] && v->path < ex->chosen)
			pl_report_note(r, "to change that: %s", v->fix);
	}
	pl_report_value(r, "verdicts", list, NULL, " ");
}

/* Whether the user could have a better path than the one chosen. */
static bool improvable(const struct peerlane_explanation *ex)
{
	for (unsigned int i = 0; i < ex->nr_verdicts && i < PEERLANE_PATH_NR; i++)
		if (ex->verdicts[i].path < ex->chosen && !ex->verdicts[i].usable &&
		    ex->verdicts[i].fix[0])
			return true;
	return false;
}

/* Reasons by size are those of one request: say which. */
static void report_heading(struct pl_report *r, enum peerlane_op op, int64_t file_bytes)
{
	const char *name = op == PEERLANE_READ ? "read" : "write";
	uint64_t bytes = PROBE_BYTES;
	char title[128];

	if (op == PEERLANE_READ && file_bytes >= 0 && file_bytes < PROBE_BYTES)
		bytes = (uint64_t)file_bytes;
	if (bytes)
		snprintf(title, sizeof(title), "A %s (this check assumes one %s of %s at offset 0)",
			 name, name, pl_human_size(bytes).text);
	else
		snprintf(title, sizeof(title), "A %s (the file is empty)", name);
	pl_report_section(r, name, title);
	pl_report_value(r, "assumed_bytes", json_object_new_int64((int64_t)bytes), NULL, " ");
}

static void report_direction(struct pl_report *r, struct peerlane_file *file, enum peerlane_op op,
			     void *memory, struct finding *f)
{
	const char *name = op == PEERLANE_READ ? "read" : "write";
	struct peerlane_explanation ex = { .size = sizeof(ex) };
	size_t len = strlen(f->text);
	int err = peerlane_explain(file, op, memory, PROBE_BYTES, 0, &ex);

	report_heading(r, op, err ? -1 : ex.file_bytes);
	if (err) {
		pl_report_text(r, "error", "not possible", "%s",
			       err == -EBADF ? "no permission" : pl_session_reason(err).text);
		if (err != -EBADF)
			worse(f, BROKEN);
		snprintf(f->text + len, sizeof(f->text) - len, "%s%s: not possible",
			 len ? ", " : "", name);
		return;
	}
	pl_report_text(r, "path", "path", "%s", peerlane_path_name(ex.chosen));
	pl_report_text(r, "io_engine", "file I/O", "%s%s%s", ex.io_engine,
		       ex.io_reason[0] ? ", because " : "", ex.io_reason);
	pl_report_text(r, "memory", NULL, "%s", ex.memory);
	report_verdicts(r, &ex);
	f->better = f->better || improvable(&ex);
	worse(f, f->better ? WORKS : BEST);
	snprintf(f->text + len, sizeof(f->text) - len, "%s%s: %s", len ? ", " : "", name,
		 peerlane_path_name(ex.chosen));
}

/* Explains both directions with a little memory of the GPU, registered or not. Closes the file. */
static void report_paths(struct pl_report *r, struct pl_session *s, struct peerlane_file *file,
			 bool registered, struct finding *f)
{
	void *memory = NULL;
	int err = peerlane_gpu_alloc(s->ctx, s->gpu, PROBE_BYTES, &memory);

	if (!err && registered)
		err = peerlane_buffer_register(s->ctx, memory, PROBE_BYTES, 0);
	if (err) {
		worse(f, BROKEN);
		snprintf(f->text, sizeof(f->text), "%s", pl_session_reason(err).text);
	} else {
		report_direction(r, file, PEERLANE_READ, memory, f);
		report_direction(r, file, PEERLANE_WRITE, memory, f);
	}
	peerlane_file_close(file);
	if (!err && registered)
		peerlane_buffer_release(s->ctx, memory);
	if (memory)
		peerlane_gpu_free(s->ctx, memory);
}

static void report_fd(struct pl_report *r, struct pl_session *s, int fd, struct finding *f)
{
	struct peerlane_file *file;
	int err = peerlane_file_from_fd(s->ctx, fd, &file);

	if (!err) {
		report_paths(r, s, file, false, f);
		return;
	}
	worse(f, BROKEN);
	snprintf(f->text, sizeof(f->text), "%s", pl_session_reason(err).text);
}

/* A namespace that the library's own NVMe driver would use. */
static int report_nvme(struct pl_report *r, struct pl_session *s, const char *path,
		       struct finding *f)
{
	struct peerlane_explanation ex = { .size = sizeof(ex) };
	struct peerlane_file *file;
	char memory[8];
	int err;

	if (!s->ctx)
		return 0;
	err = peerlane_file_open(s->ctx, path, O_RDWR, 0, &file);
	if (err == -EROFS)
		err = peerlane_file_open(s->ctx, path, O_RDONLY, 0, &file);
	if (!err)
		err = peerlane_explain(file, PEERLANE_READ, memory, 1, 0, &ex);
	if (err) {
		/* A file that is open goes with the session. */
		pl_message_error("%s: %s", path, pl_session_reason(err).text);
		return -1;
	}
	pl_report_section(r, "file", "File");
	pl_report_text(r, "file_name", "path", "%s", path);
	pl_report_text(r, "fs", "driver", "%s, of this library", ex.fs);
	pl_report_text(r, "device", "serial/nsid", "%s", ex.device);
	pl_report_value(r, "block_bytes", json_object_new_int64(ex.dio_align), "block size", "%u",
			ex.dio_align);
	pl_report_value(r, "bytes", json_object_new_int64(ex.file_bytes), "size", "%s",
			pl_human_size((uint64_t)ex.file_bytes).text);
	pl_report_text(r, "buffer", "memory", "a registered buffer");
	report_paths(r, s, file, true, f);
	return 0;
}

/* What kernels that do their own I/O would get of this file: a sentence a line. */
static void report_kernels(struct pl_report *r, struct pl_session *s, int fd)
{
	struct peerlane_device_options opt = { .size = sizeof(opt), .ctx = s->ctx, .gpu = s->gpu };
	struct peerlane_device *dev;
	char text[1024], *line, *rest;
	int err = peerlane_device_open_files(&dev, &opt, &fd, 1);

	pl_report_section(r, "kernels", "I/O started by kernels");
	if (err) {
		pl_report_text(r, "error", "not possible", "%s", pl_session_reason(err).text);
		return;
	}
	peerlane_device_describe(dev, text, sizeof(text));
	peerlane_device_close(dev);
	pl_report_value(r, "served_by", json_object_new_string(text), NULL, " ");
	for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
		pl_report_label(r, "", "%s", line);
}

static int report_file(struct pl_report *r, struct pl_session *s, const char *path,
		       struct finding *f)
{
	PL_AUTO_FD int fd = -1;
	PL_AUTO_FD int probe = -1;
	struct stat st;
	int err;

	if (!strncmp(path, "nvme:", 5))
		return report_nvme(r, s, path, f);
	if (stat(path, &st)) {
		pl_message_error("%s: %s", path, pl_error_open(path, errno));
		return -1;
	}
	if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode) && !S_ISBLK(st.st_mode)) {
		pl_message_error("%s is neither a file, a directory nor a block device", path);
		return -1;
	}
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		pl_message_error("%s: %s", path, pl_error_open(path, errno));
		return -1;
	}
	pl_place_report(r, path, fd);
	if (!s->ctx)
		return 0;
	f->directory = S_ISDIR(st.st_mode);
	f->empty = S_ISREG(st.st_mode) && !st.st_size;
	probe = open_probe(path, &st);
	err = errno;
	if (probe >= 0) {
		report_fd(r, s, probe, f);
		report_kernels(r, s, probe);
	} else {
		pl_report_text(r, "not_examined", "paths",
			       "not examined, no file can be made here: %s", strerror(err));
		snprintf(f->text, sizeof(f->text), "paths not examined");
		f->unknown = true;
		worse(f, WORKS);
	}
	return 0;
}

static const char *verdict_word(const struct finding *f, bool sim, const char *path)
{
	if (f->status == BROKEN)
		return "does not work";
	if (sim)
		return f->cuda ? "works, on the simulator as asked"
			       : "works, but on the simulator: no CUDA GPU was found";
	if (f->better)
		return "works, a better path is possible (see \"to change that\")";
	return path && !f->unknown ? "works, by the best path" : "a GPU works";
}

/* @text as one word of a shell. Memory for it: 4 bytes each, and 5. */
static void shell_word(const char *text, char *at)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
				    "_-./:=,+@%";
	bool quote = !*text || text[strspn(text, plain)];

	if (*text == '-')
		at = stpcpy(at, "./");
	if (quote)
		*at++ = '\'';
	for (; *text; text++)
		if (*text == '\'')
			at = stpcpy(at, "'\\''");
		else
			*at++ = *text;
	if (quote)
		*at++ = '\'';
	*at = 0;
}

/* The command that measures @path, or NULL. The caller frees it. */
static char *bench_command(const struct finding *f, const char *path)
{
	char *file = NULL, *word, *text = NULL;

	if (asprintf(&file, "%s%s", path, f->directory ? "/test-file" : "") < 0)
		return NULL;
	word = malloc(4 * strlen(file) + 5);
	if (word) {
		shell_word(file, word);
		if (asprintf(&text, "peerlane bench %s%s",
			     f->directory || f->empty ? "--create " : "", word) < 0)
			text = NULL;
	}
	free(word);
	free(file);
	return text;
}

/* The command to run next, or NULL. The caller frees it. */
static char *next_command(const struct finding *f, const struct pl_session *s, const char *path)
{
	if (!s->ctx)
		return strdup(f->gpu ? "peerlane check" : "peerlane check --backend sim");
	if (f->status == BROKEN)
		return NULL;
	if (!path || f->unknown)
		return strdup("peerlane check FILE");
	if (!strncmp(path, "nvme:", 5))
		return strdup("peerlane nvme perf ADDRESS");
	return bench_command(f, path);
}

static void report_verdict(struct pl_report *r, const struct pl_session *s, const char *path,
			   struct finding *f)
{
	bool sim = s->ctx && !strcmp(peerlane_backend(s->ctx), "sim");
	char *next, *verdict;

	worse(f, !s->ctx ? BROKEN : sim ? WORKS : BEST);
	next = next_command(f, s, path);
	if (asprintf(&verdict, "%s%s%s%s%s%s%s", verdict_word(f, sim, path), f->text[0] ? "; " : "",
		     f->text, s->ctx && sim ? "" : "; ",
		     !s->ctx ? "no GPU could be opened"
		     : sim   ? ""
			     : pl_session_name(s).text,
		     next ? "; next: " : "", next ? next : "") < 0)
		verdict = NULL;
	r->section = r->root;
	pl_report_value(r, "status", json_object_new_int(f->status), NULL, " ");
	pl_report_value(r, "next", next ? json_object_new_string(next) : NULL, NULL, " ");
	pl_report_value(r, "verdict", json_object_new_string(verdict ? verdict : ""), NULL, " ");
	fputc('\n', r->text);
	free(next);
	free(verdict);
}

static void print(struct pl_report *r, const struct check_args *args)
{
	struct json_object *verdict = json_object_object_get(r->root, "verdict");

	if (args->json) {
		pl_report_print_json(r, stdout);
		return;
	}
	if (!args->quiet)
		pl_report_print_text(r, stdout);
	printf("verdict: %s\n", json_object_get_string(verdict));
}

static void report_machine(struct pl_report *r, const struct pl_session *s, struct finding *f)
{
	pl_system_report(r);
	pl_system_report_iommu(r);
	pl_system_report_modules(r);
	pl_graphics_report_pci(r);
	f->cuda = pl_graphics_report_cuda(r);
	if (s->ctx)
		pl_graphics_report_session(r, s);
}

static int run(const struct pl_command *self, int argc, char **argv)
{
	struct check_args args = { 0 };
	struct finding found = { 0 };
	struct pl_session session;
	struct pl_report report;
	const char *path;
	int status, first, err = 0;

	first = pl_option_parse(self, argc, argv, &args, &status);
	if (first < 0)
		return status;
	path = first < argc ? argv[first] : NULL;
	found.gpu = args.gpu;
	if (pl_report_init(&report)) {
		pl_message_error("out of memory");
		return BROKEN;
	}
	/* Why no GPU can be used is what one wants to know most: go on without one. */
	if (pl_session_open(&session, args.backend, args.gpu, 0))
		session.ctx = NULL;
	report_machine(&report, &session, &found);
	if (args.cufile)
		pl_cufile_report(&report);
	if (path)
		err = report_file(&report, &session, path, &found);
	if (!err) {
		report_verdict(&report, &session, path, &found);
		print(&report, &args);
	}
	pl_session_close(&session);
	pl_report_fini(&report);
	return err ? BROKEN : found.status;
}

const struct pl_command pl_command_check = {
	.name = "check",
	.summary = "Say what this machine can do, and which path a file would take.",
	.args = "[options] [FILE]",
	.detail = "Lists the GPUs, drivers, kernel modules and settings that decide how data can "
		  "move. For FILE, also its file system and drives, the path a read and a write "
		  "would take, and for each better path why it is not taken and how to change "
		  "that. Reasons by size are those of one read and one write of 1 MiB. For a "
		  "directory the answer is that of a new file in it. No data is written. The "
		  "verdict, the last line, names the command to run next.",
	.exits = "0  a GPU works, and no better path could be had\n"
		 "1  it works, but a better path is possible, or the GPU is simulated\n"
		 "2  it cannot work, FILE cannot be opened, or the options are wrong",
	.options = options,
	.max_args = 1,
	.run = run,
};
