// SPDX-License-Identifier: MIT
/* Data through reads and writes: sizes, offsets, memory, threads, handles, a forked child. */
#include "cf_test.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define BYTES (5 * MIB + 123)

static void shapes(void **state)
{
	static const size_t sizes[] = { 1, 511, 4096, 65537, MIB, BYTES };
	static const off_t offsets[] = { 0, 1, 4095, 4096, 1000003 };
	static const int flags[] = { O_RDWR, O_RDWR | O_DIRECT };
	char *mem = cf_alloc(BYTES + 8192);

	(void)state;
	for (int f = 0; f < 2; f++) {
		CUfileHandle_t fh = cf_open("shapes", BYTES, 1, flags[f]);

		for (int s = 0; s < 6; s++) {
			for (int o = 0; o < 5; o++) {
				size_t left = BYTES - (size_t)offsets[o];
				size_t want = sizes[s] < left ? sizes[s] : left;

				assert_int_equal(cf.cuFileRead(fh, mem, sizes[s], offsets[o], o),
						 want);
				assert_int_equal(cf_differs(mem + o, want, offsets[o], 1), want);
			}
		}
		cf.cuFileHandleDeregister(fh);
	}
	cf_free(mem);
}

static void written(void **state)
{
	static const int flags[] = { O_RDWR, O_RDWR | O_DIRECT };
	char *mem = cf_alloc(BYTES);

	(void)state;
	for (int f = 0; f < 2; f++) {
		CUfileHandle_t fh = cf_open("written", 100, 1, flags[f]);

		cf_fill(mem, BYTES, 33, 2);
		assert_ok(cf.cuFileBufRegister(mem, BYTES, 0));
		assert_int_equal(cf.cuFileWrite(fh, mem, BYTES, 33, 0), BYTES);
		assert_int_equal(cf_file_differs(cf_file("written"), BYTES, 33, 2), BYTES);
		assert_int_equal(cf_file_differs(cf_file("written"), 33, 0, 1), 33);
		assert_ok(cf.cuFileBufDeregister(mem));
		cf.cuFileHandleDeregister(fh);
	}
	cf_free(mem);
}

static void vectors(void **state)
{
	CUfileHandle_t fh = cf_open("vectors", 100000, 4, O_RDWR);
	char *mem = cf_alloc(100000);
	CUfileIOVec_t iov[3] = { { mem, 10 }, { mem + 5000, 50000 }, { mem + 80000, 7 } };

	(void)state;
	if (!cf.cuFileReadv)
		skip();
	assert_int_equal(cf.cuFileReadv(fh, iov, 3, 99, 0), 50017);
	assert_int_equal(cf_differs(mem, 10, 99, 4), 10);
	assert_int_equal(cf_differs(mem + 5000, 50000, 109, 4), 50000);
	assert_int_equal(cf_differs(mem + 80000, 7, 50109, 4), 7);
	cf_fill(mem, 10, 0, 5);
	cf_fill(mem + 5000, 50000, 10, 5);
	cf_fill(mem + 80000, 7, 50010, 5);
	assert_int_equal(cf.cuFileWritev(fh, iov, 3, 0, 0), 50017);
	assert_int_equal(cf_file_differs(cf_file("vectors"), 50017, 0, 5), 50017);
	iov[1].base = NULL;
	errno = 0;
	assert_int_equal(cf.cuFileReadv(fh, iov, 3, 0, 0), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(cf.cuFileReadv(fh, iov, 0, 0, 0), -1);
	assert_int_equal(cf.cuFileReadv(fh, iov, 1, 0, 1), -1);
	cf.cuFileHandleDeregister(fh);
	assert_int_equal(cf.cuFileReadv(fh, iov, 1, 0, 0), -1);
	assert_int_equal(errno, CU_FILE_HANDLE_NOT_REGISTERED);
	cf_free(mem);
}

/* The program may close its descriptor, and get the number again for another file. */
static void closed_descriptor(void **state)
{
	char *mem = cf_alloc(8192);
	int fd = cf_make("first", 8192, 1, O_RDONLY), again;
	CUfileHandle_t a = cf_register(fd), b;

	(void)state;
	assert_non_null(a);
	close(fd);
	again = cf_make("second", 8192, 2, O_RDONLY);
	assert_int_equal(again, fd);
	b = cf_register(again);
	assert_non_null(b);
	assert_int_equal(cf.cuFileRead(a, mem, 8192, 0, 0), 8192);
	assert_int_equal(cf_differs(mem, 8192, 0, 1), 8192);
	assert_int_equal(cf.cuFileRead(b, mem, 8192, 0, 0), 8192);
	assert_int_equal(cf_differs(mem, 8192, 0, 2), 8192);
	cf_free(mem);
}

/* Handles used up and given out again are told apart. */
static void many_handles(void **state)
{
	enum { NR = 700 };
	static CUfileHandle_t old[NR], now[NR];
	char *mem = cf_alloc(4096);

	(void)state;
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < NR; i++) {
			int fd = memfd_create("many", MFD_CLOEXEC);

			if (ftruncate(fd, i + 1))
				fail();
			now[i] = cf_register(fd);
			assert_non_null(now[i]);
			close(fd);
		}
		for (int i = 0; i < NR; i++) {
			assert_int_equal(cf.cuFileRead(now[i], mem, 4096, 0, 0), i + 1);
			if (round) {
				assert_int_equal(cf.cuFileRead(old[i], mem, 4096, 0, 0), -1);
				assert_int_equal(errno, CU_FILE_HANDLE_NOT_REGISTERED);
			}
			cf.cuFileHandleDeregister(now[i]);
			cf.cuFileHandleDeregister(now[i]);
			old[i] = now[i];
		}
	}
	cf_free(mem);
}

struct thread {
	pthread_t id;
	unsigned int nr;
	CUfileHandle_t shared;
	size_t wrong;
};

static void *work(void *arg)
{
	struct thread *t = arg;
	char name[16], *mem = cf_alloc(100000);
	CUfileHandle_t own;

	snprintf(name, sizeof(name), "own%u", t->nr);
	own = cf_register(cf_make(name, 100000, t->nr, O_RDWR));
	for (int i = 0; i < 20; i++) {
		t->wrong += cf.cuFileDriverOpen().err != 0;
		t->wrong += cf.cuFileBufRegister(mem, 100000, 0).err != 0;
		t->wrong += cf.cuFileRead(t->shared, mem, 60000, i, 0) != 60000;
		t->wrong += cf_differs(mem, 60000, i, 99) != 60000;
		t->wrong += cf.cuFileRead(own, mem, 100000, 0, 0) != 100000;
		t->wrong += cf_differs(mem, 100000, 0, t->nr) != 100000;
		t->wrong += cf.cuFileWrite(own, mem, 100000, 0, 0) != 100000;
		t->wrong += cf.cuFileBufDeregister(mem).err != 0;
		t->wrong += cf.cuFileDriverClose().err != 0;
	}
	cf.cuFileHandleDeregister(own);
	cf_free(mem);
	return NULL;
}

static void threads(void **state)
{
	struct thread t[8];
	CUfileHandle_t fh = cf_open("shared", 65536, 99, O_RDONLY);

	(void)state;
	cf_file("x"); /* the directory is made by one */
	for (unsigned int i = 0; i < 8; i++) {
		t[i] = (struct thread){ .nr = i, .shared = fh };
		assert_int_equal(pthread_create(&t[i].id, NULL, work, &t[i]), 0);
	}
	for (unsigned int i = 0; i < 8; i++) {
		pthread_join(t[i].id, NULL);
		assert_int_equal(t[i].wrong, 0);
	}
	assert_int_equal(cf.cuFileUseCount(), 1);
}

/* Closing the driver frees what a program left. */
static void all_gone(void **state)
{
	CUfileHandle_t fh = cf_open("gone", 4096, 1, O_RDWR);
	CUfileBatchHandle_t batch;
	char *mem = cf_alloc(4096);

	(void)state;
	assert_ok(cf.cuFileBufRegister(mem, 4096, 0));
	assert_ok(cf.cuFileBatchIOSetUp(&batch, 4));
	assert_ok(cf.cuFileStreamRegister(NULL, 0));
	assert_ok(cf.cuFileDriverClose());
	assert_ok(cf.cuFileDriverOpen());
	assert_ok(cf.cuFileBufRegister(mem, 4096, 0));
	assert_ok(cf.cuFileStreamRegister(NULL, 0));
	assert_int_equal(cf.cuFileRead(fh, mem, 1, 0, 0), -1);
	cf_free(mem);
}

/* A child finds the driver closed and may open it anew. */
static void forked(void **state)
{
	CUfileHandle_t fh = cf_open("forked", 4096, 1, O_RDWR);
	int status;
	pid_t pid;

	(void)state;
	if (strcmp(peerlane_backend(cf_gpu()), "sim") != 0)
		skip();
	pid = fork();
	if (!pid) {
		char host[100];
		CUfileHandle_t own;

		if (cf.cuFileUseCount() != 0 || cf.cuFileRead(fh, host, 100, 0, 0) != -1)
			_exit(1);
		own = cf_register(open(cf_file("forked"), O_RDONLY | O_CLOEXEC));
		if (!own || cf.cuFileRead(own, host, 100, 0, 0) != 100)
			_exit(2);
		_exit(cf.cuFileDriverClose().err ? 3 : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(cf.cuFileUseCount(), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cf_test(shapes),       cf_test(written),
		cf_test(vectors),      cf_test(closed_descriptor),
		cf_test(many_handles), cf_test(threads),
		cf_test(all_gone),     cf_test(forked),
	};
	int failed;

	cf_alarm(150);
	cf_load();
	cf_gpu();
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	cf_gpu_close();
	return failed;
}
