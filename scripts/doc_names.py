# SPDX-License-Identifier: MIT
"""Names in the project's pages (*.md) that must be those of things in the tree.

A name counts where it stands in `code`: files and folders, functions and constants of the library,
manual pages. Links count everywhere.
"""

import fnmatch
import os
import re

# Files that pages name but that are not in the tree: the reader's own, or made by an installation.
ELSEWHERE = {"_installed.py", "cufile.json", "load.c", "program.c", "train.py", "*.index.json"}
SUFFIXES = "bash|c|cu|csv|h|hpp|json|jsonl|map|md|png|ptx|py|sh|supp|svg|table|txt"

CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
FILE = re.compile(rf"[\w*-][\w.*-]*\.(?:{SUFFIXES}|\*)")
FUNCTION = re.compile(r"\b((?:peerlane|pld?)_\w+)\(\)")
CONSTANT = re.compile(r"\b(?:PEERLANE|PLD?)_[A-Z0-9_]*[A-Z0-9]\b")
MANUAL = re.compile(r"\b(peerlane[\w-]*)\(([1-9])\)")


class Tree:
    """What is in the project's folder."""

    def __init__(self, root):
        self.root = root
        self.files = set()
        for folder, folders, files in os.walk(root):
            folders[:] = [f for f in folders
                          if not f.startswith((".", "build")) and f != "__pycache__"]
            self.files |= {os.path.relpath(os.path.join(folder, f), root) for f in files}
        self.names = {os.path.basename(f) for f in self.files}
        self.rooms = {f.split("/")[0] for f in self.files if "/" in f}
        self.folders = set()
        for file in self.files:
            parts = file.split("/")
            self.folders |= {"/".join(parts[:n]) for n in range(1, len(parts))}
        self.words = set()
        for file in self.files:
            if not file.endswith(".md") and not file.startswith("bench/results/"):
                self.words |= set(re.findall(r"\w+", self.read(file)))

    def read(self, file):
        with open(os.path.join(self.root, file), encoding="utf-8", errors="replace") as f:
            return f.read()

    def has_path(self, path):
        return (path in self.files or path in self.folders or
                ("*" in path and bool(fnmatch.filter(self.files, path))))

    def has_name(self, name):
        return name in self.names or ("*" in name and bool(fnmatch.filter(self.names, name)))


def code_of(text):
    """Each line's code: what is between backquotes, or all of a line in a block of code."""
    fenced = False
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            yield number, line
        else:
            for code in CODE.findall(line):
                yield number, code


def faults_of_file(tree, word):
    if re.search(r"[<>$~{}]", word) or word in ELSEWHERE:
        return
    first = word.split("/")[0]
    if "/" in word and first in tree.rooms:
        if not tree.has_path(word.rstrip("/")):
            yield f"{word} is not in the tree"
    elif FILE.fullmatch(word) and not re.search("[A-Z]{4}", word) and not tree.has_name(word):
        yield f"no file {word} in the tree"


def faults_of_code(tree, code):
    for word in re.split(r"[\s=,;:|()'\"\[\]]+", code):
        yield from faults_of_file(tree, word.rstrip(".").removeprefix("./"))
    for function in FUNCTION.findall(code):
        if function not in tree.words:
            yield f"no function {function}()"
    for constant in CONSTANT.findall(code):
        if constant not in tree.words:
            yield f"no name {constant}"
    for page, section in MANUAL.findall(code):
        if f"{page}.{section}" not in tree.names and page not in tree.words:
            yield f"no manual page {page}({section})"


def faults(root):
    tree = Tree(root)
    for page in sorted(f for f in tree.files if f.endswith(".md")):
        text = tree.read(page)
        for number, code in code_of(text):
            for fault in faults_of_code(tree, code):
                yield f"{page}:{number}: {fault}"
        for number, line in enumerate(text.split("\n"), 1):
            for link in LINK.findall(line):
                path = os.path.normpath(os.path.join(os.path.dirname(page), link))
                if "://" not in link and not tree.has_path(path):
                    yield f"{page}:{number}: the link {link} leads nowhere"
