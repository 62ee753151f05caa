# SPDX-License-Identifier: MIT
"""Models to measure with: made, put into the page cache or out of it, and how fast their disk is."""

import json
import mmap
import os
import struct
import threading
import time

BLOCK = 64 << 20


def plan(total):
    """Names and byte sizes of the tensors of a model: large matrices, and small vectors between."""
    large, small = 32 << 20, 8 << 10
    sizes, left, i = {}, total, 0
    while left:
        for name, size in ((f"layers.{i}.weight", large), (f"layers.{i}.norm", small)):
            size = min(size, left)
            if size:
                sizes[name] = size
            left -= size
        i += 1
    return sizes


def write_model(path, sizes):
    """A safetensors file with BF16 tensors of such sizes, with data that differs from block to block."""
    header, at = {}, 0
    for name, size in sizes.items():
        header[name] = {"dtype": "BF16", "shape": [size // 2], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    block = os.urandom(min(BLOCK, at))
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        number = 0
        while at:
            n = min(at, BLOCK)
            f.write(struct.pack("<Q", number) + block[8:n] if n >= 8 else block[:n])
            at -= n
            number += 1
        f.flush()
        os.fsync(f.fileno())
    return os.path.getsize(path)


def warm(path):
    """Read the whole file into the page cache."""
    with open(path, "rb", buffering=0) as f:
        memory = bytearray(BLOCK)
        while f.readinto(memory):
            pass


def chill(path):
    """Drop the file from the page cache; whether that was done shows in cached_share()."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def cached_share(peerlane, path):
    """How much of a file is in the page cache, 0 to 1; None if the kernel does not tell."""
    size = os.path.getsize(path)
    with peerlane.open(path) as f:
        memory = bytearray(1)
        # Nothing is read: the memory need not be as long as the file.
        said = f.explain(peerlane.Buffer.at(peerlane.Buffer(memory).address, size, keep=memory))
    return None if said.cached_bytes is None else said.cached_bytes / size


def unwritten_kib():
    """KiB that the system has still to write, or is writing."""
    with open("/proc/meminfo", encoding="ascii") as f:
        words = [text.split() for text in f]
    return sum(int(w[1]) for w in words if w[0] in ("Dirty:", "Writeback:"))


def quiet(limit_kib=32 << 10, patience=120):
    """Have everything written, and wait until the system has: {seconds it took, KiB left}."""
    begin = time.perf_counter()
    os.sync()
    while unwritten_kib() > limit_kib and time.perf_counter() - begin < patience:
        time.sleep(0.1)
        os.sync()
    return {"quiet_after": round(time.perf_counter() - begin, 2), "unwritten_kib": unwritten_kib()}


def disk_rate(path, nr_threads=8, block=8 << 20):
    """Bytes a second of plain O_DIRECT reads of a whole file by several threads, with nothing else done."""
    size = os.path.getsize(path) // block * block
    places = iter(range(0, size, block))
    lock = threading.Lock()
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)

    def read():
        memory = mmap.mmap(-1, block)
        while True:
            with lock:
                at = next(places, None)
            if at is None:
                return
            os.preadv(fd, [memory], at)

    threads = [threading.Thread(target=read) for _ in range(nr_threads)]
    begin = time.perf_counter()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    seconds = time.perf_counter() - begin
    os.close(fd)
    return size / seconds if size else None
