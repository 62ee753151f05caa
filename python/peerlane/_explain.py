# SPDX-License-Identifier: MIT
"""Which path a request takes, and for every better one why not."""

from __future__ import annotations

from typing import Any, List, NamedTuple, Optional

from ._lib import path_name


class Verdict(NamedTuple):
    """Why a path is or is not taken, and what can be done about it."""

    path: str
    usable: bool
    reason: str
    fix: str


class Explanation(NamedTuple):
    """What the library says of a request; str() of it is for people."""

    chosen: str
    io_engine: str
    io_reason: str
    ahead_reason: str
    fs: str
    device: str
    dio_align: int
    file_bytes: int
    cached_bytes: Optional[int]
    memory: str
    gpu: Optional[int]
    verdicts: List[Verdict]

    def __str__(self) -> str:
        lines = [f"path {self.chosen}, file I/O by {self.io_engine}, {self.memory} memory"]
        for v in self.verdicts:
            word = "taken" if v.path == self.chosen else "possible" if v.usable else "no"
            lines.append(f"  {v.path:9} {word}: {v.reason}")
            if not v.usable and v.fix:
                lines.append(f"  {'':9} to change that: {v.fix}")
        if self.ahead_reason:
            lines.append(f"  not read ahead: {self.ahead_reason}")
        return "\n".join(lines)


def from_raw(raw: Any) -> Explanation:
    """From a struct peerlane_explanation."""

    def text(value: bytes) -> str:
        return value.decode("utf-8", "replace")

    return Explanation(
        path_name(raw.chosen),
        text(raw.io_engine),
        text(raw.io_reason),
        text(raw.ahead_reason),
        text(raw.fs),
        text(raw.device),
        raw.dio_align,
        raw.file_bytes,
        raw.cached_bytes if raw.cached_bytes >= 0 else None,
        text(raw.memory),
        raw.gpu if raw.gpu >= 0 else None,
        [
            Verdict(path_name(v.path), bool(v.usable), text(v.reason), text(v.fix))
            for v in raw.verdicts[: raw.nr_verdicts]
        ],
    )
