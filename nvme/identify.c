// SPDX-License-Identifier: MIT
/* Identify: the controller, namespaces and their lists. */
#include "ctrl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int identify(struct peerlane_nvme *nvme, unsigned int cns, uint32_t nsid, void *data)
{
	struct pl_nvme_sqe sqe = {
		.opcode = PL_NVME_ADMIN_IDENTIFY,
		.nsid = nsid,
		.cdw10 = cns,
	};

	return pl_nvme_admin_data(nvme, &sqe, data, PL_NVME_IDENTIFY_BYTES, NULL);
}

/* Least in the lower half, most in the upper one. */
static bool within(uint8_t bounds, unsigned int value)
{
	return (bounds & 0xfu) <= value && (unsigned int)(bounds >> 4) >= value;
}

static bool same(const struct pl_nvme_id_ctrl *a, const struct pl_nvme_id_ctrl *b)
{
	return !memcmp(a->sn, b->sn, sizeof(a->sn)) && !memcmp(a->mn, b->mn, sizeof(a->mn)) &&
	       a->mdts == b->mdts;
}

int pl_nvme_identify_ctrl(struct peerlane_nvme *nvme)
{
	struct pl_nvme_id_ctrl id;
	unsigned int shift;
	int rc = identify(nvme, PL_NVME_CNS_CTRL, 0, &id);

	if (rc)
		return rc;
	if (!within(id.sqes, PL_NVME_IOSQES) || !within(id.cqes, PL_NVME_IOCQES))
		return -EOPNOTSUPP;
	/*
	 * After a reset it must be the one that it was: what we know of it is used on, and by threads that
	 * take no lock, so it does not change.
	 */
	if (nvme->identified)
		return same(&id, &nvme->id) ? 0 : -ENODEV;
	nvme->id = id;
	nvme->identified = true;
	shift = 12 + PL_NVME_CAP_MPSMIN(nvme->cap) + id.mdts;
	nvme->max_transfer_bytes = id.mdts && shift < 64 ? (uint64_t)1 << shift : 0;
	if (!nvme->t->ops->remote)
		pl_nvme_cmb_find(nvme);
	return 0;
}

int peerlane_nvme_identify(struct peerlane_nvme *nvme, unsigned int cns, uint32_t nsid, void *data)
{
	int rc;

	if (!nvme || !data || cns > 0xff)
		return -EINVAL;
	pthread_mutex_lock(&nvme->lock);
	rc = identify(nvme, cns, nsid, data);
	pthread_mutex_unlock(&nvme->lock);
	return rc;
}

int peerlane_nvme_ns_list(struct peerlane_nvme *nvme, uint32_t after, uint32_t *ids,
			  unsigned int max)
{
	uint32_t list[PL_NVME_NS_LIST_ENTRIES], last = after;
	unsigned int nr = 0;
	int rc;

	if (!nvme || (!ids && max) || max > INT32_MAX)
		return -EINVAL;
	/* The two highest numbers are not ids that a list can begin after. */
	while (nr < max && last < 0xfffffffeu) {
		rc = peerlane_nvme_identify(nvme, PL_NVME_CNS_NS_ACTIVE, last, list);
		if (rc)
			return rc;
		for (unsigned int i = 0; i < PL_NVME_NS_LIST_ENTRIES && nr < max; i++) {
			if (!list[i])
				return (int)nr;
			if (list[i] <= last || list[i] == PL_NVME_NSID_ALL)
				return -EPROTO;
			ids[nr++] = last = list[i];
		}
	}
	return (int)nr;
}

/* What the driver needs to know of a namespace. */
static int understand(const struct pl_nvme_id_ns *id, struct peerlane_nvme_ns *ns)
{
	unsigned int index = PL_NVME_FLBAS_INDEX(id->flbas), shift;
	uint32_t format;

	if (!id->nsze)
		return -ENXIO; /* not active */
	/* The upper bits of the index mean something only where there are so many formats. */
	if (id->nlbaf < 16)
		index &= 0xf;
	if (index > id->nlbaf || index >= PL_NVME_MAX_FORMATS)
		return -EPROTO;
	format = id->lbaf[index];
	shift = PL_NVME_LBAF_LBADS(format);
	if (shift < 9)
		return -EPROTO;
	if (shift > 16 || PL_NVME_LBAF_MS(format) || id->dps & 7)
		return -EOPNOTSUPP;
	if (id->nsze > UINT64_MAX >> shift)
		return -EPROTO;
	ns->block_shift = shift;
	ns->nr_blocks = id->nsze;
	ns->best_boundary = id->noiob;
	ns->read_only = id->nsattr & 1;
	return 0;
}

int peerlane_nvme_ns_open(struct peerlane_nvme *nvme, uint32_t nsid, struct peerlane_nvme_ns **out)
{
	struct peerlane_nvme_ns new = { .nvme = nvme, .nsid = nsid }, *ns;
	struct pl_nvme_id_ns id;
	int rc;

	if (!nvme || !out)
		return -EINVAL;
	if (!nsid || nsid == PL_NVME_NSID_ALL)
		return -ENXIO;
	pthread_mutex_lock(&nvme->lock);
	rc = nsid > nvme->id.nn ? -ENXIO : identify(nvme, PL_NVME_CNS_NS, nsid, &id);
	if (!rc)
		rc = understand(&id, &new);
	if (rc)
		goto out;
	for (ns = nvme->namespaces; ns; ns = ns->next)
		if (ns->nsid == nsid && ns->block_shift == new.block_shift &&
		    ns->nr_blocks == new.nr_blocks && ns->best_boundary == new.best_boundary &&
		    ns->read_only == new.read_only)
			break;
	if (!ns) {
		ns = malloc(sizeof(*ns));
		if (!ns) {
			rc = -ENOMEM;
			goto out;
		}
		*ns = new;
		ns->next = nvme->namespaces;
		nvme->namespaces = ns;
	}
	*out = ns;
out:
	pthread_mutex_unlock(&nvme->lock);
	return rc;
}

int peerlane_nvme_ns_get_info(const struct peerlane_nvme_ns *ns, struct peerlane_nvme_ns_info *info)
{
	if (!ns || !info || info->size != sizeof(*info))
		return -EINVAL;
	*info = (struct peerlane_nvme_ns_info){
		.size = sizeof(*info),
		.nsid = ns->nsid,
		.block_bytes = 1u << ns->block_shift,
		.nr_blocks = ns->nr_blocks,
		.best_boundary = ns->best_boundary,
		.read_only = ns->read_only,
	};
	return 0;
}
