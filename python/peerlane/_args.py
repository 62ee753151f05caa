# SPDX-License-Identifier: MIT
"""Checks of arguments, made before the library is called: ctypes cuts numbers that are too large."""

from __future__ import annotations

import operator
from typing import Any

LARGEST = (1 << 63) - 1


def number(what: str, value: Any, low: int = 0, high: int = LARGEST) -> int:
    """@value as a whole number in a range; TypeError or ValueError otherwise."""
    try:
        found = operator.index(value)
    except TypeError:
        raise TypeError(f"{what} must be a whole number, not {type(value).__name__}") from None
    if found < low:
        raise ValueError(f"{what} is {found}; it must be {low} or more")
    if found > high:
        raise ValueError(f"{what} is {found}; it must be {high} or less")
    return found


def text(what: str, value: Any) -> str:
    """@value, which must be a str."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, not {type(value).__name__}")
    return value
