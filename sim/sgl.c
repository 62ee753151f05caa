// SPDX-License-Identifier: MIT
/* SGL lists: a descriptor in the command, which may lead to segments of more of them. */
#include "sgl.h"

/* Descriptors of one segment that are taken at most. */
#define MAX_DESCRIPTORS 65536u
/* Segments of one command: a chain that is longer leads nowhere. */
#define MAX_SEGMENTS 1024u

struct walk {
	enum pl_sn_way way;
	uint64_t left; /* bytes of the command to come */
};

static unsigned int take_bucket(struct pl_simnvme *c, struct walk *w, uint64_t bytes)
{
	/* Data for the host can be thrown away; data from it cannot come out of a bucket, which is passed over. */
	if (w->way != PL_SN_TO_HOST || !bytes)
		return PL_NVME_SC_SUCCESS;
	if (bytes > w->left)
		return PL_NVME_SC_SGL_LENGTH;
	if (!pl_sn_data_room(c))
		return PL_NVME_SC_INTERNAL;
	c->segs[c->nr_segs++] = (struct pl_sn_seg){ NULL, bytes };
	w->left -= bytes;
	return PL_NVME_SC_SUCCESS;
}

/* A descriptor of data or a bucket. */
static unsigned int take_data(struct pl_simnvme *c, struct walk *w, const struct pl_nvme_sgl *d)
{
	unsigned int status;

	/* The lower half says what the address means: only addresses of memory here. */
	if (d->type & 0xf)
		return PL_NVME_SC_SGL_TYPE;
	switch (d->type >> 4) {
	case PL_NVME_SGL_BIT_BUCKET:
		return take_bucket(c, w, d->length);
	case PL_NVME_SGL_DATA:
		if (d->length > w->left)
			return PL_NVME_SC_SGL_LENGTH;
		if (c->config.sgl == PL_NVME_SGLS_DWORD && (d->addr | d->length) & 3)
			return PL_NVME_SC_SGL_GRANULARITY;
		status = pl_sn_data_add(c, d->addr, d->length, w->way);
		if (!status)
			w->left -= d->length;
		return status;
	default:
		return PL_NVME_SC_SGL_TYPE;
	}
}

static bool is_segment(const struct pl_nvme_sgl *d)
{
	return d->type >> 4 == PL_NVME_SGL_SEGMENT || d->type >> 4 == PL_NVME_SGL_LAST_SEGMENT;
}

/* All descriptors of a segment; *d becomes the one that leads to the next, if it has one. */
static unsigned int take_segment(struct pl_simnvme *c, struct walk *w, struct pl_nvme_sgl *d,
				 bool *more)
{
	uint64_t at = d->addr, nr = d->length / sizeof(*d);
	bool is_last = d->type >> 4 == PL_NVME_SGL_LAST_SEGMENT, cmb = false;

	*more = false;
	if (d->type & 0xf)
		return PL_NVME_SC_SGL_TYPE;
	if (!d->length || d->length % sizeof(*d) || (c->config.sgl == PL_NVME_SGLS_DWORD && at & 3))
		return PL_NVME_SC_SGL_SEGMENT;
	if (nr > MAX_DESCRIPTORS)
		return PL_NVME_SC_SGL_COUNT;
	for (uint64_t i = 0; i < nr; i++, at += sizeof(*d)) {
		unsigned int status;

		if (!pl_sn_dma_read(&c->dma, at, d, sizeof(*d), &cmb))
			return PL_NVME_SC_DATA_TRANSFER;
		if (cmb && !(c->config.cmb_use & PL_NVME_CMBSZ_LISTS))
			return PL_NVME_SC_INVALID_CMB;
		if (is_segment(d)) {
			/* Only the last descriptor, and not of the last segment. */
			if (is_last || i != nr - 1)
				return PL_NVME_SC_SGL_SEGMENT;
			*more = true;
			return PL_NVME_SC_SUCCESS;
		}
		status = take_data(c, w, d);
		if (status)
			return status;
	}
	/* A segment that is not the last leads to another one. */
	return is_last ? PL_NVME_SC_SUCCESS : PL_NVME_SC_SGL_SEGMENT;
}

unsigned int pl_sn_sgl_find(struct pl_simnvme *c, const struct pl_nvme_sqe *sqe, uint64_t bytes,
			    enum pl_sn_way way)
{
	struct pl_nvme_sgl d = sqe->dptr.sgl;
	struct walk w = { way, bytes };
	unsigned int status = PL_NVME_SC_SUCCESS, nr = 0;
	bool more = is_segment(&d);

	if (!more)
		status = take_data(c, &w, &d);
	while (!status && more) {
		if (++nr > MAX_SEGMENTS)
			return PL_NVME_SC_SGL_COUNT;
		status = take_segment(c, &w, &d, &more);
	}
	if (!status && w.left)
		return PL_NVME_SC_SGL_LENGTH;
	return status;
}
