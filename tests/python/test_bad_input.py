# SPDX-License-Identifier: MIT
"""Malformed files: each is refused with words that name the fault, and nothing is kept."""

import errno
import json
import os
import struct
import unittest

import support

import peerlane
from peerlane.safetensors import load_file, safe_open


def with_header(text, data=b""):
    text = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(text)) + text + data


def one(**change):
    """A file with one tensor, which is changed."""
    tensor = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **change}
    return with_header(json.dumps({"the.weight": tensor}), bytes(8))


BAD = {
    "empty": b"",
    "short": b"\x01\x02",
    "header beyond the end": struct.pack("<Q", 1 << 20) + b"{}",
    "header of more than 100 MB": struct.pack("<Q", 1 << 40) + b"{}",
    "no JSON": with_header("hello"),
    "cut JSON": with_header('{"a": '),
    "no object": with_header("[1]"),
    "unknown type": one(dtype="F33"),
    "type is no text": one(dtype=5),
    "negative length": one(shape=[-2]),
    "length is no number": one(shape=["2"]),
    "length with a fraction": one(shape=[2.5]),
    "shape that overflows": one(shape=[1 << 32, 1 << 32, 1 << 32]),
    "wrong size": one(shape=[3]),
    "begin after end": one(data_offsets=[8, 0]),
    "beyond the end": one(data_offsets=[0, 800], shape=[200]),
    "one offset": one(data_offsets=[0]),
    "no shape": with_header('{"the.weight": {"dtype": "F32", "data_offsets": [0, 8]}}', bytes(8)),
    "gap": with_header(
        json.dumps(
            {
                "the.weight": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]},
                "b": {"dtype": "U8", "shape": [2], "data_offsets": [4, 6]},
            }
        ),
        bytes(6),
    ),
    "overlap": with_header(
        json.dumps(
            {
                "the.weight": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]},
                "b": {"dtype": "U8", "shape": [4], "data_offsets": [2, 6]},
            }
        ),
        bytes(6),
    ),
    "name twice": with_header(
        '{"the.weight": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]},'
        ' "the.weight": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}}',
        bytes(2),
    ),
    "data left over": one() + b"more",
    "cut data": one()[:-1],
}
# In these the words must name the tensor.
NAMED = [name for name, data in BAD.items() if b"the.weight" in data and "data" not in name]


class BadInput(support.Case):
    def test_files(self):
        context = peerlane.Context(backend="sim")
        for what, data in BAD.items():
            path = self.file("bad.safetensors", data)
            with self.subTest(what):
                with self.assertRaises(peerlane.FormatError) as caught:
                    safe_open(path, "np", context=context)
                said = caught.exception
                self.assertIsInstance(said, ValueError)
                self.assertEqual(said.errno, errno.EUCLEAN)
                self.assertIn("bad.safetensors", said.explanation)
                if what in NAMED and what not in ("gap", "overlap"):
                    self.assertIn("the.weight", said.explanation)
        self.assertEqual(context.stats()["files"], 0)
        self.assertEqual(context.stats()["pool_bytes"], 0)
        context.close()

    def test_good_one(self):
        """What all of them were made from is accepted."""
        self.assertEqual(load_file(self.file("m", one()), framework="np")["the.weight"].shape, (2,))

    def test_index_files(self):
        support.write_model(self.path("a.safetensors"), [("t", "U8", (1,), b"x")])
        for text in (
            "",
            "[]",
            "{}",
            '{"weight_map": 5}',
            '{"weight_map": {"t": 5}}',
            '{"weight_map": {"t": "../a.safetensors"}}',
            '{"weight_map": {"other": "a.safetensors"}}',
        ):
            self.file("m.index.json", text.encode())
            with self.subTest(text), self.assertRaises(peerlane.FormatError):
                load_file(self.path("m.index.json"))
        self.file("m.index.json", b'{"weight_map": {"t": "a.safetensors"}}')
        self.assertEqual(list(load_file(self.path("m.index.json"))), ["t"])

    def test_not_there(self):
        with self.assertRaises(FileNotFoundError) as caught:
            load_file(self.path("no.safetensors"))
        self.assertIn("no.safetensors", str(caught.exception))
        with self.assertRaises(peerlane.Error):
            load_file(self.dir)
        with self.assertRaises(ValueError):
            load_file("a\0b")

    def test_changed_while_open(self):
        support.write_model(self.path("m"), [("t", "U8", (1000,), bytes(1000))])
        with safe_open(self.path("m"), "np") as f:
            os.truncate(self.path("m"), 500)
            with self.assertRaises(peerlane.Error) as caught:
                f.get_tensor("t")
        self.assertEqual(caught.exception.errno, errno.ESTALE)


if __name__ == "__main__":
    unittest.main()
