# SPDX-License-Identifier: MIT
"""The rows of lab.table, and where the lab keeps its things."""

import os
import shutil

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
TOOLS = ("qemu-system-x86_64", "cpio", "xz", "dpkg-deb", "depmod", "modprobe", "mkfs.ext4",
         "mkfs.xfs", "mkfs.btrfs", "debugfs", "gcc", "make", "ninja")


def why_not():
    """Why the lab cannot run here; None when it can."""
    os.environ["PATH"] += ":/usr/local/sbin:/usr/sbin:/sbin"
    if os.geteuid() != 0:
        return "the VM lab builds modules in a chroot and needs root"
    for tool in TOOLS:
        if not shutil.which(tool):
            return f"the VM lab needs {tool}, which is not installed"
    return None


class Kernel:
    def __init__(self, cache, name, suite, tools):
        self.name, self.suite, self.tools = name, suite, tools
        self.root = os.path.join(cache, "kernel", name, "root")
        self.release_file = os.path.join(cache, "kernel", name, "release")

    @property
    def release(self):
        with open(self.release_file, encoding="utf-8") as f:
            return f.read().strip()

    @property
    def image(self):
        for path in (f"boot/vmlinuz-{self.release}", f"usr/lib/modules/{self.release}/vmlinuz"):
            if os.path.exists(os.path.join(self.root, path)):
                return os.path.join(self.root, path)
        raise FileNotFoundError(f"no kernel image in {self.root}")


class Layout:
    def __init__(self, name, *options):
        self.name = name
        self.switch = "switch" in options
        self.iommu = "iommu" in options
        self.raid = "raid" in options
        self.functions = "functions" in options
        self.xfs = "xfs" in options
        self.below = "below" in options
        self.adapter = "adapter" in options
        values = [option.split("=", 1) for option in options if "=" in option]
        self.cpu = dict(values).get("cpu", "qemu64")
        self.append = " ".join(value for name, value in values if name == "append")


class Boot:
    def __init__(self, name, layout, kernels, dma, parameters, tests):
        self.name, self.layout, self.dma = name, layout, dma
        self.kernels = self.names(kernels)
        self.always = any(name[-1] not in "*+" and name != "debug" for name in kernels.split(","))
        self.tests = tests.split(",")
        self.parameters = {"peerlane": [], "simgpu": [], "nvme_core": []}
        if parameters != "-":
            for parameter in parameters.split(","):
                module, value = parameter.split(":", 1)
                self.parameters[module].append(value)
        # Every drive of QEMU 10.0, unlike one of 7.2, says that it may have several controllers. Linux
        # then shows a disk that stands for all paths to it; here only where that is asked for.
        if not layout.below and not self.parameters["nvme_core"]:
            self.parameters["nvme_core"].append("multipath=N")

    @staticmethod
    def names(kernels):
        """Those for this run: a plus or an exclamation mark is for all but quick runs, a star for full runs only."""
        full, quick = (os.environ.get(name, "") not in ("", "0") for name in ("VM_FULL", "VM_QUICK"))
        left_out = "" if full else "*+!" if quick else "*"
        return [name.rstrip("*+!") for name in kernels.split(",") if name[-1] not in left_out]

    def wants(self, kernel):
        return kernel.name in self.kernels


class Lab:
    """All of lab.table."""

    def __init__(self, path):
        home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        self.cache = os.environ.get("PEERLANE_VM_CACHE") or os.path.join(home, "peerlane-vm")
        self.build = os.environ.get("PEERLANE_VM_BUILD") or os.path.join(TOP, "build/vm")
        self.kernels, self.layouts, self.boots = [], {}, []
        with open(path, encoding="utf-8") as f:
            for line in f:
                words = line.split("#", 1)[0].split()
                if words:
                    self.add(*words)
        always = {test for boot in self.boots if boot.always for test in boot.tests}
        rest = {test for boot in self.boots for test in boot.tests} - always
        if rest:
            raise SystemExit(f"lab.table: quick runs would not have {' '.join(sorted(rest))}")

    def add(self, kind, name, *rest):
        if kind == "kernel":
            self.kernels.append(Kernel(self.cache, name, *rest))
        elif kind == "layout":
            self.layouts[name] = Layout(name, *rest)
        elif kind == "boot":
            layout, *others = rest
            self.boots.append(Boot(name, self.layouts[layout], *others))
        else:
            raise ValueError(f"lab.table: what is a {kind}?")

    @property
    def qemu(self):
        """The QEMU that setup has fetched, or the machine's own where that is new enough."""
        fetched = os.path.join(self.cache, "qemu/run")
        return fetched if os.path.exists(fetched) else "qemu-system-x86_64"

    def only(self, boots, tests):
        """Leave only some boots and, of those, some tests; all when none are named."""
        self.boots = [boot for boot in self.boots if not boots or boot.name in boots]
        if tests:
            for boot in self.boots:
                boot.tests = [test for test in boot.tests if test in tests]
            self.boots = [boot for boot in self.boots if boot.tests]

    def pick(self, names):
        unknown = set(names) - {kernel.name for kernel in self.kernels}
        if unknown:
            raise SystemExit(f"no such kernel in lab.table: {' '.join(sorted(unknown))}")
        return [kernel for kernel in self.kernels
                if (kernel.name in names if names else kernel.tools != "source")]
