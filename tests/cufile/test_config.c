// SPDX-License-Identifier: MIT
/* The configuration: files good and bad, the environment, what comes before what. */
#include "cf_test.h"

#include "../../cufile/config.h"

static struct pl_cf_config c;

static void parse(const char *text)
{
	pl_cf_config_parse(&c, text, strlen(text));
}

static void write_json(const char *text)
{
	FILE *f = fopen(cf_file("c.json"), "we");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
	setenv("CUFILE_ENV_PATH_JSON", cf_file("c.json"), 1);
}

static int clean(void **state)
{
	(void)state;
	for (int i = 0; i < PL_CF_NR; i++)
		if (pl_cf_settings[i].env)
			unsetenv(pl_cf_settings[i].env);
	unsetenv("CUFILE_ENV_PATH_JSON");
	return 0;
}

static void presets(void **state)
{
	(void)state;
	parse("{}");
	assert_int_equal(c.nr_warnings, 0);
	assert_int_equal(c.values[PL_CF_BATCH_SIZE].number, 128);
	assert_string_equal(c.values[PL_CF_LOG_LEVEL].text, "ERROR");
	assert_int_equal(c.posix.nr, 3);
	assert_string_equal(pl_cf_config_origin(&c, PL_CF_BATCH_SIZE), "built in");
	for (int i = 0; i < PL_CF_NR; i++)
		assert_true(pl_cf_config_fits((enum pl_cf_id)i, c.values[i].number));
}

static void comments_and_values(void **state)
{
	(void)state;
	parse("// a comment\n{ /* another */ \"logging\": { \"level\": \"trace\" }, // here\n"
	      "\"properties\": { \"io_batchsize\": 200, \"use_compat_mode\": false,\n"
	      "\"posix_pool_slab_size_kb\": [1, 2], \"posix_pool_slab_count\": [3, 4],\n"
	      "\"gpu_bounce_buffer_slab_config\": { \"slab_size_kb\": [5], \"slab_count\": [6] },\n"
	      "\"rdma_dev_addr_list\": [] },\n"
	      "\"fs\": { \"lustre\": { \"posix_gds_min_kb\": 4 }, \"weka\": { \"mount_table\": {} "
	      "} },\n"
	      "\"denylist\": { \"mounts\": [\"/a\"] }, \"block\": { \"nvme\": { "
	      "\"use_pci_p2pdma\": true } } }\n");
	assert_int_equal(c.nr_warnings, 0);
	assert_string_equal(c.values[PL_CF_LOG_LEVEL].text, "trace");
	assert_int_equal(c.values[PL_CF_BATCH_SIZE].number, 200);
	assert_int_equal(c.values[PL_CF_BATCH_SIZE].source, PL_CF_FILE);
	assert_int_equal(c.values[PL_CF_ALLOW_COMPAT].number, 0);
	assert_int_equal(c.posix.nr, 2);
	assert_int_equal(c.posix.count[1], 4);
	assert_int_equal(c.bounce.nr, 1);
	assert_int_equal(c.bounce.kb[0], 5);
	parse("{ \"logging\": { \"max_file_size_mb\": -1 } }");
	assert_int_equal(c.nr_warnings, 0);
	assert_true(c.values[PL_CF_LOG_MAX_MB].number == UINT64_MAX);
}

static void one_warning(const char *text, const char *word)
{
	parse(text);
	assert_int_equal(c.nr_warnings, 1);
	if (!strstr(c.warnings[0], word))
		fail_msg("\"%s\" is not in \"%s\"", word, c.warnings[0]);
	assert_int_equal(c.values[PL_CF_BATCH_SIZE].number, 128);
}

static void warned_about(void **state)
{
	(void)state;
	one_warning("{ \"properties\": { \"io_batchsise\": 4 } }", "io_batchsise");
	one_warning("{ \"property\": { \"io_batchsize\": 4 } }", "property.io_batchsize");
	one_warning("{ \"fs\": { \"block\": { \"nvme\": { \"use_pci_p2pdma\": true } } } }",
		    "fs.block.nvme");
	one_warning("{ \"properties\": { \"io_batchsize\": 257 } }", "257");
	one_warning("{ \"properties\": { \"io_batchsize\": 0 } }", "0");
	one_warning("{ \"properties\": { \"io_batchsize\": -1 } }", "-1");
	one_warning("{ \"properties\": { \"io_batchsize\": \"4\" } }", "4");
	one_warning("{ \"properties\": { \"io_batchsize\": 4.5 } }", "4.5");
	one_warning("{ \"properties\": { \"io_batchsize\": null } }", "null");
	one_warning("{ \"properties\": { \"use_poll_mode\": 2 } }", "use_poll_mode");
	one_warning("{ \"logging\": { \"level\": \"LOUD\" } }", "LOUD");
	one_warning("{ \"logging\": { \"dir\": 5 } }", "logging.dir");
	one_warning("{ \"properties\": { \"posix_pool_slab_size_kb\": [1] } }", "posix_pool");
#define SEVENTEEN "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]"
	one_warning("{ \"properties\": { \"posix_pool_slab_size_kb\": " SEVENTEEN ", "
		    "\"posix_pool_slab_count\": " SEVENTEEN " } }",
		    "posix_pool");
	one_warning("{ \"properties\": { \"posix_pool_slab_size_kb\": [1], "
		    "\"posix_pool_slab_count\": [1, 2] } }",
		    "posix_pool");
	one_warning("[]", "object");
	one_warning("", "JSON");
	one_warning("{ \"properties\": { ", "JSON");
	one_warning("nonsense", "JSON");
}

/* Many mistakes do no harm. */
static void many_warnings(void **state)
{
	char text[20000] = "{";

	(void)state;
	for (int i = 0; i < 500; i++)
		sprintf(text + strlen(text), "%s\"k%d\": 1", i ? "," : "", i);
	strcat(text, "}");
	parse(text);
	assert_int_equal(c.nr_warnings, 500);
}

static void precedence(void **state)
{
	struct pl_cf_value v = { .source = PL_CF_PROGRAM, .number = 0 };

	(void)state;
	write_json(
		"{ \"properties\": { \"force_compat_mode\": false, \"allow_compat_mode\": false },"
		"\"logging\": { \"level\": \"WARN\" } }");
	setenv("CUFILE_FORCE_COMPAT_MODE", "true", 1);
	setenv("CUFILE_LOGGING_LEVEL", "DEBUG", 1);
	pl_cf_config_load(&c);
	assert_int_equal(c.nr_warnings, 0);
	assert_int_equal(c.values[PL_CF_FORCE_COMPAT].number, 1);
	assert_string_equal(pl_cf_config_origin(&c, PL_CF_FORCE_COMPAT),
			    "CUFILE_FORCE_COMPAT_MODE");
	assert_string_equal(c.values[PL_CF_LOG_LEVEL].text, "DEBUG");
	assert_int_equal(c.values[PL_CF_ALLOW_COMPAT].number, 0);
	assert_string_equal(pl_cf_config_origin(&c, PL_CF_ALLOW_COMPAT), cf_file("c.json"));
	pl_cf_config_apply(&c, PL_CF_FORCE_COMPAT, &v);
	assert_int_equal(c.values[PL_CF_FORCE_COMPAT].number, 0);
	assert_string_equal(pl_cf_config_origin(&c, PL_CF_FORCE_COMPAT), "the program");
	v.number = 100000;
	pl_cf_config_apply(&c, PL_CF_BATCH_SIZE, &v);
	assert_int_equal(c.values[PL_CF_BATCH_SIZE].number, 128);
}

static void bad_environment(void **state)
{
	(void)state;
	write_json("{}");
	setenv("CUFILE_FORCE_COMPAT_MODE", "perhaps", 1);
	setenv("CUFILE_LOGFILE_MAX_SIZE_MB", "12x", 1);
	setenv("PEERLANE_CUFILE_VERSION", "1190", 1);
	pl_cf_config_load(&c);
	assert_int_equal(c.nr_warnings, 3);
	assert_int_equal(c.values[PL_CF_FORCE_COMPAT].number, 0);
	assert_int_equal(c.values[PL_CF_VERSION].number, 1150);
}

static void no_file(void **state)
{
	(void)state;
	setenv("CUFILE_ENV_PATH_JSON", "/no/such/file", 1);
	pl_cf_config_load(&c);
	assert_int_equal(c.nr_warnings, 1);
	assert_string_equal(c.file, "");
	setenv("CUFILE_ENV_PATH_JSON", "/", 1);
	pl_cf_config_load(&c);
	assert_int_equal(c.nr_warnings, 1);
	setenv("CUFILE_ENV_PATH_JSON", "/dev/zero", 1);
	pl_cf_config_load(&c);
	assert_int_equal(c.nr_warnings, 1);
}

/* Through the library: the file and the environment are what it answers with. */
static void in_the_library(void **state)
{
	size_t v = 0;
	int version = 0;

	(void)state;
	write_json("{ \"properties\": { \"io_batchsize\": 77 }, \"peerlane\": { \"version\": 1160 "
		   "} }");
	assert_ok(cf.cuFileGetVersion(&version));
	assert_int_equal(version, 1160);
	assert_ok(cf.cuFileSetParameterSizeT(CUFILE_PARAM_EXECUTION_MAX_IO_THREADS, 3));
	assert_ok(cf.cuFileDriverOpen());
	assert_ok(cf.cuFileGetParameterSizeT(CUFILE_PARAM_PROPERTIES_IO_BATCHSIZE, &v));
	assert_int_equal(v, 77);
	assert_ok(cf.cuFileDriverClose());
	setenv("PEERLANE_CUFILE_VERSION", "1170", 1);
	assert_ok(cf.cuFileGetVersion(&version));
	assert_int_equal(version, 1170);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(presets, clean),
		cmocka_unit_test_setup(comments_and_values, clean),
		cmocka_unit_test_setup(warned_about, clean),
		cmocka_unit_test_setup(many_warnings, clean),
		cmocka_unit_test_setup(precedence, clean),
		cmocka_unit_test_setup(bad_environment, clean),
		cmocka_unit_test_setup(no_file, clean),
		cmocka_unit_test_setup(in_the_library, clean),
	};

	cf_load();
	return cmocka_run_group_tests(tests, NULL, clean);
}
