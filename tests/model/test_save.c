// SPDX-License-Identifier: MIT
/* Saving: what is written is what safetensors' own writer would write, all of it or nothing. */
#include "model_fixture.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

static struct peerlane *ctx;
static struct peerlane_model_stats stats = { .size = sizeof(stats) };

/* Whole content of a file, for free(). */
static char *content(const char *path, size_t *bytes)
{
	int64_t n = sim_file_size(path);
	char *mem = calloc(1, (size_t)n + 1);
	int fd = open(path, O_RDONLY);

	assert_true(fd >= 0 && mem);
	assert_int_equal(pread(fd, mem, (size_t)n, 0), n);
	close(fd);
	*bytes = (size_t)n;
	return mem;
}

/* Temporary files in the folder of the test. */
static unsigned int count_temps(void)
{
	DIR *dir = opendir(sim_path("."));
	const struct dirent *e;
	unsigned int n = 0;

	assert_non_null(dir);
	while ((e = readdir(dir)))
		n += strstr(e->d_name, ".tmp-") != NULL;
	closedir(dir);
	return n;
}

static struct peerlane_model_source bytes_of(const char *name, const void *addr,
					     const uint64_t *bytes)
{
	return (struct peerlane_model_source){
		.name = name, .dtype = PEERLANE_U8, .nr_dims = 1, .shape = bytes, .addr = addr
	};
}

/* Byte for byte: the text of the header, the order of the tensors, the padding. */
static void exact(void **state)
{
	static const char want[] =
		"{\"__metadata__\":{\"format\":\"pt\",\"a/\\\"b\\\"\":\"\303\244\\n\"},"
		"\"z\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]},"
		"\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[8,12]},"
		"\"b\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[12,20]},"
		"\"none\":{\"dtype\":\"BF16\",\"shape\":[0,7],\"data_offsets\":[20,20]},"
		"\"c\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[20,23]}}";
	static const char *const metadata[] = { "format", "pt", "a/\"b\"", "\303\244\n" };
	const uint64_t one = 1, three = 3, two_one[] = { 2, 1 }, zero_seven[] = { 0, 7 };
	const char *data = "ZZZZZZZZAAAABBBBBBBBCCC", *path = sim_path("exact");
	const struct peerlane_model_source sources[] = {
		{ "c", PEERLANE_U8, 1, &three, data + 20 },
		{ "none", PEERLANE_BF16, 2, zero_seven, NULL },
		{ "b", PEERLANE_F32, 2, two_one, data + 12 },
		{ "a", PEERLANE_F32, 0, NULL, data + 8 },
		{ "z", PEERLANE_I64, 1, &one, data },
	};
	struct peerlane_model_save_options opt = { .size = sizeof(opt),
						   .metadata = metadata,
						   .nr_metadata = 2 };
	size_t bytes, start;
	uint64_t length;
	char *text;

	(void)state;
	ctx = sim_open(0);
	for (size_t align = 0; align <= 4096; align = align ? align * 512 : 8) {
		opt.align = align;
		assert_int_equal(peerlane_model_save(ctx, path, sources, 5, &opt, &stats), 0);
		text = content(path, &bytes);
		memcpy(&length, text, 8);
		start = 8 + length;
		assert_int_equal(start % (align ? align : 8), 0);
		assert_true(length - strlen(want) < (align ? align : 8));
		assert_memory_equal(text + 8, want, strlen(want));
		for (size_t i = 8 + strlen(want); i < start; i++)
			assert_int_equal(text[i], ' ');
		assert_int_equal(bytes, start + 23);
		assert_memory_equal(text + start, data, 23);
		assert_int_equal(stats.bytes, 23);
		assert_int_equal(stats.file_bytes, bytes);
		free(text);
		peerlane_model_close(mf_open(ctx, path));
	}
	/* No tensors, no metadata. */
	assert_int_equal(peerlane_model_save(ctx, path, NULL, 0, NULL, NULL), 0);
	text = content(path, &bytes);
	assert_memory_equal(text, "\10\0\0\0\0\0\0\0{}      ", 16);
	assert_int_equal(bytes, 16);
	free(text);
	assert_int_equal(count_temps(), 0);
	sim_close(ctx, NULL, NULL);
}

/* Many tensors from GPU memory, and back. */
static void round_trip(void **state)
{
	enum { NR = 2500 };
	struct peerlane_model_source *sources = calloc(NR, sizeof(*sources));
	uint64_t *shapes = calloc(NR, sizeof(*shapes)), at = 0;
	char(*names)[16] = calloc(NR, sizeof(*names)), *gpu;
	const char *path = sim_path("trip");
	struct peerlane_model_save_options opt = { .size = sizeof(opt),
						   .flags = PEERLANE_MODEL_CHECKSUM };
	struct peerlane_model_load_options load = { .size = sizeof(load),
						    .flags = PEERLANE_MODEL_CHECKSUM };
	struct peerlane_model_part *parts;
	struct peerlane_model_memory *mem;
	struct peerlane_model *m;
	const char *key, *value;
	char sum[32];
	size_t nr;
	int fd;

	(void)state;
	ctx = sim_open(0);
	gpu = sim_alloc(ctx, 4 * MIB);
	sim_gpu_pattern(ctx, gpu, 4 * MIB, 0, 5);
	for (unsigned int i = 0; i < NR; i++) {
		shapes[i] = i % 7 ? i % 1000 : 0;
		snprintf(names[i], sizeof(names[i]), "t%04u", i);
		sources[i] = bytes_of(names[i], gpu + at, &shapes[i]);
		at += shapes[i];
	}
	assert_true(at < 4 * MIB);
	assert_int_equal(peerlane_model_save(ctx, path, sources, NR, &opt, &stats), 0);
	assert_int_equal(stats.bytes, at);
	m = mf_open(ctx, path);
	parts = mf_all(m, &nr);
	assert_int_equal(nr, NR);
	assert_int_equal(peerlane_model_memory_alloc(m, parts, nr, 0, 0, &mem), 0);
	assert_int_equal(peerlane_model_load(m, parts, nr, &load, NULL), 0);
	for (size_t i = 0; i < nr; i++)
		mf_assert_part(ctx, m, &parts[i], 5);
	/* The checksums are those of the file, and that of no bytes is a known one. */
	assert_int_equal(peerlane_model_metadata(m, 0, 0, &key, &value), 0);
	assert_string_equal(key, "peerlane.xxh3:t0000");
	assert_string_equal(value, "2d06800538d394c2");
	for (size_t i = 0; i < nr; i += 50) {
		assert_int_equal(peerlane_model_metadata(m, 0, i, &key, &value), 0);
		snprintf(sum, sizeof(sum), "%016llx",
			 (unsigned long long)
				 parts[peerlane_model_find(m, key + strlen("peerlane.xxh3:"))]
					 .sum);
		assert_string_equal(sum, value);
	}
	/* One bit of one tensor. */
	fd = open(path, O_WRONLY);
	assert_int_equal(pwrite(fd, "\1", 1, (off_t)mf_get(m, "t1500").offset + 3), 1);
	close(fd);
	peerlane_model_close(m);
	m = mf_open(ctx, path);
	assert_int_equal(peerlane_model_load(m, parts, nr, NULL, NULL), 0);
	assert_int_equal(peerlane_model_load(m, parts, nr, &load, NULL), -EBADMSG);
	sim_assert_error(-EBADMSG, "trip: tensor \"t1500\": its checksum");
	peerlane_model_memory_free(mem);
	peerlane_model_close(m);
	free(parts);
	free(sources);
	free(shapes);
	free(names);
	sim_close(ctx, NULL, gpu);
}

static void bad_sources(void **state)
{
	const uint64_t four = 4, huge[] = { 1ull << 40, 1ull << 40 }, odd = 3;
	const char *const null_pair[] = { "a", NULL };
	struct peerlane_model_save_options opt = { .size = sizeof(opt) };
	struct peerlane_model_source s[2] = { bytes_of("a", "data", &four),
					      bytes_of("b", "data", &four) };
	const char *path = sim_path("bad");

	(void)state;
	ctx = sim_open(0);
	assert_int_equal(peerlane_model_save(NULL, path, s, 2, NULL, NULL), -EINVAL);
	assert_int_equal(peerlane_model_save(ctx, NULL, s, 2, NULL, NULL), -EINVAL);
	assert_int_equal(peerlane_model_save(ctx, path, NULL, 2, NULL, NULL), -EINVAL);
#define REFUSED(err, words)                                                                        \
	do {                                                                                       \
		assert_int_equal(peerlane_model_save(ctx, path, s, 2, &opt, NULL), err);           \
		mf_words(err, words, __LINE__);                                                    \
		s[1] = bytes_of("b", "data", &four);                                               \
		opt = (struct peerlane_model_save_options){ .size = sizeof(opt) };                 \
	} while (0)
	s[1].name = NULL;
	REFUSED(-EINVAL, "source 1|no name");
	s[1].name = "__metadata__";
	REFUSED(-EINVAL, "source 1|__metadata__");
	s[1].name = "a";
	REFUSED(-EINVAL, "tensor \"a\"|twice");
	s[1].name = "\xff";
	REFUSED(-EINVAL, "");
	s[1].name = "\xed\xa0\x80";
	REFUSED(-EINVAL, "tensor|UTF-8");
	s[1].dtype = PEERLANE_DTYPE_NR;
	REFUSED(-EINVAL, "tensor \"b\"|unknown dtype");
	s[1].shape = NULL;
	REFUSED(-EINVAL, "tensor \"b\"|no shape");
	s[1].nr_dims = 65;
	REFUSED(-EINVAL, "tensor \"b\"|65 dimensions");
	s[1].nr_dims = 2;
	s[1].shape = huge;
	REFUSED(-EOVERFLOW, "tensor \"b\"|overflows");
	s[1].dtype = PEERLANE_F4;
	s[1].shape = &odd;
	REFUSED(-EINVAL, "tensor \"b\"|whole number of bytes");
	s[1].addr = NULL;
	REFUSED(-EINVAL, "tensor \"b\"|no memory");
	s[1].addr = (void *)0x1000;
	REFUSED(-EFAULT, "tensor \"b\"");
	opt.align = 12;
	REFUSED(-EINVAL, "alignment 12");
	opt.align = 4;
	REFUSED(-EINVAL, "alignment 4");
	opt.align = 2 << 20;
	REFUSED(-EINVAL, "alignment 2097152");
	opt.flags = 8;
	REFUSED(-EINVAL, "flags");
	opt.size = 3;
	REFUSED(-EINVAL, "size");
	opt.nr_metadata = 1;
	REFUSED(-EINVAL, "metadata");
	opt.nr_metadata = 1;
	opt.metadata = null_pair;
	REFUSED(-EINVAL, "entry 0 of the metadata");
	/* Nothing was made. */
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(count_temps(), 0);
	assert_int_equal(peerlane_model_save(ctx, sim_path("."), s, 2, NULL, NULL), -EISDIR);
	assert_int_equal(peerlane_model_save(ctx, "/dev/null", s, 2, NULL, NULL), -EINVAL);
	assert_int_equal(peerlane_model_save(ctx, sim_path("no/where"), s, 2, NULL, NULL), -ENOENT);
	sim_close(ctx, NULL, NULL);
}

/* The mode stays, a link is followed, and readers of the old file keep it. */
static void replaces(void **state)
{
	const uint64_t four = 4;
	struct peerlane_model_source s = bytes_of("t", "old!", &four);
	const char *path = sim_path("file"), *link = sim_path("link");
	struct peerlane_model_save_options opt = { .size = sizeof(opt),
						   .flags = PEERLANE_MODEL_NO_SYNC };
	struct peerlane_model *old, *new;
	struct peerlane_model_part p;
	char got[4];
	struct stat st;

	(void)state;
	ctx = sim_open(0);
	assert_int_equal(peerlane_model_save(ctx, path, &s, 1, NULL, NULL), 0);
	assert_int_equal(chmod(path, 0640), 0);
	assert_int_equal(symlink("file", link), 0);
	old = mf_open(ctx, path);
	s.addr = "new!";
	assert_int_equal(peerlane_model_save(ctx, link, &s, 1, &opt, NULL), 0);
	assert_int_equal(lstat(link, &st), 0);
	assert_true(S_ISLNK(st.st_mode));
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0640);
	new = mf_open(ctx, path);
	p = mf_whole(new, "t");
	p.addr = got;
	assert_int_equal(peerlane_model_load(new, &p, 1, NULL, NULL), 0);
	assert_memory_equal(got, "new!", 4);
	assert_int_equal(peerlane_model_load(old, &p, 1, NULL, NULL), 0);
	assert_memory_equal(got, "old!", 4);
	peerlane_model_close(old);
	peerlane_model_close(new);
	assert_int_equal(count_temps(), 0);
	sim_close(ctx, NULL, NULL);
}

/* The old file is as it was, and nothing else is there. */
static void assert_old(const char *path, const char *old, size_t old_bytes)
{
	size_t bytes;
	char *now = content(path, &bytes);

	assert_int_equal(bytes, old_bytes);
	assert_memory_equal(now, old, bytes);
	free(now);
}

static int stop_in_the_middle(void *arg, uint64_t done, uint64_t total)
{
	(void)arg;
	return done > 0 && done < total;
}

/* A limit on the size of files is a full disk that needs no root; the GPU may fail, too. */
static void failures(void **state)
{
	const uint64_t small = 1000, large = 3 * MIB, four = 4;
	const char *path = sim_path("kept");
	struct peerlane_model_source s[2];
	struct peerlane_model_save_options opt = { .size = sizeof(opt),
						   .progress = stop_in_the_middle };
	struct rlimit limit, low;
	size_t bytes;
	char *gpu, *old;
	unsigned int fds;

	(void)state;
	ctx = sim_open(0);
	gpu = sim_alloc(ctx, large);
	sim_gpu_pattern(ctx, gpu, large, 0, 6);
	s[0] = bytes_of("t", gpu, &small);
	assert_int_equal(peerlane_model_save(ctx, path, s, 1, NULL, NULL), 0);
	old = content(path, &bytes);
	s[0] = bytes_of("t", gpu, &large);
	s[1] = bytes_of("u", gpu, &four);
	fds = sim_count_fds();

	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	low = limit;
	for (low.rlim_cur = 10; low.rlim_cur < large; low.rlim_cur = low.rlim_cur * 100 + 1) {
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
		assert_int_equal(peerlane_model_save(ctx, path, s, 2, NULL, NULL), -EFBIG);
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
		sim_assert_error(-EFBIG, "kept");
		assert_old(path, old, bytes);
		assert_int_equal(count_temps(), 0);
	}
	assert_int_equal(peerlane_sim_inject(ctx, "copy", 0, 1000), 0);
	assert_int_equal(peerlane_model_save(ctx, path, s, 2, NULL, NULL), -EREMOTEIO);
	sim_assert_error(-EREMOTEIO, "writing tensor \"t\"");
	assert_int_equal(peerlane_sim_inject(ctx, "copy", 0, 0), 0);
	assert_old(path, old, bytes);
	assert_int_equal(count_temps(), 0);
	/* A source of many requests, so that there is a middle. */
	{
		enum { NR = 3000 };
		struct peerlane_model_source *many = calloc(NR, sizeof(*many));
		char(*names)[8] = calloc(NR, sizeof(*names));

		for (int i = 0; i < NR; i++) {
			snprintf(names[i], sizeof(names[i]), "%d", i);
			many[i] = bytes_of(names[i], gpu, &small);
		}
		assert_int_equal(peerlane_model_save(ctx, path, many, NR, &opt, NULL), -ECANCELED);
		free(many);
		free(names);
	}
	assert_old(path, old, bytes);
	assert_int_equal(count_temps(), 0);
	assert_int_equal(sim_count_fds(), fds);
	/* With room again it works. */
	assert_int_equal(peerlane_model_save(ctx, path, s, 2, NULL, NULL), 0);
	peerlane_model_close(mf_open(ctx, path));
	free(old);
	sim_close(ctx, NULL, gpu);
}

static int die_at_the_end(void *arg, uint64_t done, uint64_t total)
{
	(void)arg;
	if (done == total)
		_exit(7);
	return 0;
}

/* All is written but the name: the process ends there, as in a crash. */
static void crash(void **state)
{
	const uint64_t four = 4;
	struct peerlane_model_source s = bytes_of("t", "old!", &four);
	struct peerlane_model_save_options opt = { .size = sizeof(opt),
						   .progress = die_at_the_end };
	const char *path = sim_path("crash");
	size_t bytes;
	char *old;
	int status;
	pid_t pid;

	(void)state;
	ctx = sim_open(0);
	assert_int_equal(peerlane_model_save(ctx, path, &s, 1, NULL, NULL), 0);
	sim_close(ctx, NULL, NULL);
	old = content(path, &bytes);
	pid = fork();
	if (!pid) {
		struct peerlane *own = sim_open(0);

		s.addr = "new!";
		peerlane_model_save(own, path, &s, 1, &opt, NULL);
		_exit(8);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 7);
	assert_old(path, old, bytes);
	assert_int_equal(count_temps(), 1);
	/* What it left behind is in nobody's way. */
	ctx = sim_open(0);
	s.addr = "new!";
	assert_int_equal(peerlane_model_save(ctx, path, &s, 1, NULL, NULL), 0);
	assert_int_equal(count_temps(), 1);
	free(old);
	sim_close(ctx, NULL, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(exact),    sim_test(round_trip), sim_test(bad_sources),
		sim_test(replaces), sim_test(failures),	  sim_test(crash),
	};

	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown);
}
