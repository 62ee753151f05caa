// SPDX-License-Identifier: MIT
/* GPU memory pinned and mapped by peerlane.ko: one pin for a registered buffer, and a few more for
 * memory that is not registered. */
#include "p2p.h"

#include "context.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

/* Allocations that are kept pinned though nobody has registered them. */
#define MAX_OWN 64
/* A pin that was refused is not tried again at once. */
#define RETRY_NS 1000000000ull

int pl_p2p_pin_make(struct pl_p2p *p, struct pl_p2p_pin *pin, unsigned int flags)
{
	struct peerlane_pin call = { .address = pin->addr, .length = pin->bytes, .flags = flags };
	struct peerlane_unpin undo = { 0 };
	char *map;
	int err;

	if (pin->bytes > p->max_pin_bytes)
		return -E2BIG;
	if (ioctl(p->fd, PEERLANE_IOC_PIN, &call))
		return -errno;
	map = mmap(NULL, call.map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, p->fd,
		   (off_t)call.map_offset);
	if (map == MAP_FAILED) {
		err = -errno;
		undo.handle = call.handle;
		ioctl(p->fd, PEERLANE_IOC_UNPIN, &undo);
		return err;
	}
	pin->handle = call.handle;
	pin->gpu_pci = (uint64_t)call.gpu_domain_high << 32 | call.gpu_pci;
	pin->page_kind = call.page_kind;
	pin->map = map;
	pin->map_bytes = call.map_bytes;
	pin->skip = call.skip_bytes;
	return 0;
}

void pl_p2p_pin_undo(struct pl_p2p *p, struct pl_p2p_pin *pin)
{
	struct peerlane_unpin call = { .handle = pin->handle };

	if (!pin->map)
		return;
	munmap(pin->map, pin->map_bytes);
	ioctl(p->fd, PEERLANE_IOC_UNPIN, &call);
	pin->map = NULL;
}

void pl_p2p_pin_drop(struct pl_p2p *p, struct pl_p2p_pin *pin)
{
	struct pl_p2p_pin **at = &p->pins;

	while (*at != pin)
		at = &(*at)->next;
	*at = pin->next;
	if (pin->buf == &pin->own)
		p->nr_pins--;
	else
		pin->buf->pin = NULL;
	pl_p2p_pin_undo(p, pin);
	free(pin);
}

static unsigned int users(const struct pl_p2p_pin *pin)
{
	return __atomic_load_n(&pin->buf->users, __ATOMIC_ACQUIRE);
}

static bool is_own(const struct pl_p2p_pin *pin)
{
	return pin->buf == &pin->own;
}

/* Drops a pin of memory that is not registered: a revoked one, else the one longest unused. */
static bool evict(struct pl_p2p *p, bool revoked)
{
	struct pl_p2p_pin *oldest = NULL;

	for (struct pl_p2p_pin *pin = p->pins; pin; pin = pin->next)
		if (is_own(pin) && !users(pin) &&
		    (!revoked || __atomic_load_n(&pin->dead, __ATOMIC_ACQUIRE)) &&
		    (!oldest || pin->used < oldest->used))
			oldest = pin;
	if (oldest)
		pl_p2p_pin_drop(p, oldest);
	return oldest;
}

/* A pin that is there, unless it is not to be used any more. */
static struct pl_p2p_pin *find(struct pl_p2p *p, const struct pl_mem *mem, struct pl_buffer *buf)
{
	struct pl_p2p_pin *pin = buf ? buf->pin : p->pins;

	/* Another allocation at the same address may have come meanwhile: then it is revoked. */
	while (!buf && pin &&
	       !(is_own(pin) && pin->addr == mem->base && pin->bytes == mem->bytes &&
		 !__atomic_load_n(&pin->dead, __ATOMIC_ACQUIRE)))
		pin = pin->next;
	return pin;
}

static int make(struct pl_p2p *p, struct pl_p2p_pin *pin)
{
	int err = pl_p2p_pin_make(p, pin, 0);

	while ((err == -ENOMEM || err == -ENOSPC) && evict(p, false))
		err = pl_p2p_pin_make(p, pin, 0);
	return err;
}

static int create(struct pl_p2p *p, const struct pl_mem *mem, struct pl_buffer *buf,
		  struct pl_p2p_pin **out)
{
	struct pl_p2p_pin *pin;

	while (evict(p, true))
		;
	if (!buf && p->nr_pins >= MAX_OWN && !evict(p, false))
		return -ENOSPC;
	pin = calloc(1, sizeof(*pin));
	if (!pin)
		return -ENOMEM;
	pin->addr = buf ? buf->addr : mem->base;
	pin->bytes = buf ? buf->bytes : mem->bytes;
	pin->own.addr = pin->addr;
	pin->own.bytes = pin->bytes;
	pin->own.mem = *mem;
	pin->buf = buf ? buf : &pin->own;
	pin->err = make(p, pin);
	pin->made_ns = pl_now_ns();
	pin->next = p->pins;
	p->pins = pin;
	if (buf)
		buf->pin = pin;
	else
		p->nr_pins++;
	*out = pin;
	return 0;
}

int pl_p2p_pin_get(struct pl_p2p *p, const struct pl_mem *mem, struct pl_buffer *buf,
		   struct pl_p2p_pin **out)
{
	struct pl_p2p_pin *pin = find(p, mem, buf);
	int err;

	if (pin && pin->err && pl_now_ns() - pin->made_ns > RETRY_NS) {
		/* Not to be evicted for itself. */
		__atomic_fetch_add(&pin->buf->users, 1, __ATOMIC_ACQ_REL);
		pin->err = make(p, pin);
		pin->made_ns = pl_now_ns();
		pl_buffer_put(pin->buf);
	}
	/* Requests in flight still have addresses in the mapping; this one is a user itself. */
	if (pin && __atomic_load_n(&pin->dead, __ATOMIC_ACQUIRE)) {
		if (users(pin) > 1)
			return -EFAULT;
		pl_p2p_pin_drop(p, pin);
		pin = NULL;
	}
	if (!pin) {
		err = create(p, mem, buf, &pin);
		if (err)
			return err;
	}
	if (pin->err)
		return pin->err;
	pin->used = ++p->clock;
	*out = pin;
	return 0;
}
