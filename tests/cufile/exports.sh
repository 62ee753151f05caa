#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What libcufile.so.0 exports, its name, what it needs, and that it can be preloaded and found.
# shellcheck disable=SC1091,SC2154 # setup.bash sets tool, dir and the rest
. "$(dirname "$0")/../tool/setup.bash"
lib=$(realpath "${PEERLANE_BUILD:-build}"/cufile/libcufile.so.0)
client=$(realpath "${PEERLANE_BUILD:-build}"/tests/cufile/cufile_client)
for word in readelf nm; do
	if ! command -v $word >/dev/null; then
		echo "no $word to look into the library with"
		exit 77
	fi
done

readelf -d "$lib" >dynamic
says dynamic 'soname: [libcufile.so.0]'
if readelf -V "$lib" | grep -q 'Version definition'; then
	fail 'the exports have versions'
fi

# Exactly the public functions: those of the header, and no symbol of anything inside.
nm -D --defined-only "$lib" | awk '{ print $3 }' | sort >exports
grep -ohE '\bcuFile[A-Za-z0-9_]+\(' "$source_dir/cufile/cufile.h" | tr -d '(' | sort -u >header
same exports header
[ "$(wc -l <exports)" -eq 50 ] || fail "$(wc -l <exports) exports"
grep -v '^#' "$source_dir/tests/cufile/exports-1.15.txt" | sort >public
[ -z "$(comm -23 public exports)" ] || fail "missing: $(comm -23 public exports)"

# Nothing but the C library, where its parts could be linked statically. Sanitizers add theirs.
grep NEEDED dynamic | sed 's/.*\[\(.*\)\]/\1/' |
	grep -vE '^(libc\.so\.6|ld-linux.*|lib(a|ub|t)san\.so.*|libgcc_s\.so\.1|libm\.so\.6)$' >needed
if [ -s needed ]; then
	if grep -qvE '^(libjson-c|liburing)\.so' needed; then
		fail "needs $(cat needed)"
	else
		echo "note: no static libraries here, so it needs $(xargs <needed)"
	fi
fi

if grep -qE 'lib[aut]b*san' dynamic; then
	echo "sanitizers must come first in a process: not preloaded"
	finish
fi
printf 'some text' >file
expect 0 env LD_LIBRARY_PATH="$(dirname "$lib")" "$client" dlopen file
says out "$(dirname "$lib")/libcufile.so.0"
says out 'some text'
expect 0 env LD_PRELOAD="$lib" "$client" global file
says out 'some text'
# Under its own name it also stands in for one that a program asks for.
expect 0 env LD_PRELOAD="$lib" "$client" dlopen file
says out "$lib"
expect 1 "$client" global file
only dynamic exports file header needed public
finish
