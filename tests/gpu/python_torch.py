#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The Python package with torch, compared with safetensors' own loader.

    python_torch.py [--device cuda] [--dir DIRECTORY] [--small]

Prints PASS or FAIL for each case; exits 1 if one failed, 77 without torch or safetensors. Without a
GPU, "--device cpu" compares the same in host memory. --small leaves out files of more than 4 GiB.
$PEERLANE_BUILD names the build directory.
"""

import argparse
import itertools
import json
import os
import random
import sys
import tempfile
import traceback
import weakref

import package  # noqa: F401

try:
    import safetensors
    import safetensors.torch as their
    import torch
    from safetensors.torch import load_file as their_load_file
    from safetensors.torch import save_file as their_save_file
except ImportError as problem:
    print(f"torch and safetensors are needed: {problem}")
    sys.exit(77)

import support  # noqa: E402

import peerlane  # noqa: E402
from peerlane.safetensors import load, load_file, load_model, load_sharded  # noqa: E402
from peerlane.safetensors import safe_open, save, save_file, save_model  # noqa: E402

SHAPES = [(), (1,), (0,), (3, 0, 5), (8,), (7,), (4, 6), (2, 3, 4), (33, 16)]
GIB = 1 << 30


def raw(tensor):
    """The bytes of a tensor, on its device."""
    return tensor.contiguous().flatten().view(torch.uint8)


def same(a, b, name=""):
    """Two tensors are the same to the last bit."""
    assert a.dtype == b.dtype, f"{name}: {a.dtype}, not {b.dtype}"
    assert a.shape == b.shape, f"{name}: {tuple(a.shape)}, not {tuple(b.shape)}"
    assert a.device == b.device, f"{name}: on {a.device}, not {b.device}"
    assert a.numel() == 0 or torch.equal(raw(a), raw(b)), f"{name}: other data"


def same_models(ours, theirs):
    assert set(ours) == set(theirs), f"other names: {sorted(set(ours) ^ set(theirs))[:5]}"
    for name, tensor in theirs.items():
        same(ours[name], tensor, name)


def torch_types():
    """The types that this torch and this safetensors both have."""
    from peerlane._dtypes import TORCH

    return [t for t, name in TORCH.items() if hasattr(torch, name)]


def model_of(types, order):
    made = []
    for dtype, shape in itertools.product(types, SHAPES):
        bits = support.BITS[dtype]
        if bits < 8 and (not shape or shape[-1] * bits % 8):
            continue
        data = support.pattern(support.count(shape) * bits // 8, len(made))
        if dtype == "BOOL":
            data = bytes(b & 1 for b in data)
        made.append((f"{dtype}.{'x'.join(map(str, shape))}", dtype, shape, data))
    random.Random(order).shuffle(made)
    return made


class Cases:
    """Each method is a case; its documentation is what is printed."""

    def __init__(self, directory, device):
        self.dir = directory
        self.device = device
        self.cuda = device.startswith("cuda")

    def path(self, name):
        return os.path.join(self.dir, name)

    def settle(self):
        if self.cuda:
            torch.cuda.synchronize()

    def all_types(self):
        """load: every type, empty, single values, data at odd offsets"""
        types = torch_types()
        for order in range(4):
            support.write_model(self.path("m"), model_of(types, order), pad=order)
            theirs = their_load_file(self.path("m"), device=self.device)
            same_models(load_file(self.path("m"), device=self.device), theirs)
            same_models(load_file(self.path("m"), self.device, per_tensor=True), theirs)
        return f"{len(types)} types"

    def types_torch_lacks(self):
        """load: types that torch lacks are refused by name, and come by DLPack"""
        support.write_model(self.path("m"), [("six", "F6_E2M3", (4,), b"abc")])
        try:
            load_file(self.path("m"), self.device)
            raise AssertionError("F6_E2M3 was loaded")
        except ValueError as problem:
            assert '"six"' in str(problem), problem
        got = load_file(self.path("m"), self.device, framework="dlpack")["six"]
        assert got.tobytes() == b"abc"

    def save(self):
        """save: the same file as safetensors writes, to the byte"""
        support.write_model(self.path("m"), model_of(torch_types(), 1))
        tensors = their_load_file(self.path("m"), device=self.device)
        save_file(tensors, self.path("ours"), {"format": "pt"})
        same_models(their_load_file(self.path("ours"), device=self.device), tensors)
        their_save_file(tensors, self.path("theirs"), {"format": "pt"})
        with open(self.path("ours"), "rb") as a, open(self.path("theirs"), "rb") as b:
            equal = a.read() == b.read()
        return "byte for byte" if equal else "same tensors, other bytes"

    def module(self):
        """save and load: the state of a module, parameters included"""
        net = torch.nn.Sequential(torch.nn.Linear(65, 33), torch.nn.BatchNorm1d(33)).to(self.device)
        save_file(dict(net.named_parameters()), self.path("p"))
        save_file(net.state_dict(), self.path("m"))
        same_models(load_file(self.path("m"), self.device), net.state_dict())
        net.load_state_dict(load_file(self.path("m"), self.device))

    def queued_work(self):
        """save and load wait for work that is queued on the current stream"""
        lazy = torch.randn(9, dtype=torch.complex64, device=self.device).conj()
        try:
            save_file({"a": lazy}, self.path("m"))
            raise AssertionError("a conjugate that is not computed was saved")
        except ValueError:
            save_file({"a": lazy.resolve_conj()}, self.path("m"))
        same(load_file(self.path("m"), self.device)["a"], lazy.resolve_conj())
        for _ in range(5):
            a = torch.ones(2048, 2048, device=self.device)
            for _ in range(20):
                a = a @ torch.full((2048, 2048), 1 / 2048, device=self.device)
            save_file({"a": a}, self.path("m"))
            b = load_file(self.path("m"), self.device)["a"]
            assert torch.equal(a, b) and torch.equal(b, torch.ones_like(b))
            del a, b

    def small_tensors(self):
        """load: ten thousand tensors of 16 KiB"""
        data = support.pattern(16384, 1)
        made = [(f"t{i}", "F16", (64, 128), data[i % 97 :] + data[: i % 97]) for i in range(10000)]
        support.write_model(self.path("m"), made)
        theirs = their_load_file(self.path("m"), device=self.device)
        same_models(load_file(self.path("m"), self.device), theirs)

    def sharded(self):
        """load: three shards by their index"""
        where, theirs = {}, {}
        for shard in range(3):
            name = f"model-{shard}.safetensors"
            tensors = {f"{shard}.{i}": torch.randn(i, 77, device=self.device) for i in range(9)}
            their_save_file(tensors, self.path(name))
            where.update(dict.fromkeys(tensors, name))
            theirs.update(tensors)
        with open(self.path("model.safetensors.index.json"), "w", encoding="utf-8") as f:
            json.dump({"metadata": {}, "weight_map": where}, f)
        same_models(load_sharded(self.dir, self.device), theirs)

    def slices(self):
        """slices: the same as safetensors', and as torch's own"""
        a = torch.randn(50, 60, 70, device=self.device)
        their_save_file({"a": a}, self.path("m"))
        keys = [
            slice(3, 9), 7, (slice(None), slice(10, 20)), (slice(None), slice(None), slice(5, 6)),
            (slice(1, 2), 5), (0, slice(2, 4), slice(60, 70)), slice(4, 4),
        ]  # fmt: skip
        with safe_open(self.path("m"), "pt", self.device) as ours:
            with safetensors.safe_open(self.path("m"), "pt", self.device) as theirs:
                assert ours.keys() == list(theirs.keys())
                assert ours.get_slice("a").get_shape() == theirs.get_slice("a").get_shape()
                assert ours.get_slice("a").get_dtype() == theirs.get_slice("a").get_dtype()
                for key in keys:
                    same(ours.get_slice("a")[key], theirs.get_slice("a")[key], str(key))
            for key in [*keys, -1, (Ellipsis, slice(None, None, 3)), (slice(-5, None), -1)]:
                same(ours.get_slice("a")[key], a[key], str(key))
            for rank in range(5):
                same(ours.get_slice("a")[10 * rank : 10 * rank + 10], a[10 * rank : 10 * rank + 10])

    def index_lists(self):
        """slices: lists, masks, arrays and new dimensions, the same as safetensors'"""
        a = torch.arange(60, device=self.device).reshape(5, 3, 4)
        save_file({"a": a}, self.path("m"))
        mask = a[:, :, 0] > 20
        keys = [
            None, (None, 0), (0, None, slice(1, 3)), (..., None), [0, 2], [-1], [], (slice(None), [2, 0]),
            ([0, 1], slice(None), [2, 3]), (3, [1, 2]), True, [True, False, True, False, True], mask,
            (mask, [0] * int(mask.sum())), torch.tensor([4, 1]), torch.tensor(2), (slice(1, 3), None, 0),
        ]  # fmt: skip
        with safe_open(self.path("m"), "pt", self.device) as ours:
            with safetensors.safe_open(self.path("m"), "pt", self.device) as theirs:
                for key in keys:
                    got = ours.get_slice("a")[key]
                    same(got, theirs.get_slice("a")[key], str(key))
                    assert got.is_contiguous(), key
        return f"{len(keys)} kinds"

    def models(self):
        """save_model and load_model: the same files and answers as safetensors'"""

        class Net(torch.nn.Module):
            def __init__(self, more=()):
                super().__init__()
                self.embed = torch.nn.Embedding(10, 4)
                self.head = torch.nn.Linear(4, 10, bias=False)
                self.head.weight = self.embed.weight
                self.conv = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
                whole = torch.randn(20)
                self.register_buffer("whole", whole)
                self.register_buffer("part", whole[3:9])
                for name in more:
                    self.register_buffer(name, torch.randn(2))

        net = Net(["saved"])
        save_model(net, self.path("ours"), {"format": "pt"})
        their.save_model(net, self.path("theirs"), {"format": "pt"})
        with safetensors.safe_open(self.path("ours"), "pt") as a:
            with safetensors.safe_open(self.path("theirs"), "pt") as b:
                assert a.metadata() == b.metadata(), a.metadata()
                assert list(a.keys()) == list(b.keys()), a.keys()
        both = {n: t.clone().contiguous() for n, t in net.state_dict().items()}
        their_save_file(both, self.path("both"))
        for name in ("ours", "theirs", "both"):
            mine, yours = Net(["wanted"]), Net(["wanted"])
            got = load_model(mine, self.path(name), strict=False, device=self.device)
            expected = their.load_model(yours, self.path(name), strict=False, device=self.device)
            assert [sorted(g) for g in got] == [sorted(e) for e in expected], (got, expected)
            for key, tensor in yours.state_dict().items():
                if key != "wanted":
                    same(mine.state_dict()[key], tensor, key)
            try:
                load_model(mine, self.path(name))
                raise AssertionError("names that do not fit were taken")
            except RuntimeError as problem:
                assert '"wanted"' in str(problem) and '"saved"' in str(problem), problem

    def as_bytes(self):
        """save and load: the same bytes as safetensors makes"""
        tensors = {"b": torch.arange(7, device=self.device), "a": torch.randn(3, 5, device=self.device)}
        data = their.save(tensors, {"key": "value"})
        assert save(tensors, {"key": "value"}) == data
        same_models(load(data, device=self.device), tensors)

    def dlpack(self):
        """our own tensors become torch's by DLPack, without a copy"""
        a = torch.randn(100, 50, device=self.device)
        save_file({"a": a}, self.path("m"))
        own = load_file(self.path("m"), self.device, framework="dlpack")["a"]
        b = torch.from_dlpack(own)
        assert b.data_ptr() == own.address
        gone = weakref.ref(own._memory)
        del own
        same(b, a)
        assert gone() is not None
        del b
        assert gone() is None, "torch has let go of the memory, and it is not freed"

    def files(self):
        """read_into and write_from: any offset, with views of tensors"""
        data = torch.randint(0, 256, (5_000_003,), dtype=torch.uint8, device=self.device)
        with peerlane.open(self.path("f"), "w+") as f:
            assert f.write_from(data, 13) == 5_000_003
            back = torch.zeros_like(data)
            assert f.read_into(back, 13) == 5_000_003
            same(back, data)
            assert f.read_into(back[100:200], 13 + 4_000_000) == 100
            same(back[100:200], data[4_000_000:4_000_100])
            for bad in (data[::2], data[:5_000_000].view(1000, 5000).t()):
                try:
                    f.write_from(bad)
                    raise AssertionError("strides were taken")
                except ValueError as problem:
                    assert "not contiguous" in str(problem)
            said = f.explain(back)
            assert said.memory == ("device" if self.cuda else "host"), said
        return said.chosen

    def streams(self):
        """reads and writes in the order of torch's streams"""
        if not self.cuda:
            return "needs a GPU: left out"
        stream = torch.cuda.Stream()
        a = torch.zeros(1 << 22, device=self.device)
        b = torch.zeros_like(a)
        self.settle()
        with peerlane.open(self.path("f"), "w+") as f:
            for i in range(10):
                with torch.cuda.stream(stream):
                    a.fill_(float(i))
                    written = f.write_from_async(a)  # on the current stream
                    a.fill_(-1.0)
                    read = f.read_into_async(b, stream=stream)
                    b.add_(1.0)
                assert written.result() == read.result() == 1 << 24
                stream.synchronize()
                assert bool((b == i + 1).all()) and bool((a == -1).all())

    def large(self):
        """load and save: a tensor of more than 4 GiB, and one behind it"""
        n = 4 * GIB + 4097
        tensors = {
            "big": torch.randint(0, 256, (n,), dtype=torch.uint8, device=self.device),
            "a.row": torch.arange(1000, device=self.device),
            "z": torch.randn(12345, device=self.device).to(torch.bfloat16),
        }
        save_file(tensors, self.path("m"))
        got = load_file(self.path("m"), self.device)
        same_models(got, tensors)
        del got
        same_models(their_load_file(self.path("m"), device=self.device), tensors)
        with safe_open(self.path("m"), "pt", self.device) as f:
            same(f.get_slice("big")[n - 5000 :], tensors["big"][n - 5000 :])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dir", default="/var/tmp")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("cases", nargs="*", help="only these")
    args = parser.parse_args()
    if args.device.startswith("cuda") and not torch.cuda.is_available():
        print("no GPU; --device cpu runs without one")
        return 77
    device = "cuda:0" if args.device == "cuda" else args.device
    print(f"torch {torch.__version__}, safetensors {safetensors.__version__}, {device}, "
          f"back end {peerlane.context().backend}, {peerlane.library_path}")
    names = [n for n in vars(Cases) if not n.startswith("_") and getattr(Cases, n).__doc__]
    if args.small:
        names.remove("large")
    failed = 0
    for name in args.cases or names:
        with tempfile.TemporaryDirectory(dir=args.dir, prefix="peerlane-python-") as directory:
            try:
                note = getattr(Cases(directory, device), name)()
                word = "PASS"
            except Exception:
                traceback.print_exc()
                word, note = "FAIL", None
                failed += 1
        print(f"{word} {name}: {getattr(Cases, name).__doc__}{f' ({note})' if note else ''}",
              flush=True)
    print(f"{len(args.cases or names) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
