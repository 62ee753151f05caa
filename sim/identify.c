// SPDX-License-Identifier: MIT
/* Identify: what the controller says of itself and its namespaces. */
#include "admin.h"

#include "data.h"

#include <stdio.h>
#include <string.h>

#define MODEL "Peerlane software controller"
#define FIRMWARE "1"
#define VWC_PRESENT 0x1u
#define VWC_FLUSH_ALL 0x6u /* flush takes the id of all namespaces */
#define DLFEAT_ZEROES 0x1u /* deallocated blocks read as zeroes */
#define CNTRLTYPE_IO 1u

/* Text padded with spaces. */
static void pad(char *to, size_t bytes, const char *text)
{
	size_t len = strlen(text);

	memset(to, ' ', bytes);
	memcpy(to, text, len < bytes ? len : bytes);
}

/* An EUI64 for local use: out of the serial number, and the namespace. */
static void make_eui64(const struct pl_simnvme *c, uint32_t nsid, uint8_t eui[8])
{
	uint64_t hash = 0xcbf29ce484222325u;

	for (const char *p = c->config.serial; *p; p++)
		hash = (hash ^ (uint8_t)*p) * 0x100000001b3u;
	eui[0] = 0x02; /* locally administered */
	for (int i = 0; i < 3; i++)
		eui[1 + i] = (uint8_t)(hash >> (40 + 8 * i));
	for (int i = 0; i < 4; i++)
		eui[4 + i] = (uint8_t)(nsid >> (24 - 8 * i));
}

static unsigned int identify_ctrl(struct pl_simnvme *c, const struct pl_nvme_sqe *sqe)
{
	struct pl_nvme_id_ctrl id = {
		.mdts = (uint8_t)c->config.mdts,
		.cntlid = 1,
		.ver = PL_NVME_VS(1, 4, 0),
		.cntrltype = CNTRLTYPE_IO,
		.oacs = c->config.dbbuf ? PL_NVME_OACS_DBBUF : 0,
		.acl = 3,
		.aerl = (uint8_t)c->config.aerl,
		.frmw = 0x3, /* one slot, read-only */
		.lpa = PL_NVME_LPA_EXTENDED,
		.elpe = PL_SN_NR_ERRORS - 1,
		.wctemp = 343,
		.cctemp = 353,
		.sqes = PL_NVME_IOSQES << 4 | PL_NVME_IOSQES,
		.cqes = PL_NVME_IOCQES << 4 | PL_NVME_IOCQES,
		.nn = c->config.nn,
		.oncs = PL_NVME_ONCS_COMPARE | PL_NVME_ONCS_DSM | PL_NVME_ONCS_WRITE_ZEROES |
			PL_NVME_ONCS_SAVE_SELECT,
		.vwc = c->config.vwc ? VWC_PRESENT | VWC_FLUSH_ALL : VWC_FLUSH_ALL,
		.sgls = c->config.sgl ? c->config.sgl | PL_NVME_SGLS_BIT_BUCKET : 0,
	};

	pad(id.sn, sizeof(id.sn), c->config.serial);
	pad(id.mn, sizeof(id.mn), MODEL);
	pad(id.fr, sizeof(id.fr), FIRMWARE);
	snprintf(id.subnqn, sizeof(id.subnqn), "nqn.2026-11.peerlane:sim:%s", c->config.serial);
	return pl_sn_data_reply(c, sqe, &id, sizeof(id));
}

static unsigned int identify_ns(struct pl_simnvme *c, const struct pl_nvme_sqe *sqe)
{
	struct pl_nvme_id_ns id = { 0 };
	struct pl_sn_ns *ns;

	/* Without namespace management nothing is common to all. */
	if (!sqe->nsid || sqe->nsid > c->config.nn)
		return PL_NVME_SC_INVALID_NS;
	ns = pl_sn_ns_of(c, sqe->nsid);
	if (ns) {
		id.nsze = id.ncap = id.nuse = ns->nr_blocks;
		id.nlbaf = 1;
		id.flbas = ns->bs_shift == 9 ? 0 : 1;
		id.dlfeat = DLFEAT_ZEROES;
		id.lbaf[0] = 9u << PL_NVME_LBAF_LBADS_SHIFT;
		id.lbaf[1] = 12u << PL_NVME_LBAF_LBADS_SHIFT;
		make_eui64(c, ns->nsid, id.eui64);
	}
	return pl_sn_data_reply(c, sqe, &id, sizeof(id));
}

static unsigned int identify_active(struct pl_simnvme *c, const struct pl_nvme_sqe *sqe)
{
	uint32_t list[PL_NVME_NS_LIST_ENTRIES] = { 0 }, nr = 0;

	if (sqe->nsid >= 0xfffffffeu)
		return PL_NVME_SC_INVALID_NS;
	for (uint32_t i = 0; i < c->config.nr_ns; i++)
		if (c->ns[i].nsid > sqe->nsid)
			list[nr++] = c->ns[i].nsid;
	return pl_sn_data_reply(c, sqe, list, sizeof(list));
}

static unsigned int identify_descriptors(struct pl_simnvme *c, const struct pl_nvme_sqe *sqe)
{
	uint8_t data[PL_NVME_IDENTIFY_BYTES] = { 0 };
	struct pl_nvme_ns_desc d = { .type = PL_NVME_NS_DESC_EUI64, .bytes = 8 };

	if (!sqe->nsid || sqe->nsid > c->config.nn)
		return PL_NVME_SC_INVALID_NS;
	if (!pl_sn_ns_of(c, sqe->nsid))
		return PL_NVME_SC_INVALID_FIELD;
	memcpy(data, &d, sizeof(d));
	make_eui64(c, sqe->nsid, data + sizeof(d));
	return pl_sn_data_reply(c, sqe, data, sizeof(data));
}

unsigned int pl_sn_identify(struct pl_simnvme *c, const struct pl_nvme_sqe *sqe)
{
	switch (sqe->cdw10 & 0xff) {
	case PL_NVME_CNS_NS:
		return identify_ns(c, sqe);
	case PL_NVME_CNS_CTRL:
		return sqe->nsid ? PL_NVME_SC_INVALID_FIELD : identify_ctrl(c, sqe);
	case PL_NVME_CNS_NS_ACTIVE:
		return identify_active(c, sqe);
	case PL_NVME_CNS_NS_DESC:
		return identify_descriptors(c, sqe);
	default:
		return PL_NVME_SC_INVALID_FIELD;
	}
}
