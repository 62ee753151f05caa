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
	pthread_mutex_lock(&nodes->lock);
	node->next = &nodes->head;
	node->prev = nodes->head.prev;
	node->prev->next = node;
	nodes->head.prev = node;
	pthread_mutex_unlock(&nodes->lock);
}

static void unlink_node(struct pl_nvme_node *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
}

void pl_nvme_nodes_remove(struct pl_nvme_nodes *nodes, struct pl_nvme_node *node)
{
	pthread_mutex_lock(&nodes->lock);
	unlink_node(node);
	pthread_mutex_unlock(&nodes->lock);
}

struct pl_nvme_node *pl_nvme_nodes_pop(struct pl_nvme_nodes *nodes)
{
	struct pl_nvme_node *node;

	pthread_mutex_lock(&nodes->lock);
	node = nodes->head.next;
	if (node == &nodes->head)
		node = NULL;
	else
		unlink_node(node);
	pthread_mutex_unlock(&nodes->lock);
	return node;
}

struct pl_nvme_node *pl_nvme_node_of(const struct pl_nvme_mapping *mapping)
{
	return (struct pl_nvme_node *)((uintptr_t)mapping - offsetof(struct pl_nvme_node, m));
}
