#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# bench/peer_cufile on the fake libcuda: the engine by itself and through libcufile.so.0; and how
# bench/gpu.py compares the two.
# shellcheck disable=SC1091,SC2154 # setup.bash sets tool, dir and the rest
. "$(dirname "$0")/setup.bash"

build=$(dirname "$(dirname "$tool")")
peer=$build/bench/peer_cufile
native=$build/python/libpeerlane.so.0
drop_in=$build/cufile/libcufile.so.0
# The programs find the driver by its name.
mkdir lib
cp "${FAKE_LIBCUDA:-$build/tests/libcuda_fake.so}" lib/libcuda.so.1 || exit 1
export LD_LIBRARY_PATH=$dir/lib PEERLANE_BACKEND=cuda FAKE_CUDA=1

expect 0 "$peer" --file file --create 4M
for op in read write; do
	for shape in '--size 1M' '--size 4K --random --bytes 1M' '--size 4K --batch 16 --random --bytes 1M' \
		'--size 64K --threads 3 --unregistered' '--size 64K --batch 4 --threads 2 --cold'; do
		# shellcheck disable=SC2086 # several words
		set -- "$peer" --file file --verify --repeat 1 --op $op $shape
		expect 0 "$@" --native "$native"
		json "d['verified'] and d['who'] == 'peerlane' and d['op'] == '$op' and d['gbps'] > 0"
		expect 0 "$@" --lib "$drop_in" --who drop-in
		json "d['verified'] and d['who'] == 'drop-in' and d['version'] > 0 and d['gbps'] > 0"
	done
done
expect 0 "$peer" --file file --op read --repeat 1 --lib "$drop_in"
json "not d['verified'] and d['who'] == 'libcufile'"

# Both in one process, in turns: an object for each, and the data is right.
for shape in '--size 1M --threads 3' '--size 4K --batch 16 --random --bytes 1M --anew' '--size 64K --cold --op write'; do
	# shellcheck disable=SC2086 # several words
	expect 0 "$peer" --file file --verify --repeat 3 $shape --native "$native" --lib "$drop_in" --who drop-in
	[ "$(grep -c verified.:true out)" -eq 2 ] || fail 'not two results'
	[ "$(grep -cE 'gbps_each.:\[[0-9.]+,[0-9.]+,[0-9.]+\]' out)" -eq 2 ] || fail 'not a speed for each pass'
	says out '{"who":"peerlane","version":0'
	says out '{"who":"drop-in","version":1150'
done

# A library that can be used.
expect 77 "$peer" --file file --op read --native "$native" --lib ./missing
says err 'no usable libcufile: ./missing'
expect 77 "$peer" --file file --op read --native ./missing
says err 'no usable libpeerlane: ./missing'
expect 77 "$peer" --file file --op read --native "$drop_in"
says err 'no usable libpeerlane: peerlane_open'

# What fails is told by its name and errno, and in the words of the library.
PEERLANE_BACKEND=none expect 1 "$peer" --file file --op read --native "$native"
says err 'peerlane_open: unknown back end "none"'
says err 'native DriverOpen: 22 (Invalid argument)'
FAKE_CUDA_FAIL=execute:2:700 expect 1 "$peer" --file file --op write --native "$native"
says err 'native Write at 0: 121 (Remote I/O error)'
FAKE_CUDA_FAIL=execute:8:700 expect 1 "$peer" --file file --op read --size 4K --batch 8 --native "$native"
says err 'a batch entry ended with status 0x40, result -121'

# bench/gpu.py has both run in turns and compares them. Played programs: the speeds are known, and no udev record
# of this machine is written.
mkdir -p played/bench played/tools
cat >played/bench/peer_cufile <<'END'
#!/usr/bin/env python3
import json, os, sys
args = sys.argv[1:]
if "--create" in args:
    open(args[args.index("--file") + 1], "w").close()
    sys.exit()
both = "--native" in args and "--lib" in args
repeat = int(args[args.index("--repeat") + 1])
open("calls", "a").write(f"{args[args.index('--who') + 1]} {repeat}{' anew' * ('--anew' in args)}\n")
# The machine is twice as fast in every other turn; the last turn of one side is an odd one.
turns = [[10 * k * (1 + i % 2) for i in range(repeat)] for k in (1, 0.9)]
turns[1][-1] = 100
for gbps, each in zip([10, 9.5], turns) if both else [(int(os.environ.get("PLAYED_PEER", 2)), [])]:
    print(json.dumps({"gbps": gbps, "ops_per_s": gbps, "lat_us_p50": 1, "cpu_s_per_gb": 1, "gbps_each": each}))
END
cat >played/bench/limits <<'END'
#!/bin/sh
echo '{"gbps": 20}'
END
cat >played/tools/peerlane <<'END'
#!/bin/sh
echo '{"rows": [{"gb_per_s": 5, "iops": 5, "p50_us": 1, "cpu_s_per_gb": 1, "path": "copy"}],
	"limit": {"gb_per_s": 20}}'
END
chmod +x played/bench/* played/tools/*
PEERLANE_BUILD=played expect 0 "$source_dir/bench/gpu.py" --cufile --dir . --bytes 4194304 \
	--only 'read 1 MiB calls, cached' --out lines
says out '4.75         0.90 of the engine (0.90 to 0.90), NOT met; the engine by that loop: 10.00 GB/s'
[ "$(xargs <calls)" = 'libcufile 5 peerlane-cufile 5' ] || fail "other calls: $(xargs <calls)"
[ "$(wc -l <lines)" -eq 6 ] || fail 'not every result was kept'
# Short calls are compared with libraries that are opened anew.
rm calls
PEERLANE_BUILD=played expect 0 "$source_dir/bench/gpu.py" --cufile --dir . --bytes 4194304 \
	--only 'read 4 KiB random, cached'
says out '0.90 of the engine (0.90 to 0.90), NOT met'
[ "$(xargs <calls)" = 'libcufile 5 peerlane-cufile 15 anew' ] || fail "other calls: $(xargs <calls)"
# What no bus carries is said to be so.
grep -q 'more than the bus carries' out && fail 'the bus would carry it'
PLAYED_PEER=9 PEERLANE_BUILD=played expect 0 "$source_dir/bench/gpu.py" --dir . --bytes 4194304 --only 'read one call, cached'
says out '2.3 x libcufile (20.7 GB/s: more than the bus carries)'
finish
