/* SPDX-License-Identifier: MIT */
/*
 * Drives over a network: the kernel's own target (nvmet) exports drives of the guest, and the guest
 * connects to it, by TCP or by RDMA in software (soft-RoCE). No tool of NVMe is needed: all of it is
 * written to configfs and to /dev/nvme-fabrics.
 */
#ifndef FABRIC_H
#define FABRIC_H

#include "guest.h"

/* The adapter of tests/vm/adapter, which has a PCI device: this must be there. */
#define DMA_ADAPTER "/m/rdma_rxe_dma.ko"

/**
 * struct fabric - a target and the connection to it
 * @transport: "tcp" or "rdma"
 * @controller: number of the controller that the connection made, -1 when there is none
 */
struct fabric {
	const char *transport;
	int controller;
};

/* Load what is needed and export the drives raw0, fs0 and slow0; fs0 is not at /mnt any more. */
void fabric_start(struct fabric *fabric, const char *transport);
/* The same by RDMA, whose adapter is that of DMA_ADAPTER. Only in a boot that has no other. */
void fabric_start_dma(struct fabric *fabric);
/* Connect. The connection is patient with a target that does not answer. */
void fabric_connect(struct fabric *fabric);
/*
 * Be impatient: requests from now on end the connection if they take longer than @request_ms, and so
 * long after it was lost, in seconds, the drives are given up.
 */
void fabric_hurry(const struct fabric *fabric, unsigned int request_ms, unsigned int loss);
/* The controller goes; its requests fail. Also right where it has gone by itself. */
void fabric_disconnect(struct fabric *fabric);
/* Undo everything; /mnt is the drive itself again. */
void fabric_stop(struct fabric *fabric);

/* The path in /dev of a drive of the guest's own. */
void drive_path(const char *serial, char *path, size_t bytes);
/* The name in /dev of an exported drive as it is seen over the network; waits for it. */
void fabric_name(const char *drive, char *name, size_t bytes);
int fabric_open(const char *drive, int flags);

/* --- fabric_io.c --- */

/* Pieces of several alignments, all under way at once, between a drive and a mapping; they are compared. */
#define FABRIC_PIECES 16u
#define FABRIC_PIECE (96 * KIB)
#define FABRIC_STEP (FABRIC_PIECE + 512)
void fabric_pieces(int fd, char *map, size_t offset, bool write);

/* --- fabric.c --- */

/* Its file system over the network at /mnt, to be unmounted before the end. */
void fabric_mount(void);
void fabric_unmount(void);

/*
 * Ends memory that was written to a drive over TCP. Packets refer to its pages, and the kernel may keep
 * those that were received until the processor they came from has others: this makes some.
 */
void fabric_memory_close(struct memory *memory);

/* The target takes the drives away, or gives them again. */
void fabric_export(bool on);
/* The network carries nothing, or does so again: the interface goes down, or the adapter away. */
void fabric_cable(const struct fabric *fabric, bool plugged);

#endif
