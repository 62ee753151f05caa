#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The bash completion loads and offers commands, options, words and files.
# shellcheck disable=SC1091,SC2154 # setup.bash sets tool, dir and the rest
. "$(dirname "$0")/setup.bash"

# shellcheck source=/dev/null
. "$source_dir/tools/peerlane.bash"
# shellcheck disable=SC2317 # called by the completion
compopt() { :; } # only there while bash completes
complete -p peerlane >out 2>err || fail "no completion for peerlane"

# offers WORD... -- EXPECTED...: completes the last word.
offers() {
	COMP_WORDS=("$tool")
	while [ "$1" != -- ]; do
		COMP_WORDS+=("$1")
		shift
	done
	shift
	COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
	COMPREPLY=()
	_peerlane "$tool" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
	local word
	for word; do
		printf '%s\n' "${COMPREPLY[@]}" | grep -qxF -- "$word" ||
			fail "${COMP_WORDS[*]:1}: '$word' is not among '${COMPREPLY[*]}'"
	done
	[ "${#COMPREPLY[@]}" -ge $# ] || fail "too little offered"
}

touch 'a file'
offers '' -- check bench cp stat model nvme prove help
offers be -- bench
offers --v -- --version
offers help c -- check cp
offers bench --s -- --size --seconds
offers bench g -- gpu
offers bench '' -- gpu 'a file'
offers help bench g -- gpu
offers help bench gpu r -- ring read
offers bench gpu file a -- 'a file'
offers bench gpu array --hit -- --hit-ratio
offers bench gpu sum --seco -- --seconds
offers bench gpu bfs --backend s -- sim
offers bench gpu '' -- ring read file array sum scan bfs
offers bench gpu read --s -- --size --spoil
offers bench gpu file --dir a -- 'a file'
offers bench --op '' -- read write randread randwrite
offers check --backend s -- sim
offers cp --no -- --no-verify
offers cp a -- 'a file'
offers prove --r -- --report --rounds --reuse
offers prove --backend '' -- cuda simgpu
offers prove a -- 'a file'
offers prove --report a -- 'a file'
offers bench --plot a -- 'a file'
# Processes that use the library, and no others.
"$tool" bench --create --bytes 4M --repeat 1 used >out 2>err
"$tool" bench --repeat 1 --size 4K --bytes 100T used >/dev/null 2>&1 </dev/null &
job=$!
wait_for busy $job
offers stat '' -- $job
printf '%s\n' "${COMPREPLY[@]}" | grep -qx -- $$ && fail "this shell is offered: ${COMPREPLY[*]}"
offers stat "${job%?}" -- $job
kill -TERM $job
wait $job
offers nvme '' -- bind unbind list identify read write verify latency perf serve
offers nvme b -- bind
offers model '' -- ls load verify cp
offers model load --c -- --cold --cached --checksum
offers model ls a -- 'a file'
offers help nvme u -- unbind
offers nvme bind --d -- --driver
offers nvme perf --d -- --depth
offers nvme perf --op w -- write
offers nvme read '' -- sim:
offers nvme write --input a -- 'a file'
offers nvme bind --driver '' -- kmod vfio kernel
offers bench --size '' --
[ "${#COMPREPLY[@]}" -eq 0 ] || fail "sizes offered: ${COMPREPLY[*]}"
finish
