# SPDX-License-Identifier: MIT
"""The logic of bench/model_torch.py, with a stand-in for torch; what it measures here means nothing."""

import json
import os
import shutil
import sys
import unittest

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
        times = {"peerlane": [0.5, 0.25, 0.3], "safetensors": [2.0, 1.0, 1.5]}
        ours, other = model_torch.records("case", 10**9, times, 8e9, limit_is="x")
        self.assertEqual((ours["gbps"], ours["gbps_median"]), (4.0, 3.333))
        self.assertEqual((ours["of_limit"], ours["against_safetensors"]), (0.5, 4.0))
        self.assertEqual((other["gbps"], other["against_safetensors"]), (1.0, 1.0))
        self.assertIn("4.00 x safetensors", model_torch.line(ours))
        self.assertNotIn("x safetensors", model_torch.line(other))

    def test_short_load_is_noticed(self):
        short = {"a": fake_torch.Tensor(np.zeros(5, "u1"), fake_torch.uint8)}
        with self.assertRaisesRegex(RuntimeError, "loaded 5 bytes, not 6"):
            model_torch.measure({"x": lambda: short}, 6, 1)

    def test_memory_is_noticed(self):
        found = model_torch.host_memory(lambda: bytearray(b"x" * (64 << 20)), lambda: 0)
        self.assertGreater(found["peak_kib"], 60 << 10)
        pools = iter([0, 32 << 20])
        found = model_torch.host_memory(lambda: bytearray(b"x" * (64 << 20)), lambda: next(pools))
        self.assertLess(found["beyond_pool_kib"], found["peak_kib"])

    def test_page_cache(self):
        path = self.file("f", bytes(1 << 20))
        model_torch.warm(path)
        self.assertIn(model_torch.cached_share(peerlane, path), (1.0, None))
        model_torch.chill(path)  # tmpfs keeps it

    def test_everything(self):
        args = model_torch.arguments(
            ["--device", "cpu", "--dir", self.dir, "--sizes", "3M,1M", "--many", "20"]
            + ["--memory", "2M", "--repeat", "2", "--json", self.path("out")]
        )
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
        self.assertEqual(len(found), 2 * 2 * 3 + 2 + 2)
        self.assertEqual({r["loader"] for r in found}, {"peerlane", "safetensors", "torch mmap"})
        self.assertTrue(all(r["bytes"] and r["device"] == "cpu" for r in found))
        shutil.rmtree(self.dir)

    def test_sizes(self):
        sizes = [model_torch.size(t) for t in ("7", "2K", "3M", "4G")]
        self.assertEqual(sizes, [7, 2 << 10, 3 << 20, 4 << 30])


if __name__ == "__main__":
    unittest.main()
