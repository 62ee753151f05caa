#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The fuzz programs take their seed from FUZZ_SEED, else from the date, say it first, and repeat their inputs with it.
set -u
program=${PEERLANE_BUILD:-build}/tests/model/fuzz_model_header
[ -x "$program" ] || { echo "no $program"; exit 77; }
program=$(realpath "$program")
dir=$(mktemp -d "${TMPDIR:-/tmp}/peerlane-test.XXXXXX")
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1

FUZZ_SEED=5 "$program" >out || { cat out; exit 1; }
[ "$(head -n 1 out)" = "seed 5; FUZZ_SEED=5 repeats it" ] || { cat out; exit 1; }

before=$(date -u +%Y%m%d)
env -u FUZZ_SEED "$program" >out || { cat out; exit 1; }
after=$(date -u +%Y%m%d)
seed=$(sed -n '1s/^seed \([0-9]*\);.*/\1/p' out)
[ "$seed" = "$before" ] || [ "$seed" = "$after" ] || { cat out; exit 1; }

mkdir a b c
"$program" 5 0 a && "$program" 5 0 b && "$program" 6 0 c || exit 1
diff -r a b || { echo "seed 5 gives other inputs the second time"; exit 1; }
! diff -qr a c >/dev/null || { echo "seeds 5 and 6 give the same inputs"; exit 1; }
