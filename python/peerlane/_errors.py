# SPDX-License-Identifier: MIT
"""What goes wrong, as exceptions that carry the library's own words."""

from __future__ import annotations

import errno as _errno
import os
import re


class Error(OSError):
    """A call of libpeerlane failed.

    errno and strerror are those of OSError; strerror is the sentence of the library. cuda is the
    CUresult where a call of the CUDA driver failed, else 0.
    """

    def __init__(self, errno: int, text: str, cuda: int = 0) -> None:
        super().__init__(errno, text)
        self.cuda = cuda

    def __str__(self) -> str:
        # OSError adds the filename in any case; the sentence of the library may have it already.
        said = f"[Errno {self.errno}] {self.strerror}"
        name = os.fsdecode(self.filename) if isinstance(self.filename, bytes) else str(self.filename)
        if self.filename is None or re.search(rf"(?<![\w/.]){re.escape(name)}(?![\w/])", said):
            return said
        return f"{said}: {self.filename!r}"

    @property
    def explanation(self) -> str:
        """What was wrong, in the words of the library."""
        return str(self.strerror)


class NotFoundError(Error, FileNotFoundError):
    """A file, a shard of a model or a tensor is not there."""


class AccessError(Error, PermissionError):
    """The system does not permit it."""


class ExistsError(Error, FileExistsError):
    """It is there already."""


class IsDirectoryError(Error, IsADirectoryError):
    """A directory where a file is needed."""


class TimedOutError(Error, TimeoutError):
    """A device did not answer in time."""


class InvalidError(Error, ValueError):
    """The library refuses an argument."""


class FormatError(Error, ValueError):
    """A safetensors file or an index file is malformed."""


_CLASSES = {
    _errno.ENOENT: NotFoundError,
    _errno.EACCES: AccessError,
    _errno.EPERM: AccessError,
    _errno.EEXIST: ExistsError,
    _errno.EINVAL: InvalidError,
    _errno.EISDIR: IsDirectoryError,
    _errno.ETIMEDOUT: TimedOutError,
    _errno.EUCLEAN: FormatError,
}


def make(err: int, text: str, cuda: int = 0) -> Error:
    """The exception for a negative or positive errno."""
    err = abs(err)
    return _CLASSES.get(err, Error)(err, text, cuda)


# Named in tracebacks as programs name them.
for _error in (
    Error,
    NotFoundError,
    AccessError,
    ExistsError,
    IsDirectoryError,
    TimedOutError,
    InvalidError,
    FormatError,
):
    _error.__module__ = "peerlane"
