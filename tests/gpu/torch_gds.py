#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""torch.cuda.gds on our libcufile.so.0: tensors saved and loaded, on a disk and on tmpfs.

    torch_gds.py [DIRECTORY...]     default: /var/tmp and /dev/shm

Starts itself again with the library preloaded, since torch carries the path of another one. Exits
77 where there is no torch or no GPU.
"""

import ctypes
import os
import re
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get("PEERLANE_BUILD", os.path.join(ROOT, "build")))
LIB = os.path.realpath(os.path.join(BUILD, "cufile/libcufile.so.0"))


def skip(why):
    print(why)
    sys.exit(77)


def loaded():
    """Paths of the libcufile in this process."""
    with open("/proc/self/maps", encoding="utf-8") as f:
        return sorted(set(re.findall(r"/\S*libcufile\S*", f.read())))


def one_tensor(torch, directory, shape, dtype, offset):
    """Save a tensor, load it into another, compare; also with the file read the plain way."""
    path = os.path.join(directory, "tensor.bin")
    a = (torch.rand(shape, device="cuda") * 200).to(dtype)
    b = torch.zeros_like(a)
    torch.cuda.synchronize()
    f = torch.cuda.gds.GdsFile(path, os.O_CREAT | os.O_RDWR)
    torch.cuda.gds.gds_register_buffer(a.untyped_storage())
    f.save_storage(a.untyped_storage(), offset=offset)
    torch.cuda.gds.gds_deregister_buffer(a.untyped_storage())
    f.load_storage(b.untyped_storage(), offset=offset)
    torch.cuda.synchronize()
    assert torch.equal(a, b), f"{directory} {shape} {dtype}: other data came back"
    with open(path, "rb") as plain:
        plain.seek(offset)
        raw = plain.read(a.numel() * a.element_size())
    assert raw == a.cpu().numpy().tobytes(), f"{directory} {shape} {dtype}: other data in the file"
    f.deregister_handle()
    del f  # closes the descriptor
    os.unlink(path)


def several_tensors(torch, directory):
    """A checkpoint: several tensors in one file, one after the other."""
    path = os.path.join(directory, "checkpoint.bin")
    tensors = [torch.rand(n, device="cuda") for n in (1, 1000, 1 << 20, 3_333_333)]
    f = torch.cuda.gds.GdsFile(path, os.O_CREAT | os.O_RDWR)
    at = 0
    for t in tensors:
        f.save_storage(t.untyped_storage(), offset=at)
        at += t.untyped_storage().nbytes()
    at = 0
    for t in tensors:
        back = torch.empty_like(t)
        f.load_storage(back.untyped_storage(), offset=at)
        at += t.untyped_storage().nbytes()
        assert torch.equal(t, back), f"{directory}: other data came back"
    os.unlink(path)


def in_directory(torch, base):
    """Everything in one place; a note if O_DIRECT had to be left out."""
    note = ""
    with tempfile.TemporaryDirectory(dir=base, prefix="peerlane-torch-") as directory:
        try:
            fd = os.open(os.path.join(directory, "probe"), os.O_CREAT | os.O_RDWR | os.O_DIRECT)
            os.close(fd)
        except OSError:
            # GdsFile adds O_DIRECT by itself, and this file system has none.
            os.O_DIRECT = 0
            note = " (opened without O_DIRECT)"
        for shape, dtype, offset in (((1024, 1024), torch.float32, 0), ((17,), torch.uint8, 0),
                                     ((4097,), torch.float16, 4096), ((3, 5, 7), torch.int64, 123),
                                     ((64 << 20,), torch.uint8, 0)):
            one_tensor(torch, directory, shape, dtype, offset)
        several_tensors(torch, directory)
    print(f"ok    {base}: 6 round trips{note}")


def main():
    if LIB not in os.environ.get("LD_PRELOAD", ""):
        if not os.path.exists(LIB):
            skip(f"{LIB} is not built")
        os.environ["LD_PRELOAD"] = LIB
        os.execv(sys.executable, [sys.executable, *sys.argv])
    try:
        import torch
        import torch.cuda.gds
    except ImportError as e:
        skip(f"no torch with torch.cuda.gds: {e}")
    if not torch.cuda.is_available():
        skip("torch finds no GPU")
    direct = os.O_DIRECT
    for base in sys.argv[1:] or ("/var/tmp", "/dev/shm"):
        os.O_DIRECT = direct
        in_directory(torch, base)
    # torch may load NVIDIA's library by its path as well; what counts is which one was used.
    assert LIB in loaded(), f"the process has {loaded()}"
    for lib in loaded():
        used = ctypes.CDLL(lib).cuFileUseCount() > 0
        assert used == (lib == LIB), f"{lib} was {'' if used else 'not '}used"
    print(f"torch {torch.__version__} on {torch.cuda.get_device_name()}, by {LIB}")


main()
