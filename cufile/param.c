// SPDX-License-Identifier: MIT
/* Parameters: what a program sets before the driver opens, and what it may ask afterwards. */
#include "bar.h"
#include "driver.h"
#include "error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Begins a set: the configuration is held, and true means that @id may be staged. Once it was
 * loaded its values are in use, so nothing can be set any more until the driver was closed.
 */
static bool begin_set(enum pl_cf_id id, CUfileError_t *status)
{
	bool in_use = pl_cf_config_hold(false);

	*status = pl_cf_status(id == PL_CF_NR ? CU_FILE_INVALID_VALUE
			       : in_use	      ? CU_FILE_DRIVER_ALREADY_OPEN
					      : CU_FILE_SUCCESS);
	return !status->err;
}

static struct pl_cf_value *stage_value(enum pl_cf_id id)
{
	struct pl_cf_stage *s = pl_cf_stage();

	s->set[id] = true;
	s->values[id] = (struct pl_cf_value){ .source = PL_CF_PROGRAM };
	return &s->values[id];
}

/* The value in use, else the one that waits for the driver; NULL if there is neither. */
static const struct pl_cf_value *current(const struct pl_cf_config *c, enum pl_cf_id id)
{
	if (c)
		return &c->values[id];
	return pl_cf_stage()->set[id] ? &pl_cf_stage()->values[id] : NULL;
}

static CUfileError_t set_number(enum pl_cf_id id, uint64_t number)
{
	CUfileError_t status;

	/* What is out of bounds is staged, too, and passed over when the driver opens. */
	if (begin_set(id, &status))
		stage_value(id)->number = number;
	pl_cf_config_release();
	return status;
}

/* Gives back whether @id is a setting at all. */
static bool get_number(enum pl_cf_id id, uint64_t *number)
{
	const struct pl_cf_value *v;

	if (id == PL_CF_NR)
		return false;
	v = current(pl_cf_config_hold(false), id);
	*number = v ? v->number : 0;
	pl_cf_config_release();
	return true;
}

CUfileError_t cuFileSetParameterSizeT(CUFileSizeTConfigParameter_t param, size_t value)
{
	return set_number(pl_cf_config_find(PL_CF_NUMBER, (int)param), value);
}

CUfileError_t cuFileGetParameterSizeT(CUFileSizeTConfigParameter_t param, size_t *value)
{
	uint64_t number;

	if (!value || !get_number(pl_cf_config_find(PL_CF_NUMBER, (int)param), &number))
		return pl_cf_status(CU_FILE_INVALID_VALUE);
	*value = number;
	return pl_cf_status(CU_FILE_SUCCESS);
}

CUfileError_t cuFileSetParameterBool(CUFileBoolConfigParameter_t param, bool value)
{
	return set_number(pl_cf_config_find(PL_CF_SWITCH, (int)param), value);
}

CUfileError_t cuFileGetParameterBool(CUFileBoolConfigParameter_t param, bool *value)
{
	uint64_t number;

	if (!value || !get_number(pl_cf_config_find(PL_CF_SWITCH, (int)param), &number))
		return pl_cf_status(CU_FILE_INVALID_VALUE);
	*value = number;
	return pl_cf_status(CU_FILE_SUCCESS);
}

CUfileError_t cuFileSetParameterString(CUFileStringConfigParameter_t param, const char *text)
{
	enum pl_cf_id id = pl_cf_config_find(PL_CF_TEXT, (int)param);
	CUfileError_t status;
	struct pl_cf_value *v;

	if (!text || strnlen(text, sizeof(v->text)) == sizeof(v->text))
		return pl_cf_status(CU_FILE_INVALID_VALUE);
	if (begin_set(id, &status)) {
		v = stage_value(id);
		memcpy(v->text, text, strlen(text) + 1);
	}
	pl_cf_config_release();
	return status;
}

/* Asking for the log's path fails unless the program or the environment set one, even an empty one. */
static const char *text_of(const struct pl_cf_value *v, enum pl_cf_id id)
{
	if (id != PL_CF_LOG_PATH || (v && v->source == PL_CF_PROGRAM))
		return v ? v->text : "";
	return v && v->text[0] ? v->text : getenv(pl_cf_settings[id].env);
}

CUfileError_t cuFileGetParameterString(CUFileStringConfigParameter_t param, char *text, int len)
{
	enum pl_cf_id id = pl_cf_config_find(PL_CF_TEXT, (int)param);
	const char *found;
	bool fits;

	if (!text || len <= 0 || id == PL_CF_NR)
		return pl_cf_status(CU_FILE_INVALID_VALUE);
	found = text_of(current(pl_cf_config_hold(false), id), id);
	fits = found && strlen(found) < (size_t)len;
	if (fits)
		memcpy(text, found, strlen(found) + 1);
	pl_cf_config_release();
	return pl_cf_status(fits ? CU_FILE_SUCCESS : CU_FILE_INVALID_VALUE);
}

CUfileError_t cuFileGetParameterMinMaxValue(CUFileSizeTConfigParameter_t param, size_t *min_value,
					    size_t *max_value)
{
	enum pl_cf_id id = pl_cf_config_find(PL_CF_NUMBER, (int)param);
	struct peerlane *ctx;

	if (!min_value || !max_value || id == PL_CF_NR || id == PL_CF_STATS)
		return pl_cf_status(CU_FILE_INVALID_VALUE);
	*min_value = pl_cf_settings[id].min;
	*max_value = pl_cf_settings[id].max;
	/* Memory of the GPU that others reach: no more than its window, and 0 if there is none. */
	if (id == PL_CF_CACHE_KB || id == PL_CF_PINNED_KB) {
		ctx = pl_cf_enter();
		*max_value = ctx ? pl_cf_bar_kb(ctx, 0) : 0;
		if (ctx)
			pl_cf_leave();
	}
	return pl_cf_status(CU_FILE_SUCCESS);
}

/* ------------------------------------------------------------------ pools */

static CUfileError_t set_slabs(struct pl_cf_slabs *staged, const size_t *sizes,
			       const size_t *counts, int len)
{
	bool in_use;

	if (!sizes || !counts || len <= 0 || len > PL_CF_MAX_SLABS)
		return pl_cf_status(CU_FILE_INVALID_VALUE);
	in_use = pl_cf_config_hold(false);
	if (!in_use) {
		*staged = (struct pl_cf_slabs){ .source = PL_CF_PROGRAM, .nr = (unsigned int)len };
		for (int i = 0; i < len; i++) {
			staged->kb[i] = sizes[i];
			staged->count[i] = counts[i];
		}
	}
	pl_cf_config_release();
	return pl_cf_status(in_use ? CU_FILE_DRIVER_ALREADY_OPEN : CU_FILE_SUCCESS);
}

static CUfileError_t get_slabs(bool bounce, size_t *sizes, size_t *counts, int len)
{
	const struct pl_cf_config *c;
	const struct pl_cf_slabs *s;
	bool fits;

	if (!sizes || !counts || len <= 0)
		return pl_cf_status(CU_FILE_INVALID_VALUE);
	c = pl_cf_config_hold(false);
	if (c)
		s = bounce ? &c->bounce : &c->posix;
	else
		s = bounce ? &pl_cf_stage()->bounce : &pl_cf_stage()->posix;
	fits = s->nr == (unsigned int)len;
	for (int i = 0; fits && i < len; i++) {
		sizes[i] = s->kb[i];
		counts[i] = s->count[i];
	}
	pl_cf_config_release();
	return pl_cf_status(fits ? CU_FILE_SUCCESS : CU_FILE_INVALID_VALUE);
}

CUfileError_t cuFileSetParameterPosixPoolSlabArray(const size_t *size_values,
						   const size_t *count_values, int len)
{
	return set_slabs(&pl_cf_stage()->posix, size_values, count_values, len);
}

CUfileError_t cuFileGetParameterPosixPoolSlabArray(size_t *size_values, size_t *count_values,
						   int len)
{
	return get_slabs(false, size_values, count_values, len);
}

CUfileError_t cuFileSetParameterGpuBounceBufferSlabArray(const size_t *size_values,
							 const size_t *count_values, int len)
{
	return set_slabs(&pl_cf_stage()->bounce, size_values, count_values, len);
}

CUfileError_t cuFileGetParameterGpuBounceBufferSlabArray(size_t *size_values, size_t *count_values,
							 int len)
{
	return get_slabs(true, size_values, count_values, len);
}
