/* SPDX-License-Identifier: MIT */
/*
 * What NVMe controllers and their drivers agree on: registers, commands, completions, data structures.
 *
 * Shared by the driver, the software controller and code that runs on GPUs, which share nothing else.
 * It compiles as C, C++ and CUDA. Everything is little-endian as on the wire, and so must be the
 * machine. Where a value on the wire counts from zero, its comment says "0-based"; such values are
 * converted where they meet the wire and live nowhere else. Names in brackets are the specification's.
 */
#ifndef PEERLANE_NVME_SPEC_H
#define PEERLANE_NVME_SPEC_H

#include <stddef.h>
#include <stdint.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the wire types of NVMe are little-endian, and so must be the machine"
#endif

#if defined(__cplusplus)
#define PL_NVME_ASSERT(what) static_assert(what, #what)
#else
#define PL_NVME_ASSERT(what) __extension__ _Static_assert(what, #what)
#endif
#define PL_NVME_ASSERT_SIZE(type, bytes) PL_NVME_ASSERT(sizeof(type) == (bytes))
#define PL_NVME_ASSERT_AT(type, member, at) PL_NVME_ASSERT(offsetof(type, member) == (at))

/* ------------------------------------------------------------------ registers, in BAR0 */

/*
 * Offsets. Those marked 64 may be read and written whole, or as two halves of 32 bits, the lower
 * half first. A read of all ones says that the device is gone.
 */
#define PL_NVME_REG_CAP 0x00u	 /* 64, capabilities */
#define PL_NVME_REG_VS 0x08u	 /* version */
#define PL_NVME_REG_INTMS 0x0cu	 /* interrupt mask set */
#define PL_NVME_REG_INTMC 0x10u	 /* interrupt mask clear */
#define PL_NVME_REG_CC 0x14u	 /* configuration */
#define PL_NVME_REG_CSTS 0x1cu	 /* status */
#define PL_NVME_REG_NSSR 0x20u	 /* subsystem reset */
#define PL_NVME_REG_AQA 0x24u	 /* sizes of the admin queues */
#define PL_NVME_REG_ASQ 0x28u	 /* 64, address of the admin submission queue */
#define PL_NVME_REG_ACQ 0x30u	 /* 64, address of the admin completion queue */
#define PL_NVME_REG_CMBLOC 0x38u /* where the controller memory buffer is */
#define PL_NVME_REG_CMBSZ 0x3cu	 /* how large it is and what it is for */
#define PL_NVME_REG_CMBMSC 0x50u /* 64, its address as the controller sees it */
#define PL_NVME_REG_CMBSTS 0x58u /* whether that address is good */
#define PL_NVME_REG_CRTO 0x68u	 /* time-outs of getting ready */
#define PL_NVME_REG_DOORBELLS 0x1000u

/* CAP */
#define PL_NVME_CAP_MQES(cap) ((uint32_t)((cap)&0xffffu))	 /* longest queue, 0-based */
#define PL_NVME_CAP_CQR(cap) ((uint32_t)((cap) >> 16 & 1u))	 /* queues must be contiguous */
#define PL_NVME_CAP_AMS(cap) ((uint32_t)((cap) >> 17 & 3u))	 /* arbitration */
#define PL_NVME_CAP_TO(cap) ((uint32_t)((cap) >> 24 & 0xffu))	 /* of ready, in 500 ms */
#define PL_NVME_CAP_DSTRD(cap) ((uint32_t)((cap) >> 32 & 0xfu))	 /* doorbells: 4 << this apart */
#define PL_NVME_CAP_NSSRS(cap) ((uint32_t)((cap) >> 36 & 1u))	 /* subsystem reset */
#define PL_NVME_CAP_CSS(cap) ((uint32_t)((cap) >> 37 & 0xffu))	 /* command sets, PL_NVME_CSS_* */
#define PL_NVME_CAP_BPS(cap) ((uint32_t)((cap) >> 45 & 1u))	 /* boot partitions */
#define PL_NVME_CAP_MPSMIN(cap) ((uint32_t)((cap) >> 48 & 0xfu)) /* pages: 1 << (12 + this) */
#define PL_NVME_CAP_MPSMAX(cap) ((uint32_t)((cap) >> 52 & 0xfu))
#define PL_NVME_CAP_PMRS(cap) ((uint32_t)((cap) >> 56 & 1u)) /* persistent memory region */
#define PL_NVME_CAP_CMBS(cap) ((uint32_t)((cap) >> 57 & 1u)) /* CMB is turned on by CMBMSC */
#define PL_NVME_CAP_NSSS(cap) ((uint32_t)((cap) >> 58 & 1u))
#define PL_NVME_CAP_CRWMS(cap) ((uint32_t)((cap) >> 59 & 1u)) /* ready with media */
#define PL_NVME_CAP_CRIMS(cap) ((uint32_t)((cap) >> 60 & 1u)) /* ready without media */
#define PL_NVME_CAP_MQES_SHIFT 0
#define PL_NVME_CAP_CQR_SHIFT 16
#define PL_NVME_CAP_AMS_SHIFT 17
#define PL_NVME_CAP_TO_SHIFT 24
#define PL_NVME_CAP_DSTRD_SHIFT 32
#define PL_NVME_CAP_NSSRS_SHIFT 36
#define PL_NVME_CAP_CSS_SHIFT 37
#define PL_NVME_CAP_MPSMIN_SHIFT 48
#define PL_NVME_CAP_MPSMAX_SHIFT 52
#define PL_NVME_CAP_CMBS_SHIFT 57
#define PL_NVME_CAP_CRWMS_SHIFT 59
#define PL_NVME_CAP_CRIMS_SHIFT 60
#define PL_NVME_CSS_NVM 0x01u	/* the NVM command set */
#define PL_NVME_CSS_IOCS 0x40u	/* one or more I/O command sets */
#define PL_NVME_CSS_ADMIN 0x80u /* no I/O command set */

/* VS */
#define PL_NVME_VS(major, minor, tertiary)                                                         \
	((uint32_t)(major) << 16 | (uint32_t)(minor) << 8 | (uint32_t)(tertiary))

/* CC */
#define PL_NVME_CC_EN 0x1u
#define PL_NVME_CC_CSS_SHIFT 4 /* 3 bits: 0 NVM, 6 all I/O command sets, 7 admin only */
#define PL_NVME_CC_CSS_MASK 0x7u
#define PL_NVME_CC_MPS_SHIFT 7 /* 4 bits: pages of 1 << (12 + this) */
#define PL_NVME_CC_MPS_MASK 0xfu
#define PL_NVME_CC_AMS_SHIFT 11 /* 3 bits: 0 round robin */
#define PL_NVME_CC_AMS_MASK 0x7u
#define PL_NVME_CC_SHN_SHIFT 14 /* 2 bits, PL_NVME_SHN_* */
#define PL_NVME_CC_SHN_MASK 0x3u
#define PL_NVME_CC_IOSQES_SHIFT 16 /* 4 bits: size of an SQ entry as a power of two, 6 */
#define PL_NVME_CC_IOSQES_MASK 0xfu
#define PL_NVME_CC_IOCQES_SHIFT 20 /* 4 bits: size of a CQ entry as a power of two, 4 */
#define PL_NVME_CC_IOCQES_MASK 0xfu
#define PL_NVME_CC_CRIME (1u << 24) /* ready without media */
#define PL_NVME_SHN_NONE 0u
#define PL_NVME_SHN_NORMAL 1u
#define PL_NVME_SHN_ABRUPT 2u
#define PL_NVME_IOSQES 6u
#define PL_NVME_IOCQES 4u

/* CSTS */
#define PL_NVME_CSTS_RDY 0x1u
#define PL_NVME_CSTS_CFS 0x2u /* fatal: nothing but a reset helps */
#define PL_NVME_CSTS_SHST_SHIFT 2
#define PL_NVME_CSTS_SHST_MASK 0x3u
#define PL_NVME_CSTS_NSSRO 0x10u
#define PL_NVME_CSTS_PP 0x20u
#define PL_NVME_SHST_NORMAL 0u
#define PL_NVME_SHST_OCCURRING 1u
#define PL_NVME_SHST_COMPLETE 2u

/* NSSR: this written to it resets the subsystem ("NVMe") */
#define PL_NVME_NSSR_RESET 0x4e564d65u

/* AQA: entries, 0-based, 2 to 4096 of them */
#define PL_NVME_AQA_ASQS_SHIFT 0
#define PL_NVME_AQA_ACQS_SHIFT 16
#define PL_NVME_AQA_MASK 0xfffu
#define PL_NVME_ADMIN_MAX_ENTRIES 4096u

/* CMBLOC, CMBSZ, CMBMSC, CMBSTS */
#define PL_NVME_CMBLOC_BIR(loc) ((uint32_t)(loc)&0x7u)	 /* BAR: 0, 2..5 */
#define PL_NVME_CMBLOC_OFST(loc) ((uint32_t)(loc) >> 12) /* in units of CMBSZ */
#define PL_NVME_CMBSZ_SQS 0x01u				 /* submission queues */
#define PL_NVME_CMBSZ_CQS 0x02u				 /* completion queues */
#define PL_NVME_CMBSZ_LISTS 0x04u			 /* PRP and SGL lists */
#define PL_NVME_CMBSZ_RDS 0x08u				 /* data of reads */
#define PL_NVME_CMBSZ_WDS 0x10u				 /* data of writes */
#define PL_NVME_CMBSZ_SZU(sz) ((uint32_t)(sz) >> 8 & 0xfu)
#define PL_NVME_CMBSZ_SZ(sz) ((uint32_t)(sz) >> 12)
#define PL_NVME_CMB_UNIT(sz) ((uint64_t)4096 << (4u * PL_NVME_CMBSZ_SZU(sz))) /* SZU 0..6 */
#define PL_NVME_CMBSZ_SZU_MAX 6u
#define PL_NVME_CMBMSC_CRE 0x1u	 /* CMBLOC and CMBSZ are shown */
#define PL_NVME_CMBMSC_CMSE 0x2u /* the address below is used */
#define PL_NVME_CMBMSC_CBA_MASK (~(uint64_t)0xfffu)
#define PL_NVME_CMBSTS_CBAI 0x1u /* that address is not possible */

/* CRTO, in 500 ms */
#define PL_NVME_CRTO_CRWMT(crto) ((uint32_t)(crto)&0xffffu)
#define PL_NVME_CRTO_CRIMT(crto) ((uint32_t)(crto) >> 16)

/*
 * Doorbells, in bytes from the start of BAR0: of queue y the submission tail, then the completion
 * head. Shadow doorbells and event indices (DBBUF) have the same layout, without the 0x1000.
 */
#define PL_NVME_SHADOW_SQ(qid, dstrd) ((size_t)(2u * (uint32_t)(qid)) * (4u << (dstrd)))
#define PL_NVME_SHADOW_CQ(qid, dstrd) ((size_t)(2u * (uint32_t)(qid) + 1u) * (4u << (dstrd)))
#define PL_NVME_DOORBELL_SQ(qid, dstrd) (PL_NVME_REG_DOORBELLS + PL_NVME_SHADOW_SQ(qid, dstrd))
#define PL_NVME_DOORBELL_CQ(qid, dstrd) (PL_NVME_REG_DOORBELLS + PL_NVME_SHADOW_CQ(qid, dstrd))

/* ------------------------------------------------------------------ SGL */

/* One descriptor. Data may be any bytes; descriptors of a segment lie 16 bytes apart. */
struct pl_nvme_sgl {
	uint64_t addr;
	uint32_t length; /* bytes; of a segment: of its descriptors */
	uint8_t reserved[3];
	uint8_t type; /* PL_NVME_SGL_* << 4; the lower half, 0, says that addr is an address */
};
PL_NVME_ASSERT_SIZE(struct pl_nvme_sgl, 16);
PL_NVME_ASSERT_AT(struct pl_nvme_sgl, type, 15);

#define PL_NVME_SGL_DATA 0x0u
#define PL_NVME_SGL_BIT_BUCKET 0x1u
#define PL_NVME_SGL_SEGMENT 0x2u      /* more descriptors, the last of which is a segment again */
#define PL_NVME_SGL_LAST_SEGMENT 0x3u /* more descriptors, the last ones */

/* ------------------------------------------------------------------ commands */

/*
 * PRP rules. prp1 is the address of the first byte; it may have an offset into its page, a multiple
 * of 4. If the data end in that page, prp2 is 0. If they end in the next page, prp2 is the address of
 * that page, offset 0. Else prp2 is the address of a list of page addresses, all with offset 0; the
 * list itself may begin at any multiple of 8. Where it needs more entries than fit until the end of
 * its page, the last entry of that page is the address of the next list page.
 */
union pl_nvme_dptr {
	struct {
		uint64_t prp1;
		uint64_t prp2;
	} prp;
	struct pl_nvme_sgl sgl;
};
PL_NVME_ASSERT_SIZE(union pl_nvme_dptr, 16);

/* Entry of a submission queue. Members that a command does not use are zero. */
struct pl_nvme_sqe {
	uint8_t opcode;
	uint8_t flags; /* PL_NVME_FUSE_*, PL_NVME_PSDT_* */
	uint16_t
		cid; /* unique in its queue while the command is outstanding; 0xffff is to be avoided */
	uint32_t nsid;
	uint32_t cdw2;
	uint32_t cdw3;
	uint64_t mptr;
	union pl_nvme_dptr dptr;
	uint32_t cdw10;
	uint32_t cdw11;
	uint32_t cdw12;
	uint32_t cdw13;
	uint32_t cdw14;
	uint32_t cdw15;
};
PL_NVME_ASSERT_SIZE(struct pl_nvme_sqe, 64);
PL_NVME_ASSERT_AT(struct pl_nvme_sqe, cid, 2);
PL_NVME_ASSERT_AT(struct pl_nvme_sqe, nsid, 4);
PL_NVME_ASSERT_AT(struct pl_nvme_sqe, mptr, 16);
PL_NVME_ASSERT_AT(struct pl_nvme_sqe, dptr, 24);
PL_NVME_ASSERT_AT(struct pl_nvme_sqe, cdw10, 40);

#define PL_NVME_FUSE_MASK 0x03u
#define PL_NVME_FUSE_FIRST 0x01u
#define PL_NVME_FUSE_SECOND 0x02u
#define PL_NVME_FLAGS_RESERVED 0x3cu
#define PL_NVME_PSDT_MASK 0xc0u
#define PL_NVME_PSDT_PRP 0x00u
#define PL_NVME_PSDT_SGL 0x40u	    /* dptr is an SGL, mptr a plain address */
#define PL_NVME_PSDT_SGL_MPTR 0x80u /* both are SGLs */
#define PL_NVME_NSID_ALL 0xffffffffu
#define PL_NVME_CID_NONE 0xffffu

/* Opcodes. The lowest two bits say where data go: 1 to the controller, 2 from it, 0 none. */
enum pl_nvme_admin_opcode {
	PL_NVME_ADMIN_DELETE_SQ = 0x00,
	PL_NVME_ADMIN_CREATE_SQ = 0x01,
	PL_NVME_ADMIN_GET_LOG_PAGE = 0x02,
	PL_NVME_ADMIN_DELETE_CQ = 0x04,
	PL_NVME_ADMIN_CREATE_CQ = 0x05,
	PL_NVME_ADMIN_IDENTIFY = 0x06,
	PL_NVME_ADMIN_ABORT = 0x08,
	PL_NVME_ADMIN_SET_FEATURES = 0x09,
	PL_NVME_ADMIN_GET_FEATURES = 0x0a,
	PL_NVME_ADMIN_ASYNC_EVENT = 0x0c,
	PL_NVME_ADMIN_NS_MANAGEMENT = 0x0d,
	PL_NVME_ADMIN_FW_COMMIT = 0x10,
	PL_NVME_ADMIN_FW_DOWNLOAD = 0x11,
	PL_NVME_ADMIN_SELF_TEST = 0x14,
	PL_NVME_ADMIN_NS_ATTACH = 0x15,
	PL_NVME_ADMIN_KEEP_ALIVE = 0x18,
	PL_NVME_ADMIN_DBBUF = 0x7c,
	PL_NVME_ADMIN_FORMAT = 0x80,
	PL_NVME_ADMIN_SECURITY_SEND = 0x81,
	PL_NVME_ADMIN_SECURITY_RECEIVE = 0x82,
	PL_NVME_ADMIN_SANITIZE = 0x84
};

enum pl_nvme_opcode {
	PL_NVME_FLUSH = 0x00,
	PL_NVME_WRITE = 0x01,
	PL_NVME_READ = 0x02,
	PL_NVME_WRITE_UNCORRECTABLE = 0x04,
	PL_NVME_COMPARE = 0x05,
	PL_NVME_WRITE_ZEROES = 0x08,
	PL_NVME_DSM = 0x09,
	PL_NVME_VERIFY = 0x0c,
	PL_NVME_COPY = 0x19
};

/* Read, write, compare, write zeroes: cdw10..11 first block; cdw12 blocks, 0-based, and flags. */
#define PL_NVME_RW_NLB_MASK 0xffffu
#define PL_NVME_RW_MAX_BLOCKS 65536u
#define PL_NVME_RW_DEAC (1u << 25) /* write zeroes: deallocate */
#define PL_NVME_RW_FUA (1u << 30)
#define PL_NVME_RW_LR (1u << 31)

/* Dataset management: cdw10 ranges, 0-based; cdw11 what to do. */
#define PL_NVME_DSM_MAX_RANGES 256u
#define PL_NVME_DSM_READ 0x1u	    /* cdw11: will be read as a whole */
#define PL_NVME_DSM_WRITE 0x2u	    /* cdw11: will be written as a whole */
#define PL_NVME_DSM_DEALLOCATE 0x4u /* cdw11: deallocate */

struct pl_nvme_dsm_range {
	uint32_t attributes;
	uint32_t nr_blocks; /* not 0-based */
	uint64_t first_block;
};
PL_NVME_ASSERT_SIZE(struct pl_nvme_dsm_range, 16);

/* Create queue: cdw10 entries, 0-based, << 16 | queue; delete queue: cdw10 queue. */
#define PL_NVME_QUEUE_PC 0x1u	 /* cdw11: one physically contiguous run, prp1 its address */
#define PL_NVME_CQ_IEN 0x2u	 /* cdw11 of a CQ: interrupts */
#define PL_NVME_CQ_IV_SHIFT 16	 /* cdw11 of a CQ: vector */
#define PL_NVME_SQ_QPRIO_SHIFT 1 /* cdw11 of an SQ: 2 bits */
#define PL_NVME_SQ_CQID_SHIFT 16 /* cdw11 of an SQ: its CQ */
#define PL_NVME_QUEUE_SIZE_SHIFT 16

/* Abort: cdw10 command << 16 | queue. Result, bit 0: 0 aborted, 1 not aborted. */
#define PL_NVME_ABORT_CID_SHIFT 16
#define PL_NVME_ABORT_NOT_DONE 0x1u

/* Identify: cdw10 controller << 16 | CNS. */
#define PL_NVME_CNS_NS 0x00u
#define PL_NVME_CNS_CTRL 0x01u
#define PL_NVME_CNS_NS_ACTIVE 0x02u /* ids of active namespaces greater than nsid, 1024 */
#define PL_NVME_CNS_NS_DESC 0x03u   /* struct pl_nvme_ns_desc, one after the other */
#define PL_NVME_CNS_NS_ALLOCATED 0x10u
#define PL_NVME_CNS_NS_ALLOCATED_DATA 0x11u
#define PL_NVME_CNS_CTRL_OF_NS 0x12u
#define PL_NVME_CNS_CTRL_LIST 0x13u
#define PL_NVME_IDENTIFY_BYTES 4096u
#define PL_NVME_NS_LIST_ENTRIES 1024u

/*
 * Get log page: cdw10 dwords, 0-based, lower half << 16 | retain (bit 15) | page; cdw11 upper half of
 * the dwords; cdw12..13 offset in bytes, a multiple of 4.
 */
#define PL_NVME_LOG_ERROR 0x01u
#define PL_NVME_LOG_SMART 0x02u
#define PL_NVME_LOG_FIRMWARE 0x03u
#define PL_NVME_LOG_CHANGED_NS 0x04u
#define PL_NVME_LOG_EFFECTS 0x05u
#define PL_NVME_LOG_NUMD_SHIFT 16
#define PL_NVME_LOG_RAE (1u << 15) /* do not clear the event */

/* Set features: cdw10 feature | save; get features: cdw10 feature | select << 8. cdw11 value. */
#define PL_NVME_FEAT_ARBITRATION 0x01u
#define PL_NVME_FEAT_POWER 0x02u
#define PL_NVME_FEAT_LBA_RANGE 0x03u
#define PL_NVME_FEAT_TEMPERATURE 0x04u
#define PL_NVME_FEAT_ERROR_RECOVERY 0x05u
#define PL_NVME_FEAT_WRITE_CACHE 0x06u
#define PL_NVME_FEAT_NR_QUEUES 0x07u
#define PL_NVME_FEAT_IRQ_COALESCING 0x08u
#define PL_NVME_FEAT_IRQ_VECTOR 0x09u
#define PL_NVME_FEAT_WRITE_ATOMICITY 0x0au
#define PL_NVME_FEAT_ASYNC_EVENT 0x0bu
#define PL_NVME_FEAT_APST 0x0cu
#define PL_NVME_FEAT_HOST_MEMORY 0x0du
#define PL_NVME_FEAT_TIMESTAMP 0x0eu
#define PL_NVME_FEAT_KEEP_ALIVE 0x0fu
#define PL_NVME_FEAT_SAVE (1u << 31)
#define PL_NVME_FEAT_SEL_SHIFT 8
#define PL_NVME_FEAT_SEL_CURRENT 0u
#define PL_NVME_FEAT_SEL_DEFAULT 1u
#define PL_NVME_FEAT_SEL_SAVED 2u
#define PL_NVME_FEAT_SEL_SUPPORTED 3u
/* Number of queues, asked for and granted: completion queues << 16 | submission queues, 0-based. */
#define PL_NVME_NR_QUEUES_CQ_SHIFT 16
#define PL_NVME_NR_QUEUES_MASK 0xffffu
#define PL_NVME_NR_QUEUES_INVALID 0xffffu
/* Asynchronous event configuration: the lowest byte are those of the SMART critical warning. */
#define PL_NVME_AEC_NS_CHANGED (1u << 8)
#define PL_NVME_AEC_FIRMWARE (1u << 9)

/* Result of an asynchronous event request. */
#define PL_NVME_EVENT_TYPE(dw0) ((dw0)&0x7u)
#define PL_NVME_EVENT_INFO(dw0) ((dw0) >> 8 & 0xffu)
#define PL_NVME_EVENT_LOG(dw0) ((dw0) >> 16 & 0xffu)
#define PL_NVME_EVENT_INFO_SHIFT 8
#define PL_NVME_EVENT_LOG_SHIFT 16
#define PL_NVME_EVENT_ERROR 0x0u
#define PL_NVME_EVENT_SMART 0x1u
#define PL_NVME_EVENT_NOTICE 0x2u
#define PL_NVME_EVENT_COMMAND_SET 0x6u
#define PL_NVME_EVENT_VENDOR 0x7u
#define PL_NVME_EVENT_ERROR_DB_REGISTER 0x00u /* a doorbell of no queue was written */
#define PL_NVME_EVENT_ERROR_DB_VALUE 0x01u    /* a doorbell was written a wrong value */
#define PL_NVME_EVENT_ERROR_DIAGNOSTIC 0x02u
#define PL_NVME_EVENT_ERROR_PERSISTENT 0x03u
#define PL_NVME_EVENT_ERROR_TRANSIENT 0x04u
#define PL_NVME_EVENT_NOTICE_NS_CHANGED 0x00u
#define PL_NVME_EVENT_NOTICE_FIRMWARE 0x01u

/* Doorbell buffer config: prp1 page of shadow doorbells, prp2 page of event indices. */

/* ------------------------------------------------------------------ completions */

struct pl_nvme_cqe {
	uint32_t result; /* dword 0, of the command */
	uint32_t dw1;
	uint16_t sqhd; /* next entry the controller fetches */
	uint16_t sqid;
	uint16_t cid;
	uint16_t status; /* bit 0 phase; the rest PL_NVME_CQE_*; becomes visible last */
};
PL_NVME_ASSERT_SIZE(struct pl_nvme_cqe, 16);
PL_NVME_ASSERT_AT(struct pl_nvme_cqe, sqhd, 8);
PL_NVME_ASSERT_AT(struct pl_nvme_cqe, status, 14);

#define PL_NVME_CQE_PHASE 0x1u
#define PL_NVME_CQE_SC(status) ((unsigned int)(status) >> 1 & 0xffu)
#define PL_NVME_CQE_SCT(status) ((unsigned int)(status) >> 9 & 0x7u)
#define PL_NVME_CQE_CRD(status) ((unsigned int)(status) >> 12 & 0x3u) /* which retry delay */
#define PL_NVME_CQE_MORE 0x4000u
#define PL_NVME_CQE_DNR 0x8000u
/* The member status but for the phase, out of type << 8 | code. */
#define PL_NVME_CQE_STATUS(sct_sc) ((uint16_t)((sct_sc) << 1))

/* Status: type << 8 | code. */
#define PL_NVME_SC(sct, sc) ((unsigned int)(sct) << 8 | (unsigned int)(sc))
#define PL_NVME_SCT_GENERIC 0x0u
#define PL_NVME_SCT_COMMAND 0x1u
#define PL_NVME_SCT_MEDIA 0x2u
#define PL_NVME_SCT_PATH 0x3u
#define PL_NVME_SCT_VENDOR 0x7u

enum pl_nvme_status {
	PL_NVME_SC_SUCCESS = 0x000,
	PL_NVME_SC_INVALID_OPCODE = 0x001,
	PL_NVME_SC_INVALID_FIELD = 0x002,
	PL_NVME_SC_CID_CONFLICT = 0x003,
	PL_NVME_SC_DATA_TRANSFER = 0x004,
	PL_NVME_SC_POWER_LOSS = 0x005,
	PL_NVME_SC_INTERNAL = 0x006,
	PL_NVME_SC_ABORTED = 0x007,
	PL_NVME_SC_SQ_DELETED = 0x008,
	PL_NVME_SC_FUSED_FAILED = 0x009,
	PL_NVME_SC_FUSED_MISSING = 0x00a,
	PL_NVME_SC_INVALID_NS = 0x00b,
	PL_NVME_SC_SEQUENCE = 0x00c,
	PL_NVME_SC_SGL_SEGMENT = 0x00d,
	PL_NVME_SC_SGL_COUNT = 0x00e,
	PL_NVME_SC_SGL_LENGTH = 0x00f,
	PL_NVME_SC_SGL_METADATA_LENGTH = 0x010,
	PL_NVME_SC_SGL_TYPE = 0x011,
	PL_NVME_SC_INVALID_CMB = 0x012,
	PL_NVME_SC_PRP_OFFSET = 0x013,
	PL_NVME_SC_ATOMIC_WRITE_UNIT = 0x014,
	PL_NVME_SC_SGL_OFFSET = 0x016,
	PL_NVME_SC_SANITIZE_FAILED = 0x01c,
	PL_NVME_SC_SANITIZE_IN_PROGRESS = 0x01d,
	PL_NVME_SC_SGL_GRANULARITY = 0x01e,
	PL_NVME_SC_NOT_IN_CMB = 0x01f,
	PL_NVME_SC_WRITE_PROTECTED = 0x020,
	PL_NVME_SC_INTERRUPTED = 0x021,
	PL_NVME_SC_TRANSIENT_TRANSPORT = 0x022,
	PL_NVME_SC_LBA_RANGE = 0x080,
	PL_NVME_SC_CAPACITY = 0x081,
	PL_NVME_SC_NOT_READY = 0x082,
	PL_NVME_SC_RESERVATION_CONFLICT = 0x083,
	PL_NVME_SC_FORMAT_IN_PROGRESS = 0x084,

	PL_NVME_SC_CQ_INVALID = 0x100,
	PL_NVME_SC_INVALID_QID = 0x101,
	PL_NVME_SC_INVALID_QUEUE_SIZE = 0x102,
	PL_NVME_SC_ABORT_LIMIT = 0x103,
	PL_NVME_SC_EVENT_LIMIT = 0x105,
	PL_NVME_SC_INVALID_VECTOR = 0x108,
	PL_NVME_SC_INVALID_LOG_PAGE = 0x109,
	PL_NVME_SC_INVALID_FORMAT = 0x10a,
	PL_NVME_SC_INVALID_QUEUE_DELETION = 0x10c,
	PL_NVME_SC_FEATURE_NOT_SAVEABLE = 0x10d,
	PL_NVME_SC_FEATURE_NOT_CHANGEABLE = 0x10e,
	PL_NVME_SC_FEATURE_NOT_NS = 0x10f,
	PL_NVME_SC_CONFLICTING_ATTRIBUTES = 0x180,
	PL_NVME_SC_INVALID_PROTECTION = 0x181,
	PL_NVME_SC_READ_ONLY_RANGE = 0x182,

	PL_NVME_SC_WRITE_FAULT = 0x280,
	PL_NVME_SC_READ_ERROR = 0x281,
	PL_NVME_SC_GUARD_CHECK = 0x282,
	PL_NVME_SC_APP_TAG_CHECK = 0x283,
	PL_NVME_SC_REF_TAG_CHECK = 0x284,
	PL_NVME_SC_COMPARE_FAILED = 0x285,
	PL_NVME_SC_ACCESS_DENIED = 0x286,
	PL_NVME_SC_DEALLOCATED = 0x287,

	PL_NVME_SC_PATH_INTERNAL = 0x300,
	PL_NVME_SC_PATH_CONTROLLER = 0x360,
	PL_NVME_SC_PATH_HOST = 0x370,
	PL_NVME_SC_PATH_HOST_ABORTED = 0x371
};

/* ------------------------------------------------------------------ Identify */

struct pl_nvme_power_state {
	uint16_t max_power;
	uint8_t reserved2;
	uint8_t flags;
	uint32_t entry_us;
	uint32_t exit_us;
	uint8_t relative[4];
	uint16_t idle_power;
	uint8_t idle_scale;
	uint8_t reserved19;
	uint16_t active_power;
	uint8_t active_scale;
	uint8_t reserved23[9];
};
PL_NVME_ASSERT_SIZE(struct pl_nvme_power_state, 32);

/* Strings are padded with spaces and not terminated. */
struct pl_nvme_id_ctrl {
	uint16_t vid;
	uint16_t ssvid;
	char sn[20];
	char mn[40];
	char fr[8];
	uint8_t rab;
	uint8_t ieee[3];
	uint8_t cmic;
	uint8_t mdts; /* longest transfer: pages of MPSMIN << this; 0 no limit */
	uint16_t cntlid;
	uint32_t ver;
	uint32_t rtd3r;
	uint32_t rtd3e; /* time that shutdown takes, in microseconds; 0 not said */
	uint32_t oaes;	/* asynchronous events that can be turned on, as PL_NVME_AEC_* */
	uint32_t ctratt;
	uint16_t rrls;
	uint8_t reserved102[9];
	uint8_t cntrltype;
	uint8_t fguid[16];
	uint16_t crdt[3]; /* delays before a retry, in 100 ms */
	uint8_t reserved134[119];
	uint8_t nvmsr;
	uint8_t vwci;
	uint8_t mec;
	uint16_t oacs; /* PL_NVME_OACS_* */
	uint8_t acl;   /* abort commands at a time, 0-based */
	uint8_t aerl;  /* asynchronous event requests at a time, 0-based */
	uint8_t frmw;
	uint8_t lpa;
	uint8_t elpe; /* entries of the error log, 0-based */
	uint8_t npss;
	uint8_t avscc;
	uint8_t apsta;
	uint16_t wctemp;
	uint16_t cctemp;
	uint16_t mtfa;
	uint32_t hmpre;
	uint32_t hmmin;
	uint8_t tnvmcap[16];
	uint8_t unvmcap[16];
	uint32_t rpmbs;
	uint16_t edstt;
	uint8_t dsto;
	uint8_t fwug;
	uint16_t kas;
	uint16_t hctma;
	uint16_t mntmt;
	uint16_t mxtmt;
	uint32_t sanicap;
	uint32_t hmminds;
	uint16_t hmmaxd;
	uint16_t nsetidmax;
	uint16_t endgidmax;
	uint8_t anatt;
	uint8_t anacap;
	uint32_t anagrpmax;
	uint32_t nanagrpid;
	uint32_t pels;
	uint16_t domain;
	uint8_t reserved358[10];
	uint8_t megcap[16];
	uint8_t reserved384[128];
	uint8_t sqes; /* 3:0 least, 7:4 most, as powers of two */
	uint8_t cqes;
	uint16_t maxcmd;
	uint32_t nn;
	uint16_t oncs; /* PL_NVME_ONCS_* */
	uint16_t fuses;
	uint8_t fna;
	uint8_t vwc; /* bit 0: there is a volatile write cache */
	uint16_t awun;
	uint16_t awupf;
	uint8_t icsvscc;
	uint8_t nwpc;
	uint16_t acwu;
	uint16_t cdfs;
	uint32_t sgls; /* PL_NVME_SGLS_* */
	uint32_t mnan;
	uint8_t maxdna[16];
	uint32_t maxcna;
	uint32_t oaqd;
	uint8_t reserved568[200];
	char subnqn[256];
	uint8_t reserved1024[768];
	uint32_t ioccsz;
	uint32_t iorcsz;
	uint16_t icdoff;
	uint8_t fcatt;
	uint8_t msdbd;
	uint16_t ofcs;
	uint8_t reserved1806[242];
	struct pl_nvme_power_state psd[32];
	uint8_t vendor[1024];
};
PL_NVME_ASSERT_SIZE(struct pl_nvme_id_ctrl, 4096);
PL_NVME_ASSERT_AT(struct pl_nvme_id_ctrl, sn, 4);
PL_NVME_ASSERT_AT(struct pl_nvme_id_ctrl, mn, 24);
PL_NVME_ASSERT_AT(struct pl_nvme_id_ctrl, fr, 64);
PL_NVME_ASSERT_AT(struct pl_nvme_id_ctrl, mdts, 77);
PL_NVME_ASSERT_AT(struct pl_nvme_id_ctrl, cntlid, 78);
PL_NVME_ASSERT_AT(struct pl_nvme_id_ctrl, ver, 80);
PL_NVME_ASSERT_AT(struct pl_nvme_id_ctrl, oaes, 92);
PL_NVME_ASSERT_AT(struct pl_nvme_id_ctrl, cntrltype, 111);
PL_NVME_ASSERT_AT(struct pl_nvme_id_ctrl, crdt, 128);
PL_NVME_ASSERT_AT(struct pl_nvme_id_ctrl, oacs, 256);
PL_NVME_ASSERT_AT(struct pl_nvme_id_ctrl, acl, 258);
PL_NVME_ASSERT_AT(struct pl_nvme_id_ctrl, aerl, 259);
PL_NVME_ASSERT_AT(struct pl_nvme_id_ctrl, lpa, 261);
PL_NVME_ASSERT_AT(struct pl_nvme_id_ctrl, wctemp, 266);
PL_NVME_ASSERT_AT(struct pl_nvme_id_ctrl, tnvmcap, 280);
PL_NVME_ASSERT_AT(struct pl_nvme_id_ctrl, kas, 320);
PL_NVME_ASSERT_AT(struct pl_nvme_id_ctrl, anatt, 342);
PL_NVME_ASSERT_AT(struct pl_nvme_id_ctrl, sqes, 512);
PL_NVME_ASSERT_AT(struct pl_nvme_id_ctrl, cqes, 513);
PL_NVME_ASSERT_AT(struct pl_nvme_id_ctrl, maxcmd, 514);
PL_NVME_ASSERT_AT(struct pl_nvme_id_ctrl, nn, 516);
PL_NVME_ASSERT_AT(struct pl_nvme_id_ctrl, oncs, 520);
PL_NVME_ASSERT_AT(struct pl_nvme_id_ctrl, fuses, 522);
PL_NVME_ASSERT_AT(struct pl_nvme_id_ctrl, vwc, 525);
PL_NVME_ASSERT_AT(struct pl_nvme_id_ctrl, awun, 526);
PL_NVME_ASSERT_AT(struct pl_nvme_id_ctrl, sgls, 536);
PL_NVME_ASSERT_AT(struct pl_nvme_id_ctrl, subnqn, 768);
PL_NVME_ASSERT_AT(struct pl_nvme_id_ctrl, ioccsz, 1792);
PL_NVME_ASSERT_AT(struct pl_nvme_id_ctrl, psd, 2048);
PL_NVME_ASSERT_AT(struct pl_nvme_id_ctrl, vendor, 3072);

#define PL_NVME_OACS_SECURITY 0x001u
#define PL_NVME_OACS_FORMAT 0x002u
#define PL_NVME_OACS_FIRMWARE 0x004u
#define PL_NVME_OACS_NS_MANAGEMENT 0x008u
#define PL_NVME_OACS_DBBUF 0x100u
#define PL_NVME_ONCS_COMPARE 0x01u
#define PL_NVME_ONCS_WRITE_UNCORRECTABLE 0x02u
#define PL_NVME_ONCS_DSM 0x04u
#define PL_NVME_ONCS_WRITE_ZEROES 0x08u
#define PL_NVME_ONCS_SAVE_SELECT 0x10u /* saved values and the select of get features */
#define PL_NVME_ONCS_VERIFY 0x80u
#define PL_NVME_ONCS_COPY 0x100u
#define PL_NVME_LPA_SMART_NS 0x1u
#define PL_NVME_LPA_EFFECTS 0x2u
#define PL_NVME_LPA_EXTENDED 0x4u /* long log pages, with an offset */
#define PL_NVME_SGLS_MASK 0x3u	  /* 0 no SGLs; 1 any alignment; 2 multiples of 4 */
#define PL_NVME_SGLS_BYTE 0x1u
#define PL_NVME_SGLS_DWORD 0x2u
#define PL_NVME_SGLS_BIT_BUCKET (1u << 16)
#define PL_NVME_SGLS_LONGER (1u << 18) /* may describe more than the command needs */

/* A format: 15:0 metadata bytes, 23:16 block size as a power of two (9 or more), 25:24 speed. */
#define PL_NVME_LBAF_MS(lbaf) ((uint32_t)(lbaf)&0xffffu)
#define PL_NVME_LBAF_LBADS(lbaf) ((uint32_t)(lbaf) >> 16 & 0xffu)
#define PL_NVME_LBAF_LBADS_SHIFT 16
#define PL_NVME_MAX_FORMATS 64u

struct pl_nvme_id_ns {
	uint64_t nsze; /* blocks */
	uint64_t ncap;
	uint64_t nuse;
	uint8_t nsfeat;
	uint8_t nlbaf; /* formats, 0-based */
	uint8_t flbas; /* PL_NVME_FLBAS_* */
	uint8_t mc;
	uint8_t dpc;
	uint8_t dps; /* protection information, lowest 3 bits; 0 none */
	uint8_t nmic;
	uint8_t rescap;
	uint8_t fpi;
	uint8_t dlfeat;
	uint16_t nawun;
	uint16_t nawupf;
	uint16_t nacwu;
	uint16_t nabsn;
	uint16_t nabo;
	uint16_t nabspf;
	uint16_t noiob; /* best not crossed by I/O, in blocks; 0 not said */
	uint8_t nvmcap[16];
	uint16_t npwg;
	uint16_t npwa;
	uint16_t npdg;
	uint16_t npda;
	uint16_t nows;
	uint16_t mssrl;
	uint32_t mcl;
	uint8_t msrc;
	uint8_t reserved81[11];
	uint32_t anagrpid;
	uint8_t reserved96[3];
	uint8_t nsattr; /* bit 0: write protected */
	uint16_t nvmsetid;
	uint16_t endgid;
	uint8_t nguid[16];
	uint8_t eui64[8];
	uint32_t lbaf[64]; /* PL_NVME_LBAF_* */
	uint8_t vendor[3712];
};
PL_NVME_ASSERT_SIZE(struct pl_nvme_id_ns, 4096);
PL_NVME_ASSERT_AT(struct pl_nvme_id_ns, nlbaf, 25);
PL_NVME_ASSERT_AT(struct pl_nvme_id_ns, flbas, 26);
PL_NVME_ASSERT_AT(struct pl_nvme_id_ns, dps, 29);
PL_NVME_ASSERT_AT(struct pl_nvme_id_ns, dlfeat, 33);
PL_NVME_ASSERT_AT(struct pl_nvme_id_ns, noiob, 46);
PL_NVME_ASSERT_AT(struct pl_nvme_id_ns, nvmcap, 48);
PL_NVME_ASSERT_AT(struct pl_nvme_id_ns, npwg, 64);
PL_NVME_ASSERT_AT(struct pl_nvme_id_ns, anagrpid, 92);
PL_NVME_ASSERT_AT(struct pl_nvme_id_ns, nguid, 104);
PL_NVME_ASSERT_AT(struct pl_nvme_id_ns, eui64, 120);
PL_NVME_ASSERT_AT(struct pl_nvme_id_ns, lbaf, 128);

/* Index of the format in use: lower 4 bits, and bits 6:5 above them. */
#define PL_NVME_FLBAS_INDEX(flbas) (((uint32_t)(flbas)&0xfu) | ((uint32_t)(flbas) >> 1 & 0x30u))
#define PL_NVME_FLBAS_EXTENDED 0x10u /* metadata follow each block's data */

struct pl_nvme_ns_desc {
	uint8_t type;  /* 1 EUI64, 2 NGUID, 3 UUID, 4 command set; 0 ends the list */
	uint8_t bytes; /* that follow */
	uint8_t reserved[2];
};
PL_NVME_ASSERT_SIZE(struct pl_nvme_ns_desc, 4);
#define PL_NVME_NS_DESC_EUI64 1u
#define PL_NVME_NS_DESC_NGUID 2u
#define PL_NVME_NS_DESC_UUID 3u
#define PL_NVME_NS_DESC_CSI 4u

/* ------------------------------------------------------------------ log pages */

struct pl_nvme_error_entry {
	uint64_t error_count; /* 0: not an entry */
	uint16_t sqid;
	uint16_t cid;
	uint16_t status;    /* as in the completion, with the phase */
	uint16_t parameter; /* 7:0 byte, 10:8 bit of the command; 0xffff none */
	uint64_t lba;
	uint32_t nsid;
	uint8_t vendor;
	uint8_t trtype;
	uint8_t reserved30[2];
	uint64_t specific;
	uint16_t trtype_specific;
	uint8_t reserved42[22];
};
PL_NVME_ASSERT_SIZE(struct pl_nvme_error_entry, 64);
PL_NVME_ASSERT_AT(struct pl_nvme_error_entry, lba, 16);
PL_NVME_ASSERT_AT(struct pl_nvme_error_entry, specific, 32);

/* Counters of 16 bytes are little-endian numbers of 128 bits. */
struct pl_nvme_smart {
	uint8_t critical_warning;
	uint8_t temperature[2]; /* kelvin; not aligned */
	uint8_t spare;		/* percent */
	uint8_t spare_threshold;
	uint8_t used; /* percent; may pass 100 */
	uint8_t endurance_warning;
	uint8_t reserved7[25];
	uint8_t data_units_read[16]; /* 1000 * 512 bytes */
	uint8_t data_units_written[16];
	uint8_t host_reads[16];
	uint8_t host_writes[16];
	uint8_t busy_minutes[16];
	uint8_t power_cycles[16];
	uint8_t power_on_hours[16];
	uint8_t unsafe_shutdowns[16];
	uint8_t media_errors[16];
	uint8_t error_entries[16];
	uint32_t warning_minutes;
	uint32_t critical_minutes;
	uint16_t sensor[8]; /* kelvin; 0 none */
	uint32_t thermal_count[2];
	uint32_t thermal_seconds[2];
	uint8_t reserved232[280];
};
PL_NVME_ASSERT_SIZE(struct pl_nvme_smart, 512);
PL_NVME_ASSERT_AT(struct pl_nvme_smart, data_units_read, 32);
PL_NVME_ASSERT_AT(struct pl_nvme_smart, error_entries, 176);
PL_NVME_ASSERT_AT(struct pl_nvme_smart, warning_minutes, 192);
PL_NVME_ASSERT_AT(struct pl_nvme_smart, sensor, 200);
PL_NVME_ASSERT_AT(struct pl_nvme_smart, thermal_count, 216);

struct pl_nvme_firmware {
	uint8_t active; /* 2:0 slot in use, 6:4 slot after the next reset */
	uint8_t reserved1[7];
	char revision[7][8];
	uint8_t reserved64[448];
};
PL_NVME_ASSERT_SIZE(struct pl_nvme_firmware, 512);

#endif
