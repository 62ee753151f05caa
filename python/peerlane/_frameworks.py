# SPDX-License-Identifier: MIT
"""How tensors are made for torch and numpy.

A framework is an object with these functions:
  allocate(bytes)       memory for several tensors: an object that holds it, and its address
  tensors(held, parts)  the tensors of parts of it
  whole(..)             a tensor in memory of its own, and its address
  before()              wait for whatever may still use memory that was allocated just now
  finish(tensors)       the tensors on their device, once they are filled
  check(key)            refuse an index that index() cannot take
  index(tensor, key)    a copy of tensor[key]
"""

from __future__ import annotations

import errno
import importlib
from typing import Any, Dict, Iterable, List, Optional, Tuple, Union

from ._context import Context
from ._device import parse
from ._dtypes import BITS, TORCH, numpy_dtype, packed
from ._errors import Error

Shape = Tuple[int, ...]
Part = Tuple[int, str, Shape, str]  # where it begins, type, shape, name


def _strides(shape: Shape) -> Shape:
    strides = [1] * len(shape)
    for i in range(len(shape) - 1, 0, -1):
        strides[i - 1] = strides[i] * max(shape[i], 1)
    return tuple(strides)


class TorchFramework:
    """Tensors of torch, in memory of its own allocator."""

    def __init__(self, context: Context, device: Any) -> None:
        import torch

        self.torch = torch
        if str(device).startswith("sim"):
            raise ValueError('torch has no tensors on the simulator; use framework="dlpack"')
        self.device = self.named(device)
        # What is neither host nor CUDA memory gets its tensors by way of the host.
        self.moves = self.device.type not in ("cpu", "cuda")
        self.place = torch.device("cpu") if self.moves else self.device
        if self.place.type == "cuda" and context.backend != "cuda":
            raise Error(
                errno.ENODEV,
                f"torch tensors on {self.device} need CUDA, and this context was opened with the "
                f'back end {context.backend}; framework="dlpack" loads tensors there',
            )

    def named(self, device: Any) -> Any:
        """The torch.device of a name, number or torch.device."""
        if isinstance(device, int):
            return self.torch.device("cuda", parse(device).gpu or 0)
        try:
            return self.torch.device(device)
        except (RuntimeError, TypeError) as problem:
            raise ValueError(f"no such device: {device!r}; torch says: {problem}") from None

    def dtype(self, dtype: str, name: str) -> Any:
        """The torch dtype of a tensor."""
        found = getattr(self.torch, TORCH.get(dtype, ""), None)
        if found is None:
            raise ValueError(f'tensor "{name}": torch has no type for {dtype}')
        return found

    def before(self) -> None:
        """Memory that the allocator hands out may be in use by work that is queued."""
        if self.place.type == "cuda":
            self.torch.cuda.current_stream(self.place).synchronize()

    def allocate(self, nbytes: int) -> Tuple[Any, int]:
        """Bytes for several tensors."""
        # A multiple of the widest element, so that it can be seen as elements of any type.
        whole = self.torch.empty((nbytes + 15) // 16 * 16, dtype=self.torch.uint8, device=self.place)
        return whole, whole.data_ptr()

    def tensors(self, held: Any, parts: Iterable[Part]) -> List[Any]:
        """Tensors of them. All share one storage, of which each is a part."""
        made = []
        views: Dict[str, Tuple[Any, int]] = {}  # of all bytes as a type, and the bytes of an element
        steps: Dict[Shape, Shape] = {}
        for at, dtype, shape, name in parts:
            view = views.get(dtype)
            if view is None:
                whole = held.view(self.dtype(dtype, name))
                view = views[dtype] = (whole.as_strided, max(BITS[dtype] // 8, 1))
            if BITS[dtype] < 8:
                shape = packed(dtype, shape, name)
            stride = steps.get(shape)
            if stride is None:
                stride = steps[shape] = _strides(shape)
            made.append(view[0](shape, stride, at // view[1]))
        return made

    def whole(self, dtype: str, shape: Shape, name: str) -> Tuple[Any, int]:
        """A tensor of its own."""
        kind = self.dtype(dtype, name)
        made = self.torch.empty(packed(dtype, shape, name), dtype=kind, device=self.place)
        return made, made.data_ptr()

    def finish(self, tensors: List[Any]) -> List[Any]:
        """The tensors on the device that was asked for."""
        return [t.to(self.device) for t in tensors] if self.moves else tensors

    @staticmethod
    def check(key: Tuple[Any, ...]) -> None:
        """Refuse an index before anything is read for it."""
        if any(isinstance(k, slice) and (k.step or 1) < 0 for k in key):
            raise ValueError("torch has no slices with a negative step")

    def index(self, tensor: Any, key: Tuple[Any, ...]) -> Any:
        """tensor[key], in memory of its own."""
        return tensor[key].clone(memory_format=self.torch.contiguous_format)


class NumpyFramework:
    """Arrays of numpy."""

    def __init__(self, context: Context, device: Any) -> None:
        import numpy

        self.numpy = numpy
        if parse(device).gpu is not None:
            raise ValueError(f"numpy has no arrays on {device}; use torch, or framework=\"dlpack\"")

    def before(self) -> None:
        """Nothing is queued on host memory."""

    def allocate(self, nbytes: int) -> Tuple[Any, int]:
        """Bytes for several arrays."""
        held = self.numpy.empty(nbytes, dtype="u1")
        return held, held.ctypes.data

    def tensors(self, held: Any, parts: Iterable[Part]) -> List[Any]:
        """Arrays of them."""
        made = []
        kinds: Dict[str, Any] = {}
        for at, dtype, shape, name in parts:
            kind = kinds.get(dtype)
            if kind is None:
                kind = kinds[dtype] = numpy_dtype(self.numpy, dtype)
            shape = packed(dtype, shape, name)
            if 0 in shape:
                made.append(self.numpy.empty(shape, dtype=kind))
            else:
                made.append(self.numpy.ndarray(shape, kind, held, at))
        return made

    def whole(self, dtype: str, shape: Shape, name: str) -> Tuple[Any, int]:
        """An array of its own."""
        kind = numpy_dtype(self.numpy, dtype)
        made = self.numpy.empty(packed(dtype, shape, name), dtype=kind)
        return made, made.ctypes.data

    @staticmethod
    def finish(tensors: List[Any]) -> List[Any]:
        """They are where they were asked for."""
        return tensors

    @staticmethod
    def check(key: Tuple[Any, ...]) -> None:
        """numpy takes every index."""

    def index(self, tensor: Any, key: Tuple[Any, ...]) -> Any:
        """tensor[key], in memory of its own."""
        return self.numpy.array(tensor[key], order="C")


Framework = Union[TorchFramework, NumpyFramework]


def choose(framework: Optional[str], device: Any) -> str:
    """The framework by its names in safetensors; None: torch if it is there, else numpy, which
    has host memory only, else tensors of our own."""
    if framework in ("pt", "torch", "pytorch"):
        return "pt"
    if framework in ("np", "numpy"):
        return "np"
    if framework == "dlpack":
        return "dlpack"
    if framework is not None:
        raise ValueError(f'framework {framework!r} is not known; there are "pt", "np" and "dlpack"')
    if str(device).startswith("sim"):
        return "dlpack"  # no framework has tensors on the simulator
    for name, module in (("pt", "torch"), ("np", "numpy")):
        if name == "np" and parse(device).gpu is not None:
            continue
        try:
            importlib.import_module(module)
            return name
        except ImportError:
            pass
    return "dlpack"
