/* SPDX-License-Identifier: MIT */
/*
 * What the tests of pins share whose owner, process or memory goes: looking at what the module and the
 * GPU's driver keep, and passing descriptors on.
 */
#ifndef KEPT_H
#define KEPT_H

#include "guest.h"

#define UNPIN_WAIT "/sys/module/peerlane/parameters/unpin_wait_ms"

/**
 * struct kept - what is kept
 * @callbacks: pins of the GPU's driver that have a callback
 * @persistent: those that have none
 * @pins: pins of the module
 */
struct kept {
	uint64_t callbacks, persistent, pins;
};

struct kept kept_now(int dev, int gpu);
/* Wait until so much is kept; fails the test when that does not happen. */
void kept_wait(int dev, int gpu, struct kept want);
#define kept_expect(dev, gpu, ...) kept_wait(dev, gpu, (struct kept){ __VA_ARGS__ })

/* Nothing is kept, and all of the GPU's memory can be had, pinned and freed. */
void kept_nothing(void);

/* So many pins will stay until the guest ends, and no module goes: for "vmtest idle" and the script. */
void kept_for_ever(unsigned int nr);
unsigned int nr_kept_for_ever(void);

/* PCI address of the test GPU, as sysfs writes it. */
void gpu_pci(char *text, size_t room);
/* Give the test GPU its driver, and wait until it is there. */
void gpu_bind(const char *pci);

/* Unload the modules, all but the one for controllers, which must not be loaded, and load them again. */
void modules_reload(void);
/* That one. */
void controllers_load(bool load);

/* fuzz_elsewhere.c: what the fuzzer does elsewhere than in its calls. */
void fuzz_fault(unsigned int *seed, int gpu);
void fuzz_calm(int gpu);
void fuzz_hold(unsigned int *seed, void *map, size_t bytes);
pid_t fuzz_elsewhere_start(int drive, int *to);

/*
 * Two ends by which descriptors are passed, from the second to the first: sockets; where the kernel has none
 * pipes, through which the other takes what it is told of. False in that case: the sender then keeps
 * what it has sent open.
 */
bool channel_open(int fds[2]);
/* A descriptor and what belongs to it; false if nobody receives, or sends, any more. */
bool fd_send(int to, int fd, const struct peerlane_pin *pin);
bool fd_receive(int from, int *fd, struct peerlane_pin *pin);

#endif
