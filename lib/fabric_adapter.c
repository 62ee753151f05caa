// SPDX-License-Identifier: MIT
/*
 * Which RDMA adapter a controller is reached by. The kernel does not say, but chooses it as it can be
 * chosen again: by the address from which the controller is reached.
 */
#include "fabric.h"

#include "error.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* --- the address --- */

/* The first line of a file; "" if it cannot be read. */
static void line_of(const char *path, char *out, size_t bytes)
{
	FILE *f = fopen(path, "re");

	out[0] = '\0';
	if (!f)
		return;
	if (!fgets(out, (int)bytes, f))
		out[0] = '\0';
	fclose(f);
	out[strcspn(out, "\n")] = '\0';
}

/* What follows "NAME=" in a list with commas; "" if nothing does. */
static void value_of(const char *list, const char *name, char *out, size_t bytes)
{
	size_t len = strlen(name);

	out[0] = '\0';
	for (const char *at = list; at; at = strchr(at, ',')) {
		at += *at == ',';
		if (!strncmp(at, name, len) && at[len] == '=') {
			pl_text(out, bytes, "%.*s", (int)strcspn(at + len + 1, ","), at + len + 1);
			return;
		}
	}
}

bool pl_fabric_address(const char *controller, char *to, char *from, size_t bytes)
{
	char path[PATH_MAX], list[512] = "";

	pl_text(path, sizeof(path), "%s/address", controller);
	line_of(path, list, sizeof(list));
	value_of(list, "traddr", to, bytes);
	value_of(list, "host_traddr", from, bytes);
	return to[0];
}

/* --- the interface --- */

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

static bool parse(const char *text, union address *out)
{
	*out = (union address){ .v6 = { .sin6_family = AF_INET6, .sin6_port = htons(4420) } };
	if (inet_pton(AF_INET6, text, &out->v6.sin6_addr) == 1)
		return true;
	*out = (union address){ .v4 = { .sin_family = AF_INET, .sin_port = htons(4420) } };
	return inet_pton(AF_INET, text, &out->v4.sin_addr) == 1;
}

static bool same(const struct sockaddr *a, const union address *b)
{
	if (!a || a->sa_family != b->any.sa_family)
		return false;
	if (a->sa_family == AF_INET)
		return ((const struct sockaddr_in *)a)->sin_addr.s_addr == b->v4.sin_addr.s_addr;
	return !memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr, &b->v6.sin6_addr,
		       sizeof(b->v6.sin6_addr));
}

/* The address that packets to @at would have as theirs. Nothing is sent. */
static bool source_of(union address *at)
{
	socklen_t len = sizeof(*at);
	int fd = socket(at->any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool ok;

	if (fd < 0)
		return false;
	ok = !connect(fd, &at->any,
		      at->any.sa_family == AF_INET ? sizeof(at->v4) : sizeof(at->v6)) &&
	     !getsockname(fd, &at->any, &len);
	close(fd);
	return ok;
}

bool pl_fabric_interface(const char *to, const char *from, char *name, size_t bytes)
{
	const char *scope = strchr(from[0] ? from : to, '%');
	struct ifaddrs *all, *i;
	union address at;
	unsigned int nr = 0;

	/* A local address of IPv6 names it. */
	if (scope) {
		pl_text(name, bytes, "%s", scope + 1);
		return true;
	}
	if (!parse(from[0] ? from : to, &at) || (!from[0] && !source_of(&at)) || getifaddrs(&all))
		return false;
	for (i = all; i; i = i->ifa_next) {
		if (!same(i->ifa_addr, &at))
			continue;
		nr++;
		pl_text(name, bytes, "%s", i->ifa_name);
		name[strcspn(name, ":")] = '\0';
	}
	freeifaddrs(all);
	return nr == 1;
}

/* --- the adapter --- */

/* Has a port of the adapter an address of the interface? */
static bool speaks_for(const char *adapter, const char *interface)
{
	char path[PATH_MAX], more[PATH_MAX], name[IF_NAMESIZE + 1];
	struct dirent *port, *entry;
	bool found = false;
	DIR *ports, *names;

	pl_text(path, sizeof(path), "%s/ports", adapter);
	ports = opendir(path);
	while (ports && !found && (port = readdir(ports))) {
		pl_text(more, sizeof(more), "%s/%s/gid_attrs/ndevs", path, port->d_name);
		names = port->d_name[0] == '.' ? NULL : opendir(more);
		while (names && !found && (entry = readdir(names))) {
			char file[PATH_MAX + 300];

			if (entry->d_name[0] == '.')
				continue;
			snprintf(file, sizeof(file), "%s/%s", more, entry->d_name);
			line_of(file, name, sizeof(name));
			found = !strcmp(name, interface);
		}
		if (names)
			closedir(names);
	}
	if (ports)
		closedir(ports);
	return found;
}

/* InfiniBand and iWARP: the interface is one of the same device. */
static bool same_device(const char *sys, const char *adapter, const char *interface)
{
	char path[PATH_MAX], a[PATH_MAX], b[PATH_MAX];

	pl_text(path, sizeof(path), "%s/device", adapter);
	if (!realpath(path, a))
		return false;
	pl_text(path, sizeof(path), "%s/class/net/%s/device", sys, interface);
	return realpath(path, b) && !strcmp(a, b);
}

/* Is the link @name of the directory one to something that is called so? */
static bool links_to(const char *dir, const char *name, const char *called)
{
	char path[PATH_MAX], target[PATH_MAX];
	const char *last;
	ssize_t n;

	pl_text(path, sizeof(path), "%s/%s", dir, name);
	n = readlink(path, target, sizeof(target) - 1);
	if (n < 0)
		return false;
	target[n] = '\0';
	last = strrchr(target, '/');
	return !strcmp(last ? last + 1 : target, called);
}

/* Fills in what the adapter is, from the PCI device it is or is a part of; software has none. The
 * drivers of Omni-Path and of its forerunner have one, and yet let the CPU copy. */
static void look(const char *dir, struct pl_fabric_adapter *out)
{
	char path[PATH_MAX], device[PATH_MAX];
	unsigned int domain, bus, slot, function;
	char *last;

	out->software = true;
	pl_text(path, sizeof(path), "%s/device", dir);
	if (!realpath(path, device))
		return;
	while (!links_to(device, "subsystem", "pci")) {
		last = strrchr(device, '/');
		if (!last || last == device)
			return;
		*last = '\0';
	}
	last = strrchr(device, '/');
	if (!last || sscanf(last, "/%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4)
		return;
	if (links_to(device, "driver", "hfi1") || links_to(device, "driver", "ib_qib"))
		return;
	out->software = false;
	out->pci = (uint64_t)domain << 16 | bus << 8 | slot << 3 | function;
}

bool pl_fabric_adapter_of(const char *sys, const char *interface, struct pl_fabric_adapter *out)
{
	char path[PATH_MAX], dir[PATH_MAX];
	struct dirent *entry;
	unsigned int nr = 0;
	DIR *adapters;

	pl_text(path, sizeof(path), "%s/class/infiniband", sys);
	adapters = opendir(path);
	while (adapters && (entry = readdir(adapters))) {
		if (entry->d_name[0] == '.')
			continue;
		pl_text(dir, sizeof(dir), "%s/%s", path, entry->d_name);
		if (!speaks_for(dir, interface) && !same_device(sys, dir, interface))
			continue;
		nr++;
		*out = (struct pl_fabric_adapter){ 0 };
		pl_text(out->name, sizeof(out->name), "%s", entry->d_name);
		look(dir, out);
	}
	if (adapters)
		closedir(adapters);
	return nr == 1;
}

bool pl_fabric_adapter(const char *sys, const char *controller, struct pl_fabric_adapter *out)
{
	char to[128], from[128], interface[IF_NAMESIZE + 1];

	return pl_fabric_address(controller, to, from, sizeof(to)) &&
	       pl_fabric_interface(to, from, interface, sizeof(interface)) &&
	       pl_fabric_adapter_of(sys, interface, out);
}
