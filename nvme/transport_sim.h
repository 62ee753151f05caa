/* SPDX-License-Identifier: MIT */
/* Transports to the software controller of sim/. */
#ifndef PL_NVME_TRANSPORT_SIM_H
#define PL_NVME_TRANSPORT_SIM_H

#include "transport.h"

/*
 * "sim:KEY=VALUE,...": a controller in this process, made by open() and gone with close(). The keys
 * are those of sim/README.md, and two of the transport's own: thread=0 has it run in the driver's
 * thread, while that waits, instead of its own; scatter=1 gives every page an address of its own.
 */
extern const struct pl_nvme_transport_ops pl_nvme_transport_sim;

/*
 * "sim-unix:PATH": one that another process serves there. Memory must be shared for that: what alloc()
 * gave, or any mapping of a file, a memfd or shared memory that this process still has a
 * descriptor of; others get -EOPNOTSUPP.
 */
extern const struct pl_nvme_transport_ops pl_nvme_transport_sim_unix;

#endif
