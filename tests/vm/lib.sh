# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2034 # used by those who read this file
# What the scripts of the lab share: where things lie, and how the table is read.

vm_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
vm_top=$(cd "$vm_dir/../.." && pwd)
vm_table=$vm_dir/lab.table
vm_cache=${PEERLANE_VM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/peerlane-vm}
vm_build=${PEERLANE_VM_BUILD:-$vm_top/build/vm}
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

# Rows of one kind, without the word that says which: rows kernel|layout|test
vm_rows() {
	awk -v kind="$1" '$1 == kind { $1 = ""; sub(/^ +/, ""); print }' "$vm_table"
}

# One row by its name: row KIND NAME
vm_row() {
	vm_rows "$1" | awk -v name="$2" '$1 == name { print; exit }'
}

# The kernels asked for; by default all of the table but those that are built from source.
vm_kernels() {
	local name
	if [ -n "${VM_KERNELS:-}" ]; then
		for name in $VM_KERNELS; do
			[ -n "$(vm_row kernel "$name")" ] || {
				echo "no kernel $name in $vm_table" >&2
				return 1
			}
			echo "$name"
		done
	else
		vm_rows kernel | awk '$3 != "source" { print $1 }'
	fi
}

# Where a kernel's files are, and its full release.
vm_root() { echo "$vm_cache/kernel/$1/root"; }
vm_release() { cat "$vm_cache/kernel/$1/release"; }

# make for a kernel, with the compiler it needs: vm_make NAME TOOLS DIRECTORY ARGUMENT...
# In the arguments @KDIR@ are the kernel's headers and @DIR@ is the directory, which lies elsewhere for
# compilers in a tree of their own: $vm_inside, if not empty.
vm_make() {
	local kdir tools=$2 dir=$3 root=$vm_cache/tools/$2 rc=0 args=("${@:4}")
	kdir=/usr/src/linux-headers-$(vm_release "$1")
	vm_inside=
	if [ "$tools" = host ] || [ "$tools" = source ]; then
		args=("${args[@]//@KDIR@/$(vm_root "$1")$kdir}")
		make -j"$(nproc)" "${args[@]//@DIR@/$dir}"
		return
	fi
	# A tree of its own for each caller's sources; the kernel's tools look at /proc.
	vm_inside=$root/build/$(echo "$dir" | cksum | cut -d' ' -f1)
	mkdir -p "$vm_inside"
	cp -pR "$dir/." "$vm_inside/"
	args=("${args[@]//@KDIR@/$kdir}")
	# shellcheck disable=SC2016 # for the inner shell
	unshare -m sh -c 'mount -t proc proc "$1/proc" && mount -t tmpfs tmpfs "$1/dev" &&
		mknod -m 666 "$1/dev/null" c 1 3 && shift && exec chroot "$@"' sh "$root" "$root" \
		make -j"$(nproc)" "${args[@]//@DIR@/${vm_inside#"$root"}}" || rc=$?
	cp -pR "$vm_inside/." "$dir/"
	return $rc
}

# Why the lab cannot run here; nothing and 1 when it can.
vm_why_not() {
	local tool
	if [ "$(id -u)" -ne 0 ]; then
		echo "the VM lab builds modules in a chroot and needs root"
		return 0
	fi
	for tool in qemu-system-x86_64 cpio xz dpkg-deb depmod mkfs.ext4 python3 gcc make; do
		if ! command -v "$tool" >/dev/null 2>&1; then
			echo "the VM lab needs $tool, which is not installed"
			return 0
		fi
	done
	return 1
}
