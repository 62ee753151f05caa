#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tests/gpu/suites with stand-ins for the suites and for both libraries: what it runs, what it makes of
# crashes, and the table.
set -euo pipefail
source_dir=${PEERLANE_SOURCE:-$(cd "$(dirname "$0")/../.." && pwd)}
command -v python3 >/dev/null || {
	echo "no python3"
	exit 77
}
dir=$(mktemp -d "${TMPDIR:-/tmp}/peerlane-suites.XXXXXX")
trap 'rm -rf "$dir"' EXIT
cd "$dir"

fail() {
	echo "FAIL: $*"
	cat out
	exit 1
}
says() {
	grep -qF -- "$1" out || fail "no line \"$1\""
}

# Any library will do for those under test.
any=$(ldd "$(command -v bash)" | awk '$3 ~ /tinfo/ { print $3 }')
mkdir real ours
for lib in real ours; do
	cp "${any:-/lib/x86_64-linux-gnu/libm.so.6}" $lib/libcufile.so.0
done

# fio: one job fails with ours, one with both.
mkdir -p fetched/fio/lib fetched/python/pytest fetched/python/cuda/bindings
: >fetched/fio/lib/libcudart.so
cat >fetched/fio/fio <<'EOF'
#!/bin/bash
case "$SUITES_LIBRARY $*" in
"ours "*--rw=write\ --bs=4k\ --direct=1) echo "verify: bad magic"; echo "err= 0" ;;
*--rw=write\ --bs=16k\ --direct=1) exit 1 ;;
*) echo "err= 0" ;;
esac
EOF
chmod +x fetched/fio/fio

# pytest: a test that crashes with the first library, and one that both skip.
touch fetched/python/cuda/bindings/cufile.py fetched/python/pytest/__init__.py
cat >fetched/python/pytest/__main__.py <<'EOF'
import os, sys
done = [sys.argv[i + 1] for i, word in enumerate(sys.argv) if word == "--deselect"]
with open(os.environ["SUITES_RESULTS"], "a", encoding="utf-8") as f:
    for test in ("a", "b", "c", "d"):
        if test in done:
            continue
        print("begin", test, sep="\t", file=f, flush=True)
        if test == "b" and os.environ["SUITES_LIBRARY"] == "nvidia":
            os.abort()
        print("skipped" if test == "d" else "passed", test, sep="\t", file=f, flush=True)
    print("library", os.path.realpath(os.environ["LD_PRELOAD"]), sep="\t", file=f)
EOF
mkdir -p suites/cuda-python/cuda_bindings/tests suites/hipFile/build/test
: >suites/cuda-python/cuda_bindings/tests/test_cufile.py

# GoogleTest: a crash with ours.
cat >suites/hipFile/build/test/system_tests <<'EOF'
#!/bin/bash
for t in T.a T.b T.c; do
	[[ "$* " != *[-:]$t[:\ ]* ]] || continue
	echo "[ RUN      ] $t"
	[ "$t $SUITES_LIBRARY" != "T.b ours" ] || kill -SEGV $$
	echo "[       OK ] $t (0 ms)"
done
echo "[  FAILED  ] T.a, listed below"
EOF
chmod +x suites/hipFile/build/test/system_tests

run() {
	local want=$1 got=0
	shift
	"$source_dir/tests/gpu/suites" "$@" >out 2>&1 || got=$?
	[ "$got" = "$want" ] || fail "exit status $got instead of $want"
}

unset SUITES_DIR PEERLANE_CLIENTS PYTHONPATH
export PYTHONDONTWRITEBYTECODE=1
lib=(--real real/libcufile.so.0 --ours ours/libcufile.so.0)
run 1 run fetched "${lib[@]}" --suites suites --dir "$dir" --out "$dir/kept"
says 'fio                      56       55     54       1'
says 'cuda-python               3        2      3       0'
says 'hipFile                   3        3      2       1'
says 'all                      62       60     59       2'
says 'behind: fio: write 4k direct=1: failed'
says 'behind: hipFile: T.b: crashed'
says 'fastsafetensors     not here: '
says "DALI                not here: $dir/suites/DALI has no dali/test/python/reader/test_numpy.py"
grep -q 'crashed' kept/suites.json || fail "the crash is not kept"
tar tzf kept/suites-logs.tar.gz | grep -q '^hipFile.ours$' || fail "no logs"
[ "$(find "$dir" -maxdepth 1 -name 'suites-*' | wc -l)" = 0 ] || fail "files are left behind"

# In two runs, one for each library; the first alone tells nothing.
run 0 run fetched "${lib[@]}" --suites suites --dir "$dir" --library nvidia --only hipFile --out one
says 'hipFile             not run: no outcomes with ours'
run 0 run fetched "${lib[@]}" --suites suites --dir "$dir" --library ours --only hipFile --out two
run 1 table one/suites.json two/suites.json
says 'hipFile                   3        3      2       1'

# What is not here is never counted.
run 77 run "$dir/empty" "${lib[@]}" --dir "$dir" --only fio,DALI
says 'DALI                not here: needs a checkout of DALI'
says 'all                       0        0      0       0'
run 77 run fetched --real "$dir/none" --dir "$dir"
echo "ok"
