# SPDX-License-Identifier: MIT
"""Models loaded and saved: every type, shape and size, against a plain parser."""

import gc
import json
import os
import random
import unittest

import numpy as np
import support

import peerlane
from peerlane.safetensors import load_file, load_sharded, safe_open, save_file

SHAPES = [(), (1,), (0,), (3, 0, 5), (7,), (8, 8), (2, 3, 4), (1, 1, 1, 1), (33, 17)]


def every_type():
    """Tensors of every type and shape that fill whole bytes."""
    made = []
    for dtype, bits in support.BITS.items():
        for shape in SHAPES:
            n = support.count(shape) * bits
            if n % 8 == 0:
                data = support.pattern(n // 8, len(made))
                if dtype == "BOOL":
                    data = bytes(b & 1 for b in data)
                made.append((f"{dtype}.{'x'.join(map(str, shape))}", dtype, shape, data))
    return made


class Load(support.Case):
    def check_own(self, tensors, expected, device):
        self.assertEqual(set(tensors), set(expected))
        for name, (dtype, shape, data) in expected.items():
            t = tensors[name]
            self.assertEqual((t.dtype, t.shape, t.nbytes), (dtype, shape, len(data)), name)
            self.assertEqual(t.device, device)
            self.assertEqual(t.tobytes(), data, name)

    def test_every_type_without_a_framework(self):
        made = every_type()
        for shuffle in (0, 1):
            # In random order elements are not where their type would like them.
            random.Random(shuffle).shuffle(made)
            support.write_model(self.path("m"), made, pad=shuffle * 3)
            expected, _ = support.parse(self.path("m"))
            for device, place in (("cpu", "cpu"), ("cuda", "sim:0"), (0, "sim:0"), ("sim", "sim:0")):
                for per_tensor in (False, True):
                    got = load_file(
                        self.path("m"), device, framework="dlpack", per_tensor=per_tensor
                    )
                    self.check_own(got, expected, place)

    def test_every_type_with_numpy(self):
        made = [m for m in every_type() if support.BITS[m[1]] >= 8 or (m[2] and m[2][-1] % 4 == 0)]
        random.Random(2).shuffle(made)
        support.write_model(self.path("m"), made)
        for per_tensor in (False, True):
            got = load_file(self.path("m"), framework="np", per_tensor=per_tensor)
            self.assertEqual(set(got), {m[0] for m in made})
            for name, dtype, shape, data in made:
                a = got[name]
                self.assertIsInstance(a, np.ndarray)
                self.assertEqual(a.tobytes(), data, name)
                self.assertTrue(a.flags.c_contiguous and a.flags.writeable and a.flags.aligned)
                if support.BITS[dtype] >= 8:
                    self.assertEqual(a.shape, shape, name)
                else:
                    self.assertEqual(a.shape[:-1], shape[:-1], name)
        self.assertEqual(got["F32.7"].dtype, np.float32)
        self.assertEqual(got["C64.7"].dtype, np.complex64)
        self.assertEqual(got["BOOL.7"].dtype, np.bool_)

    def test_types_numpy_lacks(self):
        support.write_model(self.path("m"), [("h", "BF16", (2,), b"\x80\x3f\x00\xc0")])
        a = load_file(self.path("m"), framework="np")["h"]
        try:
            import ml_dtypes
        except ImportError:
            self.assertEqual(a.dtype.names, ("BF16",))
            self.assertEqual(a["BF16"].tolist(), [0x3F80, 0xC000])
            with self.assertRaises(TypeError):
                a + 1
        else:
            self.assertEqual(a.dtype, ml_dtypes.bfloat16)
            self.assertEqual(a.astype("f4").tolist(), [1.0, -2.0])
        # Rows of half bytes cannot be shown as bytes.
        support.write_model(self.path("n"), [("odd", "F4", (2, 3), b"abc")])
        with self.assertRaisesRegex(ValueError, '"odd".*not whole bytes'):
            load_file(self.path("n"), framework="np")

    def test_thousands_of_small_tensors(self):
        made = [
            (f"layer.{i}.weight", "I16", (i % 7, 3), support.pattern(i % 7 * 6, i)) for i in range(5000)
        ]
        support.write_model(self.path("m"), made)
        expected, _ = support.parse(self.path("m"))
        self.check_own(load_file(self.path("m"), "cuda", framework="dlpack"), expected, "sim:0")
        for name, a in load_file(self.path("m"), framework="np").items():
            self.assertEqual((a.shape, a.tobytes()), expected[name][1:], name)

    def test_some_tensors(self):
        made = [(f"t{i}", "U8", (1000,), support.pattern(1000, i)) for i in range(50)]
        support.write_model(self.path("m"), made)
        got = load_file(self.path("m"), framework="np", names=["t49", "t3", "t4", "t3"])
        self.assertEqual(sorted(got), ["t3", "t4", "t49"])
        for name in got:
            self.assertEqual(got[name].tobytes(), made[int(name[1:])][3])
        with self.assertRaisesRegex(KeyError, 'no tensor "t50"'):
            load_file(self.path("m"), framework="np", names=["t50"])
        self.assertEqual(load_file(self.path("m"), framework="np", names=[]), {})

    def test_larger_than_the_pool(self):
        data = support.pattern(1 << 20, 1) * 5
        made = [("a", "U8", (7,), b"unalign"), ("big", "F32", (5 << 18,), data)]
        support.write_model(self.path("m"), made)
        with peerlane.Context(backend="sim", pool_bytes=1 << 20) as c:
            got = load_file(self.path("m"), "cuda", framework="dlpack", context=c)
            self.assertEqual(got["big"].tobytes(), data)
            del got

    def test_choice_of_framework(self):
        support.write_model(self.path("m"), [("t", "F32", (1,), bytes(4))])
        self.assertIsInstance(load_file(self.path("m"))["t"], np.ndarray)
        self.assertIsInstance(load_file(self.path("m"), "cuda:0")["t"], peerlane.Tensor)
        with self.assertRaisesRegex(ValueError, "numpy has no arrays on cuda"):
            load_file(self.path("m"), "cuda", framework="numpy")
        with self.assertRaisesRegex(ValueError, "no such device: 'tpu'"):
            load_file(self.path("m"), "tpu", framework="dlpack")
        with self.assertRaisesRegex(ValueError, "framework 'tf'"):
            load_file(self.path("m"), framework="tf")
        with self.assertRaises(ImportError):
            load_file(self.path("m"), framework="pt")
        with self.assertRaises(peerlane.Error):
            load_file(self.path("m"), "cuda:7", framework="dlpack")

    def test_progress(self):
        support.write_model(self.path("m"), [("t", "U8", (1000,), bytes(1000))])
        seen = []
        load_file(self.path("m"), framework="np", progress=lambda *a: seen.append(a))
        self.assertEqual(seen[-1], (1000, 1000))

        def stop(done, total):
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            load_file(self.path("m"), framework="np", progress=stop)
        with self.assertRaises(KeyboardInterrupt):
            save_file({"t": np.zeros(5)}, self.path("m"), progress=stop)
        self.assertEqual(support.parse(self.path("m"))[0]["t"][2], bytes(1000))

    def test_memory_is_freed(self):
        made = [("t", "U8", (1 << 20,), bytes(1 << 20))]
        support.write_model(self.path("m"), made)
        c = peerlane.Context(backend="sim")
        for _ in range(3):
            load_file(self.path("m"), "cuda", framework="dlpack", context=c)
            gc.collect()
            self.assertEqual(c._memories, 0)
        c.close()


class Open(support.Case):
    def test_like_safetensors(self):
        made = [("b", "I8", (2,), b"ab"), ("a", "F16", (2, 2), b"01234567")]
        support.write_model(self.path("m"), made, {"format": "pt", "ä": "ö"})
        with safe_open(self.path("m"), "numpy", "cpu") as f:
            self.assertEqual(f.keys(), ["a", "b"])
            self.assertEqual(f.offset_keys(), ["b", "a"])
            self.assertEqual(f.metadata(), {"format": "pt", "ä": "ö"})
            self.assertEqual(f.get_tensor("a").tobytes(), b"01234567")
            self.assertEqual(f.get_slice("a").get_shape(), [2, 2])
            self.assertEqual(f.get_slice("a").get_dtype(), "F16")
            self.assertEqual(list(f.get_tensors()), ["b", "a"])
            with self.assertRaisesRegex(KeyError, 'no tensor "c"'):
                f.get_tensor("c")
        for use in (f.keys, f.metadata, lambda: f.get_tensor("a")):
            with self.assertRaisesRegex(peerlane.Error, "is closed"):
                use()
        support.write_model(self.path("n"), made)
        with safe_open(self.path("n"), framework="np") as f:
            self.assertIsNone(f.metadata())

    def test_names(self):
        names = ["", " ", "a.b/c", "ünï", "日本", "\\\"'", "\t", "\U0001f600", "x" * 3000]
        made = [(n, "U8", (i,), support.pattern(i, i)) for i, n in enumerate(names)]
        support.write_model(self.path("m"), made)
        got = load_file(self.path("m"), framework="np")
        self.assertEqual({n: a.tobytes() for n, a in got.items()}, {m[0]: m[3] for m in made})
        save_file(got, self.path("n"))
        self.assertEqual(support.parse(self.path("n"))[0], support.parse(self.path("m"))[0])


class Sharded(support.Case):
    def model(self):
        """A model of three shards, in a folder."""
        where, expected = {}, {}
        for shard in range(3):
            name = f"model-{shard + 1:05}-of-00003.safetensors"
            made = [
                (f"s{shard}.t{i}", "F64", (i, 2), support.pattern(i * 16, shard * 10 + i))
                for i in range(4)
            ]
            support.write_model(self.path(name), made, {"shard": str(shard)})
            where.update({m[0]: name for m in made})
            expected.update({m[0]: m[3] for m in made})
        index = {"metadata": {"total_size": 1}, "weight_map": where}
        with open(self.path("model.safetensors.index.json"), "w", encoding="utf-8") as f:
            json.dump(index, f)
        return expected

    def test_load(self):
        expected = self.model()
        for path in (self.dir, self.path("model.safetensors.index.json")):
            for per_tensor in (False, True):
                got = load_sharded(path, framework="np", per_tensor=per_tensor)
                self.assertEqual({n: a.tobytes() for n, a in got.items()}, expected)
            got = load_sharded(path, "cuda", framework="dlpack")
            self.assertEqual({n: t.tobytes() for n, t in got.items()}, expected)
        got = load_sharded(self.dir, framework="np")
        self.assertIs(got["s0.t1"].base, got["s0.t2"].base)
        self.assertIsNot(got["s0.t1"].base, got["s1.t1"].base)
        got = load_sharded(self.dir, framework="np", names=["s2.t1", "s0.t3"])
        self.assertEqual(got["s2.t1"].tobytes(), expected["s2.t1"])
        with safe_open(self.dir, "np") as f:
            self.assertEqual(f.keys(), sorted(expected))
            self.assertEqual(f.get_slice("s1.t3")[1].tobytes(), expected["s1.t3"][16:32])
        with self.assertRaisesRegex(ValueError, "neither an index file"):
            load_sharded(self.path("model-00001-of-00003.safetensors"))

    def test_missing_shard(self):
        self.model()
        os.unlink(self.path("model-00002-of-00003.safetensors"))
        with self.assertRaises(FileNotFoundError) as caught:
            load_sharded(self.dir)
        self.assertIn("model-00002-of-00003.safetensors", str(caught.exception))


class Save(support.Case):
    def test_every_type(self):
        made = [m for m in every_type()]
        support.write_model(self.path("m"), made)
        expected, _ = support.parse(self.path("m"))
        own = load_file(self.path("m"), "cuda", framework="dlpack")
        save_file(own, self.path("n"), {"key": "value"})
        self.assertEqual(support.parse(self.path("n")), (expected, {"key": "value"}))
        narrow = {m[0] for m in made if support.BITS[m[1]] < 8}
        arrays = load_file(self.path("m"), framework="np", names=set(expected) - narrow)
        save_file(arrays, self.path("o"))
        wanted = {n: t for n, t in expected.items() if n not in narrow}
        self.assertEqual(support.parse(self.path("o")), (wanted, None))

    def test_narrow_types_of_numpy(self):
        made = [("f4", "F4", (3, 8), support.pattern(12, 1)), ("f6", "F6_E2M3", (2, 4), b"abcdef")]
        support.write_model(self.path("m"), made)
        save_file(load_file(self.path("m"), framework="np"), self.path("n"))
        self.assertEqual(support.parse(self.path("n"))[0], support.parse(self.path("m"))[0])

    def test_arrays_that_need_a_copy(self):
        a = np.arange(12, dtype=">i4").reshape(3, 4)
        save_file({"t": a.T, "v": np.int16(7), "big": a}, self.path("m"))
        got = load_file(self.path("m"), framework="np")
        np.testing.assert_array_equal(got["t"], a.T)
        np.testing.assert_array_equal(got["big"], a)
        self.assertEqual((got["v"].shape, got["v"].item()), ((), 7))

    def test_dlpack_of_others(self):
        a = np.arange(6, dtype="<f4").reshape(2, 3)

        class Other:
            __dlpack_device__ = a.__dlpack_device__

            def __dlpack__(self, stream=None):
                return a.__dlpack__()

        save_file({"t": Other()}, self.path("m"))
        self.assertEqual(support.parse(self.path("m"))[0]["t"], ("F32", (2, 3), a.tobytes()))

    def test_checksum(self):
        save_file({"t": np.arange(1000)}, self.path("m"), checksum=True, align=4096, sync=False)
        load_file(self.path("m"), framework="np", checksum=True)
        raw = bytearray(self.content("m"))
        self.assertEqual(len(raw), 4096 + 8000)
        raw[-1] ^= 1
        self.file("m", raw)
        load_file(self.path("m"), framework="np")
        with self.assertRaises(peerlane.Error) as caught:
            load_file(self.path("m"), framework="np", checksum=True)
        self.assertIn('"t"', str(caught.exception))

    def test_refused(self):
        good = self.file("m", b"what was there before")
        half = np.arange(10)
        for bad, kind, words in (
            ({"x": [1, 2]}, TypeError, '"x" is a list'),
            ({5: half}, TypeError, "names"),
            ({"x": np.array([None])}, ValueError, '"x".*no type for object'),
            ({"x": np.zeros(2, "c16")}, ValueError, '"x".*complex128'),
            ({"a": half, "b": half[3:5]}, RuntimeError, '"a" and "b" share memory'),
            ({"a\0": half}, ValueError, "null"),
            ({"__metadata__": half}, peerlane.Error, "__metadata__"),
        ):
            with self.assertRaisesRegex(kind, words):
                save_file(bad, good)
        with self.assertRaisesRegex(TypeError, "must be text"):
            save_file({}, good, {"a": 5})
        with self.assertRaises(FileNotFoundError):
            save_file({"a": half}, self.path("no/such/folder"))
        self.assertEqual(self.content("m"), b"what was there before")
        self.assertEqual(os.listdir(self.dir), ["m"])
        save_file({}, good)
        self.assertEqual(load_file(good, framework="np"), {})


if __name__ == "__main__":
    unittest.main()
