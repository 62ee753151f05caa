#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# peerlane stat sees a bench that runs, and nothing when there is nothing.
# shellcheck disable=SC1091,SC2154 # setup.bash sets tool, dir and the rest
. "$(dirname "$0")/setup.bash"

expect 0 "$tool" stat
expect 0 "$tool" stat --json
json 'isinstance(d["contexts"], list)'
expect 1 "$tool" stat $$
says err "process $$ has no peerlane context"
expect 1 "$tool" stat 2147483647
says err 'does not exist'

expect 0 "$tool" bench --repeat 1 --create --bytes 4M file
"$tool" bench --repeat 1 --size 4K --bytes 100T file >/dev/null 2>&1 </dev/null &
job=$!
wait_for busy $job
expect 0 "$tool" stat $job
says out "$job"
says out 'read'
says out 'pool'
expect 0 "$tool" stat
says out "$job"
expect 0 "$tool" stat --json --all $job
json "d['contexts'][0]['pid'] == $job and d['contexts'][0]['backend'] == 'sim'"
json 'd["contexts"][0]["read"]["ok"] > 0 and d["contexts"][0]["read"]["bytes"] > 0'
json 'sum(d["contexts"][0]["read"]["path_bytes"].values()) > 0'
json 'len(d["contexts"][0]["read"]["size_hist"]) == 64'
expect 0 "$tool" stat --all $job
says out 'read sizes'
# Times and counts as people write them: no exponent, and one file is no "files".
grep -qE '[0-9]e[+-][0-9]|[^0-9]1 (files|buffers|threads|waits)' out && fail "odd numbers: $(cat out)"
grep -qE 'from [0-9.]+ (us|ms|s) ' out || fail "no times: $(cat out)"
grep -qE 'from [0-9]+\.[0-9]{3}' out && fail "times of four figures: $(cat out)"
says out ', 1 file, '
expect 0 "$tool" stat --watch 0.2 --count 3 --json $job
[ "$(wc -l <out)" -eq 3 ] || fail "watch: $(wc -l <out) lines"
tail -n 1 out >last && mv last out
json 'd["contexts"][0]["read"]["gb_per_s"] > 0'
expect 0 "$tool" stat --watch 0.2 --count 2 $job

# Watching ends with status 1 when the process does.
"$tool" stat --watch 0.1 $job >/dev/null 2>err </dev/null &
watcher=$!
sleep 0.3
kill -TERM $job
wait $job
[ $? -eq 143 ] || fail 'bench did not end by SIGTERM'
wait $watcher
[ $? -eq 1 ] || fail 'the watcher did not notice'
expect 1 "$tool" stat $job
finish
