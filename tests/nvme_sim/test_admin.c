// SPDX-License-Identifier: MIT
/* Identify, features, log pages, abort, and opcodes that are not supported. */
#include "host.h"

static struct host h;
static uint64_t at;
static uint8_t *data;

static void start(const char *config)
{
	host_start(&h, config);
	data = host_alloc(&h, 65536, &at);
}

static unsigned int identify(uint32_t cns, uint32_t nsid)
{
	memset(data, 0xee, 4096);
	return host_status(&h, 0,
			   (struct pl_nvme_sqe){ .opcode = PL_NVME_ADMIN_IDENTIFY,
						 .nsid = nsid,
						 .dptr.prp.prp1 = at,
						 .cdw10 = cns });
}

static void identify_controller(void **state)
{
	const struct pl_nvme_id_ctrl *id;

	(void)state;
	start("sim:mdts=7,nn=9,ns=2,serial=ABC123,dbbuf=event,sgl=1,aerl=2");
	assert_int_equal(identify(PL_NVME_CNS_CTRL, 0), 0);
	id = (const struct pl_nvme_id_ctrl *)data;
	assert_memory_equal(id->sn, "ABC123              ", 20);
	assert_int_equal(id->mdts, 7);
	assert_int_equal(id->nn, 9);
	assert_int_equal(id->ver, PL_NVME_VS(1, 4, 0));
	assert_int_equal(id->cntrltype, 1);
	assert_int_equal(id->sqes, 0x66);
	assert_int_equal(id->cqes, 0x44);
	assert_int_equal(id->oacs, PL_NVME_OACS_DBBUF);
	assert_int_equal(id->aerl, 2);
	assert_int_equal(id->sgls & PL_NVME_SGLS_MASK, PL_NVME_SGLS_BYTE);
	assert_int_equal(id->fuses, 0);
	assert_int_equal(id->kas, 0);
	for (size_t i = 0; i < sizeof(id->mn); i++)
		assert_in_range(id->mn[i], ' ', '~');
	host_close(&h);
}

static void identify_namespaces(void **state)
{
	const struct pl_nvme_id_ns *id;
	const uint32_t *list;
	const struct pl_nvme_ns_desc *desc;
	static const uint8_t zeroes[4096];
	uint8_t eui[4][8];

	(void)state;
	start("sim:ns=3,nn=5,size=1M:2M:4M,bs=512:4096:512");
	for (uint32_t nsid = 1; nsid <= 3; nsid++) {
		assert_int_equal(identify(PL_NVME_CNS_NS, nsid), 0);
		id = (const struct pl_nvme_id_ns *)data;
		uint32_t shift = PL_NVME_LBAF_LBADS(id->lbaf[PL_NVME_FLBAS_INDEX(id->flbas)]);

		assert_int_equal(shift, nsid == 2 ? 12 : 9);
		assert_true(id->nsze << shift == (uint64_t)(1u << 20) << (nsid - 1));
		assert_true(id->nsze == id->ncap && id->nuse == id->ncap);
		assert_int_equal(id->dps, 0);
		memcpy(eui[nsid], id->eui64, 8);
		for (uint32_t other = 1; other < nsid; other++)
			assert_memory_not_equal(eui[nsid], eui[other], 8);
		assert_int_equal(identify(PL_NVME_CNS_NS_DESC, nsid), 0);
		desc = (const struct pl_nvme_ns_desc *)data;
		assert_int_equal(desc->type, PL_NVME_NS_DESC_EUI64);
		assert_int_equal(desc->bytes, 8);
		assert_memory_equal(data + 4, eui[nsid], 8);
		assert_memory_equal(data + 12, zeroes, 4084);
	}
	/* Inactive: zeroes, or Invalid Field; not valid: Invalid Namespace. */
	assert_int_equal(identify(PL_NVME_CNS_NS, 4), 0);
	assert_memory_equal(data, zeroes, 4096);
	assert_int_equal(identify(PL_NVME_CNS_NS_DESC, 4), PL_NVME_SC_INVALID_FIELD);
	assert_int_equal(identify(PL_NVME_CNS_NS, 0), PL_NVME_SC_INVALID_NS);
	assert_int_equal(identify(PL_NVME_CNS_NS, 6), PL_NVME_SC_INVALID_NS);
	assert_int_equal(identify(PL_NVME_CNS_NS, PL_NVME_NSID_ALL), PL_NVME_SC_INVALID_NS);
	assert_int_equal(identify(PL_NVME_CNS_NS_DESC, 0), PL_NVME_SC_INVALID_NS);
	assert_int_equal(identify(PL_NVME_CNS_NS_DESC, 6), PL_NVME_SC_INVALID_NS);
	list = (const uint32_t *)data;
	assert_int_equal(identify(PL_NVME_CNS_NS_ACTIVE, 0), 0);
	assert_int_equal(list[0], 1);
	assert_int_equal(list[2], 3);
	assert_int_equal(list[3], 0);
	assert_int_equal(identify(PL_NVME_CNS_NS_ACTIVE, 2), 0);
	assert_int_equal(list[0], 3);
	assert_int_equal(list[1], 0);
	assert_int_equal(identify(PL_NVME_CNS_NS_ACTIVE, 0xfffffffe), PL_NVME_SC_INVALID_NS);
	assert_int_equal(identify(PL_NVME_CNS_NS_ACTIVE, PL_NVME_NSID_ALL), PL_NVME_SC_INVALID_NS);
	assert_int_equal(identify(0x04, 0), PL_NVME_SC_INVALID_FIELD);
	assert_int_equal(identify(0xff, 0), PL_NVME_SC_INVALID_FIELD);
	assert_int_equal(identify(PL_NVME_CNS_CTRL, 1), PL_NVME_SC_INVALID_FIELD);
	/* The data pointer may have an offset, and end in another page. */
	assert_int_equal(host_status(&h, 0,
				     (struct pl_nvme_sqe){ .opcode = PL_NVME_ADMIN_IDENTIFY,
							   .nsid = 1,
							   .dptr.prp.prp1 = at + 0x108,
							   .dptr.prp.prp2 = at + 0x8000 }),
			 0);
	id = (const struct pl_nvme_id_ns *)(data + 0x108);
	assert_int_equal(id->nlbaf, 1);
	host_close(&h);
}

static struct pl_nvme_cqe feature(uint8_t opcode, uint32_t cdw10, uint32_t cdw11, uint32_t nsid)
{
	return host_do(&h, 0,
		       (struct pl_nvme_sqe){
			       .opcode = opcode, .nsid = nsid, .cdw10 = cdw10, .cdw11 = cdw11 });
}

static unsigned int set(uint32_t cdw10, uint32_t cdw11, uint32_t nsid)
{
	struct pl_nvme_cqe cqe = feature(PL_NVME_ADMIN_SET_FEATURES, cdw10, cdw11, nsid);

	return status_of(&cqe);
}

static uint32_t get(uint32_t id, uint32_t select, uint32_t cdw11, uint32_t nsid)
{
	struct pl_nvme_cqe cqe = feature(PL_NVME_ADMIN_GET_FEATURES,
					 id | select << PL_NVME_FEAT_SEL_SHIFT, cdw11, nsid);

	assert_int_equal(status_of(&cqe), 0);
	return cqe.result;
}

static unsigned int get_status(uint32_t cdw10, uint32_t cdw11, uint32_t nsid)
{
	struct pl_nvme_cqe cqe = feature(PL_NVME_ADMIN_GET_FEATURES, cdw10, cdw11, nsid);

	return status_of(&cqe);
}

static void number_of_queues(void **state)
{
	struct pl_nvme_cqe cqe;

	(void)state;
	start("sim:queues=8");
	/* Fewer completion than submission queues: the halves must not be mixed up. */
	cqe = feature(PL_NVME_ADMIN_SET_FEATURES, PL_NVME_FEAT_NR_QUEUES, 1u << 16 | 4, 0);
	assert_int_equal(status_of(&cqe), 0);
	assert_int_equal(cqe.result, 1u << 16 | 4);
	assert_int_equal(get(PL_NVME_FEAT_NR_QUEUES, 0, 0, 0), 1u << 16 | 4);
	cqe = feature(PL_NVME_ADMIN_SET_FEATURES, PL_NVME_FEAT_NR_QUEUES, 100u << 16 | 4, 0);
	assert_int_equal(cqe.result, 7u << 16 | 4);
	assert_int_equal(set(PL_NVME_FEAT_NR_QUEUES, 0xffffu << 16 | 1, 0),
			 PL_NVME_SC_INVALID_FIELD);
	assert_int_equal(set(PL_NVME_FEAT_NR_QUEUES, 1u << 16 | 0xffff, 0),
			 PL_NVME_SC_INVALID_FIELD);
	/* Five submission queues were granted. */
	assert_int_equal(host_status(&h, 0, host_create_cq(&h, 6, 8, at)), 0);
	assert_int_equal(host_status(&h, 0, host_create_sq(&h, 6, 6, 8, at)),
			 PL_NVME_SC_INVALID_QID);
	assert_int_equal(set(PL_NVME_FEAT_NR_QUEUES, 0, 0), PL_NVME_SC_SEQUENCE);
	host_close(&h);
}

static void features(void **state)
{
	(void)state;
	start("sim:ns=2,nn=3,vectors=4");
	assert_int_equal(get(PL_NVME_FEAT_WRITE_CACHE, 0, 0, 0), 1);
	assert_int_equal(set(PL_NVME_FEAT_WRITE_CACHE, 0, 0), 0);
	assert_int_equal(get(PL_NVME_FEAT_WRITE_CACHE, PL_NVME_FEAT_SEL_CURRENT, 0, 0), 0);
	assert_int_equal(get(PL_NVME_FEAT_WRITE_CACHE, PL_NVME_FEAT_SEL_DEFAULT, 0, 0), 1);
	assert_int_equal(get(PL_NVME_FEAT_WRITE_CACHE, PL_NVME_FEAT_SEL_SAVED, 0, 0), 1);
	assert_int_equal(get(PL_NVME_FEAT_WRITE_CACHE, PL_NVME_FEAT_SEL_SUPPORTED, 0, 0), 4);
	assert_int_equal(set(PL_NVME_FEAT_WRITE_CACHE, 2, 0), PL_NVME_SC_INVALID_FIELD);
	assert_int_equal(set(PL_NVME_FEAT_WRITE_CACHE | PL_NVME_FEAT_SAVE, 1, 0),
			 PL_NVME_SC_FEATURE_NOT_SAVEABLE);
	assert_int_equal(set(PL_NVME_FEAT_WRITE_CACHE, 1, 1), PL_NVME_SC_FEATURE_NOT_NS);
	assert_int_equal(set(PL_NVME_FEAT_ARBITRATION, 0x03020104, 0), 0);
	assert_int_equal(get(PL_NVME_FEAT_ARBITRATION, 0, 0, 0), 0x03020104);
	assert_int_equal(set(PL_NVME_FEAT_ARBITRATION, 0x8, 0), PL_NVME_SC_INVALID_FIELD);
	assert_int_equal(set(PL_NVME_FEAT_POWER, 0, 0), 0);
	assert_int_equal(set(PL_NVME_FEAT_POWER, 1, 0), PL_NVME_SC_INVALID_FIELD);
	/* By namespace. */
	assert_int_equal(set(PL_NVME_FEAT_ERROR_RECOVERY, 7, 2), 0);
	assert_int_equal(get(PL_NVME_FEAT_ERROR_RECOVERY, 0, 0, 1), 0);
	assert_int_equal(get(PL_NVME_FEAT_ERROR_RECOVERY, 0, 0, 2), 7);
	assert_int_equal(set(PL_NVME_FEAT_ERROR_RECOVERY, 9, PL_NVME_NSID_ALL), 0);
	assert_int_equal(get(PL_NVME_FEAT_ERROR_RECOVERY, 0, 0, 1), 9);
	assert_int_equal(set(PL_NVME_FEAT_ERROR_RECOVERY, 9, 0), PL_NVME_SC_INVALID_NS);
	assert_int_equal(set(PL_NVME_FEAT_ERROR_RECOVERY, 9, 3), PL_NVME_SC_INVALID_FIELD);
	assert_int_equal(set(PL_NVME_FEAT_ERROR_RECOVERY, 9, 4), PL_NVME_SC_INVALID_NS);
	assert_int_equal(set(PL_NVME_FEAT_ERROR_RECOVERY, 1u << 16, 1), PL_NVME_SC_INVALID_FIELD);
	/* By vector. */
	assert_int_equal(set(PL_NVME_FEAT_IRQ_VECTOR, 1u << 16 | 3, 0), 0);
	assert_int_equal(get(PL_NVME_FEAT_IRQ_VECTOR, 0, 3, 0), 1u << 16 | 3);
	assert_int_equal(get(PL_NVME_FEAT_IRQ_VECTOR, 0, 2, 0), 2);
	assert_int_equal(set(PL_NVME_FEAT_IRQ_VECTOR, 4, 0), PL_NVME_SC_INVALID_FIELD);
	assert_int_equal(get_status(PL_NVME_FEAT_IRQ_VECTOR, 4, 0), PL_NVME_SC_INVALID_FIELD);
	assert_int_equal(set(PL_NVME_FEAT_TEMPERATURE, 1u << 16 | 400, 0),
			 PL_NVME_SC_INVALID_FIELD);
	assert_int_equal(set(PL_NVME_FEAT_TEMPERATURE, 1u << 20 | 280, 0), 0);
	assert_int_equal(get(PL_NVME_FEAT_TEMPERATURE, 0, 1u << 20, 0), 280);
	assert_int_equal(get(PL_NVME_FEAT_TEMPERATURE, 0, 0, 0), 343);
	/* No such features. */
	assert_int_equal(get_status(0, 0, 0), PL_NVME_SC_INVALID_FIELD);
	assert_int_equal(get_status(PL_NVME_FEAT_KEEP_ALIVE, 0, 0), PL_NVME_SC_INVALID_FIELD);
	assert_int_equal(set(PL_NVME_FEAT_HOST_MEMORY, 1, 0), PL_NVME_SC_INVALID_FIELD);
	assert_int_equal(get_status(0xff, 0, 0), PL_NVME_SC_INVALID_FIELD);
	assert_int_equal(get_status(PL_NVME_FEAT_WRITE_CACHE | 4u << 8, 0, 0),
			 PL_NVME_SC_INVALID_FIELD);
	/* A reset takes them back. */
	host_disable(&h);
	host_set_admin(&h, 16);
	host_enable(&h);
	assert_int_equal(get(PL_NVME_FEAT_ARBITRATION, 0, 0, 0), 0);
	assert_int_equal(get(PL_NVME_FEAT_ERROR_RECOVERY, 0, 0, 1), 0);
	host_close(&h);
}

static unsigned int log_page(uint32_t page, uint32_t bytes, uint64_t offset, uint32_t nsid)
{
	uint32_t dwords = bytes / 4 - 1;

	memset(data, 0xee, 65536);
	return host_status(&h, 0,
			   (struct pl_nvme_sqe){ .opcode = PL_NVME_ADMIN_GET_LOG_PAGE,
						 .nsid = nsid,
						 .dptr.prp.prp1 = at,
						 .dptr.prp.prp2 = at + 4096,
						 .cdw10 = page | dwords << 16,
						 .cdw11 = dwords >> 16,
						 .cdw12 = (uint32_t)offset,
						 .cdw13 = (uint32_t)(offset >> 32) });
}

static void log_pages(void **state)
{
	const struct pl_nvme_error_entry *error;
	const struct pl_nvme_smart *smart;
	const struct pl_nvme_firmware *firmware;
	uint8_t whole[512];

	(void)state;
	start("sim:mdts=1");
	host_create(&h, 1, 8);
	assert_int_equal(host_status(&h, 1, host_rw(PL_NVME_WRITE, 1, 3, 1, at, 0)), 0);
	assert_int_equal(host_status(&h, 1, host_rw(PL_NVME_READ, 1, 3, 2, at, 0)), 0);
	assert_int_equal(host_status(&h, 1, host_rw(PL_NVME_READ, 1, 1u << 30, 1, at, 0)),
			 PL_NVME_SC_LBA_RANGE);
	assert_int_equal(log_page(PL_NVME_LOG_ERROR, 1024, 0, 0), 0);
	error = (const struct pl_nvme_error_entry *)data;
	assert_int_equal(error[0].error_count, 1);
	assert_int_equal(error[0].sqid, 1);
	assert_int_equal(error[0].nsid, 1);
	assert_int_equal(error[0].lba, 1u << 30);
	assert_int_equal(PL_NVME_CQE_SC(error[0].status), PL_NVME_SC_LBA_RANGE);
	assert_int_equal(error[1].error_count, 0);
	assert_int_equal(log_page(PL_NVME_LOG_SMART, 512, 0, PL_NVME_NSID_ALL), 0);
	smart = (const struct pl_nvme_smart *)data;
	assert_int_equal(smart->critical_warning, 0);
	assert_int_equal(smart->host_reads[0], 1);
	assert_int_equal(smart->host_writes[0], 1);
	assert_int_equal(smart->data_units_read[0], 1);
	assert_int_equal(smart->error_entries[0], 1);
	memcpy(whole, data, 512);
	/* A part of it, and what is behind it. */
	assert_int_equal(log_page(PL_NVME_LOG_SMART, 64, 48, 0), 0);
	assert_memory_equal(data, whole + 48, 64);
	assert_int_equal(data[64], 0xee);
	assert_int_equal(log_page(PL_NVME_LOG_SMART, 4096, 0, 0), 0);
	assert_memory_equal(data, whole, 512);
	assert_int_equal(data[512], 0);
	assert_int_equal(data[4095], 0);
	assert_int_equal(log_page(PL_NVME_LOG_FIRMWARE, 512, 0, 0), 0);
	firmware = (const struct pl_nvme_firmware *)data;
	assert_int_equal(firmware->active & 7, 1);
	assert_memory_equal(firmware->revision[0], "1       ", 8);
	assert_int_equal(log_page(PL_NVME_LOG_SMART, 512, 2, 0), PL_NVME_SC_INVALID_FIELD);
	assert_int_equal(log_page(PL_NVME_LOG_SMART, 512, 516, 0), PL_NVME_SC_INVALID_FIELD);
	assert_int_equal(log_page(PL_NVME_LOG_SMART, 512, 1ull << 40, 0), PL_NVME_SC_INVALID_FIELD);
	assert_int_equal(log_page(PL_NVME_LOG_SMART, 512, 0, 1), PL_NVME_SC_INVALID_FIELD);
	assert_int_equal(log_page(PL_NVME_LOG_SMART, 512, 0, 2), PL_NVME_SC_INVALID_NS);
	assert_int_equal(log_page(0, 512, 0, 0), PL_NVME_SC_INVALID_LOG_PAGE);
	assert_int_equal(log_page(PL_NVME_LOG_CHANGED_NS, 512, 0, 0), PL_NVME_SC_INVALID_LOG_PAGE);
	assert_int_equal(log_page(PL_NVME_LOG_SMART, 8196, 0, 0), PL_NVME_SC_INVALID_FIELD);
	host_close(&h);
}

static void aborts(void **state)
{
	struct pl_nvme_sqe sqe = { .opcode = PL_NVME_ADMIN_ABORT };
	struct pl_nvme_cqe cqe;
	uint16_t cid;

	(void)state;
	start("sim:rule=hold opcode=read");
	host_create(&h, 1, 8);
	cid = host_put(&h, 1, host_rw(PL_NVME_READ, 1, 0, 1, at, 0));
	host_ring(&h, 1);
	host_turns(&h, 3);
	/* Not that one, not in that queue, not in no queue. */
	sqe.cdw10 = 1 | (uint32_t)(cid + 1) << 16;
	cqe = host_do(&h, 0, sqe);
	assert_int_equal(cqe.result, PL_NVME_ABORT_NOT_DONE);
	sqe.cdw10 = (uint32_t)cid << 16;
	cqe = host_do(&h, 0, sqe);
	assert_int_equal(cqe.result, PL_NVME_ABORT_NOT_DONE);
	sqe.cdw10 = 5 | (uint32_t)cid << 16;
	assert_int_equal(host_status(&h, 0, sqe), PL_NVME_SC_INVALID_FIELD);
	assert_int_equal(host_counters(&h).held, 1);
	sqe.cdw10 = 1 | (uint32_t)cid << 16;
	cqe = host_do(&h, 0, sqe);
	assert_int_equal(cqe.result, 0);
	cqe = host_wait(&h, 1);
	assert_int_equal(cqe.cid, cid);
	assert_int_equal(status_of(&cqe), PL_NVME_SC_ABORTED);
	assert_false(cqe.status & PL_NVME_CQE_DNR);
	assert_int_equal(host_counters(&h).held, 0);
	host_close(&h);
}

static void opcodes_and_flags(void **state)
{
	static const uint8_t known[] = { 0, 1, 2, 4, 5, 6, 8, 9, 10, 12 };

	(void)state;
	start("sim:");
	for (uint32_t opcode = 0; opcode < 256; opcode++) {
		struct pl_nvme_sqe sqe = { .opcode = (uint8_t)opcode };
		struct pl_nvme_cqe cqe;

		if (memchr(known, (int)opcode, sizeof(known)))
			continue;
		cqe = host_do(&h, 0, sqe);
		assert_int_equal(status_of(&cqe), PL_NVME_SC_INVALID_OPCODE);
		assert_true(cqe.status & PL_NVME_CQE_DNR);
		assert_true(cqe.status & PL_NVME_CQE_MORE);
	}
	for (uint32_t bit = 0; bit < 8; bit++) {
		struct pl_nvme_sqe sqe = { .opcode = PL_NVME_ADMIN_IDENTIFY,
					   .flags = (uint8_t)(1u << bit),
					   .dptr.prp.prp1 = at,
					   .cdw10 = PL_NVME_CNS_CTRL };

		assert_int_equal(host_status(&h, 0, sqe), PL_NVME_SC_INVALID_FIELD);
	}
	host_close(&h);
}

static void reserved_fields(void **state)
{
	struct pl_nvme_sqe good = { .opcode = PL_NVME_ADMIN_IDENTIFY, .cdw10 = PL_NVME_CNS_CTRL };

	(void)state;
	for (int strict = 0; strict < 2; strict++) {
		unsigned int wanted = strict ? PL_NVME_SC_INVALID_FIELD : 0;
		struct pl_nvme_sqe sqe;

		start(strict ? "sim:" : "sim:strict=0");
		good.dptr.prp.prp1 = at;
		assert_int_equal(host_status(&h, 0, good), 0);
		sqe = good;
		sqe.cdw2 = 1;
		assert_int_equal(host_status(&h, 0, sqe), wanted);
		sqe = good;
		sqe.cdw3 = 1;
		assert_int_equal(host_status(&h, 0, sqe), wanted);
		sqe = good;
		sqe.cdw10 |= 1u << 8;
		assert_int_equal(host_status(&h, 0, sqe), wanted);
		sqe = good;
		sqe.cdw15 = 1u << 31;
		assert_int_equal(host_status(&h, 0, sqe), wanted);
		host_close(&h);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(identify_controller), cmocka_unit_test(identify_namespaces),
		cmocka_unit_test(number_of_queues),    cmocka_unit_test(features),
		cmocka_unit_test(log_pages),	       cmocka_unit_test(aborts),
		cmocka_unit_test(opcodes_and_flags),   cmocka_unit_test(reserved_fields),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
