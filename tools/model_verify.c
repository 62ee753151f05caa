/* SPDX-License-Identifier: MIT */
/* peerlane model verify: what is in GPU memory after a load is what is in the files, bit for bit. */
#include "cleanup.h"
#include "commands.h"
#include "human.h"
#include "message.h"
#include "model_use.h"
#include "progress.h"
#include "stop.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

struct verify_args {
	struct pl_model_gpu gpu;
	bool host, per_tensor;
};

#define AT(member) offsetof(struct verify_args, member)

static const struct pl_option options[] = {
	{ "host", PL_OPTION_FLAG, AT(host), NULL, "Load into host memory instead of a GPU's.", 0,
	  0 },
	{ "per-tensor", PL_OPTION_FLAG, AT(per_tensor), NULL,
	  "Allocate memory for each tensor instead of for each file.", 0, 0 },
	{ "gpu", PL_OPTION_COUNT, AT(gpu.gpu), "N", "Use GPU number N (default 0).", 0, 0 },
	{ "backend", PL_OPTION_CHOICE, AT(gpu.backend), "auto|cuda|sim",
	  "GPU back end: CUDA, the simulator, or CUDA if it works (default).", 0, 0 },
	{ 0 },
};

#define PIECE (4u << 20)

struct verify {
	struct pl_model_use use;
	char *from_file, *from_memory; /* a piece each */
	struct pl_progress progress;
	uint64_t done;
};

/* Reads the plain way, without the library. */
static int read_plain(int fd, char *to, size_t bytes, uint64_t offset)
{
	size_t got = 0;

	while (got < bytes) {
		ssize_t n = pread(fd, to + got, bytes - got, (off_t)(offset + got));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		got += (size_t)n;
	}
	return 0;
}

static int differ(const struct peerlane_tensor *t, uint64_t at)
{
	PL_AUTO_FREE char *name = pl_model_use_name(t->name);

	pl_message_error("tensor \"%s\": memory and file differ at its byte %llu", name ? name : "",
			 (unsigned long long)at);
	return -EBADMSG;
}

static int verify_part(struct verify *v, int fd, const struct peerlane_model_part *p)
{
	struct peerlane_tensor t = pl_model_use_tensor(&v->use, p->tensor);

	for (uint64_t at = 0, n; at < t.bytes; at += n) {
		const uint64_t from = t.offset + at;
		int err;

		n = t.bytes - at < PIECE ? t.bytes - at : PIECE;
		err = read_plain(fd, v->from_file, n, from);
		if (err) {
			pl_message_error("reading the file at byte %llu: %s",
					 (unsigned long long)from, strerror(-err));
			return err;
		}
		err = peerlane_gpu_copy(v->use.session.ctx, v->from_memory, (char *)p->addr + at,
					n);
		if (err) {
			pl_message_error("%s", pl_session_reason(err).text);
			return err;
		}
		if (memcmp(v->from_file, v->from_memory, n) != 0) {
			uint64_t where = 0;

			while (v->from_file[where] == v->from_memory[where])
				where++;
			return differ(&t, at + where);
		}
		v->done += n;
		pl_progress_show(&v->progress, v->done);
		if (pl_stop_requested())
			return -ECANCELED;
	}
	return 0;
}

/* One file at a time, so that a model larger than the GPU's memory can be verified. */
static int verify_file(struct verify *v, const struct verify_args *args, unsigned int file)
{
	struct peerlane_model_file f = { .size = sizeof(f) };
	struct peerlane_model_stats stats;
	PL_AUTO_FD int fd = -1;
	int err;

	peerlane_model_get_file(v->use.model, file, &f);
	fd = open(f.path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		pl_message_error("%s: %s", f.path, strerror(errno));
		return -1;
	}
	err = pl_model_use_want(&v->use, (int)file);
	if (!err)
		err = pl_model_use_alloc(&v->use, args->host,
					 args->per_tensor ? PEERLANE_MODEL_PER_TENSOR : 0);
	/* With the checksums in the file, if there are some. */
	if (!err)
		err = pl_model_use_load(&v->use, PEERLANE_MODEL_CHECKSUM, &stats);
	for (size_t i = 0; i < v->use.nr && !err; i++)
		err = verify_part(v, fd, &v->use.parts[i]);
	pl_model_use_free(&v->use);
	return err;
}

static int verify_all(struct verify *v, const struct verify_args *args, const char *path)
{
	int err = 0;

	if (!v->from_file || !v->from_memory) {
		pl_message_error("no memory");
		return 1;
	}
	if (pl_model_use_open(&v->use, &args->gpu, path))
		return 1;
	pl_progress_start(&v->progress, "verify", v->use.info.bytes);
	for (unsigned int i = 0; i < v->use.info.nr_files && !err; i++)
		err = verify_file(v, args, i);
	pl_progress_clear();
	if (!err)
		printf("%s, %s: as in the file%s, bit for bit\n",
		       pl_human_nr(v->use.info.nr_tensors, "tensor").text,
		       pl_human_size(v->done).text, v->use.info.nr_files == 1 ? "" : "s");
	pl_model_use_close(&v->use);
	return pl_stop_exit(err);
}

static int run(const struct pl_command *self, int argc, char **argv)
{
	struct verify_args args = { 0 };
	struct verify v = { 0 };
	int status, first = pl_option_parse(self, argc, argv, &args, &status);

	if (first < 0)
		return status;
	pl_stop_catch();
	v.from_file = malloc(PIECE);
	v.from_memory = malloc(PIECE);
	status = verify_all(&v, &args, argv[first]);
	free(v.from_file);
	free(v.from_memory);
	return status;
}

const struct pl_command pl_command_model_verify = {
	.name = "model verify",
	.summary = "Load a model and compare memory and files bit for bit.",
	.args = "[options] MODEL",
	.detail = "Loads the model, one file at a time, copies the memory back to the host and "
		  "compares it with the file read the plain way. Checksums in the files are "
		  "compared, too.",
	.exits = "0  all is the same\n"
		 "1  something differs or failed; the message names the tensor\n"
		 "2  the options are wrong\n"
		 "130  interrupted by SIGINT (143 by SIGTERM)",
	.options = options,
	.min_args = 1,
	.max_args = 1,
	.run = run,
};
