# SPDX-License-Identifier: MIT
"""Safetensors files with the functions of the package safetensors, loaded straight to the GPU.

    from peerlane.safetensors import load_file, save_file, safe_open

Tensors are torch's when torch is there; else arrays of numpy, on the host; else, or with
framework="dlpack", peerlane.Tensor, which any framework takes by DLPack.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple, Union

from . import _index, _model
from ._context import Context, use
from ._device import context_for, parse
from ._dtypes import BITS
from ._errors import Error
from ._frameworks import Framework, NumpyFramework, TorchFramework, choose
from ._model import Entry, Model, Path, Progress
from ._shared import duplicates
from ._sources import overlapping, source

__all__ = [
    "SafeSlice",
    "load",
    "load_file",
    "load_model",
    "load_sharded",
    "safe_open",
    "save",
    "save_file",
    "save_model",
]


class safe_open:  # its name in safetensors
    """Opens a model and gives its tensors as asked.

    @filename: a safetensors file, an index file (*.json) beside its shards, or a folder with
    model.safetensors.index.json or model.safetensors in it, or with one such file of another name.
    @framework: "pt", "np" or "dlpack"; None: see the module. @device: "cpu", "cuda", "cuda:1", a
    number (1 is "cuda:1"), a torch.device, or "sim", the simulator. Without CUDA "cuda" is an error,
    unless PEERLANE_BACKEND or @context name the simulator.
    """

    def __init__(
        self,
        filename: Path,
        framework: Optional[str] = None,
        device: Any = "cpu",
        *,
        context: Optional[Context] = None,
    ) -> None:
        self.filename = filename
        self._device = device
        self._kind = choose(framework, device)
        self._framework: Optional[Framework] = None
        self._gpu: Optional[int] = None
        named = str(device).partition(":")[0]  # torch knows more kinds than parse()
        kind = named if self._kind == "pt" and not isinstance(device, int) else parse(device).kind
        self._context = context_for(kind, context, device)
        if framework is None and kind == "cuda" and self._context.backend != "cuda":
            self._kind = "dlpack"  # the user named the simulator, where no framework has tensors
        if self._kind == "pt":
            self._framework = TorchFramework(self._context, device)
        elif self._kind == "np":
            self._framework = NumpyFramework(self._context, device)
        else:
            self._gpu = parse(device).gpu
        self._model = Model(self._context, filename)

    def __repr__(self) -> str:
        state = "closed" if self._model.closed else self._count()
        return f"<peerlane.safe_open {self.filename!r} {self._kind} on {self._device}, {state}>"

    def _count(self) -> str:
        n = len(self._model.entries)
        return "1 tensor" if n == 1 else f"{n} tensors"

    # ---- what is in it

    def keys(self) -> List[str]:
        """Names of the tensors, sorted."""
        return sorted(self._entries())

    def offset_keys(self) -> List[str]:
        """Names of the tensors in the order of their data."""
        return list(self._entries())

    def metadata(self) -> Optional[Dict[str, str]]:
        """The texts that were saved with the tensors, or None."""
        return self._model.metadata()

    def _entries(self) -> Dict[str, Entry]:
        with self._model._handle:  # an exception if it is closed
            return self._model.entries

    def _entry(self, name: str) -> Entry:
        entries = self._entries()
        if name not in entries:
            raise KeyError(f'there is no tensor "{name}" in this model')
        return entries[name]

    # ---- its tensors

    def get_tensor(self, name: str) -> Any:
        """One tensor."""
        return self._load({name: self._entry(name)})[name]

    def get_tensors(
        self,
        names: Optional[Iterable[str]] = None,
        *,
        per_tensor: bool = False,
        checksum: bool = False,
        progress: Optional[Progress] = None,
    ) -> Dict[str, Any]:
        """All tensors, or those named, at once; see load_file() for the options."""
        entries = self._entries()
        if isinstance(names, (str, bytes)):
            raise TypeError("names must be a list of names, not one name")
        if names is not None:
            found = {name: self._entry(name) for name in names}
            # Neighbours in the file are read together.
            entries = dict(sorted(found.items(), key=lambda item: item[1].number))
        return self._load(entries, per_tensor=per_tensor, checksum=checksum, progress=progress)

    def get_slice(self, name: str) -> "SafeSlice":
        """A tensor to take slices of: get_slice(name)[:, 16:32] reads no more than it needs."""
        return SafeSlice(self, name, self._entry(name))

    def _load(self, entries: Dict[str, Entry], **options: Any) -> Dict[str, Any]:
        return self._model.load(entries, self._framework, gpu=self._gpu, **options)

    # ---- the end

    def close(self) -> None:
        """Close the files. Tensors stay."""
        self._model.close()

    def __enter__(self) -> "safe_open":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SafeSlice:
    """A tensor of a model of which slices can be read, by safe_open.get_slice()."""

    def __init__(self, model: safe_open, name: str, entry: Entry) -> None:
        self._open = model
        self._name = name
        self._entry = entry

    def __repr__(self) -> str:
        return f"<peerlane.SafeSlice {self._name!r} {self._entry.dtype} {self.get_shape()}>"

    def get_shape(self) -> List[int]:
        """Lengths of its dimensions."""
        return list(self._entry.shape)

    def get_dtype(self) -> str:
        """Type of its elements, as in the file: "F32", "BF16", ..."""
        return self._entry.dtype

    def __getitem__(self, key: Any) -> Any:
        shape = self._entry.shape
        picks = _index.parse(key, shape)
        cut, keys = _index.cut(picks, shape)
        left = () if all(k == slice(None) for k in keys) else tuple(keys)
        framework = self._open._framework
        narrow = BITS[self._entry.dtype] < 8 and left and left[-1] != slice(None)
        if left and (framework is None or narrow):
            raise ValueError(
                'with framework="dlpack", or elements of less than a byte, a slice is along one '
                "dimension, without steps"
            )
        if left and framework is not None:
            framework.check(left)
        tensor = self._open._load({self._name: self._entry}, cut=cut)[self._name]
        return framework.index(tensor, left) if left and framework is not None else tensor


def load_file(
    filename: Union[Path, Iterable[Path]],
    device: Any = "cpu",
    *,
    framework: Optional[str] = None,
    names: Optional[Iterable[str]] = None,
    per_tensor: bool = False,
    checksum: bool = False,
    progress: Optional[Progress] = None,
    context: Optional[Context] = None,
) -> Dict[str, Any]:
    """All tensors of a model, or those in @names, on @device; see safe_open for the arguments.

    @filename may also be a list of files, whose tensors must have different names. The tensors of
    a file are parts of one allocation, which is freed with the last of them; @per_tensor gives
    each its own, which is slower. @checksum: read everything back and compare it with the
    checksums that save_file(checksum=True) left. @progress: called with the bytes that are there
    and those there will be; what it raises ends the load.
    """
    with contextlib.ExitStack() as stack:
        opened = [
            stack.enter_context(safe_open(path, framework, device, context=context))
            for path in _paths(filename)
        ]
        parts = _distribute(opened, names)
        total = sum(f._entry(name).nbytes for f, part in parts for name in part)
        done, tensors = 0, {}
        for f, part in parts:
            told = _offset(progress, done, total) if progress and len(parts) > 1 else progress
            tensors.update(
                f.get_tensors(part, per_tensor=per_tensor, checksum=checksum, progress=told)
            )
            done += sum(f._entry(name).nbytes for name in part)
        return tensors


def _paths(filename: Any) -> List[Any]:
    if isinstance(filename, (str, bytes, os.PathLike)) or not isinstance(filename, Iterable):
        return [filename]
    found = list(filename)
    if not found:
        raise ValueError("the list of files is empty")
    return found


def _offset(progress: Progress, done: int, total: int) -> Progress:
    return lambda more, _: progress(done + more, total)


def _distribute(
    opened: List[safe_open], names: Optional[Iterable[str]]
) -> List[Tuple[safe_open, List[str]]]:
    """Which tensors are read from which file."""
    where: Dict[str, safe_open] = {}
    for f in opened:
        for name in f.offset_keys():
            if name in where:
                raise ValueError(
                    f'tensor "{name}" is in two files: {where[name].filename} and {f.filename}'
                )
            where[name] = f
    if isinstance(names, (str, bytes)):
        raise TypeError("names must be a list of names, not one name")
    wanted = list(where) if names is None else list(dict.fromkeys(names))
    for name in wanted:
        if name not in where:
            raise KeyError(f'there is no tensor "{name}" in this model')
    return [(f, [name for name in wanted if where[name] is f]) for f in opened]


def load_sharded(filename: Path, device: Any = "cpu", **options: Any) -> Dict[str, Any]:
    """All tensors of a model of several files, by its index file or its folder; as load_file()."""
    name = os.fspath(filename)
    if not name.endswith(".json") and not os.path.isdir(name):
        raise ValueError(f"{name!r} is neither an index file (*.json) nor a folder")
    return load_file(filename, device, **options)


def save_file(
    tensors: Dict[str, Any],
    filename: Path,
    metadata: Optional[Dict[str, str]] = None,
    *,
    checksum: bool = False,
    sync: bool = True,
    align: int = 0,
    progress: Optional[Progress] = None,
    context: Optional[Context] = None,
) -> None:
    """Write tensors, of the GPU or the host, to a safetensors file, atomically.

    Until all of the new file is on stable storage the old one stays as it was, and after an
    error it still is. @checksum: add checksums of the tensors to the metadata. @sync=False: do
    not wait for the storage. @align: data begins at a multiple of this (default 8).
    """
    sources = {}
    if not isinstance(tensors, Mapping):
        raise TypeError(f"tensors must be a dict of names and tensors, not {type(tensors).__name__}")
    for name, tensor in tensors.items():
        if not isinstance(name, str):
            raise TypeError(f"names of tensors are text: {name!r}")
        sources[name] = source(name, tensor)
    shared = overlapping(sources)
    if shared:
        raise RuntimeError(
            f'tensors "{shared[0]}" and "{shared[1]}" share memory; save one of them, or a copy; '
            "save_model() does that for a torch module"
        )
    _model.save(
        use(context),
        filename,
        sources,
        metadata,
        checksum=checksum,
        sync=sync,
        align=align,
        progress=progress,
    )


# ---- bytes


def load(
    data: Any, *, framework: Optional[str] = None, device: Any = "cpu", **options: Any
) -> Dict[str, Any]:
    """The tensors of a safetensors file that is in memory: bytes, or any contiguous buffer.

    The options are those of load_file().
    """
    if isinstance(data, (str, os.PathLike)):
        raise TypeError("load() takes the content of a file; for its name there is load_file()")
    with open(os.memfd_create("peerlane-load"), "wb") as f:
        f.write(data)
        f.flush()
        try:
            return load_file(f"/proc/self/fd/{f.fileno()}", device, framework=framework, **options)
        except Error as problem:
            # The name of that file says nothing to the caller.
            name = rf"(/proc/self/fd/|\b){f.fileno()}\b"
            said = re.sub(name, "the data", problem.explanation, count=1)
            raise type(problem)(problem.errno or 0, said, problem.cuda) from None


def save(
    tensors: Dict[str, Any], metadata: Optional[Dict[str, str]] = None, **options: Any
) -> bytes:
    """What save_file() would write, as bytes. It goes by way of a temporary file."""
    with tempfile.TemporaryDirectory(prefix="peerlane-") as folder:
        path = os.path.join(folder, "model.safetensors")
        save_file(tensors, path, metadata, **{"sync": False, **options})
        with open(path, "rb") as f:
            return f.read()


# ---- modules of torch


def save_model(
    model: Any,
    filename: Path,
    metadata: Optional[Dict[str, str]] = None,
    force_contiguous: bool = True,
    **options: Any,
) -> None:
    """Save the state of a torch.nn.Module. Of tensors that share memory one is saved.

    The metadata gets an entry for each of the others, which names the one that was saved.
    @force_contiguous: copy tensors that are not contiguous. The options are those of save_file().
    """
    state = _state(model)
    words = dict(metadata or {})
    for name, kept in duplicates(state).items():
        words.setdefault(name, kept)
        del state[name]
    if force_contiguous:
        state = {name: _contiguous(tensor) for name, tensor in state.items()}
    save_file(state, filename, words or None, **options)


def _state(model: Any) -> Dict[str, Any]:
    if not hasattr(model, "state_dict"):
        raise TypeError(f"model must be a torch.nn.Module, not {type(model).__name__}")
    return dict(model.state_dict())


def _contiguous(tensor: Any) -> Any:
    return tensor.contiguous() if hasattr(tensor, "contiguous") else tensor


def load_model(
    model: Any,
    filename: Union[Path, Iterable[Path]],
    strict: bool = True,
    device: Any = "cpu",
    **options: Any,
) -> Tuple[List[str], List[str]]:
    """Load the state of a torch.nn.Module that save_model() or save_file() saved.

    Returns the names of the module that the file lacks, and those of the file that the module
    lacks; with @strict they are a RuntimeError. The tensors are read to @device and copied from
    there to where the module has its own. The options are those of load_file().
    """
    own = _state(model)
    state = load_file(filename, device, framework="pt", **options)
    dropped = duplicates(own, state)
    missing, unexpected = map(set, model.load_state_dict(state, strict=False))
    # One tensor stands for all that share its memory; more of them in the file may contradict it.
    unexpected |= dropped.keys() - missing
    missing -= dropped.keys()
    if strict and (missing or unexpected):
        words = [f"{type(model).__name__}: the file and the module do not agree"]
        words += [f'not in the file: "{name}"' for name in sorted(missing)]
        words += [f'not expected in the file: "{name}"' for name in sorted(unexpected)]
        raise RuntimeError("\n  ".join(words))
    return sorted(missing), sorted(unexpected)
