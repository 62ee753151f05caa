# SPDX-License-Identifier: MIT
"""DLPack: the capsules that frameworks pass tensors in, read and made by ctypes."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_int, c_int32, c_int64, c_uint8, c_uint16, c_uint32
from ctypes import c_uint64, c_void_p
from typing import Any, Dict, NamedTuple, Optional, Tuple

from ._lib import lib

CPU = 1
CUDA = 2
CUDA_HOST = 3
EXTENSION = 12  # the simulated GPU
CUDA_MANAGED = 13

READ_ONLY = 0x1
IS_COPIED = 0x2

_PLAIN = b"dltensor"
_VERSIONED = b"dltensor_versioned"

# Type of elements: code, bits.
DTYPES: Dict[str, Tuple[int, int]] = {
    "BOOL": (6, 8),
    "F4": (17, 4),
    "F6_E2M3": (15, 6),
    "F6_E3M2": (16, 6),
    "U8": (1, 8),
    "I8": (0, 8),
    "F8_E5M2": (12, 8),
    "F8_E4M3": (10, 8),
    "F8_E8M0": (14, 8),
    "F8_E4M3FNUZ": (11, 8),
    "F8_E5M2FNUZ": (13, 8),
    "I16": (0, 16),
    "U16": (1, 16),
    "F16": (2, 16),
    "BF16": (4, 16),
    "I32": (0, 32),
    "U32": (1, 32),
    "F32": (2, 32),
    "C64": (5, 64),
    "F64": (2, 64),
    "I64": (0, 64),
    "U64": (1, 64),
}
NAMES = {value: name for name, value in DTYPES.items()}


class _Tensor(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


class _Managed(Structure):
    _fields_ = [("tensor", _Tensor), ("manager_ctx", c_void_p), ("deleter", c_void_p)]


class _ManagedVersioned(Structure):
    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("manager_ctx", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", _Tensor),
    ]


_python = ctypes.pythonapi
_is_valid = ctypes.PYFUNCTYPE(c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _python)
)
_pointer = ctypes.PYFUNCTYPE(c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _python)
)
_new = ctypes.PYFUNCTYPE(ctypes.py_object, c_void_p, ctypes.c_char_p, c_void_p)(
    ("PyCapsule_New", _python)
)
_incref = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_IncRef", _python))
_decref = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_DecRef", _python))


class View(NamedTuple):
    """What a capsule says. It holds the memory only as long as the capsule lives."""

    address: int
    device: Tuple[int, int]
    shape: Tuple[int, ...]
    strides: Optional[Tuple[int, ...]]  # in elements; None: contiguous
    code: int
    bits: int  # of an element, all lanes
    readonly: bool


def view(capsule: Any) -> View:
    """Read a capsule, without taking the tensor out of it."""
    readonly = False
    if _is_valid(capsule, _VERSIONED):
        versioned = _ManagedVersioned.from_address(_pointer(capsule, _VERSIONED))
        if versioned.major != 1:
            raise ValueError(f"DLPack version {versioned.major} is not known here")
        readonly = bool(versioned.flags & READ_ONLY)
        tensor = versioned.tensor
    elif _is_valid(capsule, _PLAIN):
        tensor = _Managed.from_address(_pointer(capsule, _PLAIN)).tensor
    else:
        raise ValueError("not a DLPack capsule, or one that was used already")
    n = tensor.ndim
    return View(
        (tensor.data or 0) + tensor.byte_offset,
        (tensor.device_type, tensor.device_id),
        tuple(tensor.shape[:n]) if n else (),
        tuple(tensor.strides[:n]) if n and tensor.strides else None,
        tensor.code,
        tensor.bits * tensor.lanes,
        readonly,
    )


def request(obj: Any, stream: Optional[int]) -> Any:
    """Ask an object for its capsule, of the newest version it knows."""
    try:
        return obj.__dlpack__(stream=stream, max_version=(1, 0))
    except TypeError:
        return obj.__dlpack__(stream=stream)


def _address(function: Any) -> Optional[int]:
    return ctypes.cast(function, c_void_p).value


# Functions of the library, not of Python: a consumer may drop a capsule while an exception is
# pending, and call a deleter without the GIL.
_DELETE = _address(lib.peerlane_dlpack_delete)
_DELETE_VERSIONED = _address(lib.peerlane_dlpack_delete_versioned)
_DESTROY = _address(lib.peerlane_dlpack_destroy)


def make(
    owner: Any,
    address: int,
    device: Tuple[int, int],
    dtype: str,
    shape: Tuple[int, ...],
    *,
    versioned: bool = False,
    copied: bool = False,
) -> Any:
    """A capsule for contiguous memory; @owner is kept until the consumer has done with it."""
    code, bits = DTYPES[dtype]
    dims = (c_int64 * max(len(shape), 1))(*shape)
    strides = (c_int64 * max(len(shape), 1))()
    step = 1
    for i in range(len(shape) - 1, -1, -1):
        strides[i] = step
        step *= max(shape[i], 1)
    tensor = _Tensor(
        data=address,
        device_type=device[0],
        device_id=device[1],
        ndim=len(shape),
        code=code,
        bits=bits,
        lanes=1,
        shape=ctypes.cast(dims, POINTER(c_int64)),
        strides=ctypes.cast(strides, POINTER(c_int64)),
    )
    managed: Any
    if versioned:
        flags = IS_COPIED if copied else 0
        managed = _ManagedVersioned(
            major=1, minor=0, deleter=_DELETE_VERSIONED, flags=flags, tensor=tensor
        )
    else:
        managed = _Managed(tensor=tensor, deleter=_DELETE)
    kept = (managed, dims, strides, owner)
    managed.manager_ctx = id(kept)
    _incref(kept)  # the deleter drops it
    try:
        return _new(ctypes.addressof(managed), _VERSIONED if versioned else _PLAIN, _DESTROY)
    except BaseException:
        _decref(kept)
        raise
