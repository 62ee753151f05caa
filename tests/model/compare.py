#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The library beside safetensors' own, where Python has that: tensors of all types are saved byte for byte the same, and
of headers that were changed at random both accept the same ones. Two things safetensors takes and the library does not: a
header that does not begin with {, which the format asks for, and NUL characters in names. One thing is the other way
round: a size or position written as -0, which json-c takes for 0.

    compare.py [SEED [HEADERS]]
"""

import ctypes
import os
import random
import struct
import subprocess
import sys
import tempfile

try:
    import safetensors
    from safetensors import TensorSpec, deserialize, serialize
except ImportError as why:
    print(f"skip: {why}")
    sys.exit(77)

BUILD = os.environ.get("PEERLANE_BUILD", "build")
TYPES = {"bool": 1, "uint8": 1, "int8": 1, "float8_e5m2": 1, "float8_e4m3fn": 1, "float8_e8m0fnu": 1,
         "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2,
         "int32": 4, "uint32": 4, "float32": 4, "complex64": 8, "float64": 8, "int64": 8, "uint64": 8}
SEEDS = [
    (14, '{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},'
         '"b":{"dtype":"F4","shape":[4,3],"data_offsets":[8,14]}}'),
    (9, '{"x":{"dtype":"I64","shape":[],"data_offsets":[0,8]},"y\\u00e4":{"shape":[0,5],'
        '"data_offsets":[8,8],"dtype":"BF16"},"z":{"dtype":"BOOL","shape":[1],"data_offsets":[8,9],'
        '"q":[{}]}}   '),
    (0, "{}"),
]
PIECES = ["{", "}", "[", "]", '"', ",", ":", "-", "0", "18446744073709551615", "e", ".", "true", "null",
          "\\u0000", "\\", '"shape":[0,4]', "\n", " ", "\x01", "/**/", "'", "NaN", "1e1", "1.0", "00"]


class Info(ctypes.Structure):
    """struct peerlane_error_info"""
    _fields_ = [("size", ctypes.c_size_t), ("err", ctypes.c_int), ("cuda", ctypes.c_int),
                ("text", ctypes.c_char * 256)]


def same_files(folder):
    """Both write the same bytes; and ours, with everything in it, is read by theirs."""
    specs, data, memory = {}, {}, []
    for name, size in TYPES.items():
        for shape, count in (([3, 5], 15), ([], 1), ([0, 4], 0), ([7], 7)):
            key = f'{name}/{count} \u00fc"'
            data[key] = os.urandom(count * size)
            memory.append(ctypes.create_string_buffer(data[key], max(1, len(data[key]))))
            specs[key] = TensorSpec(dtype=name, shape=shape, data_ptr=ctypes.addressof(memory[-1]),
                                    data_len=len(data[key]))
    theirs, ours = f"{folder}/theirs.safetensors", f"{folder}/ours.safetensors"
    with open(theirs, "wb") as f:
        f.write(serialize(specs, {"format": "pt"}))
    tool = [f"{BUILD}/tools/peerlane", "model", "cp", "--backend", "sim", "--force"]
    subprocess.run([*tool, "--align", "8", theirs, ours], check=True, stdout=subprocess.DEVNULL)
    with open(theirs, "rb") as a, open(ours, "rb") as b:
        if a.read() != b.read():
            sys.exit("the files differ")
    subprocess.run([*tool, "--checksum", theirs, ours], check=True, stdout=subprocess.DEVNULL)
    with open(ours, "rb") as f:
        read = dict(deserialize(f.read()))
    if any(bytes(read[key]["data"]) != data[key] for key in data):
        sys.exit("safetensors does not read what was written")
    print(f"{len(data)} tensors the same")


def change(text):
    """A header, changed at a few places."""
    for _ in range(random.randrange(4)):
        at, kind = random.randrange(len(text) + 1), random.randrange(4)
        if kind == 0 and at < len(text):
            text[at] = random.randrange(256)
        elif kind == 1:
            text[at:at] = random.choice(PIECES).encode()
        elif kind == 2 and len(text) > 6:
            del text[at:at + random.randrange(1, 6)]
        else:
            digits = [i for i, c in enumerate(text) if 48 <= c <= 57]
            if digits:
                text[random.choice(digits)] = random.randrange(48, 58)
    return bytes(text)


def same_verdicts(folder, count):
    """Both accept or refuse each of @count headers."""
    lib = ctypes.CDLL(f"{BUILD}/lib/libpeerlane.so")
    ctx, model, info = ctypes.c_void_p(), ctypes.c_void_p(), Info(size=ctypes.sizeof(Info))
    if lib.peerlane_open(ctypes.byref(ctx), None):
        sys.exit("no context")
    path, accepted = f"{folder}/changed.safetensors", 0
    for _ in range(count):
        size, text = random.choice(SEEDS)
        text = change(bytearray(text.encode()))
        content = struct.pack("<Q", len(text)) + text + bytes(size)
        with open(path, "wb") as f:
            f.write(content)
        ours = lib.peerlane_model_open(ctx, path.encode(), ctypes.byref(model)) == 0
        lib.peerlane_error(ctypes.byref(info))
        if ours:
            lib.peerlane_model_close(model)
        try:
            deserialize(content)
            theirs = True
        except safetensors.SafetensorError:
            theirs = False
        accepted += ours
        stricter = not ours and (text[:1] != b"{" or b"NUL character" in info.text)
        looser = ours and b"-0" in text
        if ours != theirs and not stricter and not looser:
            sys.exit(f"{text!r}: {'accepted' if ours else info.text}, safetensors says otherwise")
    lib.peerlane_close(ctx)
    print(f"{count} headers, {accepted} accepted, by both")


def main():
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    random.seed(seed)
    os.environ["PEERLANE_BACKEND"] = "sim"
    with tempfile.TemporaryDirectory(prefix="peerlane-compare-") as folder:
        same_files(folder)
        same_verdicts(folder, int(sys.argv[2]) if len(sys.argv) > 2 else 2000)


main()
