# SPDX-License-Identifier: MIT
"""Files: read into memory and written from it, at once, in the order of a stream, or many."""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack
from ctypes import byref, c_int64, c_size_t, c_ssize_t, c_void_p
from typing import Any, Iterable, List, Optional, Set, Tuple, Union

from . import _abi
from ._args import number, text
from ._buffer import Buffer
from ._context import Context, use
from ._errors import make
from ._explain import Explanation, from_raw
from ._handle import Closable, Handle
from ._lib import check, failure, lib

_MODES = {
    "r": os.O_RDONLY,
    "r+": os.O_RDWR,
    "w": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
    "w+": os.O_RDWR | os.O_CREAT | os.O_TRUNC,
    "x": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
    "x+": os.O_RDWR | os.O_CREAT | os.O_EXCL,
    "a": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
    "a+": os.O_RDWR | os.O_CREAT | os.O_APPEND,
}
_BATCH = 4096


def open_flags(mode: str) -> int:
    """Flags of open(2) for a mode of open()."""
    plain = text("the mode", mode).replace("b", "", 1)
    plain = plain.replace("+", "", 1) + "+" if "+" in plain else plain
    if plain not in _MODES:
        raise ValueError(f"no such mode: {mode!r}; there are {', '.join(_MODES)}")
    return _MODES[plain]


class File(Closable):
    """An open file; peerlane.open() makes it. All methods may be called by several threads."""

    def __init__(
        self,
        path: Union[str, "os.PathLike[str]", int, Any],
        mode: str = "r",
        *,
        direct: bool = False,
        context: Optional[Context] = None,
    ) -> None:
        self.name: Any = path
        self.mode = mode
        flags = open_flags(mode) | (os.O_DIRECT if direct else 0)
        self._context = use(context)
        out = c_void_p()
        if hasattr(path, "fileno"):
            path = path.fileno()
        with self._context.handle as ctx:
            if isinstance(path, int):
                path = number("the descriptor", path, high=_abi.INT_MAX)
                check(lib.peerlane_file_from_fd(ctx, path, byref(out)))
            else:
                name = os.fsencode(path)
                if b"\0" in name:
                    raise ValueError("embedded null byte")
                self._check(lib.peerlane_file_open(ctx, name, flags, 0o666, byref(out)))
        self._handle = Handle(out.value or 0, self._end, f"the file {path!r}")
        self._context.adopt(self)

    def _end(self, pointer: int) -> None:
        if self._context.mine and not self._context.closed:
            check(lib.peerlane_file_close(pointer))

    def _check(self, result: int) -> int:
        """@result, or the exception, with the name of the file."""
        if result < 0:
            problem = failure(result)
            named = isinstance(self.name, (str, bytes, os.PathLike))
            problem.filename = os.fspath(self.name) if named else self.name
            raise problem
        return result

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<peerlane.File {self.name!r} {self.mode!r} {state}>"

    # ---- at once

    def read_into(
        self,
        buffer: Any,
        offset: int = 0,
        *,
        size: Optional[int] = None,
        buffer_offset: int = 0,
        synchronize: bool = True,
    ) -> int:
        """Read @size bytes (default: what fits) at @offset into @buffer, GPU or host memory.

        Returns the count, which is less than asked for only at the end of the file. Work that is
        queued on the stream of a GPU buffer (of torch: the current one) is waited for first,
        unless @synchronize is False. Offsets and sizes may be any number of bytes.
        """
        memory = Buffer(buffer)
        offset = number("offset", offset)
        address, size = memory.part(buffer_offset, size, write=True)
        if synchronize:
            self._context.synchronize(memory)
        with self._handle as file:
            # An empty buffer has no address.
            return self._check(lib.peerlane_read(file, address, size, offset)) if size else 0

    def write_from(
        self,
        buffer: Any,
        offset: int = 0,
        *,
        size: Optional[int] = None,
        buffer_offset: int = 0,
        durable: bool = False,
        synchronize: bool = True,
    ) -> int:
        """Write @size bytes (default: all) of @buffer, GPU or host memory, at @offset.

        Returns the count, which is less than asked for when an error came in the middle. With
        @durable the data is on stable storage when the call returns.
        """
        memory = Buffer(buffer)
        offset = number("offset", offset)
        address, size = memory.part(buffer_offset, size, write=False)
        if synchronize:
            self._context.synchronize(memory)
        flags = _abi.DURABLE if durable else 0
        with self._handle as file:
            return self._check(lib.peerlane_write(file, address, size, offset, flags)) if size else 0

    def sync(self) -> None:
        """Wait until written data is on stable storage."""
        with self._handle as file:
            self._check(lib.peerlane_file_sync(file))

    # ---- in the order of a stream

    def read_into_async(
        self,
        buffer: Any,
        offset: int = 0,
        *,
        stream: Any = None,
        size: Optional[int] = None,
        buffer_offset: int = 0,
    ) -> "Request":
        """Like read_into(), when @stream gets there; work queued on it later waits for the read.

        @stream: of torch, CuPy, Numba, Context.stream(), anything with __cuda_stream__, or a
        CUstream as a number. None: the stream that the buffer names (for torch tensors the
        current one), else the default stream.
        """
        return Request(self, Buffer(buffer), offset, stream, size, buffer_offset, None)

    def write_from_async(
        self,
        buffer: Any,
        offset: int = 0,
        *,
        stream: Any = None,
        size: Optional[int] = None,
        buffer_offset: int = 0,
        durable: bool = False,
    ) -> "Request":
        """Like write_from(), when @stream gets there; see read_into_async()."""
        return Request(self, Buffer(buffer), offset, stream, size, buffer_offset, durable)

    # ---- reasons

    def explain(
        self,
        buffer: Any,
        offset: int = 0,
        *,
        size: Optional[int] = None,
        write: bool = False,
    ) -> Explanation:
        """Which path such a read or write would take, and for each better one why not."""
        offset = number("offset", offset)
        address, size = Buffer(buffer).part(0, size, write=False)
        raw = _abi.Explanation()
        with self._handle as file:
            op = _abi.WRITE if write else _abi.READ
            self._check(lib.peerlane_explain(file, op, address, size, offset, byref(raw)))
        return from_raw(raw)


def stream_handle(stream: Any, buffer: Buffer) -> int:
    """The CUstream behind an object."""
    if stream is None:
        return max(buffer.stream, 0)
    if isinstance(stream, int):
        return number("stream", stream, high=_abi.POINTER_MAX)
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    for name in ("cuda_stream", "ptr", "handle"):  # torch, CuPy, Numba
        value = getattr(stream, name, None)
        if value is not None:
            return int(getattr(value, "value", value) or 0)
    raise TypeError(f"{type(stream).__name__} is not a stream")


# Requests that are not done: the library writes their results, so they must not go before.
_pending: "Set[Request]" = set()
_pending_lock = threading.RLock()


class Request:
    """A read or write on a stream. result() waits for it; dropping it does not stop it."""

    # No count and no errno: the library has not written the result yet.
    _WAITING = -(1 << 62)

    def __init__(
        self,
        file: File,
        buffer: Buffer,
        offset: int,
        stream: Any,
        size: Optional[int],
        buffer_offset: int,
        durable: Optional[bool],
    ) -> None:
        write = durable is not None
        address, size = buffer.part(buffer_offset, size, write=not write)
        self._file = file
        self._buffer = buffer
        self._stream_object = stream
        self._stream = stream_handle(stream, buffer)
        self._size = c_size_t(size)
        self._offset = c_int64(number("offset", offset))
        self._result = c_ssize_t(self._WAITING)
        function = lib.peerlane_write_async if write else lib.peerlane_read_async
        with _pending_lock:
            for request in [r for r in _pending if r.done()]:
                _pending.discard(request)
            _pending.add(self)
        try:
            with file._handle as pointer:
                check(
                    function(
                        pointer,
                        address,
                        byref(self._size),
                        byref(self._offset),
                        byref(self._result),
                        self._stream,
                        _abi.FIXED | (_abi.DURABLE if durable else 0),
                    )
                )
        except BaseException:
            with _pending_lock:
                _pending.discard(self)
            raise

    def __repr__(self) -> str:
        state = f"result {self._result.value}" if self.done() else "under way"
        return f"<peerlane.Request of {self._size.value} bytes, {state}>"

    def done(self) -> bool:
        """Whether the result is there; does not wait."""
        return self._result.value != self._WAITING

    def wait(self) -> None:
        """Wait until the stream has come past the request."""
        if not self.done():
            with self._file._context.handle as ctx:
                check(lib.peerlane_gpu_stream_sync(ctx, self._stream))
        with _pending_lock:
            if self.done():
                _pending.discard(self)

    def result(self) -> int:
        """Wait, and return the count of bytes, or raise what went wrong."""
        self.wait()
        count = self._result.value
        if count == self._WAITING:
            raise RuntimeError("the stream is done, but the request is not")
        if count < 0:
            raise make(count, lib.peerlane_strerror(count).decode())
        return count


def _run(batch: int, ios: Any, results: List[int]) -> None:
    """Submit requests and collect all of their results."""
    n = len(ios)
    check(lib.peerlane_batch_submit(batch, ios, n))
    events = (_abi.Event * n)()
    left = n
    while left:
        got = check(lib.peerlane_batch_wait(batch, left, events, left, None))
        for event in events[:got]:
            results[event.cookie or 0] = event.result
        left -= got


def read_many(requests: Iterable[Tuple[File, Any, int]]) -> List[int]:
    """Read many pieces at once: (file, buffer, offset) each. Returns their counts in order.

    All files must be of one context. When reads failed the first error is raised, after all of
    them have ended.
    """
    return _many(requests, _abi.READ)


def write_many(requests: Iterable[Tuple[File, Any, int]]) -> List[int]:
    """Write many pieces at once; see read_many(). Pieces must not overlap."""
    return _many(requests, _abi.WRITE)


def _checked(number_of: int, request: Any) -> Tuple[File, Any, int]:
    """A request as the user gave it: three things, a file first and an offset last."""
    if not isinstance(request, (tuple, list)) or len(request) != 3:
        raise TypeError(f"request {number_of} is not a tuple of a file, a buffer and an offset")
    file, buffer, offset = request
    if not isinstance(file, File):
        raise TypeError(
            f"request {number_of} begins with a {type(file).__name__}; it must be a peerlane.File"
        )
    return file, buffer, number(f"the offset of request {number_of}", offset)


def _many(wanted: Iterable[Any], op: int) -> List[int]:
    requests = [_checked(i, request) for i, request in enumerate(wanted)]
    if not requests:
        return []
    owner = requests[0][0]._context
    if any(file._context is not owner for file, _, _ in requests):
        raise ValueError("the files are of different contexts")
    buffers = [Buffer(buffer) for _, buffer, _ in requests]
    parts = [b.part(0, None, write=op == _abi.READ) for b in buffers]
    owner.synchronize(*buffers)
    filled = [i for i, (_, size) in enumerate(parts) if size]
    results = [0] * len(requests)
    with ExitStack() as stack:
        pointers = {f: stack.enter_context(f._handle) for f in {r[0] for r in requests}}
        ctx = stack.enter_context(owner.handle)
        batch = c_void_p()
        check(lib.peerlane_batch_create(ctx, min(len(filled), _BATCH) or 1, byref(batch)))
        stack.callback(lib.peerlane_batch_destroy, batch.value)
        for first in range(0, len(filled), _BATCH):
            chunk = filled[first : first + _BATCH]
            ios = (_abi.Io * len(chunk))()
            for io, i in zip(ios, chunk):
                io.file, io.op, io.cookie = pointers[requests[i][0]], op, i
                (io.addr, io.bytes), io.offset = parts[i], requests[i][2]
            _run(batch.value or 0, ios, results)
    for i, count in enumerate(results):
        if count < 0:
            raise make(count, f"request {i}: {lib.peerlane_strerror(count).decode()}")
    return results
