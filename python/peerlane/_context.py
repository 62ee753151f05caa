# SPDX-License-Identifier: MIT
"""Contexts: the library's engine, its GPU back end and pinned memory; one is the default."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import threading
import weakref
from ctypes import byref, c_void_p
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple, Union

from . import _abi
from ._args import number, text
from ._buffer import Buffer
from ._errors import Error
from ._handle import Closable, Handle
from ._lib import PATHS, check, lib


class Gpu(NamedTuple):
    """One GPU of a back end."""

    ordinal: int
    name: str
    pci: str
    memory_bytes: int
    driver: str
    numa_node: int
    copy_lists: bool


def _flags(words: Union[str, Iterable[str]]) -> int:
    bits = 0
    for word in words.split(",") if isinstance(words, str) else words:
        if word.strip() not in _abi.FLAGS:
            raise ValueError(f"no such flag: {word!r}; there are {', '.join(_abi.FLAGS)}")
        bits |= _abi.FLAGS[word.strip()]
    return bits


def _direction(stats: Any) -> Dict[str, Any]:
    return {
        "ok": stats.ok,
        "failed": stats.failed,
        "bytes": stats.bytes,
        "path_bytes": dict(zip(PATHS, stats.path_bytes)),
        "ns_sum": stats.ns_sum,
        "size_hist": list(stats.size_hist),
        "lat_hist": list(stats.lat_hist),
    }


class Context(Closable):
    """An engine of its own. Most programs need none: functions without one use the default.

    Options that are not given, or 0, are the defaults of the library, or of its environment
    variables (PEERLANE_BACKEND and so on). @backend: "cuda", "sim", or "auto", the default: CUDA
    if there is any, else the simulator; .backend says which. @flags: words such as
    "no-direct,save-cpu", those of PEERLANE_FLAGS.
    """

    def __init__(
        self,
        *,
        backend: Optional[str] = None,
        flags: Union[str, Iterable[str]] = (),
        pool_bytes: int = 0,
        slot_bytes: int = 0,
        threads: int = 0,
        queue_depth: int = 0,
        timeout_ms: int = 0,
    ) -> None:
        asked = text("backend", backend) if backend is not None else ""
        options = _abi.Options(
            backend=asked.encode() or None,
            flags=_flags(flags),
            pool_bytes=number("pool_bytes", pool_bytes),
            slot_bytes=number("slot_bytes", slot_bytes),
            nr_threads=number("threads", threads, high=_abi.UINT_MAX),
            queue_depth=number("queue_depth", queue_depth, high=_abi.UINT_MAX),
            timeout_ms=number("timeout_ms", timeout_ms, high=_abi.UINT_MAX),
        )
        asked = asked or os.environ.get("PEERLANE_BACKEND", "")
        self.named = asked not in ("", "auto")  # whether the back end was asked for by name
        out = c_void_p()
        check(lib.peerlane_open(byref(out), byref(options)))
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._memories = 0  # pieces of memory that must be freed before the context ends
        self._ended: Optional[int] = None  # pointer of a context that only they keep
        self._children: "weakref.WeakSet[Any]" = weakref.WeakSet()
        self._handle = Handle(out.value or 0, self._end, "the context")
        self.backend: str = lib.peerlane_backend(out.value).decode()
        _all.add(self)

    def __repr__(self) -> str:
        chosen = "" if self.named or self.backend == "cuda" else " (no CUDA was found)"
        return f"<peerlane.Context {self.backend}{chosen} {'closed' if self.closed else 'open'}>"

    @property
    def handle(self) -> Handle:
        """For calls of the library, inside of "with"."""
        return self._handle

    @property
    def mine(self) -> bool:
        """Whether this process opened it; a forked child cannot use what its parent opened."""
        return os.getpid() == self._pid

    # ---- the end

    def _end(self, pointer: int) -> None:
        with self._lock:
            if self._memories and self.mine:
                self._ended = pointer
                return
        lib.peerlane_close(pointer)

    def hold_memory(self) -> None:
        """Note memory of the library that outlives close()."""
        with self._lock:
            self._memories += 1

    def drop_memory(self) -> None:
        """The counterpart, once the memory is freed."""
        with self._lock:
            self._memories -= 1
            last, pointer = not self._memories, self._ended
            if last:
                self._ended = None
        if last and pointer is not None:
            lib.peerlane_close(pointer)

    def adopt(self, child: Any) -> None:
        """Note what must be closed before the context."""
        self._children.add(child)

    def close(self) -> None:
        """Close files, models and streams of the context, then the context."""
        for child in list(self._children):
            child.close()
        self._handle.close()

    # ---- what it is and did

    def gpus(self) -> List[Gpu]:
        """The GPUs of the back end."""
        found = []
        with self.handle as ctx:
            for i in range(check(lib.peerlane_gpu_count(ctx))):
                info = _abi.GpuInfo()
                check(lib.peerlane_gpu_get_info(ctx, i, byref(info)))
                found.append(
                    Gpu(
                        i,
                        info.name.decode(),
                        info.pci.decode(),
                        info.memory_bytes,
                        info.driver.decode(),
                        info.numa_node,
                        bool(info.copy_lists),
                    )
                )
        return found

    def copy_limit(self, gpu: int = 0, *, write: bool = False) -> float:
        """Bytes a second that pinned host memory and the GPU exchange at most, measured now."""
        rate = ctypes.c_double()
        with self.handle as ctx:
            op = _abi.WRITE if write else _abi.READ
            gpu = number("gpu", gpu, high=_abi.INT_MAX)
            check(lib.peerlane_gpu_copy_limit(ctx, gpu, op, byref(rate)))
        return rate.value

    def stats(self) -> Dict[str, Any]:
        """Counters since the context was opened, as struct peerlane_stats has them."""
        raw = _abi.Stats()
        with self.handle as ctx:
            check(lib.peerlane_stats_get(ctx, byref(raw)))
        counters: Dict[str, Any] = {
            name: getattr(raw, name)
            for name, _ in raw._fields_
            if name not in ("size", "read", "write")
        }
        return {"read": _direction(raw.read), "write": _direction(raw.write), **counters}

    # ---- memory

    def synchronize(self, *buffers: Buffer) -> None:
        """Wait for work queued on the buffers' streams, which reads and writes do not wait for."""
        streams = {b.stream if b.waiter is None else b.waiter: b for b in buffers}
        for buffer in streams.values():
            if buffer.waiter is not None:
                buffer.waiter.synchronize()
            elif buffer.stream >= 0 and self.backend == "cuda":
                with self.handle as ctx:
                    check(lib.peerlane_gpu_stream_sync(ctx, buffer.stream))

    def copy(self, target: Any, source: Any) -> None:
        """Copy between two pieces of memory of one size, GPU or host, and wait for it."""
        to, of = Buffer(target), Buffer(source)
        if to.nbytes != of.nbytes:
            raise ValueError(f"{of.nbytes} bytes do not fit {to.nbytes}")
        address, size = to.part(0, None, write=True)
        if size:
            self.synchronize(to, of)
            with self.handle as ctx:
                check(lib.peerlane_gpu_copy(ctx, address, of.address, size))

    def register(self, obj: Any) -> "Registration":
        """Announce memory that is used often; undone by close(), or at the end of a "with"."""
        return Registration(self, obj)

    def stream(self, gpu: int = 0) -> "Stream":
        """A stream of the back end's, for programs without a framework that has some."""
        return Stream(self, gpu)


class Registration(Closable):
    """Memory announced by Context.register()."""

    def __init__(self, owner: Context, obj: Any) -> None:
        self.buffer = Buffer(obj)
        self._context = owner
        address, size = self.buffer.part(0, None, write=False)
        with owner.handle as ctx:
            check(lib.peerlane_buffer_register(ctx, address, size, 0))
        self._handle = Handle(address, self._end, "the registration")
        owner.adopt(self)

    def __repr__(self) -> str:
        state = " closed" if self.closed else ""
        return f"<peerlane.Registration of {self.buffer.nbytes} bytes{state}>"

    def _end(self, address: int) -> None:
        if self._context.mine and not self._context.closed:
            with self._context.handle as ctx:
                check(lib.peerlane_buffer_release(ctx, address))


class Stream(Closable):
    """A stream made by Context.stream()."""

    def __init__(self, owner: Context, gpu: int) -> None:
        self._context = owner
        out = c_void_p()
        with owner.handle as ctx:
            gpu = number("gpu", gpu, high=_abi.INT_MAX)
            check(lib.peerlane_gpu_stream_create(ctx, gpu, byref(out)))
        self._handle = Handle(out.value or 0, self._end, "the stream")
        self._gpu = gpu
        owner.adopt(self)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"<peerlane.Stream on GPU {self._gpu} of {self._context.backend}, {state}>"

    def _end(self, stream: int) -> None:
        if self._context.mine and not self._context.closed:
            with self._context.handle as ctx:
                lib.peerlane_gpu_stream_destroy(ctx, stream)

    def __cuda_stream__(self) -> Tuple[int, int]:
        """For libraries that know this protocol: version 0, and the CUstream."""
        with self._handle as stream:
            return (0, stream)

    def synchronize(self) -> None:
        """Wait until all work on the stream is done."""
        with self._handle as stream, self._context.handle as ctx:
            check(lib.peerlane_gpu_stream_sync(ctx, stream))


_all: "weakref.WeakSet[Context]" = weakref.WeakSet()
_default: Optional[Context] = None
_simulator: Optional[Context] = None
_default_lock = threading.RLock()


def context() -> Context:
    """The default context of this process, opened when it is first needed."""
    global _default
    with _default_lock:
        if _default is None or _default.closed:
            _default = Context()
        return _default


def use(given: Optional[Context]) -> Context:
    """The context that a caller gave, or the default one."""
    if given is None:
        return context()
    if not isinstance(given, Context):
        raise TypeError(f"context must be a peerlane.Context, not {type(given).__name__}")
    return given


def simulator() -> Context:
    """The default context on the simulator: that of context(), if it is one."""
    global _simulator
    with _default_lock:
        if os.environ.get("PEERLANE_BACKEND", "").startswith("sim"):
            return context()
        if _default is not None and not _default.closed and _default.backend != "cuda":
            return _default
        if _simulator is None or _simulator.closed:
            _simulator = Context(backend="sim")
        return _simulator


def _after_fork() -> None:
    # The child opens contexts of its own when it needs them.
    global _default, _simulator, _default_lock
    _default_lock = threading.RLock()
    for inherited in list(_all):
        inherited._lock = threading.RLock()
    _default = _simulator = None


@atexit.register
def _at_exit() -> None:
    for still_open in list(_all):
        with contextlib.suppress(Error):  # nobody is left to tell
            still_open.close()


os.register_at_fork(after_in_child=_after_fork)
