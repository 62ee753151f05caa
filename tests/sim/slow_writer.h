/* SPDX-License-Identifier: MIT */
/* A writer whose write takes as long as a test likes: its source memory comes late (userfaultfd). It is another process,
 * or a thread of this one. One program includes it once. */
#ifndef TESTS_SIM_SLOW_WRITER_H
#define TESTS_SIM_SLOW_WRITER_H

#include "sim/sim_fixture.h"

#include <liburing.h>
#include <linux/aio_abi.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define SLOW_BYTES (16ul * 4096)

enum slow_how {
	SLOW_PWRITE,
	SLOW_PWRITE_DIRECT,
	SLOW_AIO,
	SLOW_AIO_DIRECT,
	SLOW_RING,
	SLOW_RING_DIRECT,
	SLOW_MAPPING, /* stores twice; the descriptor is closed before */
	SLOW_NR,
};

struct slow {
	enum slow_how how;
	const char *path;
	off_t at;
	pid_t pid; /* 0: a thread */
	pthread_t thread;
	int orders[2], answers[2]; /* pipes */
	/* The writer's own. */
	int fd, uffd;
	char *src;
	ssize_t n;
};

static inline ssize_t slow_aio(struct slow *s)
{
	struct iocb cb = { .aio_lio_opcode = IOCB_CMD_PWRITE,
			   .aio_fildes = (uint32_t)s->fd,
			   .aio_buf = (uintptr_t)s->src,
			   .aio_nbytes = SLOW_BYTES,
			   .aio_offset = s->at };
	struct iocb *list[] = { &cb };
	struct io_event event = { 0 };
	aio_context_t ctx = 0;

	if (syscall(SYS_io_setup, 1, &ctx) || syscall(SYS_io_submit, ctx, 1, list) != 1 ||
	    syscall(SYS_io_getevents, ctx, 1, 1, &event, NULL) != 1)
		return -1;
	syscall(SYS_io_destroy, ctx);
	return (ssize_t)event.res;
}

static inline ssize_t slow_ring(struct slow *s)
{
	struct io_uring_cqe *cqe;
	struct io_uring ring;
	ssize_t n = -1;

	if (io_uring_queue_init(4, &ring, 0))
		return -1;
	io_uring_prep_write(io_uring_get_sqe(&ring), s->fd, s->src, SLOW_BYTES, (uint64_t)s->at);
	if (io_uring_submit(&ring) == 1 && !io_uring_wait_cqe(&ring, &cqe))
		n = cqe->res;
	io_uring_queue_exit(&ring);
	return n;
}

static inline void *slow_write(void *arg)
{
	struct slow *s = arg;

	if (s->how <= SLOW_PWRITE_DIRECT)
		s->n = pwrite(s->fd, s->src, SLOW_BYTES, s->at);
	else if (s->how <= SLOW_AIO_DIRECT)
		s->n = slow_aio(s);
	else
		s->n = slow_ring(s);
	return NULL;
}

static inline void slow_say(struct slow *s, char word)
{
	if (write(s->answers[1], &word, 1) != 1)
		abort();
}

static inline char slow_hear(int fd)
{
	char word;

	return read(fd, &word, 1) == 1 ? word : 'q';
}

/* Memory that is missing until slow_come(). */
static inline bool slow_memory(struct slow *s)
{
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct uffdio_api api = { .api = UFFD_API };

	s->src = mmap(NULL, SLOW_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	s->uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	reg.range.start = (uintptr_t)s->src;
	reg.range.len = SLOW_BYTES;
	return s->src != MAP_FAILED && s->uffd >= 0 && !ioctl(s->uffd, UFFDIO_API, &api) &&
	       !ioctl(s->uffd, UFFDIO_REGISTER, &reg);
}

static inline void slow_come(struct slow *s)
{
	static char data[SLOW_BYTES] __attribute__((aligned(4096)));
	struct uffdio_copy copy = { .dst = (uintptr_t)s->src,
				    .src = (uintptr_t)data,
				    .len = SLOW_BYTES };

	sim_pattern(data, SLOW_BYTES, s->at, 2);
	if (ioctl(s->uffd, UFFDIO_COPY, &copy))
		abort();
}

/* 'b': begun, the kernel waits for the memory; then, when told, 'e': it has returned. */
static inline void slow_run_write(struct slow *s)
{
	struct uffd_msg fault;
	pthread_t thread;

	if (!slow_memory(s)) {
		slow_say(s, 's');
		return;
	}
	if (pthread_create(&thread, NULL, slow_write, s) ||
	    read(s->uffd, &fault, sizeof(fault)) != sizeof(fault))
		abort();
	slow_say(s, 'b');
	slow_hear(s->orders[0]);
	slow_come(s);
	pthread_join(thread, NULL);
	slow_say(s, s->n == (ssize_t)SLOW_BYTES ? 'e' : 'x');
	slow_hear(s->orders[0]);
	munmap(s->src, SLOW_BYTES);
	close(s->uffd);
}

static inline void slow_run_mapping(struct slow *s)
{
	char *map = mmap(NULL, SLOW_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, s->at);

	close(s->fd);
	s->fd = -1;
	if (map == MAP_FAILED)
		abort();
	sim_pattern(map, SLOW_BYTES, s->at, 1);
	slow_say(s, 'b');
	slow_hear(s->orders[0]);
	sim_pattern(map, SLOW_BYTES, s->at, 2);
	slow_say(s, msync(map, SLOW_BYTES, MS_SYNC) ? 'x' : 'e');
	slow_hear(s->orders[0]);
	munmap(map, SLOW_BYTES);
}

static inline void *slow_run(void *arg)
{
	struct slow *s = arg;
	bool direct = s->how == SLOW_PWRITE_DIRECT || s->how == SLOW_AIO_DIRECT ||
		      s->how == SLOW_RING_DIRECT;

	s->fd = open(s->path, O_RDWR | O_CLOEXEC | (direct ? O_DIRECT : 0));
	if (s->fd < 0)
		slow_say(s, 's');
	else if (s->how == SLOW_MAPPING)
		slow_run_mapping(s);
	else
		slow_run_write(s);
	if (s->fd >= 0)
		close(s->fd);
	return NULL;
}

/* Begins a write of SLOW_BYTES of pattern 2. False: such a write cannot be had here. */
static inline bool slow_begin(struct slow *s, bool process)
{
	char word;

	assert_int_equal(pipe2(s->orders, O_CLOEXEC), 0);
	assert_int_equal(pipe2(s->answers, O_CLOEXEC), 0);
	s->pid = process ? fork() : 0;
	assert_true(s->pid >= 0);
	if (process && !s->pid) {
		/* Who waits for its locks cannot be ended before it is. */
		alarm(100);
		close(s->orders[1]);
		slow_run(s);
		_exit(0);
	}
	if (!process)
		assert_int_equal(pthread_create(&s->thread, NULL, slow_run, s), 0);
	word = slow_hear(s->answers[0]);
	assert_true(word == 'b' || word == 's');
	return word == 'b';
}

static inline void slow_order(struct slow *s)
{
	assert_int_equal(write(s->orders[1], "", 1), 1);
}

/* Lets the write come to its end; it has returned then. False: it failed. */
static inline bool slow_end(struct slow *s)
{
	slow_order(s);
	return slow_hear(s->answers[0]) == 'e';
}

/* Lets go of the file. */
static inline void slow_close(struct slow *s)
{
	/* It may be gone, and is told nothing. */
	signal(SIGPIPE, SIG_IGN);
	if (write(s->orders[1], "", 1) != 1)
		assert_int_equal(errno, EPIPE);
	if (s->pid)
		assert_int_equal(waitpid(s->pid, NULL, 0), s->pid);
	else
		pthread_join(s->thread, NULL);
	for (int i = 0; i < 2; i++) {
		close(s->orders[i]);
		close(s->answers[i]);
	}
}

#endif
