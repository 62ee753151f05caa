# SPDX-License-Identifier: MIT
"""The logic of bench/model_torch.py, with a stand-in for torch; what it measures here means nothing."""

import json
import mmap
import os
import shutil
import sys
import time
import unittest
from unittest import mock

import fake_torch
import numpy as np

sys.modules["torch"] = fake_torch

import support  # noqa: E402

import peerlane  # noqa: E402

sys.path.insert(0, os.path.join(os.environ["PEERLANE_SOURCE"], "bench"))
import model_torch  # noqa: E402


def theirs(path, device="cpu"):
    """Another loader, the plain way."""
    tensors, _ = support.parse(path)
    return {
        name: fake_torch.Tensor(np.frombuffer(data, "<u2").reshape(shape), fake_torch.bfloat16)
        for name, (_, shape, data) in tensors.items()
    }


class Bench(support.Case):
    def test_models(self):
        sizes = model_torch.plan(100 << 20)
        self.assertEqual(sum(sizes.values()), 100 << 20)
        sizes = {"a": 1000, "b": 6, "c": 2}
        model_torch.write_model(self.path("m"), sizes)
        tensors, _ = support.parse(self.path("m"))
        self.assertEqual({n: len(t[2]) for n, t in tensors.items()}, sizes)
        got = peerlane.safetensors.load_file(self.path("m"))
        self.assertEqual({n: t.array.tobytes() for n, t in got.items()}, {n: t[2] for n, t in tensors.items()})

    def test_records(self):
        times = model_torch.Times()
        times.seconds = {"peerlane": [0.5, 0.25, 0.3], "safetensors": [2.0, 1.0, 1.5]}
        ours, other = model_torch.records("case", 10**9, times, 8e9, limit_is="x")
        self.assertEqual((ours["gbps"], ours["gbps_median"]), (4.0, 3.333))
        self.assertEqual((ours["of_limit"], ours["against_safetensors"]), (0.5, 4.0))
        self.assertEqual((other["gbps"], other["against_safetensors"]), (1.0, 1.0))
        self.assertIn("4.00 x safetensors", model_torch.line(ours))
        self.assertNotIn("x safetensors", model_torch.line(other))

    def test_short_load_is_noticed(self):
        short = {"a": fake_torch.Tensor(np.zeros(5, "u1"), fake_torch.uint8)}
        with self.assertRaisesRegex(RuntimeError, "5 bytes were loaded, not 6"):
            model_torch.timed(lambda: short, 6)

    def test_stages(self):
        """Where the time goes is told, and the package is as it was afterwards."""
        model_torch.write_model(self.path("m"), {"a": 1000, "b": 6})
        plain = peerlane._model.Model._read
        times = model_torch.Times(peerlane)
        for _ in range(2):
            times.take("peerlane", lambda: peerlane.safetensors.load_file(self.path("m")), 1006)
        self.assertIs(peerlane._model.Model._read, plain)
        found = times.best_stages()
        self.assertEqual(set(found["ms"]), {"open", "allocate", "wait", "read", "rest"})
        self.assertTrue(all(ms >= 0 for ms in found["ms"].values()))
        self.assertAlmostEqual(sum(found["ms"].values()), min(times.seconds["peerlane"]) * 1e3, 1)
        self.assertEqual(sum(found["path_bytes"].values()), 1006)

    def test_asked(self):
        """On a GPU each of our rows says what is asked of it, and whether it is met."""
        row = {"loader": "peerlane", "of_limit": 0.9, "against_safetensors": 5.9, "gbps": 46, "limit_is": "x"}
        text = model_torch.line({**row, "case": "cached 1GiB", "asked": model_torch.asked({**row, "case": "cached 1GiB"})})
        self.assertIn("45 GB/s: met; 0.8 of the limit: met; 6 x safetensors: NOT met", text)
        for case, met in (("cold 1GiB", False), ("10 x 16KiB", True)):
            self.assertEqual([m for _, m in model_torch.asked({**row, "case": case})], [met])
        row = {"case": "host memory", "loader": "peerlane", "beyond_pool_kib": 65536}
        self.assertFalse(model_torch.asked(row)[0][1])
        self.assertEqual(model_torch.asked({**row, "loader": "safetensors"}), [])

    def test_memory_is_noticed(self):
        found = model_torch.host_memory(lambda: bytearray(b"x" * (64 << 20)), lambda: 0)
        self.assertGreater(found["peak_kib"], 60 << 10)
        pools = iter([0, 32 << 20])
        found = model_torch.host_memory(lambda: bytearray(b"x" * (64 << 20)), lambda: next(pools))
        self.assertLess(found["beyond_pool_kib"], found["peak_kib"])

    def test_kinds_of_memory(self):
        """What is mapped of a file counts, and is told apart."""
        path = self.file("f", bytes(16 << 20))

        def load():
            with open(path, "rb") as f:
                view = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
            sum(view[i] for i in range(0, len(view), 4096))
            time.sleep(0.2)  # the watcher need not see more than this
            return view

        found = model_torch.host_memory(load, lambda: 0)
        self.assertGreater(found["peak_kib"], 15 << 10)
        self.assertGreater(found["file_kib"] + found["shmem_kib"], 15 << 10)
        self.assertLess(found["anon_kib"], 8 << 10)

    def test_page_cache(self):
        path = self.file("f", bytes(1 << 20))
        model_torch.warm(path)
        self.assertIn(model_torch.cached_share(peerlane, path), (1.0, None))
        model_torch.chill(path)  # tmpfs keeps it

    def test_everything(self):
        args = model_torch.arguments(
            ["--device", "cpu", "--dir", self.dir, "--sizes", "3M,1M", "--many", "20"]
            + ["--memory", "2M", "--repeat", "2", "--cold", "3", "--json", self.path("out")]
        )
        # The first is a large one: fewer turns, and not all loaders.
        model_torch.SMALL_MODEL, small = 2 << 20, model_torch.SMALL_MODEL
        self.addCleanup(setattr, model_torch, "SMALL_MODEL", small)
        # The whole machine is not to be written out for a test.
        model_torch.quiet, quiet = lambda: {"quiet_after": 0}, model_torch.quiet
        self.addCleanup(setattr, model_torch, "quiet", quiet)
        fake_torch.save = lambda state, path: model_torch.write_model(
            path, {n: t.numel() * t.element_size() for n, t in state.items()}
        )
        fake_torch.load = lambda path, mmap, weights_only: theirs(path)
        bench = model_torch.Bench(args, fake_torch, peerlane, theirs)
        try:
            model_torch.disk_rate(self.file("direct", bytes(8 << 20)))
        except OSError:  # no O_DIRECT here
            model_torch.disk_rate, saved = lambda path: 1e9, model_torch.disk_rate
            self.addCleanup(setattr, model_torch, "disk_rate", saved)
        lines = []
        model_torch.run(bench, lines.append)
        with open(self.path("out"), encoding="utf-8") as f:
            found = [json.loads(text) for text in f]
        self.assertEqual(len(lines), len(found))
        self.assertEqual(len(found), (3 + 2) + (3 + 3) + 2 + 2)
        turns = [len(r["seconds"]) for r in found if r["case"].startswith("cold")]
        self.assertEqual(turns, [2, 1] + [3, 2, 1])
        self.assertEqual({r["loader"] for r in found}, {"peerlane", "safetensors", "torch mmap"})
        self.assertTrue(all(r["bytes"] and r["device"] == "cpu" for r in found))
        shutil.rmtree(self.dir)

    def test_disk(self):
        """A load is compared with the reads of its own turn; the middle of that counts."""
        path = self.path("m")
        model_torch.write_model(path, {"a": 4 << 20})
        args = model_torch.arguments(["--device", "cpu", "--cold", "3"])
        bench = model_torch.Bench(args, fake_torch, peerlane, theirs)
        loaders = {**bench.loaders(path), model_torch.TORCH: lambda: theirs(path)}
        rates = [1e6, 1e12, 1e9]
        left = iter(rates)
        with mock.patch.multiple(model_torch, quiet=dict, disk_rate=lambda path: next(left)):
            ours = next(bench.cold(loaders, 4 << 20, "cold", path, path))
        for share, spent, rate in zip(ours["of_disk"], ours["seconds"], rates, strict=True):
            self.assertAlmostEqual(share, (4 << 20) / spent / rate, delta=0.01 * share + 0.001)
        self.assertEqual(ours["of_limit"], ours["of_disk"][2])
        self.assertEqual([model_torch.middle(v) for v in ([3], [4, 2], [5, 1, 3])], [3, 2, 3])

    def test_sizes(self):
        sizes = [model_torch.size(t) for t in ("7", "2K", "3M", "4G")]
        self.assertEqual(sizes, [7, 2 << 10, 3 << 20, 4 << 30])


if __name__ == "__main__":
    unittest.main()
