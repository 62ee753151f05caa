// SPDX-License-Identifier: MIT
/* The settings of the drop-in: presets, the environment, and what fits. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_FILE "/etc/cufile.json"
#define MAX_FILE_BYTES (1024 * 1024)
#define ANY UINT64_MAX

#define SHOWN "reported only: the engine decides by itself"

const struct pl_cf_setting pl_cf_settings[PL_CF_NR] = {
	[PL_CF_LOG_DIR] = { "logging.dir", NULL, NULL, PL_CF_TEXT, 2, 0, 0, 0, "",
			    "folder of the log; without one nothing is logged" },
	[PL_CF_LOG_LEVEL] = { "logging.level", NULL, "CUFILE_LOGGING_LEVEL", PL_CF_TEXT, 0, 0, 0, 0,
			      "ERROR", "what is logged" },
	[PL_CF_LOG_MAX_MB] = { "logging.max_file_size_mb", NULL, "CUFILE_LOGFILE_MAX_SIZE_MB",
			       PL_CF_NUMBER, -1, 32, 1, ANY, NULL,
			       "the log begins anew at this size; -1: never" },
	[PL_CF_LOG_PATH] = { NULL, NULL, "CUFILE_LOGFILE_PATH", PL_CF_TEXT, 1, 0, 0, 0, "",
			     "the log's own path" },
	[PL_CF_STATS] = { "profile.cufile_stats", NULL, NULL, PL_CF_NUMBER, 0, 0, 0, 3, NULL,
			  "level of the statistics kept from the start" },
	[PL_CF_NVTX] = { "profile.nvtx", NULL, "CUFILE_NVTX", PL_CF_SWITCH, 5, 0, 0, 1, NULL,
			 "no effect" },
	[PL_CF_QUEUE_DEPTH] = { "execution.max_io_queue_depth", NULL, NULL, PL_CF_NUMBER, 1, 128, 1,
				256, NULL, SHOWN },
	[PL_CF_IO_THREADS] = { "execution.max_io_threads", NULL, NULL, PL_CF_NUMBER, 2, 4, 0, 32,
			       NULL, SHOWN },
	[PL_CF_PARALLEL_IO] = { "execution.parallel_io", NULL, NULL, PL_CF_SWITCH, 4, 1, 0, 1, NULL,
				SHOWN },
	[PL_CF_MIN_THRESHOLD_KB] = { "execution.min_io_threshold_size_kb", NULL, NULL, PL_CF_NUMBER,
				     3, 8192, 4, UINT32_MAX, NULL, SHOWN },
	[PL_CF_PARALLELISM] = { "execution.max_request_parallelism", NULL, NULL, PL_CF_NUMBER, 4, 4,
				0, 8, NULL, SHOWN },
	[PL_CF_MAX_DIRECT_KB] = { "properties.max_direct_io_size_kb", NULL, NULL, PL_CF_NUMBER, 5,
				  16384, 64, 16384, NULL, SHOWN },
	[PL_CF_CACHE_KB] = { "properties.max_device_cache_size_kb", NULL, NULL, PL_CF_NUMBER, 6,
			     131072, 0, UINT32_MAX, NULL, SHOWN },
	[PL_CF_BUFFER_CACHE_KB] = { "properties.per_buffer_cache_size_kb", NULL, NULL, PL_CF_NUMBER,
				    7, 1024, 64, 16384, NULL, SHOWN },
	[PL_CF_PINNED_KB] = { "properties.max_device_pinned_mem_size_kb", NULL, NULL, PL_CF_NUMBER,
			      8, 33554432, 64, UINT32_MAX, NULL, SHOWN },
	[PL_CF_POLL] = { "properties.use_poll_mode", NULL, NULL, PL_CF_SWITCH, 0, 0, 0, 1, NULL,
			 SHOWN },
	[PL_CF_POLL_KB] = { "properties.poll_mode_max_size_kb", NULL, NULL, PL_CF_NUMBER, 10, 4, 4,
			    18014398509481980, NULL, SHOWN },
	[PL_CF_ALLOW_COMPAT] = { "properties.allow_compat_mode", "properties.use_compat_mode",
				 "CUFILE_ALLOW_COMPAT_MODE", PL_CF_SWITCH, 1, 1, 0, 1, NULL,
				 "reported only: no file that can be read is refused" },
	[PL_CF_FORCE_COMPAT] = { "properties.force_compat_mode", NULL, "CUFILE_FORCE_COMPAT_MODE",
				 PL_CF_SWITCH, 2, 0, 0, 1, NULL,
				 "nothing goes between drive and GPU by DMA" },
	[PL_CF_SYSTEM_MEMORY] = { "properties.allow_system_memory", NULL, NULL, PL_CF_SWITCH, 6, 1,
				  0, 1, NULL, "reported only: host memory always works" },
	[PL_CF_P2PDMA] = { "properties.use_pci_p2pdma", NULL, "CUFILE_USE_PCIP2PDMA", PL_CF_SWITCH,
			   7, 0, 0, 1, NULL, SHOWN },
	[PL_CF_BATCH_SIZE] = { "properties.io_batchsize", NULL, NULL, PL_CF_NUMBER, 9, 128, 1, 256,
			       NULL, SHOWN },
	[PL_CF_BATCH_TIMEOUT_MS] = { "properties.max_batch_io_timeout_msecs", NULL, NULL,
				     PL_CF_NUMBER, 11, 5, 1, 1000, NULL, SHOWN },
	[PL_CF_IO_URING] = { "properties.prefer_iouring", NULL, NULL, PL_CF_SWITCH, 8, 0, 0, 1,
			     NULL, "no effect: io_uring is used wherever it works" },
	[PL_CF_FORCE_ODIRECT] = { "properties.force_odirect_mode", NULL, NULL, PL_CF_SWITCH, 9, 0,
				  0, 1, NULL, "files are used as if opened with O_DIRECT" },
	[PL_CF_API_CHECK] = { "miscellaneous.api_check_aggressive", NULL, NULL, PL_CF_SWITCH, 3, 0,
			      0, 1, NULL, "no effect: arguments are always checked" },
	[PL_CF_SKIP_TOPOLOGY] = { "miscellaneous.skip_topology_detection", NULL,
				  "CUFILE_SKIP_TOPOLOGY_DETECTION", PL_CF_SWITCH, 10, 0, 0, 1, NULL,
				  "no effect" },
	[PL_CF_MEMOPS_BYPASS] = { "miscellaneous.stream_memops_bypass", NULL, NULL, PL_CF_SWITCH,
				  11, 0, 0, 1, NULL, "no effect" },
	[PL_CF_VERSION] = { "peerlane.version", NULL, "PEERLANE_CUFILE_VERSION", PL_CF_NUMBER, -1,
			    1150, 1000, 1189, NULL, "what cuFileGetVersion() answers" },
};

const char *const pl_cf_level_names[PL_CF_NR_LEVELS] = {
	[PL_CF_TRACE] = "TRACE", [PL_CF_DEBUG] = "DEBUG", [PL_CF_INFO] = "INFO",
	[PL_CF_WARN] = "WARN",	 [PL_CF_ERROR] = "ERROR", [PL_CF_NOTICE] = "NOTICE",
};

enum pl_cf_level pl_cf_level_of(const char *word)
{
	int i;

	for (i = 0; i < PL_CF_NR_LEVELS; i++)
		if (!strcasecmp(word, pl_cf_level_names[i]))
			break;
	return (enum pl_cf_level)i;
}

void pl_cf_config_warn(struct pl_cf_config *c, const char *fmt, ...)
{
	va_list ap;

	if (c->nr_warnings < PL_CF_MAX_WARNINGS) {
		va_start(ap, fmt);
		vsnprintf(c->warnings[c->nr_warnings], sizeof(c->warnings[0]), fmt, ap);
		va_end(ap);
	}
	c->nr_warnings++;
}

bool pl_cf_config_fits(enum pl_cf_id id, uint64_t number)
{
	const struct pl_cf_setting *s = &pl_cf_settings[id];

	return s->kind == PL_CF_TEXT || (number >= s->min && number <= s->max);
}

void pl_cf_config_apply(struct pl_cf_config *c, enum pl_cf_id id, const struct pl_cf_value *value)
{
	struct stat st;

	if (!pl_cf_config_fits(id, value->number) ||
	    (id == PL_CF_LOG_LEVEL && pl_cf_level_of(value->text) == PL_CF_NR_LEVELS))
		return;
	if (id == PL_CF_LOG_DIR && (stat(value->text, &st) || !S_ISDIR(st.st_mode)))
		return;
	c->values[id] = *value;
}

enum pl_cf_id pl_cf_config_find(enum pl_cf_kind kind, int param)
{
	int i;

	for (i = 0; i < PL_CF_NR; i++)
		if (param >= 0 && pl_cf_settings[i].kind == kind &&
		    pl_cf_settings[i].param == param)
			break;
	return (enum pl_cf_id)i;
}

const char *pl_cf_config_origin(const struct pl_cf_config *c, enum pl_cf_id id)
{
	switch (c->values[id].source) {
	case PL_CF_FILE:
		return c->file;
	case PL_CF_ENVIRONMENT:
		return pl_cf_settings[id].env;
	case PL_CF_PROGRAM:
		return "the program";
	default:
		return "built in";
	}
}

static void presets(struct pl_cf_config *c)
{
	static const struct pl_cf_slabs posix = { .nr = 3,
						  .kb = { 4, 1024, 16384 },
						  .count = { 128, 64, 64 } };
	static const struct pl_cf_slabs bounce = { .nr = 4,
						   .kb = { 1024, 8192, 16384, 65536 },
						   .count = { 128, 8, 4, 2 } };

	memset(c, 0, sizeof(*c));
	for (int i = 0; i < PL_CF_NR; i++) {
		c->values[i].number = pl_cf_settings[i].preset;
		if (pl_cf_settings[i].words)
			snprintf(c->values[i].text, sizeof(c->values[i].text), "%s",
				 pl_cf_settings[i].words);
	}
	c->posix = posix;
	c->bounce = bounce;
}

static bool parse_switch(const char *text, uint64_t *out)
{
	static const char *const on[] = { "1", "true", "yes", "on" };
	static const char *const off[] = { "0", "false", "no", "off" };

	for (int i = 0; i < 4; i++) {
		if (strcasecmp(text, on[i]) != 0 && strcasecmp(text, off[i]) != 0)
			continue;
		*out = !strcasecmp(text, on[i]);
		return true;
	}
	return false;
}

static bool parse_number(const char *text, uint64_t *out)
{
	bool minus = *text == '-';
	char *end;

	errno = 0;
	*out = strtoull(text + minus, &end, 10);
	if (errno || end == text + minus || *end || text[minus] < '0' || text[minus] > '9')
		return false;
	/* Only the log's size may be -1, which means no end; there all ones do. */
	if (minus)
		*out = UINT64_MAX;
	return !minus || !strcmp(text, "-1");
}

static void take_variable(struct pl_cf_config *c, enum pl_cf_id id, const char *text)
{
	const struct pl_cf_setting *s = &pl_cf_settings[id];
	struct pl_cf_value v = { .source = PL_CF_ENVIRONMENT };
	bool good;

	if (s->kind == PL_CF_TEXT)
		good = snprintf(v.text, sizeof(v.text), "%s", text) < (int)sizeof(v.text) &&
		       (id != PL_CF_LOG_LEVEL || pl_cf_level_of(text) != PL_CF_NR_LEVELS);
	else if (s->kind == PL_CF_SWITCH)
		good = parse_switch(text, &v.number);
	else
		good = parse_number(text, &v.number) && pl_cf_config_fits(id, v.number);
	if (good)
		c->values[id] = v;
	else
		pl_cf_config_warn(c, "%s=\"%.80s\" is not understood and ignored", s->env, text);
}

static void read_environment(struct pl_cf_config *c)
{
	for (int i = 0; i < PL_CF_NR; i++) {
		const char *text = pl_cf_settings[i].env ? getenv(pl_cf_settings[i].env) : NULL;

		if (text && *text)
			take_variable(c, (enum pl_cf_id)i, text);
	}
}

/* The whole file, or NULL; *@bytes is its length. */
static char *slurp(const char *path, size_t *bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	char *text = NULL;
	struct stat st;
	ssize_t n;

	if (fd < 0)
		return NULL;
	errno = EINVAL;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode))
		goto out;
	errno = EFBIG;
	if (st.st_size > MAX_FILE_BYTES)
		goto out;
	text = malloc((size_t)st.st_size + 1);
	if (!text)
		goto out;
	for (*bytes = 0; *bytes < (size_t)st.st_size; *bytes += (size_t)n) {
		n = read(fd, text + *bytes, (size_t)st.st_size - *bytes);
		if (n <= 0)
			break;
	}
	text[*bytes] = '\0';
out:
	close(fd);
	return text;
}

static void read_file(struct pl_cf_config *c)
{
	const char *named = getenv("CUFILE_ENV_PATH_JSON");
	const char *path = named && *named ? named : DEFAULT_FILE;
	size_t bytes;
	char *text = slurp(path, &bytes);

	/* That there is none is no mistake unless one was asked for. */
	if (!text) {
		if (path == named || errno != ENOENT)
			pl_cf_config_warn(c, "%.120s: %s", path, strerrordesc_np(errno));
		return;
	}
	snprintf(c->file, sizeof(c->file), "%s", path);
	pl_cf_json_read(c, text, bytes);
	free(text);
}

void pl_cf_config_load(struct pl_cf_config *c)
{
	int kept = errno;

	presets(c);
	read_file(c);
	read_environment(c);
	errno = kept;
}

void pl_cf_config_parse(struct pl_cf_config *c, const char *text, size_t bytes)
{
	presets(c);
	snprintf(c->file, sizeof(c->file), "(text)");
	pl_cf_json_read(c, text, bytes);
}
