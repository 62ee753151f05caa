#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measure the engine on a GPU against the pinned-copy limit, raw O_DIRECT and libcufile.

Every peer runs in a process of its own, on the same file, in the same run. Prints a table of
ratios with what is asked of each, and writes every raw result as a line of JSON. With --cufile the
drop-in libcufile is compared with the engine by one and the same loop, that of peer_cufile.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
# Passes of each side where our two interfaces are compared. Calls of some microseconds depend on where threads and
# memory happen to be, so for these the libraries are opened anew for each pass, and there are more of them.
TURNS, SHORT_TURNS = 5, 15


class Row:
    """One shape of work and what is asked of it."""

    def __init__(self, text, op, size, threads=1, batch=0, random=False, cold=False, total=None,
                 limit=None, peer=None, latency=None, raw=None):
        self.text, self.op, self.size, self.threads, self.batch = text, op, size, threads, batch
        self.random, self.cold, self.total = random, cold, total
        self.limit, self.peer, self.latency, self.raw = limit, peer, latency, raw


def rows(full):
    """The shapes; full is the size of the file."""
    small = 128 * MIB
    cold = min(full, GIB)
    out = [
        Row("one call, cached", "read", full, total=full, limit=0.95, peer=2.3),
        Row("16 MiB calls, cached", "read", 16 * MIB, total=full, peer=3.5),
        Row("1 MiB calls, cached", "read", MIB, total=full // 2, peer=2.5),
        Row("1 MiB calls, 8 threads, cached", "read", MIB, threads=8, total=full, peer=1.8),
        Row("4 KiB random, cached", "read", 4 * KIB, random=True, total=small, latency=1.0),
        Row("4 KiB random, batch of 128", "read", 4 * KIB, batch=128, random=True, total=small,
            peer=5.0),
        Row("1 MiB calls, cold", "read", MIB, cold=True, total=cold, raw=0.97),
        Row("16 MiB calls, cold", "read", 16 * MIB, cold=True, total=cold, raw=0.97),
        Row("one call, cold", "read", full, cold=True, total=full, raw=0.97),
        Row("one call, cached", "write", full, total=full, peer=2.0),
        Row("16 MiB calls, cached", "write", 16 * MIB, total=full, peer=1.0),
        Row("1 MiB calls, cached", "write", MIB, total=full // 2, peer=1.0),
        Row("1 MiB calls, 8 threads, cached", "write", MIB, threads=8, total=full, peer=1.0),
        Row("4 KiB random, cached", "write", 4 * KIB, random=True, total=small, peer=1.0),
        Row("4 KiB random, batch of 128", "write", 4 * KIB, batch=128, random=True, total=small,
            peer=1.0),
        Row("1 MiB calls, cold", "write", MIB, cold=True, total=cold, peer=1.0),
        Row("16 MiB calls, cold", "write", 16 * MIB, cold=True, total=cold, peer=1.0),
        Row("one call, cold", "write", full, cold=True, total=full, peer=1.0),
    ]
    return out


def objects(text):
    """All JSON objects in a text."""
    found = []
    while text.strip():
        data, end = json.JSONDecoder().raw_decode(text.lstrip())
        found.append(data)
        text = text.lstrip()[end:]
    return found


class Bench:
    """Runs the programs and keeps what they printed."""

    def __init__(self, args):
        self.build = os.environ.get("PEERLANE_BUILD", "build")
        self.args = args
        self.out = open(args.out, "w", encoding="utf-8") if args.out else None
        self.file = os.path.join(args.dir, "bench.dat")

    def keep(self, who, data):
        """Write one raw result."""
        if self.out:
            self.out.write(json.dumps({"who": who, **data}) + "\n")
            self.out.flush()

    def run(self, who, command, env=None):
        """Run a program that prints one JSON object; that, or None with the reason printed."""
        return (self.run_all([who], command, env) or [None])[0]

    def run_all(self, names, command, env=None):
        """The same with as many objects as there are names."""
        who = names[-1]
        try:
            p = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, timeout=self.args.timeout,
                               env={**os.environ, **(env or {})}, check=False)
        except subprocess.TimeoutExpired:
            print(f"  {who}: no end within {self.args.timeout} s", flush=True)
            return None
        if p.returncode != 0:
            last = (p.stderr.strip().splitlines() or ["?"])[-1]
            print(f"  {who}: exit {p.returncode}: {last}", flush=True)
            return None
        data = objects(p.stdout)
        for name, d in zip(names, data):
            self.keep(name, d)
        return data

    def limits(self, *words):
        """The machine's own limits."""
        return self.run("limits", [f"{self.build}/bench/limits", *words, "--repeat",
                                   str(self.args.repeat)])

    def settle(self):
        """Written back, and long enough ago for the engine to read the file ahead."""
        fd = os.open(self.file, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
        time.sleep(0.1)

    def loop(self, row, names, repeat, *words):
        """Libraries on this shape, by the loop of peer_cufile."""
        command = [f"{self.build}/bench/peer_cufile", "--file", self.file, "--op", row.op,
                   "--size", str(row.size), "--threads", str(row.threads), "--bytes",
                   str(row.total), "--repeat", str(repeat), "--who", names[-1],
                   "--cold" if row.cold else "--cached", *words]
        if row.random:
            command.append("--random")
        if row.batch:
            command += ["--batch", str(row.batch)]
        return self.run_all(names, command, {"CUFILE_LOGFILE_PATH": os.path.join(self.args.dir,
                                                                                 "cufile.log")})

    def peer(self, row):
        """NVIDIA's libcufile, which needs the udev record of the disk."""
        lib = ["--lib", self.args.peer_lib] if self.args.peer_lib else []
        found = self.loop(row, ["libcufile"], self.args.repeat, "--udev-record", *lib)
        return found and found[0]

    def both(self, row):
        """Our engine by its own interface and through the drop-in, in turns; a pair of results."""
        native = f"{self.build}/python/libpeerlane.so.0"  # needs no other library
        if not os.path.exists(native):
            native = f"{self.build}/lib/libpeerlane.so.0"
        short = row.size < MIB
        return self.loop(row, ["peerlane-native", "peerlane-cufile"],
                         max(SHORT_TURNS if short else TURNS, self.args.repeat), "--native", native,
                         "--lib", f"{self.build}/cufile/libcufile.so.0", *(["--anew"] if short else []))

    def stream(self, lib, who, streams):
        """Stream-ordered reads of 1 MiB."""
        command = [f"{self.build}/bench/stream_cufile", "--file", self.file, "--streams",
                   str(streams), "--bytes", str(GIB), "--repeat", str(self.args.repeat),
                   "--who", who]
        if lib:
            command += ["--lib", lib]
        return self.run(who, command, {"CUFILE_LOGFILE_PATH": os.path.join(self.args.dir,
                                                                           "cufile.log")})

    def ours(self, row, flags=""):
        """The engine on this shape."""
        op = ("rand" if row.random else "") + row.op
        command = [f"{self.build}/tools/peerlane", "bench", "--backend", "cuda", "--json",
                   "--op", op, "--size", str(row.size), "--threads", str(row.threads), "--bytes",
                   str(row.total), "--repeat", str(self.args.repeat), "--force",
                   "--cold" if row.cold else "--cached"]
        if row.batch:
            command += ["--batch", str(row.batch)]
        if row.cold and row.op == "write":
            command.append("--direct")
        data = self.run("peerlane", command + [self.file], {"PEERLANE_FLAGS": flags})
        return data and {**data["rows"][0], "limit": data["limit"].get("gb_per_s")}


def ratio(a, b):
    """a / b where both are known."""
    return a / b if a and b else None


def show(value, form="{:.2f}"):
    """A number or a dash."""
    return form.format(value) if value is not None else "-"


def verdict(pairs):
    """Whether every wish was met; pairs of (value, at least)."""
    asked = [(v, w) for v, w in pairs if w is not None]
    if not asked:
        return ""
    return "met" if all(v is not None and v >= w for v, w in asked) else "NOT met"


def rate_of(row, data):
    """What counts in a result of peer_cufile: calls where they are short, else bytes."""
    return data and (data["ops_per_s"] if row.size < MIB else data["gbps"])


def through_cufile(bench, row, peer_rate):
    """What the cuFile interface costs on this shape.

    "peerlane bench" has other buffers and other random places, and the ratio to it would measure
    these too. So both sides are run by one loop in one process, pass by pass in turns, and each pass is
    compared with the one beside it: neither a machine that grows slower or faster meanwhile nor a process
    that found a better place in memory decides. The middle ratio counts; half of all are in the range given.
    """
    if row.op == "read":
        bench.settle()
    found = bench.both(row)
    if not found:
        return
    native, via = found
    each = [v / n for n, v in zip(native["gbps_each"], via["gbps_each"])]
    low, of_engine, high = statistics.quantiles(each, n=4, method="inclusive")
    of_peer = ratio(rate_of(row, via), peer_rate)
    wishes = [(of_engine, 0.97), (of_peer, 3.0 if row.batch and row.op == "read" else None)]
    print(f"{row.op:6}{row.text:32}{via['gbps']:7.2f} {via['ops_per_s']:9.0f}"
          f" {via['lat_us_p50']:10.1f} {via['cpu_s_per_gb']:7.3f} {'':7} {'':6} {show(of_peer):>6}"
          f" {'':6}  {show(of_engine)} of the engine ({show(low)} to {show(high)}), {verdict(wishes)}; the engine by that loop:"
          f" {show(native['gbps'])} GB/s, {show(native['lat_us_p50'], '{:.1f}')} us", flush=True)


def measure(bench, row, limits, raw):
    """One row of the table; the peer's rate."""
    if row.op == "read":
        bench.settle()
    peer = bench.peer(row)
    ours = bench.ours(row)
    gbps = ours and ours["gb_per_s"]
    peer_rate = rate_of(row, peer)
    our_rate = ours and (ours["iops"] if row.size < MIB else gbps)
    limit = limits.get(row.op)
    of = {
        "limit": ratio(gbps, limit),
        "peer": ratio(our_rate, peer_rate),
        "raw": ratio(gbps, raw.get((row.op, row.size))),
        "latency": ratio(peer and peer["lat_us_p50"], ours and ours["p50_us"]),
    }
    wishes = [(of["limit"], row.limit), (of["peer"], row.peer), (of["raw"], row.raw),
              (of["latency"], row.latency)]
    asked = ", ".join(f"{w} x {n}" for (v, w), n in zip(wishes, ("limit", "libcufile", "raw",
                                                                 "libcufile's speed")) if w)
    if row.peer and limit and peer and peer["gbps"] * row.peer > limit:
        asked += f" ({peer['gbps'] * row.peer:.1f} GB/s: more than the bus carries)"
    print(f"{row.op:6}{row.text:32}{show(gbps):>7} {show(ours and ours['iops'], '{:.0f}'):>9}"
          f" {show(ours and ours['p50_us'], '{:.1f}'):>10} {show(ours and ours['cpu_s_per_gb'], '{:.3f}'):>7}"
          f" {show(peer and peer['gbps']):>7} {show(of['limit']):>6} {show(of['peer']):>6}"
          f" {show(of['raw']):>6}  {ours['path'] if ours else '-':9}{verdict(wishes):8} {asked}", flush=True)
    return peer_rate


def stream_rows(bench, peer_lib):
    """Stream-ordered reads of 1 MiB through both libraries."""
    bench.settle()
    print("\nstream-ordered, through the cuFile interface")
    for streams in (1, 4, 16):
        via = bench.stream(f"{bench.build}/cufile/libcufile.so.0", "peerlane-cufile", streams)
        peer = bench.stream(peer_lib, "libcufile", streams)
        of_peer = ratio(via and via["gbps"], peer and peer["gbps"])
        print(f"{'read':6}{f'1 MiB calls in {streams} streams, cached':36}"
              f"{show(via and via['gbps']):>7}  cuFile {show(peer and peer['gbps']):>6}"
              f"  {show(of_peer)} x libcufile {verdict([(of_peer, 3.0)])}", flush=True)


def cpu_row(bench, full):
    """What the largest cached read costs, in place and by copying."""
    row = Row("", "read", full, total=full)
    bench.settle()
    copy = bench.ours(row, "no-in-place")
    place = bench.ours(row, "save-cpu")
    plain = bench.limits("buffered", "--file", bench.file, "--size", "1M", "--threads", "8")
    if not copy or not place:
        return
    saved = place["cpu_s_per_gb"] / copy["cpu_s_per_gb"]
    print("\nCPU seconds per GB of the largest cached read")
    if plain:
        print(f"  plain pread into host memory, 8 threads   {plain['cpu_s_per_gb']:.3f}"
              f"  at {plain['gbps']:.1f} GB/s")
    print(f"  engine, copying (the default)             {copy['cpu_s_per_gb']:.3f}"
          f"  at {copy['gb_per_s']:.1f} GB/s")
    print(f"  engine, in place (save-cpu)               {place['cpu_s_per_gb']:.3f}"
          f"  at {place['gb_per_s']:.1f} GB/s, {place['path']};"
          f" {saved:.2f} of copying, {verdict([(-saved, -1 / 3)])} (asked for: a third)")


def raw_rates(bench, full):
    """Best raw O_DIRECT rates over 1, 4 and 16 threads, by call size."""
    raw = {}
    for size in (MIB, 16 * MIB):
        d = bench.limits("direct", "--file", bench.file, "--op", "read", "--size", str(size),
                         "--bytes", str(min(full, GIB)))
        if d:
            raw[("read", size)] = max(d["gbps_by_threads"].values())
            print(f"  raw O_DIRECT read, {size // MIB} MiB calls: "
                  + ", ".join(f"{t} threads {v:.2f}" for t, v in d["gbps_by_threads"].items())
                  + " GB/s", flush=True)
    if raw:
        raw[("read", full)] = max(raw.values())
    return raw


def bare_loop(bench):
    """What threads without an engine make of 1 MiB calls: cores and memory set this limit."""
    command = [f"{bench.build}/bench/bare", "--file", bench.file, "--repeat", str(bench.args.repeat)]
    p = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                       timeout=bench.args.timeout, check=False)
    best, alone = {}, {}
    for line in p.stdout.splitlines():
        d = json.loads(line)
        bench.keep("bare", d)
        into = alone if d["how"] == "copy only" else best
        into[d["threads"]] = max(into.get(d["threads"], 0), d["gbps"])
    for words, found in (("of pread and copy", best), ("of copies alone", alone)):
        if found:
            print(f"  bare loop {words}, 1 MiB calls: "
                  + ", ".join(f"{t} threads {v:.2f}" for t, v in found.items()) + " GB/s", flush=True)


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--dir", help="where the file goes (default: a temporary folder in /var/tmp)")
    ap.add_argument("--bytes", type=int, default=4 * GIB, help="size of the file")
    ap.add_argument("--repeat", type=int, default=5, help="passes of each measurement")
    ap.add_argument("--timeout", type=int, default=120, help="seconds for one program")
    ap.add_argument("--out", help="file for the raw results, one JSON object a line")
    ap.add_argument("--cufile", action="store_true",
                    help="the drop-in libcufile too, and stream-ordered reads")
    ap.add_argument("--peer-lib", help="NVIDIA's libcufile.so.0, where the loader has none")
    ap.add_argument("--only", help="rows whose text contains this")
    args = ap.parse_args()
    tmp = None
    if not args.dir:
        tmp = tempfile.TemporaryDirectory(dir="/var/tmp", prefix="peerlane-bench-")
        args.dir = tmp.name
    bench = Bench(args)
    print(f"{time.strftime('%Y-%m-%d')}  {platform.node()}  Linux {platform.release()}, "
          f"{os.cpu_count()} CPUs")
    subprocess.run([f"{bench.build}/bench/peer_cufile", "--file", bench.file, "--create",
                    str(args.bytes)], check=True)
    limits = {}
    for op in ("read", "write"):
        d = bench.limits("copy", "--op", op)
        if d:
            limits[op] = d["gbps"]
            print(f"  pinned copy, {'host to GPU' if op == 'read' else 'GPU to host'}: "
                  f"{d['gbps']:.2f} GB/s")
    if not limits:
        sys.exit("no GPU here: see bench/sim.py")
    raw = {} if args.only else raw_rates(bench, args.bytes)
    if not args.only:
        bare_loop(bench)
    print(f"\n{'op':6}{'shape':32}{'GB/s':>7} {'ops/s':>9} {'p50 us':>10} {'CPU/GB':>7} {'cuFile':>7}"
          f" {'/limit':>6} {'/peer':>6} {'/raw':>6}  {'path':9}{'':8} asked for")
    wanted = [row for row in rows(args.bytes)
              if not args.only or args.only in row.op + " " + row.text]
    peers = [measure(bench, row, limits, raw) for row in wanted]
    if args.cufile and (not args.only or args.only in "read streams"):
        stream_rows(bench, args.peer_lib)
    if not args.only:
        cpu_row(bench, args.bytes)
    if args.cufile and wanted:
        print("\nthrough the cuFile interface")
        for row, peer_rate in zip(wanted, peers):
            through_cufile(bench, row, peer_rate)
    if tmp:
        tmp.cleanup()


main()
