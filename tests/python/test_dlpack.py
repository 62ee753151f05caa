# SPDX-License-Identifier: MIT
"""Capsules of our own tensors: who keeps the memory, who frees it, and what numpy gets."""

import ctypes
import gc
import os
import threading
import unittest
import weakref

import numpy as np
import support

import peerlane
from peerlane import _dlpack
from peerlane._lib import lib
from peerlane.safetensors import load_file

_set_name = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_SetName", ctypes.pythonapi)
)
VERSIONS = (None, (0, 8), (1, 0), (1, 1), (2, 0))


class Capsules(support.Case):
    def tensor(self, dtype="I32", shape=(2, 3), device="cpu"):
        data = support.pattern(support.count(shape) * support.BITS[dtype] // 8, 1)
        support.write_model(self.path("m"), [("t", dtype, shape, data)])
        return load_file(self.path("m"), device, framework="dlpack")["t"], data

    def test_consumer_keeps_the_memory(self):
        t, data = self.tensor()
        gone = weakref.ref(t._memory)
        a = np.from_dlpack(t)
        self.assertEqual(a.ctypes.data, t.address)
        del t
        gc.collect()
        self.assertEqual(a.tobytes(), data)
        self.assertEqual((a.shape, a.dtype), ((2, 3), np.dtype("<i4")))
        self.assertIsNotNone(gone())
        del a
        self.assertIsNone(gone())

    def test_what_a_capsule_says(self):
        t, _ = self.tensor("BF16", (2, 0, 3))
        for version in VERSIONS:
            capsule = t.__dlpack__(max_version=version)
            self.assertEqual("versioned" in str(capsule), version is not None and version >= (1, 0))
            found = _dlpack.view(capsule)
            self.assertEqual((found.shape, found.strides), ((2, 0, 3), (3, 3, 1)))
            self.assertEqual((found.code, found.bits, found.readonly), (4, 16, False))

    def test_capsule_that_nobody_takes(self):
        for version in VERSIONS:
            t, _ = self.tensor()
            gone = weakref.ref(t._memory)
            capsule = t.__dlpack__(max_version=version)
            del t
            self.assertIsNotNone(gone())
            del capsule
            self.assertIsNone(gone())

    def test_capsule_that_was_taken(self):
        """A consumer renames the capsule, and calls the deleter later: here without the GIL."""
        for version, name, delete in (
            (None, b"dltensor", lib.peerlane_dlpack_delete),
            ((1, 0), b"dltensor_versioned", lib.peerlane_dlpack_delete_versioned),
        ):
            t, _ = self.tensor()
            gone = weakref.ref(t._memory)
            capsule = t.__dlpack__(max_version=version)
            address = _dlpack._pointer(capsule, name)
            used = b"used_" + name
            _set_name(capsule, used)
            del t, capsule
            gc.collect()
            self.assertIsNotNone(gone())
            thread = threading.Thread(target=delete, args=(address,))
            thread.start()
            thread.join()
            self.assertIsNone(gone())
        lib.peerlane_dlpack_delete(None)
        lib.peerlane_dlpack_delete_versioned(None)

    def test_dropped_while_an_exception_is_pending(self):
        """numpy refuses memory of a GPU and drops the capsule: memory is freed, the error comes."""
        c = peerlane.Context(backend="sim")
        c.backend = "cuda"  # what this says is not true, but numpy goes by it
        for _ in range(100):
            # Of 16 GiB: not freed, the 17th would fail.
            t = peerlane.empty(1 << 30, context=c)
            with self.assertRaisesRegex((RuntimeError, BufferError), "(?i)unsupported device"):
                np.from_dlpack(t)
            del t
            self.assertEqual(c._memories, 0)
        c.close()

    def test_simulated_memory(self):
        """No framework can read it, and the words say what to do."""
        c = peerlane.Context(backend="sim")
        for _ in range(100):
            t = peerlane.empty(1 << 30, "sim", context=c)
            with self.assertRaisesRegex(BufferError, "simulated GPU sim:0.*numpy.asarray"):
                np.from_dlpack(t)
            del t
            self.assertEqual(c._memories, 0)
        c.close()

    def test_other_device_and_copy(self):
        t, data = self.tensor()
        gpu, _ = self.tensor(device="sim")
        for owner in (t, gpu):
            gone = weakref.ref(owner._memory)
            capsule = owner.__dlpack__(dl_device=(1, 0), copy=True, max_version=(1, 0))
            found = _dlpack.view(capsule)
            self.assertEqual(found.device, (1, 0))
            self.assertNotEqual(found.address, owner.address)
            self.assertEqual(ctypes.string_at(found.address, 24), data)
        self.assertEqual(_dlpack.view(t.__dlpack__(copy=False)).address, t.address)
        with self.assertRaisesRegex(BufferError, "only by a copy"):
            gpu.__dlpack__(dl_device=(1, 0), copy=False)
        with self.assertRaisesRegex(BufferError, "DLPack device"):
            t.__dlpack__(dl_device=(2, 0))
        del gpu, owner, capsule
        self.assertIsNone(gone())


class Arrays(support.Case):
    def load(self, made, device):
        support.write_model(self.path("m"), made)
        return load_file(self.path("m"), device, framework="dlpack")

    def test_asarray(self):
        made = [
            ("i", "I32", (2, 3), support.pattern(24, 1)),
            ("h", "BF16", (2,), b"\x80\x3f\x00\xc0"),
            ("four", "F4", (2, 4), b"abcd"),
            ("none", "F32", (2, 0), b""),
            ("one", "F64", (), support.pattern(8, 2)),
        ]
        for device in ("cpu", "sim"):
            got = self.load(made, device)
            wanted = load_file(self.path("m"), framework="np")
            for name, t in got.items():
                a = np.asarray(t)
                self.assertEqual((a.dtype, a.shape), (wanted[name].dtype, wanted[name].shape))
                self.assertEqual(a.tobytes(), wanted[name].tobytes())
                self.assertTrue(a.flags.writeable)
            a = np.asarray(got["i"], dtype="f8")
            np.testing.assert_array_equal(a, wanted["i"].astype("f8"))
            copy = np.array(got["i"], copy=True)
            copy[:] = 0
            self.assertEqual(got["i"].tobytes(), made[0][3])

    def test_host_memory_is_shown(self):
        for name, dtype in (("i", "I32"), ("h", "BF16")):
            t = self.load([(name, dtype, (4,), bytes(support.BITS[dtype] // 2))], "cpu")[name]
            gone = weakref.ref(t._memory)
            a = np.asarray(t)
            self.assertEqual(a.ctypes.data, t.address)
            a.view("u1")[0] = 7
            self.assertEqual(t.tobytes()[0], 7)
            del t
            gc.collect()
            self.assertIsNotNone(gone())
            del a
            gc.collect()
            self.assertIsNone(gone())

    def test_gpu_memory_only_by_a_copy(self):
        t = self.load([("i", "I32", (4,), bytes(16))], "sim")["i"]
        with self.assertRaisesRegex(ValueError, "sim:0 gets to the host only by a copy"):
            t.__array__(copy=False)
        self.assertEqual(t.__array__(copy=True).tolist(), [0, 0, 0, 0])


if __name__ == "__main__":
    unittest.main()
