#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# peerlane bench: cold and cached, beside plain calls, with O_DIRECT; JSON and plot.
# shellcheck disable=SC1091,SC2154 # setup.bash sets tool, dir and the rest
. "$(dirname "$0")/setup.bash"

expect 0 "$tool" bench --repeat 1 --create --bytes 5M file
expect 0 "$tool" bench --repeat 1 --create --bytes 1000003 odd
sum=$(cksum <file)

# The picture is SVG, whatever its name would say.
expect 2 "$tool" bench --plot plot.png file
says err 'name it FILE.svg'
# Cold, cached, plain, plot, limit, repeat.
expect 0 "$tool" bench --cold --verify --peer --repeat 3 --size 64K,1M --plot plot.svg --json file
json 'd["cache"] == "cold" and all(len(r["passes_gb_per_s"]) == 3 for r in d["rows"])'
json 'all(r["plain"]["gb_per_s"] > 0 and r["of_plain"] > 0 for r in d["rows"])'
python3 -c 'import sys, xml.dom.minidom as m; m.parse("plot.svg")' || fail 'the plot is no XML'
says plot.svg '1 thread, plain'
says plot.svg 'plain: pread into host memory, without the GPU'
grep -q limit plot.svg && fail 'a simulated GPU has no limit to draw'
expect 0 "$tool" bench --repeat 1 --limit 3 --op write --peer --plot plot.svg file
says plot.svg 'limit 3 GB/s'
says plot.svg 'plain: pwrite from host memory'
says out 'plain  pwrite from host memory, without the GPU'
expect 0 "$tool" bench --cached --repeat 1 --limit 12.5 --peer --op write --size 1M file
says out '12.50 GB/s, as given'
[ "$(cksum <file)" = "$sum" ] || fail 'plain writes changed the file'
expect 1 "$tool" bench --repeat 1 --plot no/such/plot.svg file
says err 'no/such/plot.svg'

expect 0 "$tool" bench --repeat 1 --seconds 0.05 --bytes 1T --size 4K --json file
json '0.04 < d["rows"][0]["seconds"] < 5'

# O_DIRECT, where there is one.
if dd if=file of=/dev/null bs=4096 count=1 iflag=direct 2>/dev/null; then
	for op in read write randread randwrite; do
		expect 0 "$tool" bench --repeat 1 --verify --direct --peer --op $op --size 64K,1M file
	done
	expect 0 "$tool" bench --repeat 1 --verify --direct --peer --size 64K odd
	expect 0 "$tool" bench --repeat 1 --verify --direct --peer --op write --size 64K odd
	[ "$(stat -c %s odd)" -eq 1000003 ] || fail 'plain direct writes left the file longer'
fi
finish
