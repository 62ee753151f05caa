// SPDX-License-Identifier: MIT
/*
 * What a client may ask of the owner of a controller. Nothing that comes from it is believed: a command
 * is made anew out of those fields that were checked.
 */
#include "serve.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* Of Get Log Page's cdw10: the page and the length, and nothing that is done by reading. */
#define LOG_CDW10 (0xffffu << PL_NVME_LOG_NUMD_SHIFT | PL_NVME_LOG_RAE | 0xffu)

/* The id, if it is the client's. */
static struct pl_nvme_qid *own_queue(struct peerlane_nvme_server *s,
				     const struct pl_nvme_client *client, uint32_t qid)
{
	return qid && qid < s->nr_qids && s->qids[qid].client == client ? &s->qids[qid] : NULL;
}

/* ------------------------------------------------------------------ queues */

static int delete_one(struct peerlane_nvme_server *s, uint8_t opcode, uint32_t qid, bool *there)
{
	struct pl_nvme_sqe sqe = { .opcode = opcode, .cdw10 = qid };
	int rc;

	if (!*there)
		return 0;
	rc = pl_nvme_admin_locked(s->nvme, &sqe, NULL);
	if (!rc)
		*there = false;
	return rc;
}

/* With the lock held. The submission queue goes first: when that is done, so are its commands. */
static int delete_pair(struct peerlane_nvme_server *s, uint32_t qid)
{
	struct pl_nvme_qid *q = &s->qids[qid];
	int rc = delete_one(s, PL_NVME_ADMIN_DELETE_SQ, qid, &q->has_sq);

	return rc ? rc : delete_one(s, PL_NVME_ADMIN_DELETE_CQ, qid, &q->has_cq);
}

int pl_nvme_client_delete_queues(struct peerlane_nvme_server *s, struct pl_nvme_client *client)
{
	struct peerlane_nvme *nvme = s->nvme;
	int rc = 0, dead;

	pthread_mutex_lock(&nvme->lock);
	/* A reset has deleted all queues; the server will notice. */
	for (uint32_t qid = 1; qid < s->nr_qids && !rc; qid++)
		if (s->qids[qid].client == client && nvme->generation == s->generation)
			rc = delete_pair(s, qid);
	if (rc && nvme->generation == s->generation && !nvme->dead)
		pl_nvme_reset_locked(nvme);
	dead = nvme->dead;
	pthread_mutex_unlock(&nvme->lock);
	return dead;
}

static int take_queue(struct peerlane_nvme_server *s, struct pl_nvme_client *client,
		      struct pl_nvme_answer *answer)
{
	uint16_t qid;
	int rc;

	if (client->nr_queues == s->opt.nr_queues)
		return -ENOSPC;
	pthread_mutex_lock(&s->nvme->lock);
	rc = pl_nvme_qid_take(s->nvme, &qid);
	pthread_mutex_unlock(&s->nvme->lock);
	if (rc)
		return rc;
	s->qids[qid] = (struct pl_nvme_qid){ .client = client };
	client->nr_queues++;
	answer->value = qid;
	return 0;
}

static int give_queue(struct peerlane_nvme_server *s, struct pl_nvme_client *client, uint32_t qid)
{
	struct pl_nvme_qid *q = own_queue(s, client, qid);

	if (!q)
		return -ENOENT;
	if (q->has_sq || q->has_cq)
		return -EBUSY;
	q->client = NULL;
	client->nr_queues--;
	pthread_mutex_lock(&s->nvme->lock);
	pl_nvme_qid_give(s->nvme, (uint16_t)qid);
	pthread_mutex_unlock(&s->nvme->lock);
	return 0;
}

/* ------------------------------------------------------------------ admin commands */

/* A queue command, without what is not for clients: interrupts, priorities, completion queues of others. */
static int clean_queue(struct peerlane_nvme_server *s, const struct pl_nvme_client *client,
		       const struct pl_nvme_sqe *in, struct pl_nvme_sqe *out)
{
	uint32_t qid = in->cdw10 & 0xffff;

	if (!own_queue(s, client, qid))
		return -EPERM;
	out->cdw10 = qid;
	if (in->opcode == PL_NVME_ADMIN_DELETE_SQ || in->opcode == PL_NVME_ADMIN_DELETE_CQ)
		return 0;
	out->cdw10 = in->cdw10;
	out->dptr.prp.prp1 = in->dptr.prp.prp1;
	out->cdw11 = in->cdw11 & PL_NVME_QUEUE_PC;
	if (in->opcode == PL_NVME_ADMIN_CREATE_SQ) {
		if (in->cdw11 >> PL_NVME_SQ_CQID_SHIFT != qid)
			return -EPERM;
		out->cdw11 |= qid << PL_NVME_SQ_CQID_SHIFT;
	}
	return 0;
}

/* Only as much is fetched as there is room for, and events stay for the owner to see. */
static int clean_log(const struct pl_nvme_sqe *in, uint32_t bytes, struct pl_nvme_sqe *out)
{
	uint64_t dwords =
		(in->cdw10 >> PL_NVME_LOG_NUMD_SHIFT | (in->cdw11 & 0xffffu) << 16) + 1ull;

	if (in->cdw10 & ~LOG_CDW10 || in->cdw11 >> 16 || in->cdw14)
		return -EPERM;
	if (!bytes || dwords * 4 != bytes)
		return -EINVAL;
	out->cdw10 = in->cdw10 | PL_NVME_LOG_RAE;
	out->cdw11 = in->cdw11;
	out->cdw12 = in->cdw12;
	out->cdw13 = in->cdw13;
	return 0;
}

/*
 * What a command that clients may give is made of, and how many bytes it is given room for, which can be
 * more than the client wants: -EPERM it may not.
 */
static int clean(struct peerlane_nvme_server *s, const struct pl_nvme_client *client,
		 const struct pl_nvme_ask *ask, struct pl_nvme_sqe *out, uint32_t *room)
{
	const struct pl_nvme_sqe *in = &ask->sqe;
	const struct pl_nvme_qid *q;

	*out = (struct pl_nvme_sqe){ .opcode = in->opcode, .nsid = in->nsid };
	*room = ask->bytes;
	switch (in->opcode) {
	case PL_NVME_ADMIN_IDENTIFY:
		*room = PL_NVME_IDENTIFY_BYTES;
		out->cdw10 = in->cdw10;
		out->cdw11 = in->cdw11;
		return ask->bytes == *room ? 0 : -EINVAL;
	case PL_NVME_ADMIN_GET_LOG_PAGE:
		return clean_log(in, ask->bytes, out);
	case PL_NVME_ADMIN_GET_FEATURES:
		/* Some have data, and none more than this. */
		*room = 4096;
		out->cdw10 = in->cdw10;
		out->cdw11 = in->cdw11;
		return ask->bytes <= *room ? 0 : -EINVAL;
	case PL_NVME_ADMIN_ABORT:
		q = own_queue(s, client, in->cdw10 & 0xffff);
		out->cdw10 = in->cdw10;
		return !q || !q->has_sq ? -EPERM : ask->bytes ? -EINVAL : 0;
	case PL_NVME_ADMIN_CREATE_SQ:
	case PL_NVME_ADMIN_DELETE_SQ:
	case PL_NVME_ADMIN_CREATE_CQ:
	case PL_NVME_ADMIN_DELETE_CQ:
		return ask->bytes ? -EINVAL : clean_queue(s, client, in, out);
	default:
		return -EPERM;
	}
}

/* A command was done, and succeeded: which queues are there now? */
static void remember(struct peerlane_nvme_server *s, const struct pl_nvme_sqe *sqe)
{
	struct pl_nvme_qid *q = &s->qids[sqe->cdw10 & 0xffff];

	switch (sqe->opcode) {
	case PL_NVME_ADMIN_CREATE_CQ:
		q->has_cq = true;
		break;
	case PL_NVME_ADMIN_CREATE_SQ:
		q->has_sq = true;
		break;
	case PL_NVME_ADMIN_DELETE_CQ:
		q->has_cq = false;
		break;
	case PL_NVME_ADMIN_DELETE_SQ:
		q->has_sq = false;
		break;
	default:
		break;
	}
}

static bool is_about_queue(uint8_t opcode)
{
	return opcode == PL_NVME_ADMIN_CREATE_SQ || opcode == PL_NVME_ADMIN_CREATE_CQ ||
	       opcode == PL_NVME_ADMIN_DELETE_SQ || opcode == PL_NVME_ADMIN_DELETE_CQ;
}

static int admin(struct peerlane_nvme_server *s, struct pl_nvme_client *client,
		 const struct pl_nvme_ask *ask, struct pl_nvme_answer *answer)
{
	struct peerlane_nvme_completion cpl = { .user = 1 };
	struct peerlane_nvme *nvme = s->nvme;
	struct pl_nvme_sqe sqe;
	uint32_t room;
	int rc;

	if (ask->bytes > sizeof(s->data) || ask->bytes % 4)
		return -EINVAL;
	rc = clean(s, client, ask, &sqe, &room);
	if (rc)
		return rc;
	if (nvme->max_transfer_bytes && room > nvme->max_transfer_bytes)
		return -EINVAL;
	pthread_mutex_lock(&nvme->lock);
	if (is_about_queue(sqe.opcode)) {
		rc = pl_nvme_admin_locked(nvme, &sqe, &cpl);
		if (!rc)
			remember(s, &sqe);
	} else {
		rc = pl_nvme_admin_data(nvme, &sqe, s->data, room, &cpl);
	}
	/* With a completion, whatever it says, the command was done. */
	if (!cpl.user)
		answer->cqe = nvme->sync_cqe;
	pthread_mutex_unlock(&nvme->lock);
	if (cpl.user)
		return rc ? rc : -EIO;
	answer->bytes = rc ? 0 : ask->bytes;
	/* The client expects as many bytes as it asked for, or none and the status. */
	return 0;
}

/* ------------------------------------------------------------------ questions */

static int hello(struct peerlane_nvme_server *s, struct pl_nvme_client *client,
		 const struct pl_nvme_ask *ask, struct pl_nvme_answer *answer, int *fd)
{
	struct pl_nvme_transport *t = s->nvme->t;
	struct pl_nvme_grant grant;
	int rc;

	if (client->greeted)
		return -EPROTO;
	if (ask->value != PL_NVME_SERVED_VERSION)
		return -EPROTONOSUPPORT;
	if (s->nr_greeted == s->opt.nr_clients)
		return -EBUSY;
	rc = t->ops->grant(t, PL_NVME_DOORBELL_CQ(s->nr_qids - 1, s->nvme->dstrd) + 4, &grant);
	if (rc)
		return rc;
	client->greeted = true;
	s->nr_greeted++;
	client->grant = grant.id;
	strncpy(answer->kind, grant.kind, sizeof(answer->kind) - 1);
	answer->value = s->opt.nr_queues;
	*fd = grant.fd;
	return 0;
}

static int carry_out(struct peerlane_nvme_server *s, struct pl_nvme_client *client,
		     const struct pl_nvme_ask *ask, struct pl_nvme_answer *answer)
{
	switch (ask->op) {
	case PL_NVME_ASK_TAKE_QUEUE:
		return take_queue(s, client, answer);
	case PL_NVME_ASK_GIVE_QUEUE:
		return give_queue(s, client, ask->value);
	case PL_NVME_ASK_ADMIN:
		return admin(s, client, ask, answer);
	case PL_NVME_ASK_RESTART:
		return pl_nvme_client_delete_queues(s, client);
	default:
		return -EPROTO;
	}
}

bool pl_nvme_client_serve(struct peerlane_nvme_server *s, struct pl_nvme_client *client)
{
	struct pl_nvme_answer answer = { .rc = 0 };
	struct pl_nvme_ask ask = { .op = 0 };
	int rc, fd = -1;

	rc = pl_nvme_served_receive(client->sock, &ask, sizeof(ask), NULL, 0, NULL);
	if (rc == -EAGAIN)
		return true;
	if (rc)
		return false;
	answer.seq = ask.seq;
	if (ask.op == PL_NVME_ASK_HELLO) {
		answer.rc = hello(s, client, &ask, &answer, &fd);
		pl_nvme_server_note(
			s, answer.rc ? PEERLANE_NVME_SERVE_REFUSED : PEERLANE_NVME_SERVE_GRANTED,
			client, answer.rc ? 0 : s->opt.nr_queues, answer.rc);
	} else if (client->greeted) {
		answer.rc = carry_out(s, client, &ask, &answer);
	} else {
		answer.rc = -EPROTO;
	}
	/* A client that asks and does not listen is not waited for. */
	rc = pl_nvme_served_send(client->sock, &answer, sizeof(answer), s->data, answer.bytes, fd);
	if (fd >= 0)
		close(fd);
	return !rc && client->greeted && answer.rc != -EPROTO;
}
