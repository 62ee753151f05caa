/* SPDX-License-Identifier: MIT */
/*
 * The configuration of the drop-in: every setting, its value and where that came from. The program
 * comes before the environment, that before cufile.json, that before what is built in. Used by the
 * library and by "peerlane check --cufile".
 */
#ifndef PL_CF_CONFIG_H
#define PL_CF_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pl_cf_id {
	PL_CF_LOG_DIR,
	PL_CF_LOG_LEVEL,
	PL_CF_LOG_MAX_MB,
	PL_CF_LOG_PATH,
	PL_CF_STATS,
	PL_CF_NVTX,
	PL_CF_QUEUE_DEPTH,
	PL_CF_IO_THREADS,
	PL_CF_PARALLEL_IO,
	PL_CF_MIN_THRESHOLD_KB,
	PL_CF_PARALLELISM,
	PL_CF_MAX_DIRECT_KB,
	PL_CF_CACHE_KB,
	PL_CF_BUFFER_CACHE_KB,
	PL_CF_PINNED_KB,
	PL_CF_POLL,
	PL_CF_POLL_KB,
	PL_CF_ALLOW_COMPAT,
	PL_CF_FORCE_COMPAT,
	PL_CF_SYSTEM_MEMORY,
	PL_CF_P2PDMA,
	PL_CF_BATCH_SIZE,
	PL_CF_BATCH_TIMEOUT_MS,
	PL_CF_IO_URING,
	PL_CF_FORCE_ODIRECT,
	PL_CF_API_CHECK,
	PL_CF_SKIP_TOPOLOGY,
	PL_CF_MEMOPS_BYPASS,
	PL_CF_VERSION,
	PL_CF_NR,
};

enum pl_cf_kind { PL_CF_NUMBER, PL_CF_SWITCH, PL_CF_TEXT };

/* What is known of a setting. */
struct pl_cf_setting {
	const char *key;   /* in cufile.json; NULL: not there */
	const char *alias; /* an older key, or NULL */
	const char *env;   /* variable, or NULL */
	enum pl_cf_kind kind;
	int param;	   /* its number for cuFileGetParameter...(), -1: none */
	uint64_t preset;   /* of numbers and switches */
	uint64_t min, max; /* of numbers: what is accepted */
	const char *words; /* of texts: the preset */
	const char *use;   /* what it does in this library */
};

extern const struct pl_cf_setting pl_cf_settings[PL_CF_NR];

enum pl_cf_source { PL_CF_PRESET, PL_CF_FILE, PL_CF_ENVIRONMENT, PL_CF_PROGRAM };

struct pl_cf_value {
	enum pl_cf_source source;
	uint64_t number;
	char text[256];
};

/* Sizes and counts of a pool; kept and given back, the engine has a pool of its own. */
#define PL_CF_MAX_SLABS 16

struct pl_cf_slabs {
	enum pl_cf_source source;
	unsigned int nr;
	uint64_t kb[PL_CF_MAX_SLABS];
	uint64_t count[PL_CF_MAX_SLABS];
};

#define PL_CF_MAX_WARNINGS 16

struct pl_cf_config {
	struct pl_cf_value values[PL_CF_NR];
	struct pl_cf_slabs posix, bounce;
	char file[256]; /* the cufile.json that was read; empty: none */
	char warnings[PL_CF_MAX_WARNINGS][200];
	unsigned int nr_warnings; /* all of them, also those there was no room for */
};

/* Presets, then cufile.json, then the environment. Never fails: what cannot be used is a warning. */
void pl_cf_config_load(struct pl_cf_config *c);
/* Presets, then this text of a cufile.json. For tests. */
void pl_cf_config_parse(struct pl_cf_config *c, const char *text, size_t bytes);
/* Whether a setting may have this number. */
bool pl_cf_config_fits(enum pl_cf_id id, uint64_t number);
/* Takes over what a program asked for, where it is within bounds. */
void pl_cf_config_apply(struct pl_cf_config *c, enum pl_cf_id id, const struct pl_cf_value *value);
/* The setting with this parameter number, or PL_CF_NR. */
enum pl_cf_id pl_cf_config_find(enum pl_cf_kind kind, int param);
/* Where a value came from, in words. */
const char *pl_cf_config_origin(const struct pl_cf_config *c, enum pl_cf_id id);

void pl_cf_config_warn(struct pl_cf_config *c, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* config_json.c */
void pl_cf_json_read(struct pl_cf_config *c, const char *text, size_t bytes);

/* Levels of the log, from all to little. */
enum pl_cf_level {
	PL_CF_TRACE,
	PL_CF_DEBUG,
	PL_CF_INFO,
	PL_CF_WARN,
	PL_CF_ERROR,
	PL_CF_NOTICE,
	PL_CF_NR_LEVELS,
};

extern const char *const pl_cf_level_names[PL_CF_NR_LEVELS];
/* PL_CF_NR_LEVELS for a word that is none. */
enum pl_cf_level pl_cf_level_of(const char *word);

#endif
