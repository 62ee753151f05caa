#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""cuda.bindings.cufile on our libcufile.so.0: synchronous, batch and stream calls, parameters,
statistics.

    cufile_bindings.py [DIRECTORY...]     default: /var/tmp and /dev/shm

Starts itself again with the library preloaded. Exits 77 where the bindings or a GPU are missing.
"""

import ctypes
import os
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get("PEERLANE_BUILD", os.path.join(ROOT, "build")))
LIB = os.path.realpath(os.path.join(BUILD, "cufile/libcufile.so.0"))
NR, PIECE = 16, 65536


def skip(why):
    print(why)
    sys.exit(77)


def call(result):
    """The value of a driver call; its error ends the test."""
    assert int(result[0]) == 0, f"CUDA: {result[0]}"
    return result[1] if len(result) > 1 else None


class Client:
    """One file, one piece of GPU memory."""

    def __init__(self, cufile, cuda, path):
        self.cufile, self.cuda = cufile, cuda
        try:
            self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600)
        except OSError:
            self.fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        descr = cufile.Descr()
        descr.type = cufile.FileHandleType.OPAQUE_FD
        descr.handle.fd = self.fd
        descr.fs_ops = 0
        self.fh = cufile.handle_register(descr.ptr)
        self.mem = int(call(cuda.cuMemAlloc(NR * PIECE)))
        cufile.buf_register(self.mem, NR * PIECE, 0)

    def close(self):
        self.cufile.buf_deregister(self.mem)
        self.cufile.handle_deregister(self.fh)
        os.close(self.fd)
        call(self.cuda.cuMemFree(self.mem))

    def put(self, data):
        call(self.cuda.cuMemcpyHtoD(self.mem, data, len(data)))

    def get(self, length):
        out = ctypes.create_string_buffer(length)
        call(self.cuda.cuMemcpyDtoH(out, self.mem, length))
        return out.raw

    def sync(self, data):
        """cuFileWrite and cuFileRead, odd lengths and offsets too."""
        for length, file_at, mem_at in ((len(data), 0, 0), (12345, 77, 0), (1, 4095, 33)):
            self.put(data)
            assert self.cufile.write(self.fh, self.mem, length, file_at, mem_at) == length
            self.put(bytes(len(data)))
            assert self.cufile.read(self.fh, self.mem, length, file_at, 0) == length
            assert self.get(length) == data[mem_at:mem_at + length]

    def batch(self, data, opcode):
        """All pieces in one batch, in any order."""
        c = self.cufile
        batch = c.batch_io_set_up(NR)
        io, events = c.IOParams(NR), c.IOEvents(NR)
        for i in range(NR):
            io[i].mode = c.BatchMode.BATCH
            io[i].fh = self.fh
            io[i].opcode = opcode
            io[i].cookie = i
            io[i].u.batch.dev_ptr_base = self.mem
            io[i].u.batch.dev_ptr_offset = i * PIECE
            io[i].u.batch.file_offset = i * PIECE
            io[i].u.batch.size_ = PIECE
        self.put(data if opcode == c.Opcode.WRITE else bytes(len(data)))
        c.batch_io_submit(batch, NR, io.ptr, 0)
        nr, timeout = ctypes.c_uint(NR), (ctypes.c_long * 2)(5, 0)
        c.batch_io_get_status(batch, NR, ctypes.addressof(nr), events.ptr,
                              ctypes.addressof(timeout))
        assert nr.value == NR, f"{nr.value} events"
        assert {events[i].cookie for i in range(NR)} == set(range(NR))
        assert all(events[i].status == c.Status.COMPLETE and events[i].ret == PIECE
                   for i in range(NR))
        assert self.get(len(data)) == data
        c.batch_io_destroy(batch)

    def stream(self, data):
        """A write and a read in one stream, waited for once."""
        c, stream = self.cufile, call(self.cuda.cuStreamCreate(0))
        c.stream_register(int(stream), 0)
        size, at, zero = ctypes.c_size_t(len(data)), ctypes.c_int64(4096), ctypes.c_int64(0)
        wrote, got = ctypes.c_ssize_t(-1), ctypes.c_ssize_t(-1)
        self.put(data)
        for function, result in ((c.write_async, wrote), (c.read_async, got)):
            function(int(self.fh), self.mem, ctypes.addressof(size), ctypes.addressof(at),
                     ctypes.addressof(zero), ctypes.addressof(result), int(stream))
        call(self.cuda.cuStreamSynchronize(stream))
        assert (wrote.value, got.value) == (len(data), len(data)), (wrote.value, got.value)
        assert self.get(len(data)) == data
        c.stream_deregister(int(stream))
        call(self.cuda.cuStreamDestroy(stream))


def settings(cufile):
    """Before the driver opens."""
    if hasattr(cufile, "set_parameter_size_t"):
        param = cufile.SizeTConfigParameter.PROPERTIES_IO_BATCHSIZE
        cufile.set_parameter_size_t(param, 64)
        cufile.driver_open()
        assert cufile.get_parameter_size_t(param) == 64
        cufile.driver_close()


def main():
    if LIB not in os.environ.get("LD_PRELOAD", ""):
        if not os.path.exists(LIB):
            skip(f"{LIB} is not built")
        os.environ["LD_PRELOAD"] = LIB
        os.execv(sys.executable, [sys.executable, *sys.argv])
    try:
        from cuda.bindings import cufile
        from cuda.bindings import driver as cuda
    except (ImportError, RuntimeError) as e:
        skip(f"no cuda.bindings.cufile: {e}")
    try:
        call(cuda.cuInit(0))
        context = call(cuda.cuDevicePrimaryCtxRetain(call(cuda.cuDeviceGet(0))))
        call(cuda.cuCtxSetCurrent(context))
    except (AssertionError, RuntimeError) as e:
        skip(f"no GPU: {e}")
    settings(cufile)
    cufile.driver_open()
    data = os.urandom(NR * PIECE)
    for base in sys.argv[1:] or ("/var/tmp", "/dev/shm"):
        with tempfile.TemporaryDirectory(dir=base, prefix="peerlane-cufile-") as directory:
            client = Client(cufile, cuda, os.path.join(directory, "file"))
            client.sync(data)
            client.batch(data, cufile.Opcode.WRITE)
            client.batch(data, cufile.Opcode.READ)
            client.stream(data)
            client.close()
        print(f"ok    {base}: synchronous, batch, stream")
    cufile.driver_close()
    with open("/proc/self/maps", encoding="utf-8") as f:
        assert LIB in f.read(), "the library was not used"
    print(f"cuda.bindings.cufile, version {cufile.get_version()}, by {LIB}")


main()
