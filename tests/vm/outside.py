# SPDX-License-Identifier: MIT
"""The lab's view from outside the guest: images, their bytes, and QEMU's trace."""

import bisect
import collections
import os
import random
import re
import shutil
import struct
import subprocess

import guest

MIB = 1 << 20
BAR_BYTES = 256 * MIB
RAW_BYTES = 160 * MIB
SOURCE_BYTES = 64 * MIB
# Block numbers of the marks that tests leave in the trace; see guest/main.c.
MARKS = 64 * MIB // 512


class Images:
    def __init__(self, work, layout):
        self.raid = [os.path.join(work, f"raid{n}.img") for n in range(2)] \
            if layout.raid else []
        self.bar = os.path.join(work, "bar.img")
        self.bar_bytes = BAR_BYTES
        self.raw = os.path.join(work, "raw0.img")
        self.fs = os.path.join(work, "fs0.img")
        self.slow = os.path.join(work, "slow0.img")
        self.bad = os.path.join(work, "bad0.img")
        self.source = os.path.join(work, "src")
        # Slow enough that tests find requests under way.
        slow = f"file={self.slow},format=raw,throttling.bps-read=8388608"
        # Reads that touch the sector at 1 MiB fail, always; so do writes to that at 2 MiB.
        bad = (f"driver=raw,file.driver=blkdebug,file.image.driver=file,"
               f"file.image.filename={self.bad},file.inject-error.0.event=none,"
               f"file.inject-error.0.iotype=read,file.inject-error.0.errno=5,"
               f"file.inject-error.0.sector=2048,file.inject-error.1.event=none,"
               f"file.inject-error.1.iotype=write,file.inject-error.1.errno=5,"
               f"file.inject-error.1.sector=4096")
        self.drives = [("raw0", f"file={self.raw},format=raw"),
                       ("fs0", f"file={self.fs},format=raw"), ("slow0", slow), ("bad0", bad)]
        self.drives += [(f"raid{n}", f"file={path},format=raw")
                        for n, path in enumerate(self.raid)]
        self.xfs = os.path.join(work, "xfs0.img") if layout.xfs else None
        if self.xfs:
            self.drives += [("xfs0", f"file={self.xfs},format=raw")]
        self.parts = self.btrfs = self.narrow = self.shared = self.shared_path = None
        if layout.below:
            self.parts, self.btrfs, self.narrow, self.shared_path = (
                os.path.join(work, name + ".img")
                for name in ("parts0", "btrfs0", "narrow0", "shared0"))
            self.drives += [("parts0", f"file={self.parts},format=raw"),
                            ("btrfs0", f"file={self.btrfs},format=raw")]
            self.shared = ("shared0", f"file={self.shared_path},format=raw")


def fill(path, size, data_bytes, seed):
    rng = random.Random(seed)
    with open(path, "wb") as f:
        f.truncate(size)
        for _ in range(data_bytes // MIB):
            f.write(rng.randbytes(MIB))


def make_xfs(path):
    with open(path, "wb") as f:
        f.truncate(320 * MIB)
    subprocess.run(["mkfs.xfs", "-q", "-f", path], check=True, stdout=subprocess.DEVNULL)


def make_partitions(path):
    """Two partitions: one of noise from 1 MiB on, one with a file system from 16 MiB on."""
    fill(path, 96 * MIB, 16 * MIB, 7)
    inner = path + ".ext4"
    with open(inner, "wb") as f:
        f.truncate(80 * MIB)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-b", "4096", "-I", "256", "-O", "inline_data",
                    inner], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(path, "r+b") as f, open(inner, "rb") as g:
        f.seek(446)
        for start, size in ((1, 4), (16, 80)):
            f.write(struct.pack("<8BII", 0, 0, 2, 0, 0x83, 0, 2, 0, start * MIB // 512,
                                size * MIB // 512))
        f.write(bytes(32) + b"\x55\xaa")
        f.seek(16 * MIB)
        shutil.copyfileobj(g, f, MIB)
    os.remove(inner)


def make_below(images):
    make_partitions(images.parts)
    fill(images.shared_path, 4 * MIB, 4 * MIB, 8)
    fill(images.narrow, 4 * MIB, 4 * MIB, 9)
    with open(images.btrfs, "wb") as f:
        f.truncate(256 * MIB)
    subprocess.run(["mkfs.btrfs", "-q", "-f", images.btrfs], check=True,
                   stdout=subprocess.DEVNULL)


def make_images(work, layout):
    images = Images(work, layout)
    if layout.below:
        make_below(images)
    if images.xfs:
        make_xfs(images.xfs)
    for number, path in enumerate(images.raid):
        fill(path, 16 * MIB, 16 * MIB, 5 + number)
    fill(images.raw, RAW_BYTES, SOURCE_BYTES, 1)
    fill(images.slow, 16 * MIB, 16 * MIB, 2)
    fill(images.bad, 4 * MIB, 4 * MIB, 4)
    os.makedirs(os.path.join(work, "fsroot"), exist_ok=True)
    source = os.path.join(work, "fsroot/src")
    fill(source, 8 * MIB, 8 * MIB, 3)
    with open(images.fs, "wb") as f:
        f.truncate(64 * MIB)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-b", "4096", "-d", os.path.join(work, "fsroot"),
                    images.fs], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.replace(source, images.source)
    # Where nothing was written, this is seen.
    with open(images.bar, "wb") as f:
        for _ in range(BAR_BYTES // MIB):
            f.write(b"\xa5" * MIB)
    return images


def remove(images):
    for path in (images.bar, images.raw, images.fs, images.slow, images.bad, images.source, images.xfs,
                 images.parts, images.btrfs, images.narrow, images.shared_path, *images.raid):
        if path and os.path.exists(path):
            os.remove(path)


MAP = re.compile(r"pci_nvme_map_addr addr 0x([0-9a-f]+) len (\d+)")
READ = re.compile(r"pci_nvme_read .*nlb (\d+) count (\d+) lba 0x([0-9a-f]+)")
TRANSLATE = re.compile(r"vtd_dmar_translate .*iova 0x([0-9a-f]+) -> gpa 0x([0-9a-f]+) "
                       r"mask 0x([0-9a-f]+)")


def inside(bar, address, length):
    """Bytes of a range that lie in the BAR."""
    start = max(address, bar[0])
    end = min(address + length, bar[0] + bar[1])
    return max(0, end - start)


def numbered(path):
    """The lines of the trace, each with the number of its test."""
    number = 0
    with open(path, encoding="utf-8", errors="replace") as f:
        for line in f:
            read = READ.search(line)
            if read and read[1] == "1" and MARKS < int(read[3], 16) < MARKS + 1000:
                number = int(read[3], 16) - MARKS
            yield number, line


def translations(lines):
    """For each IOVA page, what it was translated to, and in which line of the trace."""
    pages = {}
    for number, line in enumerate(lines):
        found = TRANSLATE.search(line)
        if not found:
            continue
        iova, gpa, mask = (int(value, 16) for value in found.groups())
        for at in range(0, mask + 1, 4096):
            page = ((iova & ~mask) + at) >> 12
            pages.setdefault(page, []).append((number, ((gpa & ~mask) + at) >> 12))
    return pages


def translate(pages, page, number):
    """Where an address goes that a drive was given in a line: its next translation tells."""
    known = pages.get(page, [])
    at = bisect.bisect_left(known, (number, 0))
    return known[at][1] if at < len(known) else None


def moved_translated(lines, bar):
    """The bytes of moved_bytes() for one test, with an IOMMU."""
    total = 0
    pages = translations(lines)
    for number, line in enumerate(lines):
        found = MAP.search(line)
        if not found:
            continue
        address, length = int(found[1], 16), int(found[2])
        while length:
            piece = min(length, 4096 - address % 4096)
            page = translate(pages, address >> 12, number)
            if page is not None:
                total += inside(bar, page << 12 | address % 4096, piece)
            address, length = address + piece, length - piece
    return total


def moved_bytes(path, bar, iommu):
    """Bytes that the drives moved into or out of the BAR, by the number of the test."""
    if iommu:
        parts = {}
        for number, line in numbered(path):
            parts.setdefault(number, []).append(line)
        return {number: moved_translated(lines, bar) for number, lines in parts.items()}
    # Not kept: that of a long loop has many millions of lines.
    total = collections.Counter()
    for number, line in numbered(path):
        found = MAP.search(line)
        if found:
            total[number] += inside(bar, int(found[1], 16), int(found[2]))
    return total


class Bytes:
    """The bytes of the BAR and the drives after the guest has gone."""

    def __init__(self, images, bar, work):
        self.images, self.bar, self.work = images, bar, work
        self.dumped = set()

    def path_of(self, what):
        if what == "bar":
            return self.images.bar
        drives = {"raw0": self.images.raw, "slow0": self.images.slow, "bad0": self.images.bad}
        drives.update((f"raid{n}", path) for n, path in enumerate(self.images.raid))
        drives.update({"parts0": self.images.parts, "shared0": self.images.shared_path})
        if what in drives:
            return drives[what]
        if what == "src":
            return self.images.source
        path = os.path.join(self.work, "dump-" + what)
        if what not in self.dumped:
            subprocess.run(["debugfs", "-R", f"dump /{what} {path}", self.images.fs], check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.dumped.add(what)
        return path

    def read(self, what, at, length):
        if what == "bar":
            at -= self.bar[0]
        with open(self.path_of(what), "rb") as f:
            f.seek(at)
            return f.read(length)

    def differences(self, expects):
        bad = []
        for left, left_at, length, right, right_at in expects:
            a = self.read(left, int(left_at), int(length))
            b = self.read(right, int(right_at), int(length))
            if a != b or len(a) != int(length):
                bad.append(f"from outside: {length} bytes of {left} at {left_at} are not those of "
                           f"{right} at {right_at}")
        return bad


def judge_test(boot, test, data, moved):
    log = list(test.log)
    bad = [] if test.status == 0 else [f"the guest's test ended with status {test.status}"]
    bad += data.differences(test.expects)
    want = 0 if boot.dma == "zero" else test.direct
    if want is not None and test.direct is not None and moved != want:
        bad.append(f"{moved} bytes went to or from the BAR by DMA, and not {want}")
    return ("FAIL" if bad else "OK"), log + bad


def judge(boot, told, images, work, trouble):
    results = []
    moved = {}
    if told.bar:
        moved = moved_bytes(os.path.join(work, "trace.log"), told.bar, boot.layout.iommu)
    data = Bytes(images, told.bar, work)
    for test in told.tests:
        if test.status is None:
            continue
        nr = moved.get(test.number, 0)
        if test.status == 77:
            results.append((test.name, "SKIP", "", test.log))
        else:
            result, log = judge_test(boot, test, data, nr)
            results.append((test.name, result, str(nr), log))
    done = {name for name, *_ in results}
    bad = guest.console_trouble(work)
    missing = [name for name in [*boot.tests, "unload"] if name not in done]
    for name in missing:
        results.append((name, "FAIL", "", ["the guest did not get to its end", *told.loose[-20:],
                                           *[trouble or ""], *bad]))
    if bad and not missing:
        results.append(("kernel log", "FAIL", "", bad))
    return results
