// SPDX-License-Identifier: MIT
/* Which fault comes true, and when. */
#include "fault.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fault_parse.h"

void pl_sn_faults_fini(struct pl_sn_faults *faults)
{
	free(faults->rules);
	memset(faults, 0, sizeof(*faults));
}

static int add_rule(struct pl_sn_faults *faults, const struct pl_sn_rule *rule)
{
	struct pl_sn_rule *rules = realloc(faults->rules, (faults->nr + 1) * sizeof(*rules));

	if (!rules)
		return -ENOMEM;
	faults->rules = rules;
	rules[faults->nr++] = *rule;
	return 0;
}

int pl_sn_faults_add(struct pl_sn_faults *faults, const char *script, char *why, size_t why_bytes)
{
	char *copy = strdup(script), *rest = copy, *line;
	size_t before = faults->nr;
	unsigned int number = 0;
	int rc = copy ? 0 : -ENOMEM;

	while (!rc && (line = strsep(&rest, "\n;"))) {
		struct pl_sn_rule rule;
		char reason[128];

		number++;
		rc = pl_sn_fault_parse(line, &rule, reason, sizeof(reason));
		if (rc == -EINVAL)
			snprintf(why, why_bytes, "line %u: %s", number, reason);
		else if (rc > 0)
			rc = add_rule(faults, &rule);
	}
	/* All or nothing. */
	if (rc)
		faults->nr = before;
	free(copy);
	return rc;
}

int pl_sn_faults_load(struct pl_sn_faults *faults, const char *path, char *why, size_t why_bytes)
{
	FILE *file = fopen(path, "re");
	char text[65536], reason[192];
	size_t bytes;
	int rc;

	if (!file) {
		rc = -errno;
		snprintf(why, why_bytes, "%s: %s", path, strerror(-rc));
		return rc;
	}
	bytes = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	text[bytes] = '\0';
	rc = pl_sn_faults_add(faults, text, reason, sizeof(reason));
	if (rc == -EINVAL)
		snprintf(why, why_bytes, "%s: %s", path, reason);
	return rc;
}

static bool fires(struct pl_sn_rule *rule)
{
	rule->seen++;
	if (rule->nth && rule->seen != rule->nth)
		return false;
	if (rule->every && rule->seen % rule->every)
		return false;
	if (rule->count && rule->done == rule->count)
		return false;
	return true;
}

static bool applies(const struct pl_sn_rule *rule, unsigned int qid, const struct pl_nvme_sqe *sqe)
{
	enum pl_sn_kind kind = qid ? PL_SN_IO : PL_SN_ADMIN;
	uint64_t first;

	if (rule->on != PL_SN_ON_COMMAND || (rule->kind != PL_SN_ANY && rule->kind != kind) ||
	    (rule->opcode >= 0 && rule->opcode != sqe->opcode) ||
	    (rule->queue >= 0 && (unsigned int)rule->queue != qid) ||
	    (rule->nsid && rule->nsid != sqe->nsid))
		return false;
	if (!rule->has_lba)
		return true;
	first = sqe->cdw10 | (uint64_t)sqe->cdw11 << 32;
	return qid && rule->lba >= first && rule->lba - first <= (sqe->cdw12 & PL_NVME_RW_NLB_MASK);
}

static const struct pl_sn_rule *come_true(struct pl_sn_faults *faults, struct pl_sn_rule *rule)
{
	rule->done++;
	faults->injected++;
	return rule;
}

const struct pl_sn_rule *pl_sn_faults_command(struct pl_sn_faults *faults, unsigned int qid,
					      const struct pl_nvme_sqe *sqe)
{
	struct pl_sn_rule *first = NULL;

	/* Every rule counts what it applies to; the first one that fires is carried out. */
	for (size_t i = 0; i < faults->nr; i++)
		if (applies(&faults->rules[i], qid, sqe) && fires(&faults->rules[i]) && !first)
			first = &faults->rules[i];
	return first ? come_true(faults, first) : NULL;
}

const struct pl_sn_rule *pl_sn_faults_moment(struct pl_sn_faults *faults, enum pl_sn_moment on)
{
	struct pl_sn_rule *first = NULL;

	for (size_t i = 0; i < faults->nr; i++)
		if (faults->rules[i].on == on && fires(&faults->rules[i]) && !first)
			first = &faults->rules[i];
	return first ? come_true(faults, first) : NULL;
}
