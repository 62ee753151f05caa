#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measure the engine on the simulated GPU against a plain pread or pwrite loop.

Both move the same file with as many threads, in the same run. On the simulator GPU memory is host
memory: where it is mapped for the CPU (the mapped path) the engine does the same copies as the
plain loop and must keep up with it; the staged path copies everything twice, by design.
"""

import json
import os
import subprocess
import sys
import tempfile

MIB = 1 << 20
FILE_BYTES = 512 * MIB


def bench(path, op, size, threads, bar, cold=False):
    """One row from the tool."""
    build = os.environ.get("PEERLANE_BUILD", "build")
    env = {**os.environ, "PEERLANE_SIM_BAR": "1" if bar else "0",
           "PEERLANE_THREADS": str(max(1, threads - 1))}
    command = [f"{build}/tools/peerlane", "bench", "--backend", "sim", "--json", "--peer", "--force",
               "--op", op, "--size", str(size), "--threads", "1" if size == FILE_BYTES else
               str(threads), "--bytes", str(FILE_BYTES), "--repeat", "7",
               "--cold" if cold else "--cached", path]
    p = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env=env,
                       check=True)
    return json.loads(p.stdout)["rows"][0]


def share(row):
    """The engine's rate, of that of the plain loop."""
    return row["gb_per_s"] / row["plain"]["gb_per_s"]


def middle(rows):
    """The row with the middle ratio: the two are measured one after the other, and machines have moods."""
    return sorted(rows, key=share)[len(rows) // 2]


def main():
    threads = min(8, len(os.sched_getaffinity(0)))
    build = os.environ.get("PEERLANE_BUILD", "build")
    print(f"engine on the simulated GPU against plain pread/pwrite, {threads} threads, "
          f"{FILE_BYTES // MIB} MiB, page cached")
    print(f"{'op':7}{'call':>8} {'path':8}{'GB/s':>8}{'plain':>8}{'ratio':>7}")
    worst = None
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="peerlane-bench-") as folder:
        path = os.path.join(folder, "bench.dat")
        subprocess.run([f"{build}/bench/peer_cufile", "--file", path, "--create", str(FILE_BYTES)],
                       check=True)
        for op in ("read", "write"):
            for size in (64 << 10, MIB, 16 * MIB):
                for bar in (True, False):
                    row = middle([bench(path, op, size, threads, bar) for _ in range(3)])
                    peer = row["plain"]["gb_per_s"]
                    ratio = share(row)
                    if bar and op == "read":
                        worst = ratio if worst is None else min(worst, ratio)
                    print(f"{op:7}{size >> 10:>7}K {row['path']:8}{row['gb_per_s']:8.2f}{peer:8.2f}"
                          f"{ratio:7.2f}", flush=True)
    print(f"reads on the mapped path: at least {worst:.2f} of plain pread (asked for: 0.9)")
    return 0


sys.exit(main())
