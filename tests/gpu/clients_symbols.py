#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Which functions of libcufile the clients want, and whether ours has them. Needs no GPU.

    clients_symbols.py [DIRECTORY]     default: $PEERLANE_CLIENTS, where clients-fetch put them

Looks for undefined symbols of what is linked, for names that are looked up while running, and in the
sources of Python packages. KvikIO keeps its names in no form that can be found: its list is its own
header's. Exits 1 if one is missing, 77 where there are no clients.
"""

import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get("PEERLANE_BUILD", os.path.join(ROOT, "build")))
LIB = os.path.realpath(os.path.join(BUILD, "cufile/libcufile.so.0"))

# Client, its file, how it comes to the functions.
PLACES = (
    ("nixl GDS", ".nixl_cu13.mesonpy.libs/plugins/libplugin_GDS.so", "linked"),
    ("nixl GDS_MT", ".nixl_cu13.mesonpy.libs/plugins/libplugin_GDS_MT.so", "linked"),
    ("fastsafetensors", "fastsafetensors/cpp.*.so", "looked up in libcufile.so.0"),
    ("fastsafetensors, older", "older/fastsafetensors/cpp.*.so", "looked up in libcufile.so.0"),
    ('"cufile" (LMCache)', "cufile/bindings.py", "looked up in libcufile.so"),
    ("KvikIO", "libkvikio/lib64/libkvikio.so", "looked up in libcufile.so.0"),
)
KVIKIO = """HandleRegister HandleDeregister Read Write BufRegister BufDeregister DriverGetProperties
    DriverSetPollMode DriverSetMaxCacheSize DriverSetMaxPinnedMemSize BatchIOSetUp BatchIOSubmit
    BatchIOGetStatus BatchIOCancel BatchIODestroy ReadAsync WriteAsync StreamRegister
    StreamDeregister DriverOpen DriverClose_v2 GetVersion""".split()


def exports(path, which):
    """cuFile* among a library's defined or undefined symbols."""
    out = subprocess.run(["nm", "-D", which, path], check=True, capture_output=True, text=True)
    return set(re.findall(r"\b(cuFile\w+)", out.stdout))


def wanted(name, path, how):
    if name == "KvikIO":
        return {f"cuFile{function}" for function in KVIKIO}
    if how == "linked":
        return exports(path, "--undefined-only")
    with open(path, "rb") as f:
        text = f.read()
    if path.endswith(".py"):
        return {m.decode() for m in re.findall(rb"libcufile\.(cuFile\w+)", text)}
    return {m.decode() for m in re.findall(rb"\0(cuFile[A-Z]\w+)\0", text)}


def find(root, pattern):
    """The first file whose path matches."""
    folder, name = os.path.split(pattern)
    if os.path.isdir(os.path.join(root, folder)):
        for entry in sorted(os.listdir(os.path.join(root, folder))):
            if entry == name or re.fullmatch(name, entry):
                return os.path.join(root, folder, entry)
    return None


def main():
    root = (sys.argv[1:] or [os.environ.get("PEERLANE_CLIENTS")])[0]
    if not root or not os.path.isdir(root):
        print("no clients here")
        return 77
    ours, missing = exports(LIB, "--defined-only"), 0
    print(f"{'client':24}{'functions':>10}{'missing':>9}  how")
    for name, pattern, how in PLACES:
        path = find(root, pattern)
        if not path:
            print(f"{name:24}{'not here':>10}")
            continue
        names = wanted(name, path, how)
        assert names, f"{path}: no function found"
        lacking = names - ours
        missing += len(lacking)
        print(f"{name:24}{len(names):10}{len(lacking):9}  {how} {' '.join(sorted(lacking))}")
    print(f"{len(ours)} functions in {LIB}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
