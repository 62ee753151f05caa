# SPDX-License-Identifier: MIT
"""Memory from objects of every kind, and what is refused."""

import array
import ctypes
import gc
import mmap
import unittest
import weakref

import numpy as np
import support

import peerlane
from peerlane import Buffer, _dlpack


class Protocols(support.Case):
    def test_buffer_protocol(self):
        for obj in (bytearray(b"abc"), array.array("d", [1, 2]), memoryview(bytearray(7))[2:5]):
            view = memoryview(obj)
            b = Buffer(obj)
            self.assertEqual(b.nbytes, view.nbytes)
            self.assertFalse(b.readonly)
            self.assertEqual(ctypes.string_at(b.address, b.nbytes), view.tobytes())
        self.assertTrue(Buffer(b"abc").readonly)
        self.assertEqual(Buffer(bytearray()).nbytes, 0)

    def test_export_is_held_and_released(self):
        data = bytearray(b"abc")
        b = Buffer(data)
        with self.assertRaises(BufferError):
            data.append(1)
        del b
        data.append(1)
        mapped = mmap.mmap(-1, 4096)
        b = Buffer(mapped)
        with self.assertRaises(BufferError):
            mapped.close()
        del b
        mapped.close()

    def test_numpy(self):
        a = np.arange(12, dtype="f4").reshape(3, 4)
        b = Buffer(a)
        self.assertEqual((b.address, b.nbytes, b.readonly), (a.ctypes.data, 48, False))
        a.flags.writeable = False
        self.assertTrue(Buffer(a).readonly)
        self.assertEqual(Buffer(np.zeros((0, 3))).nbytes, 0)
        self.assertEqual(Buffer(np.array(1.5)).nbytes, 8)
        self.assertEqual(Buffer(np.array(["ab", "cde"])).nbytes, 24)
        self.assertEqual(Buffer(np.array(["2020-01-01"], dtype="M8[ns]")).nbytes, 8)

    def test_not_contiguous(self):
        a = np.arange(12, dtype="f4").reshape(3, 4)
        for bad in (a[:, 1:], a.T, a[::2], a[:, ::-1], memoryview(b"abcdef")[::2]):
            with self.assertRaisesRegex(ValueError, "not contiguous"):
                Buffer(bad)
        # Strides of dimensions that have one element, or none, say nothing.
        Buffer(a[1:2, :])
        Buffer(a[:0].T)

    def test_no_memory(self):
        for bad in (None, 5, "text", [1, 2], object()):
            with self.assertRaisesRegex(TypeError, "no memory"):
                Buffer(bad)
        with self.assertRaisesRegex(TypeError, "type"):
            Buffer(np.array([None]))

    def test_read_only(self):
        path = self.file("f", b"x" * 10)
        with peerlane.open(path) as f:
            with self.assertRaisesRegex(ValueError, "read-only"):
                f.read_into(b"0123456789")

    def test_interface_of_a_stranger(self):
        keep = np.arange(6, dtype="<i2")

        class Stranger:
            __cuda_array_interface__ = {
                "shape": (2, 3),
                "typestr": "<i2",
                "data": (keep.ctypes.data, True),
                "strides": (6, 2),
                "version": 3,
                "stream": 7,
            }

        b = Buffer(Stranger())
        self.assertEqual((b.address, b.nbytes), (keep.ctypes.data, 12))
        self.assertTrue(b.readonly and b.gpu)
        self.assertEqual(b.stream, 7)
        Stranger.__cuda_array_interface__["strides"] = (2, 4)
        with self.assertRaisesRegex(ValueError, "not contiguous"):
            Buffer(Stranger())

    def test_waited_for(self):
        """An object that names no stream, and can be waited for, as those of JAX."""
        keep, asked = np.arange(6, dtype="<i2"), []

        class Later:
            def __init__(self):
                self.__cuda_array_interface__ = {
                    "shape": (6,),
                    "typestr": "<i2",
                    "data": (keep.ctypes.data, True),
                    "version": 2,
                }

            def block_until_ready(self):
                asked.append(self)

        later = Later()
        self.assertEqual(Buffer(later).stream, -1)
        self.assertEqual(asked, [later])


class OnlyDlpack:
    """Passes on nothing but __dlpack__."""

    def __init__(self, array, device=None):
        self.array = array
        self.device = device

    def __dlpack__(self, stream=None):
        self.stream = stream
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.device or self.array.__dlpack_device__()


class Versioned:
    """A producer of the newer capsule, read-only."""

    def __init__(self, data):
        self.data = np.frombuffer(data, "u1")
        self.shape = (ctypes.c_int64 * 1)(len(data))
        self.managed = _dlpack._ManagedVersioned(major=1, minor=0, flags=_dlpack.READ_ONLY)
        t = self.managed.tensor
        t.data, t.device_type, t.ndim = self.data.ctypes.data, 1, 1
        t.code, t.bits, t.lanes = 1, 8, 1
        t.shape = ctypes.cast(self.shape, ctypes.POINTER(ctypes.c_int64))

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, *, stream=None, max_version=None):
        assert max_version >= (1, 0)
        return _dlpack._new(ctypes.addressof(self.managed), b"dltensor_versioned", None)


class Dlpack(support.Case):
    def test_numpy_through_dlpack(self):
        a = np.arange(24, dtype="<i4").reshape(2, 3, 4)
        b = Buffer(OnlyDlpack(a))
        self.assertEqual((b.address, b.nbytes, b.readonly), (a.ctypes.data, 96, False))
        b = Buffer(OnlyDlpack(a[1:]))
        self.assertEqual(b.address, a.ctypes.data + 48)
        with self.assertRaisesRegex(ValueError, "not contiguous"):
            Buffer(OnlyDlpack(a[:, 1:]))

    def test_versioned_capsule(self):
        b = Buffer(Versioned(b"hello"))
        self.assertTrue(b.readonly)
        self.assertEqual(ctypes.string_at(b.address, b.nbytes), b"hello")
        later = Versioned(b"hello")
        later.managed.tensor.byte_offset, later.shape[0] = 2, 3
        b = Buffer(later)
        self.assertEqual(ctypes.string_at(b.address, b.nbytes), b"llo")
        later.managed.major = 2
        with self.assertRaisesRegex(ValueError, "version 2"):
            Buffer(later)

    def test_other_devices(self):
        with self.assertRaisesRegex(ValueError, "device type 8"):
            Buffer(OnlyDlpack(np.zeros(3), (8, 0)))
        cuda = OnlyDlpack(np.zeros(3), (2, 0))
        self.assertEqual(Buffer(cuda).stream, 1)
        self.assertEqual(cuda.stream, 1)

    def test_object_lives_as_long_as_the_buffer(self):
        a = np.zeros(100)
        gone = weakref.ref(a)
        b = Buffer(OnlyDlpack(a))
        del a
        gc.collect()
        self.assertIsNotNone(gone())
        del b
        gc.collect()
        self.assertIsNone(gone())

    def test_used_capsule(self):
        a = np.zeros(3)
        capsule = a.__dlpack__()

        class Again:
            def __dlpack__(self, stream=None):
                return capsule

            def __dlpack_device__(self):
                return (1, 0)

        np.from_dlpack(Again())
        with self.assertRaisesRegex(ValueError, "used already"):
            Buffer(Again())


if __name__ == "__main__":
    unittest.main()
