# SPDX-License-Identifier: MIT
"""Peerlane: files straight into GPU memory and back.

    import peerlane

    with peerlane.open("weights.bin") as f:
        f.read_into(tensor)          # torch, CuPy, JAX, Numba, NumPy, bytearray ...

Thin over libpeerlane.so; needs no compiler, and neither torch nor numpy. peerlane.safetensors
loads and saves models.
"""

from __future__ import annotations

from typing import Any, Optional

from . import safetensors
from ._buffer import Buffer
from ._context import Context, Gpu, Registration, Stream, context
from ._errors import (
    AccessError,
    Error,
    ExistsError,
    FormatError,
    InvalidError,
    IsDirectoryError,
    NotFoundError,
    TimedOutError,
)
from ._explain import Explanation, Verdict
from ._file import File, Request, read_many, write_many
from ._lib import path as library_path
from ._tensor import Tensor, empty

__version__ = "0.1.0"

__all__ = [
    "AccessError",
    "Buffer",
    "Context",
    "Error",
    "ExistsError",
    "Explanation",
    "File",
    "FormatError",
    "Gpu",
    "InvalidError",
    "IsDirectoryError",
    "NotFoundError",
    "Registration",
    "Request",
    "Stream",
    "Tensor",
    "TimedOutError",
    "Verdict",
    "context",
    "empty",
    "library_path",
    "open",
    "read_many",
    "register",
    "safetensors",
    "stats",
    "write_many",
]


def open(
    path: Any, mode: str = "r", *, direct: bool = False, context: Optional[Context] = None
) -> File:
    """Open a file for read_into() and write_from().

    @path: a path, "nvme:SERIAL/NSID", or a descriptor or file object, which stays the caller's.
    @mode: as for the built-in open(): "r", "w", "x" and "a", with "+" for both directions. Files
    are binary; a "b" is allowed. @direct: bypass the page cache (O_DIRECT).
    """
    return File(path, mode, direct=direct, context=context)


def register(obj: Any) -> Registration:
    """Announce memory that is used often; undone by close(), or at the end of a "with"."""
    return context().register(obj)


def stats() -> "dict[str, Any]":
    """Counters of the default context."""
    return context().stats()
