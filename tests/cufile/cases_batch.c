// SPDX-License-Identifier: MIT
/* Cases: batches and streams. */
#include "case.h"

static char *mem;
static CUfileHandle_t file;
static CUfileBatchHandle_t batch;

/* A file of 64 KiB, memory, and a batch of @nr. */
static void start(unsigned int nr)
{
	mem = cf_alloc(MIB);
	cf.cuFileDriverOpen();
	file = cf_register(cf_make("f", 65536, 1, O_RDWR | O_DIRECT));
	if (nr && cf.cuFileBatchIOSetUp(&batch, nr).err)
		say("no batch");
}

static CUfileIOParams_t io_of(size_t bytes, off_t offset)
{
	return (CUfileIOParams_t){
		.mode = CUFILE_BATCH,
		.u.batch = { .devPtr_base = mem, .file_offset = offset, .size = bytes },
		.fh = file,
		.opcode = CUFILE_READ,
		.cookie = &file
	};
}

static void say_submit(const CUfileIOParams_t *io)
{
	CUfileIOParams_t copy = *io;

	say_status(cf.cuFileBatchIOSubmit(batch, 1, &copy, 0));
}

/* Waits for one event and says what it has. */
static void say_event(void)
{
	CUfileIOEvents_t event = { .cookie = NULL };
	unsigned int nr = 1;

	say_status(cf.cuFileBatchIOGetStatus(batch, 1, &nr, &event, NULL));
	if (nr == 1)
		say("%#x/%zd%s", (unsigned int)event.status, (ssize_t)event.ret,
		    event.cookie == &file ? "" : " other cookie");
	else
		say("%u events", nr);
}

CASE(setup, "BatchIOSetUp: sizes", "5022 0 0 5022")
{
	start(0);
	say_status(cf.cuFileBatchIOSetUp(&batch, 0));
	say_status(cf.cuFileBatchIOSetUp(&batch, 1));
	say_status(cf.cuFileBatchIOSetUp(&batch, 128));
	say_status(cf.cuFileBatchIOSetUp(&batch, 257));
}

CASE_BUT(setup_more, "BatchIOSetUp: 256", "0", "5022", "ours takes 256 whatever io_batchsize says")
{
	start(0);
	say_status(cf.cuFileBatchIOSetUp(&batch, 256));
}

CASE_BUT(setup_null, "BatchIOSetUp: NULL", "5022", "signal 11", "the real library crashes")
{
	start(0);
	say_status(cf.cuFileBatchIOSetUp(NULL, 4));
}

CASE(submit_bad, "BatchIOSubmit: none, too many, no batch, bad mode, no file",
     "5040 5040 5040 5040 5040")
{
	CUfileIOParams_t io[3], one;

	start(2);
	for (int i = 0; i < 3; i++)
		io[i] = io_of(4096, 0);
	say_status(cf.cuFileBatchIOSubmit(batch, 0, io, 0));
	say_status(cf.cuFileBatchIOSubmit(batch, 3, io, 0));
	say_status(cf.cuFileBatchIOSubmit((void *)&one, 1, io, 0));
	one = io[0];
	one.mode = (CUfileBatchMode_t)7;
	say_submit(&one);
	one = io[0];
	one.fh = NULL;
	say_submit(&one);
}

CASE(destroyed, "destroyed batch: submit, status, cancel", "5040 5041 0")
{
	CUfileIOParams_t io;
	CUfileIOEvents_t event;
	unsigned int nr = 1;

	start(2);
	io = io_of(4096, 0);
	cf.cuFileBatchIODestroy(batch);
	say_submit(&io);
	say_status(cf.cuFileBatchIOGetStatus(batch, 0, &nr, &event, NULL));
	say_status(cf.cuFileBatchIOCancel(batch));
}

CASE(cancel_none, "BatchIOCancel: NULL", "0")
{
	start(0);
	say_status(cf.cuFileBatchIOCancel(NULL));
}

CASE(min_nr, "BatchIOGetStatus: min_nr above *nr", "5022")
{
	CUfileIOEvents_t event;
	unsigned int nr = 1;

	start(2);
	say_status(cf.cuFileBatchIOGetStatus(batch, 2, &nr, &event, NULL));
}

CASE(one_read, "batch: a read", "0 0 0x10/4096 same")
{
	CUfileIOParams_t io;

	start(2);
	io = io_of(4096, 8192);
	say_submit(&io);
	say_event();
	say(cf_differs(mem, 4096, 8192, 1) == 4096 ? "same" : "other");
}

CASE(at_end, "batch: a read at the end of the file", "0 0 0x10/0")
{
	CUfileIOParams_t io;

	start(2);
	io = io_of(4096, 65536);
	say_submit(&io);
	say_event();
}

CASE(too_long, "batch: longer than memory and file", "0 0 0x10/65536")
{
	CUfileIOParams_t io;

	start(2);
	io = io_of(64 * MIB, 0);
	say_submit(&io);
	say_event();
}

CASE_BUT(bad_opcode, "batch: unknown operation", "0 0 0x40/-22", "0 0 0x10/4096",
	 "the real library reports it as done")
{
	CUfileIOParams_t io;

	start(2);
	io = io_of(4096, 0);
	io.opcode = (CUfileOpcode_t)9;
	say_submit(&io);
	say_event();
}

CASE(one_too_long, "batch: one of three is too long", "0 0 3 3 complete 0 failed")
{
	CUfileIOParams_t io[3];
	CUfileIOEvents_t events[3];
	unsigned int nr = 3, good = 0, bad = 0;

	start(4);
	for (int i = 0; i < 3; i++) {
		io[i] = io_of(i == 1 ? 64 * MIB : 4096, 0);
		/* They may run at once, and no two may write the same memory. */
		io[i].u.batch.devPtr_offset = i == 1 ? 0 : (i + 1) * 65536;
	}
	say_status(cf.cuFileBatchIOSubmit(batch, 3, io, 0));
	say_status(cf.cuFileBatchIOGetStatus(batch, 3, &nr, events, NULL));
	for (unsigned int i = 0; i < nr && i < 3; i++) {
		good += events[i].status == CUFILE_COMPLETE;
		bad += events[i].status == CUFILE_FAILED;
	}
	say("%u %u complete %u failed", nr, good, bad);
}

CASE_BUT(odd_timeout, "BatchIOGetStatus: a number for the time-out", "0 0 1", "0 5044 1",
	 "programs do it: ours waits")
{
	CUfileIOParams_t io;
	CUfileIOEvents_t event;
	unsigned int nr = 1;

	start(2);
	io = io_of(4096, 0);
	say_submit(&io);
	say_status(cf.cuFileBatchIOGetStatus(batch, 1, &nr, &event, (struct timespec *)5000));
	say("%u", nr);
}

CASE(nothing_there, "BatchIOGetStatus: nothing in flight", "0 0")
{
	CUfileIOEvents_t event;
	struct timespec none = { 0 };
	unsigned int nr = 1;

	start(2);
	say_status(cf.cuFileBatchIOGetStatus(batch, 0, &nr, &event, &none));
	say("%u", nr);
}

CASE(reuse, "batch: used again", "0 0 0x10/4096 0 0 0x10/100")
{
	CUfileIOParams_t io;

	start(1);
	io = io_of(4096, 0);
	say_submit(&io);
	say_event();
	io = io_of(100, 65436);
	say_submit(&io);
	say_event();
}

CASE(cancelled, "BatchIOCancel: what the status gives afterwards", "0 0 0 0")
{
	struct timespec second = { .tv_sec = 1 };
	CUfileIOEvents_t events[2];
	CUfileIOParams_t io[2];
	unsigned int nr = 2;

	start(2);
	for (int i = 0; i < 2; i++) {
		io[i] = io_of(4096, 4096 * i);
		io[i].u.batch.devPtr_offset = 4096 * i;
	}
	say_status(cf.cuFileBatchIOSubmit(batch, 2, io, 0));
	say_status(cf.cuFileBatchIOCancel(batch));
	say_status(cf.cuFileBatchIOGetStatus(batch, 2, &nr, events, &second));
	say("%u", nr);
}

/* ------------------------------------------------------------------ streams */

static size_t size = 4096;
static off_t file_offset, buf_offset;
static ssize_t bytes = 77;

static void say_async(void *stream)
{
	say_status(cf.cuFileReadAsync(file, mem, &size, &file_offset, &buf_offset, &bytes, stream));
	peerlane_gpu_stream_sync(cf_gpu(), stream);
	say("%zd", bytes);
}

static void *new_stream(void)
{
	void *stream = NULL;

	peerlane_gpu_stream_create(cf_gpu(), 0, &stream);
	return stream;
}

CASE(stream_register, "StreamRegister: NULL, twice, again", "0 5022 0 0 5022 5022")
{
	start(0);
	say_status(cf.cuFileStreamRegister(NULL, 0));
	say_status(cf.cuFileStreamRegister(NULL, 0));
	say_status(cf.cuFileStreamDeregister(NULL));
	say_status(cf.cuFileStreamRegister(NULL, 15));
	cf.cuFileStreamDeregister(NULL);
	say_status(cf.cuFileStreamDeregister(NULL));
	say_status(cf.cuFileStreamDeregister(new_stream()));
}

CASE(stream_flags, "StreamRegister: unknown flags", "0")
{
	start(0);
	say_status(cf.cuFileStreamRegister(new_stream(), 0x10));
}

CASE(async, "ReadAsync", "0 4096 same")
{
	start(0);
	file_offset = 4096;
	say_async(new_stream());
	say(cf_differs(mem, 4096, 4096, 1) == 4096 ? "same" : "other");
}

CASE(async_null, "ReadAsync: NULL arguments", "5022 5022 5022 5022 5022 5022")
{
	start(0);
	say_status(cf.cuFileReadAsync(NULL, mem, &size, &file_offset, &buf_offset, &bytes, NULL));
	say_status(cf.cuFileReadAsync(file, NULL, &size, &file_offset, &buf_offset, &bytes, NULL));
	say_status(cf.cuFileReadAsync(file, mem, NULL, &file_offset, &buf_offset, &bytes, NULL));
	say_status(cf.cuFileReadAsync(file, mem, &size, NULL, &buf_offset, &bytes, NULL));
	say_status(cf.cuFileReadAsync(file, mem, &size, &file_offset, NULL, &bytes, NULL));
	say_status(cf.cuFileReadAsync(file, mem, &size, &file_offset, &buf_offset, NULL, NULL));
}

CASE(async_beyond, "ReadAsync: beyond the buffer", "0 0 -5016")
{
	start(0);
	say_status(cf.cuFileBufRegister(mem, 65536, 0));
	size = 65536;
	buf_offset = 4096;
	say_async(new_stream());
}

CASE(async_file_offset, "ReadAsync: negative file offset", "0 -1")
{
	start(0);
	file_offset = -1;
	say_async(new_stream());
}

CASE_BUT(async_buf_offset, "ReadAsync: negative buffer offset", "0 -5030", "0 0",
	 "the real library reads nothing and says nothing")
{
	start(0);
	buf_offset = -1;
	say_async(new_stream());
}

CASE(async_nothing, "ReadAsync: size 0", "0 0")
{
	start(0);
	size = 0;
	say_async(new_stream());
}

CASE_BUT(async_stale, "ReadAsync: deregistered handle", "5027 77", "0 -5027",
	 "ours refuses it at once")
{
	start(0);
	cf.cuFileHandleDeregister(file);
	say_async(NULL);
}

CASE(async_default, "ReadAsync: default stream", "0 4096")
{
	int (*synchronize)(void *stream);

	start(0);
	*(void **)(void *)&synchronize = cf_cuda("cuStreamSynchronize");
	say_status(cf.cuFileReadAsync(file, mem, &size, &file_offset, &buf_offset, &bytes, NULL));
	if (synchronize && synchronize(NULL))
		say("not synchronized");
	/* The simulator's default stream is the library's own, so there is none to wait for. */
	for (int i = 0; !synchronize && i < 200; i++) {
		if (__atomic_load_n(&bytes, __ATOMIC_ACQUIRE) != 77)
			break;
		usleep(10000);
	}
	say("%zd", bytes);
}
