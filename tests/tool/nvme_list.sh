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
confined=root/sys/bus/pci/devices/0000:02:00.0/peerlane_confined
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

# What the module says is missing, with what helps.
json '"privilege" not in d["controllers"][1]'
echo yes >$confined
PEERLANE_ROOT=$dir/root expect 0 "$tool" nvme list
says out 'nothing but the right to open its device'
echo 'lazy shared-group interrupts' >$confined
PEERLANE_ROOT=$dir/root expect 0 "$tool" nvme list --json
json 'd["controllers"][1]["privilege"].startswith("CAP_SYS_RAWIO: the IOMMU forgets late (boot with iommu.strict=1); ")'
json 'd["controllers"][1]["privilege"].count(";") == 2 and d["controllers"][1]["privilege"][-1] == ")"'
json '"translates" not in d["controllers"][1]["privilege"]'
echo 'untranslated shared-group interrupts' >$confined
PEERLANE_ROOT=$dir/root expect 0 "$tool" nvme list
says out 'CAP_SYS_RAWIO: no IOMMU translates (boot with intel_iommu=on iommu.passthrough=0); '
says out 'no interrupt remapping (a setting of the firmware)'

# identified ADDRESS WHY: what is wrong with an address.
identified() {
	PEERLANE_ROOT=$dir/root expect 1 "$tool" nvme identify "$1"
	says err "$1: $2"
}
mkdir -p root/sys/class/nvme/nvme3
ln -s ../../../bus/pci/devices/0000:01:00.0 root/sys/class/nvme/nvme3/device
identified 0000:09:00.0 'no such NVMe controller'
identified kmod:0000:09:00.0 'no such NVMe controller'
identified /dev/nvme7 'no such NVMe controller'
identified 0000:01:00.0 "not bound: the kernel uses it as a disk; 'peerlane nvme bind 0000:01:00.0'"
identified vfio:0000:01:00.0 'not bound: the kernel uses it as a disk'
identified /dev/nvme3n1 "not bound: the kernel uses it as a disk; 'peerlane nvme bind 0000:01:00.0'"
identified 0000:02:00.0 'the driver peerlane_nvme has it: write kmod:0000:02:00.0'
identified vfio:0000:02:00.0 'the driver peerlane_nvme has it: write kmod:0000:02:00.0'
identified kmod:0000:03:00.0 'the driver vfio-pci has it: write vfio:0000:03:00.0'
identified 0000:04:00.0 "not bound: no driver has it; 'peerlane nvme bind 0000:04:00.0' takes it"
identified 0000:05:00.0 'this PCI device is not an NVMe controller'
identified 01:00.0 'the PCI domain is missing: write kmod:0000:01:00.0'
identified 0000:01:0.0 'no such form of address: write kmod:PCI'
identified nothing 'no such form of address: write kmod:PCI'
# The library's own words, which have no made-up machine.
expect 2 "$tool" check nvme:0000:ff:1f.7/1
says err 'no such form of address: write kmod:PCI or vfio:PCI'
for transport in kmod vfio; do
	expect 2 "$tool" check nvme:$transport:ffff:ff:1f.7/1
	says err 'there is no such PCI device'
done
expect 2 "$tool" check nvme:kmod:nothing/1
says err 'neither a PCI address, as 0000:01:00.0, nor peerlane-nvme0'
for device in /sys/bus/pci/devices/*; do
	if [ ! -e "$device" ] || [ -e "$device/misc" ]; then continue; fi
	expect 2 "$tool" check "nvme:kmod:${device##*/}/1"
	says err 'not bound: the driver peerlane_nvme does not have it'
	break
done

PEERLANE_ROOT=$dir/nowhere expect 0 "$tool" nvme list --json
json 'd["controllers"] == []'
finish
