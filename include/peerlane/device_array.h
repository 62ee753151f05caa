/* SPDX-License-Identifier: MIT */
/*
 * Set up arrays for kernels (peerlane/device/array.h): typed, cached views of files and namespaces.
 * docs/array.md shows how. Only numbers and addresses are dealt with here: the memory may be a GPU's.
 */
#ifndef PEERLANE_DEVICE_ARRAY_SETUP_H
#define PEERLANE_DEVICE_ARRAY_SETUP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pld_cache;
struct pld_path;
struct pld_target;

/**
 * struct peerlane_array_options - what an array is
 * @size: sizeof(struct peerlane_array_options)
 * @bytes: length of the array
 * @page_bytes: what is read and written at once, a power of two from 512 to 65536 (default 4096); not less
 *              than a block of any target, and not more than a command of any may move
 * @ways: frames that can take a given page, 1 to 32 (default 16, or all); more are used where that makes use of
 *        all of @frames_bytes
 * @frames: memory for the pages, aligned to a page of the controllers; where controllers reach it,
 *          @paths say how
 * @frames_bytes: of it; at least one set of pages
 * @metadata: memory of kernels, all zero, aligned to 128 bytes; peerlane_array_metadata_bytes() of it
 * @timeout_ns: longest wait of a group for a page (default 30 s)
 * @busy_ns: longest wait of a group for a frame while others use all that could take a page (default 1 s)
 * @targets: where the pages are stored, in turn
 * @nr_targets: 1 to 16
 * @paths: the queues of the controllers, and where each finds the frames
 * @nr_paths: 1 to 16
 */
struct peerlane_array_options {
	size_t size;
	uint64_t bytes;
	uint32_t page_bytes;
	uint32_t ways;
	void *frames;
	uint64_t frames_bytes;
	void *metadata;
	uint64_t timeout_ns;
	uint64_t busy_ns;
	const struct pld_target *targets;
	const struct pld_path *paths;
	uint32_t nr_targets;
	uint32_t nr_paths;
};

/**
 * peerlane_array_metadata_bytes() - memory that an array needs beside its pages
 * @opt: options; @frames and @metadata are not looked at
 *
 * 8 bytes for each cached page, 4 for each set, 4 for each command slot, and 128.
 *
 * Return: bytes; 0 if the options are bad.
 */
uint64_t peerlane_array_metadata_bytes(const struct peerlane_array_options *opt);

/**
 * peerlane_array_init() - describe an array to kernels
 * @cache: receives the description; the program gives it to its kernels, by value or in their memory
 * @opt: options
 *
 * Kernels may come and go; what is cached and changed stays. After one was killed, or after the queues were
 * reset while commands were outstanding, zero the metadata: what was not flushed is lost then.
 *
 * Return: 0; -EINVAL bad options; -E2BIG more pages than a cache of this size can tell apart, which are
 * 2^32 for each set.
 */
int peerlane_array_init(struct pld_cache *cache, const struct peerlane_array_options *opt);

#ifdef __cplusplus
}
#endif

#endif
