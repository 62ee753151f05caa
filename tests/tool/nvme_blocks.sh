#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# peerlane nvme identify, read, write and verify on the software controller.
# shellcheck disable=SC1091,SC2154 # setup.bash sets tool, dir and the rest
. "$(dirname "$0")/setup.bash"
yes=(--yes-destroy-data SIM0001)

# What it is.
expect 0 "$tool" nvme identify --json sim:size=8M:16M,ns=2,nn=3,bs=512:4096,serial=ABC,mdts=6
json 'd["controller"]["serial"] == "ABC" and d["controller"]["max_transfer_bytes"] == 262144'
json '[n["nsid"] for n in d["namespaces"]] == [1, 2]'
json '[n["block_bytes"] for n in d["namespaces"]] == [512, 4096]'
json '[n["nr_blocks"] for n in d["namespaces"]] == [16384, 4096] and d["namespaces"][0]["usable"]'
expect 0 "$tool" nvme identify sim:serial=ABC
says out 'serial          ABC'
says out 'Namespace 1'
expect 0 "$tool" nvme identify --nsid 2 --json sim:ns=2
json 'list(d) == ["namespaces"] and d["namespaces"][0]["nsid"] == 2'
expect 0 "$tool" nvme identify --raw sim:serial=ABCDEFGH
says out '|....ABCDEFGH'
says out 00001000
expect 1 "$tool" nvme identify --nsid 7 sim:
says err 'sim: has no namespace 7'
expect 1 "$tool" nvme read --nsid 7 sim:
says err 'namespace 7: it does not exist, or is not active'
expect 1 "$tool" nvme read --block 131072 sim:
says err 'ends after block 131071: it has no 1 block from 131072 on'
expect 1 "$tool" nvme identify served:
says err 'the path of the socket is missing or too long'
expect 1 "$tool" nvme identify "sim-unix:$dir/nowhere"
says err 'nobody serves there'
: >file
expect 1 "$tool" nvme serve --socket file sim:
says err 'file: somebody serves there, or a file is in the way'
rm file
expect 1 "$tool" nvme verify --input s3://bucket/file sim:
says err 's3://bucket/file: URLs are not files here'
expect 2 "$tool" nvme identify --raw --json sim:
expect 1 "$tool" nvme identify sim:nonsense=1
says err 'sim:nonsense=1'
says err 'no such key'
expect 1 "$tool" nvme identify nothing:at/all
says err 'no such form of address'
expect 2 "$tool" nvme identify

# Onto a drive that stays (a file) and back, in blocks of both sizes, with a tail.
for bs in 512 4096; do
	drive=sim:file=$dir/disk.$bs,size=16M,bs=$bs
	# None is the byte that is put there later.
	head -c 3000001 /dev/urandom | tr x y >data
	nr=$((3000001 / bs + 1))
	expect 1 "$tool" nvme write --input data "$drive"
	says err '--yes-destroy-data SIM0001'
	expect 1 "$tool" nvme write --yes-destroy-data SIM0002 --input data "$drive"
	says err "serial number 'SIM0001', not 'SIM0002'"
	cmp -s -n $((16 << 20)) "disk.$bs" /dev/zero || fail 'it wrote all the same'
	expect 0 "$tool" nvme write "${yes[@]}" --input data --block 7 "$drive"
	says out "wrote $nr blocks from 7 on"
	cmp -s -i 0:$((7 * bs)) -n 3000001 data "disk.$bs" || fail 'not what was to be written'
	[ "$(tail -c +$((7 * bs + 3000002)) "disk.$bs" | tr -d '\0' | wc -c)" -eq 0 ] ||
		fail 'more was written'
	expect 0 "$tool" nvme read --block 7 --count $nr --output back "$drive"
	cmp -s -n 3000001 data back || fail 'not what is on the drive'
	[ "$(stat -c %s back)" -eq $((nr * bs)) ] || fail 'wrong size'
	expect 0 "$tool" nvme verify --input data --block 7 "$drive"
	says out "$nr blocks from 7 on, 2.9 MiB: all right"
	expect 1 "$tool" nvme verify --input data --block 8 "$drive"
	says err 'blocks differ, the first at byte'
	printf x | dd of="disk.$bs" bs=1 seek=$((9 * bs + 5)) conv=notrunc status=none
	expect 1 "$tool" nvme verify --input data --block 7 "$drive"
	says err "1 of $nr blocks differ, the first at byte 5 of block 9"
	expect 0 "$tool" nvme verify --input data --block 7 --count 2 "$drive"
done
expect 0 "$tool" nvme read --block 7 --count 2 --output - "sim:file=$dir/disk.4096,bs=4096"
cmp -s -n 8192 out data || fail 'standard output has other data'

# A pattern, all of a namespace; another one differs.
drive=sim:file=$dir/pattern,size=5M,ns=1
expect 0 "$tool" nvme write "${yes[@]}" --pattern 4711 "$drive"
says out '10240 blocks'
expect 0 "$tool" nvme verify --pattern 4711 "$drive"
expect 0 "$tool" nvme verify --pattern 4711 --block 1000 --count 3 "$drive"
expect 1 "$tool" nvme verify --pattern 4712 "$drive"
says err '10240 of 10240 blocks differ'

# Shown.
printf 'Hello, blocks' >hello
expect 0 "$tool" nvme write "${yes[@]}" --input hello --block 3 "$drive"
expect 0 "$tool" nvme read --block 3 "$drive"
says out '00000600  48 65 6c 6c 6f 2c 20 62  6c 6f 63 6b 73 00 00 00  |Hello, blocks...|'
says out '*'
says out 00000800
[ "$(wc -l <out)" -eq 4 ] || fail "lines: $(cat out)"

# Where there is nothing.
expect 1 "$tool" nvme read --block 10240 "$drive"
says err 'ends after block 10239'
expect 1 "$tool" nvme read --block 10239 --count 2 "$drive"
expect 1 "$tool" nvme write "${yes[@]}" --input data --block 10000 "$drive"
says err 'ends after block 10239'
expect 1 "$tool" nvme read --nsid 2 "$drive"
says err 'namespace 2: it does not exist'
expect 1 "$tool" nvme write "${yes[@]}" --input nowhere "$drive"
says err nowhere
expect 1 "$tool" nvme write "${yes[@]}" --input . "$drive"
says err 'not a regular file'
expect 1 "$tool" nvme write "${yes[@]}" --input hello --count 2 "$drive"
says err 'do not reach'
expect 1 "$tool" nvme read --output no/such/file "$drive"
says err no/such/file
expect 2 "$tool" nvme write "${yes[@]}" "$drive"
says err 'either --input or --pattern'
expect 2 "$tool" nvme verify --pattern x "$drive"
says err "'x'"
expect 2 "$tool" nvme verify --pattern 1 --input hello "$drive"
if [ -e /dev/full ]; then
	"$tool" nvme read --output - "$drive" >/dev/full 2>err && fail 'a full disk went unnoticed'
fi
finish
