#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Round trips on each file system, in a mount namespace of our own, and in a root without /proc,
# /sys and udev. Needs root; a file system that is not to be had is left out with the reason.
set -u

program=$1
block_size=$2
posix_writes=$3
if [ "$(id -u)" -ne 0 ]; then
	echo "mounting needs root"
	exit 77
fi
if [ "${4:-}" != inside ]; then
	unshare -m true 2>/dev/null || {
		echo "no mount namespace"
		exit 77
	}
	exec unshare -m --propagation private bash "$0" "$program" "$block_size" "$posix_writes" inside
fi

dir=$(mktemp -d "${TMPDIR:-/tmp}/peerlane-fs.XXXXXX")
loop=
# Nothing is mounted outside this namespace: it goes away with us.
# shellcheck disable=SC2317 # called by the trap
clean_up() {
	cd /
	[ -n "$loop" ] && losetup -d "$loop"
	for m in "$dir"/*/; do
		umount -l "$m" 2>/dev/null
	done
	rm -rf --one-file-system "$dir"
}
trap clean_up EXIT
trap 'exit 1' INT TERM

failures=0
ran=0

# try NAME DIRECTORY
try() {
	local began=$EPOCHREALTIME
	if timeout 60 "$program" "$2" "$1"; then
		ran=$((ran + 1))
		echo "ok $1 ($(awk "BEGIN { printf \"%.1f\", $EPOCHREALTIME - $began }") s)"
	else
		echo "FAIL $1"
		failures=$((failures + 1))
	fi
}

# Random writes with O_DIRECT, compared with what pwrite() would have left: try_posix NAME DIRECTORY
try_posix() {
	if timeout 120 "$posix_writes" 0 0 "$2"; then
		ran=$((ran + 1))
		echo "ok $1, random writes"
	else
		echo "FAIL $1, random writes"
		failures=$((failures + 1))
	fi
}

skip() { echo "skip $1: $2"; }

# image NAME TYPE MIB MKFS_OPTIONS MOUNT_OPTIONS
image() {
	local at=$dir/$1 why
	if ! command -v "mkfs.$2" >/dev/null; then
		skip "$1" "no mkfs.$2"
		return 1
	fi
	mkdir "$at"
	truncate -s "$3M" "$at.img"
	# shellcheck disable=SC2086 # options are words
	if ! why=$("mkfs.$2" $4 "$at.img" 2>&1); then
		skip "$1" "mkfs.$2: $(tail -n1 <<<"$why")"
		return 1
	fi
	if ! why=$(mount -t "$2" -o "loop,$5" "$at.img" "$at" 2>&1); then
		skip "$1" "${why##*: }"
		return 1
	fi
}

# on NAME TYPE MIB MKFS_OPTIONS MOUNT_OPTIONS
on() {
	image "$@" || return
	try "$1" "$dir/$1"
	try_posix "$1" "$dir/$1"
	umount "$dir/$1"
	rm -f "$dir/$1.img"
}

on ext4 ext4 128 "-q -F" rw
on ext4-journalled-data ext4 192 "-q -F" data=journal
on ext4-1k ext4 128 "-q -F -b 1024" rw
on xfs xfs 320 "-q -f" rw
on btrfs btrfs 256 "-q -f" rw
on btrfs-compressed btrfs 256 "-q -f" compress-force=zstd

mkdir "$dir/tmpfs"
if why=$(mount -t tmpfs -o size=128M none "$dir/tmpfs" 2>&1); then
	try tmpfs "$dir/tmpfs"
	umount "$dir/tmpfs"
else
	skip tmpfs "$why"
fi

if image overlay-below ext4 128 "-q -F" rw; then
	mkdir "$dir"/overlay-below/{lower,upper,work} "$dir/overlay"
	o="lowerdir=$dir/overlay-below/lower,upperdir=$dir/overlay-below/upper"
	if why=$(mount -t overlay -o "$o,workdir=$dir/overlay-below/work" none "$dir/overlay" 2>&1); then
		try overlay "$dir/overlay"
		umount "$dir/overlay"
	else
		skip overlay "${why##*: }"
	fi
	umount "$dir/overlay-below"
fi

# A root with the program, what it is linked with, and nothing else: no /proc, /sys, /dev, udev.
if image bare ext4 192 "-q -F" rw; then
	mkdir -p "$dir/bare/data"
	cp "$program" "$dir/bare/roundtrip"
	ldd "$program" | grep -o '/[^ ]*' | while read -r lib; do
		mkdir -p "$dir/bare$(dirname "$lib")"
		cp -L "$lib" "$dir/bare$lib"
	done
	cat >"$dir/in-bare" <<-EOF
		#!/bin/sh
		exec timeout 60 unshare -i -u -p -f chroot "$dir/bare" /roundtrip /data "\$2"
	EOF
	chmod +x "$dir/in-bare"
	outside=$program
	program=$dir/in-bare
	try "bare root" /data
	program=$outside
	umount "$dir/bare"
fi

# A device with blocks larger than a page.
truncate -s 64M "$dir/blocks.img"
if loop=$(losetup -f --show --sector-size 16384 "$dir/blocks.img" 2>/dev/null); then
	program=$block_size
	try "16 KiB blocks" "$loop"
	losetup -d "$loop"
else
	skip "16 KiB blocks" "no loop device with such blocks"
fi
loop=

[ "$failures" -eq 0 ] || exit 1
if [ "$ran" -eq 0 ]; then
	echo "no file system could be mounted"
	exit 77
fi
exit 0
