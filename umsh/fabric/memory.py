"""Where the memory behind an argument lies: arrays by interface, regions, buffers and raw addresses."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from umsh.errors import NeedError
from umsh.fabric.backend import Backend, Pointer
from umsh.fabric.pieces import Int64s

ALLOCATIONS_MAX = 64
"""Most allocations that the pieces of one call may lie in, each side."""


class Extent(NamedTuple):
    """First address and bytes; `nbytes` is None for a raw address."""

    address: int
    nbytes: int | None


def extent(thing: Any, write: bool = False) -> Extent:
    """Address and size of a contiguous array, umsh region, writable buffer or raw address (int).

    Raises `NeedError` for strided arrays, read-only destinations and types without an address.
    """
    if isinstance(thing, int):
        return Extent(thing, None)
    for name in ("__cuda_array_interface__", "__array_interface__"):
        interface = getattr(thing, name, None)
        if interface is not None:
            return _from_interface(thing, interface, write)
    if hasattr(thing, "data_ptr") and hasattr(
        thing, "is_contiguous"
    ):  # a CPU tensor; CUDA ones speak interface
        if not thing.is_contiguous():
            raise _strided(thing)
        return Extent(thing.data_ptr(), thing.numel() * thing.element_size())
    if hasattr(thing, "ptr") and hasattr(thing, "nbytes"):
        return Extent(int(thing.ptr), int(thing.nbytes))
    if isinstance(thing, bytearray | memoryview):
        view = memoryview(thing)
        if view.readonly or not view.c_contiguous:
            raise _strided(thing)
        return Extent(ctypes.addressof(ctypes.c_char.from_buffer(view)), view.nbytes)
    raise NeedError(
        f"{type(thing).__name__} has no address the fabric can ask for.",
        "Nothing was copied.",
        "Give an array, a tensor, a region, a writable buffer, or an integer address with nbytes=.",
    )


def _from_interface(thing: Any, interface: dict[str, Any], write: bool) -> Extent:
    address, readonly = interface["data"]
    nbytes = int(interface["typestr"][2:])
    for length in interface["shape"]:
        nbytes *= int(length)
    if interface.get("strides") is not None and not _contiguous(interface, nbytes):
        raise _strided(thing)
    if write and readonly:
        raise NeedError(
            "The destination is read-only.", "Nothing was copied.", "Give a writable array as destination."
        )
    return Extent(int(address), nbytes)


def _contiguous(interface: dict[str, Any], nbytes: int) -> bool:
    step = int(interface["typestr"][2:])
    for length, stride in zip(reversed(interface["shape"]), reversed(interface["strides"]), strict=True):
        if length > 1 and stride != step:
            return nbytes == 0
        step *= length
    return True


def _strided(thing: Any) -> NeedError:
    return NeedError(
        f"This {type(thing).__name__} is not one contiguous, writable block.",
        "Nothing was copied: a link moves blocks, not strides.",
        "Make it contiguous, or give its rows to copy_many.",
    )


def survey(backend: Backend, addresses: Int64s, sizes: Int64s) -> Pointer:
    """Whose the pieces are: one answer for all, from one question an allocation.

    Raises `NeedError` when pieces lie on different devices or kinds, reach past their allocation, or are
    spread over more than `ALLOCATIONS_MAX` allocations.
    """
    if len(sizes) == 1:
        found = backend.pointer(int(addresses[0]), int(sizes[0]))
        end = int(addresses[0] + sizes[0])
        if end <= found.start + found.nbytes:
            return found
    left = sizes > 0
    first: Pointer | None = None
    for _ in range(ALLOCATIONS_MAX):
        if not left.any():
            assert first is not None
            return first
        at = int(left.argmax())
        found = backend.pointer(int(addresses[at]), int(sizes[at]))
        inside = left & (addresses >= found.start) & (addresses + sizes <= found.start + found.nbytes)
        if not inside[at] and not _goes_on(backend, found, int(addresses[at]), int(sizes[at])):
            raise NeedError(
                f"Piece {at} ({int(sizes[at])} bytes at {int(addresses[at]):#x}) reaches past its allocation "
                f"of {found.nbytes} bytes.",
                "Nothing was copied.",
                "Check the sizes; each piece must lie in one allocation.",
            )
        if first is not None and (found.kind, found.device) != (first.kind, first.device):
            raise NeedError(
                f"Pieces of one call lie in {first.kind} and {found.kind} memory, or on two devices.",
                "Nothing was copied: one call is one link.",
                "Make one call a link.",
            )
        first = first or found
        left &= ~inside
        left[at] = False
    raise NeedError(
        f"The pieces are spread over more than {ALLOCATIONS_MAX} allocations.",
        "Nothing was copied: asking whose each piece is would block the caller.",
        "Split the call, or place the blocks in one pool.",
    )


def _goes_on(backend: Backend, found: Pointer, address: int, nbytes: int) -> bool:
    """True if the piece ends in memory of the same kind: adjoining mappings of one growing segment."""
    if address < found.start or found.kind == "pageable":
        return False
    end = backend.pointer(address + nbytes - 1, 1)
    return (end.kind, end.device) == (found.kind, found.device)
