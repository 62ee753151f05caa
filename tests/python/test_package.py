# SPDX-License-Identifier: MIT
"""The package as it is given away: python -m peerlane, the wheel, declarations against headers."""

import base64
import csv
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import unittest
import zipfile

import support

import peerlane
from peerlane import _abi

SOURCE = os.environ["PEERLANE_SOURCE"]
BUILD = os.environ["PEERLANE_BUILD"]
TOOL = os.path.join(BUILD, "tools/peerlane")
FAKE_CUDA = os.environ["FAKE_LIBCUDA"]


def run(*arguments, **environment):
    """python -m peerlane; None takes a variable away."""
    env = {**os.environ, **environment}
    done = subprocess.run(
        [sys.executable, "-m", "peerlane", *arguments],
        env={k: v for k, v in env.items() if v is not None},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


class Main(support.Case):
    @unittest.skipUnless(os.path.exists(TOOL), "the tool is not built")
    def test_with_the_tool(self):
        path = self.file("f", bytes(4096))
        expected = subprocess.run(
            [TOOL, "check", path], capture_output=True, text=True, timeout=120, check=False
        )
        status, out, _ = run(path, PEERLANE_TOOL=TOOL)
        self.assertEqual(status, expected.returncode)
        self.assertRegex(out, "verdict: works, (but )?on the simulator")
        self.assertEqual(
            [line.split("  ")[0] for line in out.splitlines()],
            [line.split("  ")[0] for line in expected.stdout.splitlines()],
        )

        status, out, _ = run("--help", PEERLANE_TOOL=TOOL)
        self.assertEqual(status, 0)
        self.assertIn("usage: peerlane check", out)

    @unittest.skipUnless(os.path.exists(TOOL), "the tool is not built")
    def test_source_tree(self):
        """After make, PYTHONPATH=python is enough: library and tool come from the build folder."""
        shutil.copytree(os.path.join(SOURCE, "python"), self.path("python"))
        for name in ("lib/libpeerlane.map", "build/lib/libpeerlane.so.0", "build/tools/peerlane"):
            os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
            start = os.path.dirname(BUILD) if name.startswith("build") else SOURCE
            there = os.path.join(BUILD, name[6:]) if name.startswith("build") else os.path.join(start, name)
            os.symlink(os.path.realpath(there), self.path(name))
        alone = {"PEERLANE_LIBRARY": None, "PYTHONPATH": self.path("python")}
        done = subprocess.run(
            [sys.executable, "-c", "import peerlane; print(peerlane.library_path)"],
            env={k: v for k, v in {**os.environ, **alone}.items() if v is not None},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        self.assertEqual(done.stdout, self.path("build/lib/libpeerlane.so.0") + "\n")
        status, out, _ = run("--help", PATH="/nonexistent", **alone)
        self.assertEqual(status, 0)
        self.assertIn("usage: peerlane check", out)

    def alone(self, *arguments, **environment):
        """python -m peerlane of a package that finds no tool."""
        if not os.path.exists(self.path("site")):
            shutil.copytree(os.path.join(SOURCE, "python/peerlane"), self.path("site/peerlane"))
        return run(*arguments, PATH="/nonexistent", PYTHONPATH=self.path("site"), **environment)

    def test_without_the_tool(self):
        path = self.file("f", bytes(4096))
        status, out, err = self.alone(path)
        self.assertEqual((status, err), (1, ""))
        self.assertIn("the tool was not found", out.splitlines()[0])
        self.assertIn("Peerlane simulated GPU", out)
        self.assertIn("A read\n  path ", out)
        self.assertIn("A write\n  path ", out)
        self.assertIn("device memory", out)
        status, _, err = self.alone(self.path("none"))
        self.assertEqual(status, 2)
        self.assertTrue(err.startswith("peerlane: "))
        self.assertEqual(self.alone("--json")[0], 2)
        for word in ("--help", "-h"):
            status, out, err = self.alone(word)
            self.assertEqual((status, err), (0, ""))
            self.assertIn("usage: python -m peerlane [FILE]", out)

    def test_verdict_says_which(self):
        """On the simulator and why, or on CUDA by the best path or not."""
        for environment, words, expected in (
            ({}, "works, but on the simulator, which PEERLANE_BACKEND names", 1),
            ({"PEERLANE_BACKEND": None, "PEERLANE_LIBCUDA": "/none"},
             "works, but on the simulator: no CUDA driver: /none: ", 1),
            ({"PEERLANE_BACKEND": "cuda", "PEERLANE_LIBCUDA": "/none"},
             "does not work; no CUDA driver: /none: ", 2),
            ({"PEERLANE_BACKEND": None, "PEERLANE_LIBCUDA": FAKE_CUDA}, "works, by the best path", 0),
        ):  # fmt: skip
            status, out, _ = self.alone(**environment)
            last = out.splitlines()[-1]
            self.assertTrue(last.startswith(f"verdict: {words}"), last)
            self.assertEqual(status, expected)
        on_cuda = {"PEERLANE_BACKEND": None, "PEERLANE_LIBCUDA": FAKE_CUDA}
        status, out, _ = self.alone(self.file("f", bytes(4096)), **on_cuda)
        if "to change that" in out:
            self.assertEqual(status, 1)
            self.assertIn("verdict: works, but not by the best path", out)
        else:
            self.assertEqual(status, 0)


class Wheel(support.Case):
    def test_wheel(self):
        """Written twice it is the same; its list is right; and it works where it is unpacked."""
        library = os.environ["PEERLANE_WHEEL_LIBRARY"]
        paths = []
        for name in ("one", "two"):
            done = subprocess.run(
                [sys.executable, os.path.join(SOURCE, "scripts/wheel"), library, self.path(name)],
                capture_output=True,
                text=True,
                timeout=120,
                check=True,
            )
            paths.append(done.stdout.strip())
        self.assertEqual(self.content(paths[0]), self.content(paths[1]))
        self.assertRegex(paths[0], r"peerlane-[0-9.]+-py3-none-linux_\w+\.whl$")
        with zipfile.ZipFile(paths[0]) as z:
            info = f"peerlane-{peerlane.__version__}.dist-info"
            listed = list(csv.reader(io.StringIO(z.read(f"{info}/RECORD").decode())))
            self.assertEqual(sorted(r[0] for r in listed), sorted(z.namelist()))
            for name, digest, size in listed:
                if digest:
                    data = z.read(name)
                    found = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
                    self.assertEqual(digest, "sha256=" + found.decode().rstrip("="))
                    self.assertEqual(int(size), len(data))
            metadata = z.read(f"{info}/METADATA").decode()
            self.assertIn(f"Version: {peerlane.__version__}\n", metadata)
            z.extractall(self.path("site"))
        code = "import peerlane; print(peerlane.library_path, peerlane.context().backend)"
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={
                **{k: v for k, v in os.environ.items() if k != "PEERLANE_LIBRARY"},
                "PYTHONPATH": self.path("site"),
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        self.assertEqual(done.stdout, f"{self.path('site/peerlane/libpeerlane.so.0')} sim\n")

    def test_every_module_is_installed(self):
        with open(os.path.join(SOURCE, "python/meson.build"), encoding="utf-8") as f:
            listed = set(re.findall(r"'peerlane/([\w.]+)'", f.read()))
        there = os.listdir(os.path.join(SOURCE, "python/peerlane"))
        self.assertEqual(listed, {n for n in there if n.endswith(".py") or n == "py.typed"})


class Declarations(unittest.TestCase):
    """_abi.py against the public headers, by the compiler."""

    STRUCTS = {
        "peerlane_options": _abi.Options,
        "peerlane_error_info": _abi.ErrorInfo,
        "peerlane_io": _abi.Io,
        "peerlane_event": _abi.Event,
        "peerlane_verdict": _abi.Verdict,
        "peerlane_explanation": _abi.Explanation,
        "peerlane_op_stats": _abi.OpStats,
        "peerlane_stats": _abi.Stats,
        "peerlane_gpu_info": _abi.GpuInfo,
        "peerlane_tensor": _abi.Tensor,
        "peerlane_model_info": _abi.ModelInfo,
        "peerlane_model_file": _abi.ModelFile,
        "peerlane_model_part": _abi.Part,
        "peerlane_model_load_options": _abi.LoadOptions,
        "peerlane_model_stats": _abi.ModelStats,
        "peerlane_model_source": _abi.Source,
        "peerlane_model_save_options": _abi.SaveOptions,
    }

    def compile(self, lines):
        headers = ("stddef.h", "peerlane/dlpack.h", "peerlane/gpu.h", "peerlane/model.h")
        text = "".join(f"#include <{name}>\n" for name in headers)
        done = subprocess.run(
            ["cc", "-std=gnu11", "-fsyntax-only", "-I", os.path.join(SOURCE, "include"), "-xc", "-"],
            input=text + "\n".join(lines) + "\n",
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_structures(self):
        import ctypes

        lines = []
        for name, kind in self.STRUCTS.items():
            lines.append(f'_Static_assert(sizeof(struct {name}) == {ctypes.sizeof(kind)}, "{name}");')
            for field, _ in kind._fields_:
                at, size = getattr(kind, field).offset, getattr(kind, field).size
                lines.append(
                    f"_Static_assert(offsetof(struct {name}, {field}) == {at} && "
                    f'sizeof(((struct {name} *)0)->{field}) == {size}, "{name}.{field}");'
                )
        self.compile(lines)

    def test_constants(self):
        words = {f"PEERLANE_{w.upper().replace('-', '_')}": v for w, v in _abi.FLAGS.items()}
        words.update(
            PEERLANE_PATH_NR=_abi.PATH_NR,
            PEERLANE_HIST=_abi.HIST,
            PEERLANE_READ=_abi.READ,
            PEERLANE_WRITE=_abi.WRITE,
            PEERLANE_DURABLE=_abi.DURABLE,
            PEERLANE_FIXED=_abi.FIXED,
            PEERLANE_MODEL_SLICE=_abi.MODEL_SLICE,
            PEERLANE_MODEL_PER_TENSOR=_abi.MODEL_PER_TENSOR,
            PEERLANE_MODEL_CHECKSUM=_abi.MODEL_CHECKSUM,
            PEERLANE_MODEL_NO_SYNC=_abi.MODEL_NO_SYNC,
        )
        self.compile(f'_Static_assert({name} == {v}, "{name}");' for name, v in words.items())

    def test_functions(self):
        """Each takes as many arguments, of such sizes, as the header says."""
        import ctypes

        lines = []
        for name, (returns, *takes) in _abi.FUNCTIONS.items():
            args = "".join(f", ({self.word(t)})0" for t in takes)[2:]
            call = f"{name}({args})"
            if returns is not None:
                size = ctypes.sizeof(returns)
                lines.append(f'_Static_assert(sizeof({call}) == {size}, "{name}");')
            else:
                lines.append(f"static inline void f_{name}(void) {{ {call}; }}")
        self.compile(lines)

    @staticmethod
    def word(kind):
        import ctypes

        simple = {
            ctypes.c_int: "int",
            ctypes.c_uint: "unsigned int",
            ctypes.c_size_t: "size_t",
            ctypes.c_int64: "int64_t",
        }
        return simple.get(kind, "void *")


if __name__ == "__main__":
    unittest.main()
