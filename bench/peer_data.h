/* SPDX-License-Identifier: MIT */
/* What peer_cufile moves: the file's content, the GPU's buffer, and whether what was moved is right. */
#ifndef PEERLANE_BENCH_PEER_DATA_H
#define PEERLANE_BENCH_PEER_DATA_H

#include "cuda_min.h"
#include "shape.h"

/* A slot is one call's place in the file and in the buffer. */
struct pl_peer_data {
	struct pl_cuda_min cuda;
	uint64_t base, salt;
	unsigned char *touched; /* a byte per slot: moved at least once */
};

/* 0, or -EIO after saying which call failed and how. */
int pl_peer_check_cuda(const struct pl_peer_data *d, const char *call, int result);
/* Writes a file in which a piece in a wrong place is seen. */
int pl_peer_create_file(const char *path, size_t bytes);
/* Makes and fills the GPU's buffer: with what is to be written, or with what no read may leave there. */
int pl_peer_data_prepare(struct pl_peer_data *d, const struct pl_shape *s, size_t bytes);
/* Read: the buffer against the file. Write: the file against what the buffer was filled with. */
int pl_peer_data_verify(const struct pl_peer_data *d, const struct pl_shape *s, size_t nr_slots,
			size_t slot_bytes);

#endif
