#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""KvikIO on our libcufile.so.0: its threaded, raw, registered and stream calls.

    client_kvikio.py [DIRECTORY...]     default: /var/tmp and /dev/shm

By its default, AUTO, KvikIO reads and writes by itself where there is no /run/udev;
KVIKIO_COMPAT_MODE=OFF makes it use libcufile all the same. Exits 77 where KvikIO or a GPU is missing.
"""

import os
import tempfile

import clients

SIZE = 32 << 20  # KvikIO cuts it into tasks of 4 MiB for its threads


def round_trips(kvikio, gpu, path, total):
    """Written and read by each kind of call; the file compared as well. Counts bytes in total."""
    data = clients.pattern(SIZE, 1)
    a, b = clients.Buffer(gpu, SIZE).put(data), clients.Buffer(gpu, SIZE)
    empty = bytes(SIZE)

    def same(length, at, what):
        assert b.get(length) == data[:length], f"{what}: other data came back"
        with open(path, "rb") as plain:
            plain.seek(at)
            assert plain.read(length) == data[:length], f"{what}: other data in the file"
        b.put(empty)
        total[0] += length

    b.put(empty)
    with kvikio.CuFile(path, "w+") as f:
        assert f.write(a) == SIZE
        assert f.read(b) == SIZE
        same(SIZE, 0, "threads")
        for length, at in ((12345, 77), (4096, 4096), (1, 4095), (5_000_001, 123_456)):
            assert f.pwrite(a, length, at).get() == length
            assert f.pread(b, length, at).get() == length
            same(length, at, f"{length} bytes at {at}")
        kvikio.memory_register(a)
        kvikio.memory_register(b)
        assert f.raw_write(a, 1 << 20, 8192) == 1 << 20
        assert f.raw_read(b, 1 << 20, 8192) == 1 << 20
        same(1 << 20, 8192, "registered")
        stream = gpu.stream()
        kvikio.stream_register(stream.value, 0)
        w = f.raw_write_async(a, stream.value, 3 << 20, 4096)
        r = f.raw_read_async(b, stream.value, 3 << 20, 4096)
        assert (w.check_bytes_done(), r.check_bytes_done()) == (3 << 20, 3 << 20)
        same(3 << 20, 4096, "stream")
        kvikio.stream_deregister(stream.value)
        gpu.call("cuStreamDestroy_v2", stream)
        kvikio.memory_deregister(a)
        kvikio.memory_deregister(b)
    a.free()
    b.free()


def main():
    # Small pieces by libcufile, too; and without a file of settings it leaves the calls for streams.
    settings = os.path.join(clients.BUILD, "cufile/client.json")
    if not os.path.exists(settings):
        with open(settings, "w", encoding="utf-8") as f:
            f.write("{}\n")
    clients.start(KVIKIO_COMPAT_MODE="OFF", KVIKIO_GDS_THRESHOLD="0", KVIKIO_NTHREADS="4",
                  CUFILE_ENV_PATH_JSON=settings)
    try:
        import kvikio
        import kvikio.cufile_driver
        import kvikio.defaults
    except (ImportError, OSError) as e:
        clients.skip(f"no KvikIO: {e}")
    gpu = clients.Gpu()
    proof = clients.Proof()
    version = kvikio.cufile_driver.libcufile_version()
    for base in clients.directories():
        with tempfile.TemporaryDirectory(dir=base, prefix="peerlane-kvikio-") as directory:
            proof.begin()
            total = [0]
            round_trips(kvikio, gpu, os.path.join(directory, "file"), total)
            print(f"ok    {base}: 7 round trips; {proof.check(*total * 2)}")
    print(f"KvikIO {kvikio.__version__}, libcufile {version}; {proof.which()}")


main()
