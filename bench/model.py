#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measure how fast safetensors files come into GPU memory, beside the limit of the bus.

Makes a model of a few large tensors and one of ten thousand small ones, loads each with "peerlane model
load", page-cached and cold, with memory for each file and for each tensor, and prints GB/s, the ratio to the
limit of pinned copies measured in the same run, and the host memory it took: the peak of the process less that
of one that loads an empty model. The pool of pinned memory, up to 128 MiB, is in it. Where
Python has torch with CUDA and safetensors, its own loader does the same work in the same run.

    bench/model.py [--bytes SIZE] [--small N] [--repeat N] [--dir FOLDER] [--json FILE]
"""

import argparse
import json
import os
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20


def make(path, count, size):
    """A model of count BF16 tensors of size bytes; its data is random, a piece of it again and again."""
    header = {f"model.layers.{i}.weight": {"dtype": "BF16", "shape": [size // 2],
                                           "data_offsets": [i * size, (i + 1) * size]}
              for i in range(count)}
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 4096)
    piece = os.urandom(16 * MIB)
    left = count * size
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        while left:
            left -= f.write(piece[:min(left, len(piece))])
        f.flush()
        os.fsync(f.fileno())


def peerlane(path, repeat, *options):
    """The tool's own result, and the peak of its host memory in bytes."""
    build = os.environ.get("PEERLANE_BUILD", "build")
    command = [f"{build}/tools/peerlane", "model", "load", "--json", "--repeat", str(repeat), *options,
               path]
    out = tempfile.TemporaryFile("w+")
    pid = os.posix_spawn(command[0], command, os.environ,
                         file_actions=[(os.POSIX_SPAWN_DUP2, out.fileno(), 1)])
    _, status, usage = os.wait4(pid, 0)
    if status:
        sys.exit(f"failed: {' '.join(command)}")
    out.seek(0)
    result = json.load(out)
    result["host_bytes"] = usage.ru_maxrss * 1024
    return result


CHILD = """
import sys, time, torch
from safetensors.torch import load_file
torch.zeros(1, device="cuda")
for _ in range(int(sys.argv[2])):
    torch.cuda.synchronize()
    start = time.monotonic()
    tensors = load_file(sys.argv[1], device="cuda")
    torch.cuda.synchronize()
    print(time.monotonic() - start, flush=True)
    del tensors
"""


def safetensors(path, repeat):
    """Median seconds of safetensors' own loader, or None."""
    p = subprocess.run([sys.executable, "-c", CHILD, path, str(repeat)], stdin=subprocess.DEVNULL,
                       capture_output=True, text=True, check=False)
    return statistics.median(map(float, p.stdout.split())) if p.returncode == 0 else None


def drop(path):
    """Out of the page cache."""
    with open(path, "rb") as f:
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def rows(name, path, repeat):
    """Every way to load one model."""
    found = []
    size = os.path.getsize(path)
    for cache in ("cached", "cold"):
        theirs = []
        for _ in range(1 if cache == "cached" else repeat):
            if cache == "cold":
                drop(path)
            theirs.append(safetensors(path, repeat if cache == "cached" else 1))
        theirs = None if None in theirs else statistics.median(theirs)
        for options in ([], ["--per-tensor"]):
            r = peerlane(path, repeat, f"--{cache}", *options)
            whole = r["open_seconds"] + r["alloc_seconds"] + r["seconds"]
            found.append({"model": name, "cache": cache, "memory": "tensor" if options else "file",
                          "backend": r["backend"], "bytes": r["bytes"], "seconds": r["seconds"],
                          "whole_seconds": whole, "gb_per_s": r["gb_per_s"],
                          "limit_gb_per_s": r["limit"].get("gb_per_s"),
                          "path": r["path"], "requests": r["requests"],
                          "host_bytes": r["host_bytes"], "passes_gb_per_s": r["passes_gb_per_s"],
                          "safetensors_seconds": theirs,
                          "against_safetensors": theirs / whole if theirs else None})
    assert size > found[0]["bytes"]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--bytes", type=int, default=0, help="size of the large model (default: 4 GB, "
                        "or 256 MB on the simulator)")
    parser.add_argument("--small", type=int, default=10000, help="tensors of 16 KiB of the other")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--dir", default="/var/tmp")
    parser.add_argument("--json", help="also write the rows to this file")
    args = parser.parse_args()
    gpu = os.path.exists("/dev/nvidia0")
    args.bytes = args.bytes or (4 * 10**9 if gpu else 256 * 10**6)
    folder = tempfile.mkdtemp(dir=args.dir, prefix="peerlane-model-")
    found = []
    try:
        large, small = f"{folder}/large.safetensors", f"{folder}/small.safetensors"
        count = max(1, args.bytes // (64 * MIB))
        make(large, count, args.bytes // count // 2 * 2)
        make(small, args.small, 16384)
        make(f"{folder}/empty.safetensors", 0, 0)
        base = peerlane(f"{folder}/empty.safetensors", 1)["host_bytes"]
        found += rows("large", large, args.repeat)
        found += rows("small", small, args.repeat)
    finally:
        shutil.rmtree(folder)
    print(f"back end {found[0]['backend']}, {time.strftime('%Y-%m-%d')}; GB/s of the load alone, "
          "seconds with headers and allocation; MiB of host memory, with up to 128 of the pool"
          + ("" if gpu else " and the simulated GPU's"))
    print(f"{'model':7}{'cache':8}{'memory':8}{'GB/s':>7}{'limit':>7}{'ratio':>7}{'seconds':>9}"
          f"{'requests':>10}{'path':>10}{'MiB':>7}{'x safetensors':>15}")
    for r in found:
        limit, against = r["limit_gb_per_s"], r["against_safetensors"]
        print(f"{r['model']:7}{r['cache']:8}{r['memory']:8}{r['gb_per_s']:7.2f}"
              + (f"{limit:7.2f}{r['gb_per_s'] / limit:7.2f}" if limit else f"{'-':>7}{'-':>7}")
              + f"{r['whole_seconds']:9.3f}{r['requests']:10}"
              f"{r['path']:>10}{(r['host_bytes'] - base) // MIB:7}"
              + (f"{against:15.1f}" if against else f"{'not measured':>15}"))
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump(found, f, indent=1)
    return 0


sys.exit(main())
