# SPDX-License-Identifier: MIT
"""Types of elements: their names in safetensors files, and what frameworks call them."""

from __future__ import annotations

import importlib
from typing import Any, Dict, List, Tuple

from ._lib import lib


def _names() -> List[str]:
    names: List[str] = []
    while True:
        name = lib.peerlane_dtype_name(len(names))
        if not name:
            return names
        names.append(name.decode())


# The number of a type is its place.
NAMES = _names()
NUMBERS: Dict[str, int] = {name: i for i, name in enumerate(NAMES)}
BITS: Dict[str, int] = {name: lib.peerlane_dtype_bits(i) for i, name in enumerate(NAMES)}

# Types of elements that array interfaces can name.
TYPESTR = {
    "BOOL": "|b1",
    "U8": "|u1",
    "I8": "|i1",
    "I16": "<i2",
    "U16": "<u2",
    "F16": "<f2",
    "I32": "<i4",
    "U32": "<u4",
    "F32": "<f4",
    "C64": "<c8",
    "F64": "<f8",
    "I64": "<i8",
    "U64": "<u8",
}

TORCH = {
    "BOOL": "bool",
    "F4": "float4_e2m1fn_x2",
    "U8": "uint8",
    "I8": "int8",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "I16": "int16",
    "U16": "uint16",
    "F16": "float16",
    "BF16": "bfloat16",
    "I32": "int32",
    "U32": "uint32",
    "F32": "float32",
    "C64": "complex64",
    "F64": "float64",
    "I64": "int64",
    "U64": "uint64",
}

ML_DTYPES = {
    "BF16": "bfloat16",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
}


def numpy_dtype(numpy: Any, dtype: str) -> Any:
    """The numpy dtype for a type.

    For types that numpy lacks: that of ml_dtypes where it is installed, else a structure with one
    field, named like the type, of raw bits: no arithmetic takes it for numbers.
    """
    if dtype in TYPESTR:
        return numpy.dtype(TYPESTR[dtype])
    if dtype in ML_DTYPES:
        try:
            types = importlib.import_module("ml_dtypes")
            return numpy.dtype(getattr(types, ML_DTYPES[dtype]))
        except (ImportError, AttributeError):
            pass
    return numpy.dtype([(dtype, "<u2" if BITS[dtype] == 16 else "u1")])


def packed(dtype: str, shape: Tuple[int, ...], name: str) -> Tuple[int, ...]:
    """The shape of elements narrower than a byte as bytes: the last dimension counts bytes."""
    bits = BITS[dtype]
    if bits >= 8:
        return shape
    if not shape or shape[-1] * bits % 8:
        raise ValueError(
            f'tensor "{name}": rows of {shape[-1] if shape else 1} elements of {dtype} are not '
            'whole bytes; load it with framework="dlpack"'
        )
    return shape[:-1] + (shape[-1] * bits // 8,)


def unpacked(dtype: str, shape: Tuple[int, ...]) -> Tuple[int, ...]:
    """The counterpart, for saving."""
    bits = BITS[dtype]
    if bits >= 8:
        return shape
    return shape[:-1] + (shape[-1] * 8 // bits,)
