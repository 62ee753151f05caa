# SPDX-License-Identifier: MIT
"""Forks, the end of the interpreter, threads that run until then, and calls without the GIL."""

import os
import subprocess
import sys
import textwrap
import unittest

import support

# A bound on what must end by itself, on however slow a machine.
SECONDS = 120


class Process(support.Case):
    def python(self, code, status=0):
        """Run a program in an interpreter of its own; it must end quietly."""
        done = subprocess.run(
            [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(code)],
            cwd=self.dir,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        self.assertEqual((done.returncode, done.stderr), (status, ""))
        return done.stdout

    def setUp(self):
        super().setUp()
        self.file("f", support.pattern(100_000, 1))
        support.write_model(self.path("m"), [("t", "U8", (1000,), support.pattern(1000, 2))])

    def test_import_needs_nothing(self):
        out = self.python(
            """
            import sys, peerlane
            print([m for m in ("torch", "numpy", "cupy", "jax") if m in sys.modules])
            """
        )
        self.assertEqual(out, "[]\n")

    def test_exit_with_everything_open(self):
        self.python(
            """
            import peerlane
            f = peerlane.open("f")
            s = peerlane.context().stream()
            m = bytearray(100)
            r = peerlane.register(m)
            f.read_into(m)
            t = peerlane.safetensors.load_file("m", "cuda", framework="dlpack")["t"]
            o = peerlane.safetensors.safe_open("m", "dlpack", "cuda")
            h = peerlane.safetensors.load_file("m", framework="dlpack")["t"]
            capsules = [h.__dlpack__(), h.__dlpack__(max_version=(1, 0))]
            q = f.read_into_async(t, stream=s)
            """
        )

    def test_exit_closes(self):
        """Contexts are closed while the interpreter still works."""
        out = self.python(
            """
            import atexit
            atexit.register(lambda: print(c.closed, f.closed, peerlane.context))  # after the others
            import peerlane
            c = peerlane.Context(backend="sim")
            f = peerlane.open("f", context=c)
            """
        )
        self.assertTrue(out.startswith("True True <function"), out)

    def test_exit_with_cycles(self):
        """What only the last garbage collection finds."""
        self.python(
            """
            import peerlane
            class Knot: pass
            k = Knot()
            k.me = k
            k.f = peerlane.open("f")
            k.t = peerlane.safetensors.load_file("m", "cuda", framework="dlpack")
            k.c = peerlane.Context(backend="sim")
            k.g = peerlane.open("f", context=k.c)
            del k
            """
        )

    def test_exit_while_a_thread_reads(self):
        self.python(
            """
            import threading, peerlane
            f = peerlane.open("f")
            begun = threading.Event()
            def forever():
                m = bytearray(100_000)
                try:
                    while True:
                        f.read_into(m)
                        begun.set()
                except peerlane.Error:
                    pass
            threading.Thread(target=forever, daemon=True).start()
            begun.wait()
            """
        )

    def test_fork(self):
        """A child has a context of its own; what its parent opened says why it does not work."""
        out = self.python(
            """
            import errno, os, sys, peerlane
            f = peerlane.open("f")
            m = bytearray(10)
            f.read_into(m)
            t = peerlane.safetensors.load_file("m", "cuda", framework="dlpack")["t"]
            for way in ("exit", "_exit"):
                pid = os.fork()
                if pid == 0:
                    try:
                        f.read_into(bytearray(10))
                    except peerlane.Error as problem:
                        assert problem.errno == errno.EOWNERDEAD, problem
                        assert "fork" in problem.explanation, problem
                    n = bytearray(10)
                    with peerlane.open("f") as g:
                        assert g.read_into(n) == 10 and n == m
                    peerlane.safetensors.load_file("m", "cuda", framework="dlpack")
                    f.close()
                    del t
                    sys.exit(0) if way == "exit" else os._exit(0)
                assert os.waitpid(pid, 0)[1] == 0
            assert f.read_into(bytearray(10)) == 10
            assert len(t.tobytes()) == 1000
            print("parent done")
            """
        )
        self.assertEqual(out, "parent done\n")

    def test_fork_while_threads_read(self):
        self.python(
            """
            import os, threading, peerlane
            f = peerlane.open("f")
            stop = threading.Event()
            def read():
                m = bytearray(100_000)
                while not stop.is_set():
                    f.read_into(m)
            threads = [threading.Thread(target=read) for _ in range(4)]
            for t in threads:
                t.start()
            for _ in range(10):
                pid = os.fork()
                if pid == 0:
                    n = bytearray(100)
                    with peerlane.open("f") as g:
                        ok = g.read_into(n) == 100
                    f.close()
                    os._exit(0 if ok else 1)
                assert os.waitpid(pid, 0)[1] == 0
            stop.set()
            for t in threads:
                t.join()
            """
        )

    def test_pool_of_processes(self):
        """As training loaders do it, by fork and by spawn."""
        self.file(
            "pool.py",
            textwrap.dedent(
                """
                import multiprocessing, sys, peerlane
                def first(i):
                    m = bytearray(8)
                    with peerlane.open("f") as f:
                        f.read_into(m, i)
                    return bytes(m)
                if __name__ == "__main__":
                    peerlane.context()
                    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
                        got = pool.map(first, range(20))
                    data = open("f", "rb").read()
                    assert got == [data[i : i + 8] for i in range(20)]
                """
            ).encode(),
        )
        for way in ("fork", "spawn"):
            subprocess.run(
                [sys.executable, "pool.py", way], cwd=self.dir, timeout=SECONDS, check=True
            )

    def test_calls_release_the_gil(self):
        """While a copy of one thread hangs, another one runs, and ends the hang."""
        out = self.python(
            """
            import ctypes, threading, time, peerlane
            from peerlane._lib import check, lib
            inject = lib.peerlane_sim_inject
            inject.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint, ctypes.c_uint]
            c = peerlane.Context(backend="sim", flags="no-mapped")
            t = peerlane.safetensors.load_file("m", "cuda", framework="dlpack", context=c)["t"]
            f = peerlane.open("f", context=c)
            with c.handle as ctx:
                check(inject(ctx, b"hang", 0, 1000))
                counts = []
                reader = threading.Thread(target=lambda: counts.append(f.read_into(t)))
                reader.start()
                while not c.stats()["in_flight"]:
                    time.sleep(0.001)
                assert counts == []
                check(inject(ctx, b"hang", 0, 0))
            reader.join()
            print(counts)
            """
        )
        self.assertEqual(out, "[1000]\n")

    def test_no_library(self):
        environment = {**os.environ, "PEERLANE_LIBRARY": self.path("nowhere.so")}
        done = subprocess.run(
            [sys.executable, "-c", "import peerlane"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        self.assertEqual(done.returncode, 1)
        self.assertIn("ImportError: peerlane: no usable libpeerlane.so.0", done.stderr)
        self.assertIn("nowhere.so is not there", done.stderr)
        environment["PEERLANE_LIBRARY"] = "libc.so.6"
        done = subprocess.run(
            [sys.executable, "-c", "import peerlane"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        self.assertIn("undefined symbol: peerlane_open", done.stderr)


if __name__ == "__main__":
    unittest.main()
