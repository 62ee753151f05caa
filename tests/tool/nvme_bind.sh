#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# peerlane nvme bind on another machine's /proc and /sys: what is in use is not taken away.
# shellcheck disable=SC1091,SC2154 # setup.bash sets tool, dir and the rest
. "$(dirname "$0")/setup.bash"

# put FILE TEXT: below the made-up root.
put() {
	mkdir -p "root/$(dirname "$1")"
	printf '%s\n' "$2" >"root/$1"
}

# drive NUMBER: a controller with a disk and a partition.
drive() {
	local pci=0000:0$1:00.0 disk=nvme$1n1
	local at=sys/devices/pci0000:00/$pci
	put "$at/class" 0x010802
	put "$at/nvme/nvme$1/$disk/dev" "259:$1"
	put "$at/nvme/nvme$1/$disk/${disk}p1/dev" "259:1$1"
	put "$at/nvme/nvme$1/$disk/${disk}p1/partition" 1
	mkdir -p "root/$at/nvme/nvme$1/$disk/holders" \
		"root/$at/nvme/nvme$1/$disk/${disk}p1/holders" \
		root/sys/bus/pci/devices root/sys/class/block root/sys/class/nvme
	ln -s "../../../devices/pci0000:00/$pci" "root/sys/bus/pci/devices/$pci"
	ln -s "../../../bus/pci/drivers/nvme" "root/$at/driver"
	ln -s "../../$pci" "root/$at/nvme/nvme$1/device"
	ln -s "../../devices/pci0000:00/$pci/nvme/nvme$1" "root/sys/class/nvme/nvme$1"
	ln -s "../../devices/pci0000:00/$pci/nvme/nvme$1/$disk" "root/sys/class/block/$disk"
	ln -s "../../devices/pci0000:00/$pci/nvme/nvme$1/$disk/${disk}p1" \
		"root/sys/class/block/${disk}p1"
}

for number in 1 2 3 4 5 6 7; do
	drive "$number"
done
mkdir -p root/sys/bus/pci/drivers/{nvme,peerlane_nvme}
put proc/self/mountinfo '21 1 259:11 / / rw - ext4 /dev/root rw
22 21 259:2 / /home rw - xfs /dev/nvme2n1 rw
23 21 0:45 / /data rw - btrfs /dev/nvme3n1p1 rw'
put proc/swaps 'Filename Type Size Used Priority
/dev/nvme4n1p1 partition 1 0 -2'
mkdir root/sys/class/block/nvme5n1/holders/md0 root/sys/class/block/nvme6n1p1/holders/dm-0
put sys/class/block/dm-0/dm/name vg-data
put sys/bus/pci/devices/0000:09:00.0/class 0x030200

export PEERLANE_ROOT=$dir/root
# refused DEVICE WHY
refused() {
	expect 1 "$tool" nvme bind "$1"
	says err "$2"
}
refused 0000:01:00.0 'nvme1n1p1 holds the root file system'
refused /dev/nvme2n1 'nvme2n1 is mounted on /home'
refused nvme3 'nvme3n1p1 is mounted on /data'
refused nvme4n1p1 'nvme4n1p1 is used as swap'
refused nvme5 'nvme5n1 is part of md0'
refused nvme6 'nvme6n1p1 is part of dm-0 (vg-data)'
refused nvme8 'nvme8: no such NVMe controller'
refused peerlane-nvme0 'no such NVMe controller'
refused ../../etc 'write a PCI address, as 0000:01:00.0, or a name, as nvme0'
refused 0000:09:00.0 'is not an NVMe controller'
expect 1 "$tool" nvme bind --driver vfio nvme7
says err "modprobe vfio-pci"
mkdir root/sys/bus/pci/drivers/vfio-pci
expect 1 "$tool" nvme bind --driver vfio nvme7
says err 'not behind an IOMMU'
expect 1 "$tool" nvme unbind nvme99

# A path of a multipath disk: the disk above it counts.
ln -s ../../devices/pci0000:00/0000:07:00.0/nvme/nvme7/nvme9c7n1 root/sys/class/block/nvme9c7n1
put sys/devices/pci0000:00/0000:07:00.0/nvme/nvme7/nvme9c7n1/dev 259:70
put sys/devices/virtual/nvme-subsystem/nvme-subsys9/nvme9n1/dev 259:71
ln -s ../../devices/virtual/nvme-subsystem/nvme-subsys9/nvme9n1 root/sys/class/block/nvme9n1
put proc/swaps '/dev/nvme9n1 partition 1 0 -2'
refused nvme7 'nvme9n1 is used as swap'
put proc/swaps ''

# Free: taken from its driver; that nobody takes it here is said.
: >root/sys/bus/pci/drivers/nvme/unbind
: >root/sys/bus/pci/drivers_probe
: >root/sys/bus/pci/devices/0000:07:00.0/driver_override
expect 1 "$tool" nvme bind nvme7
says err 'peerlane_nvme does not take 0000:07:00.0'
says root/sys/bus/pci/drivers/nvme/unbind 0000:07:00.0
# Already there.
expect 0 "$tool" nvme unbind nvme7
says out '0000:07:00.0: the kernel has it'
finish
