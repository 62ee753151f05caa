#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The examples for those who come from older systems, without a GPU; in the guests of tests/vm they
# have one.
# shellcheck disable=SC1091,SC2154 # setup.bash sets tool, dir and the rest
. "$(dirname "$0")/../tool/setup.bash"
examples=$(dirname "$tool")/../examples

for size in 1 4097 $((5 * 1024 * 1024 + 3)); do
	head -c "$size" /dev/urandom >src
	expect 0 "$examples/file_to_gpu" -c src
	says out 'back end sim'
	says out '0 bytes direct: '
	says out "$size bytes from the page cache"
	says out 'not direct: a simulated GPU has no bus address'
	says out 'GPU memory holds the file'
done

# A chunk that does not come: the file is there, the GPU fails.
PEERLANE_SIM_FAIL=copy:0:99 expect 1 "$examples/file_to_gpu" src
says err 'a chunk did not come whole'

expect 1 "$examples/file_to_gpu"
says err 'usage: file_to_gpu'
expect 1 "$examples/file_to_gpu" -x src
says err 'usage: file_to_gpu'
expect 1 "$examples/file_to_gpu" nothing
says err 'nothing: No such file or directory'
: >empty
expect 1 "$examples/file_to_gpu" empty
says err 'empty: '
PEERLANE_BACKEND=nonsense expect 1 "$examples/file_to_gpu" src
says err 'cannot start: '

# Weights: two tensors of four bytes.
header='{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}'
# shellcheck disable=SC2059 # the length is a byte of the format
{ printf "\\x$(printf %x ${#header})\0\0\0\0\0\0\0" && printf '%s12345678' "$header"; } >good.safetensors
expect 0 "$examples/load_model" good.safetensors
says out '2 tensors, 8 bytes in 1 reads'
head -c -1 good.safetensors >short.safetensors
expect 1 "$examples/load_model" short.safetensors
says err 'short.safetensors: tensor "b": its data ends at byte 8, but the file has only 7'
expect 2 "$examples/load_model"
says err 'usage: load_model'
# A kernel that reads a file itself: more than its cache, and a last page that is not whole.
for size in 8 4096 $((300 * 1024 + 24)); do
	head -c "$size" /dev/urandom >src
	expect 0 "$examples/array_sum" src
	says out "$((size / 8)) numbers, sum "
	says out 'the CPU found the same'
	says out 'on the CPU'
done
expect 1 "$examples/array_sum"
says err 'usage: array_sum'
expect 1 "$examples/array_sum" nothing
says err 'nothing: No such file or directory'
expect 1 "$examples/array_sum" empty
says err 'empty: '

expect 1 "$examples/pin_mmap" 0
says err 'usage: pin_mmap'
expect 1 "$examples/pin_mmap" 1 2
says err 'usage: pin_mmap'
if [ ! -e /dev/peerlane ]; then
	expect 1 "$examples/pin_mmap"
	says err '/dev/peerlane: No such file or directory'
	says err 'the kernel module peerlane is needed'
fi
finish
