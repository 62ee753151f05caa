#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measure what the NVMe driver costs per 4 KiB read that an instant controller completes.

Instructions are counted by callgrind, in the driver's part alone; operations per second include the
instant controller and are the median of several runs. The floor is a hand-written loop that does the
least any driver must. Ends with 1 when a read takes more instructions than asked for.
"""

import os
import re
import shutil
import statistics
import subprocess
import sys

MOST = 350
COUNTED = 12800
TIMED = 4000000
RUNS = 5


def program():
    return os.path.join(os.environ.get("PEERLANE_BUILD", "build"), "bench/nvme_cost")


def rate(kind, depth):
    """Operations per second."""
    runs = [float(subprocess.run([program(), kind, str(depth), str(TIMED)], check=True,
                                 capture_output=True, text=True).stdout) for _ in range(RUNS)]
    return statistics.median(runs)


def instructions(kind, depth):
    """Instructions per operation in the functions cost_*."""
    p = subprocess.run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
                        "--toggle-collect=cost_*", program(), kind, str(depth), str(COUNTED)],
                       check=True, capture_output=True, text=True)
    return int(re.search(r"Collected : (\d+)", p.stderr).group(1)) / COUNTED


def main():
    counted = shutil.which("valgrind") is not None
    print("NVMe driver: reads of 4 KiB, completed at once in the same thread")
    if not counted:
        print("valgrind is not installed: no instructions are counted")
    print(f"{'depth':>5} {'':8}{'instructions':>13}{'M op/s':>8}")
    worst = 0
    for depth in (1, 128):
        for kind in ("floor", "driver"):
            count = instructions(kind, depth) if counted else float("nan")
            print(f"{depth:>5} {kind:8}{count:>13.1f}{rate(kind, depth) / 1e6:>8.2f}", flush=True)
            if kind == "driver" and counted:
                worst = max(worst, count)
    if not counted:
        return 0
    print(f"at most {worst:.1f} instructions a read (asked for: {MOST})")
    return 1 if worst > MOST else 0


sys.exit(main())
