// SPDX-License-Identifier: MIT
/* Why a controller could not be opened, in words: the last one of each thread. */
#include "why.h"

#include <peerlane/nvme.h>

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static __thread char why[256];

void pl_nvme_why(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
}

static const char *words_for(int err)
{
	switch (err) {
	case -EINVAL:
		return "no such form of address, or a bad option";
	case -ENODEV:
		return "no such device, or it is not bound for this, or it went away";
	case -EBUSY:
		return "another program has it";
	case -EACCES:
	case -EPERM:
		return "not allowed for this user";
	case -ETIMEDOUT:
		return "the controller does not get ready in the time it promises";
	case -EIO:
		return "the controller reports a fatal error or fails a command";
	case -EPROTO:
		return "what the controller says of itself makes no sense";
	case -EOPNOTSUPP:
		return "the controller lacks what this driver needs";
	default:
		return strerrordesc_np(-err);
	}
}

int pl_nvme_why_opened(int err)
{
	const char *words = err && !why[0] ? words_for(err) : NULL;

	if (words)
		pl_nvme_why("%s", words);
	return err;
}

const char *peerlane_nvme_why(void)
{
	return why;
}
