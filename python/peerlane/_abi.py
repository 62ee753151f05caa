# SPDX-License-Identifier: MIT
"""The structures and functions of libpeerlane, as its public headers declare them."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_char, c_char_p, c_double, c_int, c_int64, c_size_t
from ctypes import c_ssize_t, c_uint, c_uint32, c_uint64, c_void_p

INT_MAX = (1 << 31) - 1
UINT_MAX = (1 << 32) - 1
POINTER_MAX = (1 << 8 * ctypes.sizeof(c_void_p)) - 1

PATH_NR = 5
HIST = 64
READ = 0
WRITE = 1

DURABLE = 0x1
FIXED = 0x2

MODEL_SLICE = 0x1
MODEL_PER_TENSOR = 0x1
MODEL_CHECKSUM = 0x1
MODEL_NO_SYNC = 0x2

FLAGS = {
    "no-io-uring": 0x1,
    "no-in-place": 0x2,
    "no-direct": 0x4,
    "no-mapped": 0x8,
    "save-cpu": 0x10,
    "no-kernels": 0x20,
    "no-mapped-write": 0x40,
    "no-ahead": 0x80,
    "no-p2p": 0x100,
    "wait-default": 0x200,
    "no-wait-default": 0x400,
}


class Sized(Structure):
    """A structure that begins with its own size, which is set here."""

    def __init__(self, **values: object) -> None:
        super().__init__(**values)
        self.size = ctypes.sizeof(self)


class Options(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("flags", c_uint),
        ("backend", c_char_p),
        ("pool_bytes", c_size_t),
        ("slot_bytes", c_size_t),
        ("nr_threads", c_uint),
        ("queue_depth", c_uint),
        ("timeout_ms", c_uint),
        ("log_level", c_int),
        ("log", c_void_p),
        ("log_arg", c_void_p),
    ]


class ErrorInfo(Sized):
    _fields_ = [("size", c_size_t), ("err", c_int), ("cuda", c_int), ("text", c_char * 256)]


class Io(Structure):
    _fields_ = [
        ("file", c_void_p),
        ("addr", c_void_p),
        ("bytes", c_size_t),
        ("offset", c_int64),
        ("op", c_int),
        ("flags", c_uint),
        ("cookie", c_void_p),
    ]


class Event(Structure):
    _fields_ = [("cookie", c_void_p), ("result", c_ssize_t), ("cuda", c_int)]


class Verdict(Structure):
    _fields_ = [
        ("path", c_int),
        ("usable", c_int),
        ("reason", c_char * 192),
        ("fix", c_char * 192),
    ]


class Explanation(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("chosen", c_int),
        ("io_engine", c_char * 16),
        ("io_reason", c_char * 192),
        ("ahead_reason", c_char * 192),
        ("fs", c_char * 32),
        ("device", c_char * 64),
        ("dio_align", c_uint32),
        ("file_bytes", c_int64),
        ("cached_bytes", c_int64),
        ("memory", c_char * 16),
        ("gpu", c_int),
        ("nr_verdicts", c_uint),
        ("verdicts", Verdict * PATH_NR),
    ]


class OpStats(Structure):
    _fields_ = [
        ("ok", c_uint64),
        ("failed", c_uint64),
        ("bytes", c_uint64),
        ("path_bytes", c_uint64 * PATH_NR),
        ("ns_sum", c_uint64),
        ("size_hist", c_uint64 * HIST),
        ("lat_hist", c_uint64 * HIST),
    ]


class Stats(Sized):
    _fields_ = [("size", c_size_t), ("read", OpStats), ("write", OpStats)] + [
        (name, c_uint64)
        for name in (
            "pool_limit",
            "pool_bytes",
            "pool_peak",
            "pool_waits",
            "pool_failures",
            "files",
            "buffers",
            "batches",
            "in_flight",
            "threads",
            "in_place_failures",
            "cancelled",
            "ahead_bytes",
            "mapped_write_bytes",
        )
    ]


class GpuInfo(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char * 96),
        ("pci", c_char * 16),
        ("memory_bytes", c_uint64),
        ("driver", c_char * 32),
        ("numa_node", c_int),
        ("copy_lists", c_int),
    ]


class Tensor(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_void_p),
        ("dtype", c_int),
        ("nr_dims", c_uint),
        ("shape", c_void_p),
        ("bytes", c_uint64),
        ("file", c_uint),
        ("offset", c_uint64),
    ]


class ModelTable(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("nr", c_size_t),
        ("tensors", c_void_p),
        ("names", c_void_p),
        ("names_bytes", c_size_t),
        ("lengths", c_void_p),
        ("nr_lengths", c_size_t),
    ]


class ModelInfo(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("nr_tensors", c_size_t),
        ("nr_files", c_uint),
        ("bytes", c_uint64),
    ]


class ModelFile(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("path", c_char_p),
        ("data_offset", c_uint64),
        ("bytes", c_uint64),
        ("nr_metadata", c_size_t),
    ]


class Part(Structure):
    _fields_ = [
        ("tensor", c_size_t),
        ("flags", c_uint),
        ("dim", c_uint),
        ("start", c_uint64),
        ("stop", c_uint64),
        ("addr", c_void_p),
        ("bytes", c_uint64),
        ("at", c_uint64),
        ("sum", c_uint64),
    ]


PROGRESS = ctypes.CFUNCTYPE(c_int, c_void_p, c_uint64, c_uint64)


class LoadOptions(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("flags", c_uint),
        ("progress", PROGRESS),
        ("progress_arg", c_void_p),
    ]


class ModelStats(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("bytes", c_uint64),
        ("file_bytes", c_uint64),
        ("nr_requests", c_uint64),
        ("ns", c_uint64),
        ("path_bytes", c_uint64 * PATH_NR),
    ]


class Source(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("dtype", c_int),
        ("nr_dims", c_uint),
        ("shape", c_void_p),
        ("addr", c_void_p),
    ]


class SaveOptions(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("flags", c_uint),
        ("align", c_size_t),
        ("metadata", POINTER(c_char_p)),
        ("nr_metadata", c_size_t),
        ("progress", PROGRESS),
        ("progress_arg", c_void_p),
    ]


class Timespec(Structure):
    _fields_ = [("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long)]


# Name: what it returns, then what it takes.
FUNCTIONS = {
    "peerlane_open": (c_int, POINTER(c_void_p), c_void_p),
    "peerlane_close": (None, c_void_p),
    "peerlane_backend": (c_char_p, c_void_p),
    "peerlane_error": (c_int, c_void_p),
    "peerlane_strerror": (c_char_p, c_int),
    "peerlane_buffer_register": (c_int, c_void_p, c_void_p, c_size_t, c_uint),
    "peerlane_buffer_release": (c_int, c_void_p, c_void_p),
    "peerlane_file_open": (c_int, c_void_p, c_char_p, c_int, c_uint, POINTER(c_void_p)),
    "peerlane_file_from_fd": (c_int, c_void_p, c_int, POINTER(c_void_p)),
    "peerlane_file_close": (c_int, c_void_p),
    "peerlane_file_sync": (c_int, c_void_p),
    "peerlane_read": (c_ssize_t, c_void_p, c_void_p, c_size_t, c_int64),
    "peerlane_write": (c_ssize_t, c_void_p, c_void_p, c_size_t, c_int64, c_uint),
    "peerlane_batch_create": (c_int, c_void_p, c_uint, POINTER(c_void_p)),
    "peerlane_batch_destroy": (None, c_void_p),
    "peerlane_batch_submit": (c_int, c_void_p, POINTER(Io), c_uint),
    "peerlane_batch_wait": (c_int, c_void_p, c_uint, POINTER(Event), c_uint, POINTER(Timespec)),
    "peerlane_read_async": (
        c_int,
        c_void_p,
        c_void_p,
        POINTER(c_size_t),
        POINTER(c_int64),
        POINTER(c_ssize_t),
        c_void_p,
        c_uint,
    ),
    "peerlane_write_async": (
        c_int,
        c_void_p,
        c_void_p,
        POINTER(c_size_t),
        POINTER(c_int64),
        POINTER(c_ssize_t),
        c_void_p,
        c_uint,
    ),
    "peerlane_dlpack_delete": (None, c_void_p),
    "peerlane_dlpack_delete_versioned": (None, c_void_p),
    "peerlane_dlpack_destroy": (None, c_void_p),
    "peerlane_path_name": (c_char_p, c_int),
    "peerlane_explain": (c_int, c_void_p, c_int, c_void_p, c_size_t, c_int64, POINTER(Explanation)),
    "peerlane_stats_get": (c_int, c_void_p, POINTER(Stats)),
    "peerlane_gpu_count": (c_int, c_void_p),
    "peerlane_gpu_get_info": (c_int, c_void_p, c_int, POINTER(GpuInfo)),
    "peerlane_gpu_alloc": (c_int, c_void_p, c_int, c_size_t, POINTER(c_void_p)),
    "peerlane_gpu_free": (c_int, c_void_p, c_void_p),
    "peerlane_gpu_copy": (c_int, c_void_p, c_void_p, c_void_p, c_size_t),
    "peerlane_gpu_copy_limit": (c_int, c_void_p, c_int, c_int, POINTER(c_double)),
    "peerlane_gpu_stream_create": (c_int, c_void_p, c_int, POINTER(c_void_p)),
    "peerlane_gpu_stream_destroy": (None, c_void_p, c_void_p),
    "peerlane_gpu_stream_sync": (c_int, c_void_p, c_void_p),
    "peerlane_dtype_name": (c_char_p, c_int),
    "peerlane_dtype_bits": (c_uint, c_int),
    "peerlane_model_open": (c_int, c_void_p, c_char_p, POINTER(c_void_p)),
    "peerlane_model_close": (None, c_void_p),
    "peerlane_model_get_info": (c_int, c_void_p, POINTER(ModelInfo)),
    "peerlane_model_get_file": (c_int, c_void_p, c_uint, POINTER(ModelFile)),
    "peerlane_model_get_table": (c_int, c_void_p, POINTER(ModelTable)),
    "peerlane_model_metadata": (
        c_int,
        c_void_p,
        c_uint,
        c_size_t,
        POINTER(c_char_p),
        POINTER(c_char_p),
    ),
    "peerlane_model_layout": (c_int, c_void_p, c_void_p, c_size_t, POINTER(c_uint64)),
    "peerlane_model_memory_alloc": (
        c_int,
        c_void_p,
        c_void_p,
        c_size_t,
        c_int,
        c_uint,
        POINTER(c_void_p),
    ),
    "peerlane_model_memory_free": (None, c_void_p),
    "peerlane_model_load": (
        c_int,
        c_void_p,
        c_void_p,
        c_size_t,
        POINTER(LoadOptions),
        POINTER(ModelStats),
    ),
    "peerlane_model_save": (
        c_int,
        c_void_p,
        c_char_p,
        POINTER(Source),
        c_size_t,
        POINTER(SaveOptions),
        POINTER(ModelStats),
    ),
}
