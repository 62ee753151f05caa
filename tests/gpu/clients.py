# SPDX-License-Identifier: MIT
"""What the tests of other projects' clients share: our library put before any other, GPU memory
by the driver itself, and the proof of which library did the work.

The clients are searched in $PEERLANE_CLIENTS, where clients-fetch put them, and then where Python
finds its packages.
"""

import ctypes
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get("PEERLANE_BUILD", os.path.join(ROOT, "build")))
LIB = os.path.realpath(os.path.join(BUILD, "cufile/libcufile.so.0"))
DIRECTORIES = ("/var/tmp", "/dev/shm")


def skip(why):
    """End the test, which could not run."""
    print(f"skip  {why}")
    sys.stdout.flush()
    os._exit(77)


def start(**settings):
    """Runs the script again with our library in front, by both ways that programs may find it:
    preloaded, and as libcufile.so and libcufile.so.0 of LD_LIBRARY_PATH."""
    if not os.path.exists(LIB):
        skip(f"{LIB} is not built")
    if LIB not in os.environ.get("LD_PRELOAD", ""):
        folder = os.path.join(BUILD, "cufile")
        if not os.path.exists(os.path.join(folder, "libcufile.so")):
            os.symlink("libcufile.so.0", os.path.join(folder, "libcufile.so"))
        path = os.environ.get("LD_LIBRARY_PATH", "")
        preload = f"{LIB}:{os.environ.get('LD_PRELOAD', '')}".rstrip(":")
        os.environ.update(settings, LD_PRELOAD=preload, LD_LIBRARY_PATH=f"{folder}:{path}")
        os.execv(sys.executable, [sys.executable, *sys.argv])
    clients = os.environ.get("PEERLANE_CLIENTS")
    if clients:
        sys.path.insert(0, os.path.abspath(clients))
        # What a client needs and this machine may have itself, in the version it likes.
        sys.path.append(os.path.join(os.path.abspath(clients), "deps"))


def directories():
    """Where to put the files."""
    return sys.argv[1:] or DIRECTORIES


def pattern(length, seed):
    """Bytes that differ from offset to offset."""
    piece = bytes((i * 167 + (i >> 8) * 31 + seed) & 255 for i in range(65536 - 15))
    return (piece * (length // len(piece) + 1))[:length]


def loaded():
    """Paths of every libcufile in this process."""
    with open("/proc/self/maps", encoding="utf-8") as f:
        return sorted(set(re.findall(r"/\S*libcufile\.so\S*", f.read())))


class Gpu:
    """GPU memory by libcuda alone."""

    def __init__(self):
        try:
            self.cuda = ctypes.CDLL("libcuda.so.1")
        except OSError as e:
            skip(f"no CUDA driver: {e}")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        code = self.cuda.cuInit(0) or self.cuda.cuDeviceGet(ctypes.byref(device), 0)
        if code:
            skip(f"no GPU: CUDA says {code}")
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def call(self, name, *args):
        code = getattr(self.cuda, name)(*args)
        assert code == 0, f"{name}: CUDA says {code}"

    def stream(self):
        stream = ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(stream), 1)  # not bound to the default stream
        return stream


class Buffer:
    """A piece of GPU memory that clients take for an array."""

    def __init__(self, gpu, length):
        self.gpu, self.nbytes = gpu, length
        address = ctypes.c_uint64()
        gpu.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(length))
        self.address = address.value

    @property
    def __cuda_array_interface__(self):
        return {"shape": (self.nbytes,), "typestr": "|u1", "data": (self.address, False),
                "version": 3}

    def put(self, data):
        self.gpu.call("cuMemcpyHtoD_v2", ctypes.c_uint64(self.address), data,
                      ctypes.c_size_t(len(data)))
        return self

    def get(self, length=None):
        out = ctypes.create_string_buffer(self.nbytes if length is None else length)
        self.gpu.call("cuMemcpyDtoH_v2", out, ctypes.c_uint64(self.address),
                      ctypes.c_size_t(len(out)))
        return out.raw

    def free(self):
        self.gpu.call("cuMemFree_v2", ctypes.c_uint64(self.address))


class Proof:
    """Counts what goes through our library, by its own statistics."""

    OK = {"reads": 0, "writes": 2, "handles": 4, "buffers": 8, "read_bytes": 12, "write_bytes": 13,
          "batch_read_bytes": 52, "batch_write_bytes": 53}  # words of CUfileStatsLevel1_t

    def __init__(self):
        self.lib = ctypes.CDLL(LIB)
        for name in ("SetStatsLevel", "StatsStart", "StatsReset", "GetStatsL1", "GetVersion"):
            getattr(self.lib, f"cuFile{name}").restype = ctypes.c_uint64

    def call(self, name, *args):
        code = getattr(self.lib, f"cuFile{name}")(*args) & 0xFFFFFFFF
        assert code == 0, f"cuFile{name}: {code}"

    def begin(self):
        """From now on it counts, from 0."""
        self.call("SetStatsLevel", 1)
        self.call("StatsReset")
        self.call("StatsStart")

    def words(self):
        words = (ctypes.c_uint64 * 128)()
        self.call("GetStatsL1", words)
        return {name: words[at] for name, at in self.OK.items()}

    def check(self, read=0, write=0):
        """At least so many bytes went through; says how many."""
        w = self.words()
        r, wr = w["read_bytes"] + w["batch_read_bytes"], w["write_bytes"] + w["batch_write_bytes"]
        assert r >= read and wr >= write, \
            f"the client moved {read} and {write} bytes, our library {r} and {wr}: {w}"
        return f"our library read {r} and wrote {wr} bytes, {w['handles']} files"

    def which(self):
        """Ours was used, and another one, if loaded, was not."""
        assert LIB in loaded(), f"the process has {loaded()}"
        for other in loaded():
            if other != LIB:
                assert ctypes.CDLL(other).cuFileUseCount() == 0, f"{other} was used"
        version = ctypes.c_int()
        self.call("GetVersion", ctypes.byref(version))
        return f"version {version.value}, by {LIB}"
