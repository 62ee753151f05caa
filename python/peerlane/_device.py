# SPDX-License-Identifier: MIT
"""Names of devices, and the context for each: CUDA is never replaced by the simulator unasked."""

from __future__ import annotations

import errno
import re
from typing import Any, NamedTuple, Optional

from . import _abi
from ._args import number
from ._context import Context, simulator, use
from ._errors import Error


class Device(NamedTuple):
    """What a name says: @kind is "cpu", "cuda" or "sim"; @gpu is None for the host."""

    kind: str
    gpu: Optional[int]


def parse(device: Any) -> Device:
    """A device by its name, or by a number as in torch: 1 is "cuda:1"."""
    name = f"cuda:{device}" if isinstance(device, int) else str(device)
    found = re.fullmatch(r"(cpu)(?::0)?|(cuda|sim)(?::(\d+))?", name)
    if not found:
        raise ValueError(
            f'no such device: {device!r}; use "cpu", "cuda", "cuda:N", or "sim" for the simulator'
        )
    if found.group(1):
        return Device("cpu", None)
    return Device(found.group(2), number("the GPU", int(found.group(3) or 0), high=_abi.INT_MAX))


def why_no_cuda() -> str:
    """Why CUDA cannot be used here, in the words of the library."""
    try:
        Context(backend="cuda").close()
    except Error as problem:
        return problem.explanation
    return "CUDA was not usable when this context was opened, but is now"


def context_for(kind: str, given: Optional[Context], device: Any) -> Context:
    """The context for a device of such a kind: @given, or a default one.

    A context on the simulator serves "cuda" only if its back end was asked for by name.
    """
    if kind == "sim":
        found = simulator() if given is None else use(given)
        if found.backend == "cuda":
            raise ValueError(f"device {device!r}: the context has the back end cuda")
        return found
    found = use(given)
    if kind == "cuda" and found.backend != "cuda" and not found.named:
        raise Error(
            errno.ENODEV,
            f"device {device!r}: {why_no_cuda()}; to use the simulator ask for it: "
            'device="sim" or PEERLANE_BACKEND=sim',
        )
    return found
