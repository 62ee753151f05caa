/* SPDX-License-Identifier: MIT */
/*
 * JSON objects member by member. json-c reads every key and value; the walk from member to member is here,
 * so that a large object needs no tree in memory and names that are there twice are seen, of which
 * json-c keeps the last.
 */
#ifndef PL_MODEL_JSON_H
#define PL_MODEL_JSON_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>

struct pl_json {
	const char *file; /* for messages */
	const char *begin, *at, *end;
	struct json_tokener *tok;
	bool first; /* no member of the object was read yet */
};

/* Begins to read @bytes of @text, which stays the caller's. */
int pl_json_init(struct pl_json *j, const char *file, const char *text, size_t bytes);
void pl_json_fini(struct pl_json *j);

/* Goes into the object that begins here. */
int pl_json_enter(struct pl_json *j);
/* Whether there is another member: 1, and its name begins at @at; 0 at the end of the object, which is then behind us. */
int pl_json_more(struct pl_json *j);
/* The name of the member that begins at @at, for json_object_put(). */
int pl_json_key(struct pl_json *j, struct json_object **key);
/* Both: 1 and the name; 0 at the end. */
int pl_json_next(struct pl_json *j, struct json_object **key);
/* The value of the member, for json_object_put(); no text has a NUL character, no object a name twice. */
int pl_json_value(struct pl_json *j, struct json_object **value);
/* Sees that only white space is left. */
int pl_json_end(struct pl_json *j);

/* An integer of 0 to INT64_MAX, and nothing else. */
bool pl_json_number(struct json_object *o, uint64_t *out);

#endif
