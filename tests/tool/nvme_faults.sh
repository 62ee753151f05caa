#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# peerlane nvme on a controller that fails: what went wrong is said, and nothing hangs.
# shellcheck disable=SC1091,SC2154 # setup.bash sets tool, dir and the rest
. "$(dirname "$0")/setup.bash"
yes=(--yes-destroy-data SIM0001)

# A block that cannot be read: what came before it is in the file.
expect 1 "$tool" nvme read --count 4096 --output back \
	'sim:rule=status opcode=read lba=1100 code=0x281 dnr=1'
says err 'Unrecovered Read Error (media and data integrity, status 0x281), do not retry'
says err 'blocks from 1024 on'
says err "holds the first $((1024 * 512)) bytes only"
[ "$(stat -c %s back)" -eq $((1024 * 512)) ] || fail 'wrong size'
expect 1 "$tool" nvme verify --pattern 1 'sim:rule=status opcode=read code=0x281'
expect 1 "$tool" nvme latency --count 100 'sim:rule=status opcode=read nth=50 code=0x006'
says err 'Internal Error'
expect 1 "$tool" nvme perf --count 1000 --queues 2 'sim:rule=status opcode=read nth=500 code=0x281'
says err 'Unrecovered Read Error'

# A write that fails, one that is torn, and one that is lost.
expect 1 "$tool" nvme write "${yes[@]}" --pattern 1 'sim:size=2M,rule=status opcode=write nth=3 code=0x280'
says err 'Write Fault'
says err 'may be changed in part'
drive=sim:file=$dir/disk,size=2M
expect 0 "$tool" nvme write "${yes[@]}" --pattern 1 "$drive,rule=torn opcode=write nth=2 blocks=100"
expect 1 "$tool" nvme verify --pattern 1 "$drive"
says err 'blocks differ'
expect 1 "$tool" nvme write "${yes[@]}" --pattern 1 --timeout 0.3 'sim:size=2M,rule=drop opcode=write nth=2'
says err 'no answer in time'
expect 1 "$tool" nvme write "${yes[@]}" --pattern 1 'sim:size=2M,rule=status opcode=flush code=0x006'
says err 'flush'

# Commands that come back in another order are still seen in order.
expect 0 "$tool" nvme write "${yes[@]}" --pattern 9 "$drive"
expect 0 "$tool" nvme verify --pattern 9 "$drive,rule=reorder opcode=read window=3"

# The controller fails as a whole.
expect 1 "$tool" nvme read --count 4096 --output back 'sim:rule=remove opcode=read nth=3'
says err 'gone'
expect 1 "$tool" nvme identify 'sim:to=1,rule=stuck-ready on=enable'
says err 'does not get ready'
expect 1 "$tool" nvme identify 'sim:rule=status opcode=identify code=0x006'
says err 'sim:rule=status'
finish
