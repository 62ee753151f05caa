#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# peerlane bench gpu, its kernels on the CPU: each measures, checks its data, and says what it is.
# shellcheck disable=SC1091,SC2154 # setup.bash sets tool, dir and the rest
. "$(dirname "$0")/setup.bash"

small=(--count 60 --repeat 1 --threads 4)

expect 0 "$tool" bench gpu ring --count 60 --repeat 1 --threads 4,8
says out 'on the CPU'
says out 'EMULATED'
says out 'a bare ring'
grep -qE '^ +4 \|#+ ' out || fail 'no picture'
grep -qE '  peak +[0-9.]+( [kMG])? IOPS with [48] threads$' out || fail "the peak: $(cat out)"
# Threads of the CPU say nothing of a GPU: they are no share of a limit.
grep -qE 'of (best|the limit)' out && fail 'a share of the limit'

expect 0 "$tool" bench gpu ring --json "${small[@]}" --queues 1 --depth 8
json 'd["what"] == "ring" and d["emulated"] and not d["on_gpu"] and len(d["rows"]) == 1'
json 'd["rows"][0]["ios"] == 60 and d["rows"][0]["iops"] > 0 and d["rows"][0]["limit_iops"] > 0'
json 'd["rows"][0]["slots_per_port"] == 7 and "gb_per_s" not in d["rows"][0]'
json '"of_limit" not in d and d["limit"]["iops"] == d["rows"][0]["limit_iops"] and d["backend"] == "sim"'

# Several warps share a queue whose slots are few.
expect 0 "$tool" bench gpu ring --json --count 60 --repeat 1 --threads 12 --queues 1 --depth 4
json 'd["rows"][0]["ports_per_queue"] == 3 and d["rows"][0]["slots_per_port"] == 1'
expect 1 "$tool" bench gpu ring "${small[@]}" --threads 16 --queues 1 --depth 4
says err 'no slot for each of 4 warps'

# Without --count a pass has 1024 I/O for each thread, up to a limit; with it, as many.
expect 0 "$tool" bench gpu ring --json --repeat 1 --threads 4 --progress
says err 'row 1 of 1, 4 threads'
json 'd["rows"][0]["ios"] == 4096'
expect 0 "$tool" bench gpu read --json --repeat 1 --threads 4 --bytes 16K
[ ! -s err ] || fail 'progress that nobody asked for'
json 'd["rows"][0]["ios"] == 4000 and "through its queues" in d["verification"]'

# So many bytes that several threads write them.
expect 0 "$tool" bench gpu read --json "${small[@]}" --count 4 --size 2M --bytes 26M
json 'd["verified"] and d["bytes"] == 26 << 20'

for size in 512 2K 8K; do
	expect 0 "$tool" bench gpu read --json "${small[@]}" --size $size --bytes 24K
	json 'd["verified"] and d["emulated"] and d["latency_us"] > 0 and d["bytes"] == 24576'
	json 'd["rows"][0]["gb_per_s"] > 0 and d["rows"][0]["limit_iops"] > 0'
done
expect 0 "$tool" bench gpu read "${small[@]}" --bytes 16K
says out 'EMULATED'
says out 'one read alone'

expect 0 "$tool" bench gpu file --json "${small[@]}" --dir . --bytes 16K
json 'd["verified"] and not d["emulated"] and d["rows"][0]["limit_iops"] > 0 and d["proxies"] == 1'
json 'd["rows"][0]["spread_limit_iops"] > 0'
only

# A file that is given: its data are compared with pread, as far as whole reads go; and it is left alone.
head -c 100001 /dev/urandom >given
sum=$(cksum <given)
expect 0 "$tool" bench gpu file --json "${small[@]}" --threads 4,8 given
json 'd["bytes"] == 98304 and d["file_name"] == "given" and "latency_us" not in d and "pread" in d["verification"]'
expect 0 "$tool" bench gpu file "${small[@]}" --size 512 --queues 1 --depth 2 given
says out 'given, 97.5 KiB of 97.5 KiB in the page cache'
for read in 0 63; do
	expect 1 "$tool" bench gpu file "${small[@]}" --spoil $read given
	says err 'wrong data in the read at byte'
	[ ! -s out ] || fail 'figures in spite of wrong data'
done
expect 0 "$tool" bench gpu file "${small[@]}" --spoil 64 given
[ "$(cksum <given)" = "$sum" ] || fail 'the file was changed'
expect 1 "$tool" bench gpu file missing
says err 'missing: No such file'
expect 1 "$tool" bench gpu file .
says err '.: is neither a file nor a block device'
expect 1 "$tool" bench gpu file --size 128K given
says err 'given: has less than --size, 131072 bytes'
expect 2 "$tool" bench gpu file --bytes 16K given
says err '--bytes is for a file that is made'
expect 2 "$tool" bench gpu file --dir . given
says err '--dir is for a file that is made'
expect 2 "$tool" bench gpu file --size 700 given
expect 2 "$tool" bench gpu given
says err "'peerlane bench gpu file given' reads that file"
rm given

# With --seconds a pass has fewer I/O than it was to have, and work has fewer runs.
for what in ring read file array mixed; do
	expect 0 "$tool" bench gpu $what --json --repeat 1 --threads 4 --count 10M --seconds 0.01
	json '0 < d["rows"][0]["ios"] < 1000000'
done
expect 0 "$tool" bench gpu ring --json "${small[@]}" --seconds 1000
json 'd["rows"][0]["ios"] == 60'
expect 0 "$tool" bench gpu sum --threads 4 --repeat 100 --seconds 0.001
says out 'read in 2 runs'

# Verification sees a single bit, in the first block and in the last.
for what in read file; do
	for block in 0 31; do
		expect 1 "$tool" bench gpu $what "${small[@]}" --size 512 --bytes 16K --spoil $block
		says err "wrong data in 1 of 32 I/O, one of them from block $block on"
		[ ! -s out ] || fail "$what: figures in spite of wrong data"
	done
done

# Arrays: all pages cached, and a part of them.
expect 0 "$tool" bench gpu array --json "${small[@]}" --cache 32K
json 'd["emulated"] and d["verified"] and d["hit_ratio"] == 1 and d["unit"] == "pages/s"'
json 'd["rows"][0]["ios"] == 60 and d["rows"][0]["limit_iops"] > 0'
expect 0 "$tool" bench gpu array --json "${small[@]}" --cache 32K --hit-ratio 0.25 --page 1K
json '0 < d["hit_ratio"] < 0.9'
expect 1 "$tool" bench gpu array "${small[@]}" --cache 32K --spoil 63
says err 'from block 56 on'

# Words read and written, more than the cache holds: every one is compared, and the drive in the end.
expect 0 "$tool" bench gpu mixed --json --threads 4,8 --repeat 1 --count 800 --bytes 256K --cache 32K
json 'd["verified"] and d["evictions"] > 0 and d["write_backs"] > 0 and d["rows"][1]["limit_iops"] > 0'
expect 0 "$tool" bench gpu mixed --json --threads 4 --repeat 1 --count 400 --bytes 64K --cache 8K --page 512
json 'd["write_backs"] > 0'
expect 1 "$tool" bench gpu mixed --threads 4 --repeat 1 --count 100 --bytes 64K --cache 32K --spoil
says err 'in word 0, and not'
expect 2 "$tool" bench gpu mixed --bytes 100000
says err 'not a multiple of 65536'
expect 2 "$tool" bench gpu mixed --threads 512 --bytes 64K --cache 32K
says err 'too few words for 512 threads'

# Work on more than the cache holds: each result is that of the CPU, or it is said.
work=(--threads 4 --repeat 1 --bytes 64K --cache 32K)
for what in sum scan bfs; do
	expect 0 "$tool" bench gpu $what --json "${work[@]}"
	json "d['what'] == '$what' and d['emulated'] and d['evictions'] > 0 and d['bytes_read'] >= 60000"
	json 'd["rows"][0]["iops"] > 0 and d["rows"][0]["limit_iops"] > 0 and d["rows"][0]["copied_iops"] > 0'
	expect 1 "$tool" bench gpu $what "${work[@]}" --spoil
	says err 'wrong result'
	[ ! -s out ] || fail "$what: figures in spite of a wrong result"
done
for page in 512 8K; do
	expect 0 "$tool" bench gpu scan "${work[@]}" --cache 64K --page $page --ordered
	expect 0 "$tool" bench gpu bfs "${work[@]}" --cache 64K --page $page --edges 8
done
# Two warps that hold pages, and blocks without theirs: more is read than the pages that came, 32 and one for each that went.
expect 0 "$tool" bench gpu bfs --json --threads 8 --repeat 1 --bytes 256K --cache 128K
json 'd["bytes_read"] > (d["evictions"] + 32) * 4096'
expect 0 "$tool" bench gpu sum "${work[@]}"
says out 'empty cache'
says out 'copied first'
says out 'EMULATED'
expect 2 "$tool" bench gpu sum --bytes 100000
says err '--bytes'
expect 2 "$tool" bench gpu scan --page 5000
says err 'not a power of two'
expect 2 "$tool" bench gpu bfs --bytes 64K --cache 16K
says err 'less than 8 pages'

expect 2 "$tool" bench gpu
says err 'a command is missing'
expect 2 "$tool" bench gpu nothing
says err "unknown command 'nothing'"
expect 2 "$tool" bench gpu read --size 700
says err '--size: 700'
expect 2 "$tool" bench gpu read --size 4K --bytes 5K
says err 'not a multiple of --size'
expect 2 "$tool" bench gpu read --bytes 16K --spoil 32
says err 'there are 32 blocks'
expect 2 "$tool" bench gpu ring --threads 6
says err '--threads: 6 is not a multiple of 4'
expect 2 "$tool" bench gpu ring --depth 12
says err 'not a power of two'
expect 2 "$tool" bench gpu file one more
says err "unexpected argument 'more'"
expect 1 "$tool" bench gpu file "${small[@]}" --dir no/such
says err 'no/such'
expect 0 "$tool" help bench gpu file
says out '--dir'

# The script that measures all, with everything emulated in one table and what is real in another.
PEERLANE_BUILD=$(dirname "$(dirname "$tool")") expect 0 "$source_dir/bench/gpu_io.py" --cpu --only 'commands, no data, 4' --out lines
says out 'commands, no data, 4 proxies'
says out 'no speeds of a GPU'
python3 -c 'import json
lines = [json.loads(line) for line in open("lines")]
assert len(lines) == 2 and lines[1]["emulated"] and lines[1]["rows"]' || fail 'the raw results'
says out 'all took'
# A step that fails is said, with its last words, and does not end the others.
mkdir -p broken/tools
printf '#!/bin/sh\necho "row 3 of 7" >&2\nexit 1\n' >broken/tools/peerlane
chmod +x broken/tools/peerlane
PEERLANE_BUILD=broken expect 1 "$source_dir/bench/gpu_io.py" --cpu
grep -qE '^BFS, .* FAILED after [0-9.]+ s: row 3 of 7$' out || fail 'the last words of a step'
PEERLANE_BUILD=/nowhere expect 1 "$source_dir/bench/gpu_io.py" --cpu

# A file may have that name.
"$tool" bench --help >out
says out 'gpu WHAT'
echo x >gpu
expect 0 "$tool" bench --size 1 --repeat 1 ./gpu
finish
