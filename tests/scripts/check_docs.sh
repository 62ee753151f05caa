#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# scripts/check-docs finds names in pages that nothing in the tree has, and nothing else.
set -u
source_dir=${PEERLANE_SOURCE:-$(cd "$(dirname "$0")/../.." && pwd)}
dir=$(mktemp -d "${TMPDIR:-/tmp}/peerlane-test.XXXXXX")
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/tree"
cd "$dir/tree" || exit 1
export PYTHONDONTWRITEBYTECODE=1 LC_ALL=C

mkdir -p lib bench/results man docs build
echo 'int pl_pool_get(void); int peerlane_open(void); /* PEERLANE_READ */' >lib/pool.c
touch bench/results/2026-01-02-first.txt man/peerlane_open.3 build/old.c
cat >README.md <<'END'
Good: `lib/pool.c`, `lib/`, `lib/*.c`, `pool.c`, `bench/results/2026-01-02-first.*`, `pl_pool_get()`,
`PEERLANE_READ`, `peerlane_open(3)`, [a page](docs/page.md#part), [away](https://example.org/x.md), `train.py`,
`tests/<tier>/`, `client_NAME.py`, lib/plain.c is no code, `-Dpool=1`.

    lib/pool.c
END
cat >docs/page.md <<'END'
Good: [up](../README.md). Bad: `lib/slot.c`, `slot.c`, `lib/slot*.c`, `bench/results/2026-01-02-second.*`,
`2026-01-02-third.txt`, `old.c`,
`peerlane_close()`, `PEERLANE_WRITE`, `peerlane_close(3)`, [gone](gone.md),

    run lib/slot.c

```c
pl_slot_get();
```
END

cat >../want <<'END'
docs/page.md:1: bench/results/2026-01-02-second.* is not in the tree
docs/page.md:1: lib/slot*.c is not in the tree
docs/page.md:1: lib/slot.c is not in the tree
docs/page.md:1: no file slot.c in the tree
docs/page.md:2: no file 2026-01-02-third.txt in the tree
docs/page.md:2: no file old.c in the tree
docs/page.md:3: no function peerlane_close()
docs/page.md:3: no manual page peerlane_close(3)
docs/page.md:3: no name PEERLANE_WRITE
docs/page.md:3: the link gone.md leads nowhere
docs/page.md:5: lib/slot.c is not in the tree
docs/page.md:8: no function pl_slot_get()
END
"$source_dir/scripts/check-docs" --names . >../got
rc=$?
sort -o ../got ../got
diff -u ../want ../got || exit 1
[ $rc -eq 1 ] || { echo "exit status $rc, not 1"; exit 1; }
echo "Good: [up](../README.md)." >docs/page.md
"$source_dir/scripts/check-docs" --names . || { echo "a good page is refused"; exit 1; }
