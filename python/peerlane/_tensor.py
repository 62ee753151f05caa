# SPDX-License-Identifier: MIT
"""Tensors for programs without a framework: memory of the library, to be passed on by DLPack."""

from __future__ import annotations

from ctypes import byref, c_void_p
from functools import partial
from typing import Any, Callable, Dict, Optional, Tuple

from . import _dlpack
from ._args import number
from ._buffer import Buffer
from ._context import Context, use
from ._device import context_for, parse
from ._dtypes import TYPESTR, numpy_dtype, packed
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


class _Bytes:
    """Host memory of a tensor as numpy sees it: bytes, which keep the tensor."""

    def __init__(self, tensor: "Tensor") -> None:
        self.tensor = tensor
        self.__array_interface__ = {
            "shape": (tensor.nbytes,),
            "typestr": "|u1",
            "data": (tensor.address, False),
            "version": 3,
        }


class Tensor:
    """Contiguous memory with a shape and a type, on the host ("cpu") or a GPU ("cuda:0", "sim:0").

    torch.from_dlpack() and cupy.from_dlpack() take it without a copy, and so do File.read_into()
    and save_file(). numpy.asarray() shows host memory, and copies that of a GPU.
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

    @property
    def _peerlane_memory(self) -> Tuple[int, int, bool]:
        """For Buffer: address, bytes, and whether it is a GPU's."""
        return self.address, self.nbytes, self.device != "cpu"

    def _copy(self) -> bytearray:
        data = bytearray(self.nbytes)
        if self.nbytes:
            self._context.copy(data, Buffer.at(self.address, self.nbytes, keep=self))
        return data

    def tobytes(self) -> bytes:
        """A copy of the data."""
        return bytes(self._copy())

    # ---- for frameworks

    def __dlpack_device__(self) -> Tuple[int, int]:
        if self.device == "cpu":
            return (_dlpack.CPU, 0)
        kind = _dlpack.CUDA if self._context.backend == "cuda" else _dlpack.EXTENSION
        return (kind, self.gpu)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: Optional[Tuple[int, int]] = None,
        dl_device: Optional[Tuple[int, int]] = None,
        copy: Optional[bool] = None,
    ) -> Any:
        # The data is in place, and nothing is queued on it: no stream has to wait.
        here, host = self.__dlpack_device__(), (_dlpack.CPU, 0)
        wanted = here if dl_device is None else (int(dl_device[0]), int(dl_device[1]))
        if wanted not in (here, host):
            raise BufferError(f"a tensor on {self.device} cannot be passed to DLPack device {wanted}")
        if wanted == host and (here != host or copy):
            if copy is False:
                raise BufferError(f"a tensor on {self.device} gets to the host only by a copy")
            data = self._copy()
            return self._capsule(data, Buffer(data).address, host, max_version, copied=True)
        if here[0] == _dlpack.EXTENSION:
            raise BufferError(
                f"the tensor is on the simulated GPU {self.device}, whose memory no framework can "
                "read; numpy.asarray(tensor) copies it to the host"
            )
        if copy:
            twin = empty(max(self.nbytes, 1), self.device, context=self._context)
            if self.nbytes:
                source = Buffer.at(self.address, self.nbytes, keep=self)
                self._context.copy(Buffer.at(twin.address, self.nbytes, keep=twin), source)
            return self._capsule(twin, twin.address, here, max_version, copied=True)
        return self._capsule(self, self.address, here, max_version)

    def _capsule(
        self,
        owner: Any,
        address: int,
        device: Tuple[int, int],
        max_version: Optional[Tuple[int, int]],
        copied: bool = False,
    ) -> Any:
        versioned = max_version is not None and max_version[0] >= 1
        return _dlpack.make(
            owner, address, device, self.dtype, self.shape, versioned=versioned, copied=copied
        )

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> Any:
        import numpy

        shape = packed(self.dtype, self.shape, "")
        kind = numpy_dtype(numpy, self.dtype)
        if self.device != "cpu" and copy is False:
            raise ValueError(f"a tensor on {self.device} gets to the host only by a copy")
        if not self.nbytes:
            array = numpy.empty(shape, kind)
        elif self.device == "cpu":
            array = numpy.asarray(_Bytes(self)).view(kind).reshape(shape)
            array = array.copy() if copy else array
        else:
            array = numpy.frombuffer(self._copy(), kind).reshape(shape)
        return array if dtype is None or array.dtype == dtype else array.astype(dtype)

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


def gpu_name(context: Context, gpu: int) -> str:
    """What a tensor on a GPU of a context says its device is."""
    return f"{'cuda' if context.backend == 'cuda' else 'sim'}:{gpu}"


def empty(nbytes: int, device: Any = None, *, context: Optional[Context] = None) -> Tensor:
    """Bytes of GPU memory, for programs without a framework that has some.

    @device: "cuda", "cuda:1", 1, "sim", ...; None: the first GPU of the context, be it simulated.
    """
    nbytes = number("nbytes", nbytes, low=1)
    if device is None:
        gpu, owner = 0, use(context)
    else:
        kind, ordinal = parse(device)
        if ordinal is None:
            raise ValueError("empty() gives GPU memory; for the host use a bytearray, or numpy")
        gpu, owner = ordinal, context_for(kind, context, device)
    out = c_void_p()
    with owner.handle as ctx:
        check(lib.peerlane_gpu_alloc(ctx, gpu, nbytes, byref(out)))
        memory = Memory(owner, out.value, partial(lib.peerlane_gpu_free, ctx))
    return Tensor(owner, memory, out.value or 0, "U8", (nbytes,), nbytes, gpu_name(owner, gpu))
