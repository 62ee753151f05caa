# SPDX-License-Identifier: MIT
# Thin front of meson; "make help" lists what there is.
BUILD := build
PREFIX ?= /usr/local
DESTDIR ?=
FUZZ_SECONDS ?= 60

.PHONY: all programs demo check vm-check fuzz bench ptx install wheel kmod install-dkms clean help

all:
	@scripts/setup build
	@scripts/configure $(BUILD) -Dprefix=$(PREFIX)
	@ninja -C $(BUILD)

programs:
	@scripts/setup build
	@scripts/configure $(BUILD) -Dprefix=$(PREFIX)
	@ninja -C $(BUILD) tools/peerlane examples/strrev examples/strrev_gds bench/peer_cufile bench/limits bench/bare \
		bench/stream_cufile bench/nvme_cost bench/sim_controller

demo: programs
	@scripts/demo $(BUILD)

# FULL=1 is what continuous integration runs: more sanitizers, more kernels.
check:
	@scripts/setup
	@FULL=$(FULL) scripts/run-tests

# Kernels in QEMU; VM_KERNELS="6.1 7.2" picks some, VM_FULL=1 runs every test on every kernel. 77 says that this machine cannot run it.
vm-check:
	@scripts/setup
	@tests/vm/lab || [ $$? -eq 77 ]

# FUZZ_SECONDS for each program.
fuzz:
	@scripts/setup
	@scripts/fuzz $(FUZZ_SECONDS)

bench: programs
	@scripts/bench $(BUILD)

ptx:
	@scripts/ptx

install: all
	@DESTDIR=$(DESTDIR) meson install -C $(BUILD) --no-rebuild

# The Python package with the library inside, into $(BUILD)/wheel.
wheel:
	@scripts/setup build
	@scripts/configure $(BUILD) -Dprefix=$(PREFIX)
	@ninja -C $(BUILD) python/libpeerlane.so.0
	@scripts/wheel $(BUILD)/python/libpeerlane.so.0 $(BUILD)/wheel

# For the kernel that runs, or the one whose headers are in KDIR.
kmod:
	@$(MAKE) -C kmod

install-dkms:
	@scripts/install-dkms $(DESTDIR)

clean:
	rm -rf $(BUILD)

help:
	@echo 'make           fetch what is missing and build into $(BUILD)/'
	@echo 'make demo      build, then show the library and the tool at work'
	@echo 'make check     every test and check; ends with the count. FULL=1 adds sanitizers, valgrind and kernels'
	@echo 'make vm-check  only the kernel modules, on several kernels in QEMU'
	@echo 'make fuzz      the fuzz programs, FUZZ_SECONDS=60 each'
	@echo 'make bench     measure; on a GPU where there is one'
	@echo 'make ptx       make the PTX of the kernels anew, with nvcc'
	@echo 'make install   install under PREFIX=$(PREFIX), with DESTDIR before it'
	@echo 'make wheel     build a Python wheel with the library inside, into $(BUILD)/wheel'
	@echo 'make kmod      build the kernel modules for the kernel that runs, or KDIR=...'
	@echo 'make install-dkms  install their sources for DKMS, and the udev rule'
	@echo 'make clean     remove $(BUILD)/'
