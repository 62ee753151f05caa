/* SPDX-License-Identifier: MIT */
/*
 * Model weights in safetensors files: what is in them, loaded into GPU or host memory, and
 * saved from it. A model is one file, or the shards that an index file names.
 *
 * A file is checked as a whole when it is opened, before any tensor is read: what is malformed
 * is refused, and peerlane_error() names the file, the tensor and the fault. As everywhere,
 * functions return 0 or a negative errno, and nothing sets errno.
 *
 * A load in four steps: peerlane_model_open(); one struct peerlane_model_part for each tensor,
 * or slice of one, that is wanted; memory for them, either the caller's own or by
 * peerlane_model_memory_alloc(); then peerlane_model_load() fills it.
 */
#ifndef PEERLANE_MODEL_H
#define PEERLANE_MODEL_H

#include <peerlane/peerlane.h>

#ifdef __cplusplus
extern "C" {
#endif

struct peerlane_model;
struct peerlane_model_memory;

/* ------------------------------------------------------------------ types of elements */

/* The element types of safetensors, in the order of its own list. */
enum peerlane_dtype {
	PEERLANE_BOOL = 0,
	PEERLANE_F4 = 1,      /* 4 bits, two to a byte */
	PEERLANE_F6_E2M3 = 2, /* 6 bits, four to three bytes */
	PEERLANE_F6_E3M2 = 3,
	PEERLANE_U8 = 4,
	PEERLANE_I8 = 5,
	PEERLANE_F8_E5M2 = 6,
	PEERLANE_F8_E4M3 = 7,
	PEERLANE_F8_E8M0 = 8,
	PEERLANE_F8_E4M3FNUZ = 9,
	PEERLANE_F8_E5M2FNUZ = 10,
	PEERLANE_I16 = 11,
	PEERLANE_U16 = 12,
	PEERLANE_F16 = 13,
	PEERLANE_BF16 = 14,
	PEERLANE_I32 = 15,
	PEERLANE_U32 = 16,
	PEERLANE_F32 = 17,
	PEERLANE_C64 = 18, /* two F32 */
	PEERLANE_F64 = 19,
	PEERLANE_I64 = 20,
	PEERLANE_U64 = 21,
	PEERLANE_DTYPE_NR = 22,
};

/**
 * peerlane_dtype_name() - name of an element type, as it stands in files
 * @dtype: type
 *
 * Return: a constant word such as "BF16"; NULL for other values.
 */
const char *peerlane_dtype_name(enum peerlane_dtype dtype);

/**
 * peerlane_dtype_bits() - size of an element
 * @dtype: type
 *
 * Return: bits, 4 to 64; 0 for other values.
 */
unsigned int peerlane_dtype_bits(enum peerlane_dtype dtype);

/**
 * peerlane_dtype_find() - element type by name
 * @name: as in files, such as "F8_E4M3"
 *
 * Return: the enum peerlane_dtype; -ENOENT no such type; -EINVAL NULL.
 */
int peerlane_dtype_find(const char *name);

/* ------------------------------------------------------------------ models */

/**
 * struct peerlane_tensor - one tensor of a model
 * @size: sizeof(struct peerlane_tensor), set by the caller
 * @name: its name, UTF-8
 * @dtype: type of its elements
 * @nr_dims: number of dimensions; 0 for a single value
 * @shape: @nr_dims lengths, outermost first
 * @bytes: size of its data, 0 if a length is 0
 * @file: number of the file it is in
 * @offset: where its data begins, from the start of that file
 *
 * @name and @shape stay valid until the model is closed.
 */
struct peerlane_tensor {
	size_t size;
	const char *name;
	enum peerlane_dtype dtype;
	unsigned int nr_dims;
	const uint64_t *shape;
	uint64_t bytes;
	unsigned int file;
	uint64_t offset;
};

/**
 * struct peerlane_model_table - all tensors of a model
 * @size: sizeof(struct peerlane_model_table), set by the caller
 * @nr: tensors
 * @tensors: in the order of their numbers
 * @names: all their names in that order, each with a NUL behind it
 * @names_bytes: size of @names
 * @lengths: all their shapes in that order, without anything between
 * @nr_lengths: lengths in it
 *
 * For languages in which a call for each tensor would be slow. All of it stays valid until the model is
 * closed.
 */
struct peerlane_model_table {
	size_t size;
	size_t nr;
	const struct peerlane_tensor *tensors;
	const char *names;
	size_t names_bytes;
	const uint64_t *lengths;
	size_t nr_lengths;
};

/**
 * struct peerlane_model_info - what a model consists of
 * @size: sizeof(struct peerlane_model_info), set by the caller
 * @nr_tensors: tensors
 * @nr_files: safetensors files; an index file is not counted
 * @bytes: data of all tensors together
 */
struct peerlane_model_info {
	size_t size;
	size_t nr_tensors;
	unsigned int nr_files;
	uint64_t bytes;
};

/**
 * struct peerlane_model_file - one file of a model
 * @size: sizeof(struct peerlane_model_file), set by the caller
 * @path: how it was opened
 * @data_offset: where the data of its tensors begins
 * @bytes: size of the file
 * @nr_metadata: entries of its __metadata__, see peerlane_model_metadata()
 *
 * @path stays valid until the model is closed.
 */
struct peerlane_model_file {
	size_t size;
	const char *path;
	uint64_t data_offset;
	uint64_t bytes;
	size_t nr_metadata;
};

/**
 * peerlane_model_open() - open a model and check all of its headers
 * @ctx: context; it must stay open until the model is closed
 * @path: a safetensors file; an index file (its name ends in ".json") beside its shards; or a
 *        folder with model.safetensors.index.json or model.safetensors in it, or with only one
 *        *.safetensors.index.json or *.safetensors
 * @out: receives the model
 *
 * Refused: headers over 100 000 000 bytes, JSON that is malformed or has a name twice, unknown
 * types, shapes whose size overflows, sizes that do not fit the offsets, data that overlaps,
 * leaves a gap or does not end where the file does, more than 64 dimensions; in an index file,
 * shards that are not there, are outside of its folder, or lack a tensor. Tensors of a shard
 * that the index does not name are left out.
 *
 * Context: any thread. Several threads may use the model at once. Reads headers only.
 *
 * Return: 0; -EUCLEAN something is malformed; -ENOENT the file or a shard is not there; -EINVAL
 * NULL, a path that is not a regular file, or a folder with several models; -ENOMEM; an errno of open(2) or pread(2).
 * peerlane_error() has the words.
 */
int peerlane_model_open(struct peerlane *ctx, const char *path, struct peerlane_model **out);

/**
 * peerlane_model_close() - close a model
 * @model: model, or NULL
 *
 * Memory that was loaded stays. No load may be running.
 */
void peerlane_model_close(struct peerlane_model *model);

/**
 * peerlane_model_get_info() - count tensors, files and bytes
 * @model: model
 * @out: @size set by the caller, the rest filled
 *
 * Return: 0; -EINVAL.
 */
int peerlane_model_get_info(const struct peerlane_model *model, struct peerlane_model_info *out);

/**
 * peerlane_model_get_file() - describe a file
 * @model: model
 * @file: number, from 0
 * @out: @size set by the caller, the rest filled
 *
 * Return: 0; -EINVAL; -ENOENT no such number.
 */
int peerlane_model_get_file(const struct peerlane_model *model, unsigned int file,
			    struct peerlane_model_file *out);

/**
 * peerlane_model_get_tensor() - describe a tensor
 * @model: model
 * @tensor: number, from 0; the order is that of the files and of the data in them
 * @out: @size set by the caller, the rest filled
 *
 * Return: 0; -EINVAL; -ENOENT no such number.
 */
int peerlane_model_get_tensor(const struct peerlane_model *model, size_t tensor,
			      struct peerlane_tensor *out);

/**
 * peerlane_model_get_table() - all tensors at once
 * @model: model
 * @out: @size set by the caller, the rest filled
 *
 * Return: 0; -EINVAL.
 */
int peerlane_model_get_table(const struct peerlane_model *model, struct peerlane_model_table *out);

/**
 * peerlane_model_find() - number of a tensor by its name
 * @model: model
 * @name: name
 *
 * Return: the number, 0 or more; -ENOENT no such tensor; -EINVAL.
 */
ssize_t peerlane_model_find(const struct peerlane_model *model, const char *name);

/**
 * peerlane_model_metadata() - one entry of a file's __metadata__
 * @model: model
 * @file: number of the file
 * @entry: number of the entry, from 0, in the order of the file
 * @key: receives its key
 * @value: receives its value; both stay valid until the model is closed
 *
 * Return: 0; -EINVAL; -ENOENT no such file or entry.
 */
int peerlane_model_metadata(const struct peerlane_model *model, unsigned int file, size_t entry,
			    const char **key, const char **value);

/* ------------------------------------------------------------------ parts and their memory */

/* Flags of struct peerlane_model_part. */
#define PEERLANE_MODEL_SLICE 0x1u /* only [start, stop) along dimension dim */

/**
 * struct peerlane_model_part - a tensor, or a slice of one, and its memory
 * @tensor: number of the tensor
 * @flags: 0 for the whole tensor, or PEERLANE_MODEL_SLICE
 * @dim: dimension that is cut
 * @start: first index along @dim
 * @stop: the index after the last one; @start if the slice is empty
 * @addr: memory for it, @bytes long: the caller's, GPU or host; or set by
 *        peerlane_model_memory_alloc()
 * @bytes: set by all functions that take parts: size of the data
 * @at: set by peerlane_model_layout() and peerlane_model_memory_alloc(): distance from the
 *      start of the allocation; 0 where neither was used
 * @sum: set by peerlane_model_load() with PEERLANE_MODEL_CHECKSUM
 *
 * Set what is not used to zero. In memory a part is contiguous, outermost dimension first, like
 * the tensor in the file; a slice has the shape of the tensor with @stop - @start in place of
 * dimension @dim.
 */
struct peerlane_model_part {
	size_t tensor;
	unsigned int flags;
	unsigned int dim;
	uint64_t start;
	uint64_t stop;
	void *addr;
	uint64_t bytes;
	uint64_t at;
	uint64_t sum;
};

/**
 * peerlane_model_layout() - where parts go in one piece of memory, for the caller to allocate
 * @model: model
 * @parts: parts; @bytes and @at are set
 * @nr: how many
 * @bytes: receives the size of that memory
 *
 * Parts that are neighbours in a file become neighbours in memory, so that they are read
 * together. @at is the distance from the start of the memory: a multiple of the size of the
 * part's elements, and of 256 where neighbours do not say otherwise. The memory should start at
 * a multiple of 256, as all GPU memory does. Set each @addr to the start plus @at, then call
 * peerlane_model_load().
 *
 * Return: 0; -EINVAL (peerlane_error() names the part); -EOVERFLOW; -ENOMEM.
 */
int peerlane_model_layout(const struct peerlane_model *model, struct peerlane_model_part *parts,
			  size_t nr, uint64_t *bytes);

/* Flags of peerlane_model_memory_alloc(). */
#define PEERLANE_MODEL_PER_TENSOR 0x1u /* an allocation for each part instead of each file */

/**
 * peerlane_model_memory_alloc() - allocate memory for parts
 * @model: model
 * @parts: parts; @bytes, @addr and @at are set
 * @nr: how many
 * @gpu: ordinal of the GPU, or -1 for host memory
 * @flags: 0: one allocation for the parts of each file, as peerlane_model_layout() has them; or
 *         PEERLANE_MODEL_PER_TENSOR
 * @out: receives what holds the memory, to be given to peerlane_model_memory_free()
 *
 * Memory starts at multiples of 256. The @addr of a part without data may be NULL.
 *
 * Return: 0; -EINVAL; -ENODEV no such GPU; -ENOMEM, and then nothing is kept; -EREMOTEIO.
 */
int peerlane_model_memory_alloc(const struct peerlane_model *model,
				struct peerlane_model_part *parts, size_t nr, int gpu,
				unsigned int flags, struct peerlane_model_memory **out);

/**
 * peerlane_model_memory_free() - free memory of peerlane_model_memory_alloc()
 * @memory: what that gave, or NULL
 *
 * The context must still be open; the model need not be.
 */
void peerlane_model_memory_free(struct peerlane_model_memory *memory);

/* ------------------------------------------------------------------ load */

/**
 * typedef peerlane_model_progress_fn - told how far a load or a save is
 * @arg: the progress_arg of the options
 * @done: bytes in place
 * @total: bytes when all is done
 *
 * Called by the thread that called, at the start, after about each GiB or each group of small
 * requests, and at the end.
 *
 * Return: 0 to go on; anything else ends the load or save with -ECANCELED.
 */
typedef int (*peerlane_model_progress_fn)(void *arg, uint64_t done, uint64_t total);

/* Flags of struct peerlane_model_load_options and struct peerlane_model_save_options. */
#define PEERLANE_MODEL_CHECKSUM 0x1u /* XXH3 (64 bits) of each part, see there */
#define PEERLANE_MODEL_NO_SYNC 0x2u  /* save: do not wait until the file is on stable storage */

/**
 * struct peerlane_model_load_options - how a model is loaded; all zero means defaults
 * @size: sizeof(struct peerlane_model_load_options)
 * @flags: PEERLANE_MODEL_CHECKSUM or 0
 * @progress: called now and then, or NULL
 * @progress_arg: its first argument
 *
 * With PEERLANE_MODEL_CHECKSUM each part is read back from its memory, after the load, and its
 * XXH3 checksum of 64 bits (seed 0) is put into @sum of the part. Where the file has one for a
 * whole tensor (see struct peerlane_model_save_options) the two are compared.
 */
struct peerlane_model_load_options {
	size_t size;
	unsigned int flags;
	peerlane_model_progress_fn progress;
	void *progress_arg;
};

/**
 * struct peerlane_model_stats - what a load or a save did
 * @size: sizeof(struct peerlane_model_stats), set by the caller
 * @bytes: data of the parts
 * @file_bytes: bytes read from or written to files, headers included: more than @bytes where a
 *              narrow slice was picked out of what lies around it
 * @nr_requests: reads or writes of the engine this took
 * @ns: time from start to end
 * @path_bytes: bytes by path; what else the context moved meanwhile is counted, too
 */
struct peerlane_model_stats {
	size_t size;
	uint64_t bytes;
	uint64_t file_bytes;
	uint64_t nr_requests;
	uint64_t ns;
	uint64_t path_bytes[PEERLANE_PATH_NR];
};

/**
 * peerlane_model_load() - read parts into their memory
 * @model: model
 * @parts: parts, @addr set; @bytes is set, and @sum if asked for
 * @nr: how many
 * @opt: options, or NULL for defaults
 * @stats: @size set by the caller, the rest filled; or NULL
 *
 * All parts are checked before the first byte is read. Parts that are neighbours in a file are
 * read together, with one request where memory is laid out by peerlane_model_layout() or
 * peerlane_model_memory_alloc() (@addr minus @at is the same for all parts of an allocation),
 * else in batches. A slice is read without the rest of its tensor, except that pieces of less
 * than 16 KiB with gaps of less than 16 KiB between them are read with the gaps, through 4 MiB
 * of host memory. Parts may be the same tensor, but their memory must not overlap.
 *
 * The size and the time of change of each file are compared with those of when the model was
 * opened, before and after.
 *
 * Context: any thread; blocks. After an error the content of the memory is undefined. Not
 * ordered with work queued on CUDA streams, as peerlane_read().
 *
 * Return: 0; -EINVAL a bad part or option (peerlane_error() names it); -ESTALE a file changed
 * since the model was opened; -EBADMSG a checksum differs; -ECANCELED by @progress; or as
 * peerlane_read().
 */
int peerlane_model_load(const struct peerlane_model *model, struct peerlane_model_part *parts,
			size_t nr, const struct peerlane_model_load_options *opt,
			struct peerlane_model_stats *stats);

/* ------------------------------------------------------------------ save */

/**
 * struct peerlane_model_source - a tensor to save
 * @name: its name, UTF-8, not "__metadata__"
 * @dtype: type of its elements
 * @nr_dims: number of dimensions, up to 64
 * @shape: @nr_dims lengths; NULL if there are none
 * @addr: its data, GPU or host memory, contiguous; may be NULL if it has none
 */
struct peerlane_model_source {
	const char *name;
	enum peerlane_dtype dtype;
	unsigned int nr_dims;
	const uint64_t *shape;
	const void *addr;
};

/**
 * struct peerlane_model_save_options - how a model is saved; all zero means defaults
 * @size: sizeof(struct peerlane_model_save_options)
 * @flags: PEERLANE_MODEL_* bits
 * @align: the data begins at a multiple of this: a power of two, 8 (the default) to 1 MiB
 * @metadata: @nr_metadata pairs of key and value, UTF-8, or NULL
 * @nr_metadata: how many pairs
 * @progress: called now and then, or NULL
 * @progress_arg: its first argument
 *
 * With PEERLANE_MODEL_CHECKSUM the file's __metadata__ gets an entry "peerlane.xxh3:NAME" for
 * each tensor, with the XXH3 checksum of 64 bits (seed 0) of its data as 16 hexadecimal digits.
 */
struct peerlane_model_save_options {
	size_t size;
	unsigned int flags;
	size_t align;
	const char *const *metadata;
	size_t nr_metadata;
	peerlane_model_progress_fn progress;
	void *progress_arg;
};

/**
 * peerlane_model_save() - write a safetensors file from GPU or host memory
 * @ctx: context
 * @path: file; if there is one it is replaced, and a symbolic link is followed
 * @sources: tensors
 * @nr: how many; may be 0
 * @opt: options, or NULL for defaults
 * @stats: @size set by the caller, the rest filled; or NULL
 *
 * Atomic: the data goes to a temporary file in the same folder, named ".NAME.tmp-" and a
 * number, which takes the place of @path when all of it is on stable storage. After an error, a
 * full disk included, the old file is as it was and the temporary one is gone; only a crash
 * leaves that behind. Tensors are written in the order of safetensors' own writer: by type, the
 * widest first, then by name.
 *
 * Context: any thread; blocks. Data passes through pinned memory of the context's pool; nothing
 * else of its size is allocated. Not ordered with work queued on CUDA streams, as
 * peerlane_write().
 *
 * Return: 0; -EINVAL a bad source or option (peerlane_error() names it); -EOVERFLOW a shape
 * whose size overflows; -E2BIG the header would pass 100 000 000 bytes; -ECANCELED by
 * @progress; -ENOSPC, -EFBIG and others as peerlane_write(); an errno of open(2), fsync(2) or
 * rename(2).
 */
int peerlane_model_save(struct peerlane *ctx, const char *path,
			const struct peerlane_model_source *sources, size_t nr,
			const struct peerlane_model_save_options *opt,
			struct peerlane_model_stats *stats);

#ifdef __cplusplus
}
#endif

#endif
