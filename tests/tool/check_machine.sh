#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# peerlane check on another machine's /proc and /sys: md over NVMe partitions, a GPU, an IOMMU.
# shellcheck disable=SC1091,SC2154 # setup.bash sets tool, dir and the rest
. "$(dirname "$0")/setup.bash"

# put FILE TEXT: below the made-up root.
put() {
	mkdir -p "root/$(dirname "$1")"
	printf '%s\n' "$2" >"root/$1"
}

# nvme NUMBER: a drive with one partition, part of md0.
nvme() {
	local disk=nvme$1n1 at=sys/devices/pci/nvme$1n1
	put "$at/queue/rotational" 0
	put "$at/queue/logical_block_size" 4096
	put "$at/device/model" "FastDrive $1   "
	put "$at/device/transport" pcie
	put "$at/${disk}p1/partition" 1
	mkdir -p root/sys/class/block root/sys/block root/sys/devices/md0/slaves
	ln -s "../devices/pci/$disk" "root/sys/block/$disk"
	ln -s "../../devices/pci/$disk" "root/sys/class/block/$disk"
	ln -s "../../devices/pci/$disk/${disk}p1" "root/sys/class/block/${disk}p1"
	ln -s "../../pci/$disk/${disk}p1" "root/sys/devices/md0/slaves/${disk}p1"
}

# paths NUMBER TRANSPORT...: a drive with several paths, which are controllers of other numbers.
paths() {
	local disk=nvme$1n1 at=sys/devices/virtual/nvme$1n1 number=20 transport
	put "$at/device/model" "FarDrive"
	shift
	for transport; do
		put "$at/device/nvme$number/transport" "$transport"
		number=$((number + 1))
	done
	ln -s "../devices/virtual/$disk" "root/sys/block/$disk"
	ln -s "../../devices/virtual/$disk" "root/sys/class/block/$disk"
	ln -s "../../virtual/$disk" "root/sys/devices/md0/slaves/$disk"
}

nvme 0
nvme 1
paths 7 tcp tcp
paths 8 rdma tcp
# Not a path of the drive of that number.
put sys/class/nvme/nvme7/transport pcie
put sys/devices/md0/md/level raid0
put sys/devices/md0/queue/rotational 0
put sys/devices/md0/queue/logical_block_size 4096
ln -s ../devices/md0 root/sys/block/md0
ln -s ../../devices/md0 root/sys/class/block/md0
device=$(stat -c %d .)
mkdir -p root/sys/dev/block
ln -s ../../devices/md0 "root/sys/dev/block/$((device >> 8 & 0xfff)):$(((device & 0xff) | (device >> 12 & 0xfff00)))"

put proc/driver/nvidia/version 'NVRM version: NVIDIA UNIX Open Kernel Module  999.1'
put proc/modules 'nvidia 1 0 - Live 0x0
peerlane 1 0 - Live 0x0
nvidia_fsx 1 0 - Live 0x0'
put proc/cmdline 'quiet intel_iommu=on swiotlb=force root=/dev/md0'
put sys/class/iommu/dmar0/x ''
put sys/kernel/iommu_groups/7/type DMA-FQ
for gpu in 0000:3b:00.0 0000:3c:00.0; do
	put "sys/bus/pci/devices/$gpu/vendor" 0x10de
	put "sys/bus/pci/devices/$gpu/class" 0x030200
	ln -s ../../../../kernel/iommu_groups/7 "root/sys/bus/pci/devices/$gpu/iommu_group"
done
put sys/bus/pci/devices/0000:01:00.0/vendor 0x10de
put sys/bus/pci/devices/0000:01:00.0/class 0x040300

put sys/kernel/mm/transparent_hugepage/enabled 'always madvise [never]'
export PEERLANE_ROOT=$dir/root
expect 1 "$tool" check .
says out 'huge pages      never: cold reads may take longer; fix: echo madvise'
says out '999.1'
says out 'md0: md RAID raid0'
says out '    nvme1n1: NVMe over pcie, FastDrive 1, not rotating, blocks of 4096'
says out 'nvme7n1: NVMe over tcp, FarDrive'
says out 'nvme8n1: NVMe over rdma and tcp, FarDrive'
says out '2 on the PCI bus'
says out 'IOMMU group 7 DMA-FQ'
says out 'intel_iommu=on swiotlb=force'
says out 'every DMA is bounced'

expect 1 "$tool" check --json .
json '[b["name"] for b in d["file"]["block_devices"]] ==
	["md0", "nvme0n1p1", "nvme0n1", "nvme1n1p1", "nvme1n1", "nvme7n1", "nvme8n1"]'
json '[b["depth"] for b in d["file"]["block_devices"]] == [0, 1, 2, 1, 2, 1, 1]'
json 'd["modules"]["nvidia"] and d["modules"]["peerlane"] and not d["modules"]["nvidia_fs"]'
json 'd["nvidia"]["devices"][1]["pci"] == "0000:3c:00.0" and d["iommu"]["groups"] == 1'

put sys/kernel/mm/transparent_hugepage/enabled 'always [madvise] never'
expect 1 "$tool" check .
says out 'huge pages      madvise'
put sys/kernel/mm/transparent_hugepage/enabled 'nonsense'
expect 1 "$tool" check --json .
json 'd["system"]["huge_pages"].startswith("none: ")'

# A loop among the devices ends.
ln -s ../../md0 root/sys/devices/md0/slaves/md0
expect 1 "$tool" check .
finish
