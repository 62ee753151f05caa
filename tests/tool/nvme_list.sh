#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# peerlane nvme list: controllers of a made-up machine, and who has them.
# shellcheck disable=SC1091,SC2154 # setup.bash sets tool, dir and the rest
. "$(dirname "$0")/setup.bash"

# device ADDRESS CLASS DRIVER: one of the machine below ./root.
device() {
	local at=root/sys/bus/pci/devices/$1
	mkdir -p "$at"
	echo "$2" >"$at/class"
	echo 0x8086 >"$at/vendor"
	echo 0x5845 >"$at/device"
	[ "$3" = none ] || ln -s "../../../../bus/pci/drivers/$3" "$at/driver"
}

mkdir -p root/sys/bus/pci/devices
PEERLANE_ROOT=$dir/root expect 0 "$tool" nvme list
says out 'no NVMe controller'
says out 'sim:size='

device 0000:01:00.0 0x010802 nvme
device 0000:02:00.0 0x010802 peerlane_nvme
device 0000:03:00.0 0x010802 vfio-pci
device 0000:04:00.0 0x010802 none
device 0000:05:00.0 0x030000 nvidia
ln -s ../../../../kernel/iommu_groups/17 root/sys/bus/pci/devices/0000:03:00.0/iommu_group
nvme=root/sys/bus/pci/devices/0000:01:00.0/nvme/nvme3
mkdir -p $nvme
echo 'Fast Drive   ' >$nvme/model
echo '  S123  ' >$nvme/serial
PEERLANE_ROOT=$dir/root expect 0 "$tool" nvme list
says out 'kmod:0000:02:00.0'
says out 'vfio:0000:03:00.0'
says out 'peerlane nvme bind 0000:01:00.0'
says out 'no driver has it'
grep -q 0000:05 out && fail 'a GPU is listed'
PEERLANE_ROOT=$dir/root expect 0 "$tool" nvme list --json
json '[c["usable"] for c in d["controllers"]] == [False, True, True, False]'
json 'd["controllers"][0]["kernel_name"] == "nvme3" and d["controllers"][0]["model"] == "Fast Drive"'
json 'd["controllers"][1]["address"] == "kmod:0000:02:00.0" and "why" not in d["controllers"][1]'
json 'd["controllers"][2]["iommu_group"] == "17" and d["controllers"][2]["driver"] == "vfio-pci"'
PEERLANE_ROOT=$dir/nowhere expect 0 "$tool" nvme list --json
json 'd["controllers"] == []'
finish
