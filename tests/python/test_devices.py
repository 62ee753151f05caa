# SPDX-License-Identifier: MIT
"""Names of devices: CUDA is CUDA, or an error that says why; the simulator is asked for by name."""

import os
import subprocess
import sys
import textwrap
import unittest

import support

NO_CUDA = {"PEERLANE_LIBCUDA": "/no/such/libcuda.so.1"}
CUDA = {"PEERLANE_LIBCUDA": os.environ["FAKE_LIBCUDA"]}
PREFACE = """
import errno, sys
sys.modules["torch"] = None
import peerlane
from peerlane.safetensors import load, load_file, load_sharded, safe_open, save, save_file

def refused(call, *words):
    try:
        call()
    except peerlane.Error as problem:
        assert problem.errno == errno.ENODEV, problem
        for word in words:
            assert word in str(problem), problem
    else:
        raise AssertionError("it worked")

WHY = ("no CUDA driver: /no/such/libcuda.so.1", 'device="sim"', "PEERLANE_BACKEND=sim")
"""


class Devices(support.Case):
    def setUp(self):
        super().setUp()
        support.write_model(self.path("model.safetensors"), [("t", "U8", (4,), b"abcd")])

    def python(self, code, **environment):
        """Run a program in an interpreter of its own, with no back end named unless it is given."""
        inherited = {k: v for k, v in os.environ.items() if k != "PEERLANE_BACKEND"}
        done = subprocess.run(
            [sys.executable, "-c", PREFACE + textwrap.dedent(code)],
            cwd=self.dir,
            env={**inherited, **environment},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def test_cuda_without_cuda(self):
        self.python(
            """
            m = "model.safetensors"
            for device in ("cuda", "cuda:0", "cuda:1", 0, 1):
                named = f"device {device!r}"
                refused(lambda: load_file(m, device), named, *WHY)
                refused(lambda: load_file([m], device), named, *WHY)
                refused(lambda: load_file(m, device, framework="dlpack"), named, *WHY)
                refused(lambda: load_sharded(".", device), named, *WHY)
                refused(lambda: safe_open(m, "dlpack", device), named, *WHY)
                refused(lambda: load(open(m, "rb").read(), device=device), named, *WHY)
                refused(lambda: peerlane.empty(10, device), named, *WHY)
                for backend in (None, "auto"):
                    c = peerlane.Context(backend=backend)
                    assert c.backend == "sim" and not c.named
                    refused(lambda: load_file(m, device, context=c), named, *WHY)
                    refused(lambda: peerlane.empty(10, device, context=c), named, *WHY)
            refused(lambda: peerlane.Context(backend="cuda"), WHY[0])
            """,
            **NO_CUDA,
        )

    def test_simulator_by_name(self):
        for environment in ({}, {"PEERLANE_BACKEND": "sim"}, {"PEERLANE_BACKEND": "auto"}):
            self.python(
                """
                m = "model.safetensors"
                for device in ("sim", "sim:0"):
                    t = load_file(m, device)["t"]
                    assert isinstance(t, peerlane.Tensor), t
                    assert (t.device, t.tobytes()) == ("sim:0", b"abcd"), t
                    assert peerlane.empty(10, device).device == "sim:0"
                    with safe_open(m, device=device) as f:
                        assert f.get_tensor("t").device == "sim:0"
                    save_file({"t": t}, "saved")
                    assert load_file("saved", device)["t"].tobytes() == b"abcd"
                    assert save({"t": t}) == open("saved", "rb").read()
                refused(lambda: load_file(m, "sim:9"), "no GPU 9")
                """,
                **NO_CUDA,
                **environment,
            )

    def test_simulator_instead_of_cuda_if_it_is_named(self):
        """Programs for CUDA run on the simulator when the user says so."""
        self.python(
            """
            assert load_file("model.safetensors", "cuda")["t"].device == "sim:0"
            assert peerlane.empty(10, "cuda").device == "sim:0"
            """,
            PEERLANE_BACKEND="sim",
            **NO_CUDA,
        )
        self.python(
            """
            c = peerlane.Context(backend="sim")
            t = load_file("model.safetensors", "cuda", context=c)["t"]
            assert t.device == "sim:0"
            """,
            **NO_CUDA,
        )

    def test_default_context(self):
        """Nobody asked for CUDA: what is left is used, and says what it is."""
        out = self.python(
            """
            print(peerlane.Context(), peerlane.empty(10))
            m = bytearray(4)
            with peerlane.open("model.safetensors") as f:
                f.read_into(m)
            """,
            **NO_CUDA,
        )
        expected = "<peerlane.Context sim (no CUDA was found) open> <peerlane.Tensor U8 [10] on sim:0>"
        self.assertEqual(out.strip(), expected)

    def test_cuda(self):
        """With a driver: both, side by side; what is "cuda" is never simulated."""
        out = self.python(
            """
            m = "model.safetensors"
            s = load_file(m, "sim")["t"]
            t = load_file(m, "cuda:1")["t"]
            print(t.device, t.tobytes(), s.device, s.tobytes(), peerlane.context())
            print(peerlane.empty(10).device, peerlane.empty(10, 1).device, peerlane.empty(10, "sim").device)
            assert t.__dlpack_device__() == (2, 1), t.__dlpack_device__()
            refused(lambda: load_file(m, "cuda:9"), "no GPU 9; the cuda back end has 2")
            c = peerlane.Context(backend="cuda")
            try:
                load_file(m, "sim", context=c)
            except ValueError as problem:
                assert "back end cuda" in str(problem)
            else:
                raise AssertionError("CUDA for the simulator")
            """,
            **CUDA,
        )
        self.assertEqual(
            out.splitlines(),
            ["cuda:1 b'abcd' sim:0 b'abcd' <peerlane.Context cuda open>", "cuda:0 cuda:1 sim:0"],
        )

    def test_no_such_device(self):
        self.python(
            """
            for bad in ("gpu", "CUDA", "cuda:", "cuda:-1", "cuda:x", "sim:x", "simgpu", "cpu:1", "",
                        -1, True, None, 1.5, "cuda:99999999999"):
                for call in (
                    lambda: load_file("model.safetensors", bad, framework="dlpack"),
                    lambda: safe_open("model.safetensors", device=bad),
                    lambda: peerlane.empty(10, bad),
                ):
                    try:
                        call()
                    except ValueError as problem:
                        assert "device" in str(problem) or "GPU" in str(problem), problem
                    else:
                        assert bad is None, bad
            """,
            **NO_CUDA,
        )


if __name__ == "__main__":
    unittest.main()
