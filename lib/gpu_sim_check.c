/* SPDX-License-Identifier: MIT */
/*
 * Says on stderr what happened when host code faults in simulated GPU memory, then lets the fault
 * take the way it had before. Only with PEERLANE_SIM_CHECK=1: it is a process-wide handler.
 */
#include "gpu_sim.h"
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards installed */
static bool installed;
static struct sigaction before; /* written before the handler can run */

/* A line put together with calls a signal handler may make. */
struct line {
	char text[256];
	size_t len;
};

static void put_text(struct line *l, const char *s)
{
	while (*s && l->len < sizeof(l->text))
		l->text[l->len++] = *s++;
}

static void put_number(struct line *l, uintptr_t v, unsigned int radix)
{
	char digits[24];
	size_t i = sizeof(digits) - 1;

	digits[i] = '\0';
	do {
		digits[--i] = "0123456789abcdef"[v % radix];
		v /= radix;
	} while (v);
	put_text(l, radix == 16 ? "0x" : "");
	put_text(l, &digits[i]);
}

/* What was done at @offset of @range, NULL if it is none of our business. */
static const char *describe(const struct pl_sim_range *range, size_t offset)
{
	bool guard = offset >= pl_sim_mem_round(range->bytes);

	switch (atomic_load(&range->state)) {
	case PL_SIM_LIVE:
		return guard ? "ran past the end of simulated GPU memory"
			     : "touched simulated GPU memory";
	case PL_SIM_FREED:
		return "touched freed simulated GPU memory";
	case PL_SIM_PINNED:
		return guard ? "ran past the end of pinned memory" : NULL;
	case PL_SIM_INHERITED:
		return "touched simulated GPU memory of the parent process";
	}
	return NULL;
}

static void report(const char *what, uintptr_t addr, const struct pl_sim_range *range)
{
	struct line l = { .len = 0 };

	put_text(&l, "peerlane: host code ");
	put_text(&l, what);
	put_text(&l, " at ");
	put_number(&l, addr, 16);
	put_text(&l, " (allocation ");
	put_number(&l, range->base, 16);
	put_text(&l, ", ");
	put_number(&l, range->bytes, 10);
	put_text(&l, " bytes)\n");
	if (write(STDERR_FILENO, l.text, l.len) < 0)
		return;
}

static void explain(uintptr_t addr)
{
	for (struct pl_sim_range *r = pl_sim_table_all(); r; r = r->all) {
		size_t span = pl_sim_mem_span(r->bytes);
		const char *what = NULL;

		if (addr - r->base < span)
			what = describe(r, addr - r->base);
		else if (r->shadow && addr - r->shadow < span)
			what = describe(r, addr - r->shadow);
		if (what) {
			report(what, addr, r);
			return;
		}
	}
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
	struct sigaction dfl = { .sa_handler = SIG_DFL };
	int saved = errno;
	bool sent = info->si_code <= 0; /* by a process, not by a fault */

	if (!sent)
		explain((uintptr_t)info->si_addr);
	errno = saved;
	if (before.sa_flags & SA_SIGINFO) {
		before.sa_sigaction(sig, info, context);
	} else if (before.sa_handler == SIG_DFL || (before.sa_handler == SIG_IGN && !sent)) {
		/* A fault comes again on return and then kills. */
		sigaction(sig, &dfl, NULL);
		if (sent)
			raise(sig);
	} else if (before.sa_handler != SIG_IGN) {
		before.sa_handler(sig);
	}
}

int pl_sim_check_install(void)
{
	struct sigaction sa = { .sa_sigaction = on_fault };
	int err = 0;

	pthread_mutex_lock(&lock);
	if (installed)
		goto out;
	if (sigaction(SIGSEGV, NULL, &before))
		goto err_errno;
	sa.sa_mask = before.sa_mask;
	sa.sa_flags = SA_SIGINFO | SA_ONSTACK | (before.sa_flags & SA_NODEFER);
	if (sigaction(SIGSEGV, &sa, NULL))
		goto err_errno;
	installed = true;
out:
	pthread_mutex_unlock(&lock);
	return err;

err_errno:
	err = -errno;
	goto out;
}
