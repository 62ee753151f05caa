#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# peerlane model: what its commands print, refuse and leave behind, on one file and on shards.
# shellcheck disable=SC1091,SC2154 # setup.bash sets tool, dir and the rest
. "$(dirname "$0")/setup.bash"

# make FILE HEADER BYTES: a safetensors file with random data.
make() {
	python3 - "$@" <<'END'
import os, struct, sys
path, header, size = sys.argv[1], sys.argv[2].encode(), int(sys.argv[3])
with open(path, "wb") as f:
    f.write(struct.pack("<Q", len(header)) + header + os.urandom(size))
END
}
# data FILE TENSOR: its bytes, by Python alone.
data() {
	python3 - "$@" <<'END'
import json, struct, sys
with open(sys.argv[1], "rb") as f:
    n = struct.unpack("<Q", f.read(8))[0]
    begin, end = json.loads(f.read(n))[sys.argv[2]]["data_offsets"]
    f.seek(8 + n + begin)
    sys.stdout.buffer.write(f.read(end - begin))
END
}

make one.safetensors '{"__metadata__":{"format":"pt"},"b\u001b[2J":{"dtype":"U8","shape":[3,1],"data_offsets":[0,3]},"a":{"dtype":"BF16","shape":[500000],"data_offsets":[3,1000003]},"s":{"dtype":"F32","shape":[],"data_offsets":[1000003,1000007]}}' 1000007
make two.safetensors '{"__metadata__":{"format":"other","x":"y"},"c":{"dtype":"I64","shape":[0,2],"data_offsets":[0,0]},"d":{"dtype":"U8","shape":[70000],"data_offsets":[0,70000]}}' 70000
echo '{"weight_map":{"a":"one.safetensors","s":"one.safetensors","c":"two.safetensors","d":"two.safetensors"}}' \
	>model.safetensors.index.json

expect 0 "$tool" model ls one.safetensors
says out 'b?[2J'
says out 'BF16'
says out '3 x 1'
says out '3 tensors, 976.6 KiB, in 1 file'
expect 0 "$tool" model ls --metadata .
says out 'two.safetensors'
says out 'format: other'
says out '4 tensors'
expect 0 "$tool" model ls --json .
model='d["models"][0]'
json "len(${model}['tensors']) == 4 and ${model}['bytes'] == 1070004 and len(${model}['files']) == 2"
json "[t for t in ${model}['tensors'] if t['name'] == 'c'][0]['shape'] == [0, 2]"
json "${model}['files'][1]['metadata'] == {'format': 'other', 'x': 'y'}"

# Several: each under its name, and one that cannot be read keeps nobody else from being listed.
expect 0 "$tool" model ls one.safetensors two.safetensors
[ "$(grep -cE '^(one|two).safetensors:$' out)" -eq 2 ] || fail "names: $(cat out)"
expect 1 "$tool" model ls missing one.safetensors
says err 'missing: No such file'
says out '3 tensors'
expect 0 "$tool" model ls --json one.safetensors two.safetensors
json '[m["file_name"] for m in d["models"]] == ["one.safetensors", "two.safetensors"]'
json '[len(m["tensors"]) for m in d["models"]] == [3, 2]'
expect 1 "$tool" model ls --json one.safetensors missing
json 'len(d["models"]) == 1'
expect 1 "$tool" model ls --json missing
[ ! -s out ] || fail 'JSON of no model'

# A folder whose one model has a name of its own; several without an index are not guessed at.
mkdir folder
cp one.safetensors folder/weights.safetensors
echo '{}' >folder/config.json
expect 0 "$tool" model ls folder
says out '3 tensors'
expect 0 "$tool" model load folder
expect 0 "$tool" model verify folder
cp two.safetensors folder/more.safetensors
expect 1 "$tool" model ls folder
says err 'folder: 2 safetensors files and no index; name one of them'
rm -r folder

# Into a folder: a file keeps its name, shards become model.safetensors.
mkdir into
expect 0 "$tool" model cp one.safetensors into/
says out 'one.safetensors -> into/one.safetensors: 3 tensors'
expect 1 "$tool" model cp one.safetensors into
says err 'into/one.safetensors: exists; --force'
expect 0 "$tool" model cp . into
expect 0 "$tool" model verify into/model.safetensors
expect 1 "$tool" model cp one.safetensors nowhere/
says err 'nowhere/: is not a folder'
rm -r into

for options in '' --host --per-tensor --checksum --cold '--cached --repeat 3'; do
	# shellcheck disable=SC2086 # several words
	expect 0 "$tool" model load $options .
	says out 'tensors   4 in 2 files'
	says out 'GB/s'
	says out 'limit'
done
expect 0 "$tool" model load --json --repeat 2 one.safetensors
json 'd["backend"] == "sim" and d["bytes"] == 1000007 and d["nr_tensors"] == 3 and len(d["passes_gb_per_s"]) == 2'
json 'd["requests"] == 2 and "gb_per_s" not in d["limit"] and "no bus" in d["limit"]["source"] and sum(d["path_bytes"].values()) == d["bytes"]'

for options in '' --host --per-tensor; do
	# shellcheck disable=SC2086 # several words
	expect 0 "$tool" model verify $options .
	says out '4 tensors, 1.0 MiB: as in the files, bit for bit'
done
# Memory that is not as the file: one copy to the GPU is lost.
PEERLANE_SIM_FAIL=copy:0:1 expect 1 "$tool" model verify one.safetensors
says err 'one.safetensors: tensor "'

expect 0 "$tool" model cp --checksum . whole.safetensors
says out '4 tensors'
for tensor in a s d c; do
	from=one
	[[ $tensor == [as] ]] || from=two
	data $from.safetensors $tensor >want
	data whole.safetensors $tensor >got
	same want got
done
expect 0 "$tool" model ls --json whole.safetensors
json "${model}['files'][0]['data_offset'] % 4096 == 0 and ${model}['files'][0]['metadata']['format'] == 'pt'"
json "${model}['files'][0]['metadata']['x'] == 'y' and len(${model}['files'][0]['metadata']['peerlane.xxh3:a']) == 16"
expect 0 "$tool" model verify whole.safetensors
# One bit: the load itself does not see it, the checksum does.
printf '\xff' | dd of=whole.safetensors bs=1 seek=50000 conv=notrunc status=none
printf '\x00' | dd of=whole.safetensors bs=1 seek=50001 conv=notrunc status=none
expect 0 "$tool" model load whole.safetensors
expect 1 "$tool" model load --checksum whole.safetensors
says err 'tensor "a": its checksum'
expect 1 "$tool" model verify whole.safetensors
says err 'tensor "a": its checksum'

expect 1 "$tool" model cp one.safetensors two.safetensors
says err '--force'
expect 0 "$tool" model cp --force --align 8 --no-sync one.safetensors whole.safetensors
expect 0 "$tool" model ls whole.safetensors
says out '3 tensors'
PEERLANE_SIM_FAIL=copy:0:99 expect 1 "$tool" model cp --force one.safetensors whole.safetensors
expect 0 "$tool" model verify whole.safetensors

head -c -1 one.safetensors >short.safetensors
for command in ls load verify 'cp --force'; do
	args=(short.safetensors)
	[[ $command != cp* ]] || args+=(whole.safetensors)
	# shellcheck disable=SC2086 # several words
	expect 1 "$tool" model $command "${args[@]}"
	says err 'short.safetensors: tensor "s": its data ends at byte 1000007, but the file has only 1000006'
done
mv two.safetensors away
expect 1 "$tool" model ls .
says err 'the shard "two.safetensors" is not there'
expect 1 "$tool" model ls nothing
says err 'nothing: No such file or directory'
expect 1 "$tool" model ls s3://bucket/model.safetensors
says err 's3://bucket/model.safetensors: URLs are not files here'
expect 1 "$tool" model ls s3://bucket/model.safetensors.index.json
says err 'URLs are not files here'
expect 1 "$tool" model cp whole.safetensors s3://bucket/model.safetensors
says err 'URLs are not files here'
expect 1 "$tool" model ls "$tool"
says err "not a safetensors file: the header would be"
# The name of the file is said once.
expect 1 "$tool" model cp whole.safetensors "$dir/no/such"
says err "peerlane model cp: $dir/no/: No such file or directory"
rm want got help 2>/dev/null
only away model.safetensors.index.json one.safetensors short.safetensors whole.safetensors
finish
