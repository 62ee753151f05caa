#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# peerlane check: text, JSON, exit status; files, directories, and what is neither.
# shellcheck disable=SC1091,SC2154 # setup.bash sets tool, dir and the rest
. "$(dirname "$0")/setup.bash"

expect 1 "$tool" check
says out 'kernel  '
says out 'io_uring  '
says out 'CUDA  '
tail -n 1 out | grep -q '^verdict: works, on a simulated GPU' || fail "verdict: $(tail -n 1 out)"

head -c 300000 /dev/urandom >file
sum=$(cksum <file)
expect 1 "$tool" check file
says out "$dir/file"
says out 'file system'
says out 'A read'
says out 'A write'
says out 'I/O started by kernels'
says out 'served from 1 file by 1 thread of this process'
grep -q ': taken' out || grep -q 'taken: ' out || fail 'no path is taken'
[ "$(cksum <file)" = "$sum" ] || fail 'the file was changed'

expect 1 "$tool" check --json file
json 'd["status"] == 1 and d["file"]["bytes"] == 300000 and d["gpus"][0]["backend"] == "sim"'
json 'len(d["read"]["verdicts"]) == 5 and d["read"]["chosen"] and d["write"]["chosen"]'
json 'sum(v["chosen"] for v in d["read"]["verdicts"]) == 1'
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
	unset FAKE_CUDA
fi

# An empty file and one that is smaller than a block.
: >empty
expect 1 "$tool" check empty
printf x >one
expect 1 "$tool" check one

# A link is followed; a strange name is printed as it is.
ln -s file link
expect 1 "$tool" check --json link
json 'd["file"]["real_path"].endswith("/file")'
mkdir 'a b'
expect 1 "$tool" check 'a b'
says out "$dir/a b"
[ -z "$(ls 'a b')" ] || fail 'something was left in the directory'

expect 2 "$tool" check missing
says err 'missing: No such file'
[ ! -s out ] || fail 'output for a missing file'
mkfifo pipe
expect 2 "$tool" check pipe
says err 'pipe'
expect 2 "$tool" check /dev/null
expect 2 "$tool" check --gpu 99
says err '99'

# The configuration of the drop-in, and where each value is from.
printf '%s' '{ "properties": { "io_batchsize": 99 }, "nonsense": 1 } // end' >c.json
expect 1 env CUFILE_ENV_PATH_JSON="$dir/c.json" CUFILE_FORCE_COMPAT_MODE=1 "$tool" check --cufile
says out 'libcufile.so.0'
says out "99, from $dir/c.json"
says out 'true, from CUFILE_FORCE_COMPAT_MODE'
says out 'unknown key "nonsense"'
expect 1 env CUFILE_ENV_PATH_JSON="$dir/c.json" "$tool" check --cufile --json file
json 'd["cufile"]["file"].endswith("c.json") and len(d["cufile"]["warnings"]) == 1'
json '[s["value"] for s in d["cufile"]["settings"] if s["key"] == "properties.io_batchsize"] == [99]'
json 'all(s["from"] and s["use"] for s in d["cufile"]["settings"])'
expect 1 "$tool" check --json
json '"cufile" not in d'

# A namespace of an NVMe controller.
expect 1 "$tool" check --json nvme:sim:bs=4096,serial=HERE/1
json 'd["file"]["device"] == "HERE/1" and d["file"]["block_bytes"] == 4096'
json 'd["file"]["bytes"] == 64 << 20 and d["read"]["chosen"] == d["write"]["chosen"] == "p2p"'
json 'd["read"]["io_engine"] == "nvme"'
expect 1 env 'PEERLANE_NVME=sim:serial=A|sim:serial=B,size=1M' "$tool" check nvme:B/1
says out 'B/1'
says out "a registered buffer"
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
