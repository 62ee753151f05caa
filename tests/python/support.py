# SPDX-License-Identifier: MIT
"""What the tests of the Python package share: a second, plain opinion on safetensors files."""

import json
import os
import shutil
import struct
import sys
import tempfile
import unittest

# The tests are about what happens without torch, even where it is installed; test_torch.py has one of
# its own.
sys.modules.setdefault("torch", None)

# Bits of an element, as the format's own description has them.
BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8,
    "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip


def count(shape):
    n = 1
    for length in shape:
        n *= length
    return n


def pattern(nbytes, seed):
    """Bytes that are the same for the same seed, and no repetition of a short row."""
    out = bytearray()
    state = seed * 2654435761 + 12345
    while len(out) < nbytes:
        state = (state * 6364136223846793005 + 1442695040888963407) & 0xFFFFFFFFFFFFFFFF
        out += struct.pack("<Q", state ^ (state >> 29))
    return bytes(out[:nbytes])


def build(tensors, metadata=None, pad=0):
    """A safetensors file of (name, dtype, shape, data) tuples, in that order."""
    header, at = {}, 0
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, dtype, shape, data in tensors:
        assert len(data) == (count(shape) * BITS[dtype] + 7) // 8
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode() + b" " * pad
    return struct.pack("<Q", len(text)) + text + b"".join(t[3] for t in tensors)


def write_model(path, tensors, metadata=None, pad=0):
    with open(path, "wb") as f:
        f.write(build(tensors, metadata, pad))


def parse(path):
    """{name: (dtype, shape, data)} and the metadata of a file, the plain way."""
    with open(path, "rb") as f:
        raw = f.read()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    metadata = header.pop("__metadata__", None)
    tensors = {}
    for name, t in header.items():
        begin, end = t["data_offsets"]
        data = raw[8 + length + begin : 8 + length + end]
        tensors[name] = (t["dtype"], tuple(t["shape"]), data)
    return tensors, metadata


class Case(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="peerlane-python-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.dir, name)

    def file(self, name, data=b""):
        with open(self.path(name), "wb") as f:
            f.write(data)
        return self.path(name)

    def content(self, name):
        with open(self.path(name), "rb") as f:
            return f.read()
