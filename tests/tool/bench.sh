#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# peerlane bench: each kind of load, verified.
# shellcheck disable=SC1091,SC2154 # setup.bash sets tool, dir and the rest
. "$(dirname "$0")/setup.bash"
fast=(--repeat 1 --verify)

expect 1 "$tool" bench file
says err 'file: does not exist; --create makes it'
only ""

expect 0 "$tool" bench "${fast[@]}" --create --bytes 5M --size 64K,1M --threads 1,3 file
says out 'limit '
says out 'GB/s'
[ "$(grep -c '^read .* verified$' out)" -eq 4 ] || fail "rows: $(cat out)"
[ "$(stat -c %s file)" -eq $((5 << 20)) ] || fail 'wrong size'
json_row() { json "all($1 for r in d['rows'])"; }
expect 0 "$tool" bench "${fast[@]}" --json --size 64K file
# A simulated GPU has no limit, and nothing is compared with it.
json '"gb_per_s" not in d["limit"] and "no bus" in d["limit"]["source"] and "of_limit" not in d["rows"][0]'
expect 0 "$tool" bench "${fast[@]}" --size 64K file
says out 'limit  none: a simulated GPU has no bus to measure'
grep -q 'of limit' out && fail 'compared with a limit that is not there'
expect 0 env FAKE_CUDA=1 PEERLANE_LIBCUDA="$FAKE_LIBCUDA" "$tool" bench "${fast[@]}" --backend cuda --size 64K file
says out 'pinned copy host to GPU, measured now'
says out 'of limit'

expect 0 "$tool" bench "${fast[@]}" --create --bytes 1200K --size 64K file
sum=$(cksum <file)
for op in read write randread randwrite; do
	for batch in 0 7; do
		expect 0 "$tool" bench "${fast[@]}" --op $op --batch $batch --threads 2 --limit 1 \
			--size 4K,96K --json file
		json 'len(d["rows"]) == 2'
		json_row "r['op'] == '$op' and r['batch'] == $batch and r['verified']"
		json_row "r['bytes'] >= $((1200 << 10)) - 98304"
		json_row 'r["gb_per_s"] > 0 and r["p99_us"] >= r["p50_us"] > 0'
		[ "$(cksum <file)" = "$sum" ] || fail "$op batch $batch changed the file"
	done
done

# Odd sizes, a tail, more bytes than the file, fewer bytes.
expect 0 "$tool" bench "${fast[@]}" --create --bytes 1000003 --size 4095,4097,3M odd
[ "$(grep -c verified out)" -eq 3 ] || fail "odd sizes: $(cat out)"
expect 0 "$tool" bench "${fast[@]}" --op write --size 4097 --batch 3 odd
expect 0 "$tool" bench --repeat 1 --bytes 3M --json odd
json "d['rows'][0]['bytes'] >= 3 << 19"
expect 0 "$tool" bench --repeat 1 --bytes 8K --size 4K --json odd
json "d['rows'][0]['bytes'] == 8192"

expect 0 "$tool" bench "${fast[@]}" --create --bytes 1001 --size 1,7,2K tiny
[ "$(grep -c verified out)" -eq 3 ] || fail "tiny file: $(cat out)"

# A write makes its file.
expect 0 "$tool" bench "${fast[@]}" --op write --bytes 3M --size 1M --durable new
[ "$(stat -c %s new)" -eq $((3 << 20)) ] || fail 'new file has the wrong size'
finish
