# SPDX-License-Identifier: MIT
"""The table of mutants, tests/mutants/*.txt: reading it, applying one, proposing new ones.

A section is a behaviour and the tests that see to it, most specific first:

    [durable writes] power_loss full_disk

A mutant is a file, what would be wrong, the text as it is and the text instead:

    lib/ring.c: durable requests of a batch are not durable
    -if (flags & PL_RING_DURABLE)
    +if (0)

Blanks count as one, so indentation and line breaks do not matter. The text must occur once in the file. An
empty replacement drops it. A line "tests: A B" puts tests before those of the section, and a line
"survives: WHY" explains a mutant that no test kills.
"""

import glob
import hashlib
import os
import re


class Mutant:
    def __init__(self, number, path, what, section):
        self.number = number
        self.path = path
        self.what = what
        self.section = section
        self.old = []
        self.new = []
        self.first = []
        self.survives = ""

    def tests(self):
        names = self.first + self.section.tests
        return list(dict.fromkeys(names))

    def pattern(self):
        """A pattern of the old text, in which any blanks will do."""
        words = " ".join(self.old).split()
        return re.compile(r"\s+".join(re.escape(w) for w in words))

    def find(self, text):
        """Where the old text is, or None unless that is one place."""
        if not " ".join(self.old).split():
            return None
        hits = list(self.pattern().finditer(text))
        return hits[0] if len(hits) == 1 else None

    def apply(self, text):
        hit = self.find(text)
        return text[: hit.start()] + "\n".join(self.new) + text[hit.end() :] if hit else None

    def key(self, text):
        """Changes with the mutant and its file."""
        parts = [self.path, text, "\n".join(self.old), "\n".join(self.new)]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


class Section:
    def __init__(self, name, tests):
        self.name = name
        self.tests = tests


class Broken(Exception):
    """The table cannot be understood."""


def parse(lines, mutants):
    """Adds the mutants of one file of the table."""
    section = None
    for at, line in enumerate(lines, 1):
        line = line.rstrip("\n")
        current = mutants[-1] if mutants and mutants[-1].section is section else None
        head = re.fullmatch(r"\[(.+?)\] *(.*)", line)
        named = re.fullmatch(r"([\w./]+\.[ch]): (.+)", line)
        if not line.strip() or line.startswith("#"):
            continue
        if head:
            section = Section(head[1], head[2].split())
        elif named and section:
            mutants.append(Mutant(len(mutants) + 1, named[1], named[2], section))
        elif current and line[0] in "-+":
            (current.old if line[0] == "-" else current.new).append(line[1:])
        elif current and line.startswith("tests: "):
            current.first += line[7:].split()
        elif current and line.startswith("survives: "):
            current.survives = line[10:]
        else:
            raise Broken(f"line {at}: {line}")


def load(folder):
    mutants = []
    for path in sorted(glob.glob(os.path.join(folder, "*.txt"))):
        with open(path, encoding="utf-8") as f:
            try:
                parse(f, mutants)
            except Broken as e:
                raise Broken(f"{os.path.basename(path)}, {e}") from e
    return mutants


def read(root, path):
    try:
        with open(os.path.join(root, path), encoding="utf-8") as f:
            return f.read()
    except OSError:
        return ""


def stale(root, mutants):
    """Those whose text is not in their file once."""
    return [m for m in mutants if not m.find(read(root, m.path))]


# ------------------------------------------------------------------ proposals

# What to look for in a line, and what to make of it.
RULES = [
    (r" < ", " <= "),
    (r" <= ", " < "),
    (r" > ", " >= "),
    (r" >= ", " > "),
    (r" == ", " != "),
    (r" != ", " == "),
    (r" && ", " || "),
    (r" \|\| ", " && "),
    (r" \+ 1\b", ""),
    (r" - 1\b", ""),
    (r"\btrue\b", "false"),
    (r"\bfalse\b", "true"),
    (r"\bif \((?!!)([^()]+)\)$", r"if (!(\1))"),
    (r"\bif \(!", "if ("),
    (r"^\t+[a-z]\w*\([^;]*\);$", ""),
    (r"^\t+[\w.>-]+(\+\+|--);$", ""),
    (r"return -E\w+;", "return 0;"),
]


def functions(text):
    """Pairs of a function's name and the lines of its body."""
    name, body = None, []
    for line in text.split("\n"):
        if re.match(r"[a-z].*\w\(", line) and not line.rstrip().endswith(";"):
            name, body = re.search(r"(\w+)\(", line)[1], []
        elif line == "}" and name:
            yield name, body
            name = None
        elif name and line.startswith("\t"):
            body.append(line)


def worth_it(text, line):
    """Not what occurs twice, what only talks, or a choice of the smaller one, where "<" and "<=" are the same."""
    skip = ("/*", "*", "pl_log(", "pl_text(", "_Static_assert", "pthread_")
    return text.count(line) == 1 and not line.lstrip().startswith(skip) and " ? " not in line


def propose(text):
    """Mutants that might be made of a file: function, old line, new line."""
    for name, body in functions(text):
        for line in body:
            if not worth_it(text, line):
                continue
            for rule, instead in RULES:
                for hit in re.finditer(rule, line):
                    new = line[: hit.start()] + hit.expand(instead) + line[hit.end() :]
                    yield name, line.strip(), new.strip()
