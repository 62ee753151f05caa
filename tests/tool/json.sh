#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# JSON of every command: the keys and types of peerlane-json(5), one spacing, at most six figures.
# shellcheck disable=SC1091,SC2154 # setup.bash sets tool, dir and the rest
. "$(dirname "$0")/setup.bash"

cat >look.py <<'END'
import json, pathlib, re, sys

source = pathlib.Path(sys.argv[1])
page = (source / "man/peerlane-json.5").read_text()
table = dict(re.findall(r"^\.It (\S+) Ta (\w+) Ta ", page, re.M))
types = {str: "string", bool: "boolean", int: "number", float: "number", list: "list", dict: "object"}
# The keys of these are names of other things.
maps = {"metadata", "modules", "path_bytes"}
wrong = []

def figures(text):
    """Of a number with a point."""
    if "e" in text.lower() or len(text.replace(".", "").replace("-", "").lstrip("0")) > 6:
        wrong.append(f"{name}: {text}")
    return float(text)

def walk(value):
    for member in value if isinstance(value, list) else []:
        walk(member)
    for key, member in value.items() if isinstance(value, dict) else []:
        if key not in table:
            wrong.append(f"{name}: '{key}' is not in peerlane-json(5)")
        elif member is not None and table[key] not in ("any", types[type(member)]):
            wrong.append(f"{name}: '{key}' is {types[type(member)]}, in peerlane-json(5) {table[key]}")
        if key not in maps:
            walk(member)

for path in sorted(pathlib.Path("got").iterdir()):
    name, text = path.name, path.read_text()
    walk(json.loads(text, parse_float=figures))
    if not text.startswith('{\n  "') or re.search(r'^\s*"\w+":[^ ]', text, re.M) or "\\/" in text:
        wrong.append(f"{name}: not the usual spacing")
# What no machine here prints is at least in the sources.
words = "".join(p.read_text() for p in (source / "tools").glob("*.c"))
wrong += [f"'{key}' is in peerlane-json(5) and no command" for key in table if f'"{key}"' not in words]
if list(table) != sorted(table) or len(table) < 150:
    wrong.append("the table is not sorted, or was not found")
print("\n".join(wrong))
sys.exit(bool(wrong))
END

python3 -c 'import struct
header = b"""{"__metadata__":{"a/b":"c"},"t":{"dtype":"U8","shape":[3,1],"data_offsets":[0,3]}}"""
open("m.safetensors", "wb").write(struct.pack("<Q", len(header)) + header + b"abc")'
expect 0 "$tool" bench --create --bytes 1M --repeat 1 file
mkdir got

# keep STATUS COMMAND...: its JSON, by the name of the command.
keep() {
	local status=$1 name=$2
	shift 2
	expect "$status" "$tool" "$@"
	cp out "got/$name"
}
keep 1 check check --json --cufile file
keep 0 bench bench --json --repeat 2 --peer --size 4K,1M file
keep 0 bench-limit bench --json --repeat 1 --limit 1 file
# On a driver that is played there is a limit.
FAKE_CUDA=1 PEERLANE_LIBCUDA=$FAKE_LIBCUDA keep 0 bench-cuda bench --json --repeat 1 --backend cuda file
json 'd["limit"]["gb_per_s"] > 0 and d["rows"][0]["of_limit"] > 0'
keep 0 model-ls model ls --json m.safetensors m.safetensors
keep 0 model-load model load --json --repeat 2 m.safetensors
keep 0 nvme-list nvme list --json
keep 0 nvme-identify nvme identify --json sim:
keep 0 nvme-perf nvme perf --json --count 10 --depth 1,2 sim:
keep 0 nvme-latency nvme latency --json --count 10 sim:
for what in ring read file array mixed; do
	keep 0 bench-gpu-$what bench gpu $what --json --repeat 1 --threads 4,8 --count 60
done
keep 0 bench-gpu-file-given bench gpu file --json --repeat 1 --threads 4 --count 60 file
for what in sum scan bfs; do
	keep 0 bench-gpu-$what bench gpu $what --json --repeat 1 --threads 4,8 --bytes 64K --cache 32K
done
# Without the module it says what is missing.
keep 2 prove prove --json --size 16M --report report scratch
"$tool" bench --repeat 1 --size 4K --bytes 100T file >/dev/null 2>&1 </dev/null &
job=$!
wait_for busy $job
keep 0 stat stat --json --all $job
expect 0 "$tool" stat --json --watch 0.01 --count 2 $job
[ "$(grep -c '^{ "contexts": ' out)" -eq 2 ] || fail "one line each: $(cat out)"
kill -TERM $job
wait $job

# Every command that has --json was asked.
listed() { "$tool" help "$@" | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\).*/\1/p'; }
asked() {
	! "$tool" help "$@" | grep -q '^  --json' || [ -e "got/$(tr ' ' - <<<"$*")" ] || fail "$*: add it here"
}
for command in $(listed | grep -vx help); do
	asked "$command"
	for sub in $(listed "$command"); do
		asked "$command" "$sub"
		for what in $(listed "$command" "$sub"); do asked "$command" "$sub" "$what"; done
	done
done
[ "$(find got | wc -l)" -ge 19 ] || fail 'the commands were not found'
python3 look.py "$source_dir" >out || fail "$(cat out)"
finish
