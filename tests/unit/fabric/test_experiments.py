"""The experiments and the study in small: they run, agree with closed forms, and write what they say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from umsh.fabric.experiments import latency, links, overhead
from umsh.fabric.experiments.lab import VirtualLab
from umsh.fabric.experiments.results import save
from umsh.fabric.experiments.schemes import FABRIC, FAIR, RAW

ROOT = Path(__file__).resolve().parents[3]
GB = 10**9


def test_raw_streams_starve_the_victim_and_the_fabric_does_not() -> None:
    rig = latency.Rig(VirtualLab(), seconds=0.15, bulk_nbytes=256 << 20)
    starved = rig.run(RAW["stream priority"], 4)
    served = rig.run(FABRIC, 2)
    assert starved["p50_ms"] > 50
    assert served["p50_ms"] < 0.5
    assert served["bulk_gbps"] > 0.95 * starved["bulk_gbps"]


def test_directions_and_devices_disturb_as_the_links_do() -> None:
    rows = {row["name"]: row["of_alone"] for row in links.matrix(VirtualLab, nbytes=64 << 20)}
    assert rows["h2d:0 beside kernel, same direction"] == pytest.approx(0.5, abs=0.02)
    assert rows["d2h:0 beside copy engine, other direction"] == pytest.approx(51 / 55.3, abs=0.02)
    assert rows["h2d:0 beside copy engine, other device"] == pytest.approx(1, abs=0.01)


def test_counters_are_believed_once_own_bytes_have_told_their_unit() -> None:
    rows = overhead.counters(VirtualLab(), rounds=4)
    assert all(row["believed"] for row in rows)
    alone = [row for row in rows if not row["true_foreign_gbps"]]
    beside = [row for row in rows if row["true_foreign_gbps"]]
    assert all(row["foreign_gbps"] == 0 for row in alone)
    assert all(0.7 < row["foreign_gbps"] / row["true_foreign_gbps"] <= 1.1 for row in beside)


def test_a_result_file_says_what_it_is(tmp_path: Path) -> None:
    path = save(tmp_path, "e0", VirtualLab().backend, "nothing moves", [{"a": 1.0}])
    body = json.loads(path.read_text())
    assert path.name == "e0.modelled.json"
    assert body["label"] == "modelled"
    assert body["prediction"] == "nothing moves"
    assert "MachineModel" in body["machine"]


def study() -> tuple[object, ...]:
    sys.path.insert(0, str(ROOT))
    try:
        from casestudies.kv_fabric import study, trace
    finally:
        sys.path.remove(str(ROOT))
    return study, trace


def test_a_pair_reaches_nine_tenths_of_the_bound_and_keeps_the_offload() -> None:
    programs, _ = study()
    buffers = programs.Buffers(VirtualLab(), GB)
    fair = programs.pair(buffers, FAIR, GB, GB // 2)
    ours = programs.pair(buffers, FABRIC, GB, GB // 2)
    gain = 1 - ours["kv_ms"] / fair["kv_ms"]
    assert gain >= 0.9 * programs.bound(GB, GB // 2)
    assert ours["offload_gbps"] >= 0.98 * fair["offload_gbps"]
    assert ours["direction_changes"] <= 1


def test_generated_requests_are_in_order_bounded_and_repeatable() -> None:
    _, trace = study()
    requests = trace.generate(60, sessions=200)
    assert requests == trace.generate(60, sessions=200)
    assert requests == sorted(requests)
    assert all(0 <= r.arrival_s < 60 and 0 < r.new_tokens <= trace.TOKENS_MAX for r in requests)
    later = sorted(r.new_tokens for r in requests if r.reused_tokens)
    assert 500 < later[len(later) // 2] < 1200, "the median of the sessions it was fitted to is 771"


def test_a_recorded_trace_is_read_and_a_foreign_file_refused(tmp_path: Path) -> None:
    _, trace = study()
    good, bad = tmp_path / "good.csv", tmp_path / "bad.csv"
    good.write_text("t_ms,input_tokens,output_tokens,reused_tokens,new_tokens\n0,10,1,4,6\n90000,10,1,0,10\n")
    bad.write_text("when,what\n1,2\n")
    assert trace.read(good) == [trace.Request(0.0, 6, 4)]
    with pytest.raises(ValueError, match="needs t_s or t_ms"):
        trace.read(bad)


def test_the_command_runs_and_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "umsh.fabric.experiments", "--out", str(tmp_path)]
    good = subprocess.run([*command, "e3"], capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert good.returncode == 0, good.stderr
    assert (tmp_path / "e3.modelled.json").exists()
    bad = subprocess.run([*command, "e99"], capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert bad.returncode == 2
