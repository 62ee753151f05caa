#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How fast models are loaded with torch, against safetensors' own loader and torch.load(mmap=True).

    model_torch.py [--device cuda] [--dir DIRECTORY] [--sizes 4G,16G] [--repeat 5] [--json FILE]

Each model is loaded from the page cache and, once each, cold; beside it stand the rate of pinned copies
and, for cold reads, that of O_DIRECT reads of the same file. Then ten thousand tensors of 16 KiB, and the
host memory that a load takes. Prints a table; --json adds one line of JSON for each measurement to a file.
Exits 77 without torch, safetensors or the device. $PEERLANE_BUILD names the build directory.
"""

import argparse
import json
import mmap
import os
import struct
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.abspath(os.environ.get("PEERLANE_BUILD", os.path.join(ROOT, "build")))
BLOCK = 64 << 20
PEERLANE = "peerlane"
SAFETENSORS = "safetensors"


# ---- files


def plan(total):
    """Names and byte sizes of the tensors of a model: large matrices, and small vectors between."""
    large, small = 32 << 20, 8 << 10
    sizes, left, i = {}, total, 0
    while left:
        for name, size in ((f"layers.{i}.weight", large), (f"layers.{i}.norm", small)):
            size = min(size, left)
            if size:
                sizes[name] = size
            left -= size
        i += 1
    return sizes


def write_model(path, sizes):
    """A safetensors file with BF16 tensors of such sizes, with data that differs from block to block."""
    header, at = {}, 0
    for name, size in sizes.items():
        header[name] = {"dtype": "BF16", "shape": [size // 2], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    block = os.urandom(min(BLOCK, at))
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        number = 0
        while at:
            n = min(at, BLOCK)
            f.write(struct.pack("<Q", number) + block[8:n] if n >= 8 else block[:n])
            at -= n
            number += 1
        f.flush()
        os.fsync(f.fileno())
    return os.path.getsize(path)


def warm(path):
    """Read the whole file into the page cache."""
    with open(path, "rb", buffering=0) as f:
        memory = bytearray(BLOCK)
        while f.readinto(memory):
            pass


def chill(path):
    """Drop the file from the page cache; whether that was done shows in cached_share()."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def cached_share(peerlane, path):
    """How much of a file is in the page cache, 0 to 1; None if the kernel does not tell."""
    size = os.path.getsize(path)
    with peerlane.open(path) as f:
        memory = bytearray(1)
        # Nothing is read: the memory need not be as long as the file.
        said = f.explain(peerlane.Buffer.at(peerlane.Buffer(memory).address, size, keep=memory))
    return None if said.cached_bytes is None else said.cached_bytes / size


def disk_rate(path, nr_threads=8, block=8 << 20, limit=8 << 30):
    """Bytes a second of plain O_DIRECT reads by several threads, with nothing else done."""
    size = min(os.path.getsize(path), limit) // block * block
    places = iter(range(0, size, block))
    lock = threading.Lock()
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)

    def read():
        memory = mmap.mmap(-1, block)
        while True:
            with lock:
                at = next(places, None)
            if at is None:
                return
            os.preadv(fd, [memory], at)

    threads = [threading.Thread(target=read) for _ in range(nr_threads)]
    begin = time.perf_counter()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    seconds = time.perf_counter() - begin
    os.close(fd)
    return size / seconds if size else None


# ---- measurements


def measure(loaders, nbytes, repeat, before=lambda: None, settle=lambda: None):
    """Time loaders in turn, @repeat times: {name: [seconds, ...]}. What they return is dropped."""
    times = {name: [] for name in loaders}
    for _ in range(repeat):
        for name, load in loaders.items():
            before()
            settle()
            begin = time.perf_counter()
            tensors = load()
            settle()
            times[name].append(time.perf_counter() - begin)
            got = sum(t.numel() * t.element_size() for t in tensors.values())
            if got != nbytes:
                raise RuntimeError(f"{name} loaded {got} bytes, not {nbytes}")
            del tensors
    return times


def records(case, nbytes, times, limit, **more):
    """One record for each loader, with its rate, and its share of the limit and of safetensors'."""
    best = {name: nbytes / min(seconds) for name, seconds in times.items()}
    for name, seconds in times.items():
        yield {
            "case": case,
            "loader": name,
            "bytes": nbytes,
            "seconds": [round(s, 6) for s in seconds],
            "gbps": round(best[name] / 1e9, 3),
            "gbps_median": round(nbytes / sorted(seconds)[len(seconds) // 2] / 1e9, 3),
            "of_limit": round(best[name] / limit, 3) if limit else None,
            "against_safetensors": (
                round(best[name] / best[SAFETENSORS], 2) if SAFETENSORS in best else None
            ),
            **more,
        }


def memory_kib(field):
    """A field of /proc/self/status in KiB."""
    with open("/proc/self/status", encoding="ascii") as f:
        for line in f:
            if line.startswith(field + ":"):
                return int(line.split()[1])
    raise RuntimeError(f"no {field} in /proc/self/status")


def host_memory(load, pool_bytes):
    """KiB by which the most resident memory passed what was there before, and that beyond the pool."""
    with open("/proc/self/clear_refs", "w", encoding="ascii") as f:
        f.write("5")  # VmHWM starts again from what is resident now
    before, pool = memory_kib("VmRSS"), pool_bytes()
    tensors = load()
    peak, more = memory_kib("VmHWM"), pool_bytes() - pool
    del tensors
    return {"peak_kib": peak - before, "beyond_pool_kib": peak - before - more // 1024}


def line(record):
    """A record for people."""
    text = f"{record['case']:16} {record['loader']:12} {record['gbps']:8.2f} GB/s"
    if record["of_limit"] is not None:
        text += f"  {record['of_limit']:.2f} of {record['limit_is']}"
    if record["against_safetensors"] is not None and record["loader"] != SAFETENSORS:
        text += f"  {record['against_safetensors']:.2f} x safetensors"
    return text


class Bench:
    """The measurements, with the libraries they are made with."""

    def __init__(self, args, torch, peerlane, theirs):
        self.args, self.torch, self.peerlane, self.theirs = args, torch, peerlane, theirs
        self.device = args.device
        self.cuda = args.device.startswith("cuda")

    def settle(self):
        if self.cuda:
            self.torch.cuda.synchronize()

    def say(self, record):
        record = {"bench": "model_torch", "device": self.device, **record}
        if self.args.json:
            with open(self.args.json, "a", encoding="utf-8") as f:
                f.write(json.dumps(record) + "\n")
        return record

    def limit(self):
        """Bytes a second of pinned copies; of the simulator where there is no GPU."""
        return self.peerlane.context().copy_limit(0)

    def loaders(self, path, pt=None):
        ours, torch = self.peerlane.safetensors.load_file, self.torch
        found = {
            PEERLANE: lambda: ours(path, self.device),
            SAFETENSORS: lambda: self.theirs(path, device=self.device),
        }
        if pt:

            def torch_load():
                state = torch.load(pt, mmap=True, weights_only=True)
                return {name: t.to(self.device) for name, t in state.items()}

            found["torch mmap"] = torch_load
        return found

    def model(self, directory, total):
        """One size: cached, then cold."""
        path, pt = os.path.join(directory, "m.safetensors"), os.path.join(directory, "m.pt")
        write_model(path, plan(total))
        self.torch.save(self.theirs(path), pt)
        label = f"{total / (1 << 30):g}GiB"
        loaders = self.loaders(path, pt)
        warm(path)
        warm(pt)
        limit = self.limit()
        times = measure(loaders, total, self.args.repeat, settle=self.settle)
        limit = max(limit, self.limit())
        for record in records(f"cached {label}", total, times, limit, limit_is="pinned copies"):
            yield self.say(record)
        disk = disk_rate(path)

        def cold():
            chill(path)
            chill(pt)

        cold()
        share = cached_share(self.peerlane, path)
        times = measure(loaders, total, self.args.cold, before=cold, settle=self.settle)
        more = {"limit_is": "O_DIRECT reads", "cached_share_before": share}
        for record in records(f"cold {label}", total, times, disk, **more):
            yield self.say(record)
        os.unlink(path)
        os.unlink(pt)

    def many(self, directory):
        """Ten thousand small tensors."""
        path = os.path.join(directory, "many.safetensors")
        sizes = {f"layers.{i}.weight": 16 << 10 for i in range(self.args.many)}
        write_model(path, sizes)
        warm(path)
        total = sum(sizes.values())
        times = measure(self.loaders(path), total, self.args.repeat, settle=self.settle)
        for record in records(f"{len(sizes)} x 16KiB", total, times, None):
            yield self.say(record)

    def memory(self, directory):
        """Host memory of a load, cached, once everything has been used before."""
        path = os.path.join(directory, "memory.safetensors")
        write_model(path, plan(self.args.memory))
        warm(path)
        pool = lambda: self.peerlane.stats()["pool_bytes"]  # noqa: E731
        for name, load in self.loaders(path).items():
            load()
            found = host_memory(load, pool)
            record = {"case": "host memory", "loader": name, "bytes": self.args.memory, **found}
            yield self.say(record)


def size(text):
    """4G, 512M ... in bytes."""
    units = {"K": 10, "M": 20, "G": 30}
    return int(text[:-1]) << units[text[-1]] if text[-1] in units else int(text)


def arguments(argv):
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--dir", default="/var/tmp")
    parser.add_argument("--sizes", default="4G,16G")
    parser.add_argument("--many", type=int, default=10000)
    parser.add_argument("--memory", type=size, default="4G")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--cold", type=int, default=1)
    parser.add_argument("--json")
    return parser.parse_args(argv)


def run(bench, out=print):
    """Everything, printed as it comes."""
    with tempfile.TemporaryDirectory(dir=bench.args.dir, prefix="peerlane-bench-") as directory:
        for text in bench.args.sizes.split(","):
            for record in bench.model(directory, size(text)):
                out(line(record))
        for record in bench.many(directory):
            out(line(record))
        for record in bench.memory(directory):
            out(
                f"{record['case']:16} {record['loader']:12} {record['peak_kib'] / 1024:8.1f} MiB more at "
                f"the peak, {record['beyond_pool_kib'] / 1024:.1f} MiB beyond the pool"
            )


def main(argv):
    args = arguments(argv)
    try:
        import torch
        from safetensors.torch import load_file as theirs
    except ImportError as problem:
        print(f"torch and safetensors are needed: {problem}")
        return 77
    if args.device.startswith("cuda") and not torch.cuda.is_available():
        print("no GPU; --device cpu runs without one, which says nothing of GPUs")
        return 77
    for inside in ("python/libpeerlane.so.0", "lib/libpeerlane.so.0"):
        if os.path.exists(os.path.join(BUILD, inside)):
            os.environ.setdefault("PEERLANE_LIBRARY", os.path.join(BUILD, inside))
    sys.path.insert(0, os.path.join(ROOT, "python"))
    import peerlane

    bench = Bench(args, torch, peerlane, theirs)
    name = torch.cuda.get_device_name() if bench.cuda else "host memory"
    machine = {
        "case": "machine",
        "torch": torch.__version__,
        "gpu": name,
        "backend": peerlane.context().backend,
        "cpus": os.cpu_count(),
        "copy_limit_gbps": round(bench.limit() / 1e9, 2),
    }
    bench.say(machine)
    print(", ".join(f"{k} {v}" for k, v in machine.items() if k != "case"))
    run(bench)
    return 0


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)
    sys.exit(main(sys.argv[1:]))
