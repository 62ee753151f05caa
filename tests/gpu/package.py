# SPDX-License-Identifier: MIT
"""Imported before peerlane: has the package of this tree found, and the library of $PEERLANE_BUILD."""

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get("PEERLANE_BUILD", os.path.join(ROOT, "build")))
sys.path[:0] = [os.path.join(ROOT, "python"), os.path.join(ROOT, "tests/python")]
for inside in ("python/libpeerlane.so.0", "lib/libpeerlane.so.0"):
    if os.path.exists(os.path.join(BUILD, inside)):
        os.environ.setdefault("PEERLANE_LIBRARY", os.path.join(BUILD, inside))
