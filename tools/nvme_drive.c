/* SPDX-License-Identifier: MIT */
/* A controller and one of its namespaces, as named on the command line. */
#include "nvme_drive.h"

#include "message.h"
#include "nvme_address.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int pl_drive_open_as(struct peerlane_nvme **out, const char *address,
		     const struct peerlane_nvme_options *opt)
{
	int err = peerlane_nvme_open(out, address, opt);
	char why[256];

	if (!err)
		return 0;
	/* The tool knows more of drivers, and its own commands. */
	if ((err != -EINVAL && err != -ENODEV) ||
	    !pl_nvme_address_explain(address, why, sizeof(why)))
		snprintf(why, sizeof(why), "%s", peerlane_nvme_why());
	pl_message_error("%s: %s", address, why);
	return err;
}

int pl_drive_open(struct pl_drive *d, const char *address, const struct pl_drive_want *want)
{
	struct peerlane_nvme_options opt = {
		.size = sizeof(opt),
		.nr_queues = want->nr_queues,
		.timeout_ms = (unsigned int)(want->timeout * 1000),
	};
	int err;

	memset(d, 0, sizeof(*d));
	d->address = address;
	err = pl_drive_open_as(&d->nvme, address, &opt);
	if (err) {
		d->nvme = NULL;
		return err;
	}
	d->info.size = sizeof(d->info);
	return peerlane_nvme_get_info(d->nvme, &d->info);
}

static int open_ns(struct pl_drive *d, uint32_t nsid)
{
	int err = peerlane_nvme_ns_open(d->nvme, nsid, &d->ns);

	if (err) {
		pl_message_error("%s: namespace %u: %s", d->address, nsid,
				 err == -ENXIO ? "it does not exist, or is not active"
				 : err == -EOPNOTSUPP
					 ? "its format has metadata or an odd block size"
					 : strerror(-err));
		return err;
	}
	d->ns_info.size = sizeof(d->ns_info);
	return peerlane_nvme_ns_get_info(d->ns, &d->ns_info);
}

static int check_write(const struct pl_drive *d, const char *serial)
{
	if (!serial) {
		pl_message_error("this overwrites data of %s, %s: say --yes-destroy-data %s if it "
				 "is to",
				 d->address, d->info.model, d->info.serial);
		return -EPERM;
	}
	if (strcmp(serial, d->info.serial) != 0) {
		pl_message_error("nothing was written: %s has serial number '%s', not '%s'",
				 d->address, d->info.serial, serial);
		return -EPERM;
	}
	if (d->ns_info.read_only) {
		pl_message_error("%s: namespace %u is write protected", d->address,
				 d->ns_info.nsid);
		return -EROFS;
	}
	return 0;
}

int pl_drive_open_ns(struct pl_drive *d, const char *address, const struct pl_drive_want *want)
{
	int err = pl_drive_open(d, address, want);

	if (!err)
		err = open_ns(d, want->nsid);
	if (!err && want->write)
		err = check_write(d, want->serial);
	if (err)
		pl_drive_close(d);
	return err;
}

void pl_drive_close(struct pl_drive *d)
{
	peerlane_nvme_close(d->nvme);
	d->nvme = NULL;
	d->ns = NULL;
}

bool pl_drive_has(const struct pl_drive *d, uint64_t block, uint64_t nr)
{
	uint64_t all = d->ns_info.nr_blocks;

	if (block <= all && nr <= all - block)
		return true;
	pl_message_error("%s: namespace %u ends after block %llu: it has no %llu block%s from %llu "
			 "on",
			 d->address, d->ns_info.nsid, (unsigned long long)all - 1,
			 (unsigned long long)nr, nr == 1 ? "" : "s", (unsigned long long)block);
	return false;
}

void pl_drive_complain(const struct pl_drive *d, const char *what, uint64_t block, uint64_t nr,
		       const struct peerlane_nvme_completion *cpl)
{
	char words[128];

	pl_message_error("%s: %s of %llu blocks from %llu on: %s", d->address, what,
			 (unsigned long long)nr, (unsigned long long)block,
			 peerlane_nvme_status_text(cpl, words, sizeof(words)));
}
