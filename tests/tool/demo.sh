#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# make demo on the simulator: it works, and compares nothing with a limit that is not there.
# shellcheck disable=SC1091,SC2154 # setup.bash sets tool, dir and the rest
. "$(dirname "$0")/setup.bash"

build=$(dirname "$(dirname "$tool")")
if [ ! -x "$build/examples/strrev_gds" ]; then
	echo "no strrev_gds in this build"
	exit 77
fi
expect 0 "$source_dir/scripts/demo" "$build"
says out 'limit  none: a simulated GPU has no bus to measure'
says out 'verified'
grep -qE 'of limit|GB/s, (memory|pinned) copy' out && fail "a limit: $(cat out)"
[ ! -s err ] || fail "complaints: $(cat err)"
finish
