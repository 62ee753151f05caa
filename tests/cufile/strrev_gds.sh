#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# examples/strrev_gds: the same output and the same file as strrev, over the cuFile interface.
# shellcheck disable=SC1091,SC2154 # setup.bash sets tool, dir and the rest
. "$(dirname "$0")/../tool/setup.bash"
examples=$(dirname "$tool")/../examples

compare() { # DIRECTORY TEXT
	printf '%s' "$2" >"$1/test.txt"
	expect 0 "$examples/strrev" "$1/test.txt"
	mv out want
	cp "$1/test.txt" reversed
	printf '%s' "$2" >"$1/test.txt"
	expect 0 "$examples/strrev_gds" "$1/test.txt"
	same out want
	same "$1/test.txt" reversed
	expect 0 "$examples/strrev_gds" "$1/test.txt"
	[ "$(cat "$1/test.txt")" = "$2" ] || fail 'twice is not the first again'
}

compare "$dir" 'Hello, GDS World!'
says want 'sys_len : 17'
says want '!dlroW SDG ,olleH'
compare "$dir" "$(head -c 9001 /dev/zero | tr '\0' x)yz"
compare "$dir" ''
if [ -d /dev/shm ] && [ -w /dev/shm ]; then
	other=$(mktemp -d /dev/shm/peerlane-test.XXXXXX)
	compare "$other" 'Hello, GDS World!'
	rm -rf "$other"
fi
expect 1 "$examples/strrev_gds" missing
says err 'missing: No such file'
expect 1 "$examples/strrev_gds" a b
only reversed test.txt want
finish
