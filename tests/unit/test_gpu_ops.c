// SPDX-License-Identifier: MIT
/*
 * A driver that answers otherwise than the simulator does: later copies are seen to end before earlier ones, there is no
 * event left, memory that was freed is not known any more. What a program sees of it must be right, and all that was made must be given back.
 */
#include "sim/sim_fixture.h"

#include "context.h"
#include "stream_request.h"

#define BYTES (24 * MIB)
#define NR_LATE 64

static const struct pl_gpu_ops *real;
static struct pl_gpu_ops ops;
static struct peerlane *ctx;

/* Opens a context whose operations can be replaced one by one. */
static void open_with_ops(void)
{
	ctx = sim_open(PEERLANE_NO_IN_PLACE);
	real = ctx->gpu->ops;
	ops = *real;
	ctx->gpu->ops = &ops;
}

/* ------------------------------------------------------------------ late marks */

static struct {
	pthread_mutex_t lock;
	struct pl_mark *marks[NR_LATE]; /* set and not told to be passed, oldest first */
	unsigned int nr;
	unsigned int nr_overtaken;
	bool overtaken; /* the oldest was */
} late = { .lock = PTHREAD_MUTEX_INITIALIZER };

static int note_copy(struct pl_gpu *gpu, struct pl_queue *queue, enum pl_dir dir,
		     const struct pl_copy *list, unsigned int nr, struct pl_mark *mark)
{
	pthread_mutex_lock(&late.lock);
	assert_in_range(late.nr, 0, NR_LATE - 1);
	late.marks[late.nr++] = mark;
	pthread_mutex_unlock(&late.lock);
	return real->copy(gpu, queue, dir, list, nr, mark);
}

static void forget_mark(unsigned int i)
{
	late.nr--;
	memmove(&late.marks[i], &late.marks[i + 1], (late.nr - i) * sizeof(late.marks[0]));
	late.overtaken = i > 0;
	late.nr_overtaken += i > 0;
}

/* Says "not yet" of the oldest copy while there is a newer one that has not been asked about. */
static int newest_first(struct pl_gpu *gpu, struct pl_mark *mark)
{
	int done = real->mark_done(gpu, mark);
	unsigned int i = 0;

	pthread_mutex_lock(&late.lock);
	while (i < late.nr && late.marks[i] != mark)
		i++;
	if (done && !i && late.nr > 1 && !late.overtaken)
		done = 0;
	else if (done && i < late.nr)
		forget_mark(i);
	pthread_mutex_unlock(&late.lock);
	return done;
}

/* Of a file opened with O_APPEND the order of the writes is the order of the bytes. */
static void test_append(void **state)
{
	const char *path = sim_make_file("append", 100, 1);
	struct peerlane_file *f;
	char *gpu;

	(void)state;
	open_with_ops();
	f = sim_file(ctx, path, O_WRONLY | O_APPEND);
	gpu = sim_alloc(ctx, BYTES);
	sim_gpu_pattern(ctx, gpu, BYTES, 100, 1);
	ops.copy = note_copy;
	ops.mark_done = newest_first;
	assert_int_equal(peerlane_write(f, gpu, BYTES, 0, 0), BYTES);
	ops = *real;
	/* Else this was no test. */
	assert_in_range(late.nr_overtaken, 1, 1000);
	sim_assert_file(path, 0, BYTES + 100, 1);
	assert_int_equal(sim_file_size(path), BYTES + 100);
	sim_close(ctx, f, gpu);
}

/* ------------------------------------------------------------------ no events */

static struct {
	int queues, marks;
	int good; /* marks that can still be made */
} made;

static int count_queue(struct pl_gpu *gpu, void *owner, struct pl_queue **out)
{
	int err = real->queue_create(gpu, owner, out);

	__atomic_fetch_add(&made.queues, !err, __ATOMIC_RELAXED);
	return err;
}

static void uncount_queue(struct pl_gpu *gpu, struct pl_queue *queue)
{
	__atomic_fetch_sub(&made.queues, queue != NULL, __ATOMIC_RELAXED);
	real->queue_destroy(gpu, queue);
}

static int count_mark(struct pl_gpu *gpu, struct pl_queue *queue, struct pl_mark **out)
{
	int err = __atomic_fetch_sub(&made.good, 1, __ATOMIC_RELAXED) > 0
			  ? real->mark_create(gpu, queue, out)
			  : -EREMOTEIO;

	__atomic_fetch_add(&made.marks, !err, __ATOMIC_RELAXED);
	return err;
}

static void uncount_mark(struct pl_gpu *gpu, struct pl_mark *mark)
{
	__atomic_fetch_sub(&made.marks, mark != NULL, __ATOMIC_RELAXED);
	real->mark_destroy(gpu, mark);
}

/* A queue that could be made only in part is given back, and nothing came of the request. */
static void test_no_marks(void **state)
{
	const char *path = sim_make_file("marks", BYTES, 1);
	struct peerlane_file *f;
	char *gpu;

	(void)state;
	for (int good = 0; good < PL_RUNS; good++) {
		open_with_ops();
		ops.queue_create = count_queue;
		ops.queue_destroy = uncount_queue;
		ops.mark_create = count_mark;
		ops.mark_destroy = uncount_mark;
		made.good = good;
		f = sim_file(ctx, path, O_RDWR);
		gpu = sim_alloc(ctx, BYTES);
		assert_int_equal(peerlane_read(f, gpu, BYTES, 0), -EREMOTEIO);
		assert_int_equal(made.queues, 0);
		assert_int_equal(made.marks, 0);
		made.good = 1000;
		assert_int_equal(peerlane_read(f, gpu, BYTES, 0), BYTES);
		sim_assert_gpu(ctx, gpu, BYTES, 0, 1);
		assert_true(made.queues > 0);
		sim_close(ctx, f, gpu);
		assert_int_equal(made.queues, 0);
		assert_int_equal(made.marks, 0);
	}
}

/* ------------------------------------------------------------------ memory that was freed */

/* As CUDA answers once memory was freed: it knows nothing of it, so it may be the program's own. */
static int know_nothing(struct pl_gpu *gpu, const void *addr, struct pl_mem *out)
{
	(void)gpu;
	(void)addr;
	*out = (struct pl_mem){ .kind = PL_MEM_HOST, .gpu = -1 };
	return 0;
}

/* A buffer whose memory is no longer what was registered is refused before anything touches it. */
static void test_freed(void **state)
{
	struct peerlane_file *f;
	struct peerlane_io io;
	struct peerlane_batch *b;
	char *gpu;

	(void)state;
	open_with_ops();
	f = sim_file(ctx, sim_make_file("freed", MIB, 1), O_RDWR);
	gpu = sim_alloc(ctx, MIB);
	assert_int_equal(peerlane_buffer_register(ctx, gpu, MIB, 0), 0);
	assert_int_equal(peerlane_batch_create(ctx, 1, &b), 0);
	io = (struct peerlane_io){ .file = f, .addr = gpu, .bytes = 4096 };
	ops.query = know_nothing;
	assert_int_equal(peerlane_batch_submit(b, &io, 1), -EFAULT);
	sim_assert_error(-EFAULT, "was freed");
	ops.query = real->query;
	assert_int_equal(peerlane_batch_submit(b, &io, 1), 0);
	assert_int_equal(
		peerlane_batch_wait(b, 1, &(struct peerlane_event){ .result = 0 }, 1, NULL), 1);
	peerlane_batch_destroy(b);
	assert_int_equal(peerlane_buffer_release(ctx, gpu), 0);
	sim_close(ctx, f, gpu);
}

/* ------------------------------------------------------------------ streams */

static uintptr_t gpu_context;

/* As of the default stream, which has the same handle in every GPU context. */
static int default_stream(struct pl_gpu *gpu, void *stream, uintptr_t key[2])
{
	(void)gpu;
	(void)stream;
	key[0] = 1;
	key[1] = gpu_context;
	return 0;
}

/* Streams of one handle in two GPU contexts are two streams: one does not wait for the other. */
static void test_two_contexts(void **state)
{
	struct pl_stream *first, *second, *again;

	(void)state;
	open_with_ops();
	ops.stream_key = default_stream;
	gpu_context = 10;
	assert_int_equal(pl_stream_find(ctx, NULL, &first), 0);
	gpu_context = 11;
	assert_int_equal(pl_stream_find(ctx, NULL, &second), 0);
	assert_ptr_not_equal(first, second);
	assert_ptr_not_equal(first->word, second->word);
	gpu_context = 10;
	assert_int_equal(pl_stream_find(ctx, NULL, &again), 0);
	assert_ptr_equal(first, again);
	sim_close(ctx, NULL, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		sim_test(test_append),
		sim_test(test_no_marks),
		sim_test(test_freed),
		sim_test(test_two_contexts),
	};

	sim_alarm(50);
	return cmocka_run_group_tests(tests, sim_group_setup, sim_group_teardown);
}
