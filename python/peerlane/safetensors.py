# SPDX-License-Identifier: MIT
"""Safetensors files with the functions of the package safetensors, loaded straight to the GPU.

    from peerlane.safetensors import load_file, save_file, safe_open

Tensors are torch's when torch is there; else arrays of numpy, on the host; else, or with
framework="dlpack", peerlane.Tensor, which any framework takes by DLPack.
"""

from __future__ import annotations

import os
from typing import Any, Dict, Iterable, List, Optional

from . import _index, _model
from ._context import Context, context as default_context
from ._device import context_for, parse
from ._dtypes import BITS
from ._frameworks import Framework, NumpyFramework, TorchFramework, choose
from ._model import Entry, Model, Path, Progress
from ._sources import overlapping, source

__all__ = ["load_file", "load_sharded", "safe_open", "save_file", "SafeSlice"]


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
        if self._kind == "pt":
            self._framework = TorchFramework(self._context, device)
        elif self._kind == "np":
            self._framework = NumpyFramework(self._context, device)
        else:
            self._gpu = parse(device).gpu
        self._model = Model(self._context, filename)

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
    filename: Path,
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

    The tensors of a file are parts of one allocation, which is freed with the last of them;
    @per_tensor gives each its own, which is slower. @checksum: read everything back and compare
    it with the checksums that save_file(checksum=True) left. @progress: called with the bytes
    that are there and those there will be; what it raises ends the load.
    """
    with safe_open(filename, framework, device, context=context) as f:
        return f.get_tensors(names, per_tensor=per_tensor, checksum=checksum, progress=progress)


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
    for name, tensor in tensors.items():
        if not isinstance(name, str):
            raise TypeError(f"names of tensors are text: {name!r}")
        sources[name] = source(name, tensor)
    shared = overlapping(sources)
    if shared:
        raise RuntimeError(
            f'tensors "{shared[0]}" and "{shared[1]}" share memory; save one of them, or a copy'
        )
    _model.save(
        context or default_context(),
        filename,
        sources,
        metadata,
        checksum=checksum,
        sync=sync,
        align=align,
        progress=progress,
    )
