"""PyTorch over loaded files: a drop-in for safetensors.torch.load_file, and parameters set in place."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.utils.dlpack

from umsh import dlpack
from umsh.errors import NeedError, UnsupportedError
from umsh.files.load import load_file as _load_file
from umsh.files.tensors import FileTensor

BACKENDS = ("mmap", "pread")  # safetensors' own; umsh has one way, which is direct where it can be


def load_file(
    filename: str | os.PathLike[str], device: str | int = "cpu", *, backend: str = "mmap"
) -> dict[str, torch.Tensor]:
    """Tensors of a safetensors file, as safetensors.torch.load_file gives them, over shared memory.

    device: "cpu", or "cuda:N" (or N) where umsh drives that GPU through CUDA. backend: taken so that a
    call needs no change; both names mean umsh's own reads. Each tensor keeps its region alive.
    Raises what umsh.load_file raises; UnsupportedError for a device that umsh does not share memory with.
    """
    if backend not in BACKENDS:
        known = f"Use one of {BACKENDS}."
        raise NeedError(f"backend={backend!r} is not known.", "Nothing was loaded.", known)
    wanted, which = _devices(device)
    weights = _load_file(filename, device=which, format="safetensors")
    return {name: as_torch(tensor, wanted.type) for name, tensor in weights.items()}


def as_torch(tensor: FileTensor, device_type: str = "cpu") -> torch.Tensor:
    """The torch.Tensor over the same bytes, on the CPU's or the GPU's side of the region."""
    if not tensor.kind.torch:
        raise UnsupportedError(f"PyTorch has no dtype for {tensor.kind.name}.", "No tensor was made.", "")
    dtype = getattr(torch, tensor.kind.torch)
    if not tensor.nbytes:
        return torch.empty(tensor.shape, dtype=dtype, device=device_type)
    if device_type == "cpu":
        flat = torch.from_numpy(tensor._of_cpu().reshape(-1).view(np.uint8))
    else:
        flat = torch.utils.dlpack.from_dlpack(_Bytes(tensor))
    return flat.view(dtype).reshape(tensor.shape)


def load_into(
    module: torch.nn.Module,
    path: str | os.PathLike[str],
    *,
    strict: bool = True,
    device: str | int = "cpu",
    **options: Any,
) -> None:
    """Make the file's tensors the module's parameters and buffers, without a copy; tied ones stay tied.

    strict: every parameter and persistent buffer is in the file and the file has nothing else. Shapes and
    dtypes must be the module's own. options: load_file's keyword arguments.
    Raises NeedError before anything in the module has changed; else what umsh.load_file raises.
    """
    wanted, which = _devices(device)
    state = module.state_dict(keep_vars=True)
    weights = _load_file(path, lazy=True, device=which)
    tied = {name: twin for name in state if name not in weights for twin in _twins(state, name, weights)}
    _check(state, weights, tied, strict)
    names = [name for name in weights if name in state]
    weights.close()
    weights = _load_file(path, names, device=which, **options)
    tensors = {name: as_torch(weights[name], wanted.type) for name in names}
    tensors |= {name: tensors[twin] for name, twin in tied.items()}
    module.load_state_dict(tensors, strict=False, assign=True)
    for name, twin in tied.items():
        owner, _, leaf = name.rpartition(".")
        setattr(module.get_submodule(owner), leaf, _get(module, twin))


def _devices(device: str | int) -> tuple[torch.device, int | str]:
    """PyTorch's device, and umsh's for it."""
    wanted = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    if wanted.type not in ("cpu", "cuda"):
        raise UnsupportedError(
            f"umsh shares no memory with device {device!r}.", "Nothing was loaded.", "Use 'cpu' or 'cuda'."
        )
    return wanted, 0 if wanted.type == "cpu" else f"cuda:{wanted.index or 0}"


class _Bytes:
    """A FileTensor's bytes on the device, as a flat uint8 array that DLPack consumers take."""

    def __init__(self, tensor: FileTensor) -> None:
        self._tensor = tensor

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._tensor.__dlpack_device__()

    def __dlpack__(self, *, max_version: tuple[int, int] | None = None, **_: Any) -> Any:
        array = self._tensor._of_device().reshape(-1).view(np.uint8)
        return dlpack.export(array, self.__dlpack_device__(), max_version)


def _twins(state: Mapping[str, Any], name: str, weights: Mapping[str, Any]) -> list[str]:
    """Names in the file of the very parameter that `name` also is."""
    return [other for other in weights if other in state and state[other] is state[name]][:1]


def _check(
    state: Mapping[str, Any], weights: Mapping[str, FileTensor], tied: Mapping[str, str], strict: bool
) -> None:
    missing = sorted(set(state) - set(weights) - set(tied))
    extra = sorted(set(weights) - set(state))
    if strict and (missing or extra):
        raise NeedError(
            f"The file lacks {missing[:5]} of the module and has {extra[:5]} beyond it.",
            "The module is unchanged.",
            "Load the module's own checkpoint, or pass strict=False.",
        )
    for name in set(state) & set(weights):
        kind, shape = _form(weights, name)
        own = str(state[name].dtype).removeprefix("torch.")
        if (own, tuple(state[name].shape)) != (kind, shape):
            raise NeedError(
                f"{name!r} is {own} {tuple(state[name].shape)} in the module and {kind} {shape} in the file.",
                "The module is unchanged.",
                "Make the module of the file's shape, and convert it first: module.to(dtype).",
            )


def _form(weights: Any, name: str) -> tuple[str, tuple[int, ...]]:
    entry = weights.entry(name)
    return entry.kind.torch, entry.shape


def _get(module: torch.nn.Module, name: str) -> Any:
    owner, _, leaf = name.rpartition(".")
    return getattr(module.get_submodule(owner), leaf)
