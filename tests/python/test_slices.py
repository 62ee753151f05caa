# SPDX-License-Identifier: MIT
"""Slices of tensors, against the same index of the whole tensor."""

import json
import os
import struct
import unittest

import numpy as np
import support

import peerlane
from peerlane.safetensors import safe_open

KEYS = [
    slice(None), 0, -1, 2, slice(1, 3), slice(None, -1), slice(-2, None), slice(2, 2),
    slice(3, 1), slice(None, None, 2), slice(None, None, -1), slice(4, 0, -2), slice(0, 100),
]  # fmt: skip


class Slices(support.Case):
    def setUp(self):
        super().setUp()
        self.a = np.frombuffer(support.pattern(4 * 5 * 6 * 7, 1), "<i4").reshape(5, 6, 7)
        self.big = np.frombuffer(support.pattern(2 * 300 * 4000, 2), "<u2").reshape(300, 4000)
        support.write_model(
            self.path("m"),
            [
                ("odd", "U8", (3,), b"abc"),
                ("a", "I32", (5, 6, 7), self.a.tobytes()),
                ("big", "BF16", (300, 4000), self.big.tobytes()),
                ("one", "F32", (), bytes(4)),
                ("none", "F32", (4, 0, 3), b""),
                ("half", "F4", (4, 4), b"abcdefgh"),
            ],
        )

    def test_all_pairs(self):
        with safe_open(self.path("m"), "np") as f:
            part = f.get_slice("a")
            for first in KEYS:
                for second in KEYS:
                    for key in ((first, second), (Ellipsis, first), (first, Ellipsis, second), first):
                        got = part[key]
                        np.testing.assert_array_equal(got, self.a[key], str(key))
                        self.assertTrue(got.flags.c_contiguous)

    def test_index_objects(self):
        with safe_open(self.path("m"), "np") as f:
            part = f.get_slice("a")
            np.testing.assert_array_equal(part[np.int64(2), np.uint8(1)], self.a[2, 1])
            np.testing.assert_array_equal(part[()], self.a)
            np.testing.assert_array_equal(part[...], self.a)
            self.assertEqual(f.get_slice("one")[...].shape, ())
            self.assertEqual(f.get_slice("none")[1:3].shape, (2, 0, 3))
            self.assertEqual(f.get_slice("none")[:, :, 1].shape, (4, 0))

    def test_lists_masks_and_new_dimensions(self):
        """As torch and numpy have them; only the range that a list spans is read."""
        mask = self.a[:, :, 0] > 0
        keys = [
            None, (None, 0), (0, None, slice(1, 3)), (Ellipsis, None), [0, 2], [4, 1, 1], [-1], [],
            (slice(None), [3, 1]), ([0, 1], [2, 3]), ([0, 1], slice(None), [2, 3]), ([[0], [2]], [1, 3]),
            ([2], 3), (3, [2, 4]), (slice(None, None, -1), [5, 0]), np.array([0, 2]), range(1, 3),
            [True, False, True, False, True], (1, [True] * 5 + [False]), [False] * 5, mask,
            (mask, [0] * int(mask.sum())), True, (False, 0), (slice(1, 3), np.array(2)), ((1, 2), 0),
        ]  # fmt: skip
        with safe_open(self.path("m"), "np") as f:
            part = f.get_slice("a")
            for key in keys:
                got = part[key]
                np.testing.assert_array_equal(got, self.a[key], str(key))
                self.assertTrue(got.flags.c_contiguous)
            np.testing.assert_array_equal(part[[slice(1, 2), None]], self.a[1:2, None])
        with peerlane.Context(backend="sim") as c, safe_open(self.path("m"), "np", context=c) as f:
            before = c.stats()["read"]["bytes"]
            f.get_slice("big")[[11, 10, 12]]
            self.assertEqual(c.stats()["read"]["bytes"] - before, 3 * 4000 * 2)

    def test_bad_indices(self):
        with safe_open(self.path("m"), "np") as f:
            part = f.get_slice("a")
            for key, kind in (
                (5, IndexError),
                ((0, -7), IndexError),
                ((0, 0, 0, 0), IndexError),
                ((Ellipsis, Ellipsis), IndexError),
                (1.5, TypeError),
                ("a", TypeError),
                ([1, 2.5], TypeError),
                ([0, 5], IndexError),
                ((0, [-7]), IndexError),
                ([True, False], IndexError),
                (([0], [0], [0], [0]), IndexError),
                ((None, 0, 0, 0, 0), IndexError),
                (slice(None, None, 0), ValueError),
            ):
                with self.assertRaises(kind, msg=str(key)):
                    part[key]
            with self.assertRaises(IndexError):
                f.get_slice("one")[0]

    def test_tensor_parallel(self):
        """Rows and columns for each of four ranks, on the GPU; rows cost no more than themselves."""
        with peerlane.Context(backend="sim") as c:
            with safe_open(self.path("m"), "dlpack", "cuda", context=c) as f:
                part = f.get_slice("big")
                for rank in range(4):
                    rows = part[75 * rank : 75 * (rank + 1)]
                    self.assertEqual(rows.shape, (75, 4000))
                    self.assertEqual(rows.tobytes(), self.big[75 * rank : 75 * (rank + 1)].tobytes())
                    columns = part[:, 1000 * rank : 1000 * (rank + 1)]
                    expected = np.ascontiguousarray(self.big[:, 1000 * rank : 1000 * (rank + 1)])
                    self.assertEqual(columns.shape, (300, 1000))
                    self.assertEqual(columns.tobytes(), expected.tobytes())
                before = c.stats()["read"]["bytes"]
                part[10:20]
                self.assertEqual(c.stats()["read"]["bytes"] - before, 10 * 4000 * 2)
                with self.assertRaisesRegex(ValueError, "along one dimension"):
                    part[0:2, 0:2]
                for key in (slice(None, None, 2), [0, 1], None):
                    with self.assertRaisesRegex(ValueError, "along one dimension"):
                        part[key]
                del rows, columns

    def test_beyond_4_gib(self):
        """Offsets that need more than 32 bits; the file is sparse."""
        rows, row = (1 << 20) + 3, 4097
        tail = support.pattern(row * 3 + 800, 3)
        header = {
            "big": {"dtype": "U8", "shape": [rows, row], "data_offsets": [0, rows * row]},
            "z": {"dtype": "F64", "shape": [100], "data_offsets": [rows * row, rows * row + 800]},
        }
        text = json.dumps(header).encode()
        with open(self.path("large"), "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text)
            f.seek(rows * row - row * 3, os.SEEK_CUR)
            f.write(tail)
        for framework, device in (("np", "cpu"), ("dlpack", "cuda")):
            with safe_open(self.path("large"), framework, device) as f:
                self.assertEqual(f.get_slice("big")[-3:].tobytes(), tail[: row * 3])
                self.assertEqual(f.get_slice("big")[-5:-3].tobytes(), bytes(2 * row))
                self.assertEqual(f.get_tensor("z").tobytes(), tail[row * 3 :])

    def test_half_bytes(self):
        with safe_open(self.path("m"), "dlpack") as f:
            self.assertEqual(f.get_slice("half")[1:3].tobytes(), b"cdef")
            self.assertEqual(f.get_slice("half")[:, 2:].tobytes(), b"bdfh")
            with self.assertRaisesRegex(peerlane.Error, "inside a byte"):
                f.get_slice("half")[:, 1:]


if __name__ == "__main__":
    unittest.main()
