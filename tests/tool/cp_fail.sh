#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# peerlane cp leaves nothing when it is interrupted, when the GPU fails, when the disk is full.
# shellcheck disable=SC1091,SC2154 # setup.bash sets tool, dir and the rest
. "$(dirname "$0")/setup.bash"
set -m # so that background jobs do not ignore SIGINT

truncate -s 1 src
for signal in INT TERM; do
	# Large enough that the signal comes in time; all holes would be over at once.
	head -c 200M /dev/zero >src
	"$tool" cp --chunk 4K src dst >out 2>err </dev/null &
	job=$!
	wait_for sh -c 'ls .peerlane-cp.*'
	kill -$signal $job
	wait $job
	status=$?
	case $signal in INT) want=130 ;; *) want=143 ;; esac
	[ $status -eq $want ] || fail "status $status instead of $want"
	says err interrupted
	only src
done

head -c 10M /dev/urandom >src
PEERLANE_SIM_FAIL=copy:2:100000 expect 1 "$tool" cp --chunk 1M src dst
[ -s err ] || fail 'no message'
only src

mkdir small
if [ "$(id -u)" -ne 0 ] || ! mount -t tmpfs -o size=4M none small 2>/dev/null; then
	rmdir small
	[ "$failures" -gt 0 ] || { echo 'the full disk was not tried: no mount without root' && exit 0; }
	finish
fi
trap 'umount "$dir/small"; clean_up' EXIT
expect 1 "$tool" cp --chunk 1M src small/dst
says err 'small/dst'
[ -z "$(ls -A small)" ] || fail "left: $(ls -A small)"
expect 1 "$tool" bench --create --bytes 10M small/new
[ -z "$(ls -A small)" ] || fail "bench left: $(ls -A small)"
finish
