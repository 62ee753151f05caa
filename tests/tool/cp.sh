#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# peerlane cp: sizes, holes, modes, and what it refuses.
# shellcheck disable=SC1091,SC2154 # setup.bash sets tool, dir and the rest
. "$(dirname "$0")/setup.bash"

for size in 0 1 4095 4097 $((70 * 1024 * 1024 + 3)); do
	head -c "$size" /dev/urandom >src
	rm -f dst
	expect 0 "$tool" cp src dst
	says out verified
	same src dst
	expect 0 "$tool" cp --force --no-verify --chunk 4099 --sync src dst
	[ "$size" -gt 100000 ] || same src dst
done
same src dst
expect 0 "$tool" cp --force --chunk 1M --sync src dst
same src dst
only dst src

# Mode, whatever the umask.
head -c 10000 /dev/urandom >src
chmod 750 src
(umask 077 && expect 0 "$tool" cp src mode)
[ "$(stat -c %a mode)" = 750 ] || fail "mode $(stat -c %a mode)"

# Holes: at the start, in the middle, at the end.
truncate -s 40M sparse
printf x | dd of=sparse bs=1 seek=10000000 conv=notrunc 2>/dev/null
printf y | dd of=sparse bs=1 seek=30000001 conv=notrunc 2>/dev/null
expect 0 "$tool" cp sparse sparse2
same sparse sparse2
[ "$(stat -c %b sparse2)" -le $(($(stat -c %b sparse) + 256)) ] || fail 'holes were filled'
truncate -s 3M hole
expect 0 "$tool" cp hole hole2
same hole hole2

# Refusals change nothing.
echo precious >dst
expect 1 "$tool" cp src dst
says err 'dst: exists; --force'
[ "$(cat dst)" = precious ] || fail 'dst was changed'
expect 1 "$tool" cp --force src src
says err 'same file'
ln src hard
ln -s src soft
expect 1 "$tool" cp --force src hard
expect 1 "$tool" cp --force soft src
expect 1 "$tool" cp --force src soft
ln -s nowhere dangling
expect 1 "$tool" cp src dangling
expect 0 "$tool" cp --force src dangling
[ ! -L dangling ] || fail 'the link is still there'
mkdir folder
mkdir folder/src
expect 1 "$tool" cp src folder
says err 'folder/src: is a directory'
rmdir folder/src
# A copy into a folder has the source's name.
expect 0 "$tool" cp src folder
same src folder/src
expect 1 "$tool" cp src folder/
says err 'folder/src: exists; --force'
expect 0 "$tool" cp --force ./src folder/
says out './src -> folder/src: '
expect 1 "$tool" cp src nowhere/
says err 'nowhere/: is not a folder'
(cd folder && expect 1 "$tool" cp --force src . && says err 'same file')
expect 1 "$tool" cp folder new
says err 'is a directory'
expect 1 "$tool" cp missing new
says err 'missing: No such file'
expect 1 "$tool" cp s3n://bucket/file dst2
says err 's3n://bucket/file: URLs are not files here'
expect 1 "$tool" cp src s3://bucket/file
says err 'URLs are not files here'
expect 1 "$tool" cp src no/such/dst
says err 'no/such'
mkfifo pipe
expect 1 timeout 10 "$tool" cp pipe new
expect 1 timeout 10 "$tool" cp --force src pipe
[ -p pipe ] || fail 'the pipe was replaced'
expect 1 "$tool" cp --gpu 9 src new
[ ! -e new ] || fail 'new was made'
find . -name '.peerlane-cp.*' | grep -q . && fail 'temporary files left'
finish
