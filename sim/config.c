// SPDX-License-Identifier: MIT
/* Parses the string that describes a controller. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <peerlane/nvme_spec.h>

struct number_key {
	const char *name;
	size_t at; /* of a uint32_t in the configuration */
	uint64_t least, most;
};

#define NUMBER(key, least, most)                                                                   \
	{                                                                                          \
#key, offsetof(struct pl_sn_config, key), least, most                              \
	}
static const struct number_key numbers[] = {
	NUMBER(nn, 1, 0xfffffffe),
	NUMBER(mdts, 0, 255),
	NUMBER(mqes, 1, 65535),
	NUMBER(dstrd, 0, 15),
	NUMBER(to, 0, 255),
	NUMBER(mpsmin, 0, 15),
	NUMBER(mpsmax, 0, 15),
	NUMBER(cqr, 0, 1),
	NUMBER(queues, 1, PL_SN_MAX_QUEUES),
	NUMBER(vectors, 1, PL_SN_MAX_VECTORS),
	NUMBER(aerl, 0, 15),
	NUMBER(sgl, 0, 2),
	NUMBER(ready, 0, 1u << 30),
	NUMBER(vwc, 0, 1),
};

static int complain(char *why, size_t bytes, const char *key, const char *value, const char *what)
{
	snprintf(why, bytes, "sim: %s=%s: %s", key, value, what);
	return -EINVAL;
}

/* A number with K, M, G or T behind it. */
static bool parse_size(const char *text, uint64_t *out)
{
	static const char suffixes[] = "KMGT";
	char *end;
	const char *suffix;
	unsigned long long n;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	n = strtoull(text, &end, 0);
	if (errno)
		return false;
	suffix = *end ? strchr(suffixes, *end) : NULL;
	if (suffix) {
		unsigned int shift = 10u * (unsigned int)(suffix - suffixes + 1);

		if (n > UINT64_MAX >> shift)
			return false;
		n <<= shift;
		end++;
	}
	if (*end)
		return false;
	*out = n;
	return true;
}

/* Values for the namespaces in turn, with ':' between; the last one is for all that follow. */
static int parse_list(const char *value, uint64_t out[PL_SN_MAX_NS])
{
	char text[PL_SN_PATH_BYTES];
	uint32_t nr = 0;

	if (strlen(value) >= sizeof(text))
		return -EINVAL;
	memcpy(text, value, strlen(value) + 1);
	for (char *rest = text, *word; (word = strsep(&rest, ":")); nr++)
		if (nr == PL_SN_MAX_NS || !parse_size(word, &out[nr]))
			return -EINVAL;
	for (; nr < PL_SN_MAX_NS; nr++)
		out[nr] = out[nr - 1];
	return 0;
}

static int set_string(char *out, size_t room, const char *value)
{
	if (strlen(value) >= room || !*value)
		return -EINVAL;
	memcpy(out, value, strlen(value) + 1);
	return 0;
}

static int set_dbbuf(struct pl_sn_config *config, const char *value)
{
	if (!strcmp(value, "0"))
		config->dbbuf = PL_SN_DBBUF_NONE;
	else if (!strcmp(value, "1") || !strcmp(value, "event"))
		config->dbbuf = PL_SN_DBBUF_EVENT;
	else if (!strcmp(value, "poll"))
		config->dbbuf = PL_SN_DBBUF_POLL;
	else
		return -EINVAL;
	return 0;
}

static int set_bool(bool *out, const char *value)
{
	if (strcmp(value, "0") != 0 && strcmp(value, "1") != 0)
		return -EINVAL;
	*out = *value == '1';
	return 0;
}

static int set_bs(struct pl_sn_config *config, const char *value)
{
	uint64_t list[PL_SN_MAX_NS];

	if (parse_list(value, list))
		return -EINVAL;
	for (uint32_t i = 0; i < PL_SN_MAX_NS; i++) {
		if (list[i] != 512 && list[i] != 4096)
			return -EINVAL;
		config->bs[i] = (uint32_t)list[i];
	}
	return 0;
}

static int set_size(struct pl_sn_config *config, const char *value)
{
	if (parse_list(value, config->size))
		return -EINVAL;
	for (uint32_t i = 0; i < PL_SN_MAX_NS; i++)
		if (config->size[i] < 4096 || config->size[i] > (uint64_t)1 << 44)
			return -EINVAL;
	return 0;
}

static int set_cmb(struct pl_sn_config *config, const char *value)
{
	if (!parse_size(value, &config->cmb) || config->cmb % 4096 || config->cmb > 256u << 20)
		return -EINVAL;
	return 0;
}

/* Uses of the CMB: letters s, c, l, r, w. */
static int set_cmb_use(struct pl_sn_config *config, const char *value)
{
	static const char letters[] = "sclrw"; /* in the order of the bits of CMBSZ */

	config->cmb_use = 0;
	for (; *value; value++) {
		const char *at = strchr(letters, *value);

		if (!at)
			return -EINVAL;
		config->cmb_use |= 1u << (at - letters);
	}
	return 0;
}

static int set_number(struct pl_sn_config *config, const struct number_key *key, const char *value)
{
	uint32_t n32;
	uint64_t n;

	if (!parse_size(value, &n) || n < key->least || n > key->most)
		return -EINVAL;
	n32 = (uint32_t)n;
	memcpy((char *)config + key->at, &n32, sizeof(n32));
	return 0;
}

/* What was wrong with a key, or NULL. */
static const char *set_key(struct pl_sn_config *config, const char *key, const char *value,
			   uint32_t *nr_files)
{
	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
		if (!strcmp(key, numbers[i].name))
			return set_number(config, &numbers[i], value) ? "not in its range" : NULL;
	if (!strcmp(key, "size"))
		return set_size(config, value) ? "not 4K to 16T" : NULL;
	if (!strcmp(key, "bs"))
		return set_bs(config, value) ? "not 512 or 4096" : NULL;
	if (!strcmp(key, "ns")) {
		uint64_t n;

		if (!parse_size(value, &n) || n > PL_SN_MAX_NS)
			return "not 0 to 64";
		config->nr_ns = (uint32_t)n;
		return NULL;
	}
	if (!strcmp(key, "file")) {
		if (*nr_files == PL_SN_MAX_NS)
			return "too many files";
		return set_string(config->file[(*nr_files)++], PL_SN_PATH_BYTES, value)
			       ? "empty or too long"
			       : NULL;
	}
	if (!strcmp(key, "cmb"))
		return set_cmb(config, value) ? "not a multiple of 4K up to 256M" : NULL;
	if (!strcmp(key, "cmbuse"))
		return set_cmb_use(config, value) ? "not letters of sclrw" : NULL;
	if (!strcmp(key, "dbbuf"))
		return set_dbbuf(config, value) ? "not 0, event or poll" : NULL;
	if (!strcmp(key, "strict"))
		return set_bool(&config->strict, value) ? "not 0 or 1" : NULL;
	if (!strcmp(key, "spin"))
		return set_bool(&config->spin, value) ? "not 0 or 1" : NULL;
	if (!strcmp(key, "serial"))
		return set_string(config->serial, sizeof(config->serial), value)
			       ? "empty or over 20 letters"
			       : NULL;
	if (!strcmp(key, "fault"))
		return set_string(config->fault, sizeof(config->fault), value) ? "empty or too long"
									       : NULL;
	if (!strcmp(key, "rule"))
		return set_string(config->rule, sizeof(config->rule), value) ? "empty or too long"
									     : NULL;
	return "no such key";
}

static void set_defaults(struct pl_sn_config *config)
{
	memset(config, 0, sizeof(*config));
	for (uint32_t i = 0; i < PL_SN_MAX_NS; i++) {
		config->size[i] = 64u << 20;
		config->bs[i] = 512;
	}
	config->nr_ns = UINT32_MAX;
	config->mdts = 5;
	config->mqes = 1023;
	config->to = 20;
	config->mpsmax = 4;
	config->queues = 64;
	config->vectors = 65;
	config->aerl = 3;
	config->cmb_use = PL_NVME_CMBSZ_SQS | PL_NVME_CMBSZ_CQS | PL_NVME_CMBSZ_LISTS |
			  PL_NVME_CMBSZ_RDS | PL_NVME_CMBSZ_WDS;
	config->vwc = 1;
	config->strict = true;
	strcpy(config->serial, "SIM0001");
}

int pl_sn_config_parse(struct pl_sn_config *config, const char *text, char *why, size_t why_bytes)
{
	uint32_t nr_files = 0;
	char *copy, *rest, *word;
	int rc = 0;

	set_defaults(config);
	if (!strncmp(text, "sim:", 4))
		text += 4;
	copy = strdup(text);
	if (!copy)
		return -ENOMEM;
	for (rest = copy; !rc && (word = strsep(&rest, ","));) {
		char *value = strchr(word, '=');
		const char *wrong;

		if (!*word)
			continue;
		if (!value) {
			rc = complain(why, why_bytes, word, "", "has no value");
			break;
		}
		*value++ = '\0';
		wrong = set_key(config, word, value, &nr_files);
		if (wrong)
			rc = complain(why, why_bytes, word, value, wrong);
	}
	free(copy);
	if (rc)
		return rc;
	if (config->nr_ns == UINT32_MAX)
		config->nr_ns = nr_files ? nr_files : 1;
	if (!config->nn)
		config->nn = config->nr_ns ? config->nr_ns : 1;
	if (config->nr_ns < nr_files || config->nn < config->nr_ns)
		return complain(why, why_bytes, "ns", "", "fewer than files, or more than nn");
	if (config->mpsmax < config->mpsmin)
		return complain(why, why_bytes, "mpsmax", "", "less than mpsmin");
	return 0;
}
