#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# peerlane check: text, JSON, exit status; files, directories, and what is neither.
# shellcheck disable=SC1091,SC2154 # setup.bash sets tool, dir and the rest
. "$(dirname "$0")/setup.bash"

expect 1 env PEERLANE_LIBCUDA=/nowhere "$tool" check
says out 'kernel  '
says out 'io_uring  '
says out 'CUDA  '
tail -n 1 out >last
says last 'verdict: works, but on the simulator: no CUDA GPU was found; next: peerlane check FILE'
rm last

head -c 300000 /dev/urandom >file
sum=$(cksum <file)
expect 1 "$tool" check file
says out "$dir/file"
says out 'file system'
says out 'A read'
says out 'A write (this check assumes one write of 1 MiB at offset 0)'
says out 'A read (this check assumes one read of 293.0 KiB at offset 0)'
says out 'in-place        no: not used for requests under 64 MiB'
says out 'write: copy; next: peerlane bench file'
! grep -q 'to change that' out || fail 'a fix that is none'
says out 'I/O started by kernels'
says out 'served from 1 file by 1 thread of this process'
grep -q ': taken' out || grep -q 'taken: ' out || fail 'no path is taken'
[ "$(cksum <file)" = "$sum" ] || fail 'the file was changed'

expect 1 "$tool" check --json file
json 'd["status"] == 1 and d["file"]["bytes"] == 300000 and d["gpus"][0]["backend"] == "sim"'
json 'len(d["read"]["verdicts"]) == 5 and d["read"]["path"] and d["write"]["path"]'
json 'sum(v["chosen"] for v in d["read"]["verdicts"]) == 1'
json 'd["read"]["assumed_bytes"] == 300000 and d["write"]["assumed_bytes"] == 1 << 20'
json 'd["next"] == "peerlane bench file" and d["verdict"].endswith("; next: " + d["next"])'
json '"kernels run on threads of the CPU" in d["kernels"]["served_by"]'
json 'all(v["usable"] or v["reason"] for v in d["read"]["verdicts"])'

expect 1 "$tool" check --quiet file
[ "$(wc -l <out)" -eq 1 ] || fail 'quiet is more than a line'

# A driver that takes copies one by one only: what that costs, and the way out.
if [ -n "${FAKE_LIBCUDA_OLD:-}" ]; then
	export FAKE_CUDA=1
	PEERLANE_LIBCUDA=$FAKE_LIBCUDA_OLD expect 0 "$tool" check --backend cuda
	says out 'copies          one by one: threads'
	says out 'a driver of CUDA 13 or later'
	PEERLANE_LIBCUDA=$FAKE_LIBCUDA_OLD expect 0 "$tool" check --backend cuda --json
	json 'all(g["copy_lists"] is False for g in d["gpus"])'
	PEERLANE_LIBCUDA=$FAKE_LIBCUDA expect 0 "$tool" check --backend cuda
	! grep -q 'one by one' out || fail 'a new driver is said to take copies one by one'
	PEERLANE_LIBCUDA=$FAKE_LIBCUDA expect 1 "$tool" check --backend cuda file
	says out 'a better path is possible (see "to change that")'
	says out '(cuda, GPU 0); next: peerlane bench file'
	PEERLANE_LIBCUDA=$FAKE_LIBCUDA expect 1 "$tool" check --quiet --backend cuda /proc
	says out 'verdict: a GPU works; paths not examined; Fake GPU 0 (cuda, GPU 0); next: peerlane check FILE'
	PEERLANE_LIBCUDA=$FAKE_LIBCUDA expect 1 "$tool" check --quiet --backend sim
	says out 'verdict: works, on the simulator as asked; next: peerlane check FILE'
	unset FAKE_CUDA
fi

# An empty file and one that is smaller than a block.
: >empty
expect 1 "$tool" check empty
says out 'A read (the file is empty)'
says out 'next: peerlane bench --create empty'
printf x >one
expect 1 "$tool" check one

# A link is followed; a strange name is printed as it is.
ln -s file link
expect 1 "$tool" check --json link
json 'd["file"]["real_path"].endswith("/file")'
mkdir 'a b'
expect 1 "$tool" check 'a b'
says out "$dir/a b"
says out "next: peerlane bench --create 'a b/test-file'"
: >"-it's"
expect 1 "$tool" check --quiet -- "-it's"
says out "next: peerlane bench --create ./'-it'\\''s'"
[ -z "$(ls 'a b')" ] || fail 'something was left in the directory'

expect 2 "$tool" check s3://bucket/file
says err 's3://bucket/file: URLs are not files here; download it or mount it, then give its path'
expect 2 "$tool" check missing
says err 'missing: No such file'
[ ! -s out ] || fail 'output for a missing file'
mkfifo pipe
expect 2 "$tool" check pipe
says err 'pipe'
expect 2 "$tool" check /dev/null
expect 2 "$tool" check --gpu 99
says err '99'
says out 'next: peerlane check'
expect 2 env PEERLANE_LIBCUDA=/nowhere "$tool" check --backend cuda
says out 'verdict: does not work; no GPU could be opened; next: peerlane check --backend sim'

# The configuration of the drop-in, and where each value is from.
printf '%s' '{ "properties": { "io_batchsize": 99 }, "nonsense": 1 } // end' >c.json
expect 1 env CUFILE_ENV_PATH_JSON="$dir/c.json" CUFILE_FORCE_COMPAT_MODE=1 "$tool" check --cufile
says out 'libcufile.so.0'
says out "99, from $dir/c.json"
for setting in 'logging\.max_file_size_mb +32' 'execution\.parallel_io +true' \
	'properties\.max_device_pinned_mem_size_kb +33554432' 'gpu_bounce_buffer_slab +128'; do
	grep -qE "^  $setting" out || fail "no '$setting' in $(cat out)"
done
says out 'true, from CUFILE_FORCE_COMPAT_MODE'
says out 'unknown key "nonsense"'
expect 1 env CUFILE_ENV_PATH_JSON="$dir/c.json" "$tool" check --cufile --json file
json 'd["cufile"]["file_name"].endswith("c.json") and len(d["cufile"]["warnings"]) == 1'
json '[s["value"] for s in d["cufile"]["settings"] if s["key"] == "properties.io_batchsize"] == [99]'
json 'all(s["from"] and s["use"] for s in d["cufile"]["settings"])'
expect 1 "$tool" check --json
json '"cufile" not in d'

# A namespace of an NVMe controller.
expect 1 "$tool" check --json nvme:sim:bs=4096,serial=HERE/1
json 'd["file"]["device"] == "HERE/1" and d["file"]["block_bytes"] == 4096'
json 'd["file"]["bytes"] == 64 << 20 and d["read"]["path"] == d["write"]["path"] == "p2p"'
json 'd["read"]["io_engine"] == "nvme"'
expect 1 env 'PEERLANE_NVME=sim:serial=A|sim:serial=B,size=1M' "$tool" check nvme:B/1
says out 'B/1'
says out "a registered buffer"
says out 'next: peerlane nvme perf ADDRESS'
expect 1 env PEERLANE_FLAGS=no-p2p "$tool" check nvme:sim:/1
says out "switched off"
says out "read: copy"
expect 2 "$tool" check nvme:nobody/1
says err 'serial number nobody'
expect 2 "$tool" check nvme:sim:/2
says err 'no such namespace'

if [ -d /dev/shm ] && [ -w /dev/shm ]; then
	expect 1 "$tool" check --json /dev/shm
	json 'd["file"]["fs"] == "tmpfs" and d["file"]["block_devices"] == []'
fi
if [ "$(id -u)" -ne 0 ]; then
	chmod 400 file
	expect 1 "$tool" check file
	says out 'no permission'
	chmod 0 file
	expect 2 "$tool" check file
	says err 'Permission denied'
fi
finish
