/* SPDX-License-Identifier: MIT */
/* SIGINT, SIGTERM and SIGHUP end work cleanly instead of ending the process. */
#include "stop.h"

#include "message.h"

#include <signal.h>
#include <stddef.h>
#include <string.h>

static int caught;

static void remember(int sig)
{
	__atomic_store_n(&caught, sig, __ATOMIC_RELAXED);
}

void pl_stop_catch(void)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction act, old;

	memset(&act, 0, sizeof(act));
	act.sa_handler = remember;
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
		/* nohup keeps SIGHUP ignored; SIGINT is ignored in every shell's background. */
		if (signals[i] == SIGHUP && !sigaction(SIGHUP, NULL, &old) &&
		    old.sa_handler == SIG_IGN)
			continue;
		sigaction(signals[i], &act, NULL);
	}
}

bool pl_stop_requested(void)
{
	return __atomic_load_n(&caught, __ATOMIC_RELAXED) != 0;
}

int pl_stop_status(void)
{
	return 128 + __atomic_load_n(&caught, __ATOMIC_RELAXED);
}

int pl_stop_exit(int err)
{
	if (!pl_stop_requested())
		return err ? 1 : 0;
	pl_message_error("interrupted");
	return pl_stop_status();
}
