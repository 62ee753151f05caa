# SPDX-License-Identifier: MIT
"""Memory of other people's objects: where it is, how long, and whether it may be written."""

from __future__ import annotations

import ctypes
import math
import re
import sys
from ctypes import c_int, c_ssize_t, c_void_p
from typing import Any, Dict, Optional, Sequence, Tuple

from . import _dlpack
from ._args import number


class Buffer:
    """The memory behind an object: GPU or host, contiguous. It keeps the object.

    obj may be a torch tensor, or have __cuda_array_interface__ (CuPy, Numba, JAX),
    __array_interface__ (NumPy), __dlpack__ (all of them), or the buffer protocol (bytes,
    bytearray, memoryview, array, mmap).
    """

    __slots__ = ("address", "nbytes", "readonly", "gpu", "stream", "waiter", "_keep")

    def __init__(self, obj: Any) -> None:
        self.address = 0
        self.nbytes = 0
        self.readonly = False
        self.gpu = False  # whether it may be GPU memory
        # A stream that may have work on it that is not done, -1 for none; and the framework's object
        # for it, which knows its device.
        self.stream = -1
        self.waiter: Any = None
        self._keep: Any = obj
        if isinstance(obj, Buffer):
            for name in Buffer.__slots__:
                setattr(self, name, getattr(obj, name))
            return
        for way in (_from_own, _from_torch, _from_cuda, _from_array, _from_dlpack, _from_memory):
            if way(self, obj):
                return
        raise TypeError(
            f"{type(obj).__name__} has no memory that can be used: it needs __dlpack__, "
            "__cuda_array_interface__, __array_interface__ or the buffer protocol"
        )

    @classmethod
    def at(cls, address: int, nbytes: int, *, keep: Any = None) -> "Buffer":
        """Memory by its address, GPU or host; @keep is held as long as the buffer."""
        self = cls.__new__(cls)
        self.address, self.nbytes, self.readonly = address, nbytes, False
        self.gpu, self.stream, self.waiter, self._keep = True, -1, None, keep
        return self

    def part(self, offset: int, size: Optional[int], *, write: bool) -> Tuple[int, int]:
        """Address and length of a part, checked; @write: it will be written to."""
        if write and self.readonly:
            raise ValueError("the memory is read-only; read into memory that can be written")
        offset = number("buffer_offset", offset)
        size = max(self.nbytes - offset, 0) if size is None else number("size", size)
        if offset + size > self.nbytes:
            raise ValueError(
                f"buffer_offset {offset} and size {size} go past the buffer, which has "
                f"{self.nbytes} bytes"
            )
        return self.address + offset, size


def _count(shape: Sequence[int]) -> int:
    return math.prod(shape)


def require_contiguous(shape: Sequence[int], strides: Optional[Sequence[int]], unit: int) -> None:
    """Refuse memory with gaps or in another order than C's; @strides in the unit of @unit."""
    if strides is None or 0 in shape:
        return
    expected = unit
    for length, stride in zip(reversed(shape), reversed(strides)):
        if length != 1 and stride != expected:
            raise ValueError(
                f"the memory is not contiguous: shape {tuple(shape)}, strides {tuple(strides)}; "
                "make a contiguous copy first"
            )
        expected *= length


def _from_own(self: Buffer, obj: Any) -> bool:
    place = getattr(obj, "_peerlane_memory", None)
    if place is None:
        return False
    self.address, self.nbytes, self.gpu = place
    return True


def _from_torch(self: Buffer, obj: Any) -> bool:
    torch: Any = sys.modules.get("torch")
    kind = getattr(torch, "Tensor", None)
    if kind is None or not isinstance(obj, kind):
        return False
    if obj.layout != torch.strided or obj.device.type == "meta":
        raise ValueError(f"a torch tensor of layout {obj.layout} on {obj.device} has no plain memory")
    if obj.device.type not in ("cpu", "cuda"):
        raise ValueError(f"memory of device {obj.device} cannot be used")
    if obj.is_conj() or obj.is_neg():
        raise ValueError(
            "the memory is to be conjugated or negated yet: call resolve_conj() or resolve_neg() first"
        )
    require_contiguous(obj.shape, obj.stride(), 1)
    self.address = obj.data_ptr()
    self.nbytes = obj.numel() * obj.element_size()
    if obj.device.type == "cuda":
        self.gpu = True
        self.waiter = torch.cuda.current_stream(obj.device)
        self.stream = self.waiter.cuda_stream
    return True


def _from_interface(self: Buffer, face: Dict[str, Any]) -> bool:
    kind = re.match(r"[<>|=]([a-zA-Z])(\d+)", face["typestr"])
    if not kind or kind.group(1) == "O":
        raise TypeError(f"elements of type {face['typestr']} have no plain memory")
    size = int(kind.group(2)) * (4 if kind.group(1) == "U" else 1)
    data = face.get("data")
    if not isinstance(data, tuple):
        return False
    if face.get("mask") is not None:
        raise ValueError("masked arrays cannot be used")
    require_contiguous(face["shape"], face.get("strides"), size)
    self.address = data[0] or 0
    self.readonly = bool(data[1])
    self.nbytes = _count(face["shape"]) * size
    return True


def _from_cuda(self: Buffer, obj: Any) -> bool:
    face = getattr(obj, "__cuda_array_interface__", None)
    if face is None or not _from_interface(self, face):
        return False
    self.gpu = True
    # Version 3: None says that nothing is to be waited for; 0 is not allowed.
    stream = face.get("stream")
    self.stream = -1 if stream is None else stream
    # JAX queues work on streams of its own, and names none.
    ready = getattr(obj, "block_until_ready", None)
    if ready is not None:
        ready()
    return True


def _from_array(self: Buffer, obj: Any) -> bool:
    face = getattr(obj, "__array_interface__", None)
    return face is not None and _from_interface(self, face)


def _from_dlpack(self: Buffer, obj: Any) -> bool:
    if not hasattr(obj, "__dlpack__") or not hasattr(obj, "__dlpack_device__"):
        return False
    device = int(obj.__dlpack_device__()[0])
    known = (
        _dlpack.CPU,
        _dlpack.CUDA,
        _dlpack.CUDA_HOST,
        _dlpack.CUDA_MANAGED,
        _dlpack.EXTENSION,
    )
    if device not in known:
        raise ValueError(f"memory of DLPack device type {device} cannot be used")
    on_stream = device in (_dlpack.CUDA, _dlpack.CUDA_MANAGED)
    # 1 is the default stream: the object lets it wait for the work that is queued, and we for it.
    capsule = _dlpack.request(obj, 1 if on_stream else None)
    found = _dlpack.view(capsule)
    require_contiguous(found.shape, found.strides, 1)
    self.address = found.address
    self.nbytes = (_count(found.shape) * found.bits + 7) // 8
    self.readonly = found.readonly
    self.gpu = device != _dlpack.CPU
    self.stream = 1 if on_stream else -1
    self._keep = (obj, capsule)
    return True


class _PyBuffer(ctypes.Structure):
    _fields_ = [
        ("buf", c_void_p),
        ("obj", c_void_p),
        ("len", c_ssize_t),
        ("itemsize", c_ssize_t),
        ("readonly", c_int),
        ("ndim", c_int),
        ("format", c_void_p),
        ("shape", c_void_p),
        ("strides", c_void_p),
        ("suboffsets", c_void_p),
        ("internal", c_void_p),
    ]


_C_CONTIGUOUS = 0x38
_get_buffer = ctypes.PYFUNCTYPE(c_int, ctypes.py_object, c_void_p, c_int)(
    ("PyObject_GetBuffer", ctypes.pythonapi)
)
_release_buffer = ctypes.PYFUNCTYPE(None, c_void_p)(("PyBuffer_Release", ctypes.pythonapi))


class _Export:
    """Holds an export of the buffer protocol: as long as it lives the object keeps its memory."""

    def __init__(self, obj: Any) -> None:
        self.view = _PyBuffer()
        _get_buffer(obj, ctypes.addressof(self.view), _C_CONTIGUOUS)
        self._release = _release_buffer

    def __del__(self) -> None:
        if self.view.obj:
            self._release(ctypes.addressof(self.view))


def _from_memory(self: Buffer, obj: Any) -> bool:
    try:
        memoryview(obj).release()
    except TypeError:
        return False
    try:
        export = _Export(obj)
    except BufferError as problem:
        raise ValueError(f"the memory is not contiguous: {problem}") from None
    self.address = export.view.buf or 0
    self.nbytes = export.view.len
    self.readonly = bool(export.view.readonly)
    self._keep = export
    return True
