# SPDX-License-Identifier: MIT
"""Files: read and written at any offset, at once, on streams and in batches; errors; statistics."""

import errno
import gc
import os
import pickle
import threading
import unittest

import numpy as np
import support

import peerlane
from peerlane import _abi, _file, _tensor
from peerlane._handle import Handle


def gpu_memory(data):
    """Simulated GPU memory with such content."""
    memory = peerlane.empty(len(data))
    peerlane.context().copy(memory, data)
    return memory


class Files(support.Case):
    def test_any_offset_and_size(self):
        data = support.pattern(3_000_001, 1)
        path = self.file("f", data)
        gpu = gpu_memory(bytes(3_000_100))
        with peerlane.open(path) as f:
            for offset, size, at in ((0, 3_000_001, 0), (1, 4097, 3), (511, 1_000_003, 77), (3, 0, 5)):
                for target in (np.zeros(3_000_100, "u1"), gpu):
                    n = f.read_into(target, offset, size=size, buffer_offset=at)
                    self.assertEqual(n, size)
                    got = target.tobytes()[at : at + size]
                    self.assertEqual(got, data[offset : offset + size])

    def test_names_of_errors(self):
        found = [e for e in vars(peerlane).values() if isinstance(e, type) and issubclass(e, peerlane.Error)]
        self.assertEqual(len(found), 8)
        for error in found:
            self.assertIs(getattr(peerlane, error.__qualname__), error)
            self.assertEqual(error.__module__, "peerlane")

    def test_end_of_file(self):
        path = self.file("f", b"0123456789")
        with peerlane.open(path) as f:
            target = bytearray(8)
            self.assertEqual(f.read_into(target, 6), 4)
            self.assertEqual(bytes(target), b"6789\0\0\0\0")
            self.assertEqual(f.read_into(target, 10), 0)
            self.assertEqual(f.read_into(target, 1 << 40), 0)

    def test_write(self):
        data = support.pattern(1_000_003, 2)
        with peerlane.open(self.path("f"), "w") as f:
            self.assertEqual(f.write_from(gpu_memory(data), 5), len(data))
            self.assertEqual(f.write_from(data, 0, size=5, buffer_offset=9, durable=True), 5)
            f.sync()
        self.assertEqual(self.content("f"), data[9:14] + data)

    def test_modes(self):
        path = self.path("f")
        with self.assertRaises(FileNotFoundError) as caught:
            peerlane.open(path)
        self.assertIsInstance(caught.exception, peerlane.Error)
        self.assertEqual(caught.exception.errno, errno.ENOENT)
        self.assertEqual(caught.exception.filename, path)
        with peerlane.open(path, "xb") as f:
            f.write_from(b"abc")
            with self.assertRaises(peerlane.Error) as caught:
                f.read_into(bytearray(3))
            self.assertEqual(caught.exception.errno, errno.EBADF)
        with self.assertRaises(FileExistsError):
            peerlane.open(path, "x")
        with peerlane.open(path, "a") as f:
            f.write_from(b"def")
        with peerlane.open(path, "rb+") as f:
            f.write_from(b"X", 1)
        self.assertEqual(self.content("f"), b"aXcdef")
        peerlane.open(path, "w").close()
        self.assertEqual(self.content("f"), b"")
        with self.assertRaises(IsADirectoryError):
            peerlane.open(self.dir)
        for bad in ("", "rw", "r++", "t", "bb"):
            with self.assertRaisesRegex(ValueError, "no such mode"):
                peerlane.open(path, bad)
        with self.assertRaises(ValueError):
            peerlane.open("a\0b")

    def test_descriptors(self):
        path = self.file("f", b"hello")
        with open(path, "rb") as plain:
            plain.read(2)
            for handle in (plain, plain.fileno()):
                with peerlane.open(handle) as f:
                    target = bytearray(5)
                    self.assertEqual(f.read_into(target), 5)
                    self.assertEqual(bytes(target), b"hello")
            self.assertEqual(plain.read(), b"llo")

    def test_parts_of_buffers(self):
        with peerlane.open(self.file("f", b"0123456789")) as f:
            for offset, size in ((0, 11), (10, 1), (11, None)):
                with self.assertRaisesRegex(ValueError, "past the buffer, which has 10 bytes"):
                    f.read_into(bytearray(10), size=size, buffer_offset=offset)
            for offset, size in ((-1, 2), (0, -1)):
                with self.assertRaisesRegex(ValueError, "is -1; it must be 0 or more"):
                    f.read_into(bytearray(10), size=size, buffer_offset=offset)

    def test_offsets(self):
        """Numbers that are no offsets; ctypes would cut what does not fit 64 bits."""
        with peerlane.open(self.file("f", b"0123456789"), "r+") as f, peerlane.context().stream() as s:
            for call in (
                lambda at: f.read_into(bytearray(4), at),
                lambda at: f.write_from(b"abcd", at),
                lambda at: f.read_into_async(bytearray(4), at, stream=s),
                lambda at: f.write_from_async(b"abcd", at, stream=s),
                lambda at: f.explain(bytearray(4), at),
                lambda at: peerlane.read_many([(f, bytearray(4), at)]),
                lambda at: peerlane.write_many([(f, b"abcd", at)]),
            ):
                for at, kind in ((-1, ValueError), (1 << 64, ValueError), (1.5, TypeError), ("1", TypeError)):
                    with self.assertRaisesRegex(kind, "offset"):
                        call(at)
        self.assertEqual(self.content("f"), b"0123456789")

    def test_errors_name_the_file_once(self):
        path = self.path("none")
        for name in (path, os.fsencode(path)):
            with self.assertRaises(FileNotFoundError) as caught:
                peerlane.open(name)
            self.assertEqual(str(caught.exception).count("none"), 1)
            self.assertEqual(caught.exception.filename, name)
        with self.assertRaises(IsADirectoryError) as caught:
            peerlane.open(self.dir)
        self.assertEqual(str(caught.exception).count(self.dir), 1)
        with peerlane.open(self.file("f", b"x")) as f:
            with self.assertRaises(peerlane.Error) as caught:
                f.write_from(b"y")
            self.assertEqual(str(caught.exception).count(f.name), 1)
        # A name that is a part of the words is not in them.
        problem = peerlane.Error(errno.EBADF, "the file is not open for writing")
        problem.filename = "f"
        self.assertEqual(str(problem), "[Errno 9] the file is not open for writing: 'f'")

    def test_wrong_types(self):
        with peerlane.open(self.file("f", b"0123456789")) as f:
            for requests, words in (
                ([(f, bytearray(4))], "request 0 is not a tuple of a file, a buffer and an offset"),
                ([(f, bytearray(4), 0), f], "request 1 is not a tuple"),
                ([(f.name, bytearray(4), 0)], "begins with a str; it must be a peerlane.File"),
            ):
                with self.assertRaisesRegex(TypeError, words):
                    peerlane.read_many(requests)
            with self.assertRaisesRegex(TypeError, "size must be a whole number"):
                f.read_into(bytearray(4), size=1.5)
        with self.assertRaisesRegex(TypeError, "the mode must be a str"):
            peerlane.open(self.path("f"), 5)
        with self.assertRaisesRegex(ValueError, "descriptor is -1"):
            peerlane.open(-1)
        for call in (
            lambda c: peerlane.open(self.path("f"), context=c),
            lambda c: peerlane.empty(10, context=c),
            lambda c: peerlane.empty(10, "sim", context=c),
            lambda c: peerlane.safetensors.load_file(self.path("f"), context=c),
            lambda c: peerlane.safetensors.save_file({}, self.path("g"), context=c),
        ):
            for bad in (5, "cuda", 0):
                with self.assertRaisesRegex(TypeError, "context must be a peerlane.Context"):
                    call(bad)

    def test_closed(self):
        f = peerlane.open(self.file("f", b"x"))
        f.close()
        f.close()
        self.assertTrue(f.closed)
        with self.assertRaisesRegex(peerlane.Error, "is closed"):
            f.read_into(bytearray(1))

    def test_wild_address(self):
        with peerlane.open(self.file("f", b"x" * 100)) as f:
            with self.assertRaises(peerlane.Error) as caught:
                f.read_into(peerlane.Buffer.at(4096, 100))
        self.assertEqual(caught.exception.errno, errno.EFAULT)
        self.assertTrue(caught.exception.explanation)

    def test_error_survives_pickling(self):
        problem = peerlane.FormatError(117, "words", 5)
        again = pickle.loads(pickle.dumps(problem))
        self.assertEqual((type(again), again.errno, again.strerror), (type(problem), 117, "words"))
        self.assertEqual((again.cuda, again.explanation), (5, "words"))


class Streams(support.Case):
    def test_order(self):
        data = support.pattern(200_000, 3)
        gpu = gpu_memory(bytes(200_000))
        with peerlane.open(self.file("in", data)) as f, peerlane.open(self.path("out"), "w") as g:
            with peerlane.context().stream() as stream:
                first = f.read_into_async(gpu, stream=stream)
                second = g.write_from_async(gpu, 7, stream=stream, durable=True)
                self.assertEqual(second.result(), 200_000)
                self.assertTrue(first.done())
                self.assertEqual(first.result(), 200_000)
        self.assertEqual(self.content("out"), bytes(7) + data)

    def test_requests_that_are_dropped(self):
        data = support.pattern(50_000, 4)
        f = peerlane.open(self.file("in", data))
        target = np.zeros((20, 50_000), "u1")
        with peerlane.context().stream() as stream:
            for row in target:
                f.read_into_async(row, stream=stream)
                gc.collect()
            stream.synchronize()
        f.close()
        for row in target:
            self.assertEqual(row.tobytes(), data)

    def test_requests_are_kept_until_they_are_done(self):
        """By a library that takes requests and does not do them."""
        real, flags = _file.lib, []

        class Library:
            def __getattr__(self, name):
                return getattr(real, name)

            def peerlane_read_async(self, *arguments):
                flags.append(arguments[-1])
                return 0

            peerlane_write_async = peerlane_read_async

        before = len(_file._pending)
        with peerlane.open(self.file("in", b"x")) as f:
            try:
                _file.lib = Library()
                f.read_into_async(bytearray(1))
                gc.collect()
                (left,) = list(_file._pending)[before:]
                self.assertFalse(left.done())
                left._result.value = 1
                self.assertEqual(left.result(), 1)
                self.assertEqual(len(_file._pending), before)
                f.write_from_async(bytearray(1))
                f.write_from_async(bytearray(1), durable=True)
                self.assertEqual(flags, [_abi.FIXED, _abi.FIXED, _abi.FIXED | _abi.DURABLE])
                for request in list(_file._pending):
                    request._result.value = 1
                f.read_into_async(bytearray(1))
                self.assertEqual(len(_file._pending), 1)
            finally:
                _file.lib = real
                _file._pending.clear()

    def test_errors_come_with_the_result(self):
        with peerlane.open(self.file("in", b"x")) as f, peerlane.context().stream() as stream:
            with self.assertRaises(peerlane.Error):
                f.write_from_async(bytearray(5), stream=stream).result()

    def test_default_stream(self):
        with peerlane.open(self.file("in", b"abc")) as f:
            target = bytearray(5)
            request = f.read_into_async(target, 1)
            self.assertEqual(request.result(), 2)
            self.assertEqual(bytes(target), b"bc\0\0\0")

    def test_kinds_of_streams(self):
        from peerlane._file import stream_handle

        class Torch:
            cuda_stream = 11

        class Cupy:
            ptr = 12

        class Numba:
            import ctypes

            handle = ctypes.c_void_p(13)

        class Protocol:
            def __cuda_stream__(self):
                return (0, 14)

        buffer = peerlane.Buffer(bytearray(1))
        found = [stream_handle(s, buffer) for s in (Torch(), Cupy(), Numba(), Protocol(), 15, None)]
        self.assertEqual(found, [11, 12, 13, 14, 15, 0])
        with self.assertRaisesRegex(TypeError, "not a stream"):
            stream_handle("x", buffer)
        for bad in (-1, 1 << 64):
            with self.assertRaisesRegex(ValueError, "stream"):
                stream_handle(bad, buffer)


class Batches(support.Case):
    def test_many(self):
        data = support.pattern(400_000, 5)
        with peerlane.open(self.file("in", data)) as f, peerlane.open(self.path("o"), "w+") as g:
            order = [(i * 7919) % 5000 for i in range(5000)]
            target = np.zeros((5000, 80), "u1")
            counts = peerlane.read_many((f, target[i], i * 80) for i in order)
            self.assertEqual(counts, [80] * 5000)
            self.assertEqual(target.tobytes(), data)
            peerlane.write_many((g, target[i], 4999 * 80 - i * 80) for i in order)
        self.assertEqual(self.content("o"), target[::-1].tobytes())

    def test_ends_and_errors(self):
        with peerlane.open(self.file("in", b"0123456789")) as f:
            self.assertEqual(peerlane.read_many([]), [])
            got = peerlane.read_many([(f, bytearray(4), 8), (f, bytearray(), 0), (f, bytearray(1), 99)])
            self.assertEqual(got, [2, 0, 0])
            with peerlane.Context(backend="sim") as other, peerlane.open(f.name, context=other) as g:
                with self.assertRaisesRegex(ValueError, "different contexts"):
                    peerlane.read_many([(f, bytearray(1), 0), (g, bytearray(1), 0)])
            with self.assertRaises(peerlane.Error):
                peerlane.write_many([(f, b"x", 0)])


class Contexts(support.Case):
    def test_options(self):
        with peerlane.Context(backend="sim", flags="no-direct,no-io-uring", pool_bytes=4 << 20) as c:
            self.assertEqual(c.backend, "sim")
            self.assertEqual(c.stats()["pool_limit"], 4 << 20)
            f = peerlane.open(self.file("f", b"abc"), context=c)
            said = f.explain(bytearray(3))
            self.assertEqual(said.io_engine, "threads")
            self.assertIn(said.chosen, [v.path for v in said.verdicts])
            self.assertIn("taken", str(said))
            self.assertIn("not read ahead: ", str(said))
        self.assertTrue(f.closed)
        with self.assertRaisesRegex(ValueError, "no such flag"):
            peerlane.Context(flags=["fast"])
        with self.assertRaises(peerlane.InvalidError) as caught:
            peerlane.Context(backend="none")
        self.assertIn("none", caught.exception.explanation)
        self.assertIsInstance(caught.exception, ValueError)
        for bad, kind in (
            ({"backend": 5}, TypeError),
            ({"threads": -1}, ValueError),
            ({"threads": 1.5}, TypeError),
            ({"threads": 1 << 32}, ValueError),
            ({"pool_bytes": -1}, ValueError),
            ({"pool_bytes": 5}, ValueError),
            ({"slot_bytes": 100_000}, ValueError),
        ):
            with self.assertRaisesRegex(kind, next(iter(bad))):
                peerlane.Context(**bad)
        with self.assertRaisesRegex(peerlane.Error, "is closed"):
            c.stats()

    def test_repr(self):
        with peerlane.Context(backend="sim") as c:
            self.assertEqual(repr(c), "<peerlane.Context sim open>")
        self.assertEqual(repr(c), "<peerlane.Context sim closed>")
        with peerlane.open(self.file("f", b"abc")) as f, peerlane.context().stream() as s:
            self.assertEqual(repr(s), "<peerlane.Stream on GPU 0 of sim, open>")
            with peerlane.register(bytearray(5)) as r:
                self.assertEqual(repr(r), "<peerlane.Registration of 5 bytes>")
            request = f.read_into_async(bytearray(2), stream=s)
            request.wait()
            self.assertEqual(repr(request), "<peerlane.Request of 2 bytes, result 2>")

    def test_stats(self):
        with peerlane.Context(backend="sim") as c:
            gpu = peerlane.safetensors
            support.write_model(self.path("m"), [("t", "U8", (100,), support.pattern(100, 1))])
            gpu.load_file(self.path("m"), "cuda:0", framework="dlpack", context=c)
            read = c.stats()["read"]
            self.assertGreaterEqual(read["bytes"], 100)
            self.assertEqual(sum(read["path_bytes"].values()), read["bytes"])
            self.assertEqual(set(read["path_bytes"]), {"p2p", "mapped", "in-place", "copy", "direct"})
            self.assertGreater(c.copy_limit(), 0)

    def test_registration(self):
        c = peerlane.context()
        before = c.stats()["buffers"]
        memory = bytearray(100)
        with peerlane.register(memory):
            self.assertEqual(c.stats()["buffers"], before + 1)
            with self.assertRaises(peerlane.Error) as caught:
                peerlane.register(memory)
            self.assertEqual(caught.exception.errno, errno.EEXIST)
        self.assertEqual(c.stats()["buffers"], before)
        kept = peerlane.register(memory)
        del kept
        gc.collect()
        self.assertEqual(c.stats()["buffers"], before)

    def test_empty(self):
        memory = peerlane.empty(100)
        self.assertEqual((memory.dtype, memory.shape, memory.device), ("U8", (100,), "sim:0"))
        peerlane.context().copy(memory, bytes(range(100)))
        self.assertEqual(memory.tobytes(), bytes(range(100)))
        with self.assertRaisesRegex(ValueError, "do not fit"):
            peerlane.context().copy(memory, b"x")
        with self.assertRaisesRegex(peerlane.Error, "no GPU 99"):
            peerlane.empty(100, 99)
        for bad, kind in ((0, ValueError), (-1, ValueError), (1 << 70, ValueError), (1.5, TypeError)):
            with self.assertRaisesRegex(kind, "nbytes"):
                peerlane.empty(bad)
        with self.assertRaisesRegex(ValueError, "gives GPU memory"):
            peerlane.empty(100, "cpu")

    def test_memory_is_freed_once(self):
        freed = []
        with peerlane.Context(backend="sim") as c:
            memory = _tensor.Memory(c, 5, freed.append)
            self.assertEqual(c._memories, 1)
            del memory
            self.assertEqual((c._memories, freed), (0, [5]))

    def test_memory_outlives_its_context(self):
        support.write_model(self.path("m"), [("t", "U8", (100,), support.pattern(100, 1))])
        c = peerlane.Context(backend="sim")
        t = peerlane.safetensors.load_file(self.path("m"), "cuda", framework="dlpack", context=c)["t"]
        c.close()
        self.assertIsNotNone(c._ended)
        with self.assertRaisesRegex(peerlane.Error, "is closed"):
            t.tobytes()
        del t
        gc.collect()
        self.assertIsNone(c._ended)

    def test_handle(self):
        """close() waits for who is inside, lets nobody in, and ends once."""
        ended, seen, inside, leave = [], [], threading.Event(), threading.Event()
        handle = Handle(5, ended.append, "the thing")

        def use():
            with handle as pointer:
                inside.set()
                leave.wait()
                seen.append((pointer, list(ended)))

        user = threading.Thread(target=use)
        user.start()
        inside.wait()
        closer = threading.Thread(target=handle.close)
        closer.start()
        while not handle.closed:
            pass
        with self.assertRaisesRegex(peerlane.Error, "the thing is closed"):
            handle.__enter__()
        leave.set()
        user.join()
        closer.join()
        handle.close()
        self.assertEqual((seen, ended), ([(5, [])], [5]))

    def test_handle_that_does_not_close(self):
        def end(pointer):
            raise peerlane.Error(errno.EBUSY, "not now")

        handle = Handle(5, end, "the thing")
        with self.assertRaisesRegex(peerlane.Error, "not now"):
            handle.close()
        with handle as pointer:
            self.assertEqual(pointer, 5)
        handle._end = lambda pointer: None

    def test_close_waits_for_threads(self):
        """Threads read while others close the files and the context under them."""
        path = self.file("f", support.pattern(1 << 20, 6))
        for _ in range(5):
            c = peerlane.Context(backend="sim")
            f = peerlane.open(path, context=c)
            begun = threading.Barrier(5)
            wrong = []

            def read():
                target = bytearray(1 << 20)
                begun.wait()
                try:
                    while True:
                        f.read_into(target)
                except peerlane.Error as problem:
                    if problem.errno != errno.EBADF:
                        wrong.append(problem)

            threads = [threading.Thread(target=read) for _ in range(4)]
            for t in threads:
                t.start()
            begun.wait()
            c.close()
            for t in threads:
                t.join()
            self.assertEqual(wrong, [])

    def test_many_threads(self):
        data = support.pattern(100_000, 7)
        wrong = []
        with peerlane.open(self.file("f", data)) as f:

            def read(seed):
                for i in range(20):
                    at = (seed * 7919 + i * 104729) % 90_000
                    target = bytearray(10_000)
                    if f.read_into(target, at) != 10_000 or target != data[at : at + 10_000]:
                        wrong.append((seed, i))

            threads = [threading.Thread(target=read, args=(s,)) for s in range(8)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
        self.assertEqual(wrong, [])

    def test_environment(self):
        self.assertEqual(peerlane.context().backend, os.environ["PEERLANE_BACKEND"])


if __name__ == "__main__":
    unittest.main()
