// SPDX-License-Identifier: MIT
/*
 * Fuzzes the driver from the controller's side: registers, Identify data, completions and what becomes of
 * commands come from the input, as do the calls that the program makes. Whatever the controller does, every
 * I/O must be reported once, and nothing may crash or hang.
 * Called as fuzz.h says.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../fuzz.h"
#include "fake.h"

#define MAX_IO 512u
#define MEM_BYTES ((size_t)1 << 20)

/* The input; when it ends the controller is a good one. */
static struct {
	const uint8_t *data;
	size_t size, at;
} in;

static uint8_t byte(void)
{
	return in.at < in.size ? in.data[in.at++] : 0;
}

static uint32_t word(void)
{
	uint32_t w = byte();

	w |= (uint32_t)byte() << 8;
	w |= (uint32_t)byte() << 16;
	return w | (uint32_t)byte() << 24;
}

static struct {
	struct peerlane_nvme *nvme;
	struct peerlane_nvme_ns *ns;
	struct peerlane_nvme_map *map;
	struct peerlane_nvme_queue *q[3];
	uint8_t state[MAX_IO]; /* 0 not submitted, 1 outstanding, 2 reported */
	unsigned int nr_io;
} host;

static enum fake_do hook(struct fake *f, unsigned int qid, const struct pl_nvme_sqe *sqe,
			 struct pl_nvme_cqe *cqe)
{
	struct pl_nvme_cqe odd = *cqe;
	uint8_t what = byte();

	(void)sqe;
	/* Completions out of nowhere, before it. */
	while (what & 0x80 && f->cq[qid].exists) {
		uint8_t which = byte();

		if (which & 1)
			odd.cid = (uint16_t)word();
		if (which & 2)
			odd.sqid = byte();
		if (which & 4)
			odd.sqhd = (uint16_t)word();
		if (which & 8)
			odd.status = (uint16_t)word();
		fake_post(f, which & 16 ? qid : 0, &odd);
		what = byte();
	}
	switch (what & 15) {
	case 1:
		return FAKE_DROP;
	case 2:
		cqe->status = (uint16_t)word();
		cqe->result = word();
		return FAKE_STATUS;
	case 3:
		cqe->cid = (uint16_t)word();
		return FAKE_SAY;
	case 4:
		cqe->sqid = (uint16_t)word();
		return FAKE_SAY;
	case 5:
		cqe->sqhd = (uint16_t)word();
		return FAKE_SAY;
	case 6:
		f->fatal = true;
		return FAKE_DROP;
	case 7:
		f->gone = byte() % 4 == 0;
		return FAKE_DROP;
	case 8:
		fake_event(f, byte(), byte(), byte());
		return FAKE_DO;
	case 9:
		f->never_ready = byte() & 1;
		f->stays_ready = byte() & 1;
		return FAKE_DO;
	case 11:
		fake_stop(f);
		return FAKE_DROP;
	default:
		return FAKE_DO;
	}
}

/* Numbers that the controller says of itself, some of them odd. */
static void shape(struct fake *f)
{
	uint8_t what = byte();

	f->tick_ns = 5000000;
	f->cap &= ~((uint64_t)0xff << PL_NVME_CAP_TO_SHIFT);
	f->cap |= (uint64_t)(byte() % 3) << PL_NVME_CAP_TO_SHIFT;
	if (what & 1)
		f->cap = (f->cap & ~(uint64_t)0xffff) | byte();
	if (what & 2)
		f->cap |= (uint64_t)(byte() & 15) << PL_NVME_CAP_DSTRD_SHIFT |
			  (uint64_t)(byte() % 3) << PL_NVME_CAP_MPSMIN_SHIFT |
			  (uint64_t)(byte() % 3) << PL_NVME_CAP_MPSMAX_SHIFT;
	if (what & 4) {
		f->cmbsz = word();
		f->cmbloc = word();
		f->cap |= (uint64_t)(byte() & 1) << PL_NVME_CAP_CMBS_SHIFT;
	}
	if (what & 8) {
		f->id.mdts = byte();
		f->id.acl = byte();
		f->id.aerl = byte();
		f->id.oacs = (uint16_t)word();
		f->id.oncs = (uint16_t)word();
		f->id.sgls = word();
		f->id.lpa = byte();
		for (unsigned int i = 0; i < sizeof(f->id.sn); i++)
			f->id.sn[i] = (char)byte();
	}
	if (what & 16) {
		f->ns[0].nlbaf = byte();
		f->ns[0].flbas = byte();
		f->ns[0].lbaf[byte() % 64] = word();
		f->ns[0].nsze = word() | (uint64_t)word() << 32;
	}
	if (what & 32) {
		f->id.nn = word();
		f->id.sqes = byte();
		f->granted = word();
	}
	f->scattered = what & 64;
	if (what & 128)
		f->t.bar0.bytes = 0x1000 + word() % (FAKE_BAR_BYTES - 0x1000 + 1);
}

static void report(const struct peerlane_nvme_completion *done, int nr)
{
	for (int i = 0; i < nr; i++) {
		if (done[i].user >= MAX_IO || host.state[done[i].user] != 1)
			abort(); /* nobody's, or a second time */
		host.state[done[i].user] = 2;
	}
}

static void submit(struct peerlane_nvme_queue *q)
{
	static const uint8_t opcodes[] = { PL_NVME_READ,    PL_NVME_WRITE,	  PL_NVME_READ,
					   PL_NVME_COMPARE, PL_NVME_WRITE_ZEROES, PL_NVME_FLUSH,
					   PL_NVME_DSM,	    PL_NVME_VERIFY };
	struct peerlane_nvme_io io = { .ns = host.ns, .user = host.nr_io };
	uint8_t what = byte();

	if (host.nr_io == MAX_IO)
		return;
	io.opcode = opcodes[what & 7];
	io.map = io.opcode == PL_NVME_WRITE_ZEROES || io.opcode == PL_NVME_FLUSH ? NULL : host.map;
	if (io.opcode != PL_NVME_FLUSH)
		io.nr_blocks = what & 64 ? word() % 2048 : 1u + byte() % 8u;
	if (io.opcode != PL_NVME_FLUSH && io.opcode != PL_NVME_DSM)
		io.lba = word() % 65536;
	if (io.map)
		io.offset = what & 128 ? word() : (size_t)byte() * 512;
	if (peerlane_nvme_submit(q, &io, 1) == 1)
		host.state[host.nr_io++] = 1;
}

static void act(struct fake *f)
{
	struct peerlane_nvme_queue_options qopt = { .size = sizeof(qopt) };
	struct peerlane_nvme_completion done[8];
	struct peerlane_nvme_event events[4];
	uint8_t what = byte();
	unsigned int i = what / 16 % 3;
	uint32_t ids[4];
	char data[64];

	switch (what % 16) {
	case 0:
		fake_turn(f);
		break;
	case 1:
		if (host.q[i])
			break;
		qopt.depth = byte();
		qopt.flags = byte() & 3;
		qopt.max_transfer_bytes = byte() & 1 ? 8192 : 0;
		if (peerlane_nvme_queue_create(host.nvme, &qopt, &host.q[i]))
			host.q[i] = NULL;
		break;
	case 2:
		peerlane_nvme_reset(host.nvme);
		break;
	case 3:
		peerlane_nvme_events(host.nvme, events, 4);
		break;
	case 4:
		peerlane_nvme_ns_list(host.nvme, byte(), ids, 4);
		break;
	case 5:
		peerlane_nvme_log_page(host.nvme, byte(), 0, byte() & ~3, data, sizeof(data));
		break;
	case 6:
		if (host.q[i])
			peerlane_nvme_abort(host.q[i], byte());
		break;
	case 7:
		if (host.q[i])
			report(done, peerlane_nvme_wait(host.q[i], done, 1, 8, 50));
		break;
	case 8:
	case 9:
		if (host.q[i])
			report(done, peerlane_nvme_poll(host.q[i], done, 1 + byte() % 8));
		break;
	default:
		if (host.q[i])
			submit(host.q[i]);
		break;
	}
}

/* The input is at its end, and so is what the controller does wrong: everything is reported now. */
static void drain(struct peerlane_nvme_queue *q)
{
	struct peerlane_nvme_completion done[16];

	for (unsigned int turns = 0; q && pl_nvme_queue_outstanding(q); turns++) {
		report(done, peerlane_nvme_wait(q, done, 1, 16, 1000));
		if (turns == 1000)
			abort(); /* lost */
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct peerlane_nvme_options opt = {
		.size = sizeof(opt),
		.nr_queues = 4,
		.timeout_ms = 200,
		.admin_timeout_ms = 200,
	};
	struct fake *f = fake_new();
	void *mem;

	in.data = data;
	in.size = size;
	in.at = 0;
	memset(&host, 0, sizeof(host));
	shape(f);
	f->hook = byte() & 1 ? hook : NULL; /* odd from the first command on, or later */
	if (fake_open(f, &opt, &host.nvme)) {
		fake_free(f);
		return 0;
	}
	fake_turn(f);
	if (peerlane_nvme_queue_create(host.nvme, NULL, &host.q[0]))
		host.q[0] = NULL;
	if (!peerlane_nvme_ns_open(host.nvme, 1, &host.ns) &&
	    !peerlane_nvme_map_alloc(host.nvme, MEM_BYTES, &mem, &host.map)) {
		f->hook = hook;
		while (in.at < in.size)
			act(f);
		for (unsigned int i = 0; i < 3; i++)
			drain(host.q[i]);
		for (unsigned int i = 0; i < host.nr_io; i++)
			if (host.state[i] != 2)
				abort();
	}
	peerlane_nvme_close(host.nvme);
	if (f->nr_maps)
		abort();
	fake_free(f);
	return 0;
}

#ifndef FUZZ_LIB
/* Some bytes that mean something, or only random ones; most controllers are shaped well. */
static size_t make(uint8_t *out, size_t room)
{
	size_t len = 16 + fuzz_rnd() % (room - 16);
	uint8_t oddness = (uint8_t)(1 + fuzz_rnd() % 40);

	for (size_t i = 0; i < len; i++)
		out[i] = fuzz_rnd() % 50 < oddness ? (uint8_t)fuzz_rnd()
						   : (uint8_t)(fuzz_rnd() % 3 ? 10 : 16);
	if (fuzz_rnd() % 4) {
		/* A good shape, and nothing odd in coming up. */
		out[0] = (uint8_t)(fuzz_rnd() & 64);
		out[2] = 0;
	}
	return len;
}

static unsigned long nr_io;

static void after(unsigned long nr)
{
	(void)nr;
	nr_io += host.nr_io;
}

static void end(void)
{
	printf("%lu I/Os\n", nr_io);
}

const struct fuzz fuzz_program = {
	.room = 1024,
	.least = 300,
	.make = make,
	.after = after,
	.end = end,
};
#endif
