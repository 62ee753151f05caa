/* SPDX-License-Identifier: MIT */
/*
 * A software NVMe controller: strict, with faults on demand.
 *
 * Its registers and doorbells are shared memory, its queues and data lie in memory that was mapped for
 * it; so a driver reaches it as it reaches a device, from a thread of the same process or, over
 * a Unix socket, from another one. It shares the wire types with the driver and nothing else.
 */
#ifndef SIMNVME_H
#define SIMNVME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pl_simnvme;
struct pl_simnvme_server;
struct pl_simnvme_client;

/* What the controller may do with mapped memory. */
#define PL_SIMNVME_READ 0x1u
#define PL_SIMNVME_WRITE 0x2u

/* What happened since the controller was created. */
struct pl_simnvme_counters {
	uint64_t admin_commands;
	uint64_t io_commands;
	uint64_t errors;      /* completions that were no success */
	uint64_t blocks_read; /* of any size */
	uint64_t blocks_written;
	uint64_t bytes_read; /* from namespaces to the host */
	uint64_t bytes_written;
	uint64_t completions;	  /* entries written to completion queues */
	uint64_t cq_stalls;	  /* times that work waited for room in a completion queue */
	uint64_t doorbells;	  /* writes of doorbell registers that were seen */
	uint64_t bad_doorbells;	  /* writes of doorbells of no queue, or of wrong values */
	uint64_t bad_registers;	  /* writes that the specification forbids */
	uint64_t dma_faults;	  /* accesses outside of what was mapped */
	uint64_t faults_injected; /* times a rule of the fault script came true */
	uint64_t events;	  /* asynchronous events, masked ones included */
	uint64_t enables;	  /* times the controller became ready */
	uint64_t resets;	  /* times it was disabled */
	uint64_t shutdowns;
	uint64_t mappings;  /* there now */
	uint64_t io_queues; /* submission and completion queues but for the admin's, there now */
	uint64_t held;	    /* commands fetched and not completed, there now */
	bool ready;	    /* now */
	bool fatal;	    /* now */
	bool removed;	    /* now */
};

/*
 * Make a controller out of "sim:size=64M,bs=4096,ns=2,..."; "sim:" may be left out, README.md lists
 * the keys. Nothing runs until pl_simnvme_start() or pl_simnvme_step().
 * Returns 0; -EINVAL (why says which word was wrong), -ENOMEM, or what opening a file gave.
 */
int pl_simnvme_create(const char *config, struct pl_simnvme **out, char *why, size_t why_bytes);
/* Stop it and free it. Takes NULL. */
void pl_simnvme_destroy(struct pl_simnvme *c);

/* Let a thread of its own run the controller: 0, -EBUSY if one does, or -EAGAIN. */
int pl_simnvme_start(struct pl_simnvme *c);
/* End that thread; what the controller knows stays. */
void pl_simnvme_stop(struct pl_simnvme *c);
/* Run the controller for one turn in the calling thread; returns the number of commands taken. */
unsigned int pl_simnvme_step(struct pl_simnvme *c);

/* BAR0: registers, doorbells, and the controller memory buffer where there is one. */
void *pl_simnvme_bar(struct pl_simnvme *c, size_t *bytes);
/* The same as a file descriptor, for other processes. It stays the controller's. */
int pl_simnvme_bar_fd(struct pl_simnvme *c);

/*
 * Let the controller reach memory at bus address iova. All three are multiples of 4096.
 * Returns 0; -EINVAL, -EEXIST if part of the range is mapped, -ENOMEM.
 */
int pl_simnvme_map(struct pl_simnvme *c, uint64_t iova, void *memory, size_t bytes,
		   unsigned int access);
/* Take that back, whole: -ENOENT if no mapping has this address and size. Nothing touches it then. */
int pl_simnvme_unmap(struct pl_simnvme *c, uint64_t iova, size_t bytes);

/*
 * Reset the device from outside, as a function-level reset: all registers as at first, no queues.
 * Mappings and namespaces stay. A device that is gone stays gone.
 */
void pl_simnvme_reset(struct pl_simnvme *c);

/* Add rules to the fault script: 0, or -EINVAL (why names the line), -ENOMEM. */
int pl_simnvme_inject(struct pl_simnvme *c, const char *script, char *why, size_t why_bytes);

void pl_simnvme_counters(struct pl_simnvme *c, struct pl_simnvme_counters *out);

/*
 * Serve the controller on a Unix socket: clients get BAR0 and map their memory by descriptor. When one
 * goes, its mappings go, the queues that lay in them are deleted, and if the admin queue
 * was among them the controller is reset. Returns 0, or what socket, bind or thread gave.
 */
int pl_simnvme_serve(struct pl_simnvme *c, const char *path, struct pl_simnvme_server **out);
/* The same for the other end of one connected socket, which becomes the server's if this succeeds. */
int pl_simnvme_serve_one(struct pl_simnvme *c, int sock, struct pl_simnvme_server **out);
/* End it: clients are cut off. Takes NULL. Before pl_simnvme_destroy(). */
void pl_simnvme_unserve(struct pl_simnvme_server *s);

/* Reach a controller that is served at path: 0, or what socket, connect or mmap gave. */
int pl_simnvme_connect(const char *path, struct pl_simnvme_client **out);
/* The same over a socket that is connected: granted, or served alone. It is the client's, also if this fails. */
int pl_simnvme_adopt(int sock, struct pl_simnvme_client **out);
void pl_simnvme_disconnect(struct pl_simnvme_client *client);
void *pl_simnvme_client_bar(struct pl_simnvme_client *client, size_t *bytes);
/*
 * First of 64 GiB of bus addresses that no other client has been told to use. Nothing sees to it: a
 * client may map anywhere.
 */
uint64_t pl_simnvme_client_base(struct pl_simnvme_client *client);
/* As pl_simnvme_map(), for bytes of the file fd from offset on. The server keeps its own mapping. */
int pl_simnvme_client_map(struct pl_simnvme_client *client, uint64_t iova, int fd, uint64_t offset,
			  size_t bytes, unsigned int access);
int pl_simnvme_client_unmap(struct pl_simnvme_client *client, uint64_t iova, size_t bytes);
/*
 * A connection for another process, and its number. That one maps and unmaps, and has BAR0, but neither
 * resets nor grants. What it has mapped stays when it ends, until it is revoked, or this client ends.
 */
int pl_simnvme_client_grant(struct pl_simnvme_client *client, int *sock, uint64_t *id);
/* End it, with its mappings: the controller has no queue and no command there any more. */
int pl_simnvme_client_revoke(struct pl_simnvme_client *client, uint64_t id);
/* Has the server ended this connection, or itself? */
bool pl_simnvme_client_gone(struct pl_simnvme_client *client);
/* As pl_simnvme_reset(). */
int pl_simnvme_client_reset(struct pl_simnvme_client *client);
/* What pl_simnvme_counters() gives there. */
int pl_simnvme_client_counters(struct pl_simnvme_client *client, struct pl_simnvme_counters *out);

#endif
