# SPDX-License-Identifier: MIT
"""Run one module of tests: run.py test_NAME. Exits 77 without numpy.

What meson sets can be left out: then it is the tree this file is in, and its folder build.
"""

import faulthandler
import importlib.util
import os
import sys
import unittest

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEFAULTS = {
    "PEERLANE_BACKEND": "sim",
    "PEERLANE_SOURCE": SOURCE,
    "PEERLANE_BUILD": os.path.join(SOURCE, "build"),
    "PEERLANE_LIBRARY": os.path.join(SOURCE, "build/lib/libpeerlane.so.0"),
    "FAKE_LIBCUDA": os.path.join(SOURCE, "build/tests/libcuda_fake.so"),
    "PEERLANE_WHEEL_LIBRARY": os.path.join(SOURCE, "build/python/libpeerlane.so.0"),
    "PYTHONPATH": os.path.join(SOURCE, "python"),
}
for name, value in DEFAULTS.items():
    os.environ.setdefault(name, value)

if importlib.util.find_spec("numpy") is None:
    print(f"numpy is not installed for {sys.executable}")
    sys.exit(77)
sys.path.insert(1, os.environ["PYTHONPATH"])
faulthandler.enable()
unittest.main(module=sys.argv[1], argv=sys.argv[1:])
