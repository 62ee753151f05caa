#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Help, version, and mistakes on the command line.
# shellcheck disable=SC1091,SC2154 # setup.bash sets tool, dir and the rest
. "$(dirname "$0")/setup.bash"

expect 0 "$tool" --version
grep -qE '^peerlane [0-9]+\.[0-9]+\.[0-9]+$' out || fail "version: $(cat out)"
expect 0 "$tool" --help
says out check
says out stat
expect 0 "$tool" help
expect 2 "$tool"
says err 'usage:'
for command in check bench cp stat prove; do
	expect 0 "$tool" help "$command"
	cp out help
	expect 0 "$tool" "$command" --help
	same out help
	says out 'Exit status:'
	says out --help
	awk 'length > 80' out | grep -q . && fail "help of $command is wider than 80 columns"
	expect 2 "$tool" "$command" --no-such-option
	says err "'--no-such-option'"
done

expect 0 "$tool" help nvme
says out bind
expect 0 "$tool" nvme --help
says out unbind
expect 2 "$tool" nvme
says err 'missing'
expect 2 "$tool" nvme frobnicate
says err "'frobnicate'"
says err "Try 'peerlane nvme --help'."
expect 2 "$tool" help nvme frobnicate
says err "'frobnicate'"
for command in bind unbind list identify read write verify latency perf; do
	expect 0 "$tool" help nvme "$command"
	cp out help
	expect 0 "$tool" nvme "$command" --help
	same out help
	awk 'length > 80' out | grep -q . && fail "help of $command is wider than 80 columns"
	expect 2 "$tool" nvme "$command" --no-such-option
	says err "'--no-such-option'"
	[ "$command" = list ] && continue
	expect 2 "$tool" nvme "$command"
	says err 'missing'
done
expect 2 "$tool" nvme bind --driver floppy nvme0
says err "'floppy'"
expect 2 "$tool" nvme list sim:
says err "'sim:'"
expect 2 "$tool" nvme read sim: sim:
expect 2 "$tool" nvme read --count 0 sim:
expect 2 "$tool" nvme read --block x sim:
expect 2 "$tool" nvme perf --depth 0 sim:
expect 2 "$tool" nvme perf --size 100 sim:

expect 0 "$tool" help model
says out verify
expect 2 "$tool" model
says err 'missing'
for command in ls load verify cp; do
	expect 0 "$tool" help model "$command"
	cp out help
	expect 0 "$tool" model "$command" --help
	same out help
	awk 'length > 80' out | grep -q . && fail "help of $command is wider than 80 columns"
	expect 2 "$tool" model "$command" --no-such-option
	says err "'--no-such-option'"
	expect 2 "$tool" model "$command"
	says err 'missing'
done
expect 2 "$tool" model load --cold --cached x
expect 2 "$tool" model cp --align 12 x y
says err 'power of two'

expect 2 "$tool" frobnicate
says err "'frobnicate'"
expect 2 "$tool" --frobnicate
says err "'--frobnicate'"
expect 2 "$tool" help frobnicate
says err "'frobnicate'"
expect 2 "$tool" check one two
says err "'two'"
expect 2 "$tool" bench
says err 'missing'
expect 2 "$tool" cp one
says err 'missing'
expect 2 "$tool" prove
says err 'missing'
expect 2 "$tool" prove --size 1M x
says err "--size: '1M' is not between 16M and 1T"
expect 2 "$tool" prove --rounds 0 x
expect 2 "$tool" prove --backend sim x
says err "'sim'"
expect 2 "$tool" bench --size
says err "'--size' needs"
expect 2 "$tool" bench --size 4Q file
says err "'4Q'"
expect 2 "$tool" bench --size 0 file
expect 2 "$tool" bench --size 4K,,1M file
expect 2 "$tool" bench --size 0x10 file
expect 2 "$tool" bench --size 99999999999G file
expect 2 "$tool" cp --chunk 9999T one two
says err "--chunk: '9999T' is not between 4K and 1T"
expect 2 "$tool" check --gpu 99999999999
says err "--gpu: '99999999999' is too large"
expect 2 "$tool" check --gpu 99999999999999999999999
says err "is too large"
expect 2 "$tool" nvme perf --depth 99999999999999999999999 sim:
says err 'is not between 1 and 65535'
expect 2 "$tool" stat --count 0
says err "'0' is less than 1"
expect 2 "$tool" stat --count 3
says err '--count is for --watch'
expect 2 "$tool" bench --s 4K file
says err "option '--s' is ambiguous"
expect 2 "$tool" bench --c file
says err "option '--c' is ambiguous"
expect 2 "$tool" check --nothing
says err "unknown option '--nothing'"
expect 2 "$tool" bench --threads 0 file
expect 2 "$tool" bench --threads -1 file
expect 2 "$tool" bench --threads 4,x file
says err "'x'"
expect 2 "$tool" bench --op erase file
says err "'erase'"
expect 2 "$tool" bench --seconds 0 file
expect 2 "$tool" bench --cold --cached file
says err '--cold and --cached'
expect 2 "$tool" bench --durable file
expect 2 "$tool" check --backend fpga
says err "'fpga'"
expect 2 "$tool" stat pid
says err "'pid'"
expect 2 "$tool" stat -- -4
if [ -e /dev/full ]; then
	"$tool" --help >/dev/full 2>err && fail "a full disk went unnoticed"
	says err 'standard output'
fi
finish
