/* SPDX-License-Identifier: MIT */
/* One line of a fault script. */
#ifndef SIM_FAULT_PARSE_H
#define SIM_FAULT_PARSE_H

#include "fault.h"

/* Returns 1 and a rule; 0 for an empty line or a comment; -EINVAL and the reason. Changes line. */
int pl_sn_fault_parse(char *line, struct pl_sn_rule *rule, char *why, size_t why_bytes);

#endif
