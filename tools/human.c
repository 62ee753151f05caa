/* SPDX-License-Identifier: MIT */
/* Sizes, counts and times as people write and read them. */
#include "human.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char letters[] = "KMGTPE";

/* What follows the number: "", "B", "K", "KiB", "KB" and so on. Returns 0 for none of them. */
static double unit(const char *text)
{
	const char *letter;
	double base = 1024, factor = 1;

	if (!*text || !strcasecmp(text, "B"))
		return 1;
	letter = strchr(letters, toupper((unsigned char)*text));
	if (!letter)
		return 0;
	if (!strcasecmp(text + 1, "B"))
		base = 1000;
	else if (text[1] && strcasecmp(text + 1, "iB") != 0)
		return 0;
	for (; letter >= letters; letter--)
		factor *= base;
	return factor;
}

int pl_human_parse(const char *text, uint64_t *bytes)
{
	const char *p = text;
	double value = 0, place = 0.1, factor;
	int digits = 0;

	for (; isdigit((unsigned char)*p); p++, digits++)
		value = value * 10 + (*p - '0');
	if (*p == '.')
		for (p++; isdigit((unsigned char)*p); p++, digits++, place /= 10)
			value += (*p - '0') * place;
	while (*p == ' ')
		p++;
	factor = unit(p);
	if (!digits || factor == 0)
		return -EINVAL;
	value *= factor;
	if (value >= 0x1p63)
		return -ERANGE;
	*bytes = (uint64_t)(value + 0.5);
	return 0;
}

struct pl_human pl_human_size(uint64_t bytes)
{
	struct pl_human h;
	double value = (double)bytes;
	int i = -1;

	while (value >= 1023.95 && letters[i + 1]) {
		value /= 1024;
		i++;
	}
	if (i < 0)
		return pl_human_nr(bytes, "byte");
	else if (value == (double)(uint64_t)value)
		snprintf(h.text, sizeof(h.text), "%.0f %ciB", value, letters[i]);
	else
		snprintf(h.text, sizeof(h.text), "%.1f %ciB", value, letters[i]);
	return h;
}

struct pl_human pl_human_short(uint64_t bytes)
{
	struct pl_human h;
	int i = -1;

	while (bytes && bytes % 1024 == 0 && letters[i + 1]) {
		bytes /= 1024;
		i++;
	}
	if (i < 0)
		snprintf(h.text, sizeof(h.text), "%llu", (unsigned long long)bytes);
	else
		snprintf(h.text, sizeof(h.text), "%llu%c", (unsigned long long)bytes, letters[i]);
	return h;
}

struct pl_human pl_human_nr(uint64_t nr, const char *noun)
{
	struct pl_human h;

	snprintf(h.text, sizeof(h.text), "%llu %s%s", (unsigned long long)nr, noun,
		 nr == 1 ? "" : "s");
	return h;
}

/* Three figures, never an exponent. */
static struct pl_human scaled(double value, const char *space, const char *unit)
{
	struct pl_human h;
	int places = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;

	/* A number of things has no fraction. */
	if (value == (double)(uint64_t)value)
		places = 0;
	snprintf(h.text, sizeof(h.text), "%.*f%s%s", places, value, space, unit);
	return h;
}

struct pl_human pl_human_count(double count)
{
	if (count < 9999.5)
		return scaled((double)(uint64_t)(count + 0.5), "", "");
	if (count < 999.5e3)
		return scaled(count / 1e3, " ", "k");
	return count < 999.5e6 ? scaled(count / 1e6, " ", "M") : scaled(count / 1e9, " ", "G");
}

struct pl_human pl_human_time(double ns)
{
	if (ns < 999.5)
		return scaled(ns, " ", "ns");
	if (ns < 999.5e3)
		return scaled(ns / 1e3, " ", "us");
	return ns < 999.5e6 ? scaled(ns / 1e6, " ", "ms") : scaled(ns / 1e9, " ", "s");
}
