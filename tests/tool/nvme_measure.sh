#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# peerlane nvme latency and perf on the software controller: counts are exact, data are moved.
# shellcheck disable=SC1091,SC2154 # setup.bash sets tool, dir and the rest
. "$(dirname "$0")/setup.bash"
yes=(--yes-destroy-data SIM0001)

expect 0 "$tool" nvme latency --count 300 --plot plot.svg sim:
says out '300 commands'
says out '99.9%'
says out '#'
[ "$(grep -o '| [0-9]*$' out | awk '{ n += $2 } END { print n }')" -eq 300 ] || fail 'the bars do not add up'
python3 -c 'import xml.dom.minidom as m; m.parse("plot.svg")' || fail 'the plot is no XML'
for op in read write randread randwrite; do
	expect 0 "$tool" nvme latency --json --count 200 --op $op --size 8K "${yes[@]}" sim:bs=4096
	json "d['op'] == '$op' and d['ios'] == 200 and d['io_bytes'] == 8192 and not d['interrupted']"
	json 'd["min_us"] <= d["p50_us"] <= d["p99_us"] <= d["p99_99_us"] <= d["max_us"]'
	json 'sum(r["count"] for r in d["histogram"]) == 200'
done
expect 1 "$tool" nvme latency --plot no/such.svg --count 1 sim:
says err no/such.svg

# Depths, sizes (also split ones), queues, both kinds of memory.
expect 0 "$tool" nvme perf --json --count 500 --size 512,4K,300K --depth 1,17 --queues 1,3 sim:
json 'len(d["rows"]) == 12 and all(r["ios"] == 500 for r in d["rows"])'
json 'all(r["bytes"] == r["ios"] * r["io_bytes"] and r["iops"] > 0 for r in d["rows"])'
json 'sorted({(r["depth"], r["queues"]) for r in d["rows"]}) == [(1, 1), (1, 3), (17, 1), (17, 3)]'
expect 0 "$tool" nvme perf --count 500 --memory gpu --backend sim --depth 4 --queues 2 sim:
says out 'gpu memory'
expect 0 "$tool" nvme perf --seconds 0.05 --json sim:
json 'd["rows"][0]["seconds"] >= 0.05 and d["rows"][0]["ios"] > 0'

# Writes stay in their range, and say whose data they destroy.
drive=sim:file=$dir/disk,size=1M
expect 1 "$tool" nvme perf --op write --count 1 "$drive"
says err '--yes-destroy-data SIM0001'
expect 0 "$tool" nvme perf --op write --count 100 --size 1K --block 100 --blocks 20 "${yes[@]}" \
	--memory gpu --backend sim "$drive"
python3 - <<'END' || fail 'not the blocks that were to be written'
import sys
d = open("disk", "rb").read()
b = [any(d[i * 512:i * 512 + 512]) for i in range(2048)]
sys.exit(b != [100 <= i < 120 for i in range(2048)])
END

expect 1 "$tool" nvme perf --size 4K,1000 sim:
says err 'multiple of the block size'
expect 1 "$tool" nvme perf --queues 9 sim:queues=8
says err 'grants 8'
expect 1 "$tool" nvme perf --depth 64 sim:mqes=15
says err 'takes 15'
expect 1 "$tool" nvme perf --size 1M --blocks 8 sim:
says err 'more than the range'
expect 1 "$tool" nvme latency --block 999999 sim:size=1M
says err 'ends after block 2047'
expect 2 "$tool" nvme perf --op erase sim:
finish
