# SPDX-License-Identifier: MIT
"""What is done for torch, with a stand-in for it; the real one is in tests/gpu/python_torch.py."""

import errno
import sys
import unittest

import fake_torch
import numpy as np

sys.modules["torch"] = fake_torch

import support  # noqa: E402

import peerlane  # noqa: E402
from peerlane import _context  # noqa: E402
from peerlane.safetensors import load_file, safe_open, save_file  # noqa: E402

torch = fake_torch


class Torch(support.Case):
    def model(self):
        made = [
            ("odd", "U8", (3,), b"abc"),
            ("f32", "F32", (2, 3), support.pattern(24, 1)),
            ("bf16", "BF16", (5, 7), support.pattern(70, 2)),
            ("fp8", "F8_E4M3", (9,), support.pattern(9, 3)),
            ("fp4", "F4", (3, 4), support.pattern(6, 4)),
            ("one", "C64", (), support.pattern(8, 5)),
            ("none", "I16", (4, 0), b""),
            ("flag", "BOOL", (2,), b"\1\0"),
        ]
        support.write_model(self.path("m"), made)
        return made

    def check(self, got, made):
        self.assertEqual(set(got), {m[0] for m in made})
        for name, dtype, shape, data in made:
            t = got[name]
            self.assertIsInstance(t, torch.Tensor)
            self.assertEqual(t.array.tobytes(), data, name)
            self.assertEqual(t.shape, (3, 2) if dtype == "F4" else shape, name)
        self.assertIs(got["bf16"].dtype, torch.bfloat16)
        self.assertIs(got["fp4"].dtype, torch.float4_e2m1fn_x2)

    def test_load_and_save(self):
        made = self.model()
        for per_tensor in (False, True):
            got = load_file(self.path("m"), per_tensor=per_tensor)
            self.check(got, made)
        save_file(got, self.path("n"))
        self.assertEqual(support.parse(self.path("n"))[0], support.parse(self.path("m"))[0])

    def test_one_allocation(self):
        self.model()
        got = load_file(self.path("m"))
        low = min(t.data_ptr() for t in got.values() if t.numel())
        high = max(t.data_ptr() for t in got.values() if t.numel())
        self.assertLess(high - low, 4096)

    def test_slices(self):
        self.model()
        whole = load_file(self.path("m"))["bf16"].array
        with safe_open(self.path("m"), "pt") as f:
            part = f.get_slice("bf16")
            for key in (slice(1, 3), (slice(None), slice(2, 5)), (3, slice(None, None, 2)), (1, 1)):
                np.testing.assert_array_equal(part[key].array, whole[key])
                self.assertTrue(part[key].array.flags.c_contiguous)
            with self.assertRaisesRegex(ValueError, "negative step"):
                part[::-1]
            self.assertEqual(f.get_slice("fp4")[1:2].shape, (1, 2))
            with self.assertRaisesRegex(ValueError, "less than a byte"):
                f.get_slice("fp4")[1:2, 2:4]

    def test_refused(self):
        support.write_model(self.path("m"), [("six", "F6_E3M2", (4,), b"abc")])
        with self.assertRaisesRegex(ValueError, '"six": torch has no type for F6_E3M2'):
            load_file(self.path("m"))
        with self.assertRaisesRegex(ValueError, "no such device: 'gpu'; torch says"):
            load_file(self.path("m"), "gpu")
        with self.assertRaisesRegex(ValueError, 'torch has no tensors on the simulator'):
            load_file(self.path("m"), "sim", framework="pt")
        self.assertIsInstance(load_file(self.path("m"), "sim")["six"], peerlane.Tensor)
        self.assertEqual(load_file(self.path("m"), "cuda")["six"].device, "sim:0")
        with self.assertRaises(peerlane.Error) as caught:
            load_file(self.path("m"), "cuda", framework="pt")
        self.assertEqual(caught.exception.errno, errno.ENODEV)
        self.assertIn("cuda", caught.exception.explanation)
        rows = torch.Tensor(np.zeros((4, 4), "f4")[:, :2], torch.float32)
        with self.assertRaisesRegex(ValueError, '"x": the memory is not contiguous'):
            save_file({"x": rows}, self.path("n"))
        double = torch.Tensor(np.zeros(4, "c16"), torch.complex128)
        with self.assertRaisesRegex(ValueError, '"x": safetensors has no type for torch.complex128'):
            save_file({"x": double}, self.path("n"))
        sparse = torch.Tensor(np.zeros(4, "f4"), torch.float32)
        sparse.layout = "sparse_coo"
        with self.assertRaisesRegex(ValueError, '"x".*sparse_coo'):
            save_file({"x": sparse}, self.path("n"))
        lazy = torch.Tensor(np.zeros(4, "c8"), torch.complex64)
        lazy.conj = True
        with self.assertRaisesRegex(ValueError, '"x": the memory is to be conjugated'):
            save_file({"x": lazy}, self.path("n"))
        with self.assertRaisesRegex(ValueError, "device mps"):
            peerlane.Buffer(torch.Tensor(np.zeros(4), torch.float64, "mps"))

    def test_other_devices_by_way_of_the_host(self):
        made = self.model()
        got = load_file(self.path("m"), "mps")
        self.check(got, made)
        self.assertTrue(all(t.moved and t.device.type == "mps" for t in got.values()))
        save_file(got, self.path("n"))
        self.assertEqual(support.parse(self.path("n"))[0], support.parse(self.path("m"))[0])

    def test_streams_are_waited_for(self):
        """On "cuda" the current stream is waited for before memory is used: the allocator hands
        out what queued work may still use, and tensors may be still to be computed."""
        made = self.model()
        c = peerlane.Context(backend="sim")
        c.backend = "cuda"  # what this says is not true: the memory is the host's
        torch.waits.clear()
        got = load_file(self.path("m"), 1, context=c)
        self.assertEqual(torch.waits, ["cuda:1"])
        self.check(got, made)
        save_file(got, self.path("n"), context=c)
        self.assertEqual(torch.waits, ["cuda:1"] * 2)
        with peerlane.open(self.path("m"), "r+", context=c) as f:
            f.read_into(got["f32"])
            f.write_from(got["f32"])
            self.assertEqual(torch.waits, ["cuda:1"] * 4)
            f.read_into(got["f32"], synchronize=False)
            f.write_from(got["f32"], synchronize=False)
            self.assertEqual(torch.waits, ["cuda:1"] * 4)
            other = torch.empty((5,), torch.uint8, "cuda:0")
            torch.waits.clear()
            peerlane.read_many([(f, got["f32"], 0), (f, other, 0), (f, got["bf16"], 0)])
            # The default streams of two devices have one number.
            self.assertEqual(sorted(torch.waits), ["cuda:0", "cuda:1"])
        c.close()

    def test_synchronize_waits_by_the_library(self):
        """The stream's number gets to the library, where there is CUDA."""
        calls = []
        real = _context.lib

        class Library:
            def __getattr__(self, name):
                return getattr(real, name)

            def peerlane_gpu_stream_sync(self, ctx, stream):
                calls.append(stream)
                return 0

        c = peerlane.Context(backend="sim")
        memory = np.zeros(4, "f4")

        class Array:
            __cuda_array_interface__ = {**memory.__array_interface__, "stream": 0x77}

        buffer = peerlane.Buffer(Array())
        try:
            _context.lib = Library()
            c.synchronize(buffer)
            self.assertEqual(calls, [])
            c.backend = "cuda"
            c.synchronize(buffer)
            c.synchronize(peerlane.Buffer(bytearray(4)))
            self.assertEqual(calls, [0x77])
        finally:
            _context.lib = real
            c.close()


if __name__ == "__main__":
    unittest.main()
