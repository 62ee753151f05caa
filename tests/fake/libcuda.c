// SPDX-License-Identifier: MIT
/*
 * A libcuda for tests without a GPU: the CUDA driver's rules over host memory. This file has what
 * every call shares (state, injected failures, broken rules) and the devices.
 *
 * Environment: FAKE_CUDA_GPUS (default 2) is read by each cuInit(). FAKE_CUDA_FAIL, read by the
 * first one, is a list SYMBOL:AFTER:CODE[:COUNT],...: after AFTER calls of SYMBOL the next COUNT
 * (default: all) return CODE. The symbol "execute" stands for work of streams. With
 * FAKE_CUDA_REPORT the process says at exit what leaked and which rules it broke, and exits 98.
 */
#include "fake.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#define MAX_FAILS 8

struct fail {
	char symbol[48];
	unsigned int after;
	unsigned int count;
	int code;
};

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t fake_progress = PTHREAD_COND_INITIALIZER;
__thread bool fake_in_host_fn;

static pid_t started; /* the process that called cuInit(), 0 before */
static int nr_gpus;
static struct fail fails[MAX_FAILS];
static unsigned int nr_fails;
static int nr_violations;
static char violations[2048];
static int calls_after_fork;
static unsigned int strict; /* also read without the lock */
static bool alone;	    /* a call keeps all others out */
static __thread bool alone_is_me;
static pthread_cond_t alone_over = PTHREAD_COND_INITIALIZER;

/* Takes one "symbol:after:code[:count]". */
static int parse_fail(const char *text, struct fail *out)
{
	unsigned int count = ~0u;
	int nr = sscanf(text, "%47[^:]:%u:%d:%u", out->symbol, &out->after, &out->code, &count);

	out->count = count;
	return nr < 3 ? -EINVAL : 0;
}

static int set_fails(const char *spec)
{
	struct fail list[MAX_FAILS];
	unsigned int nr = 0;

	while (spec && *spec) {
		if (nr == MAX_FAILS || parse_fail(spec, &list[nr]))
			return -EINVAL;
		nr++;
		spec += strcspn(spec, ",");
		spec += *spec == ',';
	}
	memcpy(fails, list, nr * sizeof(list[0]));
	nr_fails = nr;
	return 0;
}

int fake_cuda_fail(const char *spec)
{
	int err;

	pthread_mutex_lock(&fake_lock);
	err = set_fails(spec);
	pthread_mutex_unlock(&fake_lock);
	return err;
}

/* The failure to give now, or 0; lock held. */
int fake_injected(const char *symbol)
{
	for (unsigned int i = 0; i < nr_fails; i++) {
		size_t len = strlen(fails[i].symbol);

		if (strncmp(symbol, fails[i].symbol, len) != 0 ||
		    (symbol[len] && strcmp(symbol + len, "_v2") != 0))
			continue;
		if (fails[i].after) {
			fails[i].after--;
			return 0;
		}
		if (!fails[i].count)
			return 0;
		if (fails[i].count != ~0u)
			fails[i].count--;
		return fails[i].code;
	}
	return 0;
}

/* Records a broken rule; lock held. */
void fake_violation(const char *fmt, ...)
{
	size_t len = strlen(violations);
	va_list ap;

	nr_violations++;
	va_start(ap, fmt);
	vsnprintf(violations + len, sizeof(violations) - len, fmt, ap);
	va_end(ap);
	len = strlen(violations);
	snprintf(violations + len, sizeof(violations) - len, "\n");
}

static bool forked(void)
{
	pid_t pid = __atomic_load_n(&started, __ATOMIC_ACQUIRE);

	return pid && pid != getpid();
}

int fake_cuda_violations(char *text, size_t bytes)
{
	int nr;

	/* In a child the lock may belong to a thread that is not there. */
	if (forked()) {
		snprintf(text, bytes, "%d calls after fork\n", calls_after_fork);
		return calls_after_fork;
	}
	pthread_mutex_lock(&fake_lock);
	snprintf(text, bytes, "%s", violations);
	nr = nr_violations;
	nr_violations = 0;
	violations[0] = '\0';
	pthread_mutex_unlock(&fake_lock);
	return nr;
}

unsigned int fake_cuda_strict(unsigned int flags)
{
	unsigned int before;

	pthread_mutex_lock(&fake_lock);
	before = strict;
	__atomic_store_n(&strict, flags, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&fake_lock);
	return before;
}

bool fake_stalled(void)
{
	return __atomic_load_n(&strict, __ATOMIC_RELAXED) & (FAKE_STALL | FAKE_LATE);
}

bool fake_late(void)
{
	return __atomic_load_n(&strict, __ATOMIC_RELAXED) & FAKE_LATE;
}

bool fake_alone_begin(void)
{
	if (!(strict & FAKE_STRICT_LOCK) || alone)
		return false;
	alone = alone_is_me = true;
	return true;
}

void fake_alone_end(void)
{
	alone = alone_is_me = false;
	pthread_cond_broadcast(&alone_over);
}

/* Threads of Peerlane have a name. */
static void check_caller(const char *symbol)
{
	char name[16] = "";

	if (!(strict & FAKE_STRICT_CALLS) || !fake_serving())
		return;
	prctl(PR_GET_NAME, name);
	if (!strncmp(name, "peerlane", 8)) {
		fprintf(stderr, "fake libcuda: %s called by %s while a stream is served\n", symbol,
			name);
		abort();
	}
}

int fake_begin_undo(const char *symbol, struct fake_context **ctx)
{
	int result = 0;

	if (forked()) {
		__atomic_fetch_add(&calls_after_fork, 1, __ATOMIC_RELAXED);
		return CU_NOT_INITIALIZED;
	}
	pthread_mutex_lock(&fake_lock);
	check_caller(symbol);
	while (alone && !alone_is_me)
		pthread_cond_wait(&alone_over, &fake_lock);
	if (fake_in_host_fn) {
		fake_violation("%s called by a host function", symbol);
		result = CU_NOT_PERMITTED;
	} else if (!started) {
		result = CU_NOT_INITIALIZED;
	} else {
		result = fake_injected(symbol);
	}
	if (!result && ctx) {
		*ctx = fake_current();
		result = *ctx && (*ctx)->refs ? CU_OK : CU_INVALID_CONTEXT;
	}
	return result ? fake_end(result) : CU_OK;
}

int fake_begin(const char *symbol, struct fake_context **ctx)
{
	int result = fake_begin_undo(symbol, ctx);

	if (!result && ctx && (*ctx)->error)
		return fake_end((*ctx)->error);
	return result;
}

int fake_end(int result)
{
	pthread_mutex_unlock(&fake_lock);
	return result;
}

void fake_report_add(struct fake_report *report, int nr, const char *what)
{
	int len;

	if (!nr)
		return;
	report->nr += nr;
	len = snprintf(report->text, report->bytes, "%d %s\n", nr, what);
	if (len > 0 && (size_t)len < report->bytes) {
		report->text += len;
		report->bytes -= (size_t)len;
	} else {
		report->bytes = 0;
	}
}

int fake_cuda_leaks(char *text, size_t bytes)
{
	struct fake_report report = { text, bytes, 0 };

	if (bytes)
		text[0] = '\0';
	pthread_mutex_lock(&fake_lock);
	fake_contexts_report(&report);
	fake_ranges_report(&report);
	fake_physical_report(&report);
	fake_streams_report(&report);
	fake_events_report(&report);
	fake_modules_report(&report);
	pthread_mutex_unlock(&fake_lock);
	return report.nr;
}

__attribute__((destructor)) static void report_at_exit(void)
{
	char text[4096];
	int nr;

	if (!started || forked() || !getenv("FAKE_CUDA_REPORT"))
		return;
	nr = fake_cuda_leaks(text, sizeof(text));
	if (nr)
		fprintf(stderr, "fake libcuda: %d things leaked:\n%s", nr, text);
	if (fake_cuda_violations(text, sizeof(text))) {
		fprintf(stderr, "fake libcuda: rules broken:\n%s", text);
		nr++;
	}
	if (nr)
		_exit(98);
}

/* ------------------------------------------------------------------ devices */

int fake_nr_gpus(void)
{
	return nr_gpus;
}

int cuInit(unsigned int flags)
{
	const char *gpus = getenv("FAKE_CUDA_GPUS"), *spec = getenv("FAKE_CUDA_FAIL");
	int result;

	if (flags)
		return CU_INVALID_VALUE;
	if (forked()) {
		__atomic_fetch_add(&calls_after_fork, 1, __ATOMIC_RELAXED);
		return CU_NOT_INITIALIZED;
	}
	pthread_mutex_lock(&fake_lock);
	if (!started && spec && set_fails(spec))
		fake_violation("FAKE_CUDA_FAIL=%s makes no sense", spec);
	result = fake_injected(__func__);
	nr_gpus = gpus ? atoi(gpus) : 2;
	if (nr_gpus > FAKE_MAX_GPUS)
		nr_gpus = FAKE_MAX_GPUS;
	if (!result && nr_gpus < 1)
		result = CU_NO_DEVICE;
	if (!result)
		__atomic_store_n(&started, getpid(), __ATOMIC_RELEASE);
	return fake_end(result);
}

int cuDriverGetVersion(int *version)
{
	*version = 13000;
	return 0;
}

int cuGetErrorName(int result, const char **name)
{
	static const struct {
		int result;
		const char *name;
	} names[] = {
		{ CU_OK, "CUDA_SUCCESS" },
		{ CU_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE" },
		{ CU_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY" },
		{ CU_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED" },
		{ CU_NO_DEVICE, "CUDA_ERROR_NO_DEVICE" },
		{ CU_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE" },
		{ CU_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT" },
		{ CU_INVALID_PTX, "CUDA_ERROR_INVALID_PTX" },
		{ CU_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE" },
		{ CU_NOT_FOUND, "CUDA_ERROR_NOT_FOUND" },
		{ CU_NOT_READY, "CUDA_ERROR_NOT_READY" },
		{ CU_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS" },
		{ CU_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED" },
		{ CU_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED" },
		{ CU_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED" },
		{ CU_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED" },
		{ CU_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED" },
		{ CU_CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT" },
	};

	*name = NULL;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (names[i].result == result)
			*name = names[i].name;
	return *name ? CU_OK : CU_INVALID_VALUE;
}

int cuDeviceGetCount(int *nr)
{
	int result = fake_begin(__func__, NULL);

	if (result)
		return result;
	*nr = nr_gpus;
	return fake_end(CU_OK);
}

/* Begins a call about device @dev. */
static int begin_device(const char *symbol, int dev)
{
	int result = fake_begin(symbol, NULL);

	if (result)
		return result;
	return dev < 0 || dev >= nr_gpus ? fake_end(CU_INVALID_DEVICE) : CU_OK;
}

int cuDeviceGet(int *dev, int ordinal)
{
	int result = begin_device(__func__, ordinal);

	if (result)
		return result;
	*dev = ordinal;
	return fake_end(CU_OK);
}

/* Gives a text out, whole or not at all. */
static int give(char *dst, int bytes, const char *text)
{
	size_t len = strlen(text) + 1;

	if (!dst || bytes < (int)len)
		return CU_INVALID_VALUE;
	memcpy(dst, text, len);
	return CU_OK;
}

int cuDeviceGetName(char *name, int bytes, int dev)
{
	char text[32];
	int result = begin_device(__func__, dev);

	if (result)
		return result;
	snprintf(text, sizeof(text), "Fake GPU %d", dev);
	return fake_end(give(name, bytes, text));
}

int cuDeviceGetPCIBusId(char *id, int bytes, int dev)
{
	char text[32];
	int result = begin_device(__func__, dev);

	if (result)
		return result;
	snprintf(text, sizeof(text), "FFFF:F%d:00.0", dev);
	return fake_end(give(id, bytes, text));
}

int cuDeviceTotalMem_v2(size_t *bytes, int dev)
{
	int result = begin_device(__func__, dev);

	if (result)
		return result;
	*bytes = FAKE_GPU_BYTES;
	return fake_end(CU_OK);
}

int cuDeviceGetAttribute(int *value, int attribute, int dev)
{
	int result = begin_device(__func__, dev);

	if (result)
		return result;
	switch (attribute) {
	case 40: /* copy engines */
		*value = 3;
		break;
	case 41:  /* unified addressing */
	case 113: /* registering memory read-only */
		*value = 1;
		break;
	case 118: /* how writes of other devices are ordered: for the owner of the memory */
		*value = getenv("FAKE_CUDA_ORDERING") ? atoi(getenv("FAKE_CUDA_ORDERING")) : 100;
		break;
	case 131: /* NUMA nodes of the memory and of the host */
	case 134:
		*value = -1;
		break;
	default:
		*value = 0;
	}
	return fake_end(CU_OK);
}
