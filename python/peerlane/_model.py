# SPDX-License-Identifier: MIT
"""Models: safetensors files, checked and read by the library."""

from __future__ import annotations

import ctypes
import os
import struct
from array import array
from ctypes import byref, c_char_p, c_uint64, c_void_p
from itertools import accumulate, groupby
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Union

from . import _abi
from ._args import number
from ._context import Context
from ._dtypes import NAMES, NUMBERS
from ._frameworks import Framework, Shape
from ._handle import Closable, Handle
from ._lib import check, failure, lib
from ._sources import Source
from ._tensor import Memory, Tensor, gpu_name

Path = Union[str, "os.PathLike[str]"]
Progress = Callable[[int, int], Any]

# There can be very many tensors: their structures are read and written in columns, not one by one.
_TENSOR = ctypes.sizeof(_abi.Tensor)
_PART = ctypes.sizeof(_abi.Part)
assert _TENSOR % 8 == 0 and _PART % 8 == 0


def _column(memory: "memoryview[int]", size: int, field: Any) -> "memoryview[int]":
    """A field of 4 or 8 bytes of an array of structures of @size bytes."""
    numbers = memory.cast("Q") if field.size == 8 else memory.cast("I")
    return numbers[int(field.offset) // field.size :: size // field.size]


def encode(path: Path) -> bytes:
    """A path for the library."""
    name = os.fsencode(path)
    if b"\0" in name:
        raise ValueError("a path has no null byte in it; load() takes the content of a file")
    return name


class Entry(NamedTuple):
    """A tensor of a model."""

    number: int
    dtype: str
    shape: Shape
    nbytes: int
    file: int


class Cut(NamedTuple):
    """What of a tensor lies in [start, stop) along a dimension."""

    dim: int
    start: int
    stop: int

    def shape(self, whole: Shape) -> Shape:
        """Of the cut of a tensor of this shape."""
        return whole[: self.dim] + (self.stop - self.start,) + whole[self.dim + 1 :]


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
        table = _abi.ModelTable()
        with self._handle as model:
            check(lib.peerlane_model_get_table(model, byref(table)))
            raw = memoryview(ctypes.string_at(table.tensors, table.nr * _TENSOR))
            text = ctypes.string_at(table.names, table.names_bytes)
            lengths = struct.unpack(
                f"={table.nr_lengths}Q", ctypes.string_at(table.lengths, 8 * table.nr_lengths)
            )
        kind = _abi.Tensor
        types, dims, sizes, files = (
            _column(raw, _TENSOR, field).tolist()
            for field in (kind.dtype, kind.nr_dims, kind.bytes, kind.file)
        )
        ends = list(accumulate(dims, initial=0))
        shapes = [lengths[begin:end] for begin, end in zip(ends, ends[1:])]
        names = text.decode("utf-8", "surrogateescape").split("\0")[:-1]
        rows = zip(range(table.nr), [NAMES[t] for t in types], shapes, sizes, files)
        return dict(zip(names, map(Entry._make, rows)))

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
        entries: Dict[str, Entry],
        framework: Optional[Framework],
        *,
        cut: Optional[Cut] = None,
        gpu: Optional[int] = None,
        per_tensor: bool = False,
        checksum: bool = False,
        progress: Optional[Progress] = None,
    ) -> Dict[str, Any]:
        """Read tensors, in the order of their numbers, or a cut of one; without a framework they are our
        own, on @gpu."""
        if not entries:
            return {}
        parts = _Parts(entries, cut)
        with self._handle as model:
            if framework is None:
                finish = self._own_memory(model, parts, gpu, per_tensor)
            elif per_tensor:
                finish = self._each_memory(parts, framework)
            else:
                finish = self._file_memory(model, parts, framework)
            if framework is not None:
                framework.before()
            self._read(model, parts.memory, len(entries), checksum, progress)
        return dict(zip(entries, finish()))

    def _read(
        self, model: int, memory: Any, n: int, checksum: bool, progress: Optional[Progress]
    ) -> None:
        told = _Told(progress)
        options = _abi.LoadOptions(
            flags=_abi.MODEL_CHECKSUM if checksum else 0, progress=told.function
        )
        told.check(lib.peerlane_model_load(model, memory, n, byref(options), None))

    @staticmethod
    def _layout(model: int, parts: "_Parts", first: int, n: int) -> int:
        total = c_uint64()
        at = ctypes.addressof(parts.memory) + first * _PART
        check(lib.peerlane_model_layout(model, at, n, byref(total)))
        return total.value

    def _file_memory(
        self, model: int, parts: "_Parts", framework: Framework
    ) -> Callable[[], List[Any]]:
        """One allocation for the tensors of each file."""
        made: List[Any] = []
        places, addresses = parts.column(_abi.Part.at), parts.column(_abi.Part.addr)
        for _, group in groupby(parts.files):
            first = len(made)
            end = first + len(list(group))
            held, base = framework.allocate(self._layout(model, parts, first, end - first))
            at = places[first:end].tolist()
            addresses[first:end] = array("Q", [base + place for place in at])
            made += framework.tensors(
                held, zip(at, parts.types[first:end], parts.shapes[first:end], parts.names[first:end])
            )
        return lambda: framework.finish(made)

    @staticmethod
    def _each_memory(parts: "_Parts", framework: Framework) -> Callable[[], List[Any]]:
        """One allocation for each tensor."""
        made = [framework.whole(*part) for part in zip(parts.types, parts.shapes, parts.names)]
        parts.column(_abi.Part.addr)[:] = array("Q", [address for _, address in made])
        return lambda: framework.finish([tensor for tensor, _ in made])

    def _own_memory(
        self, model: int, parts: "_Parts", gpu: Optional[int], per_tensor: bool
    ) -> Callable[[], List[Any]]:
        """Memory that the library allocates."""
        out = c_void_p()
        flags = _abi.MODEL_PER_TENSOR if per_tensor else 0
        check(
            lib.peerlane_model_memory_alloc(
                model, parts.memory, len(parts.names), -1 if gpu is None else gpu, flags, byref(out)
            )
        )
        held = Memory(self._context, out.value, lib.peerlane_model_memory_free)
        device = "cpu" if gpu is None else gpu_name(self._context, gpu)
        rows = zip(
            parts.column(_abi.Part.addr).tolist(),
            parts.types,
            parts.shapes,
            parts.column(_abi.Part.bytes).tolist(),
        )
        made = [Tensor(self._context, held, *row, device) for row in rows]
        return lambda: made


class _Parts:
    """What is to be read: an array of struct peerlane_model_part, and what is to be made of it."""

    def __init__(self, entries: Dict[str, Entry], cut: Optional[Cut]) -> None:
        self.names = list(entries)
        numbers, self.types, shapes, _, self.files = map(list, zip(*entries.values()))
        self.shapes = shapes if cut is None else [cut.shape(shape) for shape in shapes]
        self._data = bytearray(len(entries) * _PART)
        self.memory = (ctypes.c_char * len(self._data)).from_buffer(self._data)
        self.column(_abi.Part.tensor)[:] = array("Q", numbers)
        if cut is not None:
            part = _abi.Part.from_buffer(self._data)
            part.flags, part.dim, part.start, part.stop = _abi.MODEL_SLICE, *cut

    def column(self, field: Any) -> "memoryview[int]":
        """A field of all parts."""
        return _column(memoryview(self._data), _PART, field)


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
    if metadata is not None and not isinstance(metadata, dict):
        raise TypeError(f"metadata must be a dict of texts, not {type(metadata).__name__}")
    for key, value in (metadata or {}).items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"metadata must be text: {key!r}: {value!r}")
        if "\0" in key + value:
            raise ValueError(f"metadata {key!r} has a null character in it")
        words += [key.encode(), value.encode()]
    align = number("align", align)
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
