#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# peerlane bench never harms a file that it did not make, and finds wrong data.
# shellcheck disable=SC1091,SC2154 # setup.bash sets tool, dir and the rest
. "$(dirname "$0")/setup.bash"

# No file at all.
for how in '' --create; do
	# shellcheck disable=SC2086 # or no word
	expect 1 "$tool" bench $how s3://bucket/file
	says err 's3://bucket/file: URLs are not files here'
done
expect 1 "$tool" bench .
says err '.: is a directory; name a file in it'
: >empty
expect 1 "$tool" bench empty
says err 'empty: is empty; --create fills it'

head -c 200000 /dev/urandom >mine
cp mine copy
head -c 200000 /dev/zero >zeros
for op in write randwrite; do
	expect 1 "$tool" bench --repeat 1 --op $op mine
	says err 'mine: was not made by bench; --force'
	expect 1 "$tool" bench --repeat 1 --op $op zeros
done
expect 1 "$tool" bench --repeat 1 --create mine
expect 1 "$tool" bench --repeat 1 --create --bytes 1K mine
same mine copy
[ "$(stat -c %s zeros)" -eq 200000 ] || fail 'zeros changed'

# Reading it is fine, verifying it is not possible.
expect 0 "$tool" bench --repeat 1 --size 64K mine
expect 1 "$tool" bench --repeat 1 --verify mine
says err 'cannot be verified'

expect 0 "$tool" bench --repeat 1 --verify --op write --force --size 64K mine
expect 0 "$tool" bench --repeat 1 --verify --op write --size 64K mine

# One wrong byte is found; in the first block it makes the file a stranger.
expect 0 "$tool" bench --repeat 1 --create --bytes 3M --size 1M ours
printf '\377\000' | dd of=ours bs=1 seek=2097157 conv=notrunc 2>/dev/null
expect 1 "$tool" bench --repeat 1 --verify --size 64K ours
grep -qE 'wrong data at byte 20971(57|58)|was not made by bench' err || fail "err: $(cat err)"

# A copy that went to the wrong place is no bench file.
dd if=/dev/zero of=moved bs=4096 count=1 2>/dev/null
cat ours >>moved
expect 1 "$tool" bench --repeat 1 --op write moved

expect 1 "$tool" bench .
expect 1 "$tool" bench /dev/null
mkfifo pipe
expect 1 timeout 10 "$tool" bench pipe
: >empty
expect 1 "$tool" bench empty
says err 'is empty'
expect 1 "$tool" bench --create no/such/file
says err 'no/such/file'
finish
