// SPDX-License-Identifier: MIT
/* I/O commands. */
#include "command.h"

#include "data.h"

#include <string.h>

static uint64_t first_block(const struct pl_nvme_sqe *sqe)
{
	return sqe->cdw10 | (uint64_t)sqe->cdw11 << 32;
}

static uint64_t nr_blocks(const struct pl_nvme_sqe *sqe)
{
	return (uint64_t)(sqe->cdw12 & PL_NVME_RW_NLB_MASK) + 1;
}

static bool inside(const struct pl_sn_ns *ns, uint64_t first, uint64_t nr)
{
	return nr <= ns->nr_blocks && first <= ns->nr_blocks - nr;
}

/* The namespace that a command names: a status. */
static unsigned int find_ns(struct pl_simnvme *c, uint32_t nsid, struct pl_sn_ns **out)
{
	*out = pl_sn_ns_of(c, nsid);
	if (__builtin_expect(*out != NULL, 1))
		return PL_NVME_SC_SUCCESS;
	/* All at once, and ids without a namespace, are valid but not for these commands. */
	if (nsid == PL_NVME_NSID_ALL || (nsid && nsid <= c->config.nn))
		return PL_NVME_SC_INVALID_FIELD;
	return PL_NVME_SC_INVALID_NS;
}

/* Checks of read, write and compare; the host's memory is found then: a status. */
static unsigned int begin(struct pl_simnvme *c, const struct pl_nvme_sqe *sqe, struct pl_sn_ns *ns,
			  enum pl_sn_way way, uint64_t *bytes)
{
	uint64_t nr = nr_blocks(sqe);

	*bytes = nr << ns->bs_shift;
	if (pl_sn_data_too_long(c, *bytes))
		return PL_NVME_SC_INVALID_FIELD;
	if (!inside(ns, first_block(sqe), nr))
		return PL_NVME_SC_LBA_RANGE;
	return pl_sn_data_find(c, sqe, *bytes, way);
}

static unsigned int do_read(struct pl_simnvme *c, const struct pl_nvme_sqe *sqe,
			    struct pl_sn_ns *ns)
{
	uint64_t bytes;
	unsigned int status = begin(c, sqe, ns, PL_SN_TO_HOST, &bytes);

	if (status)
		return status;
	pl_sn_data_to_host(c, ns->data + (first_block(sqe) << ns->bs_shift), bytes);
	c->reads++;
	c->counters.bytes_read += bytes;
	c->counters.blocks_read += bytes >> ns->bs_shift;
	return PL_NVME_SC_SUCCESS;
}

/* What was written must be on the medium if the host asks, or has turned the cache off. */
static unsigned int settle(struct pl_simnvme *c, const struct pl_nvme_sqe *sqe, struct pl_sn_ns *ns,
			   uint64_t first, uint64_t nr)
{
	if (!(sqe->cdw12 & PL_NVME_RW_FUA) && c->features.write_cache)
		return PL_NVME_SC_SUCCESS;
	return pl_sn_ns_sync(ns, first, nr) ? PL_NVME_SC_WRITE_FAULT : PL_NVME_SC_SUCCESS;
}

static unsigned int do_write(struct pl_simnvme *c, const struct pl_nvme_sqe *sqe,
			     struct pl_sn_ns *ns)
{
	uint64_t bytes, stored;
	unsigned int status = begin(c, sqe, ns, PL_SN_FROM_HOST, &bytes);

	if (status)
		return status;
	stored = bytes;
	if (c->rule && c->rule->action == PL_SN_TORN) {
		stored = c->rule->blocks << ns->bs_shift;
		if (stored > bytes)
			stored = bytes;
	}
	pl_sn_data_from_host(c, ns->data + (first_block(sqe) << ns->bs_shift), stored);
	c->writes++;
	c->counters.bytes_written += stored;
	c->counters.blocks_written += stored >> ns->bs_shift;
	return settle(c, sqe, ns, first_block(sqe), nr_blocks(sqe));
}

static unsigned int do_compare(struct pl_simnvme *c, const struct pl_nvme_sqe *sqe,
			       struct pl_sn_ns *ns)
{
	uint64_t bytes;
	unsigned int status = begin(c, sqe, ns, PL_SN_FROM_HOST, &bytes);

	if (status)
		return status;
	c->reads++;
	return pl_sn_data_equal(c, ns->data + (first_block(sqe) << ns->bs_shift), bytes)
		       ? PL_NVME_SC_SUCCESS
		       : PL_NVME_SC_COMPARE_FAILED;
}

/* No data are transferred, so MDTS does not matter. */
static unsigned int do_write_zeroes(struct pl_simnvme *c, const struct pl_nvme_sqe *sqe,
				    struct pl_sn_ns *ns)
{
	uint64_t first = first_block(sqe), nr = nr_blocks(sqe);

	if (!inside(ns, first, nr))
		return PL_NVME_SC_LBA_RANGE;
	pl_sn_ns_zero(ns, first, nr);
	c->writes++;
	return settle(c, sqe, ns, first, nr);
}

static unsigned int do_dsm(struct pl_simnvme *c, const struct pl_nvme_sqe *sqe, struct pl_sn_ns *ns)
{
	struct pl_nvme_dsm_range ranges[PL_NVME_DSM_MAX_RANGES];
	uint32_t nr = (sqe->cdw10 & 0xff) + 1;
	unsigned int status = pl_sn_data_find(c, sqe, nr * sizeof(*ranges), PL_SN_FROM_HOST);

	if (status)
		return status;
	pl_sn_data_from_host(c, ranges, nr * sizeof(*ranges));
	for (uint32_t i = 0; i < nr; i++)
		if (!inside(ns, ranges[i].first_block, ranges[i].nr_blocks))
			return PL_NVME_SC_LBA_RANGE;
	if (sqe->cdw11 & PL_NVME_DSM_DEALLOCATE)
		for (uint32_t i = 0; i < nr; i++)
			pl_sn_ns_zero(ns, ranges[i].first_block, ranges[i].nr_blocks);
	return PL_NVME_SC_SUCCESS;
}

static unsigned int do_flush(struct pl_simnvme *c, const struct pl_nvme_sqe *sqe)
{
	struct pl_sn_ns *ns;
	unsigned int status;

	if (sqe->nsid == PL_NVME_NSID_ALL) {
		for (uint32_t i = 0; i < c->config.nr_ns; i++)
			if (pl_sn_ns_sync(&c->ns[i], 0, c->ns[i].nr_blocks))
				return PL_NVME_SC_WRITE_FAULT;
		return PL_NVME_SC_SUCCESS;
	}
	status = find_ns(c, sqe->nsid, &ns);
	if (status)
		return status;
	return pl_sn_ns_sync(ns, 0, ns->nr_blocks) ? PL_NVME_SC_WRITE_FAULT : PL_NVME_SC_SUCCESS;
}

unsigned int pl_sn_nvm(struct pl_simnvme *c, const struct pl_nvme_sqe *sqe)
{
	unsigned int (*run)(struct pl_simnvme *, const struct pl_nvme_sqe *, struct pl_sn_ns *);
	struct pl_sn_ns *ns;
	unsigned int status;

	switch (sqe->opcode) {
	case PL_NVME_READ:
		run = do_read;
		break;
	case PL_NVME_WRITE:
		run = do_write;
		break;
	case PL_NVME_COMPARE:
		run = do_compare;
		break;
	case PL_NVME_WRITE_ZEROES:
		run = do_write_zeroes;
		break;
	case PL_NVME_DSM:
		run = do_dsm;
		break;
	case PL_NVME_FLUSH:
		return do_flush(c, sqe);
	default:
		return PL_NVME_SC_INVALID_OPCODE;
	}
	status = find_ns(c, sqe->nsid, &ns);
	return status ? status : run(c, sqe, ns);
}
