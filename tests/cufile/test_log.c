// SPDX-License-Identifier: MIT
/* The log: where it is, what is in it, how long it gets; and O_DIRECT forced by configuration. */
#include "cf_test.h"

#include <sys/stat.h>

static char text[1 << 20];

static const char *slurp(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

	text[n > 0 ? n : 0] = '\0';
	close(fd);
	return text;
}

static void has(const char *word)
{
	if (!strstr(text, word))
		fail_msg("\"%s\" is not in:\n%s", word, text);
}

static void one_read(int flags)
{
	CUfileHandle_t fh = cf_open("logged", 8192, 1, flags);
	char *mem = cf_alloc(8192);

	assert_int_equal(cf.cuFileRead(fh, mem, 8192, 0, 0), 8192);
	assert_int_equal(cf.cuFileRead(fh, mem, 8192, -4, 0), -1);
	cf.cuFileHandleDeregister(fh);
	assert_ok(cf.cuFileDriverClose());
	cf_free(mem);
}

/* Which path a handle got, and why no better one. */
static void path_of_a_handle(void **state)
{
	(void)state;
	setenv("CUFILE_LOGFILE_PATH", cf_file("a.log"), 1);
	setenv("CUFILE_LOGGING_LEVEL", "INFO", 1);
	one_read(O_RDONLY);
	slurp(cf_file("a.log"));
	has("[pid=");
	has(" INFO  ");
	has("cufile IO mode: POSIX");
	has("/logged: read on ");
	has("goes by \"");
	has("not by \"p2p\": ");
	has("after 2 reads of 8192 bytes");
	has("ERROR  read of 8192 bytes at -4 failed");
	unsetenv("CUFILE_LOGFILE_PATH");
	unsetenv("CUFILE_LOGGING_LEVEL");
}

/* Transfers of batches are in what the log says of a file in the end, too. */
static void batches(void **state)
{
	CUfileIOEvents_t events[3];
	CUfileIOParams_t io[3];
	CUfileBatchHandle_t batch;
	CUfileHandle_t fh;
	unsigned int nr = 3;
	char *mem = cf_alloc(16384);

	(void)state;
	setenv("CUFILE_LOGFILE_PATH", cf_file("d.log"), 1);
	setenv("CUFILE_LOGGING_LEVEL", "INFO", 1);
	fh = cf_open("logged", 8192, 1, O_RDWR);
	assert_ok(cf.cuFileBatchIOSetUp(&batch, 3));
	memset(io, 0, sizeof(io));
	for (int i = 0; i < 3; i++) {
		io[i].mode = CUFILE_BATCH;
		io[i].fh = fh;
		io[i].opcode = i == 1 ? CUFILE_WRITE : CUFILE_READ;
		io[i].u.batch.devPtr_base = mem + 4096 * i;
		io[i].u.batch.size = 4096 - 1024 * (size_t)i;
		io[i].u.batch.file_offset = i == 1 ? 4096 : 0;
	}
	assert_ok(cf.cuFileBatchIOSubmit(batch, 3, io, 0));
	assert_ok(cf.cuFileBatchIOGetStatus(batch, 3, &nr, events, NULL));
	assert_int_equal(nr, 3);
	cf.cuFileBatchIODestroy(batch);
	assert_int_equal(cf.cuFileRead(fh, mem, 100, 0, 0), 100);
	cf.cuFileHandleDeregister(fh);
	assert_ok(cf.cuFileDriverClose());
	cf_free(mem);
	slurp(cf_file("d.log"));
	has("after 3 reads of 6244 bytes, 1 writes of 3072");
	unsetenv("CUFILE_LOGFILE_PATH");
	unsetenv("CUFILE_LOGGING_LEVEL");
}

/* Into a folder: one file a process. At the usual level only errors. */
static void folder(void **state)
{
	char name[256], cmd[400];
	FILE *p;

	(void)state;
	snprintf(name, sizeof(name), "%s", cf_file("logs"));
	assert_int_equal(mkdir(name, 0700), 0);
	assert_ok(cf.cuFileSetParameterString(CUFILE_PARAM_LOG_DIR, name));
	one_read(O_RDONLY);
	snprintf(cmd, sizeof(cmd), "ls %s/cufile_%d_*.log", name, (int)getpid());
	p = popen(cmd, "re");
	assert_non_null(p);
	assert_non_null(fgets(name, sizeof(name), p));
	pclose(p);
	name[strcspn(name, "\n")] = '\0';
	slurp(name);
	has("ERROR");
	assert_null(strstr(text, "INFO"));
}

static void limited(void **state)
{
	CUfileHandle_t fh;
	struct stat st;
	char mem[8];

	(void)state;
	setenv("CUFILE_LOGFILE_PATH", cf_file("b.log"), 1);
	setenv("CUFILE_LOGFILE_MAX_SIZE_MB", "1", 1);
	fh = cf_open("logged", 8192, 1, O_RDONLY);
	for (int i = 0; i < 30000; i++)
		cf.cuFileRead(fh, mem, 8, -1, 0);
	assert_ok(cf.cuFileDriverClose());
	assert_int_equal(stat(cf_file("b.log"), &st), 0);
	assert_in_range(st.st_size, 1, MIB);
	unsetenv("CUFILE_LOGFILE_PATH");
	unsetenv("CUFILE_LOGFILE_MAX_SIZE_MB");
}

/* A log that cannot be written is no reason to fail. */
static void no_log(void **state)
{
	(void)state;
	setenv("CUFILE_LOGFILE_PATH", "/no/such/folder/x.log", 1);
	one_read(O_RDONLY);
	unsetenv("CUFILE_LOGFILE_PATH");
}

static void forced_direct(void **state)
{
	(void)state;
	setenv("CUFILE_LOGFILE_PATH", cf_file("c.log"), 1);
	setenv("CUFILE_LOGGING_LEVEL", "INFO", 1);
	assert_ok(cf.cuFileSetParameterBool(CUFILE_PARAM_FORCE_ODIRECT_MODE, true));
	one_read(O_RDONLY);
	slurp(cf_file("c.log"));
	has("goes by \"direct\"");
	unsetenv("CUFILE_LOGFILE_PATH");
	unsetenv("CUFILE_LOGGING_LEVEL");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cf_test(path_of_a_handle), cf_test(batches), cf_test(folder),
		cf_test(limited),	   cf_test(no_log),  cf_test(forced_direct),
	};
	int failed;

	cf_alarm(100);
	cf_load();
	cf_gpu();
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	cf_gpu_close();
	return failed;
}
