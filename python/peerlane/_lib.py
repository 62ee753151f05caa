# SPDX-License-Identifier: MIT
"""Finds and loads libpeerlane.so.0, and turns what its functions return into exceptions."""

from __future__ import annotations

import ctypes
import os
from typing import List, Optional, Tuple

from . import _abi, _errors

SONAME = "libpeerlane.so.0"
_HERE = os.path.dirname(os.path.abspath(__file__))
_ROOT = os.path.dirname(os.path.dirname(_HERE))


def installed(name: str) -> Optional[str]:
    """A path that "make install" wrote down: "LIBRARY" or "TOOL"."""
    try:
        from . import _installed  # type: ignore[attr-defined]
    except ImportError:
        return None
    return getattr(_installed, name, None)


def built(name: str) -> Optional[str]:
    """A file of the build folder, where the package is used from the source tree."""
    if not os.path.exists(os.path.join(_ROOT, "lib", "libpeerlane.map")):
        return None
    return os.path.join(_ROOT, "build", name)


def places() -> List[Tuple[str, str]]:
    """Where the library is looked for, in this order: what the place is, and its path."""
    named = os.environ.get("PEERLANE_LIBRARY")
    if named:
        return [("$PEERLANE_LIBRARY", named)]
    found = [("beside the package", os.path.join(_HERE, SONAME))]
    path = installed("LIBRARY")
    if path:
        found.append(("where it was installed", path))
    path = built(os.path.join("lib", SONAME))
    if path:
        found.append(("built by make", path))
    found.append(("the loader's search path", SONAME))
    return found


def _load() -> Tuple[ctypes.CDLL, str]:
    tried = []
    for what, path in places():
        if os.path.isabs(path) and not os.path.exists(path):
            tried.append(f"{what}: {path} is not there")
            continue
        try:
            library = ctypes.CDLL(path)
            for name, (returns, *takes) in _abi.FUNCTIONS.items():
                function = getattr(library, name)
                function.restype = returns
                function.argtypes = takes
            return library, path
        except (OSError, AttributeError) as problem:
            tried.append(f"{what}: {problem}")
    raise ImportError(
        f"peerlane: no usable {SONAME}; set PEERLANE_LIBRARY to its path. Tried:\n  "
        + "\n  ".join(tried)
    )


lib, path = _load()


def failure(err: int) -> _errors.Error:
    """The exception for the last call of this thread, which returned the negative @err."""
    info = _abi.ErrorInfo()
    if not lib.peerlane_error(ctypes.byref(info)) and info.err == err and info.text:
        return _errors.make(err, info.text.decode("utf-8", "replace"), info.cuda)
    return _errors.make(err, lib.peerlane_strerror(err).decode())


def check(result: int) -> int:
    """@result, or the exception if it is negative."""
    if result < 0:
        raise failure(result)
    return result


def path_name(number: int) -> str:
    """Name of an enum peerlane_path."""
    return str(lib.peerlane_path_name(number).decode())


PATHS = tuple(path_name(i) for i in range(_abi.PATH_NR))
