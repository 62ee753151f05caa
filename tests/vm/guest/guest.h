/* SPDX-License-Identifier: MIT */
/*
 * What the tests inside the guest share. One program holds them all; it is called with the name of a
 * test and exits 0, 1, or 77 after printing why it skips.
 *
 * Lines for the host, which compares from outside after the guest has gone:
 *   DIRECT n                        so many bytes were moved by direct requests
 *   EXPECT bar ADDR LEN raw0 OFFSET the BAR at a physical address holds what the drive holds there
 *   EXPECT raw0 OFFSET LEN bar ADDR likewise the other way round
 *   EXPECT bar ADDR LEN FILE OFFSET a file of the file system, by its name
 *   SAY text                        the lab prints it, whatever becomes of the test
 */
#ifndef GUEST_H
#define GUEST_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <uapi/peerlane.h>
#include "../../../kmod/simgpu.h"

#define KIB 1024UL
#define MIB (1024UL * KIB)
#define GPU_PAGE ((size_t)SIMGPU_PAGE_BYTES)
#define SKIP 77

/* Parts of the drive raw0. */
#define RAW_MARKS (64 * MIB)
#define RAW_WRITE (80 * MIB)

/* Say where and why, and end the test. */
#define fail(...)                                                                                  \
	do {                                                                                       \
		printf("%s:%d: ", __FILE__, __LINE__);                                             \
		printf(__VA_ARGS__);                                                               \
		printf("\n");                                                                      \
		fflush(stdout);                                                                    \
		_exit(1);                                                                          \
	} while (0)

#define expect(condition)                                                                          \
	do {                                                                                       \
		if (!(condition))                                                                  \
			fail("not so: %s (errno %d)", #condition, errno);                          \
	} while (0)

/* A call that must fail with exactly this errno. */
#define expect_errno(call, number)                                                                 \
	do {                                                                                       \
		errno = 0;                                                                         \
		long result_ = (long)(call);                                                       \
		if (result_ != -1 || errno != (number))                                            \
			fail("%s: %ld, errno %d and not %d", #call, result_, errno, number);       \
	} while (0)

/**
 * struct memory - GPU memory that is pinned and mapped
 * @gpu: descriptor of the test GPU
 * @dev: descriptor of /dev/peerlane
 * @address: GPU address
 * @bytes: size
 * @pin: as filled by PIN
 * @map: mapping of the whole
 * @physical: physical address of each GPU page
 */
struct memory {
	int gpu;
	int dev;
	uint64_t address;
	size_t bytes;
	struct peerlane_pin pin;
	char *map;
	uint64_t *physical;
};

int gpu_open(void);
uint64_t gpu_alloc(int gpu, size_t bytes);
void gpu_free(int gpu, uint64_t address);
void gpu_copy(int gpu, uint64_t address, void *user, size_t bytes, bool to_gpu);
void gpu_fault(int gpu, uint32_t what, uint32_t value, uint32_t times);
struct simgpu_state gpu_state(int gpu);

int dev_open(void);
int dev_pin(int dev, uint64_t address, size_t bytes, uint32_t flags, struct peerlane_pin *pin);
int dev_unpin(int dev, uint32_t handle);
struct peerlane_counters dev_counters(int dev);

void memory_open(struct memory *memory, size_t bytes, uint32_t flags);
void memory_close(struct memory *memory);

/* Path of the disk of which a file in /sys/block/NAME/device, like "serial", starts with a word;
 * false if there is none. */
#define DISK_PATH 64
bool disk_find(const char *key, const char *value, char *path);
/* The same where there must be one. */
void disk_path(const char *key, const char *value, char *path);
/* The block device with a serial number. */
int drive_open(const char *serial, int flags);
/* PCI address of its controller, as sysfs writes it. */
void drive_pci(const char *serial, char *pci, size_t room);
/* Whether it is there before the time is up. */
bool drive_wait(const char *serial, unsigned int ms);
/* Write a line to a file of sysfs: 0, or -1 and errno. */
int echo(const char *path, const char *text);
/* Unload a module, if it is not in use. */
int rmmod(const char *name);
/* How often a loop is to go round: VM_ROUNDS of the lab, otherwise @usual. */
unsigned int rounds(unsigned int usual);
/* /dev/md0, an array of two drives, striped (level 0) or of 4 MiB mirrored (level 1). */
int array_start(int level);
void array_stop(int array);
void *host_alloc(size_t bytes);
void fill(void *to, size_t bytes, uint64_t seed);
void sleep_ms(unsigned int ms);
double seconds(void);

/* Does the module for controllers of programs hold nothing? And what does it hold. */
bool nvme_idle(void);
void nvme_held(void);

/* Tell the host. */
void say_direct(size_t bytes);
void say_bar(const struct memory *memory, size_t at, size_t bytes, const char *what, size_t offset);
void say_disk(const char *what, size_t offset, size_t bytes, const struct memory *memory,
	      size_t at);

/* Reads of a slow drive into memory, all under way at once. */
struct slow;
struct slow *slow_start(char *to, size_t bytes, size_t piece);
bool slow_done(struct slow *slow);
/* Wait for all; returns how many failed. */
int slow_finish(struct slow *slow);

/* Does the GPU give somebody else a page of this memory, which was freed? */
bool pages_reused(struct memory *memory);
/* Wait until a mapping whose memory was freed is empty. */
void wait_sigbus(const volatile char *at);
/* Wait until no pin holds memory, and until the GPU has got back what was freed. */
void wait_given_back(struct memory *memory);

/* The process runs @child, which must end with 0; or it is killed after @kill_ms unless that is 0. */
bool raises_sigbus(const volatile char *at);
/* victim.c: begins to look after its memory, until @stop is closed. */
pid_t victim_start(int *stop, uint32_t *handle);
void in_child(void (*child)(void *), void *data, unsigned int kill_ms);

/* The tests; each in a file of its subject. */
int test_io_pread(void);
int test_io_uring(void);
int test_io_unaligned(void);
int test_io_ext4(void);
int test_io_registered(void);
int test_io_errors(void);
int test_io_raid(void);
int test_bounced(void);
int test_route(void);
int test_bad_arguments(void);
int test_privilege(void);
int test_other_owner(void);
int test_map_rules(void);
int test_map_parts(void);
int test_map_fork(void);
int test_map_race(void);
int test_map_race_shared(void);
int test_munmap_in_flight(void);
int test_kill_in_flight(void);
int test_close_in_flight(void);
int test_unpin_in_flight(void);
int test_revoke(void);
int test_revoke_in_flight(void);
int test_revoke_loop(void);
int test_revoke_spliced(void);
int test_persistent(void);
int test_no_persistent(void);
int test_rules_errors(void);
int test_rules_kinds(void);
int test_rules_room(void);
int test_rules_put(void);
int test_rules_missed(void);
int test_rules_reused(void);
int test_shared(void);
int test_provider_faults(void);
int test_unbind_in_flight(void);
int test_unload_refused(void);
int test_bar_places(void);
int test_bar_sections(void);
int test_bar_unbind_loop(void);
int test_taken_close(void);
int test_taken_in_flight(void);
int test_taken_exit(void);
int test_taken_heir(void);
int test_fuzz(void);
int test_owner_fork(void);
int test_owner_passed(void);
int test_owner_worker(void);
int test_owner_exec(void);
int test_owner_killed(void);
int test_owner_exit(void);
int test_owner_threads(void);
int test_owner_unload(void);
int test_holder_pipe(void);
int test_holder_fuse(void);
int test_holder_vfio(void);
int test_storm(void);
int test_engine_ext4(void);
int test_engine_xfs(void);
int test_engine_batch(void);
int test_engine_holes(void);
int test_engine_freed(void);
int test_engine_fallback(void);
int test_engine_refused(void);
int test_engine_tool(void);
int test_engine_raid(void);
int test_engine_permission(void);
int test_engine_mirror(void);
int test_engine_partition(void);
int test_engine_dm(void);
int test_engine_loop(void);
int test_engine_multipath(void);
int test_engine_btrfs(void);
int test_engine_journal(void);
int test_engine_inline(void);
int test_engine_reflink(void);
int test_engine_far(void);
int test_route_acs(void);
int test_engine_errors(void);
int test_engine_unplugged(void);
int test_engine_unplugged_fs(void);
int test_engine_killed(void);
int test_engine_freed_loop(void);
int test_engine_unload(void);
int test_engine_gpu_gone(void);
int test_fabric_tcp(void);
int test_fabric_rdma(void);
int test_fabric_dma(void);
int test_fabric_dma_refused(void);
int test_fabric_drop_dma(void);
int test_fabric_drop_tcp(void);
int test_fabric_drop_rdma(void);
int test_engine_stream(void);
int test_engine_cufile(void);
int test_engine_cost(void);
int test_example_pin_mmap(void);
int test_example_file_to_gpu(void);
int test_prove(void);
int test_prove_bounced(void);
int test_prove_wrong_data(void);
int test_prove_wrong_memory(void);
int test_prove_log(void);
int test_prove_stopped(void);
int test_nvme_refused(void);
int test_nvme_kmod_io(void);
int test_nvme_kmod_rules(void);
int test_nvme_kmod_limits(void);
int test_nvme_kmod_confined(void);
int test_nvme_kmod_intx(void);
int test_nvme_kmod_begin(void);
int test_nvme_kmod_fuzz(void);
int test_nvme_kmod_kill(void);
int test_nvme_kmod_freed(void);
int test_nvme_kmod_unbind(void);
int test_nvme_kmod_back(void);
int test_nvme_kmod_driver(void);
int test_nvme_kmod_driver_freed(void);
int test_nvme_kmod_warps(void);
int test_nvme_serve_io(void);
int test_nvme_serve_kill(void);
int test_nvme_serve_rules(void);
int test_nvme_serve_silent(void);
int test_nvme_vfio_driver(void);
int test_nvme_vfio_io(void);
int test_nvme_vfio_kill(void);
int test_nvme_vfio_back(void);
int test_nvme_kmod_engine(void);
int test_nvme_kmod_engine_staged(void);
int test_nvme_kmod_engine_refused(void);
int test_nvme_kmod_engine_freed(void);
int test_nvme_vfio_engine(void);

#endif
