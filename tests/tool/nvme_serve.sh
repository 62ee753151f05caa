#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# peerlane nvme serve: several programs use one controller at a time, and may die.
# shellcheck disable=SC1091,SC2154 # setup.bash sets tool, dir and the rest
. "$(dirname "$0")/setup.bash"
set -m # so that background jobs do not ignore SIGINT

expect 2 "$tool" nvme serve sim:
says err 'say where: --socket PATH'
for mode in 999 rw 7777 ''; do
	expect 2 "$tool" nvme serve --socket s --mode "$mode" sim:
	says err 'no permissions in octal'
done
expect 1 "$tool" nvme identify "served:$dir/nobody"
says err 'nobody serves there'
expect 1 "$tool" nvme serve --socket "$dir/no/such/dir" sim:

"$tool" nvme serve --socket "$dir/s" --mode 660 --queues 2 --clients 2 \
	sim:size=16M,serial=SHARED >log 2>&1 </dev/null &
owner=$!
wait_for grep -q '^serving SHARED' log
says log "at $dir/s: up to 2 clients, 2 queue pairs each, 4 together"
[ "$(stat -c %a s)" = 660 ] || fail "the socket has mode $(stat -c %a s)"
expect 1 "$tool" nvme serve --socket "$dir/s" sim:
says err 'somebody serves there, or a file is in the way'

# What one writes, the other reads; by the engine's files as well.
expect 0 "$tool" nvme identify "served:$dir/s"
says out SHARED
expect 1 "$tool" nvme write --pattern 7 --block 8 --count 64 "served:$dir/s"
expect 0 "$tool" nvme write --pattern 7 --block 8 --count 64 --yes-destroy-data SHARED "served:$dir/s"
expect 0 "$tool" nvme verify --pattern 7 --block 8 --count 64 "served:$dir/s"
expect 1 "$tool" check "nvme:served:$dir/s/1"
says out 'SHARED'
says log "uid $(id -u), gid $(id -g)): granted, up to 2 queue pairs"
expect 0 "$tool" nvme perf --queues 2 --count 1000 "served:$dir/s"

# As many as can be; one of them is killed, and the other goes on.
"$tool" nvme perf --seconds 600 --json "served:$dir/s" >one 2>&1 </dev/null &
one=$!
"$tool" nvme perf --seconds 600 "served:$dir/s" >two 2>&1 </dev/null &
two=$!
wait_for grep -q "pid $one, .*granted" log
wait_for grep -q "pid $two, .*granted" log
expect 1 "$tool" nvme identify "served:$dir/s"
says err 'served to as many as can be'
says log 'refused: there are too many'
kill -KILL $two
wait $two 2>/dev/null
wait_for grep -q "pid $two, .*taken back" log
expect 0 "$tool" nvme verify --pattern 7 --block 8 --count 64 "served:$dir/s"
kill -0 $one || fail 'the other client has ended'

# The owner ends in order, and the client is told.
kill -TERM $owner
wait $owner || fail "the owner ended with $?: $(cat log)"
says log ended
wait $one && fail 'a client without an owner succeeded'
[ ! -e s ] || fail 'the socket is still there'

# A dead owner's socket is replaced. What the one before said must not be taken for its word.
rm log
"$tool" nvme serve --socket "$dir/s" sim: >log 2>&1 </dev/null &
owner=$!
wait_for grep -q '^serving' log
kill -KILL $owner
wait $owner 2>/dev/null
[ -e s ] || fail 'the socket went with its owner'
rm log
"$tool" nvme serve --socket "$dir/s" sim: >log 2>&1 </dev/null &
owner=$!
wait_for grep -q '^serving' log
expect 0 "$tool" nvme identify "served:$dir/s"
kill -INT $owner
wait $owner || fail "the owner ended with $?: $(cat log)"
finish
