#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measure I/O that kernels start themselves, each beside its limit, in one run.

Runs 'peerlane bench gpu' step by step, each in a process of its own with a time limit. Prints what is emulated and
what is real in tables apart, with what is asked of each and how long it took, and writes every raw result as a line
of JSON. The numbers of I/O and of threads are the command's own, but where a step says otherwise.
With --cpu the same steps run on the CPU with tiny sizes: to see that they work; nothing is asked of them then.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time


class Step:
    """One command, and what is asked of it."""

    def __init__(self, text, words, tiny, rate=None, share=None, gbps=None, threads=None):
        self.text, self.words, self.tiny = text, words.split(), tiny.split()
        self.rate, self.share, self.gbps, self.threads = rate, share, gbps, threads


TINY = "--threads 4,8 --count 40 --repeat 1"
TINY_WORK = "--threads 4 --bytes 64K --cache 32K --repeat 1"

MANY = "--threads 4096,16384,32768"
EACH = "--queues 1024 --depth 128"

EMULATED = [
    Step("commands, no data, 4 proxies", "ring --proxies 4", TINY, rate=230e6, share=0.65),
    Step("commands, no data, 8 proxies", "ring --proxies 8", TINY, rate=230e6, share=0.65),
    Step("random 512 B reads, 4 proxies", "read --size 512 --proxies 4", f"{TINY} --bytes 16K", rate=38e6,
         share=0.9, threads=4096),
    Step("random 512 B reads, 8 proxies", "read --size 512 --proxies 8", f"{TINY} --bytes 16K", rate=38e6,
         share=0.9, threads=4096),
    Step("random 4 KiB reads, 4 proxies", "read --size 4K --proxies 4", f"{TINY} --bytes 16K", rate=12e6,
         share=0.95, threads=4096),
    Step("array, all hits, 4 KiB pages", "array", f"{TINY} --cache 32K", gbps=1000),
    Step("array, half hits, 4 KiB pages", "array --hit-ratio 0.5 --cache 512M --count 1M", f"{TINY} --cache 32K"),
    Step("words read and written, cache of 1/4", "mixed", "--threads 4,8 --count 40 --repeat 1"),
    Step("sum of an array, cache of 1/4", f"sum {MANY}", TINY_WORK),
    Step("scan of columns, cache of 1/4", f"scan {MANY}", TINY_WORK, share=1),
    Step("the same, a queue for each warp", f"scan {MANY} {EACH}", TINY_WORK, share=1),
    Step("the same, rows ordered by key", f"scan {MANY} --ordered", TINY_WORK, share=1),
    Step("BFS, cache of 1/4", f"bfs {MANY}", TINY_WORK, share=1),
]
REAL = [
    Step("random 4 KiB reads of a cached file", "file --proxies 4", f"{TINY} --bytes 16K", share=0.8),
    Step("the same, 12 proxies", "file --proxies 12", f"{TINY} --bytes 16K", share=0.8),
]


class Bench:
    """Runs the steps and keeps what they printed."""

    def __init__(self, args):
        self.args = args
        self.tool = os.path.join(os.environ.get("PEERLANE_BUILD", "build"), "tools/peerlane")
        self.out = open(args.out, "w", encoding="utf-8") if args.out else None
        self.failed = 0

    def keep(self, data):
        """Write one raw result."""
        if self.out:
            self.out.write(json.dumps(data) + "\n")
            self.out.flush()

    def run(self, step):
        """The JSON of a step, or None with the reason printed."""
        words = step.words + step.tiny if self.args.cpu else step.words
        command = [self.tool, "bench", "gpu", *words, "--json", "--progress", "--backend",
                   "sim" if self.args.cpu else "cuda"]
        data, start = None, time.monotonic()
        if words[0] == "file" and self.args.dir:
            command += ["--dir", self.args.dir]
        try:
            p = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, timeout=self.args.timeout, check=False)
            why = last_line(p.stderr) if p.returncode else None
        except subprocess.TimeoutExpired as e:
            why = f"no end within {self.args.timeout} s ({last_line(e.stderr)})"
        except OSError as e:
            why = str(e)
        took = round(time.monotonic() - start, 1)
        if why:
            self.failed += 1
            print(f"{step.text:36} FAILED after {took} s: {why}", flush=True)
            self.keep({"step": step.text, "failed": why, "took_s": took})
        else:
            data = {"step": step.text, "command": " ".join(words), "took_s": took, **json.loads(p.stdout)}
            self.keep(data)
        return data


def last_line(text):
    """Of what a step said, if it did."""
    return ((text or b"").decode(errors="replace").strip().splitlines() or ["no words"])[-1]


def verdicts(step, peak, data):
    """What was asked, each with whether it was met."""
    asked = []
    if step.rate:
        asked.append((peak["iops"] >= step.rate, f"{step.rate / 1e6:.0f} M/s"))
    if step.share:
        asked.append((data.get("of_limit", 0) >= step.share, f"{step.share} of the limit"))
    if step.gbps:
        asked.append((peak.get("gb_per_s", 0) >= step.gbps, f"{step.gbps} GB/s"))
    if step.threads:
        asked.append((0 < data.get("threads_for_90_percent", 0) <= step.threads,
                      f"0.9 of the peak with {step.threads} threads"))
    return ", ".join(f"{text}: {'met' if met else 'NOT met'}" for met, text in asked)


def show(step, data, on_cpu):
    """One row of a table."""
    peak = max(data["rows"], key=lambda row: row["iops"])
    limit = max(row.get("limit_iops", 0) for row in data["rows"])
    gbps = f"{peak['gb_per_s']:.2f}" if "gb_per_s" in peak else "-"
    copied = f"{peak['copied_iops'] / 1e6:.2f}" if "copied_iops" in peak else "-"
    share = f"{data['of_limit']:.3f}" if "of_limit" in data else "-"
    latency = f"{data['latency_us']:.1f}" if "latency_us" in data else "-"
    print(f"{step.text:36}{peak['iops'] / 1e6:10.2f} {data['unit']:8}{gbps:>9}{limit / 1e6:10.2f}"
          f"{share:>9}{copied:>10}{peak['threads']:9}"
          f"{data.get('threads_for_90_percent', '-'):>8}{data['registers']:6}{latency:>9}{data['took_s']:8.1f}"
          f"  {'' if on_cpu else verdicts(step, peak, data)}", flush=True)
    if "spread_limit_iops" in peak:
        print(f"{'':36}{peak['spread_limit_iops'] / 1e6:10.2f} M: the limit with as many buffers as slots")


def table(bench, title, steps, emulated):
    """Run steps; emulated and real ones never meet."""
    print(f"\n{title}\n{'work':36}{'million':>10} {'':8}{'GB/s':>9}{'limit M':>10}{'of limit':>9}{'copied M':>10}"
          f"{'threads':>9}{'for 0.9':>8}{'regs':>6}{'alone us':>9}{'took s':>8}  asked for", flush=True)
    for step in steps:
        if bench.args.only and bench.args.only not in step.text:
            continue
        data = bench.run(step)
        if data and data["emulated"] != emulated:
            sys.exit(f"{step.text}: emulated is {data['emulated']}, and its table is the other")
        if data:
            show(step, data, bench.args.cpu)


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--cpu", action="store_true", help="kernels run on the CPU, with tiny sizes")
    ap.add_argument("--timeout", type=int, default=60, help="seconds for one step")
    ap.add_argument("--dir", help="where the file goes (default: $TMPDIR, or /tmp)")
    ap.add_argument("--out", help="file for the raw results, one JSON object a line")
    ap.add_argument("--only", help="steps whose text contains this")
    args = ap.parse_args()
    bench, start = Bench(args), time.monotonic()
    print(f"{time.strftime('%Y-%m-%d')}  Linux {platform.release()}, {os.cpu_count()} CPUs"
          + ("; kernels run on the CPU: these are no speeds of a GPU" if args.cpu else ""))
    bench.keep({"step": "machine", "linux": platform.release(), "cpus": os.cpu_count(), "cpu": args.cpu})
    table(bench, "EMULATED: proxies play a drive of host memory, or one that moves nothing", EMULATED, True)
    table(bench, "real: an ordinary file, by proxies", REAL, False)
    print(f"\nall took {time.monotonic() - start:.1f} s")
    return 1 if bench.failed else 0


sys.exit(main())
