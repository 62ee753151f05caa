// SPDX-License-Identifier: MIT
/* JSON objects member by member; see json.h. */
#include "json.h"

#include "error.h"
#include "words.h"

#include <ctype.h>
#include <limits.h>
#include <string.h>

/* A header is an object of objects of arrays; what is ignored may be somewhat deeper. */
#define MAX_DEPTH 16

static int malformed(const struct pl_json *j, const char *what)
{
	return pl_fail(-EUCLEAN, "%s: malformed JSON at byte %zu: %s", pl_words_file(j->file).text,
		       (size_t)(j->at - j->begin), what);
}

int pl_json_init(struct pl_json *j, const char *file, const char *text, size_t bytes)
{
	*j = (struct pl_json){ .file = file, .begin = text, .at = text, .end = text + bytes };
	j->tok = json_tokener_new_ex(MAX_DEPTH);
	if (!j->tok)
		return pl_fail(-ENOMEM, "no memory to read JSON");
	json_tokener_set_flags(j->tok, JSON_TOKENER_STRICT | JSON_TOKENER_ALLOW_TRAILING_CHARS |
					       JSON_TOKENER_VALIDATE_UTF8);
	return 0;
}

void pl_json_fini(struct pl_json *j)
{
	if (j->tok)
		json_tokener_free(j->tok);
	j->tok = NULL;
}

static void skip_space(struct pl_json *j)
{
	while (j->at < j->end &&
	       (*j->at == ' ' || *j->at == '\t' || *j->at == '\n' || *j->at == '\r'))
		j->at++;
}

/* Whether the next character that is no space is @c; then it is behind us. */
static bool take(struct pl_json *j, char c)
{
	skip_space(j);
	if (j->at == j->end || *j->at != c)
		return false;
	j->at++;
	return true;
}

/*
 * What json-c lets pass and JSON does not: other quotes, control characters, zeros before numbers. And NUL
 * characters, at which keys of objects would end. Also counts the members of the object that the text, read by
 * json-c, is. NULL, or what is wrong.
 */
static const char *scan(const char *p, const char *end, size_t *members)
{
	bool in_string = false;
	size_t depth = 0;
	char before = ' ';

	for (*members = 0; p < end; before = *p++) {
		if (in_string && (unsigned char)*p < 0x20)
			return "a control character in a text";
		if (in_string && *p == '\\') {
			if (end - p >= 6 && !memcmp(p, "\\u0000", 6))
				return "a NUL character in a text";
			p++;
		} else if (*p == '"') {
			in_string = !in_string;
		} else if (in_string) {
			continue;
		} else if (*p == '\'') {
			return "a text in other quotes";
		} else if (*p == '0' && end - p > 1 && isdigit((unsigned char)p[1]) &&
			   !isdigit((unsigned char)before) && !strchr(".eE+-", before)) {
			return "a number with a zero before it";
		} else if (*p == '{' || *p == '[') {
			depth++;
		} else if (*p == '}' || *p == ']') {
			depth--;
		} else if (*p == ':' && depth == 1) {
			++*members;
		}
	}
	return NULL;
}

/* One value, whatever it is, by json-c. */
static int parse(struct pl_json *j, struct json_object **out)
{
	size_t left = (size_t)(j->end - j->at), members;
	enum json_tokener_error err;
	const char *from = j->at, *wrong;

	json_tokener_reset(j->tok);
	*out = json_tokener_parse_ex(j->tok, j->at, left < INT_MAX ? (int)left : INT_MAX);
	err = json_tokener_get_error(j->tok);
	j->at += json_tokener_get_parse_end(j->tok);
	if (err != json_tokener_success)
		return malformed(j, err == json_tokener_continue ? "it ends too early"
								 : json_tokener_error_desc(err));
	wrong = scan(from, j->at, &members);
	/* Of two members with one name json-c keeps the last. */
	if (!wrong && json_object_is_type(*out, json_type_object) &&
	    members != (size_t)json_object_object_length(*out))
		wrong = "an object has a name twice";
	if (!wrong)
		return 0;
	json_object_put(*out);
	j->at = from;
	return malformed(j, wrong);
}

int pl_json_enter(struct pl_json *j)
{
	j->first = true;
	return take(j, '{') ? 0 : malformed(j, "an object must begin here");
}

int pl_json_more(struct pl_json *j)
{
	if (take(j, '}')) {
		j->first = false;
		return 0;
	}
	if (!j->first && !take(j, ','))
		return malformed(j, "a comma or the end of the object must follow");
	j->first = false;
	skip_space(j);
	if (j->at == j->end || *j->at != '"')
		return malformed(j, "a name in quotes must follow");
	return 1;
}

int pl_json_key(struct pl_json *j, struct json_object **key)
{
	int err = parse(j, key);

	if (err || take(j, ':'))
		return err;
	json_object_put(*key);
	return malformed(j, "a colon must follow the name");
}

int pl_json_next(struct pl_json *j, struct json_object **key)
{
	int err = pl_json_more(j);

	if (err <= 0)
		return err;
	err = pl_json_key(j, key);
	return err ? err : 1;
}

int pl_json_value(struct pl_json *j, struct json_object **value)
{
	skip_space(j);
	if (j->at == j->end)
		return malformed(j, "a value must follow");
	return parse(j, value);
}

int pl_json_end(struct pl_json *j)
{
	skip_space(j);
	return j->at == j->end ? 0 : malformed(j, "nothing may follow the object");
}

bool pl_json_number(struct json_object *o, uint64_t *out)
{
	if (!json_object_is_type(o, json_type_int) || json_object_get_int64(o) < 0)
		return false;
	*out = json_object_get_uint64(o);
	/* What does not fit is the largest number to json-c. */
	return *out < INT64_MAX;
}
