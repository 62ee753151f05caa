# SPDX-License-Identifier: MIT
# What the tests of the tool share: a scratch directory, the simulator, and small checks.
# shellcheck shell=bash
set -u

tool=${PEERLANE_TOOL:-${PEERLANE_BUILD:-build}/tools/peerlane}
export source_dir=${PEERLANE_SOURCE:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
export PEERLANE_BACKEND=sim
if ! tool=$(realpath -e "$tool" 2>/dev/null); then
	echo "no peerlane tool: set PEERLANE_TOOL or PEERLANE_BUILD"
	exit 77
fi
if ! command -v python3 >/dev/null; then
	echo "no python3 to read JSON with"
	exit 77
fi
dir=$(mktemp -d "${TMPDIR:-/tmp}/peerlane-test.XXXXXX")
# Also when the runner's time is up: no program goes on behind its back.
clean_up() {
	local jobs
	jobs=$(jobs -p)
	# shellcheck disable=SC2086 # several numbers
	[ -z "$jobs" ] || kill -KILL $jobs 2>/dev/null
	rm -rf "$dir"
}
trap clean_up EXIT
trap 'exit 1' INT TERM
cd "$dir" || exit 1

failures=0

fail() {
	echo "FAIL line ${BASH_LINENO[1]}: $*"
	failures=$((failures + 1))
}

# expect STATUS COMMAND...: its output is in ./out and ./err afterwards.
expect() {
	local want=$1 got
	shift
	"$@" >out 2>err </dev/null
	got=$?
	if [ "$got" -ne "$want" ]; then
		fail "status $got instead of $want: $*"
		sed 's/^/  out: /' out
		sed 's/^/  err: /' err
	fi
}

# says FILE TEXT: the file holds the text.
says() {
	grep -qF -- "$2" "$1" || {
		fail "'$2' is not in $1:"
		sed 's/^/  /' "$1"
	}
}

# json EXPRESSION: true of the JSON in ./out, which is d.
json() {
	python3 -c "import json,sys; d=json.load(open('out')); sys.exit(0 if ($1) else 1)" ||
		fail "not true of the JSON: $1"
}

same() { cmp -s "$1" "$2" || fail "$1 and $2 differ"; }

# Nothing but these files is left here, apart from out and err.
only() {
	local left
	left=$(find . -mindepth 1 -maxdepth 1 ! -name out ! -name err -printf '%f\n' | sort | xargs)
	[ "$left" = "$*" ] || fail "files left: '$left' instead of '$*'"
}

# wait_for COMMAND...: until it succeeds, ten seconds at most.
wait_for() {
	local i
	for ((i = 0; i < 200; i++)); do
		"$@" >/dev/null 2>&1 && return 0
		sleep 0.05
	done
	fail "waited in vain: $*"
	return 1
}

# busy PID: it has done some I/O through the library.
busy() {
	"$tool" stat --json "$1" | python3 -c 'import json, sys
c = json.load(sys.stdin)["contexts"][0]
sys.exit(c["read"]["ok"] + c["write"]["ok"] == 0)'
}

finish() {
	if [ "$failures" -gt 0 ]; then
		echo "$failures failures"
		exit 1
	fi
	exit 0
}
