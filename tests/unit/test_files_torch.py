"""The drop-in for safetensors.torch.load_file, and load_into."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

import umsh
from umsh.errors import NeedError, UnsupportedError

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
safetensors_torch = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")

# A machine that was not probed says that its shipped choice is passed over.
pytestmark = pytest.mark.filterwarnings("ignore::umsh.errors.FallbackWarning")


def kinds() -> dict[str, Any]:
    names = ["float32", "float16", "bfloat16", "float64", "int8", "int64", "uint8", "bool", "complex64"]
    names += [n for n in ("float8_e4m3fn", "float8_e5m2", "uint16", "uint32") if hasattr(torch, n)]
    return {n: torch.arange(12, dtype=torch.float32).reshape(3, 4).to(getattr(torch, n)) for n in names}


def test_same_arguments_same_tensors(device: Any, tmp_path: Path) -> None:
    from umsh.files.torch import load_file

    theirs = inspect.signature(safetensors_torch.load_file).parameters
    ours = inspect.signature(load_file).parameters
    assert [*theirs] == [*ours][: len(theirs)]
    path = tmp_path / "m.safetensors"
    safetensors_torch.save_file({**kinds(), "empty": torch.empty(0, 2), "scalar": torch.tensor(1.5)}, path)
    right, loaded = safetensors_torch.load_file(path), load_file(path)
    assert right.keys() == loaded.keys()
    for name, tensor in right.items():
        assert loaded[name].dtype == tensor.dtype
        assert loaded[name].shape == tensor.shape
        assert loaded[name].device == tensor.device
        assert loaded[name].contiguous().reshape(-1).view(torch.uint8).tolist() == tensor.reshape(-1).view(
            torch.uint8
        ).tolist()  # fmt: skip


def test_from_dlpack_takes_bfloat16_without_a_copy(device: Any, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    right = torch.randn(5, 7).bfloat16()
    safetensors_torch.save_file({"w": right}, path)
    loaded = umsh.load_file(path)
    tensor = torch.from_dlpack(loaded["w"])
    assert tensor.data_ptr() == loaded["w"].ptr
    assert torch.equal(tensor, right)


def test_tensors_outlive_the_mapping_and_can_be_written(device: Any, tmp_path: Path) -> None:
    from umsh.files.torch import load_file

    path = tmp_path / "m.safetensors"
    safetensors_torch.save_file({"w": torch.ones(3)}, path)
    tensor = load_file(path)["w"]
    tensor += 1
    assert tensor.tolist() == [2, 2, 2]


def model() -> Any:
    embed, head = torch.nn.Embedding(5, 4), torch.nn.Linear(4, 5, bias=False)
    head.weight = embed.weight
    return torch.nn.Sequential(embed, torch.nn.BatchNorm1d(4), head)


def test_load_into_assigns_in_place_and_keeps_ties(device: Any, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    source, target = model(), model()
    safetensors_torch.save_model(source, path)
    umsh.load_into(target, path)
    for name, tensor in source.state_dict().items():
        assert torch.equal(target.state_dict()[name], tensor)
    assert target[2].weight is target[0].weight
    assert target[0].weight.requires_grad


@pytest.mark.parametrize("change", ["shape", "dtype", "missing", "extra"])
def test_load_into_refuses_and_changes_nothing(device: Any, tmp_path: Path, change: str) -> None:
    path = tmp_path / "m.safetensors"
    module = torch.nn.Linear(3, 2)
    state = {"weight": torch.ones(2, 3), "bias": torch.ones(2)}
    if change == "missing":
        del state["bias"]
    state |= {
        "shape": {"bias": torch.ones(3)},
        "dtype": {"bias": torch.ones(2).half()},
        "extra": {"more": torch.ones(1)},
        "missing": {},
    }[change]
    safetensors_torch.save_file(state, path)
    before = module.weight.detach().clone()
    with pytest.raises(NeedError):
        umsh.load_into(module, path)
    assert torch.equal(module.weight, before)
    if change in ("missing", "extra"):
        umsh.load_into(module, path, strict=False)
        assert torch.equal(module.weight.detach(), state["weight"])


def test_a_device_umsh_has_no_memory_for_is_refused(device: Any, tmp_path: Path) -> None:
    from umsh.files.torch import load_file

    path = tmp_path / "m.safetensors"
    safetensors_torch.save_file({"w": torch.ones(3)}, path)
    with pytest.raises(UnsupportedError):
        load_file(path, device="mps")
