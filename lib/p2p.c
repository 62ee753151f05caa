// SPDX-License-Identifier: MIT
/* The path p2p: /dev/peerlane, and which segments of requests may take it. */
#include "p2p.h"

#include "context.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define DEVICE "/dev/peerlane"

void pl_p2p_init(struct pl_p2p *p)
{
	memset(p, 0, sizeof(*p));
	p->fd = -1;
	pthread_mutex_init(&p->lock, NULL);
}

static void free_all(struct pl_p2p *p, bool unmap)
{
	struct pl_p2p_pin *pin;
	struct pl_p2p_route *r;

	while ((pin = p->pins)) {
		p->pins = pin->next;
		if (unmap)
			pl_p2p_pin_undo(p, pin);
		free(pin);
	}
	while ((r = p->routes)) {
		p->routes = r->next;
		free(r);
	}
	if (p->fd >= 0)
		close(p->fd);
	p->fd = -1;
}

void pl_p2p_fini(struct pl_p2p *p)
{
	free_all(p, true);
	pthread_mutex_destroy(&p->lock);
}

void pl_p2p_abandon(struct pl_p2p *p)
{
	free_all(p, false);
}

/* --- the module --- */

#define NONE(p, fix_text, ...)                                                                     \
	do {                                                                                       \
		pl_text((p)->why, sizeof((p)->why), __VA_ARGS__);                                  \
		pl_text((p)->fix, sizeof((p)->fix), "%s", fix_text);                               \
	} while (0)

static bool hello(struct pl_p2p *p)
{
	struct peerlane_hello call = { .version = PEERLANE_UAPI_VERSION,
				       .oldest = PEERLANE_UAPI_OLDEST };

	if (ioctl(p->fd, PEERLANE_IOC_HELLO, &call)) {
		if (errno == EPROTO)
			NONE(p, "install the peerlane module of this version",
			     "the module speaks versions %u to %u of its interface, this library "
			     "%u to %u",
			     call.oldest, call.version, PEERLANE_UAPI_OLDEST,
			     PEERLANE_UAPI_VERSION);
		else
			NONE(p, "see what " DEVICE " is", DEVICE " does not answer: %s",
			     strerrordesc_np(errno));
		return false;
	}
	if (!(call.features & PEERLANE_FEATURE_PROVIDER)) {
		NONE(p, "modprobe peerlane_nvidia (it needs NVIDIA's open kernel modules)",
		     "the peerlane module knows no driver that gives it GPU memory");
		return false;
	}
	p->max_pin_bytes = call.max_pin_bytes;
	p->asks_adapters = call.features & PEERLANE_FEATURE_ADAPTER;
	return true;
}

static bool open_device(struct pl_p2p *p)
{
	p->fd = open(DEVICE, O_RDWR | O_CLOEXEC);
	if (p->fd >= 0)
		return hello(p);
	if (errno == ENOENT || errno == ENXIO || errno == ENODEV)
		NONE(p, "install and load it: modprobe peerlane, see peerlane-kmod(7)",
		     "the kernel module peerlane is not loaded");
	else if (errno == EACCES || errno == EPERM)
		NONE(p, "add the user to the group peerlane", "no permission to open " DEVICE);
	else
		NONE(p, "", DEVICE ": %s", strerrordesc_np(errno));
	return false;
}

/* Once for each context. Lock held. */
static bool ready(struct peerlane *ctx)
{
	struct pl_p2p *p = &ctx->p2p;

	if (p->state == PL_P2P_UNTRIED) {
		bool ok = open_device(p);

		if (!ok && p->fd >= 0) {
			close(p->fd);
			p->fd = -1;
		}
		pl_log(ctx, 2, "p2p: %s", ok ? "the kernel module is there" : p->why);
		__atomic_store_n(&p->state, ok ? PL_P2P_READY : PL_P2P_NONE, __ATOMIC_RELEASE);
	}
	return p->state == PL_P2P_READY;
}

/* --- the question --- */

struct answer {
	struct pl_p2p_pin *pin;
	struct pl_p2p_route *route;
	struct peerlane_verdict *out; /* NULL: no words are wanted */
};

#define SAY(a, fix_text, ...)                                                                      \
	do {                                                                                       \
		if ((a)->out) {                                                                    \
			pl_text((a)->out->reason, sizeof((a)->out->reason), __VA_ARGS__);          \
			pl_text((a)->out->fix, sizeof((a)->out->fix), "%s", fix_text);             \
		}                                                                                  \
	} while (0)

/* Memory, options and file allow it, whatever the request. */
static bool possible(const struct peerlane *ctx, const struct peerlane_file *f,
		     const struct pl_mem *mem, struct answer *a)
{
	if (mem->kind != PL_MEM_DEVICE)
		SAY(a, "", "this is not GPU memory");
	else if (!strcmp(ctx->gpu->ops->name, "sim"))
		SAY(a, "", "a simulated GPU has no bus address");
	else if (ctx->opt.flags & (PEERLANE_NO_P2P | PEERLANE_NO_DIRECT))
		SAY(a, "remove no-p2p and no-direct from PEERLANE_FLAGS or the options",
		    "switched off by the options");
	else if (f->fd_direct < 0 || f->direct_why[0])
		SAY(a, f->callbacks ? "" : "use a file and a file system with O_DIRECT", "%s",
		    f->direct_why);
	else
		return true;
	return false;
}

/* The way the file was opened allows it in this direction. */
static bool opened_so(const struct peerlane_file *f, enum peerlane_op dir, struct answer *a)
{
	if (dir == PEERLANE_WRITE && f->append)
		SAY(a, "", "the file was opened with O_APPEND");
	else if (dir == PEERLANE_WRITE && !f->want_direct)
		SAY(a, "open it with O_DIRECT to bypass the page cache",
		    "the file was opened without O_DIRECT: writes go through the page cache");
	else
		return true;
	return false;
}

/* The request has blocks that could go this way. */
static bool fits(const struct pl_seg *seg, enum peerlane_op dir, struct answer *a)
{
	const struct peerlane_file *f = seg->op->file;
	size_t block = pl_p2p_block(f, dir), start = (size_t)seg->offset;

	if (!opened_so(f, dir, a))
		return false;
	if (((uintptr_t)seg->addr ^ start) & (f->align - 1))
		SAY(a, "choose memory and file offsets that are aligned alike",
		    "the memory's address is not aligned to %u bytes where the file offset is",
		    f->align);
	else if (((start + block - 1) & ~(block - 1)) + block > start + seg->bytes)
		SAY(a, "", "the request holds no whole block of %zu bytes", block);
	else
		return true;
	return false;
}

static void say_pin(struct answer *a, int err)
{
	switch (err) {
	case -E2BIG:
		SAY(a, "register a part of it as a buffer",
		    "the memory is longer than the module pins at once");
		break;
	case -EBUSY:
		SAY(a,
		    "options nvidia NVreg_RegistryDwords=\"RmForceDisableIomapWC=1\" in "
		    "/etc/modprobe.d, for an NVIDIA GPU; see peerlane-kmod(7), and dmesg",
		    "the GPU's driver has mapped memory next to this in a way that conflicts");
		break;
	case -EOPNOTSUPP:
		SAY(a, "see dmesg, and peerlane-kmod(7)",
		    "the GPU's driver cannot pin this memory so that it stays when it is freed");
		break;
	case -ENODEV:
	case -EINVAL:
		SAY(a, "see dmesg; memory of cuMemAlloc() can be pinned",
		    "no driver known to the module can pin this memory: %s", strerrordesc_np(-err));
		break;
	default:
		SAY(a, "see dmesg", "the memory could not be pinned: %s", strerrordesc_np(-err));
		break;
	}
}

/* The module is there, or why not is said. Lock held, here and in the next. */
static bool module_there(struct peerlane *ctx, struct answer *a)
{
	if (ready(ctx))
		return true;
	SAY(a, ctx->p2p.fix, "%s", ctx->p2p.why);
	return false;
}

/* Whether the drive of @file may reach @mem, registered as @buf or not; @a gets the pin and the
 * route. */
static bool find_way(struct peerlane *ctx, const struct peerlane_file *file,
		     const struct pl_mem *mem, struct pl_buffer *buf, struct answer *a)
{
	int err = pl_p2p_pin_get(&ctx->p2p, mem, buf, &a->pin);

	if (err) {
		say_pin(a, err);
		return false;
	}
	a->route = pl_p2p_route_get(ctx, file, a->pin, mem->gpu);
	if (!a->route || !pl_p2p_route_open(a->route)) {
		SAY(a, a->route ? a->route->fix : "", "%s",
		    a->route ? a->route->why
			     : "the memory was freed, or there are too many drives");
		return false;
	}
	return true;
}

void pl_p2p_hold(struct peerlane *ctx, const struct peerlane_file *file, enum peerlane_op dir,
		 const struct pl_mem *mem, struct pl_buffer **buf, struct pl_p2p_way *way)
{
	struct pl_p2p *p = &ctx->p2p;
	struct answer a = { .out = NULL };

	*way = (struct pl_p2p_way){ .pin = NULL };
	if (__atomic_load_n(&p->state, __ATOMIC_ACQUIRE) == PL_P2P_NONE ||
	    !possible(ctx, file, mem, &a) || !opened_so(file, dir, &a))
		return;
	pthread_mutex_lock(&p->lock);
	if (module_there(ctx, &a) && find_way(ctx, file, mem, *buf, &a)) {
		if (!*buf) {
			*buf = &a.pin->own;
			__atomic_fetch_add(&a.pin->own.users, 1, __ATOMIC_ACQ_REL);
		}
		*way = (struct pl_p2p_way){ .pin = a.pin, .route = a.route };
	}
	pthread_mutex_unlock(&p->lock);
}

void pl_p2p_take(struct pl_seg *seg, enum peerlane_op dir, const struct pl_p2p_way *way)
{
	struct answer a = { .out = NULL };

	if (!way->pin || seg->host || !fits(seg, dir, &a))
		return;
	seg->pin = way->pin;
	seg->route = way->route;
	seg->p2p = way->pin->map + way->pin->skip + ((uintptr_t)seg->addr - way->pin->addr);
}

void pl_p2p_attach(struct peerlane *ctx, struct pl_seg *seg, enum peerlane_op dir,
		   const struct pl_mem *mem, struct pl_buffer **buf)
{
	struct answer a = { .out = NULL };
	struct pl_p2p_way way;

	if (__atomic_load_n(&ctx->p2p.state, __ATOMIC_ACQUIRE) == PL_P2P_NONE)
		return;
	/* Nothing is pinned for a request that could not use it. */
	if (seg->host || !fits(seg, dir, &a))
		return;
	pl_p2p_hold(ctx, seg->op->file, dir, mem, buf, &way);
	pl_p2p_take(seg, dir, &way);
}

void pl_p2p_judge(struct peerlane *ctx, const struct pl_seg *seg, enum peerlane_op dir,
		  const struct pl_mem *mem, struct pl_buffer *buf, struct peerlane_verdict *out)
{
	const struct peerlane_file *file = seg->op->file;
	struct answer a = { .out = out };

	if (seg->pin && buf == &seg->pin->own)
		buf = NULL;
	if (!possible(ctx, file, mem, &a))
		return;
	pthread_mutex_lock(&ctx->p2p.lock);
	out->usable = module_there(ctx, &a) && fits(seg, dir, &a) &&
		      find_way(ctx, file, mem, buf, &a);
	pthread_mutex_unlock(&ctx->p2p.lock);
	if (out->usable)
		SAY(&a, "",
		    "the drive%s%s moves the data by DMA, its unaligned ends go another way",
		    a.route->adapter[0] ? "'s RDMA adapter " : "", a.route->adapter);
}

int pl_p2p_pin_apart(struct peerlane *ctx, const struct pl_buffer *buf, struct pl_p2p_pin *pin,
		     struct peerlane_verdict *out)
{
	struct answer a = { .out = out };
	bool there;
	int err;

	*pin = (struct pl_p2p_pin){ .addr = buf->addr, .bytes = buf->bytes };
	pthread_mutex_lock(&ctx->p2p.lock);
	there = module_there(ctx, &a);
	pthread_mutex_unlock(&ctx->p2p.lock);
	if (!there)
		return -ENODEV;
	err = pl_p2p_pin_make(&ctx->p2p, pin, 0);
	if (err)
		say_pin(&a, err);
	return err;
}

bool pl_p2p_alive(const struct pl_seg *seg)
{
	return !__atomic_load_n(&seg->pin->dead, __ATOMIC_ACQUIRE);
}

static bool revoked(const struct pl_p2p *p, const struct pl_p2p_pin *pin)
{
	struct peerlane_info call = { .handle = pin->handle };

	return !ioctl(p->fd, PEERLANE_IOC_INFO, &call) && (call.state & PEERLANE_INFO_REVOKED);
}

int pl_p2p_failed(const struct peerlane *ctx, const struct pl_seg *seg, int err)
{
	/* Where the memory went in the middle of it, the kernel may say that it was short, or EIO. */
	if (err != -EFAULT && revoked(&ctx->p2p, seg->pin))
		err = -EFAULT;
	if (err == -EFAULT)
		__atomic_store_n(&seg->pin->dead, true, __ATOMIC_RELEASE);
	return err;
}

void pl_p2p_release(struct peerlane *ctx, struct pl_buffer *buf)
{
	pthread_mutex_lock(&ctx->p2p.lock);
	if (buf->pin)
		pl_p2p_pin_drop(&ctx->p2p, buf->pin);
	pthread_mutex_unlock(&ctx->p2p.lock);
}
