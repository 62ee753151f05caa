#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""fastsafetensors' loader for GPUDirect Storage on our libcufile.so.0; it only reads.

    client_fastsafetensors.py [DIRECTORY...]     default: /var/tmp and /dev/shm

From version 0.4 on it does not open libcufile where /dev/nvidia-fs0 is missing. Our library needs no
such device, so this test then answers that one question with yes, and says so. Exits 77 where
fastsafetensors, torch or a GPU is missing.
"""

import ctypes
import glob
import importlib.util
import os
import sys
import tempfile
import warnings

import clients

DEVICE = "/dev/nvidia-fs0"


def answer_for_device():
    """os.path.exists() says that the device is there. What to print about it."""
    real, asked = os.path.exists, []
    if real(DEVICE):
        return lambda: f"{DEVICE} is there"

    def exists(path):
        if path == DEVICE:
            asked.append(path)
            return True
        return real(path)

    os.path.exists = exists
    return lambda: (f"asked for {DEVICE}, was told yes by this test" if asked
                    else f"did not ask for {DEVICE}")


def link_runtime():
    """It opens libcudart.so by this very name, which torch's own copy does not have."""
    try:
        ctypes.CDLL("libcudart.so")
        return
    except OSError:
        pass
    spec = importlib.util.find_spec("nvidia")
    link = os.path.join(clients.BUILD, "cufile/libcudart.so")
    for folder in spec.submodule_search_locations if spec else ():
        for found in sorted(glob.glob(os.path.join(folder, "*/lib/libcudart.so.*"))):
            if not os.path.lexists(link):
                os.symlink(found, link)
            return


def model(support, seed, large):
    """Tensors of several types and odd sizes, and a large one; those of large elements first."""
    made = []
    for i, (dtype, shape) in enumerate((("I64", (5,)), ("F32", (33, 7)), ("BF16", (1000, 129)),
                                        ("F16", (64, 64, 3)), ("U8", (4097,)), ("U8", (large,)))):
        length = support.count(shape) * support.BITS[dtype] // 8
        made.append((f"{seed}.{i}.{dtype}", dtype, shape, clients.pattern(length, seed + i)))
    return made


def write(support, path, made, odd):
    """The data begins at a multiple of 8, or not."""
    header = len(support.build(made)) - sum(len(t[3]) for t in made)
    support.write_model(path, made, pad=-header % 8 + odd)


def load(torch, fast, paths, models, block, register):
    """All files in one go; every tensor compared with what was written. The bytes."""
    loader = fast.SafeTensorsFileLoader(None, "cuda:0", nogds=False)
    loader.add_filenames({0: paths})
    buffers = loader.copy_files_to_device(use_buf_register=register, max_copy_block_size=block)
    total = 0
    for name, _, shape, data in (tensor for made in models for tensor in made):
        got = buffers.get_tensor(name)
        assert tuple(got.shape) == tuple(shape) and got.is_cuda, f"{name}: {got.shape} {got.device}"
        raw = got.contiguous().view(torch.uint8).cpu().numpy().tobytes()
        assert raw == data, f"{name}: other data"
        total += len(data)
        del got
    buffers.close()
    loader.close()
    return total


def main():
    if "LD_PRELOAD" not in os.environ:
        link_runtime()
    clients.start()
    answered = answer_for_device()
    try:
        import torch
    except ImportError as e:
        clients.skip(f"no torch: {e}")
    if not torch.cuda.is_available():
        clients.skip("torch finds no GPU")
    try:
        import fastsafetensors as fast
    except ImportError as e:
        clients.skip(f"no fastsafetensors: {e}")
    sys.path.append(os.path.join(clients.ROOT, "tests/python"))
    import support  # would hide torch if it came first

    warnings.simplefilter("always")
    proof = clients.Proof()
    for base in clients.directories():
        with tempfile.TemporaryDirectory(dir=base, prefix="peerlane-fastsafe-") as directory:
            paths = [os.path.join(directory, name) for name in ("a.safetensors", "b.safetensors")]
            models = [model(support, 1, 64 << 20), model(support, 101, 12_345_679)]
            for path, made, odd in zip(paths, models, (0, 3)):
                write(support, path, made, odd)
            proof.begin()
            total = 0
            for block, register in ((16 << 30, False), (16 << 20, True), (5 << 20, True)):
                total += load(torch, fast, paths[:1], models[:1], block, register)
                total += load(torch, fast, paths, models, block, register)
            print(f"ok    {base}: 6 times loaded; {proof.check(read=total)}")
    print(f"fastsafetensors {fast.__version__} {answered()}; {proof.which()}")


main()
