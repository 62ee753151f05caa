# SPDX-License-Identifier: MIT
"""python -m peerlane [FILE]: what "peerlane check" shows.

The tool is run where it can be found: $PEERLANE_TOOL, where "make install" put it, in the build folder
of a source tree, or on the path. Without it the library is asked, which knows less of the machine; the
first line says which it is.
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import List, Optional

from . import Context, Error, __version__, empty, library_path, open as open_file
from ._device import why_no_cuda
from ._lib import built, installed

PROBE_BYTES = 1 << 20
USAGE = """usage: python -m peerlane [FILE]

Lists the GPUs. For FILE, also the path a read and a write of 1 MiB would take, and for each better
path why it is not taken and how to change that. The tool "peerlane", which was not found, shows more.

Exit status: 0 works by the best path; 1 works on the simulator, or not by the best path; 2 does
not work.
"""


def find_tool() -> Optional[str]:
    """Path of the tool, or None."""
    named = os.environ.get("PEERLANE_TOOL")
    if named:
        return named
    for path in (installed("TOOL"), built("tools/peerlane"), shutil.which("peerlane")):
        if path and os.access(path, os.X_OK):
            return path
    return None


def report_file(context: Context, path: str) -> int:
    """The paths of a read and a write; returns how many the user could have better ones for."""
    memory = empty(PROBE_BYTES, context=context)
    better = 0
    with open_file(path, "r+" if os.access(path, os.W_OK) else "r", context=context) as f:
        for word, write in (("read", False), ("write", True)):
            try:
                said = f.explain(memory, write=write)
            except Error as problem:
                print(f"\nA {word}: not possible: {problem.explanation}")
                continue
            print(f"\nA {word}\n  {said}")
            order = [v.path for v in said.verdicts]
            above = said.verdicts[: order.index(said.chosen)]
            better += any(not v.usable and v.fix for v in above)
    return better


def verdict(context: Context, better: int) -> str:
    """The last line: by the best path or not, or on the simulator and why."""
    if context.backend != "cuda":
        why = ", which PEERLANE_BACKEND names" if context.named else f": {why_no_cuda()}"
        return f"works, but on the simulator{why}"
    if better:
        return 'works, but not by the best path: see "to change that" above'
    return "works, by the best path"


def report(path: Optional[str]) -> int:
    """What the library itself can tell; returns what "peerlane check" would exit with."""
    print(f"peerlane {__version__}, library {library_path}; the tool was not found: in short")
    try:
        context = Context()
    except Error as problem:
        print(f"verdict: does not work; {problem.explanation}")
        return 2
    with context:
        for gpu in context.gpus():
            memory = f"{gpu.memory_bytes / (1 << 30):.0f} GiB"
            print(f"\nGPU {gpu.ordinal}")
            rows = (("back end", context.backend), ("name", gpu.name), ("memory", memory))
            for label, text in (*rows, ("driver", gpu.driver), ("PCI", gpu.pci or "none")):
                print(f"  {label:15} {text}")
        better = 0 if path is None else report_file(context, path)
        print(f"\nverdict: {verdict(context, better)}")
        return 1 if better or context.backend != "cuda" else 0


def main(arguments: List[str]) -> int:
    """Run the tool, or report without it."""
    tool = find_tool()
    if tool:
        sys.stdout.flush()
        os.execv(tool, [tool, "check", *arguments])
    if arguments in (["--help"], ["-h"]):
        print(USAGE, end="")
        return 0
    plain = [a for a in arguments if not a.startswith("-")]
    if len(plain) != len(arguments) or len(plain) > 1:
        print("usage: python -m peerlane [FILE]; other options need the tool", file=sys.stderr)
        return 2
    try:
        return report(plain[0] if plain else None)
    except Error as problem:
        print(f"peerlane: {problem.explanation}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
