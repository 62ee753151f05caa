// SPDX-License-Identifier: MIT
/* Names in messages: a file from elsewhere must not write to the terminal what it likes. */
#include "words.h"

#include <stdint.h>
#include <string.h>

struct pl_words pl_words_name(const char *name)
{
	struct pl_words out;
	size_t n = strlen(name), room = sizeof(out.text) - 4;

	memcpy(out.text, name, n < room ? n : room);
	if (n > room) {
		/* Not in the middle of a character. */
		while (room && ((unsigned char)name[room] & 0xc0) == 0x80)
			room--;
		memcpy(out.text + room, "...", 3);
		n = room + 3;
	}
	out.text[n] = '\0';
	for (char *p = out.text; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = '?';
	return out;
}

struct pl_words pl_words_file(const char *path)
{
	const char *slash = strrchr(path, '/');

	return pl_words_name(slash ? slash + 1 : path);
}

bool pl_words_is_utf8(const char *text)
{
	/* The least value each number of following bytes may stand for. */
	static const uint32_t least[] = { 0, 0x80, 0x800, 0x10000 };

	for (const unsigned char *p = (const unsigned char *)text; *p;) {
		unsigned int more = *p < 0x80 ? 0 : *p < 0xe0 ? 1 : *p < 0xf0 ? 2 : 3;
		uint32_t v = more ? *p & (0x3fu >> more) : *p;

		if ((*p >= 0x80 && *p < 0xc0) || *p > 0xf7)
			return false;
		p++;
		for (unsigned int i = 0; i < more; i++, p++) {
			if ((*p & 0xc0) != 0x80)
				return false;
			v = v << 6 | (*p & 0x3fu);
		}
		if (v < least[more] || v > 0x10ffff || (v >= 0xd800 && v < 0xe000))
			return false;
	}
	return true;
}
