#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# SIGINT ends a bench cleanly: what was measured is printed, status 130.
# shellcheck disable=SC1091,SC2154 # setup.bash sets tool, dir and the rest
. "$(dirname "$0")/setup.bash"
set -m # so that background jobs do not ignore SIGINT

expect 0 "$tool" bench --repeat 1 --create --bytes 4M file
sum=$(cksum <file)
for op in read randwrite; do
	"$tool" bench --json --op $op --repeat 1 --size 4K --threads 2 --bytes 100T file \
		>out 2>err </dev/null &
	job=$!
	wait_for busy $job
	sleep 0.1
	kill -INT $job
	wait $job
	status=$?
	[ $status -eq 130 ] || fail "status $status instead of 130"
	json 'd["interrupted"] and d["rows"][0]["interrupted"] and d["rows"][0]["bytes"] > 0'
	says err interrupted
	[ "$(cksum <file)" = "$sum" ] || fail 'the file was changed'
done

# A file that is still being made goes away again.
"$tool" bench --create --bytes 200G big >out 2>err </dev/null &
job=$!
wait_for test -s big
kill -INT $job
wait $job
status=$?
[ $status -eq 130 ] || fail "status $status instead of 130 while creating"
only file
finish
