# SPDX-License-Identifier: MIT
"""Tensors for programs without a framework: memory of the library, to be passed on by DLPack."""

from __future__ import annotations

from ctypes import byref, c_void_p
from functools import partial
from typing import Any, Callable, Dict, Optional, Tuple

from . import _dlpack
from ._buffer import Buffer
from ._context import Context, context as default_context
from ._dtypes import TYPESTR
from ._lib import check, lib

class Memory:
    """Memory of the library, freed by @free with its last tensor."""

    def __init__(self, context: Context, pointer: Optional[int], free: Callable[[int], Any]) -> None:
        self._context = context
        self._pointer = pointer
        self._free = free
        context.hold_memory()

    def __del__(self) -> None:
        pointer, self._pointer = self._pointer, None
        # What a child inherits belongs to its parent.
        if self._context.mine:
            if pointer:
                self._free(pointer)
            self._context.drop_memory()


class Tensor:
    """Contiguous memory with a shape and a type, on the host ("cpu") or on a GPU ("cuda:0").

    torch.from_dlpack(), cupy.from_dlpack() and numpy.from_dlpack() take it without a copy; so do
    File.read_into() and save_file().
    """

    __slots__ = ("dtype", "shape", "nbytes", "device", "address", "_memory", "_context")

    def __init__(
        self,
        context: Context,
        memory: Any,
        address: int,
        dtype: str,
        shape: Tuple[int, ...],
        nbytes: int,
        device: str,
    ) -> None:
        self._context = context
        self._memory = memory
        self.address = address
        self.dtype = dtype
        self.shape = shape
        self.nbytes = nbytes
        self.device = device

    def __repr__(self) -> str:
        return f"<peerlane.Tensor {self.dtype} {list(self.shape)} on {self.device}>"

    @property
    def gpu(self) -> int:
        """Ordinal of the GPU, -1 for host memory."""
        return int(self.device.partition(":")[2] or -1)

    def tobytes(self) -> bytes:
        """A copy of the data."""
        data = bytearray(self.nbytes)
        if self.nbytes:
            self._context.copy(data, Buffer.at(self.address, self.nbytes, keep=self))
        return bytes(data)

    def __dlpack_device__(self) -> Tuple[int, int]:
        if self.device == "cpu":
            return (_dlpack.CPU, 0)
        kind = _dlpack.CUDA if self._context.backend == "cuda" else _dlpack.EXTENSION
        return (kind, self.gpu)

    def __dlpack__(self, *, stream: Any = None, **_: Any) -> Any:
        # The data is in place, and nothing is queued on it: no stream has to wait.
        return _dlpack.make(
            (self._memory, self), self.address, self.__dlpack_device__(), self.dtype, self.shape
        )

    def _interface(self, on_host: bool) -> Dict[str, Any]:
        if (self.device == "cpu") != on_host or self.dtype not in TYPESTR:
            raise AttributeError("there is no such interface to this memory or type")
        return {
            "shape": self.shape,
            "typestr": TYPESTR[self.dtype],
            "data": (self.address, False),
            "strides": None,
            "version": 3,
        }

    @property
    def __array_interface__(self) -> Dict[str, Any]:
        return self._interface(True)

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        if self._context.backend != "cuda":
            raise AttributeError("a simulated GPU is none that CUDA knows")
        return self._interface(False)


def empty(nbytes: int, gpu: int = 0, *, context: Optional[Context] = None) -> Tensor:
    """Bytes of GPU memory, for programs without a framework that has some."""
    owner = context or default_context()
    out = c_void_p()
    with owner.handle as ctx:
        check(lib.peerlane_gpu_alloc(ctx, gpu, nbytes, byref(out)))
        memory = Memory(owner, out.value, partial(lib.peerlane_gpu_free, ctx))
    return Tensor(owner, memory, out.value or 0, "U8", (nbytes,), nbytes, f"cuda:{gpu}")
