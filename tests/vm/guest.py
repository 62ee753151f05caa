# SPDX-License-Identifier: MIT
"""What goes into a guest, how it is started, and what it says."""

import glob
import os
import re
import shutil
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
FUZZ_SECONDS = int(os.environ.get("VM_FUZZ_SECONDS", "8"))
# How often loops go round; 0: as often as each of them thinks right for every day.
ROUNDS = int(os.environ.get("VM_ROUNDS", "0"))
# Where random numbers begin, in tests that print it.
SEED = os.environ.get("VM_SEED", "")
# What takes longer than this many seconds hangs: a test, a boot, and what is asked for beyond the usual
# in each test. A round of some loops takes seconds where much else is going on.
TEST_SECONDS = 200
BOOT_SECONDS = 600
# ...and a guest that has not said a word by then has not started.
START_SECONDS = 120
MORE_SECONDS = FUZZ_SECONDS + 5 * ROUNDS
# With a debug kernel everything takes longer.
DEBUG_TIMES = 4
# So long a guest that hangs has for saying why.
WHY_SECONDS = 30
# Programs of examples/ that the tests run.
EXAMPLES = ("file_to_gpu", "pin_mmap")
# What the tests need of the kernel's own modules.
MODULES = ("nvme", "ext4", "crc32c_generic", "md_mod", "raid0", "xfs", "fuse")
# ...and those of the layout "below", which take their time to start.
MODULES_BELOW = ("btrfs", "dm_mod", "raid1", "loop", "sd_mod", "scsi_debug", "am53c974")
# ...and for drives over a network; the tests of those load them.
MODULES_FABRICS = ("configfs", "dummy", "nvme-tcp", "nvme-rdma", "nvmet-tcp", "nvmet-rdma",
                   "crc32_generic", "rdma_rxe")
# Loaded only where a test is about it.
VFIO = ("vfio-pci", "vfio_iommu_type1")


def test_limit(kernel):
    return (TEST_SECONDS + MORE_SECONDS) * (DEBUG_TIMES if kernel.tools == "source" else 1)


def start_limit(kernel):
    return START_SECONDS * (DEBUG_TIMES if kernel.tools == "source" else 1)


def boot_limit(kernel, boot):
    more = MORE_SECONDS * len(boot.tests)
    return (BOOT_SECONDS + more) * (DEBUG_TIMES if kernel.tools == "source" else 1)


def build_libraries():
    """The library, and what the tool needs beside it, from the tree's own build: three libraries, and
    two headers."""
    names = ("lib/libpeerlane.a", "cufile/libcufile_config.a", "cufile/libcufile_inside.a",
             "tools/gpu_kernels_ptx.h", "tools/gpu_array_kernels_ptx.h")
    build = os.environ.get("PEERLANE_BUILD") or os.path.join(TOP, "build")
    if not os.path.exists(os.path.join(build, "build.ninja")):
        subprocess.run([os.path.join(TOP, "scripts/configure"), build], check=True, cwd=TOP,
                       stdout=subprocess.DEVNULL)
    subprocess.run(["ninja", "-C", build, *names], check=True, cwd=TOP,
                   stdout=subprocess.DEVNULL)
    return [os.path.join(TOP, build, name) for name in names]


def link(target, sources, libraries, *options):
    """A static program."""
    subprocess.run(["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-static",
                    "-D_GNU_SOURCE", "-Wl,--no-warnings", "-I", os.path.join(TOP, "include"),
                    *options, "-o", target, *sources, *libraries, "-luring", "-lpthread"],
                   check=True)


def build_programs(lab):
    """What runs in the guest: the tests, the tool, and examples."""
    os.makedirs(lab.build, exist_ok=True)
    library, config, cufile, header, _ = build_libraries()
    link(os.path.join(lab.build, "vmtest"), sorted(glob.glob(os.path.join(HERE, "guest/*.c"))),
         [cufile, config, library, "-ljson-c"], "-I", os.path.join(TOP, "cufile"),
         "-I", os.path.join(TOP, "nvme"))
    link(os.path.join(lab.build, "peerlane"), sorted(glob.glob(os.path.join(TOP, "tools/*.c"))),
         [config, library, "-ljson-c", "-lm"], "-I", os.path.join(TOP, "lib"),
         "-I", os.path.join(TOP, "nvme"), "-I", os.path.dirname(header))
    for name in EXAMPLES:
        link(os.path.join(lab.build, name), [os.path.join(TOP, "examples", name + ".c")], [library])


def module_files(kernel, names):
    """These modules and what they need, in order; without those that are built in."""
    files = []
    for name in names:
        done = subprocess.run(["modprobe", "-d", kernel.root, "-S", kernel.release,
                               "--show-depends", name], capture_output=True, text=True,
                              check=False)
        for line in done.stdout.splitlines():
            words = line.split()
            if words[0] == "insmod" and words[1] not in files:
                files.append(words[1])
    return files


def copy_module(path, target):
    name = os.path.basename(path)
    if name.endswith(".xz"):
        name = name[:-3]
        with open(os.path.join(target, name), "wb") as f:
            subprocess.run(["xz", "-dc", path], stdout=f, check=True)
    else:
        shutil.copy(path, os.path.join(target, name))
    return name


def busybox(lab):
    for path in ("usr/bin/busybox", "bin/busybox"):
        if os.path.exists(os.path.join(lab.cache, "busybox", path)):
            return os.path.join(lab.cache, "busybox", path)
    raise FileNotFoundError("busybox: run tests/vm/setup")


def make_initramfs(lab, kernel):
    root = os.path.join(lab.build, kernel.name, "initramfs")
    shutil.rmtree(root, ignore_errors=True)
    os.makedirs(os.path.join(root, "bin"))
    os.makedirs(os.path.join(root, "m"))
    shutil.copy(busybox(lab), os.path.join(root, "bin/busybox"))
    for name in ("vmtest", "peerlane", *EXAMPLES):
        shutil.copy(os.path.join(lab.build, name), os.path.join(root, "bin", name))
    shutil.copy(os.path.join(HERE, "guest/init"), os.path.join(root, "init"))
    os.chmod(os.path.join(root, "init"), 0o755)
    for kind, names in (("list", MODULES), ("list-below", MODULES_BELOW),
                        ("list-fabrics", MODULES_FABRICS), ("list-vfio", VFIO)):
        files = [copy_module(path, os.path.join(root, "m"))
                 for path in module_files(kernel, names)]
        with open(os.path.join(root, "m", kind), "w", encoding="utf-8") as f:
            f.write("".join(name + "\n" for name in files))
    for path in glob.glob(os.path.join(lab.build, kernel.name, "kmod/*.ko")):
        shutil.copy(path, os.path.join(root, "m"))
    files = subprocess.run(["find", "."], cwd=root, capture_output=True, check=True).stdout
    with open(root + ".cpio", "wb") as f:
        subprocess.run(["cpio", "-o", "-H", "newc", "--quiet"], cwd=root, input=files, stdout=f,
                       check=True)


def devices_below(images):
    """A drive with two controllers, and one that addresses 4 GiB only."""
    name, drive = images.shared
    return ["-device", "nvme-subsys,id=subsys0,nqn=below",
            "-device", f"nvme,id=ctrl0,serial={name},subsys=subsys0",
            "-device", f"nvme,id=ctrl1,serial={name},subsys=subsys0",
            "-drive", f"{drive},if=none,id={name},cache=unsafe",
            "-device", f"nvme-ns,drive={name},bus=ctrl0,nsid=1,shared=on",
            "-drive", f"file={images.narrow},format=raw,if=none,id=narrow0,cache=unsafe",
            "-device", "am53c974,id=scsi", "-device", "scsi-hd,drive=narrow0,bus=scsi.0"]


def devices(layout, images):
    """Drives and GPU, below a switch or beside each other."""
    out = []
    if layout.iommu:
        out += ["-device", "intel-iommu"]
    if layout.switch:
        out += ["-device", "pcie-root-port,id=rp,slot=1,pref64-reserve=1G",
                "-device", "x3130-upstream,id=up,bus=rp"]
    ports = {}
    if layout.below:
        # Two ports with ACS below one: this is how QEMU can have them. The window is so large that
        # the GPU comes to lie above 4 GiB.
        ports = {"raid0": ",bus=portdrive", "gpu": ",bus=portgpu"}
        out += ["-device", "pcie-root-port,id=rp,slot=1,pref64-reserve=4G",
                "-device", "pcie-root-port,id=portdrive,bus=rp,addr=0.0,multifunction=on,slot=2",
                "-device", "pcie-root-port,id=portgpu,bus=rp,addr=0.1,slot=3,pref64-reserve=1G"]
        out += devices_below(images)
    if layout.functions:
        ports = {"raid0": ",addr=10.0,multifunction=on", "raid1": ",addr=10.1"}
    for number, (name, drive) in enumerate(images.drives):
        bus = f",bus=port{number}" if layout.switch else ports.get(name, "")
        if layout.switch:
            out += ["-device",
                    f"xio3130-downstream,id=port{number},bus=up,chassis={number + 2}"]
        out += ["-drive", f"{drive},if=none,id={name},cache=unsafe,werror=report,rerror=report",
                "-device", f"nvme,drive={name},serial={name}{bus}"]
    if layout.switch:
        out += ["-device", "xio3130-downstream,id=portgpu,bus=up,chassis=9"]
        ports["gpu"] = ",bus=portgpu"
    if layout.adapter:
        out += ["-device", "edu"]
    out += ["-object",
            f"memory-backend-file,id=gpu,share=on,mem-path={images.bar},size={images.bar_bytes}",
            "-device", "ivshmem-plain,memdev=gpu" + ports.get("gpu", "")]
    return out


def nr_disks(boot, images):
    """NVMe disks that the guest sees: of a shared one its paths, and what stands for both."""
    shared = 3 if "multipath=N" not in boot.parameters["nvme_core"] else 2
    return len(images.drives) + (shared if boot.layout.below else 0)


def qemu_command(lab, kernel, boot, images, work):
    # Whether the timer ticks is found by waiting for a short time, too short on a busy machine. Such a
    # one was also seen to let a guest stand still for a minute: no fault before two.
    append = ["console=ttyS0", "panic=-1", "quiet", "hung_task_panic=0", "no_timer_check",
              "watchdog_thresh=60", "rcupdate.rcu_cpu_stall_timeout=120",
              "unknown_nmi_panic=1", "panic_print=0x41",
              "log_buf_len=8M", "printk.devkmsg=on", boot.layout.append,
              "pl.tests=" + ",".join(boot.tests), f"pl.drives={nr_disks(boot, images)}",
              "pl.below=1 pl.scsi_debug=dev_size_mb=4" if boot.layout.below else "",
              f"pl.fuzz={FUZZ_SECONDS}", f"pl.rounds={ROUNDS}", f"pl.seed={SEED}", f"pl.limit={test_limit(kernel)}"]
    append += [f"pl.{module}=" + ",".join(values)
               for module, values in boot.parameters.items() if values]
    results = os.path.join(work, "results.txt")
    if os.path.exists(results):
        os.remove(results)
    traces = ["pci_nvme_map_addr", "pci_nvme_read"]
    if boot.layout.iommu:
        traces += ["vtd_dmar_translate"]
    command = [lab.qemu, "-machine", "q35", "-accel", "tcg", "-cpu", boot.layout.cpu,
               "-smp", "2", "-m", "1024", "-nodefaults", "-display", "none", "-no-reboot",
               "-serial", f"file:{work}/console.txt", "-serial", f"file:{results}",
               "-monitor", "stdio",
               "-kernel", kernel.image,
               "-initrd", os.path.join(lab.build, kernel.name, "initramfs.cpio"),
               "-append", " ".join(append), *devices(boot.layout, images),
               "-D", os.path.join(work, "trace.log")]
    for trace in traces:
        command += ["-trace", trace]
    return command


def ask_why(qemu):
    """End a guest that hangs; before that let it say what its processors and tasks are at: an
    interrupt that nothing masks makes it panic, and print that."""
    try:
        qemu.communicate(b"nmi\n", timeout=WHY_SECONDS)
    except subprocess.TimeoutExpired:
        qemu.kill()


class Told:
    """What the guest said: where the BAR is, and how each test went."""

    def __init__(self):
        self.bar = None
        self.tests = []
        self.started = False
        self.loose = []


class Test:
    def __init__(self, name, number):
        self.name, self.number = name, number
        self.status = None
        self.direct = None
        self.expects = []
        self.log = []


def read_results(path):
    told = Told()
    if not os.path.exists(path):
        return told
    test = None
    with open(path, encoding="utf-8", errors="replace") as f:
        for line in (line.rstrip("\r\n") for line in f):
            words = line.split()
            if not words:
                continue
            told.started = True
            if words[0] == "BAR" and len(words) == 3:
                told.bar = (int(words[1]), int(words[2]))
            elif words[0] == "BEGIN":
                test = Test(words[1], len(told.tests) + 1)
                told.tests.append(test)
            elif words[0] == "END" and test:
                test.status = int(words[2])
                test = None
            elif test and words[0] == "DIRECT":
                test.direct = (test.direct or 0) + int(words[1])
            elif test and words[0] == "EXPECT":
                test.expects.append(words[1:])
            elif test:
                test.log.append(line)
            else:
                told.loose.append(line)
    return told


TROUBLE = re.compile(r"Kernel panic|BUG:|Oops|WARNING: CPU|blocked for more than|general protection")


def task_lines(lines):
    """What the tests' tasks were at when the guest was stopped: a line each, the innermost first."""
    tasks = []
    for line in (re.sub(r"^\[ *[0-9.]+\] ?", "", line) for line in lines):
        start = re.match(r"task:(\S+) +state:(\S+) .*pid:(\d+) +tgid", line)
        if start:
            tasks.append((*start.groups(), []))
        frame = re.match(r" ([a-z_]\w*)[\w.]*\+0x", line)
        if frame and tasks:
            tasks[-1][3].append(frame[1])
    return [f"{name} {pid}, state {state}: {' < '.join(frames[2:9])}"
            for name, state, pid, frames in tasks if name == "vmtest"]


def console_trouble(work):
    """Lines of the console that no kernel in good health writes."""
    path = os.path.join(work, "console.txt")
    if not os.path.exists(path):
        return ["no console"]
    with open(path, encoding="utf-8", errors="replace") as f:
        lines = f.read().splitlines()
    for number, line in enumerate(lines):
        if TROUBLE.search(line):
            return lines[max(0, number - 3):number + 40] + task_lines(lines[number:])
    return []
