/* SPDX-License-Identifier: MIT */
/* SIGINT, SIGTERM and SIGHUP end work cleanly instead of ending the process. */
#ifndef PL_STOP_H
#define PL_STOP_H

#include <stdbool.h>

/* From here on the signals are only remembered. */
void pl_stop_catch(void);

bool pl_stop_requested(void);

/* What a shell expects of a program ended by that signal: 130 for SIGINT. */
int pl_stop_status(void);

/* The exit status of a command whose work ended with @err; if a signal ended it, that is said. */
int pl_stop_exit(int err);

#endif
