# SPDX-License-Identifier: MIT
"""Pointers to objects of the library, which many threads use and one closes."""

from __future__ import annotations

import errno
import os
import threading
import weakref
from typing import Any, Callable, Optional, TypeVar

from . import _errors

T = TypeVar("T", bound="Closable")
_all: "weakref.WeakSet[Handle]" = weakref.WeakSet()


class Handle:
    """A pointer for "with": calls run inside, and close() waits until none is running."""

    def __init__(self, pointer: int, end: Callable[[int], Any], what: str) -> None:
        self._pointer: Optional[int] = pointer
        self._end = end
        self._what = what
        self._users = 0
        self._changed = threading.Condition()
        _all.add(self)

    def __enter__(self) -> int:
        with self._changed:
            if self._pointer is None:
                raise _errors.Error(errno.EBADF, f"{self._what} is closed")
            self._users += 1
            return self._pointer

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._users -= 1
            if not self._users:
                self._changed.notify_all()

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._pointer is None

    def close(self) -> None:
        """End the object. If that fails, the exception is raised and the object stays."""
        with self._changed:
            pointer, self._pointer = self._pointer, None
            if pointer is None:
                return
            try:
                while self._users:
                    self._changed.wait()
                self._end(pointer)
            except BaseException:
                self._pointer = pointer
                raise


class Closable:
    """What has a handle: close(), "with", and an end when nobody uses it any more."""

    _handle: Handle

    def close(self) -> None:
        """End it, once calls that use it have returned. A second time does nothing."""
        self._handle.close()

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._handle.closed

    def __enter__(self: T) -> T:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # never opened, or nobody is left to tell
            pass


def _after_fork() -> None:
    # Threads that held a lock or ran a call are not in the child.
    for handle in list(_all):
        handle._changed = threading.Condition()
        handle._users = 0


os.register_at_fork(after_in_child=_after_fork)
