// SPDX-License-Identifier: MIT
/* The threads that serve queues: their round, their rest, and how they are stopped. */
#include "proxy.h"

#include "error.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

/* With nothing to do, look for so long before resting; then rest longer each time. */
#define LOOK_NS 20000u
#define SHORTEST_NAP_NS 1000u
#define LONGEST_NAP_NS 50000u
#define DRAIN_WAIT_US 1000u

enum want {
	WANT_PARK,
	WANT_GO,
	WANT_END,
};

/* How long a proxy has had nothing to do. */
struct rest {
	uint64_t since_ns; /* 0: it had */
	uint32_t nap_ns;
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* Commands that can be fetched: there is room for the completions of all that are on their way. */
static uint32_t fresh(struct pl_proxy_queue *q)
{
	const uint32_t mask = q->depth - 1;
	const uint32_t doorbell = __atomic_load_n(q->sq_doorbell, __ATOMIC_ACQUIRE);
	uint32_t nr = (doorbell - q->head) & mask, room, more;

	if (doorbell > mask) {
		if (doorbell != q->odd_doorbell)
			pl_proxy_count(&q->counts.bad_doorbells, 1);
		q->odd_doorbell = doorbell;
		return 0;
	}
	if (!nr)
		return 0;
	room = mask - (q->tail - q->taken) - q->in_flight;
	if (room < nr) {
		more = (__atomic_load_n(q->cq_doorbell, __ATOMIC_ACQUIRE) - q->taken) & mask;
		if (more <= q->tail - q->taken) {
			q->taken += more;
			room += more;
		}
	}
	return nr < room ? nr : room;
}

static unsigned int look_round(struct pl_proxy *p)
{
	struct pl_proxies *ps = p->all;
	unsigned int moved = 0;

	for (uint32_t i = p->index; i < ps->dev->shape.nr_queues; i += ps->nr_threads) {
		struct pl_proxy_queue *q = &ps->queues[i];
		const uint32_t nr = fresh(q);

		if (!nr)
			continue;
		pl_proxy_count(&q->counts.commands, nr);
		ps->server->serve(p, q, nr);
		moved += nr;
	}
	if (ps->server->progress)
		moved += ps->server->progress(p, 0);
	return moved;
}

static void rest(struct pl_proxy *p, struct rest *r)
{
	const struct pl_proxy_server *server = p->all->server;
	struct timespec nap = { .tv_sec = 0 };
	uint64_t now = now_ns();

	if (!r->since_ns) {
		*r = (struct rest){ .since_ns = now, .nap_ns = SHORTEST_NAP_NS };
	} else if (now - r->since_ns < LOOK_NS) {
		relax();
	} else if (server->busy && server->busy(p)) {
		server->progress(p, (r->nap_ns + 999) / 1000);
	} else {
		nap.tv_nsec = r->nap_ns;
		nanosleep(&nap, NULL);
	}
	if (now - r->since_ns >= LOOK_NS && r->nap_ns < LONGEST_NAP_NS)
		r->nap_ns = r->nap_ns * 2 < LONGEST_NAP_NS ? r->nap_ns * 2 : LONGEST_NAP_NS;
}

static void drain(struct pl_proxy *p)
{
	const struct pl_proxy_server *server = p->all->server;

	while (server->busy && server->busy(p))
		server->progress(p, DRAIN_WAIT_US);
}

/* Wait to be let go. Returns false: end. */
static bool park(struct pl_proxy *p)
{
	struct pl_proxies *ps = p->all;
	bool go;

	pthread_mutex_lock(&ps->lock);
	while (ps->want == WANT_PARK) {
		/* Each time: it may have been let go and called back before it woke. */
		if (!p->parked)
			pthread_cond_broadcast(&ps->moved);
		p->parked = true;
		pthread_cond_wait(&ps->moved, &ps->lock);
	}
	p->parked = false;
	go = ps->want == WANT_GO;
	pthread_mutex_unlock(&ps->lock);
	return go;
}

static void *run(void *arg)
{
	struct pl_proxy *p = arg;
	struct rest r = { 0 };

	/* Naps are shorter than the slack that timers have otherwise. */
	prctl(PR_SET_TIMERSLACK, 1000ul, 0ul, 0ul, 0ul);
	for (;;) {
		if (__atomic_load_n(&p->all->want, __ATOMIC_ACQUIRE) != WANT_GO) {
			drain(p);
			if (!park(p))
				return NULL;
			r.since_ns = 0;
		}
		if (look_round(p))
			r.since_ns = 0;
		else
			rest(p, &r);
	}
}

static void set_want(struct pl_proxies *ps, enum want want)
{
	pthread_mutex_lock(&ps->lock);
	__atomic_store_n(&ps->want, (int)want, __ATOMIC_RELEASE);
	pthread_cond_broadcast(&ps->moved);
	pthread_mutex_unlock(&ps->lock);
}

void pl_proxies_park(struct pl_proxies *ps)
{
	set_want(ps, WANT_PARK);
	pthread_mutex_lock(&ps->lock);
	for (uint32_t i = 0; i < ps->nr_started; i++)
		while (!ps->threads[i].parked)
			pthread_cond_wait(&ps->moved, &ps->lock);
	pthread_mutex_unlock(&ps->lock);
}

void pl_proxies_go(struct pl_proxies *ps)
{
	set_want(ps, WANT_GO);
	/* Whoever parks next must not find the mark of before. */
	pthread_mutex_lock(&ps->lock);
	for (uint32_t i = 0; i < ps->nr_started; i++)
		ps->threads[i].parked = false;
	pthread_mutex_unlock(&ps->lock);
}

int pl_proxies_clear(struct pl_proxies *ps)
{
	struct peerlane_device *dev = ps->dev;
	struct pl_face *faces = calloc(dev->shape.nr_queues, sizeof(*faces));
	int err;

	if (!faces)
		return pl_fail(-ENOMEM, "no memory for %u queues", dev->shape.nr_queues);
	memset(dev->rings.cpu, 0, dev->rings.bytes);
	for (uint32_t i = 0; i < dev->shape.nr_queues; i++) {
		struct pl_proxy_queue *q = &ps->queues[i];

		q->head = q->tail = q->taken = q->in_flight = q->odd_doorbell = 0;
		faces[i].qid = i + 1;
		faces[i].sq_doorbell = pl_queues_sq_doorbell(dev->control.dev, i);
		faces[i].cq_doorbell = pl_queues_cq_doorbell(dev->control.dev, i);
	}
	err = pl_queues_clear(dev, faces);
	free(faces);
	return err;
}

static void set_up(struct peerlane_device *dev, struct pl_proxy_queue *q, uint32_t i)
{
	const struct pl_shape *s = &dev->shape;
	struct pld_dma *dma = pl_queues_dma(dev, i);
	const size_t at = pl_queues_data_at(dev, i);

	*q = (struct pl_proxy_queue){
		.sq = pl_queues_sq(dev, i),
		.cq = pl_queues_cq(dev, i),
		.sq_doorbell = pl_queues_sq_doorbell(dev->control.cpu, i),
		.cq_doorbell = pl_queues_cq_doorbell(dev->control.cpu, i),
		.depth = s->depth,
		.log_depth = (uint32_t)__builtin_ctz(s->depth),
		.index = i,
		.data = dev->data.cpu + at,
		.prp = (uintptr_t)dev->data.dev + at,
	};
	/* A proxy knows each slot; that the first address is right is all it looks at. */
	for (uint32_t k = 0; k < s->nr_slots; k++) {
		dma[k].first = q->prp + (uint64_t)k * s->transfer_bytes;
		dma[k].second = dma[k].first + PL_PROXY_PAGE;
		dma[k].list = dma[k].second;
	}
}

/* Signals of the program are not for our threads. */
static int start_thread(struct pl_proxy *p)
{
	sigset_t all, old;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&p->thread, NULL, run, p);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return err;
}

static int start_threads(struct pl_proxies *ps)
{
	int err = 0;

	for (uint32_t i = 0; i < ps->nr_threads && !err; i++) {
		struct pl_proxy *p = &ps->threads[i];

		p->all = ps;
		p->index = i;
		err = ps->server->start ? ps->server->start(p) : 0;
		if (err)
			break;
		err = start_thread(p);
		if (err && ps->server->end)
			ps->server->end(p);
		if (err)
			err = pl_fail(-EAGAIN, "no more threads: %u proxies were wanted",
				      ps->nr_threads);
		else
			ps->nr_started++;
	}
	return err;
}

int pl_proxies_create(struct peerlane_device *dev, const struct pl_proxy_server *server, void *arg)
{
	struct pl_proxies *ps = calloc(1, sizeof(*ps));
	int err = -ENOMEM;

	if (!ps)
		return pl_fail(err, "no memory for proxies");
	dev->proxies = ps;
	ps->dev = dev;
	ps->server = server;
	ps->arg = arg;
	ps->want = WANT_PARK;
	ps->nr_threads = dev->shape.nr_threads;
	pthread_mutex_init(&ps->lock, NULL);
	pthread_cond_init(&ps->moved, NULL);
	ps->queues = aligned_alloc(128, dev->shape.nr_queues * sizeof(*ps->queues));
	ps->threads = calloc(ps->nr_threads, sizeof(*ps->threads));
	if (!ps->queues || !ps->threads)
		return pl_fail(err, "no memory for %u queues", dev->shape.nr_queues);
	for (uint32_t i = 0; i < dev->shape.nr_queues; i++)
		set_up(dev, &ps->queues[i], i);
	err = pl_proxies_clear(ps);
	return err ? err : start_threads(ps);
}

void pl_proxies_destroy(struct peerlane_device *dev)
{
	struct pl_proxies *ps = dev->proxies;

	if (!ps)
		return;
	set_want(ps, WANT_END);
	for (uint32_t i = 0; i < ps->nr_started; i++) {
		pthread_join(ps->threads[i].thread, NULL);
		if (ps->server->end)
			ps->server->end(&ps->threads[i]);
	}
	pthread_cond_destroy(&ps->moved);
	pthread_mutex_destroy(&ps->lock);
	free(ps->threads);
	free(ps->queues);
	free(ps);
	dev->proxies = NULL;
}
