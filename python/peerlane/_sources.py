# SPDX-License-Identifier: MIT
"""Tensors to save, of whatever framework: their types, shapes and memory."""

from __future__ import annotations

import sys
from typing import Any, Dict, List, NamedTuple, Tuple

from . import _dlpack
from ._buffer import Buffer, require_contiguous
from ._dtypes import BITS, ML_DTYPES, TORCH, TYPESTR, unpacked
from ._tensor import Tensor


class Source(NamedTuple):
    """A tensor to save, and what keeps its memory."""

    dtype: str
    shape: Tuple[int, ...]
    buffer: Buffer


_TORCH_NAMES = {name: dtype for dtype, name in TORCH.items()}
_TYPESTR_NAMES = {typestr: dtype for dtype, typestr in TYPESTR.items()}
_ML_NAMES = {name: dtype for dtype, name in ML_DTYPES.items()}


def _torch_source(name: str, tensor: Any) -> Source:
    dtype = _TORCH_NAMES.get(str(tensor.dtype).rpartition(".")[2])
    if dtype is None:
        raise ValueError(f'tensor "{name}": safetensors has no type for {tensor.dtype}')
    if tensor.device.type not in ("cpu", "cuda", "meta"):
        tensor = tensor.cpu()
    return Source(dtype, unpacked(dtype, tuple(tensor.shape)), Buffer(tensor))


def _numpy_source(numpy: Any, name: str, array: Any) -> Source:
    kind = array.dtype
    if kind.byteorder == ">":
        array = array.astype(kind.newbyteorder("<"))
        kind = array.dtype
    dtype = _TYPESTR_NAMES.get(kind.str) or _ML_NAMES.get(kind.name)
    if dtype is None and kind.names and len(kind.names) == 1 and kind.names[0] in BITS:
        dtype = kind.names[0]  # the raw bits that NumpyFramework gives
    if dtype is None:
        raise ValueError(f'tensor "{name}": safetensors has no type for {kind}')
    # Not ascontiguousarray(): that turns a single value into a row.
    array = numpy.asarray(array, order="C")
    return Source(dtype, unpacked(dtype, array.shape), Buffer(array))


def _interface_source(name: str, tensor: Any, face: Dict[str, Any]) -> Source:
    dtype = _TYPESTR_NAMES.get(face["typestr"])
    if dtype is None:
        raise ValueError(f'tensor "{name}": safetensors has no type for {face["typestr"]}')
    return Source(dtype, tuple(face["shape"]), Buffer(tensor))


def _dlpack_source(name: str, tensor: Any) -> Source:
    on_stream = int(tensor.__dlpack_device__()[0]) in (_dlpack.CUDA, _dlpack.CUDA_MANAGED)
    found = _dlpack.view(_dlpack.request(tensor, 1 if on_stream else None))
    dtype = _dlpack.NAMES.get((found.code, found.bits))
    if dtype is None:
        raise ValueError(
            f'tensor "{name}": safetensors has no type for DLPack type {found.code} of '
            f"{found.bits} bits"
        )
    require_contiguous(found.shape, found.strides, 1)
    return Source(dtype, found.shape, Buffer(tensor))


def source(name: str, tensor: Any) -> Source:
    """What is saved for a tensor of whatever framework."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    try:
        if isinstance(tensor, Tensor):
            buffer = Buffer.at(tensor.address, tensor.nbytes, keep=tensor)
            return Source(tensor.dtype, tensor.shape, buffer)
        if torch is not None and isinstance(tensor, getattr(torch, "Tensor", ())):
            return _torch_source(name, tensor)
        if numpy is not None and isinstance(tensor, (numpy.ndarray, numpy.generic)):
            return _numpy_source(numpy, name, numpy.asanyarray(tensor))
        for attribute in ("__cuda_array_interface__", "__array_interface__"):
            face = getattr(tensor, attribute, None)
            if face is not None and face["typestr"] in _TYPESTR_NAMES:
                return _interface_source(name, tensor, face)
        if hasattr(tensor, "__dlpack__"):
            return _dlpack_source(name, tensor)
    except ValueError as problem:
        if f'tensor "{name}"' in str(problem):
            raise
        raise ValueError(f'tensor "{name}": {problem}') from None
    raise TypeError(f'tensor "{name}" is a {type(tensor).__name__}, which is no tensor')


def overlapping(sources: Dict[str, Source]) -> List[str]:
    """Names of two tensors that share memory, or nothing."""
    ranges = sorted(
        (s.buffer.address, s.buffer.address + s.buffer.nbytes, name)
        for name, s in sources.items()
        if s.buffer.nbytes
    )
    end, last = 0, ""
    for start, stop, name in ranges:
        if start < end:
            return [last, name]
        if stop > end:
            end, last = stop, name
    return []
