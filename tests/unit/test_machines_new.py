"""`umsh-probe new-platform`: the file it writes recognises its device, and nothing is overwritten."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from umsh.backends import facts_of, open_device
from umsh.errors import NeedError
from umsh.probe.asked import Asked, ask
from umsh.probe.new_platform import unknown, write


@pytest.fixture(scope="module")
def asked() -> Asked:
    return ask(open_device("model:spark"), quick=True)


def test_the_file_is_a_platform_that_knows_its_device(asked: Asked, tmp_path: Path) -> None:
    path = write("mini", asked, tmp_path)
    spec = importlib.util.spec_from_file_location("mini", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert "spark" in module.PLATFORM.matches(facts_of(open_device("model:spark")))
    assert not module.PLATFORM.matches(facts_of(open_device("model:orin")))
    assert "system.4k:WA/RA" in module.PLATFORM.safe_mechanisms
    assert not any(name.startswith("system-uc") for name in module.PLATFORM.safe_mechanisms)
    assert len(path.read_text().splitlines()) < 100


def test_what_is_unknown_names_a_control_to_look_for() -> None:
    found = dict(unknown(ask(open_device("model:raptor"), quick=True)))
    assert "the vendor's guarantee" in found
    assert found["gpu WBp"]


def test_an_existing_file_is_left_alone(asked: Asked, tmp_path: Path) -> None:
    (tmp_path / "mini.py").write_text("kept")
    with pytest.raises(NeedError, match="exists"):
        write("mini", asked, tmp_path)
    assert (tmp_path / "mini.py").read_text() == "kept"


@pytest.mark.parametrize("name", ["", "Mini", "../mini", "1mini", "mini.py"])
def test_a_name_that_is_no_module_is_refused(asked: Asked, tmp_path: Path, name: str) -> None:
    with pytest.raises(NeedError):
        write(name, asked, tmp_path)
