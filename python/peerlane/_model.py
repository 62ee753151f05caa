# SPDX-License-Identifier: MIT
"""Models: safetensors files, checked and read by the library."""

from __future__ import annotations

import ctypes
import os
import struct
from ctypes import byref, c_char_p, c_uint64, c_void_p
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from . import _abi
from ._context import Context
from ._dtypes import NAMES, NUMBERS
from ._frameworks import Framework
from ._handle import Closable, Handle
from ._lib import check, failure, lib
from ._sources import Source
from ._tensor import Memory, Tensor

Path = Union[str, "os.PathLike[str]"]
Progress = Callable[[int, int], Any]

# struct peerlane_tensor and struct peerlane_model_part; there can be very many of them.
_TENSOR = struct.Struct("=QQiIQQI4xQ")
_PART = struct.Struct("=QIIQQQQQQ")
_ADDR = struct.Struct("=Q")  # of a part
_ADDR_AT = _abi.Part.addr.offset
_PLACE = struct.Struct("=QQ")  # bytes and at
_PLACE_AT = _abi.Part.bytes.offset
assert _TENSOR.size == ctypes.sizeof(_abi.Tensor) and _PART.size == ctypes.sizeof(_abi.Part)


def encode(path: Path) -> bytes:
    """A path for the library."""
    name = os.fsencode(path)
    if b"\0" in name:
        raise ValueError("embedded null byte")
    return name


class Entry(NamedTuple):
    """A tensor of a model."""

    number: int
    dtype: str
    shape: Tuple[int, ...]
    nbytes: int
    file: int


class Cut(NamedTuple):
    """A tensor, or what of it lies in [start, stop) along a dimension."""

    name: str
    entry: Entry
    dim: int = -1
    start: int = 0
    stop: int = 0

    @property
    def shape(self) -> Tuple[int, ...]:
        """Of the cut."""
        shape = self.entry.shape
        if self.dim < 0:
            return shape
        return shape[: self.dim] + (self.stop - self.start,) + shape[self.dim + 1 :]


class _Told:
    """Passes progress on, and ends the work when that raises, Ctrl-C included."""

    def __init__(self, progress: Optional[Progress]) -> None:
        self._progress = progress
        self.raised: Optional[BaseException] = None
        self.function = _abi.PROGRESS(self._call)

    def _call(self, _: Any, done: int, total: int) -> int:
        try:
            if self._progress:
                self._progress(done, total)
            return 0
        except BaseException as raised:
            self.raised = raised
            return 1

    def check(self, err: int) -> None:
        """What check() does, but what the callback raised goes first."""
        if self.raised is not None:
            raise self.raised
        check(err)


class Model(Closable):
    """An open model: a file, or the shards that an index names."""

    def __init__(self, context: Context, path: Path) -> None:
        self._context = context
        out = c_void_p()
        with context.handle as ctx:
            err = lib.peerlane_model_open(ctx, encode(path), byref(out))
            if err:
                raise failure(err)
        self._handle = Handle(out.value or 0, self._end, f"the model {os.fspath(path)!r}")
        context.adopt(self)
        self.entries = self._read_entries()

    def _end(self, pointer: int) -> None:
        if self._context.mine:
            lib.peerlane_model_close(pointer)

    def _read_entries(self) -> Dict[str, Entry]:
        entries: Dict[str, Entry] = {}
        info = _abi.ModelInfo()
        raw = _abi.Tensor()
        at = byref(raw)
        get, unpack = lib.peerlane_model_get_tensor, _TENSOR.unpack_from
        string = ctypes.string_at
        shapes: Dict[bytes, Tuple[int, ...]] = {b"": ()}  # many tensors have the same
        with self._handle as model:
            check(lib.peerlane_model_get_info(model, byref(info)))
            for i in range(info.nr_tensors):
                check(get(model, i, at))
                _, name, dtype, dims, where, nbytes, file, _ = unpack(raw)
                lengths = string(where, 8 * dims) if dims else b""
                shape = shapes.get(lengths)
                if shape is None:
                    shape = shapes[lengths] = struct.unpack(f"={dims}Q", lengths)
                text = string(name).decode("utf-8", "surrogateescape")
                entries[text] = Entry(i, NAMES[dtype], shape, nbytes, file)
        return entries

    def metadata(self) -> Optional[Dict[str, str]]:
        """The __metadata__ of all files, None if there is none."""
        found: Dict[str, str] = {}
        info, file = _abi.ModelInfo(), _abi.ModelFile()
        key, value = c_char_p(), c_char_p()
        with self._handle as model:
            check(lib.peerlane_model_get_info(model, byref(info)))
            for number in range(info.nr_files):
                check(lib.peerlane_model_get_file(model, number, byref(file)))
                for i in range(file.nr_metadata):
                    check(lib.peerlane_model_metadata(model, number, i, byref(key), byref(value)))
                    found[(key.value or b"").decode()] = (value.value or b"").decode()
        return found or None

    # ---- load

    def load(
        self,
        cuts: Sequence[Cut],
        framework: Optional[Framework],
        *,
        gpu: Optional[int] = None,
        per_tensor: bool = False,
        checksum: bool = False,
        progress: Optional[Progress] = None,
    ) -> List[Any]:
        """Read cuts, and return their tensors in order; without a framework, our own on @gpu."""
        if not cuts:
            return []
        pack = _PART.pack
        parts = bytearray().join(
            [
                pack(entry[0], 0, 0, 0, 0, 0, 0, 0, 0)
                if dim < 0
                else pack(entry[0], _abi.MODEL_SLICE, dim, start, stop, 0, 0, 0, 0)
                for _, entry, dim, start, stop in cuts
            ]
        )
        memory = (ctypes.c_char * len(parts)).from_buffer(parts)
        with self._handle as model:
            if framework is None:
                finish = self._own_memory(model, parts, memory, cuts, gpu, per_tensor)
            elif per_tensor:
                finish = self._each_memory(parts, cuts, framework)
            else:
                finish = self._file_memory(model, parts, memory, cuts, framework)
            if framework is not None:
                framework.before()
            self._read(model, memory, len(cuts), checksum, progress)
        return finish()

    def _read(
        self, model: int, memory: Any, n: int, checksum: bool, progress: Optional[Progress]
    ) -> None:
        told = _Told(progress)
        options = _abi.LoadOptions(
            flags=_abi.MODEL_CHECKSUM if checksum else 0, progress=told.function
        )
        told.check(lib.peerlane_model_load(model, memory, n, byref(options), None))

    def _layout(self, model: int, memory: Any, first: int, n: int) -> int:
        total = c_uint64()
        at = ctypes.addressof(memory) + first * _PART.size
        check(lib.peerlane_model_layout(model, at, n, byref(total)))
        return total.value

    def _file_memory(
        self, model: int, parts: bytearray, memory: Any, cuts: Sequence[Cut], framework: Framework
    ) -> Callable[[], List[Any]]:
        """One allocation for the cuts of each file."""
        made: List[Any] = []
        first = 0
        while first < len(cuts):
            end = first + 1
            while end < len(cuts) and cuts[end].entry.file == cuts[first].entry.file:
                end += 1
            held, base = framework.allocate(self._layout(model, memory, first, end - first))
            unpack, pack, make = _PLACE.unpack_from, _ADDR.pack_into, framework.tensor
            part = first * _PART.size
            for cut in cuts[first:end]:
                _, at = unpack(parts, part + _PLACE_AT)
                pack(parts, part + _ADDR_AT, base + at)
                entry = cut.entry
                shape = entry.shape if cut.dim < 0 else cut.shape
                made.append(make(held, at, entry.dtype, shape, cut.name))
                part += _PART.size
            first = end
        return lambda: framework.finish(made)

    @staticmethod
    def _each_memory(
        parts: bytearray, cuts: Sequence[Cut], framework: Framework
    ) -> Callable[[], List[Any]]:
        """One allocation for each cut."""
        made: List[Any] = []
        for i, cut in enumerate(cuts):
            tensor, address = framework.whole(cut.entry.dtype, cut.shape, cut.name)
            made.append(tensor)
            _ADDR.pack_into(parts, i * _PART.size + _ADDR_AT, address)
        return lambda: framework.finish(made)

    def _own_memory(
        self,
        model: int,
        parts: bytearray,
        memory: Any,
        cuts: Sequence[Cut],
        gpu: Optional[int],
        per_tensor: bool,
    ) -> Callable[[], List[Any]]:
        """Memory that the library allocates."""
        out = c_void_p()
        flags = _abi.MODEL_PER_TENSOR if per_tensor else 0
        check(
            lib.peerlane_model_memory_alloc(
                model, memory, len(cuts), -1 if gpu is None else gpu, flags, byref(out)
            )
        )
        held = Memory(self._context, out.value, lib.peerlane_model_memory_free)
        device = "cpu" if gpu is None else f"cuda:{gpu}"
        made = []
        for i, cut in enumerate(cuts):
            _, _, _, _, _, address, nbytes, _, _ = _PART.unpack_from(parts, i * _PART.size)
            made.append(
                Tensor(
                    self._context, held, address, cut.entry.dtype, cut.shape, nbytes, device
                )
            )
        return lambda: made


def save(
    context: Context,
    path: Path,
    sources: Dict[str, Source],
    metadata: Optional[Dict[str, str]],
    *,
    checksum: bool,
    sync: bool,
    align: int,
    progress: Optional[Progress],
) -> None:
    """Write a safetensors file; the old one stays until the new one is complete."""
    array = (_abi.Source * max(len(sources), 1))()
    keep = []
    for place, (name, source) in zip(array, sources.items()):
        shape = (c_uint64 * max(len(source.shape), 1))(*source.shape)
        keep.append(shape)
        if "\0" in name:
            raise ValueError(f"the name {name!r} has a null character in it")
        place.name = name.encode("utf-8", "surrogateescape")
        place.dtype = NUMBERS[source.dtype]
        place.nr_dims = len(source.shape)
        place.shape = ctypes.addressof(shape)
        place.addr = source.buffer.address
    words: List[bytes] = []
    for key, value in (metadata or {}).items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"metadata must be text: {key!r}: {value!r}")
        if "\0" in key + value:
            raise ValueError(f"metadata {key!r} has a null character in it")
        words += [key.encode(), value.encode()]
    told = _Told(progress)
    flags = (_abi.MODEL_CHECKSUM if checksum else 0) | (0 if sync else _abi.MODEL_NO_SYNC)
    options = _abi.SaveOptions(flags=flags, align=align, progress=told.function)
    options.metadata = (c_char_p * max(len(words), 1))(*words)
    options.nr_metadata = len(words) // 2
    context.synchronize(*(s.buffer for s in sources.values()))
    with context.handle as ctx:
        told.check(
            lib.peerlane_model_save(ctx, encode(path), array, len(sources), byref(options), None)
        )
