# SPDX-License-Identifier: MIT
"""What the public headers declare, read from their text: shared by the check scripts."""

import glob
import os
import re

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HEADERS = sorted(glob.glob(os.path.join(ROOT, "include/peerlane/*.h")) +
                 glob.glob(os.path.join(ROOT, "include/peerlane/device/*.h")))

COMMENT = re.compile(r"/\*.*?\*/", re.S)
FUNCTION = re.compile(r"^(?!typedef)([a-z][\w \t*]*?)\b(peerlane_\w+)\(([^;{}]*)\);", re.M)
CALLBACK = re.compile(r"^typedef ([\w \t*]*?)\(\*(peerlane_\w+)\)\(([^;{}]*)\);", re.M)
STRUCT = re.compile(r"^struct (peerlane_\w+) \{(.*?)^\};", re.M | re.S)


class Item:
    """One declaration: its kind, names and the comment right above it."""

    def __init__(self, kind, name, members, returns, doc, where):
        self.kind = kind
        self.name = name
        self.members = members
        self.returns = returns
        self.doc = doc
        self.where = where


def parameter_names(text):
    """Names in a parameter list."""
    text = " ".join(text.split())
    if text in ("", "void"):
        return []
    return [re.sub(r"\[.*", "", part).split()[-1].lstrip("*") for part in text.split(",")]


def member_names(text):
    """Names in the body of a struct."""
    names = []
    for line in text.split(";"):
        line = re.sub(r"\[.*?\]", "", " ".join(line.split()))
        pointer = re.search(r"\(\*(\w+)\)\(", line)
        if pointer:
            names.append(pointer.group(1))
        elif line:
            names.append(line.split()[-1].lstrip("*"))
    return names


def comment_above(text, start):
    """The comment that ends right before start, or ''."""
    before = text[:start].rstrip()
    if not before.endswith("*/"):
        return ""
    return before[before.rindex("/*"):]


def items():
    """Every function, callback type and struct with a body, in the order of the headers."""
    found = []
    for path in HEADERS:
        with open(path, encoding="utf-8") as f:
            text = f.read()
        # Blank out comments but keep positions, so that matches index the original text.
        code = COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), text)
        name = os.path.relpath(path, ROOT)
        for kind, pattern in (("function", FUNCTION), ("typedef", CALLBACK), ("struct", STRUCT)):
            for match in pattern.finditer(code):
                where = f"{name}:{code.count(chr(10), 0, match.start()) + 1}"
                doc = comment_above(text, match.start())
                if kind == "struct":
                    members = member_names(match.group(2))
                    found.append(Item(kind, match.group(1), members, False, doc, where))
                else:
                    returns = match.group(1).split() != ["void"]
                    members = parameter_names(match.group(3))
                    found.append(Item(kind, match.group(2), members, returns, doc, where))
    return found


def functions():
    """Names of all public functions."""
    return {item.name for item in items() if item.kind == "function"}
