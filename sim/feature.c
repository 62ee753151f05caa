// SPDX-License-Identifier: MIT
/* Features. None is saved, all go back to their defaults with a reset. */
#include "feature.h"

#include "event.h"

#define CHANGEABLE 0x4u
#define PER_NAMESPACE 0x2u
#define OVER_TEMPERATURE 343u /* default threshold, kelvin */

/* What there is to know about a feature. Its value is a word, of the controller or of a namespace. */
struct feature {
	uint32_t capabilities; /* as get features with select "supported" gives them; 0: none */
	uint32_t mask;	       /* bits of the value that may be set */
	size_t at;	       /* in struct pl_sn_features */
};

#define PLACE(member) offsetof(struct pl_sn_features, member)
static const struct feature features[] = {
	[PL_NVME_FEAT_ARBITRATION] = { CHANGEABLE, 0xffffff07, PLACE(arbitration) },
	[PL_NVME_FEAT_POWER] = { CHANGEABLE, 0xff, PLACE(power) },
	[PL_NVME_FEAT_TEMPERATURE] = { CHANGEABLE, 0x3fffff, PLACE(over_temperature) },
	[PL_NVME_FEAT_ERROR_RECOVERY] = { CHANGEABLE | PER_NAMESPACE, 0xffff, 0 },
	[PL_NVME_FEAT_WRITE_CACHE] = { CHANGEABLE, 0x1, PLACE(write_cache) },
	[PL_NVME_FEAT_NR_QUEUES] = { CHANGEABLE, 0xffffffff, PLACE(nr_queues) },
	[PL_NVME_FEAT_IRQ_COALESCING] = { CHANGEABLE, 0xffff, PLACE(coalescing) },
	[PL_NVME_FEAT_IRQ_VECTOR] = { CHANGEABLE, 0x1ffff, 0 },
	[PL_NVME_FEAT_WRITE_ATOMICITY] = { CHANGEABLE, 0x1, PLACE(atomicity) },
	[PL_NVME_FEAT_ASYNC_EVENT] = { CHANGEABLE, 0x1f, PLACE(events) },
};

static struct pl_sn_features defaults(const struct pl_simnvme *c)
{
	return (struct pl_sn_features){
		.over_temperature = OVER_TEMPERATURE,
		.write_cache = c->config.vwc,
		.nr_queues = (c->config.queues - 1) | (c->config.queues - 1) << 16,
		.nr_sqs = c->config.queues,
		.nr_cqs = c->config.queues,
	};
}

void pl_sn_feature_reset(struct pl_simnvme *c)
{
	c->features = defaults(c);
	for (uint32_t i = 0; i < c->config.nr_ns; i++)
		c->ns[i].error_recovery = 0;
}

static const struct feature *find(const struct pl_simnvme *c, uint32_t id)
{
	if (id >= sizeof(features) / sizeof(*features) || !features[id].capabilities)
		return NULL;
	if (id == PL_NVME_FEAT_WRITE_CACHE && !c->config.vwc)
		return NULL;
	return &features[id];
}

/* Which of the two thresholds, or NULL; there is no sensor but the composite one. */
static uint32_t *threshold(struct pl_sn_features *in, uint32_t cdw11)
{
	uint32_t sensor = cdw11 >> 16 & 0xf, type = cdw11 >> 20 & 0x3;

	if ((sensor && sensor != 0xf) || type > 1)
		return NULL;
	return type ? &in->under_temperature : &in->over_temperature;
}

static unsigned int check_nsid(struct pl_simnvme *c, const struct feature *f, uint32_t nsid)
{
	if (!(f->capabilities & PER_NAMESPACE))
		return nsid && nsid != PL_NVME_NSID_ALL ? PL_NVME_SC_FEATURE_NOT_NS
							: PL_NVME_SC_SUCCESS;
	if (nsid == PL_NVME_NSID_ALL)
		return PL_NVME_SC_SUCCESS;
	if (!nsid || nsid > c->config.nn)
		return PL_NVME_SC_INVALID_NS;
	return pl_sn_ns_of(c, nsid) ? PL_NVME_SC_SUCCESS : PL_NVME_SC_INVALID_FIELD;
}

/* Whether a vector's interrupts may be put together. None is ever sent. */
static unsigned int set_vector(struct pl_simnvme *c, uint32_t cdw11)
{
	uint32_t vector = cdw11 & 0xffff;

	if (vector >= c->config.vectors)
		return PL_NVME_SC_INVALID_FIELD;
	c->features.alone[vector] = (uint8_t)(cdw11 >> 16);
	return PL_NVME_SC_SUCCESS;
}

static unsigned int get_vector(struct pl_sn_features *in, uint32_t nr, uint32_t vector,
			       uint32_t *result)
{
	if (vector >= nr)
		return PL_NVME_SC_INVALID_FIELD;
	*result = vector | (uint32_t)in->alone[vector] << 16;
	return PL_NVME_SC_SUCCESS;
}

unsigned int pl_sn_feature_get(struct pl_simnvme *c, const struct pl_nvme_sqe *sqe,
			       uint32_t *result)
{
	uint32_t id = sqe->cdw10 & 0xff, select = sqe->cdw10 >> PL_NVME_FEAT_SEL_SHIFT & 0x7;
	struct pl_sn_features first = defaults(c);
	struct pl_sn_features *in = select == PL_NVME_FEAT_SEL_CURRENT ? &c->features : &first;
	const struct feature *f = find(c, id);
	unsigned int status;
	uint32_t *value;

	if (!f || select > PL_NVME_FEAT_SEL_SUPPORTED)
		return PL_NVME_SC_INVALID_FIELD;
	if (select == PL_NVME_FEAT_SEL_SUPPORTED) {
		*result = f->capabilities;
		return PL_NVME_SC_SUCCESS;
	}
	status = check_nsid(c, f, sqe->nsid);
	if (status)
		return status;
	if (f->capabilities & PER_NAMESPACE) {
		/* Its value is that of one namespace. */
		if (sqe->nsid == PL_NVME_NSID_ALL)
			return PL_NVME_SC_INVALID_NS;
		*result = select ? 0 : pl_sn_ns_of(c, sqe->nsid)->error_recovery;
		return PL_NVME_SC_SUCCESS;
	}
	if (id == PL_NVME_FEAT_IRQ_VECTOR)
		return get_vector(in, c->config.vectors, sqe->cdw11, result);
	value = (uint32_t *)((char *)in + f->at);
	if (id == PL_NVME_FEAT_TEMPERATURE) {
		value = threshold(in, sqe->cdw11);
		if (!value)
			return PL_NVME_SC_INVALID_FIELD;
	} else if (c->config.strict && sqe->cdw11) {
		return PL_NVME_SC_INVALID_FIELD;
	}
	*result = *value;
	return PL_NVME_SC_SUCCESS;
}

static unsigned int set_nr_queues(struct pl_simnvme *c, uint32_t cdw11, uint32_t *result)
{
	uint32_t nsq = cdw11 & PL_NVME_NR_QUEUES_MASK;
	uint32_t ncq = cdw11 >> PL_NVME_NR_QUEUES_CQ_SHIFT;

	if (c->nr_io_queues)
		return PL_NVME_SC_SEQUENCE;
	if (nsq == PL_NVME_NR_QUEUES_INVALID || ncq == PL_NVME_NR_QUEUES_INVALID)
		return PL_NVME_SC_INVALID_FIELD;
	if (nsq >= c->config.queues)
		nsq = c->config.queues - 1;
	if (ncq >= c->config.queues)
		ncq = c->config.queues - 1;
	c->features.nr_sqs = nsq + 1;
	c->features.nr_cqs = ncq + 1;
	c->features.nr_queues = nsq | ncq << PL_NVME_NR_QUEUES_CQ_SHIFT;
	*result = c->features.nr_queues;
	return PL_NVME_SC_SUCCESS;
}

static void set_namespaces(struct pl_simnvme *c, uint32_t nsid, uint32_t value)
{
	for (uint32_t i = 0; i < c->config.nr_ns; i++)
		if (nsid == PL_NVME_NSID_ALL || nsid == i + 1)
			c->ns[i].error_recovery = value;
}

unsigned int pl_sn_feature_set(struct pl_simnvme *c, const struct pl_nvme_sqe *sqe,
			       uint32_t *result)
{
	uint32_t id = sqe->cdw10 & 0xff, *value;
	const struct feature *f = find(c, id);
	unsigned int status;

	if (!f)
		return PL_NVME_SC_INVALID_FIELD;
	if (sqe->cdw10 & PL_NVME_FEAT_SAVE)
		return PL_NVME_SC_FEATURE_NOT_SAVEABLE;
	status = check_nsid(c, f, sqe->nsid);
	if (status)
		return status;
	if (sqe->cdw11 & ~f->mask)
		return PL_NVME_SC_INVALID_FIELD;
	switch (id) {
	case PL_NVME_FEAT_NR_QUEUES:
		return set_nr_queues(c, sqe->cdw11, result);
	case PL_NVME_FEAT_IRQ_VECTOR:
		return set_vector(c, sqe->cdw11);
	case PL_NVME_FEAT_ERROR_RECOVERY:
		set_namespaces(c, sqe->nsid, sqe->cdw11);
		return PL_NVME_SC_SUCCESS;
	case PL_NVME_FEAT_POWER:
		/* There is one power state. */
		if (sqe->cdw11 & 0x1f)
			return PL_NVME_SC_INVALID_FIELD;
		break;
	case PL_NVME_FEAT_TEMPERATURE:
		value = threshold(&c->features, sqe->cdw11);
		if (!value)
			return PL_NVME_SC_INVALID_FIELD;
		*value = sqe->cdw11 & 0xffff;
		pl_sn_event_check_warning(c);
		return PL_NVME_SC_SUCCESS;
	default:
		break;
	}
	value = (uint32_t *)((char *)&c->features + f->at);
	*value = sqe->cdw11;
	if (id == PL_NVME_FEAT_ASYNC_EVENT)
		pl_sn_event_check_warning(c);
	return PL_NVME_SC_SUCCESS;
}
