#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# peerlane stat opens sealed memory files only, waits for nobody, and believes nothing.
# shellcheck disable=SC1091,SC2154 # setup.bash sets tool, dir and the rest
. "$(dirname "$0")/setup.bash"

false_page=$(realpath -e "$PEERLANE_BUILD/tests/false_page") || exit 1
missing=
mkdir empty

ready() { [ -s said ]; }

# start KIND: a process with such a page, $job. False where it cannot be had.
start() {
	: >said
	"$false_page" "$1" "$dir/empty" >said &
	job=$!
	wait_for ready || return 1
	[ "$(cat said)" = ready ] && return 0
	missing="$1: $(cat said)"
	return 1
}

stop() {
	kill -KILL "$job"
	wait "$job" 2>/dev/null
}

start good && {
	expect 0 "$tool" stat "$job"
	says out false-page
	says out 'copy 100%'
	stop
}

# What is no page is not shown, neither if the process is named nor if all are looked at. Those that
# block whoever opens them come last.
for kind in small large unsealed growing magic version bytes file lease fifo fuse; do
	start "$kind" || continue
	expect 1 "$tool" stat "$job"
	says err "process $job has no peerlane context open"
	expect 0 "$tool" stat --json
	json "not [c for c in d['contexts'] if c['pid'] == $job]"
	stop
done

start text && {
	expect 0 "$tool" stat --all "$job"
	says out '????????????????'
	LC_ALL=C grep -q '[^ -~]' out && fail 'bytes of the page went to the terminal'
	expect 0 "$tool" stat --json "$job"
	json 'd["contexts"][0]["program"] == "?" * 63 and d["contexts"][0]["backend"] == "?" * 15'
	stop
}

start counters && {
	expect 0 "$tool" stat --all "$job"
	says out 'copy 20%'
	grep -qiE 'inf|nan|-[0-9]' out && fail "nonsense: $(cat out)"
	expect 0 "$tool" stat --json --all "$job"
	json 'd["contexts"][0]["buffers"] == 2**64 - 1 == d["contexts"][0]["read"]["ok"]'
	stop
}

# A rate is printed for what went forward only. On a busy machine the counter may not have moved: then it is 0.
start backwards && {
	expect 0 "$tool" stat --json --watch 0.01 --count 5 "$job"
	tail -n 1 out >last && mv last out
	json 'not [v for k, v in d["contexts"][0]["read"].items() if k.endswith("per_s") and v]'
	json '[v for k, v in d["contexts"][0]["write"].items() if k.endswith("per_s")] == [0]'
	stop
}

start many && {
	expect 0 "$tool" stat --json "$job"
	json 'len(d["contexts"]) == 256'
	stop
}

if [ "$failures" -eq 0 ] && [ -n "$missing" ]; then
	echo "not all of it: $missing"
	exit 77
fi
finish
