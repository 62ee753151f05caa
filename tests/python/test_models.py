# SPDX-License-Identifier: MIT
"""Models as bytes, as lists of files and as modules; torch is a stand-in."""

import collections
import sys
import unittest

import fake_torch
import numpy as np

sys.modules["torch"] = fake_torch

import support  # noqa: E402

import peerlane  # noqa: E402
from peerlane.safetensors import (  # noqa: E402
    load,
    load_file,
    load_model,
    safe_open,
    save,
    save_file,
    save_model,
)

torch = fake_torch


def tensor(array, where="cpu"):
    return torch.Tensor(array, torch.float32, where)


def numbers(*shape, seed=1):
    return np.random.RandomState(seed).rand(*shape).astype("f4")


class Module:
    """What load_model() and save_model() use of torch.nn.Module."""

    Incompatible = collections.namedtuple("Incompatible", ("missing_keys", "unexpected_keys"))

    def __init__(self, **tensors):
        self.tensors = tensors

    def state_dict(self):
        return collections.OrderedDict(self.tensors)

    def load_state_dict(self, state, strict=True):
        assert not strict
        for name, value in state.items():
            if name in self.tensors:
                self.tensors[name].copy_(value)
        missing = [n for n in self.tensors if n not in state]
        return self.Incompatible(missing, [n for n in state if n not in self.tensors])


class Modules(support.Case):
    def test_one_of_those_that_share_memory_is_saved(self):
        whole = numbers(4, 6)
        model = Module(
            head=tensor(whole), embed=tensor(whole), part=tensor(whole[1:3]), own=tensor(numbers(3))
        )
        save_model(model, self.path("m"), {"format": "pt", "head": "mine"})
        tensors, metadata = support.parse(self.path("m"))
        self.assertEqual(sorted(tensors), ["embed", "own"])
        # What the user said of a name stays.
        self.assertEqual(metadata, {"format": "pt", "head": "mine", "part": "embed"})
        self.assertEqual(tensors["embed"][2], whole.tobytes())
        with self.assertRaisesRegex(RuntimeError, "share memory.*save_model"):
            save_file(model.state_dict(), self.path("n"))

        other = np.zeros((4, 6), "f4")
        again = Module(
            head=tensor(other), embed=tensor(other), part=tensor(other[1:3]), own=tensor(np.zeros(3, "f4"))
        )
        self.assertEqual(load_model(again, self.path("m")), ([], []))
        np.testing.assert_array_equal(other, whole)

    def test_the_file_may_have_another_of_them(self):
        shared = np.zeros(5, "f4")
        save_file({"z": tensor(numbers(5))}, self.path("m"))
        model = Module(a=tensor(shared), z=tensor(shared))
        self.assertEqual(load_model(model, self.path("m")), ([], []))
        np.testing.assert_array_equal(shared, numbers(5))

    def test_both_of_them_in_the_file(self):
        """Which would count? The second is not expected, as safetensors has it."""
        shared = np.zeros(5, "f4")
        save_file({"a": tensor(numbers(5)), "z": tensor(numbers(5))}, self.path("m"))
        model = Module(a=tensor(shared), z=tensor(shared))
        self.assertEqual(load_model(model, self.path("m"), strict=False), ([], ["z"]))

    def test_strict(self):
        save_file({"a": tensor(numbers(5)), "more": tensor(numbers(2))}, self.path("m"))
        model = Module(a=tensor(np.zeros(5, "f4")), b=tensor(np.zeros(2, "f4")))
        self.assertEqual(load_model(model, self.path("m"), strict=False), (["b"], ["more"]))
        for strict in ({}, {"strict": True}):
            with self.assertRaises(RuntimeError) as caught:
                load_model(model, self.path("m"), **strict)
            self.assertIn('not in the file: "b"', str(caught.exception))
            self.assertIn('not expected in the file: "more"', str(caught.exception))

    def test_none_has_all_of_the_memory(self):
        whole = numbers(10)
        model = Module(a=tensor(whole[:6]), b=tensor(whole[4:]))
        with self.assertRaisesRegex(RuntimeError, '"a", "b" share memory, and none'):
            save_model(model, self.path("m"))
        # Neighbours do not share.
        model = Module(a=tensor(whole[:6]), b=tensor(whole[6:]))
        save_model(model, self.path("m"))
        self.assertEqual(sorted(support.parse(self.path("m"))[0]), ["a", "b"])

    def test_not_contiguous(self):
        rows = numbers(4, 6)
        model = Module(a=tensor(rows.T))
        save_model(model, self.path("m"))
        self.assertEqual(support.parse(self.path("m"))[0]["a"], ("F32", (6, 4), rows.T.tobytes()))
        with self.assertRaisesRegex(ValueError, '"a": the memory is not contiguous'):
            save_model(model, self.path("n"), force_contiguous=False)

    def test_no_module(self):
        save_file({"a": tensor(numbers(3))}, self.path("m"))
        for call in (save_model, load_model):
            with self.assertRaisesRegex(TypeError, "must be a torch.nn.Module, not int"):
                call(5, self.path("m"))

    def test_empty_and_meta(self):
        none = tensor(np.zeros((0, 3), "f4"))
        save_model(Module(a=none, b=none), self.path("m"))
        self.assertEqual(sorted(support.parse(self.path("m"))[0]), ["a", "b"])
        with self.assertRaisesRegex(ValueError, '"a".*meta'):
            save_model(Module(a=tensor(numbers(3), "meta")), self.path("m"))


class Bytes(support.Case):
    def test_there_and_back(self):
        state = {"b": np.arange(5), "a": numbers(3, 4)}
        data = save(state, {"key": "value"})
        self.assertIsInstance(data, bytes)
        save_file(state, self.path("m"), {"key": "value"})
        self.assertEqual(data, self.content("m"))
        for content in (data, bytearray(data), memoryview(data), np.frombuffer(data, "u1")):
            got = load(content, framework="np")
            self.assertEqual(set(got), {"a", "b"})
            for name, array in state.items():
                np.testing.assert_array_equal(got[name], array)
        self.assertIsInstance(load(data)["a"], torch.Tensor)
        own = load(data, device="sim")["a"]
        self.assertEqual((own.device, own.tobytes()), ("sim:0", state["a"].tobytes()))
        self.assertEqual(list(load(data, framework="np", names=["b"])), ["b"])
        self.assertEqual(load(save({}), framework="np"), {})

    def test_refused(self):
        data = save({"a": numbers(3)})
        for bad in (b"", b"hello", data[:-1], data + b"x"):
            with self.assertRaisesRegex(peerlane.FormatError, "the data") as caught:
                load(bad)
            self.assertNotIn("/proc", str(caught.exception))
        with self.assertRaisesRegex(TypeError, "load_file"):
            load(self.path("m"))
        with self.assertRaisesRegex(ValueError, r"load\(\) takes the content"):
            load_file(data)
        with self.assertRaises(TypeError):
            load(5)


class Lists(support.Case):
    def setUp(self):
        super().setUp()
        self.paths = [self.path(f"m{i}") for i in range(3)]
        self.expected = {}
        for i, path in enumerate(self.paths):
            made = [(f"t{i}.{j}", "U8", (100,), support.pattern(100, i * 10 + j)) for j in range(3)]
            support.write_model(path, made)
            self.expected.update({m[0]: m[3] for m in made})

    def test_load(self):
        for files in (self.paths, tuple(self.paths), iter(self.paths)):
            got = load_file(files, framework="np")
            self.assertEqual({n: a.tobytes() for n, a in got.items()}, self.expected)
        got = load_file(self.paths, "sim")
        self.assertEqual({n: t.tobytes() for n, t in got.items()}, self.expected)
        self.assertEqual(sorted(load_file(self.paths, names=["t2.1", "t0.0"])), ["t0.0", "t2.1"])
        with self.assertRaisesRegex(KeyError, '"t9"'):
            load_file(self.paths, names=["t0.0", "t9"])

    def test_progress(self):
        seen = []
        load_file(self.paths, framework="np", progress=lambda *a: seen.append(a))
        self.assertEqual(seen[-1], (900, 900))
        self.assertEqual({total for _, total in seen}, {900})
        self.assertEqual(seen, sorted(seen))

    def test_refused(self):
        with self.assertRaisesRegex(ValueError, '"t0.0" is in two files.*m0 and .*m0'):
            load_file([self.paths[0], self.paths[0]])
        with self.assertRaisesRegex(ValueError, "empty"):
            load_file([])
        with self.assertRaisesRegex(FileNotFoundError, "none"):
            load_file([self.paths[0], self.path("none")])
        for call in (load_file, lambda p, names: safe_open(p).get_tensors(names)):
            with self.assertRaisesRegex(TypeError, "list of names, not one name"):
                call(self.paths[0], names="t0.0")
        for bad in ([1], np.zeros(3)):
            with self.assertRaisesRegex(TypeError, "must be a dict"):
                save_file(bad, self.path("n"))
        with self.assertRaisesRegex(TypeError, "metadata must be a dict"):
            save_file({"a": np.zeros(3)}, self.path("n"), ["a"])
        with self.assertRaisesRegex(ValueError, "align is -1"):
            save_file({"a": np.zeros(3)}, self.path("n"), align=-1)

    def test_repr(self):
        with safe_open(self.paths[0], "np") as f:
            self.assertEqual(repr(f), f"<peerlane.safe_open {self.paths[0]!r} np on cpu, 3 tensors>")
            self.assertEqual(repr(f.get_slice("t0.1")), "<peerlane.SafeSlice 't0.1' U8 [100]>")
        self.assertEqual(repr(f), f"<peerlane.safe_open {self.paths[0]!r} np on cpu, closed>")
        support.write_model(self.path("one"), [("t", "U8", (1,), b"x")])
        self.assertIn("1 tensor>", repr(safe_open(self.path("one"), "np")))


if __name__ == "__main__":
    unittest.main()
