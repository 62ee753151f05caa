// SPDX-License-Identifier: MIT
/*
 * The providers of GPU memory there are.
 */
#include <linux/module.h>
#include <linux/mutex.h>

#include "core.h"

static LIST_HEAD(providers);
/* Guards the list; never held while a provider is called to pin or unpin. */
static DEFINE_MUTEX(providers_lock);
static u32 next_id = 1;

/**
 * peerlane_provider_register() - offer a provider to the core
 * @provider: stays the caller's, and must stay until it is unregistered
 *
 * Return: 0; -EINVAL incomplete, or with pages of a size the core cannot use.
 */
int peerlane_provider_register(struct peerlane_provider *provider)
{
	if (!provider->name || !provider->available || !provider->pin || !provider->unwatch ||
	    !provider->unpin || provider->page_bytes != PL_FRAME_BYTES)
		return -EINVAL;
	mutex_lock(&providers_lock);
	provider->id = next_id++;
	list_add_tail(&provider->node, &providers);
	mutex_unlock(&providers_lock);
	return 0;
}
EXPORT_SYMBOL_GPL(peerlane_provider_register);

/**
 * peerlane_provider_unregister() - take a provider away
 * @provider: registered before
 *
 * Its module cannot get here while anything is pinned: each pin holds a reference to it.
 */
void peerlane_provider_unregister(struct peerlane_provider *provider)
{
	mutex_lock(&providers_lock);
	list_del(&provider->node);
	mutex_unlock(&providers_lock);
}
EXPORT_SYMBOL_GPL(peerlane_provider_unregister);

/*
 * The first provider, or the one after @after, with a reference to its module. Providers that
 * are about to go are left out.
 */
struct peerlane_provider *pl_provider_next(struct peerlane_provider *after)
{
	struct peerlane_provider *provider, *found = NULL;
	u32 after_id = after ? after->id : 0;

	mutex_lock(&providers_lock);
	list_for_each_entry(provider, &providers, node) {
		if (provider->id > after_id && try_module_get(provider->owner)) {
			found = provider;
			break;
		}
	}
	mutex_unlock(&providers_lock);
	return found;
}

void pl_provider_put(struct peerlane_provider *provider)
{
	module_put(provider->owner);
}

/* How many providers can pin now, and whether one of them can do so persistently. */
u32 pl_providers_count(bool *persistent)
{
	struct peerlane_provider *provider = NULL, *before;
	bool one;
	u32 nr = 0;

	*persistent = false;
	for (;;) {
		before = provider;
		provider = pl_provider_next(before);
		if (before)
			pl_provider_put(before);
		if (!provider)
			return nr;
		if (provider->available(&one)) {
			nr++;
			*persistent |= one;
		}
	}
}
