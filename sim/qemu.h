/* SPDX-License-Identifier: MIT */
/* A controller as a PCI device of QEMU's, so that an operating system's own driver can drive it. */
#ifndef SIM_QEMU_H
#define SIM_QEMU_H

#include "simnvme.h"

/*
 * Answer a QEMU that has "-device x-pci-proxy-dev,fd=..." at the other end of a stream socket, until it
 * ends. The controller must not be running: it takes its turns here, when a register was written. The
 * guest's memory must be shared (memory-backend-memfd). Interrupts are not sent, so a Linux guest
 * needs "irqpoll nolapic_timer". Returns 0 at the end of the connection, or a negative errno.
 */
int pl_simnvme_qemu(struct pl_simnvme *c, int sock);

#endif
