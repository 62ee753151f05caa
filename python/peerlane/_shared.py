# SPDX-License-Identifier: MIT
"""Tensors of a torch module that share memory: which of them is saved for the others."""

from __future__ import annotations

from typing import Any, Collection, Dict, List, Tuple


def _range(tensor: Any) -> Tuple[int, int]:
    """First byte of a tensor, and the one behind its last."""
    steps = (max(n - 1, 0) * s for n, s in zip(tensor.shape, tensor.stride()))
    begin = int(tensor.data_ptr())
    return begin, begin + (sum(steps) + 1) * tensor.element_size()


def _has_memory(tensor: Any) -> bool:
    """Whether it is a tensor with plain memory; what is none is left to save_file() to refuse."""
    if "strided" not in str(getattr(tensor, "layout", "")) or tensor.device.type == "meta":
        return False
    return bool(tensor.numel() and tensor.data_ptr())


def _is_all(tensor: Any, size: int) -> bool:
    begin, end = _range(tensor)
    return end - begin == size == int(tensor.numel()) * int(tensor.element_size())


def _groups(state: Dict[str, Any]) -> List[Tuple[int, List[str]]]:
    """Names whose memory overlaps, and how many bytes they cover together."""
    ranges = sorted((*_range(t), name) for name, t in state.items() if _has_memory(t))
    found: List[Tuple[int, int, List[str]]] = []
    for begin, end, name in ranges:
        if found and begin < found[-1][1]:
            first, last, names = found[-1]
            found[-1] = (first, max(last, end), [*names, name])
        else:
            found.append((begin, end, [name]))
    return [(end - begin, names) for begin, end, names in found if len(names) > 1]


def duplicates(state: Dict[str, Any], preferred: Collection[str] = ()) -> Dict[str, str]:
    """Names that need not be saved, and the name of the tensor that has all of their memory.

    Of several such the first in order is kept, or the first of @preferred.
    """
    dropped: Dict[str, str] = {}
    for size, names in _groups(state):
        whole = sorted(n for n in names if _is_all(state[n], size))
        if not whole:
            listed = ", ".join(f'"{n}"' for n in sorted(names))
            raise RuntimeError(
                f"tensors {listed} share memory, and none of them has all of it: save copies of them"
            )
        kept = next((n for n in whole if n in preferred), whole[0])
        dropped.update({name: kept for name in sorted(names) if name != kept})
    return dropped
