/* SPDX-License-Identifier: MIT */
/* Takes what identifies a machine or a person out of a text. */
#include "prove.h"

#include "host.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Shorter ones are parts of ordinary words. */
#define SHORTEST 3

static void add_word(struct pl_prove_scrub *s, const char *word)
{
	if (strlen(word) < SHORTEST || !strcmp(word, "(none)") || !strcmp(word, "localhost") ||
	    s->nr_words == sizeof(s->words) / sizeof(s->words[0]))
		return;
	snprintf(s->words[s->nr_words++], sizeof(s->words[0]), "%s", word);
}

/* The serial numbers and names of a drive's controller or disk. */
static void add_device(void *arg, const char *name)
{
	static const char *const files[] = { "/sys/class/nvme/%s/serial", "/sys/block/%s/wwid",
					     "/sys/block/%s/device/serial",
					     "/sys/block/%s/device/wwid" };
	char path[128], line[80];

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		/* One of the constant formats above. */
		snprintf(path, sizeof(path), "%.*s%s%s", (int)(strstr(files[i], "%s") - files[i]),
			 files[i], name, strstr(files[i], "%s") + 2);
		if (pl_host_line(line, sizeof(line), "%s", path))
			add_word(arg, line);
	}
}

static void add_names(struct pl_prove_scrub *s)
{
	static const char *const variables[] = { "USER", "LOGNAME", "SUDO_USER", "HOSTNAME" };
	char host[80] = "";

	gethostname(host, sizeof(host) - 1);
	add_word(s, host);
	host[strcspn(host, ".")] = 0;
	add_word(s, host);
	for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
		const char *value = getenv(variables[i]);

		/* Everybody's. */
		if (value && strcmp(value, "root") != 0)
			add_word(s, value);
	}
}

int pl_prove_scrub_init(struct pl_prove_scrub *s)
{
	static const char hex4[] = "[0-9a-fA-F]{1,4}";
	char ipv6[128];

	memset(s, 0, sizeof(*s));
	/* Four groups at least, or two colons: PCI addresses and times have fewer. */
	snprintf(ipv6, sizeof(ipv6), "(%s:){4,7}%s|(%s:){1,6}(:%s){1,6}", hex4, hex4, hex4, hex4);
	if (regcomp(&s->address, "(0x)?[0-9a-fA-F]{12,}", REG_EXTENDED) ||
	    regcomp(&s->ipv4, "[0-9]{1,3}\\.[0-9]{1,3}\\.[0-9]{1,3}\\.[0-9]{1,3}", REG_EXTENDED) ||
	    regcomp(&s->mac, "[0-9a-fA-F]{2}([:-][0-9a-fA-F]{2}){5,7}", REG_EXTENDED) ||
	    regcomp(&s->ipv6, ipv6, REG_EXTENDED) ||
	    regcomp(&s->uuid, "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F-]{4,}",
		    REG_EXTENDED))
		return -ENOMEM;
	add_names(s);
	pl_host_list("/sys/class/nvme", add_device, s);
	pl_host_list("/sys/block", add_device, s);
	return 0;
}

void pl_prove_scrub_fini(struct pl_prove_scrub *s)
{
	regfree(&s->address);
	regfree(&s->ipv4);
	regfree(&s->mac);
	regfree(&s->ipv6);
	regfree(&s->uuid);
}

/* @text with [start, start + bytes) replaced; frees @text. NULL without memory. */
static char *replace(char *text, size_t start, size_t bytes, const char *with)
{
	char *out = NULL;

	if (asprintf(&out, "%.*s%s%s", (int)start, text, with, text + start + bytes) < 0)
		out = NULL;
	free(text);
	return out;
}

static char *replace_all(char *text, const regex_t *regex, const char *with)
{
	regmatch_t match;
	size_t at = 0;

	while (text && !regexec(regex, text + at, 1, &match, 0)) {
		size_t start = at + (size_t)match.rm_so;

		text = replace(text, start, (size_t)(match.rm_eo - match.rm_so), with);
		at = start + strlen(with);
	}
	return text;
}

/* Whole words only: a host called "nvme" does not make "nvme0" unreadable. */
static char *replace_word(char *text, const char *word, const char *with)
{
	size_t bytes = strlen(word), at = 0;
	const char *found;

	while (text && (found = strcasestr(text + at, word))) {
		size_t start = (size_t)(found - text);
		bool begins = start && isalnum((unsigned char)found[-1]);
		bool goes_on = isalnum((unsigned char)found[bytes]);

		if (begins || goes_on) {
			at = start + 1;
			continue;
		}
		text = replace(text, start, bytes, with);
		at = start + strlen(with);
	}
	return text;
}

char *pl_prove_scrub_text(const struct pl_prove_scrub *s, const char *text)
{
	char *out = strdup(text);

	for (unsigned int i = 0; i < s->nr_words; i++)
		out = replace_word(out, s->words[i], "<name>");
	out = replace_all(out, &s->uuid, "<uuid>");
	out = replace_all(out, &s->mac, "<mac>");
	out = replace_all(out, &s->ipv6, "<ip>");
	out = replace_all(out, &s->ipv4, "<ip>");
	return replace_all(out, &s->address, "<address>");
}
