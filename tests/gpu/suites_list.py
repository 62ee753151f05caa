# SPDX-License-Identifier: MIT
"""Which suites of other projects there are, where they are found and how they are run.

Two places: the folder that "suites fetch" made, and a folder with checkouts of the projects' own
repositories (--suites), named as these are. A suite that is in neither is a row "not here"."""

import glob
import os
import subprocess
import sys

import real_cufile
import suites_run

# Arguments of MagnumIO's samples, by number; {} is a folder of their own, a and b files there.
A, B = "{}/a", "{}/b"
SAMPLES = {1: [A, "0"], 2: [A, "0"], 3: [A, B, "0"], 4: [A, B, "0"], 5: [A, B, "0"],
           6: [A, B, "0"], 7: [], 8: [], 9: [A, B], 10: [A, "0", "0"], 11: [A, "0", "0"],
           12: [A, B], 13: [A, B], 14: [A, B, "0"], 15: [A, B, "0", "1"], 16: [A], 17: [A],
           18: [A], 19: [A, "0", "8"], 20: [A, "0", "8"], 21: [A, "0", "8"], 22: [A, "0"],
           23: [A, B], 24: [A], 25: [A, B], 26: [A, B], 27: [A, "0", "8", "0"], 28: [A, "0"],
           29: [A, "0", "8", "0"], 30: [A, "0", "8", "0", "0"], 31: [A, B, "0"], 32: [A, B, "0"],
           33: [A, B, "0"], 34: [A, B, "0"]}


def fio_jobs():
    """{name: options} of fio jobs whose data is verified; those of the engine's own POSIX way are
    there to see that the two agree."""
    jobs = {}

    def add(rw, bs, direct, **more):
        name = f"{rw} {bs} direct={direct}" + "".join(f" {k}={v}" for k, v in more.items())
        size = {"rw": rw, "bsrange" if "-" in bs else "bs": bs, "direct": direct, **more}
        jobs[name] = [f"--{k}={v}" for k, v in size.items()]

    for direct in 1, 0:
        for rw in "write", "randwrite":
            for bs in "4k", "16k", "64k", "256k", "1m":
                add(rw, bs, direct)
        for rw in "rw", "randrw":
            for bs in "4k", "64k", "1m":
                add(rw, bs, direct)
        add("randwrite", "4k-256k", direct)
        add("write", "64k", direct, iodepth=8)
        add("randwrite", "4k", direct, iodepth=32)
        add("randwrite", "64k", direct, numjobs=4)
    for bs in "12k", "20k", "3k":
        direct = 0 if bs == "3k" else 1
        add("write", bs, direct)
        add("randwrite", bs, direct)
    for verify in "md5", "sha256", "xxhash", "crc64":
        add("randwrite", "64k", 1, verify=verify)
    for bs in "4k", "64k", "1m":
        add("write", bs, 1, cuda_io="posix")
        add("randwrite", bs, 1, cuda_io="posix")
    return jobs


def missing(modules, paths):
    """The first of these modules that cannot be loaded, or None."""
    env = dict(os.environ, PYTHONPATH=os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")]))
    for module in modules:
        if subprocess.run([sys.executable, "-c", f"import {module}"], env=env, check=False,
                          capture_output=True).returncode:
            return module
    return None


class Finder:
    """Finds suites; @args: fetched (a folder), suites (a folder or None), clients (the same)."""

    def __init__(self, args):
        self.args = args
        self.python = [p for p in (os.path.join(args.fetched, "python"),) if os.path.isdir(p)]
        self.rows = []

    def add(self, name, runner, limit, **suite):
        """A row; "why" says that the suite is not here."""
        paths = suite.get("paths", self.python)
        gone = None if suite.get("why") else missing(suite.pop("needs", ()), paths)
        if gone:
            suite["why"] = f"Python has no module {gone}"
        self.rows.append({"name": name, "runner": runner, "limit": limit, "paths": paths, **suite})

    def checkout(self, name, *patterns):
        """Files of a checkout; none of them: why not."""
        if not self.args.suites:
            return [], f"needs a checkout of {name} in the folder given by --suites"
        root = os.path.join(self.args.suites, name)
        found = [p for pattern in patterns
                 for p in sorted(glob.glob(os.path.join(root, pattern), recursive=True))]
        return found, None if found else f"{root} has no {patterns[0]}"

    def from_checkout(self, name, runner, limit, *patterns, extra=(), needs=("pytest",), row=None,
                      **suite):
        tests, why = self.checkout(name, *patterns)
        if why:
            suite["why"] = why
        self.add(row or name, runner, limit, tests=tests, paths=[*extra, *self.python], needs=needs,
                 **suite)

    def clients(self):
        folder = self.args.clients
        return [folder, os.path.join(folder, "deps")] if folder else []

    # -------------------------------------------------------------- fetched

    def fio(self):
        folder = os.path.join(self.args.fetched, "fio")
        program = os.path.join(folder, "fio")
        if not os.path.exists(program):
            self.add("fio", None, 0, why=f"{program} is missing: suites fetch makes it")
            return
        options = ["--name=job", "--directory={}", "--ioengine=libcufile", "--cuda_io=cufile",
                   "--gpu_dev_ids=0", "--thread", "--size=8m", "--verify=crc32c", "--do_verify=1",
                   "--verify_fatal=1", "--group_reporting", "--numjobs=2"]
        tests = {name: [program, *options, *more] for name, more in fio_jobs().items()}
        self.add("fio", suites_run.programs, 150, tests=tests, each=40, right="err= 0",
                 wrong="verify: bad|verify: got", libraries={"libcudart.so": self.cudart(folder)})

    @staticmethod
    def cudart(folder):
        """NVIDIA's CUDA runtime; on the simulator, what fio_cufile puts in its place."""
        if os.environ.get("PEERLANE_BACKEND") != "sim":
            for name in "libcudart.so.13", "libcudart.so.12", "libcudart.so":
                found = real_cufile.find(name)
                if found:
                    return found
        return os.path.join(folder, "lib/libcudart.so")

    def fetched(self, name, needs):
        folder = os.path.join(self.args.fetched, name)
        suite = {"tests": sorted(glob.glob(os.path.join(folder, "tests/test_*.py"))),
                 "paths": [os.path.join(folder, "package"), *self.python], "needs": needs,
                 # Makes the data of a test no larger than it must be.
                 "settings": {"TEST_CUFILE_BUF_SIZE": "16"}}
        if not suite["tests"]:
            suite["why"] = f"{folder} is missing: suites fetch makes it"
        return suite

    def all(self):
        """The rows of the table."""
        off = {"KVIKIO_COMPAT_MODE": "OFF"}
        self.fio()
        self.add("cufile-python", suites_run.pytest, 60,
                 **self.fetched("cufile-python", ("pytest", "cuda.bindings.driver")))
        self.add("fastsafetensors", suites_run.pytest, 90,
                 **self.fetched("fastsafetensors", ("pytest", "torch", "safetensors")))
        self.from_checkout("cuda-python", suites_run.pytest, 60,
                           "cuda_bindings/tests/test_cufile.py",
                           needs=("pytest", "cuda.bindings.cufile"))
        self.from_checkout("kvikio", suites_run.pytest, 120,
                           *[f"python/kvikio/tests/test_{t}.py" for t in
                             ("basic_io", "async_io", "cufile_driver", "defaults", "numpy", "mmap")],
                           extra=self.clients(), needs=("pytest", "kvikio", "cupy"), settings=off)
        self.from_checkout("kvikio", suites_run.programs, 30, "cpp/build/examples/*_io*",
                           needs=(), settings=off, row="kvikio examples")
        self.from_checkout("pytorch", suites_run.pytest, 60, "test/test_cuda.py",
                           args=("-k", "gds or GDS"), needs=("pytest", "torch", "expecttest"))
        self.from_checkout("DeepSpeed", suites_run.pytest, 90, "tests/unit/ops/aio/test_gds.py",
                           extra=[os.path.join(self.args.suites or "", "DeepSpeed/tests")],
                           needs=("pytest", "deepspeed"))
        self.from_checkout("nixl", suites_run.programs, 60, "examples/python/*gds*.py",
                           extra=self.clients(), needs=("nixl",))
        self.from_checkout("cucim", suites_run.pytest, 60, "python/cucim/tests/unit/clara",
                           needs=("pytest", "cucim"))
        self.from_checkout("DALI", suites_run.nose2, 160, "dali/test/python/reader/test_numpy.py",
                           needs=("nose2", "nvidia.dali"))
        self.from_checkout("hipFile", suites_run.gtest, 90, "build/**/*system*test*", needs=())
        self.magnumio()
        for row in self.rows:
            self.finish(row)
        return self.rows

    def magnumio(self):
        tests, why = self.checkout("MagnumIO", "gds/samples/cufile_sample_0[0-9][0-9]")
        commands = {}
        for path in tests:
            if path[-3:].isdigit() and int(path[-3:]) in SAMPLES:
                # The files must be there before, with at least 128 MiB.
                make = "truncate -s 128M {}/a {}/b; exec \"$@\""
                commands[os.path.basename(path)] = ["bash", "-c", make, "sample", path,
                                                    *SAMPLES[int(path[-3:])]]
        self.add("MagnumIO", suites_run.programs, 90, tests=commands, why=why, needs=(), each=30)

    @staticmethod
    def finish(row):
        """Programs of a checkout have names and no arguments; nose2 wants names of modules."""
        tests = row.get("tests", [])
        if row["runner"] is suites_run.programs and isinstance(tests, list):
            python = [sys.executable] if tests and tests[0].endswith(".py") else []
            row["tests"] = {os.path.basename(t): [*python, t] for t in tests}
        if row["runner"] is suites_run.nose2 and tests:
            row["cwd"] = os.path.dirname(os.path.dirname(tests[0]))
            row["tests"] = ["-s", "reader", "test_numpy"]
