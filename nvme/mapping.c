/* SPDX-License-Identifier: MIT */
/* The list of mappings of a transport. */
#include "mapping.h"

#include <stdlib.h>

void pl_nvme_nodes_init(struct pl_nvme_nodes *nodes)
{
	pthread_mutex_init(&nodes->lock, NULL);
	nodes->head.prev = nodes->head.next = &nodes->head;
}

void pl_nvme_nodes_fini(struct pl_nvme_nodes *nodes)
{
	pthread_mutex_destroy(&nodes->lock);
}

struct pl_nvme_node *pl_nvme_node_new(size_t nr_pages)
{
	struct pl_nvme_node *node;

	if (nr_pages > (SIZE_MAX - sizeof(*node)) / sizeof(node->pages[0]))
		return NULL;
	node = calloc(1, sizeof(*node) + nr_pages * sizeof(node->pages[0]));
	if (node)
		node->m.pages = node->pages;
	return node;
}

void pl_nvme_nodes_add(struct pl_nvme_nodes *nodes, struct pl_nvme_node *node)
{
	struct pl_nvme_link *link = &node->link;

	pthread_mutex_lock(&nodes->lock);
	link->next = &nodes->head;
	link->prev = nodes->head.prev;
	link->prev->next = link;
	nodes->head.prev = link;
	pthread_mutex_unlock(&nodes->lock);
}

static void take_out(struct pl_nvme_link *link)
{
	link->prev->next = link->next;
	link->next->prev = link->prev;
}

void pl_nvme_nodes_remove(struct pl_nvme_nodes *nodes, struct pl_nvme_node *node)
{
	pthread_mutex_lock(&nodes->lock);
	take_out(&node->link);
	pthread_mutex_unlock(&nodes->lock);
}

struct pl_nvme_node *pl_nvme_nodes_pop(struct pl_nvme_nodes *nodes)
{
	struct pl_nvme_link *link;

	pthread_mutex_lock(&nodes->lock);
	link = nodes->head.next;
	if (link == &nodes->head)
		link = NULL;
	else
		take_out(link);
	pthread_mutex_unlock(&nodes->lock);
	/* The link is the first member. */
	return (struct pl_nvme_node *)link;
}

struct pl_nvme_node *pl_nvme_node_of(const struct pl_nvme_mapping *mapping)
{
	return (struct pl_nvme_node *)((uintptr_t)mapping - offsetof(struct pl_nvme_node, m));
}
