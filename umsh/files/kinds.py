"""Element kinds of weight files, and what each is called in NumPy, DLPack and PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# dlpack.h, DLDataTypeCode.
DL_INT, DL_UINT, DL_FLOAT, DL_BFLOAT, DL_COMPLEX, DL_BOOL = 0, 1, 2, 4, 5, 6
DL_F8_E4M3FN, DL_F8_E4M3FNUZ, DL_F8_E5M2, DL_F8_E5M2FNUZ, DL_F8_E8M0 = 10, 11, 12, 13, 14


@dataclass(frozen=True, slots=True)
class Kind:
    """One element kind.

    name: as the file says. bits: of one element. storage: the NumPy dtype its bytes are held in.
    dlpack: (DLDataTypeCode, bits), None when DLPack has no word for it. torch: PyTorch's name, "" when
    it has none. numpy: whether `storage` is the kind itself and not only its bits.
    """

    name: str
    bits: int
    storage: np.dtype[np.generic]
    dlpack: tuple[int, int] | None
    torch: str
    numpy: bool = True

    @property
    def align(self) -> int:
        """Bytes an array of this kind must be aligned to."""
        return int(self.storage.itemsize)


def _plain(name: str, dtype: str, code: int, torch: str) -> Kind:
    storage = np.dtype(dtype)
    return Kind(name, 8 * storage.itemsize, storage, (code, 8 * storage.itemsize), torch)


def _bits(name: str, dtype: str, code: int, torch: str) -> Kind:
    storage = np.dtype(dtype)
    return Kind(name, 8 * storage.itemsize, storage, (code, 8 * storage.itemsize), torch, numpy=False)


# safetensors, README "Format" and tensor.rs `Dtype`.
SAFETENSORS = {
    kind.name: kind
    for kind in (
        _plain("BOOL", "?", DL_BOOL, "bool"),
        _plain("U8", "u1", DL_UINT, "uint8"),
        _plain("I8", "i1", DL_INT, "int8"),
        _plain("I16", "<i2", DL_INT, "int16"),
        _plain("U16", "<u2", DL_UINT, "uint16"),
        _plain("I32", "<i4", DL_INT, "int32"),
        _plain("U32", "<u4", DL_UINT, "uint32"),
        _plain("I64", "<i8", DL_INT, "int64"),
        _plain("U64", "<u8", DL_UINT, "uint64"),
        _plain("F16", "<f2", DL_FLOAT, "float16"),
        _plain("F32", "<f4", DL_FLOAT, "float32"),
        _plain("F64", "<f8", DL_FLOAT, "float64"),
        _plain("C64", "<c8", DL_COMPLEX, "complex64"),
        _bits("BF16", "<u2", DL_BFLOAT, "bfloat16"),
        _bits("F8_E4M3", "u1", DL_F8_E4M3FN, "float8_e4m3fn"),
        _bits("F8_E5M2", "u1", DL_F8_E5M2, "float8_e5m2"),
        _bits("F8_E8M0", "u1", DL_F8_E8M0, "float8_e8m0fnu"),
        _bits("F8_E4M3FNUZ", "u1", DL_F8_E4M3FNUZ, "float8_e4m3fnuz"),
        _bits("F8_E5M2FNUZ", "u1", DL_F8_E5M2FNUZ, "float8_e5m2fnuz"),
    )
}

BYTES = SAFETENSORS["U8"]
# GGML types that are plain elements; every other one is blocks, held as bytes.
GGUF = {
    "F32": SAFETENSORS["F32"],
    "F16": SAFETENSORS["F16"],
    "F64": SAFETENSORS["F64"],
    "BF16": SAFETENSORS["BF16"],
    "I8": SAFETENSORS["I8"],
    "I16": SAFETENSORS["I16"],
    "I32": SAFETENSORS["I32"],
    "I64": SAFETENSORS["I64"],
}


def blocks(name: str) -> Kind:
    """The kind of a quantised GGML type: its blocks' bytes under its own name."""
    return Kind(name, 8, BYTES.storage, BYTES.dlpack, BYTES.torch)
