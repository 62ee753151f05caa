#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""nixl's plug-ins GDS (batches) and GDS_MT (threads) on our libcufile.so.0.

    client_nixl.py [DIRECTORY...]     default: /var/tmp and /dev/shm

Exits 77 where nixl or a GPU is missing.
"""

import ctypes
import os
import tempfile
import time

import clients

PIECE = 1 << 20
BIG = 40 << 20  # more than the plug-in's 16 MiB a request
WAIT_S = 50


def transfer(agent, backend, operation, memory, file):
    """One transfer, waited for."""
    handle = agent.initialize_xfer(operation, memory, file, agent.name, backends=[backend])
    state = agent.transfer(handle)
    end = time.monotonic() + WAIT_S
    while state == "PROC" and time.monotonic() < end:
        state = agent.check_xfer_state(handle)
    assert state == "DONE", f"{backend} {operation}: {state}"
    agent.release_xfer_handle(handle)


def round_trip(agent, backend, buffers, fd, pieces, seed):
    """Pieces of memory to pieces of a file, in one transfer each way, and compared."""
    length = sum(size for _, size, _ in pieces)
    data = clients.pattern(max(at + size for at, size, _ in pieces), seed)
    a, b = buffers
    a.put(data)
    b.put(bytes(b.nbytes))
    lists = [agent.get_xfer_descs([(buffer.address + at, size, 0) for at, size, _ in pieces], "VRAM")
             for buffer in buffers]
    file = agent.get_xfer_descs([(at, size, fd) for _, size, at in pieces], "FILE")
    transfer(agent, backend, "WRITE", lists[0], file)
    transfer(agent, backend, "READ", lists[1], file)
    back = b.get()
    for at, size, file_at in pieces:
        assert back[at:at + size] == data[at:at + size], f"{backend}: other data came back"
        plain = os.pread(fd, size, file_at)
        assert plain == data[at:at + size], f"{backend}: other data in the file"
    return length


def in_file(agent, backend, gpu, path):
    """A transfer of many pieces, of an odd one, and of one large one. The bytes each way."""
    buffers = clients.Buffer(gpu, BIG), clients.Buffer(gpu, BIG)
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    os.ftruncate(fd, BIG)
    memory = agent.register_memory([(b.address, BIG, 0, "") for b in buffers], "VRAM",
                                   backends=[backend])
    file = agent.register_memory([(0, BIG, fd, "")], "FILE", backends=[backend])
    many = [(i * PIECE, PIECE, (31 - i) * PIECE) for i in range(32)]
    total = 0
    for seed, pieces in enumerate((many, [(0, 12345, 77)], [(0, BIG, 0)], many)):
        total += round_trip(agent, backend, buffers, fd, pieces, seed)
    agent.deregister_memory(file, backends=[backend])
    agent.deregister_memory(memory, backends=[backend])
    os.close(fd)
    for b in buffers:
        b.free()
    return total


def runtime():
    """nixl's plug-ins want CUDA's runtime; torch brings it where the system has none."""
    try:
        ctypes.CDLL("libcudart.so.13")
    except OSError:
        try:
            import torch  # noqa: F401
        except ImportError as e:
            clients.skip(f"no libcudart.so.13 and no torch that has it: {e}")


def main():
    clients.start(NIXL_LOG_LEVEL="WARN")
    runtime()
    try:
        import nixl
    except ImportError as e:
        clients.skip(f"no nixl: {e}")
    gpu = clients.Gpu()
    proof = clients.Proof()
    for backend in "GDS", "GDS_MT":
        # An agent for each: each opens and closes the driver.
        agent = nixl.nixl_agent(f"peerlane-{backend}", nixl.nixl_agent_config(backends=[]))
        agent.create_backend(backend)
        for base in clients.directories():
            with tempfile.TemporaryDirectory(dir=base, prefix="peerlane-nixl-") as directory:
                proof.begin()
                total = in_file(agent, backend, gpu, os.path.join(directory, "file"))
                print(f"ok    {backend} {base}: 4 round trips; {proof.check(total, total)}")
        del agent
    print(f"nixl; {proof.which()}")


main()
