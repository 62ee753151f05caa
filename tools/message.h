/* SPDX-License-Identifier: MIT */
/* What the tool says on standard error. */
#ifndef PL_MESSAGE_H
#define PL_MESSAGE_H

/* Name of the sub-command, put before every message. */
void pl_message_name(const char *command);

/* One line on standard error; a progress line in the way is removed first. */
void pl_message_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void pl_message_warning(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
