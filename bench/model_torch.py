#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How fast models are loaded with torch, against safetensors' own loader and torch.load(mmap=True).

    model_torch.py [--device cuda] [--dir DIRECTORY] [--sizes 4G,16G] [--repeat 3] [--json FILE]

Each model is loaded from the page cache and cold; beside it stand the rate of pinned copies and, for cold
reads, that of O_DIRECT reads of the same file, right before or after each load. Then ten thousand tensors of
16 KiB, and the host memory that a load takes. Before each, everything written is on the disk: nothing is
written back while the clock runs. Prints a table, with what is asked of each row on a GPU, and below each of our
rows where its time went in its best turn; --json adds one line of JSON for each measurement to a file.
Exits 77 without torch, safetensors or the device. $PEERLANE_BUILD names the build directory.
"""

import argparse
import contextlib
import json
import os
import sys
import tempfile
import threading
import time

from model_files import cached_share, chill, disk_rate, plan, quiet, warm, write_model

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.abspath(os.environ.get("PEERLANE_BUILD", os.path.join(ROOT, "build")))
PEERLANE = "peerlane"
SAFETENSORS = "safetensors"
TORCH = "torch mmap"
# Turns of cold loads up to this size; larger models have fewer, and not all loaders take part in all of them.
SMALL_MODEL = 8 << 30


# ---- measurements


class Stages:
    """Where the time of our loads goes: the package's own steps, with a clock around each."""

    def __init__(self, peerlane):
        self.peerlane = peerlane
        self.spent = {}
        model, torch = peerlane._model.Model, peerlane._frameworks.TorchFramework
        self.steps = [
            (model, "__init__", "open"),
            (torch, "allocate", "allocate"),
            (torch, "before", "wait"),
            (model, "_read", "read"),
        ]
        self.plain = [getattr(owner, name) for owner, name, _ in self.steps]

    def __enter__(self):
        for (owner, name, stage), plain in zip(self.steps, self.plain):
            setattr(owner, name, self._timed(plain, stage))
        self.paths = self._paths()
        return self

    def __exit__(self, *_):
        for (owner, name, _), plain in zip(self.steps, self.plain):
            setattr(owner, name, plain)

    def _paths(self):
        return self.peerlane.stats()["read"]["path_bytes"]

    def _timed(self, plain, stage):
        def call(*args, **kwargs):
            begin = time.perf_counter()
            try:
                return plain(*args, **kwargs)
            finally:
                self.spent[stage] = self.spent.get(stage, 0) + time.perf_counter() - begin

        return call

    def found(self, seconds):
        """Milliseconds of each stage of a load that took @seconds, and the paths of its bytes."""
        stages = {name: round(spent * 1e3, 3) for name, spent in self.spent.items()}
        stages["rest"] = round((seconds - sum(self.spent.values())) * 1e3, 3)
        paths = {k: n - self.paths[k] for k, n in self._paths().items() if n > self.paths[k]}
        return {"ms": stages, "path_bytes": paths}


def timed(load, nbytes, settle=lambda: None, peerlane=None):
    """Seconds of a load, whose tensors are dropped, and, with @peerlane, where they went."""
    stages = Stages(peerlane) if peerlane else None
    settle()
    with stages or contextlib.nullcontext():
        begin = time.perf_counter()
        tensors = load()
        settle()
        seconds = time.perf_counter() - begin
    got = sum(t.numel() * t.element_size() for t in tensors.values())
    if got != nbytes:
        raise RuntimeError(f"{got} bytes were loaded, not {nbytes}")
    return seconds, stages.found(seconds) if stages else None


def middle(values):
    """The middle one; the lower of two."""
    return sorted(values)[(len(values) - 1) // 2]


class Times:
    """Seconds of loaders, turn by turn."""

    def __init__(self, peerlane=None):
        self.peerlane = peerlane
        self.seconds = {}
        self.stages = []  # of ours

    def take(self, name, load, nbytes, settle=lambda: None):
        """Time one load."""
        ours = self.peerlane if name == PEERLANE else None
        seconds, stages = timed(load, nbytes, settle, ours)
        self.seconds.setdefault(name, []).append(seconds)
        if stages:
            self.stages.append(stages)

    def best_stages(self):
        """Of the fastest of our turns."""
        seconds = self.seconds.get(PEERLANE)
        return self.stages[seconds.index(min(seconds))] if seconds and self.stages else None


def records(case, nbytes, times, limit, **more):
    """One record for each loader, with its rate, and its share of the limit and of safetensors'."""
    best = {name: nbytes / min(seconds) for name, seconds in times.seconds.items()}
    theirs = times.seconds.get(SAFETENSORS)
    for name, seconds in times.seconds.items():
        record = {
            "case": case,
            "loader": name,
            "bytes": nbytes,
            "seconds": [round(s, 6) for s in seconds],
            "gbps": round(best[name] / 1e9, 3),
            "gbps_median": round(nbytes / sorted(seconds)[len(seconds) // 2] / 1e9, 3),
            "of_limit": round(best[name] / limit, 3) if limit else None,
            # Of the turns that both took: who has more has more luck.
            "against_safetensors": (
                round(min(theirs[: len(seconds)]) / min(seconds[: len(theirs)]), 2) if theirs else None
            ),
            **more,
        }
        if name == PEERLANE and times.stages:
            record.update(stages=times.best_stages(), stages_of_turns=times.stages)
        yield record


def status_kib(*fields):
    """Fields of /proc/self/status in KiB."""
    with open("/proc/self/status", encoding="ascii") as f:
        found = dict(text.split(":", 1) for text in f)
    return [int(found[field].split()[0]) for field in fields]


KINDS = {"anon": "RssAnon", "file": "RssFile", "shmem": "RssShmem"}


class Watch(threading.Thread):
    """Looks again and again how much memory of each kind is resident."""

    def __init__(self):
        super().__init__(daemon=True)
        self.ready, self.over = threading.Event(), threading.Event()
        self.start()
        self.ready.wait()

    def run(self):
        self.most = self.first = status_kib(*KINDS.values())
        self.ready.set()
        while not self.over.wait(0.001):
            self.most = list(map(max, self.most, status_kib(*KINDS.values())))

    def stop(self):
        """KiB by which each kind grew at most, as far as was seen."""
        self.over.set()
        self.join()
        return {f"{kind}_kib": most - first for kind, most, first in zip(KINDS, self.most, self.first)}


def host_memory(load, pool_bytes):
    """KiB by which the most resident memory passed what was there before, and that beyond the pool.

    Page-cache pages that are mapped for a moment are resident too, though nobody has to keep them: they count
    here, and the kinds tell them apart.
    """
    watch = Watch()
    with open("/proc/self/clear_refs", "w", encoding="ascii") as f:
        f.write("5")  # VmHWM starts again from what is resident now
    (before,), pool = status_kib("VmRSS"), pool_bytes()
    tensors = load()
    (peak,), more = status_kib("VmHWM"), pool_bytes() - pool
    kinds = watch.stop()
    del tensors
    return {"peak_kib": peak - before, "beyond_pool_kib": peak - before - more // 1024, **kinds}


# ---- what is asked


def asked(record):
    """What is asked of a record, on a GPU: [(words, whether it is met)]."""
    if record["loader"] != PEERLANE:
        return []
    kind = record["case"].split()[0]
    if kind == "cached":
        return [
            ("45 GB/s", record["gbps"] >= 45),
            ("0.8 of the limit", record["of_limit"] >= 0.8),
            ("6 x safetensors", record["against_safetensors"] >= 6),
        ]
    if kind == "cold" and record["of_limit"] is None:
        return []
    if kind == "cold":
        return [("0.95 of the disk's own speed", record["of_limit"] >= 0.95)]
    if kind == "host":
        return [("under 64 MiB beyond the pool", record["beyond_pool_kib"] < 64 << 10)]
    return [("3 x safetensors", record["against_safetensors"] >= 3)]


def line(record):
    """A record for people."""
    text = f"{record['case']:16} {record['loader']:12} "
    if "peak_kib" in record:
        kinds = ", ".join(f"{kind} {record[f'{kind}_kib'] / 1024:.1f}" for kind in KINDS)
        text += (
            f"{record['peak_kib'] / 1024:8.1f} MiB more at the peak ({kinds}), "
            f"{record['beyond_pool_kib'] / 1024:.1f} MiB beyond the pool"
        )
    else:
        text += f"{record['gbps']:8.2f} GB/s"
        if record["of_limit"] is not None:
            text += f"  {record['of_limit']:.2f} of {record['limit_is']}"
        if record["against_safetensors"] is not None and record["loader"] != SAFETENSORS:
            text += f"  {record['against_safetensors']:.2f} x safetensors"
    for words, met in record.get("asked", []):
        text += f"; {words}: {'met' if met else 'NOT met'}"
    stages = record.get("stages")
    if stages:
        spent = ", ".join(f"{name} {ms:.1f}" for name, ms in stages["ms"].items())
        paths = ", ".join(f"{name} {n / 1e6:.0f} MB" for name, n in stages["path_bytes"].items())
        text += f"\n{'':30}ms: {spent}; by {paths}"
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
        if self.cuda and "loader" in record:
            record["asked"] = asked(record)
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

            found[TORCH] = torch_load
        return found

    def cached(self, loaders, total, case, limit=None):
        """Loads from the page cache, in turn."""
        still = quiet()
        times = Times(self.peerlane)
        pinned = self.limit() if limit else None
        for _ in range(self.args.repeat):
            for name, load in loaders.items():
                times.take(name, load, total, self.settle)
        if limit:
            still["limit_is"], pinned = limit, max(pinned, self.limit())
        for record in records(case, total, times, pinned, **still):
            yield self.say(record)

    def cold(self, loaders, total, case, path, pt):
        """Loads of files that are not in the page cache, each beside plain reads of the disk.

        A disk of many users is fast at one time and slow at another: what counts is how each load did against
        the reads right before or after it, and of these the middle.
        """
        small = total <= SMALL_MODEL
        still, times, disk, shares = quiet(), Times(self.peerlane), [], []
        for turn in range(self.args.cold if small else (self.args.cold + 1) // 2):
            # The other way round each time: a disk that gets faster or slower favours none.
            steps = [None, PEERLANE] if turn % 2 == 0 else [PEERLANE, None]
            if turn < (2 if small else 1):
                steps.append(SAFETENSORS)
            if small and not turn:
                steps.append(TORCH)
            for name in steps:
                chill(path)
                chill(pt)
                if name is None:
                    disk.append(disk_rate(path))
                    continue
                if name == PEERLANE:
                    shares.append(cached_share(self.peerlane, path))
                times.take(name, loaders[name], total, self.settle)
        more = {"limit_is": "O_DIRECT reads", "cached_share_before": shares, **still}
        more["disk_gbps"] = [round(rate / 1e9, 3) for rate in disk if rate]
        for record in records(case, total, times, max(filter(None, disk), default=None), **more):
            if record["loader"] == PEERLANE and all(disk):
                record["of_disk"] = [
                    round(total / spent / rate, 3) for spent, rate in zip(record["seconds"], disk)
                ]
                record["of_limit"] = middle(record["of_disk"])
            yield self.say(record)

    def model(self, directory, total):
        """One size: cached, then cold."""
        path, pt = os.path.join(directory, "m.safetensors"), os.path.join(directory, "m.pt")
        write_model(path, plan(total))
        self.torch.save(self.theirs(path), pt)
        label = f"{total / (1 << 30):g}GiB"
        loaders = self.loaders(path, pt)
        warm(path)
        warm(pt)
        yield from self.cached(loaders, total, f"cached {label}", "pinned copies")
        yield from self.cold(loaders, total, f"cold {label}", path, pt)
        os.unlink(path)
        os.unlink(pt)

    def many(self, directory):
        """Ten thousand small tensors."""
        path = os.path.join(directory, "many.safetensors")
        sizes = {f"layers.{i}.weight": 16 << 10 for i in range(self.args.many)}
        write_model(path, sizes)
        warm(path)
        total = sum(sizes.values())
        yield from self.cached(self.loaders(path), total, f"{len(sizes)} x 16KiB")

    def memory(self, directory):
        """Host memory of a load, cached, once everything has been used before."""
        path = os.path.join(directory, "memory.safetensors")
        write_model(path, plan(self.args.memory))
        warm(path)
        quiet()
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
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--cold", type=int, default=5, help="turns; of large models half of it")
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
            out(line(record))


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
