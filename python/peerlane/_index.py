# SPDX-License-Identifier: MIT
"""Indices of slices: what of a tensor must be read for one, and how to index what was read."""

from __future__ import annotations

from typing import Any, Iterator, List, NamedTuple, Optional, Tuple

from ._model import Cut

Shape = Tuple[int, ...]


class Pick(NamedTuple):
    """One part of an index: the dimensions it takes, and of the only one what it reaches."""

    key: Any
    dims: int
    low: int = 0
    high: int = 0

    def moved(self) -> Any:
        """The key for a dimension that was cut to [low, high)."""
        if isinstance(self.key, slice):
            step = self.key.step
            return slice(None) if step in (None, 1) else slice(None, None, step)
        if isinstance(self.key, list):
            return _shift(self.key, self.low)
        return self.key - self.low


def _shift(keys: Any, by: int) -> Any:
    return [_shift(k, by) for k in keys] if isinstance(keys, list) else keys - by


def _flat(keys: Any) -> Iterator[Any]:
    if isinstance(keys, list):
        for key in keys:
            yield from _flat(key)
    else:
        yield keys


def _depth(keys: Any) -> int:
    return 1 + (_depth(keys[0]) if keys else 0) if isinstance(keys, list) else 0


def _plain(keys: Any) -> Any:
    """Lists of lists, of lists, tuples, ranges, and arrays of frameworks."""
    if hasattr(keys, "tolist"):
        keys = keys.tolist()
    return [_plain(k) for k in keys] if isinstance(keys, (list, tuple, range)) else keys


def _whole(key: Any, dim: int, length: int) -> int:
    if not hasattr(key, "__index__"):
        raise TypeError(
            "an index is a number, a slice, '...', None, or a list or array of numbers or bools, "
            f"not {type(key).__name__}"
        )
    number: int = key.__index__()
    if not -length <= number < length:
        raise IndexError(f"index {number} is outside of dimension {dim}, which has {length}")
    return number % length


def _of_list(keys: List[Any], dim: int, shape: Shape) -> Pick:
    flat = list(_flat(keys))
    if any(isinstance(k, bool) for k in flat):
        dims = _depth(keys)
        if dims > 1:
            return Pick(keys, dims)  # a mask of several dimensions, which are read as a whole
        if len(keys) != shape[dim] or not all(isinstance(k, bool) for k in keys):
            raise IndexError(f"a mask of {len(keys)} for dimension {dim}, which has {shape[dim]}")
        keys = flat = [i for i, k in enumerate(keys) if k]

    def normal(key: Any) -> Any:
        if isinstance(key, list):
            return [normal(k) for k in key]
        return _whole(key, dim, shape[dim])

    flat = [_whole(k, dim, shape[dim]) for k in flat]
    low, high = (min(flat), max(flat) + 1) if flat else (0, 0)
    return Pick(normal(keys), 1, low, high)


def _pick(key: Any, dim: int, shape: Shape) -> Pick:
    if isinstance(key, slice):
        span = range(shape[dim])[key]
        low, high = (min(span[0], span[-1]), max(span[0], span[-1]) + 1) if span else (0, 0)
        return Pick(key, 1, low, high)
    if isinstance(key, list):
        return _of_list(key, dim, shape)
    number = _whole(key, dim, shape[dim])
    return Pick(number, 1, number, number + 1)


def _takes(key: Any) -> int:
    """How many dimensions a key takes."""
    if key is None or isinstance(key, bool) or key is Ellipsis:
        return 0
    if isinstance(key, list) and any(isinstance(k, bool) for k in _flat(key)):
        return _depth(key)
    return 1


def parse(key: Any, shape: Shape) -> List[Pick]:
    """The parts of an index, checked, with a slice for every dimension that it does not name."""
    # As torch has it: a list with a slice in it is a tuple.
    if isinstance(key, list) and any(k is None or isinstance(k, (slice, type(...))) for k in key):
        key = tuple(key)
    keys = [k if isinstance(k, slice) else _plain(k) for k in (key if isinstance(key, tuple) else [key])]
    if sum(k is Ellipsis for k in keys) > 1:
        raise IndexError("an index can have only one ellipsis ('...')")
    left = len(shape) - sum(_takes(k) for k in keys)
    if left < 0:
        raise IndexError(f"too many indices for a tensor of {len(shape)} dimensions")
    at = next((i for i, k in enumerate(keys) if k is Ellipsis), len(keys))
    keys[at : at + 1] = [slice(None)] * left
    picks: List[Pick] = []
    dim = 0
    for k in keys:
        picks.append(_pick(k, dim, shape) if _takes(k) == 1 else Pick(k, _takes(k)))
        dim += picks[-1].dims
    return picks


def cut(picks: List[Pick], shape: Shape) -> Tuple[Optional[Cut], List[Any]]:
    """What to read: the dimension that saves most; and the index of what was read."""
    best, share, found, dim = -1, 1.0, None, 0
    for i, pick in enumerate(picks):
        if pick.dims == 1 and shape[dim]:
            part = (pick.high - pick.low) / shape[dim]
            if part < share:
                best, share, found = i, part, Cut(dim, pick.low, pick.high)
        dim += pick.dims
    keys = [pick.moved() if i == best else pick.key for i, pick in enumerate(picks)]
    return found, keys
