// SPDX-License-Identifier: MIT
/*
 * Fuzzes the configuration: texts of a cufile.json, and parameter calls between opens and closes.
 * Called as fuzz.h says.
 */
#include "cf.h"

#include "../fuzz.h"

#include "../../cufile/config.h"

static void check(const struct pl_cf_config *c)
{
	for (int i = 0; i < PL_CF_NR; i++)
		if (!pl_cf_config_fits((enum pl_cf_id)i, c->values[i].number) ||
		    strnlen(c->values[i].text, sizeof(c->values[i].text)) ==
			    sizeof(c->values[i].text))
			abort();
	if (!c->posix.nr || c->posix.nr > PL_CF_MAX_SLABS || c->bounce.nr > PL_CF_MAX_SLABS)
		abort();
}

#ifndef FUZZ_LIB
/* One call out of two bytes and a number. */
static void call(uint8_t which, uint8_t param, size_t value)
{
	size_t sizes[20], counts[20], v;
	char text[300];
	bool b;

	memset(sizes, param, sizeof(sizes));
	memset(counts, which, sizeof(counts));
	switch (which % 16) {
	case 0:
		cf.cuFileSetParameterSizeT((CUFileSizeTConfigParameter_t)(param % 15), value);
		break;
	case 1:
		cf.cuFileGetParameterSizeT((CUFileSizeTConfigParameter_t)(param % 15), &v);
		break;
	case 2:
		cf.cuFileSetParameterBool((CUFileBoolConfigParameter_t)(param % 15), value & 1);
		break;
	case 3:
		cf.cuFileGetParameterBool((CUFileBoolConfigParameter_t)(param % 15), &b);
		break;
	case 4:
		/* Not the log's path or folder: it would write there. */
		memset(text, (int)(value & 127), sizeof(text));
		text[value % sizeof(text)] = '\0';
		cf.cuFileSetParameterString(CUFILE_PARAM_LOGGING_LEVEL, text);
		break;
	case 5:
		cf.cuFileGetParameterString((CUFileStringConfigParameter_t)(param % 5), text,
					    (int)(value % sizeof(text)));
		break;
	case 6:
		cf.cuFileSetParameterPosixPoolSlabArray(sizes, counts, (int)(value % 20));
		break;
	case 7:
		cf.cuFileGetParameterPosixPoolSlabArray(sizes, counts, (int)(value % 20));
		break;
	case 8:
		cf.cuFileGetParameterMinMaxValue((CUFileSizeTConfigParameter_t)(param % 15), &v,
						 &v);
		break;
	case 9:
		cf.cuFileDriverSetPollMode(param & 1, value);
		break;
	case 10:
		cf.cuFileDriverSetMaxDirectIOSize(value);
		break;
	case 11:
		cf.cuFileSetStatsLevel((int)value);
		break;
	case 12:
		if (cf.cuFileUseCount() < 3)
			cf.cuFileDriverOpen();
		break;
	default:
		cf.cuFileDriverClose();
		break;
	}
}

static void calls(const uint8_t *data, size_t size)
{
	size_t value, v = 0;

	for (size_t i = 0; i + 10 <= size; i += 10) {
		memcpy(&value, data + i + 2, sizeof(value));
		if (data[i + 9] & 1)
			value %= 300;
		call(data[i], data[i + 1], value);
	}
	while (cf.cuFileUseCount() > 0)
		cf.cuFileDriverClose();
	/* Whatever was set, what runs is within its bounds. */
	if (cf.cuFileDriverOpen().err ||
	    cf.cuFileGetParameterSizeT(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE, &v).err || v < 1 ||
	    v > 256)
		abort();
	cf.cuFileDriverClose();
}
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct pl_cf_config c;
	char *text = malloc(size + 1);

	memcpy(text, data, size);
	text[size] = '\0';
	pl_cf_config_parse(&c, text, size);
	check(&c);
	free(text);
	return 0;
}

#ifndef FUZZ_LIB
static const char *const seeds[] = {
	"{ \"logging\": { \"dir\": \"/x\", \"level\": \"INFO\", \"max_file_size_mb\": -1 } }",
	"// c\n{ \"properties\": { \"io_batchsize\": 128, \"use_poll_mode\": true,"
	"\"posix_pool_slab_size_kb\": [4, 1024, 16384], \"posix_pool_slab_count\": [1, 2, 3] } }",
	"{ \"execution\": { \"max_io_threads\": 4 /* c */ }, \"fs\": { \"a\": { \"b\": [] } } }",
	"{ \"properties\": { \"gpu_bounce_buffer_slab_config\": { \"slab_size_kb\": [1],"
	"\"slab_count\": [1] } }, \"profile\": { \"cufile_stats\": 3 } }",
};

static size_t mutate(uint8_t *out, size_t room)
{
	static const char pieces[] = "{}[]\",:-0919999999999999999999e.truefalsenull/**///\\u0000";
	const char *from = seeds[fuzz_rnd() % 4];
	size_t len = strlen(from);

	memcpy(out, from, len);
	return fuzz_change_text(out, 0, len, room, pieces, 12);
}

static void begin(void)
{
	setenv("CUFILE_ENV_PATH_JSON", "/dev/null", 1);
	cf_load();
}

/* Calls now and then, with whatever the configuration is by then. */
static void after(unsigned long nr)
{
	uint8_t data[400];
	size_t len = 10 * (1 + fuzz_rnd() % 40);

	if (nr % 16)
		return;
	for (size_t i = 0; i < len; i++)
		data[i] = (uint8_t)fuzz_rnd();
	calls(data, len);
}

const struct fuzz fuzz_program = {
	.room = 1024,
	.least = 2000,
	.begin = begin,
	.make = mutate,
	.after = after,
};
#endif
