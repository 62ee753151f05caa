/* SPDX-License-Identifier: MIT */
/* The log: a file the configuration names, or nothing. */
#ifndef PL_CF_LOG_H
#define PL_CF_LOG_H

#include "config.h"

/* Opens the log the configuration asks for, where it does. */
void pl_cf_log_open(const struct pl_cf_config *c);
void pl_cf_log_close(void);
/* Whether a line of this level would be written. */
bool pl_cf_log_wants(enum pl_cf_level level);
void pl_cf_log(enum pl_cf_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* For the engine's own lines; see peerlane_log_fn. */
void pl_cf_log_engine(void *arg, int level, const char *text);
/* What was wrong with the configuration: to the log, or to standard error; once in a process. */
void pl_cf_log_warnings(const struct pl_cf_config *c);
/* In a forked child. */
void pl_cf_log_forget(void);

#endif
