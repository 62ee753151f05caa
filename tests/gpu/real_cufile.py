# SPDX-License-Identifier: MIT
"""NVIDIA's libcufile: where it is, and what it wants of the machine."""

import glob
import os
import sys

PLACES = ("/usr/local/cuda*/lib64/libcufile.so.0",
          "/usr/local/cuda*/targets/*/lib/libcufile.so.0",
          "/usr/lib/x86_64-linux-gnu/libcufile.so.0",
          "/usr/local/lib/python3*/*-packages/nvidia/*/lib/libcufile.so.0",
          "/opt/*/lib/python3*/site-packages/nvidia/*/lib/libcufile.so.0",
          os.path.join(sys.prefix, "lib/python3*/*-packages/nvidia/*/lib/libcufile.so.0"))


def find(name="libcufile.so.0"):
    """A library of CUDA's, or None."""
    for place in PLACES:
        found = sorted(glob.glob(place.replace("libcufile.so.0", name)))
        if found:
            return found[0]
    return None


class UdevRecord:
    """The record of a directory's disk in the udev database, while it is needed: without one NVIDIA's
    library refuses the files there. Needs root."""

    def __init__(self, directory):
        dev = os.stat(directory).st_dev
        self.path = f"/run/udev/data/b{os.major(dev)}:{os.minor(dev)}"
        self.made = False

    def __enter__(self):
        if os.path.exists(self.path) or self.path.endswith("b0:0"):
            return self
        try:
            os.makedirs("/run/udev/data", exist_ok=True)
            with open(self.path, "x", encoding="ascii") as f:
                f.write("E:ID_FS_TYPE=ext4\nE:ID_FS_USAGE=filesystem\n")
            self.made = True
        except OSError as e:
            print(f"note: no udev record: {e}")
        return self

    def __exit__(self, *_):
        if self.made:
            os.unlink(self.path)
