# SPDX-License-Identifier: MIT
"""How the suites of suites_list.py are run: each runner gives {test: "passed", "failed", "skipped", "crashed",
"timed out"} for one library. A test that a library did not get to is not in it.

A suite in one process is started again after a crash, without the tests it had done, so that a
library's crash costs one test."""

import concurrent.futures
import os
import re
import shutil
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
MAX_RESTARTS = 20
JOBS = 4  # programs that run at once


class Library:
    """A libcufile.so.0 under test, and the environment that puts it before any other."""

    def __init__(self, name, path, work, seconds):
        self.name, self.path = name, os.path.realpath(path)
        self.folder = os.path.join(work, f"lib-{name}")
        self.until = None
        self.seconds = seconds
        os.makedirs(self.folder, exist_ok=True)
        for link in ("libcufile.so", "libcufile.so.0"):
            self.link(link, self.path)

    def link(self, name, target):
        where = os.path.join(self.folder, name)
        if not os.path.lexists(where):
            os.symlink(os.path.realpath(target), where)

    def env(self, *paths, **settings):
        """For a program; @paths are searched for Python's modules."""
        env = dict(os.environ, SUITES_LIBRARY=self.name, PYTHONUNBUFFERED="1", **settings)
        env["LD_PRELOAD"] = os.path.join(self.folder, "libcufile.so.0")
        env["LD_LIBRARY_PATH"] = f"{self.folder}:{env.get('LD_LIBRARY_PATH', '')}".rstrip(":")
        paths = [p for p in (*paths, env.get("PYTHONPATH", "")) if p]
        if paths:
            env["PYTHONPATH"] = os.pathsep.join(paths)
        return env

    def left(self):
        """Seconds that this library's suites may still take; the first call starts the clock."""
        if self.until is None:
            self.until = time.monotonic() + self.seconds
        return self.until - time.monotonic()


def run(command, env, cwd, limit, log):
    """The exit status, and what was printed, which is kept in @log as well. Negative: a signal;
    None: it took too long. What it started is ended with it."""
    with subprocess.Popen(command, env=env, cwd=cwd, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          start_new_session=True) as p:
        try:
            out = p.communicate(timeout=max(limit, 1))[0]
            status = p.returncode
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, signal.SIGKILL)
            out, status = p.communicate()[0], None
    text = out.decode("utf-8", "replace")
    with open(log, "a", encoding="utf-8") as f:
        f.write(f"$ {' '.join(command)}\n{text}\n[{status}]\n")
    return status, text


def repeat(once, library, limit):
    """Calls @once(done, seconds) until it has gone through: it gives a status, the outcomes, and the
    test that was running. @limit bounds all of them together."""
    done, end = {}, time.monotonic() + min(limit, library.left())
    for _ in range(MAX_RESTARTS):
        seconds = end - time.monotonic()
        if seconds <= 0:
            break
        status, new, running = once(done, seconds)
        done.update(new)
        if running is None or running in done:
            break
        done[running] = "timed out" if status is None else "crashed"
        if status is None:
            break
    return done


# ------------------------------------------------------------------ pytest


def read_notes(path):
    """Outcomes, the test that was running at the end, and the libraries."""
    outcomes, running, libraries = {}, None, []
    if not os.path.exists(path):
        return outcomes, running, libraries
    with open(path, encoding="utf-8") as f:
        for line in f:
            word, name = line.rstrip("\n").split("\t")
            if word == "begin":
                running = name
            elif word == "library":
                libraries.append(name)
            elif outcomes.get(name) != "failed":
                outcomes[name] = word
    # One that passed, but whose fixture then failed, was noted as both.
    return outcomes, None if running in outcomes else running, libraries


def pytest(library, suite, work):
    """A suite of pytest. @suite: tests (paths), args, paths (of modules), settings."""
    plugin = os.path.join(work, "plugin")
    os.makedirs(plugin, exist_ok=True)
    shutil.copy(os.path.join(HERE, "suites_pytest.py"), plugin)
    notes = os.path.join(work, "notes")

    def once(done, seconds):
        if os.path.exists(notes):
            os.unlink(notes)
        # Without the project's own settings, which may want plug-ins that are not here.
        command = [sys.executable, "-m", "pytest", "-c", "/dev/null", "--rootdir",
                   os.path.dirname(suite["tests"][0]), "-p", "suites_pytest", "-p",
                   "no:cacheprovider", "--continue-on-collection-errors", "-q", "--tb=short",
                   "--basetemp",
                   os.path.join(work, "tmp"), *suite.get("args", ()), *suite["tests"]]
        command += [word for name in done for word in ("--deselect", name)]
        env = library.env(plugin, *suite.get("paths", ()), SUITES_RESULTS=notes,
                          TMPDIR=work, **suite.get("settings", {}))
        status, _ = run(command, env, work, seconds, suite["log"])
        outcomes, running, libraries = read_notes(notes)
        if libraries and library.path not in libraries:
            outcomes["(the library under test was loaded)"] = "failed"
        return status, outcomes, running

    return repeat(once, library, suite["limit"])


# ------------------------------------------------------------------ GoogleTest, nose2


def gtest(library, suite, work):
    """Programs of GoogleTest. @suite: tests (paths of programs), settings."""
    done = {}

    def once_of(program):
        def once(done, seconds):
            skip = [f"--gtest_filter=-{':'.join(done)}"] if done else []
            status, text = run([program, *skip], library.env(**suite.get("settings", {})), work,
                               seconds, suite["log"])
            outcomes, running = {}, None
            for word, name in re.findall(r"^\[ +(RUN|OK|FAILED|SKIPPED) +\] ([^\s,]+)", text, re.M):
                if word == "RUN":
                    running = name
                elif running == name:
                    outcomes[name] = {"OK": "passed"}.get(word, word.lower())
                    running = None
            return status, outcomes, running
        return once

    for program in suite["tests"]:
        done.update(repeat(once_of(program), library, suite["limit"]))
    return done


def nose2(library, suite, work):
    """A suite of nose2, in one go: what it printed tells how far it got."""
    command = [sys.executable, "-m", "nose2", "-v", *suite["tests"]]
    limit = min(suite["limit"], library.left())
    _, text = run(command, library.env(*suite.get("paths", ()), TMPDIR=work,
                                       **suite.get("settings", {})),
                  suite["cwd"], limit, suite["log"])
    words = {"ok": "passed", "FAIL": "failed", "ERROR": "failed", "skipped": "skipped"}
    found = re.findall(r"^(\S.*?) \.\.\. (ok|FAIL|ERROR|skipped)", text, re.M)
    return {name: words[word] for name, word in found}


# ------------------------------------------------------------------ programs


def programs(library, suite, work):
    """Programs that exit 0 when all is well. @suite: tests ({name: command}), wrong (a pattern that
    must not be in what they print), right (one that must), each (seconds for one)."""
    end = time.monotonic() + min(suite["limit"], library.left())

    def one(name, command):
        seconds = min(suite.get("each", 60), end - time.monotonic())
        if seconds <= 0:
            return None
        folder = os.path.join(work, re.sub(r"\W+", "_", name))
        os.makedirs(folder, exist_ok=True)
        command = [word.replace("{}", folder) for word in command]
        status, text = run(command, library.env(*suite.get("paths", ()),
                                                **suite.get("settings", {})),
                           folder, seconds, f"{suite['log']}.{os.path.basename(folder)}")
        shutil.rmtree(folder, ignore_errors=True)
        if status is None:
            return "timed out"
        if status < 0:
            return "crashed"
        good = (status == 0 and not re.search(suite.get("wrong", "(?!)"), text)
                and re.search(suite.get("right", ""), text))
        return "passed" if good else "failed"

    with concurrent.futures.ThreadPoolExecutor(suite.get("jobs", JOBS)) as pool:
        asked = {name: pool.submit(one, name, cmd) for name, cmd in suite["tests"].items()}
        got = {name: future.result() for name, future in asked.items()}
    return {name: outcome for name, outcome in got.items() if outcome}
