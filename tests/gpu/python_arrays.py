#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The Python package with the GPU arrays of CuPy, Numba and JAX, as far as they are installed.

    python_arrays.py [--dir DIRECTORY]

Each reads and writes files: whole, in parts, unaligned, many at once and in the order of a stream, and takes a
model by DLPack. Arrays of JAX do not change once they are made: they are written to files, and refused for reads. Prints PASS, FAIL or SKIP for each; exits 1 if one failed, 77 if none could be tried.
$PEERLANE_BUILD names the build directory.
"""

import argparse
import os
import sys
import tempfile
import traceback

import package  # noqa: F401

try:
    import numpy as np
except ImportError as problem:
    print(f"numpy is needed: {problem}")
    sys.exit(77)

import peerlane  # noqa: E402
from peerlane.safetensors import load_file, save_file  # noqa: E402

NBYTES = (9 << 20) + 1234


class Skipped(Exception):
    """There is no such thing."""


class WithCupy:
    """CuPy"""

    fixed = False

    def __init__(self):
        import cupy

        self.cupy = cupy
        cupy.zeros(1)

    def array(self, data):
        return self.cupy.asarray(data)

    def host(self, array):
        return self.cupy.asnumpy(array)

    def stream(self):
        stream = self.cupy.cuda.Stream(non_blocking=True)
        return stream.ptr, stream.synchronize

    def from_dlpack(self, tensor):
        return self.cupy.from_dlpack(tensor)


class WithNumba:
    """Numba"""

    fixed = False

    def __init__(self):
        from numba import cuda

        self.cuda = cuda
        cuda.device_array(1, np.uint8)

    def array(self, data):
        return self.cuda.to_device(data)

    def host(self, array):
        return array.copy_to_host()

    def stream(self):
        stream = self.cuda.stream()
        return int(getattr(stream.handle, "value", stream.handle) or 0), stream.synchronize

    from_dlpack = None


class WithJax:
    """JAX"""

    fixed = True  # its arrays

    def __init__(self):
        import jax

        self.jax = jax
        self.device = jax.devices("gpu")[0]

    def array(self, data):
        return self.jax.device_put(data, self.device)

    def host(self, array):
        return np.asarray(array)

    stream = None

    def from_dlpack(self, tensor):
        return self.jax.dlpack.from_dlpack(tensor)


def zeros(kind, nbytes):
    return kind.array(np.zeros(nbytes, np.uint8))


def read(kind, path, data):
    with peerlane.open(path) as f:
        array = zeros(kind, NBYTES)
        if kind.fixed:
            try:
                f.read_into(array)
            except ValueError as problem:
                assert "read-only" in str(problem), problem
                assert not kind.host(array).any(), "changed"
                return
            raise AssertionError("read into what does not change")
        assert f.read_into(array) == NBYTES
        assert (kind.host(array) == data).all(), "whole"
        array = zeros(kind, NBYTES)
        assert f.read_into(array, 4567, size=70001, buffer_offset=33) == 70001
        found = kind.host(array)
        assert (found[33 : 33 + 70001] == data[4567 : 4567 + 70001]).all(), "a part"
        assert not found[:33].any() and not found[33 + 70001 :].any(), "beside it"


def write(kind, path, data):
    array = kind.array(data)
    with peerlane.open(path + ".out", "w+") as out:
        assert out.write_from(array) == NBYTES
        assert out.write_from(array, NBYTES + 17, size=4321, buffer_offset=99) == 4321
    written = np.fromfile(path + ".out", np.uint8)
    assert len(written) == NBYTES + 17 + 4321 and (written[:NBYTES] == data).all(), "written"
    assert (written[NBYTES + 17 :] == data[99 : 99 + 4321]).all(), "a part written"


def many(kind, path, data):
    if kind.fixed:
        raise Skipped("its arrays do not change")
    with peerlane.open(path) as f:
        arrays = [zeros(kind, 5000) for _ in range(40)]
        peerlane.read_many((f, array, i * 6001) for i, array in enumerate(arrays))
        for i, array in enumerate(arrays):
            assert (kind.host(array) == data[i * 6001 : i * 6001 + 5000]).all(), f"number {i}"


def in_order(kind, path, data):
    if kind.stream is None:
        raise Skipped("it has no streams of the program's")
    stream, settle = kind.stream()
    with peerlane.open(path) as f:
        array = zeros(kind, NBYTES)
        kind.host(array)  # it is made, whatever its stream
        requests = [
            f.read_into_async(array, at, size=min(1 << 20, NBYTES - at), buffer_offset=at, stream=stream)
            for at in range(0, NBYTES, 1 << 20)
        ]
        settle()
        assert sum(r.result() for r in requests) == NBYTES
        assert (kind.host(array) == data).all(), "on a stream"


def model(kind, path, data):
    if kind.from_dlpack is None:
        raise Skipped("it does not take DLPack")
    weights = {"a": data[:999].copy(), "b": np.arange(12, dtype=np.float32).reshape(3, 4)}
    save_file(weights, path + ".safetensors")
    loaded = load_file(path + ".safetensors", device="cuda:0", framework="dlpack")
    for name, weight in weights.items():
        assert (kind.host(kind.from_dlpack(loaded[name])) == weight).all(), name


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", default="/var/tmp")
    args = parser.parse_args()
    data = np.random.default_rng(1).integers(0, 256, NBYTES, np.uint8)
    tried = failed = 0
    for kind in (WithCupy, WithNumba, WithJax):
        try:
            with_arrays = kind()
        except Exception as problem:
            print(f"SKIP {kind.__doc__}: {(str(problem) or repr(problem)).splitlines()[0]}")
            continue
        with tempfile.TemporaryDirectory(dir=args.dir, prefix="peerlane-python-") as directory:
            path = os.path.join(directory, "f")
            data.tofile(path)
            for case in (read, write, many, in_order, model):
                tried += 1
                try:
                    case(with_arrays, path, data)
                    print(f"PASS {kind.__doc__} {case.__name__}", flush=True)
                except Skipped as reason:
                    print(f"SKIP {kind.__doc__} {case.__name__}: {reason}", flush=True)
                    tried -= 1
                except Exception:
                    traceback.print_exc()
                    print(f"FAIL {kind.__doc__} {case.__name__}", flush=True)
                    failed += 1
    print(f"{tried - failed} passed, {failed} failed, back end {peerlane.context().backend}")
    return 1 if failed else 0 if tried else 77


if __name__ == "__main__":
    sys.exit(main())
