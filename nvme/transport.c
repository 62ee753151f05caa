// SPDX-License-Identifier: MIT
/* The transports there are, by name. */
#include "transport_sim.h"
#include "transports.h"
#include "why.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static const struct pl_nvme_transport_ops *const table[] = {
	&pl_nvme_transport_kmod, &pl_nvme_transport_vfio,     &pl_nvme_transport_served,
	&pl_nvme_transport_sim,	 &pl_nvme_transport_sim_unix, NULL,
};

int pl_nvme_transport_open(const char *address, struct pl_nvme_transport **out)
{
	const char *colon = strchr(address, ':');
	size_t bytes = colon ? (size_t)(colon - address) : 0;

	for (unsigned int i = 0; table[i]; i++)
		if (bytes && !strncmp(table[i]->name, address, bytes) && !table[i]->name[bytes])
			return table[i]->open(colon + 1, out);
	pl_nvme_why("no such form of address: write kmod:PCI or vfio:PCI (as kmod:0000:01:00.0), "
		    "served:SOCKET or sim:");
	return -EINVAL;
}

int pl_nvme_transport_adopt(const char *kind, int fd, struct pl_nvme_transport **out)
{
	for (unsigned int i = 0; table[i]; i++)
		if (!strcmp(table[i]->name, kind) && table[i]->adopt)
			return table[i]->adopt(fd, out);
	close(fd);
	return -EOPNOTSUPP;
}
