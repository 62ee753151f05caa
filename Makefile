# SPDX-License-Identifier: MIT
# Thin front of meson; "make help" lists what there is.
BUILD := build
PREFIX ?= /usr/local
DESTDIR ?=

.PHONY: all programs demo check bench ptx install clean help

all:
	@scripts/setup build
	@scripts/configure $(BUILD) -Dprefix=$(PREFIX)
	@ninja -C $(BUILD)

programs:
	@scripts/setup build
	@scripts/configure $(BUILD) -Dprefix=$(PREFIX)
	@ninja -C $(BUILD) tools/peerlane examples/strrev examples/strrev_gds bench/peer_cufile bench/limits bench/bare \
		bench/stream_cufile cufile/libcufile.so.0

demo: programs
	@scripts/demo $(BUILD)

check:
	@scripts/setup
	@scripts/run-tests

bench: programs
	@scripts/bench $(BUILD)

ptx:
	@scripts/ptx

install: all
	@DESTDIR=$(DESTDIR) meson install -C $(BUILD) --no-rebuild

clean:
	rm -rf $(BUILD)

help:
	@echo 'make           fetch what is missing and build into $(BUILD)/'
	@echo 'make demo      build, then show the library and the tool at work'
	@echo 'make check     every test and check; ends with the count'
	@echo 'make bench     measure; on a GPU where there is one'
	@echo 'make ptx       make the PTX of the kernels anew, with nvcc'
	@echo 'make install   install under PREFIX=$(PREFIX), with DESTDIR before it'
	@echo 'make clean     remove $(BUILD)/'
