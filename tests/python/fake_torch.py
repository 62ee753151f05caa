# SPDX-License-Identifier: MIT
"""As much of torch as the package uses, over numpy, with a "cuda" device that is host memory.

It counts how often streams were waited for.
"""

import types

import numpy as np

strided = "strided"
contiguous_format = "contiguous"


class dtype:
    def __init__(self, name, np_name):
        self.name = name
        self.numpy = np.dtype(np_name)

    def __repr__(self):
        return f"torch.{self.name}"


_TYPES = {
    "bool": "?", "uint8": "u1", "int8": "i1", "int16": "<i2", "uint16": "<u2", "float16": "<f2",
    "bfloat16": "<u2", "int32": "<i4", "float32": "<f4", "complex64": "<c8", "float64": "<f8",
    "int64": "<i8", "float8_e4m3fn": "u1", "float4_e2m1fn_x2": "u1", "complex128": "<c16",
}  # fmt: skip
for _name, _np in _TYPES.items():
    globals()[_name] = dtype(_name, _np)


class device:
    def __init__(self, name, index=None):
        name, _, number = str(name).partition(":")
        if name not in ("cpu", "cuda", "mps", "meta"):
            raise RuntimeError(f"Expected one of cpu, cuda, mps, meta: {name}")
        self.type = name
        self.index = int(number) if number else index

    def __str__(self):
        return self.type if self.index is None else f"{self.type}:{self.index}"


class Tensor:
    def __init__(self, array, kind, where="cpu"):
        self.array = array
        self.dtype = kind
        self.device = device(where)
        self.layout = strided

    shape = property(lambda self: self.array.shape)

    def stride(self):
        return tuple(s // self.array.itemsize for s in self.array.strides)

    def is_conj(self):
        return self.layout == "strided" and getattr(self, "conj", False)

    def is_neg(self):
        return False

    def data_ptr(self):
        return self.array.ctypes.data

    def numel(self):
        return self.array.size

    def element_size(self):
        return self.array.itemsize

    def view(self, kind):
        return Tensor(self.array.view(kind.numpy), kind, self.device)

    def as_strided(self, shape, strides, offset):
        size = self.array.itemsize
        room = self.array[offset:]
        steps = [s * size for s in strides]
        return Tensor(np.lib.stride_tricks.as_strided(room, shape, steps), self.dtype, self.device)

    def __getitem__(self, key):
        return Tensor(np.asarray(self.array[key]), self.dtype, self.device)

    def clone(self, memory_format=None):
        assert memory_format == contiguous_format
        return Tensor(self.array.copy(order="C"), self.dtype, self.device)

    def contiguous(self):
        return Tensor(np.ascontiguousarray(self.array), self.dtype, self.device)

    def copy_(self, other):
        self.array[...] = other.array

    def to(self, where):
        moved = Tensor(self.array.copy(), self.dtype, where)
        moved.moved = True
        return moved

    def cpu(self):
        return Tensor(self.array, self.dtype)


def empty(shape, dtype, device):
    return Tensor(np.empty(shape, dtype.numpy), dtype, device)


waits = []


class _Stream:
    cuda_stream = 0x77

    def __init__(self, where):
        self.where = where

    def __eq__(self, other):
        return str(self.where) == str(other.where)

    def __hash__(self):
        return hash(str(self.where))

    def synchronize(self):
        waits.append(str(self.where))


cuda = types.SimpleNamespace(current_stream=_Stream)
