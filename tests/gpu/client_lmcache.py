#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""LMCache on our libcufile.so.0: the package "cufile" that it uses, alone, and then its backend for
GPUDirect Storage, which stores pieces of a KV cache and gets them back.

    client_lmcache.py [DIRECTORY...]     default: /var/tmp and /dev/shm

Exits 77 where the package "cufile" or a GPU is missing; says so if only LMCache is.
"""

import asyncio
import ctypes
import os
import sys
import tempfile
import threading
import time
import types

import clients

SIZE = 5 << 20
CHUNKS = 8
WAIT_S = 30


def package(gpu, path):
    """The package's files, with registered memory and without. The bytes each way."""
    import cufile
    from cufile.bindings import cuFileBufDeregister, cuFileBufRegister

    data = clients.pattern(SIZE, 3)
    a, b = clients.Buffer(gpu, SIZE).put(data), clients.Buffer(gpu, SIZE)
    pa, pb = ctypes.c_void_p(a.address), ctypes.c_void_p(b.address)
    total = 0
    for registered in False, True:
        if registered:
            cuFileBufRegister(pa, SIZE, 0)
            cuFileBufRegister(pb, SIZE, 0)
        for length, at, start in ((SIZE, 0, 0), (SIZE - 4096, 4096, 4096), (12345, 77, 33)):
            b.put(bytes(SIZE))
            with cufile.CuFile(path, "w+") as f:
                assert f.write(pa, length, at, start) == length
            with cufile.CuFile(path, "r") as f:
                assert f.read(pb, length, at, start) == length
            assert b.get()[start:start + length] == data[start:start + length], "other data"
            with open(path, "rb") as plain:
                plain.seek(at)
                assert plain.read() == data[start:start + length], "other data in the file"
            total += length
    cuFileBufDeregister(pa)
    cuFileBufDeregister(pb)
    a.free()
    b.free()
    return total


def wait_for(what, why):
    end = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < end, f"{why}: not within {WAIT_S} s"
        time.sleep(0.01)


class Cache:
    """LMCache's backend in a directory, as its engine would use it."""

    def __init__(self, torch, directory):
        from lmcache.v1.config import LMCacheEngineConfig
        from lmcache.v1.metadata import LMCacheMetadata
        from lmcache.v1.storage_backend.gds_backend import GdsBackend

        self.torch = torch
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        # use_gds is said openly: on tmpfs LMCache would else leave it off.
        config = LMCacheEngineConfig.from_dict(
            {"gds_path": directory, "gds_buffer_size": 64, "use_gds": True})
        shape = (4, 2, 256, 8, 64)
        metadata = LMCacheMetadata("model", 1, 1, 0, 0, torch.bfloat16, shape)
        self.backend = GdsBackend(config, metadata, self.loop, dst_device="cuda")
        assert self.backend.use_gds, "LMCache left GPUDirect Storage off"

    def key(self, i):
        from lmcache.utils import CacheEngineKey

        return CacheEngineKey("model", 1, 0, 0x1234567 + i, self.torch.bfloat16)

    def put(self, i, data):
        """Stores a piece; the tensor it went from."""
        from lmcache.v1.memory_management import MemoryFormat

        t = self.torch
        piece = self.backend.allocate(t.Size((2, 4, 256, 512)), t.bfloat16, MemoryFormat.KV_2LTD)
        piece.tensor.view(t.int16).copy_(data)
        if piece.tensor.is_cuda:
            t.cuda.synchronize()
        self.backend.submit_put_task(self.key(i), piece).result(WAIT_S)
        piece.ref_count_down()

    def close(self):
        wait_for(lambda: not self.backend.save_metadata_tasks, "files of metadata")
        self.backend.close()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(WAIT_S)
        self.loop.close()


def backend(torch, directory):
    """Pieces stored, found and read back, also by a second backend that starts with the files."""
    made = torch.randint(-32768, 32767, (CHUNKS, 2, 4, 256, 512), dtype=torch.int16)
    first = Cache(torch, directory)
    where = str(first.backend.memory_allocator.tensor.device)
    assert where.startswith("cuda") or not torch.cuda.is_available(), f"its memory is on {where}"
    for i in range(CHUNKS):
        first.put(i, made[i])
    first.close()
    second = Cache(torch, directory)
    wait_for(second.backend._scan_metadata_future.done, "the search for files")
    keys = [second.key(i) for i in range(CHUNKS)]
    assert all(second.backend.contains(key) for key in keys), "a piece is not found"
    assert not second.backend.contains(second.key(CHUNKS)), "a piece that was never stored is found"
    got = [second.backend.get_blocking(key) for key in keys[:2]]
    got += second.backend.batched_get_blocking(keys[2:])
    for i, piece in enumerate(got):
        assert piece is not None, f"piece {i} was not read"
        assert torch.equal(piece.tensor.view(torch.int16).cpu(), made[i]), f"piece {i}: other data"
        piece.ref_count_down()
    second.close()
    return made.nbytes, where


def lmcache():
    """LMCache itself, or why it is not here."""
    try:
        import torch
    except ImportError as e:
        return None, f"no torch: {e}"
    try:
        import numba  # noqa: F401
    except ImportError:
        # LMCache compiles hash functions with it that this test does not call.
        sys.modules["numba"] = types.ModuleType("numba")
        sys.modules["numba"].njit = lambda *a, **k: a[0] if a and callable(a[0]) else lambda f: f
    try:
        import lmcache.v1.storage_backend.gds_backend  # noqa: F401
    except Exception as e:
        return None, f"LMCache cannot be loaded: {type(e).__name__}: {e}"
    return torch, None


def main():
    clients.start(LMCACHE_LOG_LEVEL="ERROR", LMCACHE_TRACK_USAGE="false")
    gpu = clients.Gpu()
    try:
        import cufile  # noqa: F401
    except (ImportError, OSError) as e:
        clients.skip(f'no package "cufile": {e}')
    proof = clients.Proof()
    for base in clients.directories():
        with tempfile.TemporaryDirectory(dir=base, prefix="peerlane-lmcache-") as directory:
            proof.begin()
            total = package(gpu, os.path.join(directory, "file"))
            print(f'ok    "cufile" {base}: 6 round trips; {proof.check(total, total)}')
    torch, missing = lmcache()
    for base in clients.directories() if torch else ():
        with tempfile.TemporaryDirectory(dir=base, prefix="peerlane-lmcache-") as directory:
            proof.begin()
            total, where = backend(torch, directory)
            print(f"ok    GdsBackend {base}: {CHUNKS} pieces on {where}; "
                  f"{proof.check(total, total)}")
    if missing:
        print(f"skip  GdsBackend: {missing}")
    else:
        import lmcache as package_of_lmcache

        print(f"LMCache {package_of_lmcache.__version__ or ''}")
    print(f'"cufile" of LMCache; {proof.which()}')


main()
