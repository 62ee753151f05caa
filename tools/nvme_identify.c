/* SPDX-License-Identifier: MIT */
/* peerlane nvme identify: what a controller and its namespaces say of themselves. */
#include "commands.h"
#include "hexdump.h"
#include "human.h"
#include "message.h"
#include "nvme_drive.h"
#include "report.h"

#include <errno.h>
#include <string.h>

struct identify_args {
	unsigned int nsid;
	bool json, raw;
};

#define AT(member) offsetof(struct identify_args, member)

static const struct pl_option options[] = {
	{ "nsid", PL_OPTION_COUNT, AT(nsid), "N",
	  "Only this namespace (default: the controller and all of its namespaces).", 1, 0 },
	{ "raw", PL_OPTION_FLAG, AT(raw), NULL,
	  "Show the 4096 bytes of the controller's data structure, or of the namespace's.", 0, 0 },
	{ "json", PL_OPTION_FLAG, AT(json), NULL, "Print everything as JSON.", 0, 0 },
	{ 0 },
};

/* Words for the bits of a number, in one line. */
struct bit {
	unsigned int mask;
	const char *name;
};

static void add_bits(struct pl_report *r, const char *key, const char *label, unsigned int bits,
		     const struct bit *names, size_t nr)
{
	struct json_object *list = json_object_new_array();
	char text[256] = "";
	size_t len = 0;

	for (size_t i = 0; i < nr; i++) {
		if (!(bits & names[i].mask))
			continue;
		json_object_array_add(list, json_object_new_string(names[i].name));
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%s", len ? ", " : "",
					names[i].name);
	}
	pl_report_value(r, key, list, label, "%s", len ? text : "none");
}

static void report_ctrl(struct pl_report *r, const struct pl_drive *d)
{
	static const struct bit oncs[] = {
		{ PL_NVME_ONCS_COMPARE, "compare" },
		{ PL_NVME_ONCS_WRITE_ZEROES, "write zeroes" },
		{ PL_NVME_ONCS_DSM, "dataset management" },
		{ PL_NVME_ONCS_WRITE_UNCORRECTABLE, "write uncorrectable" },
		{ PL_NVME_ONCS_VERIFY, "verify" },
		{ PL_NVME_ONCS_COPY, "copy" },
	};
	const struct peerlane_nvme_info *i = &d->info;

	pl_report_section(r, "controller", "Controller");
	pl_report_text(r, "address", "address", "%s", d->address);
	pl_report_text(r, "model", "model", "%s", i->model);
	pl_report_text(r, "serial", "serial", "%s", i->serial);
	pl_report_text(r, "firmware", "firmware", "%s", i->firmware);
	pl_report_text(r, "version", "NVMe version", "%u.%u.%u", i->version >> 16,
		       i->version >> 8 & 0xff, i->version & 0xff);
	pl_report_value(r, "page_bytes", json_object_new_int64(i->page_bytes), "page size", "%s",
			pl_human_size(i->page_bytes).text);
	pl_report_value(r, "max_entries", json_object_new_int64(i->max_entries), "longest queue",
			"%u entries", i->max_entries);
	pl_report_value(r, "nr_queues", json_object_new_int64(i->nr_queues), "queue pairs", "%u",
			i->nr_queues);
	pl_report_value(r, "max_namespaces", json_object_new_int64(i->max_namespaces), "namespaces",
			"up to %u", i->max_namespaces);
	pl_report_value(r, "max_transfer_bytes",
			json_object_new_int64((int64_t)i->max_transfer_bytes), "one command",
			i->max_transfer_bytes ? "up to %s" : "no limit",
			pl_human_size(i->max_transfer_bytes).text);
	add_bits(r, "commands", "more commands", i->oncs, oncs, sizeof(oncs) / sizeof(oncs[0]));
	pl_report_value(r, "write_cache", json_object_new_boolean(i->has_write_cache),
			"write cache", "%s", i->has_write_cache ? "yes" : "no");
	pl_report_value(r, "shadow_doorbells", json_object_new_boolean(i->has_dbbuf), "DBBUF", "%s",
			i->has_dbbuf ? "yes" : "no");
	pl_report_value(r, "sgl", json_object_new_boolean(i->has_sgl), "SGLs", "%s",
			i->has_sgl ? "yes" : "no");
	pl_report_value(r, "cmb_bytes", json_object_new_int64((int64_t)i->cmb_bytes),
			"memory buffer", "%s",
			i->cmb_bytes ? pl_human_size(i->cmb_bytes).text : "none");
}

static void report_formats(struct pl_report *r, const struct pl_nvme_id_ns *id)
{
	struct json_object *list = json_object_new_array();
	char text[256] = "";
	size_t len = 0;

	for (unsigned int i = 0; i <= id->nlbaf && i < PL_NVME_MAX_FORMATS; i++) {
		unsigned int shift = PL_NVME_LBAF_LBADS(id->lbaf[i]);
		unsigned int metadata = PL_NVME_LBAF_MS(id->lbaf[i]);
		struct json_object *one;

		if (shift < 9 || shift > 31)
			continue;
		one = json_object_new_object();
		json_object_object_add(one, "block_bytes", json_object_new_int64(1ll << shift));
		json_object_object_add(one, "metadata_bytes", json_object_new_int(metadata));
		json_object_array_add(list, one);
		if (len < sizeof(text) - 32)
			len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%u+%u",
						len ? ", " : "", 1u << shift, metadata);
	}
	pl_report_value(r, "formats", list, "formats", "%s", len ? text : "none that make sense");
}

static int report_ns(struct pl_report *r, const struct pl_drive *d, uint32_t nsid)
{
	struct peerlane_nvme_ns_info info = { .size = sizeof(info) };
	struct peerlane_nvme_ns *ns;
	struct pl_nvme_id_ns id;
	char title[32];
	int err = peerlane_nvme_identify(d->nvme, PL_NVME_CNS_NS, nsid, &id);

	if (err)
		return err;
	snprintf(title, sizeof(title), "Namespace %u", nsid);
	pl_report_item(r, "namespaces", title);
	pl_report_value(r, "nsid", json_object_new_int64(nsid), NULL, " ");
	err = peerlane_nvme_ns_open(d->nvme, nsid, &ns);
	if (!err)
		err = peerlane_nvme_ns_get_info(ns, &info);
	pl_report_value(r, "usable", json_object_new_boolean(!err), "usable", "%s",
			!err		     ? "yes"
			: err == -EOPNOTSUPP ? "no: a format with metadata or an odd block size"
			: err == -ENXIO	     ? "no: it is not active"
					     : strerror(-err));
	if (!err) {
		uint64_t bytes = info.nr_blocks * info.block_bytes;

		pl_report_value(r, "block_bytes", json_object_new_int64(info.block_bytes),
				"block size", "%u", info.block_bytes);
		pl_report_value(r, "nr_blocks", json_object_new_int64((int64_t)info.nr_blocks),
				"blocks", "%llu, %s", (unsigned long long)info.nr_blocks,
				pl_human_size(bytes).text);
		pl_report_value(r, "best_boundary", json_object_new_int64(info.best_boundary),
				"best boundary", info.best_boundary ? "%u blocks" : "not said",
				info.best_boundary);
		pl_report_value(r, "read_only", json_object_new_boolean(info.read_only),
				"write protected", "%s", info.read_only ? "yes" : "no");
	}
	report_formats(r, &id);
	return 0;
}

static int report_all_ns(struct pl_report *r, const struct pl_drive *d)
{
	uint32_t ids[64], after = 0;
	int nr, err;

	do {
		nr = peerlane_nvme_ns_list(d->nvme, after, ids, 64);
		for (int i = 0; i < nr; i++) {
			err = report_ns(r, d, ids[i]);
			if (err)
				return err;
			after = ids[i];
		}
	} while (nr == 64);
	return nr < 0 ? nr : 0;
}

static int show_raw(const struct pl_drive *d, uint32_t nsid)
{
	uint8_t data[PL_NVME_IDENTIFY_BYTES];
	struct pl_hexdump dump = { 0 };
	int err = peerlane_nvme_identify(d->nvme, nsid ? PL_NVME_CNS_NS : PL_NVME_CNS_CTRL, nsid,
					 data);

	if (err)
		return err;
	pl_hexdump_print(&dump, stdout, data, sizeof(data), 0);
	pl_hexdump_end(stdout, sizeof(data));
	return 0;
}

static int show(const struct pl_drive *d, const struct identify_args *a)
{
	struct pl_report r;
	int err;

	if (a->raw)
		return show_raw(d, a->nsid);
	err = pl_report_init(&r);
	if (err)
		return err;
	if (!a->nsid)
		report_ctrl(&r, d);
	err = a->nsid ? report_ns(&r, d, a->nsid) : report_all_ns(&r, d);
	if (!err && a->json)
		pl_report_print_json(&r, stdout);
	else if (!err)
		pl_report_print_text(&r, stdout);
	pl_report_fini(&r);
	return err;
}

static int run(const struct pl_command *self, int argc, char **argv)
{
	struct identify_args args = { 0 };
	struct pl_drive_want want = { 0 };
	int status, err, first = pl_option_parse(self, argc, argv, &args, &status);
	struct pl_drive drive;

	if (first < 0)
		return status;
	if (args.raw && args.json) {
		pl_message_error("--raw and --json exclude each other");
		return PL_EXIT_USAGE;
	}
	if (pl_drive_open(&drive, argv[first], &want))
		return 1;
	err = show(&drive, &args);
	if (args.nsid && (err == -ENXIO || err == -EINVAL))
		pl_message_error("%s has no namespace %u", drive.address, args.nsid);
	else if (err)
		pl_message_error("%s: %s", drive.address, strerror(-err));
	pl_drive_close(&drive);
	return err ? 1 : 0;
}

const struct pl_command pl_command_nvme_identify = {
	.name = "nvme identify",
	.summary = "Tell what a controller and its namespaces are.",
	.args = "[options] ADDRESS",
	.detail = "Prints what a controller says of itself and of its active namespaces.",
	.exits = "0  printed\n"
		 "1  an error, or there is no such namespace\n"
		 "2  the options are wrong",
	.options = options,
	.min_args = 1,
	.max_args = 1,
	.run = run,
};
