"""Bad input to LAN scheduling ends in a named error in bounded time, and changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from umsh.errors import UmshError
from umsh.lan import protocol
from umsh.lan.cli import app
from umsh.lan.cluster import Cell, LanState, Link, Request, Running, Server, ServerState, TaskType
from umsh.lan.correct import Correction, saw_inference, saw_utilisation
from umsh.lan.discovery import from_record
from umsh.lan.errors import LanInputError, RegistryError, StaleHeartbeatError, UnknownServerError
from umsh.lan.explain import read_state
from umsh.lan.fgd import Demand
from umsh.lan.heartbeat import Heartbeat, Progress, decode, encode
from umsh.lan.policies import make, names
from umsh.lan.predict import fit_gamma, remaining_infer_s, remaining_load_s
from umsh.lan.profiles import load_profiles
from umsh.lan.scheduler import Scheduler
from umsh.lan.screen import QUEUE_MAX
from umsh.lan.serve import Service
from umsh.lan.tracker import Tracker

NAN = math.nan
BAD = [NAN, math.inf, -math.inf, -1.0]
TYPES = load_profiles().types
LINKS = {"router": Link("router", 1000.0)}
SERVER = Server("a", "4090", 24576, ("router",))
CORRECTION = Correction()


def beat(**more: Any) -> Heartbeat:
    fields: dict[str, Any] = {
        "server": "a",
        "boot": 1,
        "seq": 1,
        "sent_s": 1.0,
        "gpu": "4090",
        "memory_mb": 24576.0,
        "links": ("router",),
        "utilisation": 0.5,
    }
    return Heartbeat(**(fields | more))


def tracker() -> Tracker:
    found = Tracker(TYPES, LINKS)
    found.join(SERVER, 0.0)
    return found


@pytest.mark.parametrize("value", [*BAD, 1.01, "0.5", None, True])
def test_occupancy_outside_zero_to_one_is_refused(value: Any) -> None:
    with pytest.raises(LanInputError, match="occupancy"):
        Cell(value, 1.0)


@pytest.mark.parametrize("value", BAD)
def test_nan_infinite_and_negative_figures_are_refused_everywhere(value: float) -> None:
    cells = {"4090": Cell(0.5, 1.0)}
    request = Request(1, 1, "fno-pytorch", 0.0)
    makers = [
        lambda: Cell(0.5, value),
        lambda: TaskType("t", value, 1, 1, 1, cells),
        lambda: TaskType("t", 1, 1, value, 1, cells),
        lambda: TaskType("t", 1, 1, 1, value, cells),
        lambda: Server("s", "4090", value, ()),
        lambda: Link("l", value),
        lambda: Request(1, 1, "t", value),
        lambda: Running(request, "load", value, 1.0),
        lambda: Running(request, "infer", 0.0, value),
        lambda: ServerState(SERVER, utilisation=value),
        lambda: Demand(value, 1, 1, 1),
        lambda: remaining_load_s(value, 1, 1),
        lambda: remaining_infer_s(1, value, 1),
        lambda: fit_gamma([(1.5, value)]),
        lambda: saw_utilisation(CORRECTION, value, [(("t", "g"), 0.5)]),
        lambda: saw_inference(CORRECTION, ("t", "g"), 1.0, value),
        lambda: make("umsh").policy(LanState(TYPES, LINKS, ()), [], value, CORRECTION),
        lambda: tracker().gone(value),
        lambda: tracker().beat(beat(memory_mb=value), 1.0),
        lambda: tracker().beat(beat(utilisation=value), 1.0),
        lambda: tracker().beat(beat(sent_s=value), 1.0),
        lambda: tracker().beat(beat(cached={"fno-pytorch": value}), 1.0),
        lambda: tracker().beat(
            beat(tasks=(Progress(1, 1, "fno-pytorch", "load", 0.0, value, 1.0, 0, 1, False),)), 1.0
        ),
    ]
    for make_bad in makers:
        with pytest.raises(LanInputError):
            make_bad()


def test_a_link_without_capacity_and_a_type_without_profile_are_refused() -> None:
    with pytest.raises(LanInputError, match="capacity 0"):
        Link("l", 0.0)
    with pytest.raises(LanInputError, match="no profile"):
        TaskType("t", 1, 1, 1, 1, {})


def test_an_unknown_server_is_named() -> None:
    with pytest.raises(UnknownServerError, match="'zz'"):
        tracker().beat(beat(server="zz"), 1.0)
    with pytest.raises(UnknownServerError):
        tracker().leave("zz", 1.0)


def test_duplicate_and_old_heartbeats_change_nothing() -> None:
    known = tracker()
    known.beat(beat(seq=5, sent_s=5.0, utilisation=0.9), 5.0)
    for stale in (
        beat(seq=5, sent_s=5.0),
        beat(seq=4, sent_s=6.0),
        beat(seq=6, sent_s=4.0),
        beat(boot=0, seq=9),
    ):
        with pytest.raises(StaleHeartbeatError):
            known.beat(stale, 6.0)
    assert known.state().servers[0].utilisation == 0.9
    assert known.heard_s("a") == 5.0


def test_a_clock_that_goes_back_is_refused() -> None:
    known = tracker()
    known.beat(beat(), 10.0)
    with pytest.raises(LanInputError, match="went back"):
        known.beat(beat(seq=2, sent_s=2.0), 9.0)
    with pytest.raises(LanInputError, match="clock went back"):
        make("umsh").policy(known.state(), [Request(1, 1, "fno-pytorch", 50.0)], 49.0, CORRECTION)


def test_servers_and_links_have_one_name_and_are_known() -> None:
    with pytest.raises(RegistryError):
        tracker().join(SERVER, 1.0)
    with pytest.raises(LanInputError, match="unknown link"):
        tracker().join(Server("b", "4090", 1.0, ("nowhere",)), 1.0)
    with pytest.raises(LanInputError, match="one name"):
        LanState(TYPES, LINKS, (ServerState(SERVER), ServerState(SERVER)))
    with pytest.raises(LanInputError, match="unknown link"):
        LanState(TYPES, {}, (ServerState(SERVER),))
    with pytest.raises(LanInputError, match="unknown task type"):
        LanState(
            TYPES, LINKS, (ServerState(SERVER, (Running(Request(1, 1, "zz", 0.0), "infer", 0.0, 1.0),)),)
        )


@pytest.mark.parametrize("name", names())
def test_every_policy_refuses_the_impossible_and_waits_without_servers(name: str) -> None:
    policy = make(name).policy
    huge = TaskType("huge", 1.0, 1.0, 1e6, 1.0, {"4090": Cell(0.5, 1.0)})
    types = {**TYPES, "huge": huge}
    queue = [Request(1, 1, "huge", 0.0), Request(2, 2, "unheard", 0.0), Request(3, 3, "fno-pytorch", 0.0)]
    decision = policy(LanState(types, LINKS, (ServerState(SERVER),)), queue, 1.0, CORRECTION)
    assert [item.request.id for item in decision.placed] == [3]
    reasons = {request.id: why for request, why in decision.refused}
    assert "1000001 MiB" in reasons[1]
    assert "never profiled" in reasons[2]
    empty = policy(LanState(types, LINKS, ()), queue[2:], 1.0, CORRECTION)
    assert [why for _, why in empty.waiting] == ["no server is present"]
    late = policy(LanState(types, LINKS, ()), queue[2:], 4000.0, CORRECTION)
    assert "waited longer" in late.refused[0][1]


def test_a_request_queued_twice_and_an_endless_queue_are_refused() -> None:
    policy, state = make("umsh").policy, LanState(TYPES, LINKS, ())
    twice = [Request(1, 1, "fno-pytorch", 0.0)] * 2
    with pytest.raises(LanInputError, match="queued twice"):
        policy(state, twice, 1.0, CORRECTION)
    with pytest.raises(LanInputError, match="The bound is"):
        policy(state, twice * QUEUE_MAX, 1.0, CORRECTION)


@settings(deadline=None)
@given(st.binary(max_size=400))
def test_random_bytes_are_no_message(data: bytes) -> None:
    for parse in (decode, protocol.to_scheduler, protocol.from_scheduler):
        with pytest.raises(LanInputError):
            parse(data)


@settings(deadline=None)
@given(st.data())
def test_a_damaged_heartbeat_is_refused_or_harmless(data: st.DataObject) -> None:
    raw = bytearray(encode(beat(tasks=(Progress(1, 1, "fno-pytorch", "infer", 0.0, 1.0, 1.0, 3, 10, True),))))
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    known = tracker()
    try:
        known.beat(decode(bytes(raw)), 1.0)
    except UmshError:
        return
    known.state()


def test_a_heartbeat_beyond_its_bounds_is_dropped() -> None:
    with pytest.raises(LanInputError, match="bytes"):
        decode(b" " * (2 << 20))
    task = Progress(1, 1, "fno-pytorch", "infer", 0.0, 1.0, 1.0, 3, 10, True)
    with pytest.raises(LanInputError, match="tasks"):
        decode(encode(beat(tasks=(task,) * 5000)))
    with pytest.raises(LanInputError, match="version"):
        decode(encode(beat(version=99)))


def test_a_heartbeat_with_a_task_of_an_unknown_type_changes_nothing() -> None:
    known = tracker()
    with pytest.raises(LanInputError, match="unknown task type"):
        known.beat(beat(tasks=(Progress(1, 1, "zz", "infer", 0.0, 1.0, 1.0, 3, 10, True),)), 1.0)
    assert known.heard_s("a") == 0.0


@given(st.dictionaries(st.binary(max_size=20), st.one_of(st.none(), st.binary(max_size=300)), max_size=6))
def test_a_foreign_mdns_record_is_refused(record: dict[bytes, bytes | None]) -> None:
    with pytest.raises(LanInputError):
        from_record(record)


def test_an_mdns_record_with_nan_memory_is_refused() -> None:
    with pytest.raises(LanInputError):
        from_record({b"v": b"1", b"name": b"a", b"gpu": b"4090", b"memory_mb": b"nan", b"links": b""})


@pytest.mark.parametrize("text", ["", "[]", "{", '{"links": {}, "servers": 3, "queue": []}', "\x00\xff"])
def test_a_broken_state_file_is_refused_with_exit_code_2(tmp_path: Path, text: str) -> None:
    path = tmp_path / "state.json"
    path.write_text(text)
    with pytest.raises(LanInputError):
        read_state(path)
    result = CliRunner().invoke(app, ["explain", str(path)])
    assert isinstance(result.exception, LanInputError)


def test_the_service_survives_garbage_endless_lines_and_wrong_order() -> None:
    async def session() -> None:
        service = Service(Scheduler(make("umsh").policy, Tracker(TYPES, LINKS)), tick_s=3600.0)
        port = await service.start("127.0.0.1", 0)
        for first in (b"\xff\x00garbage\n", b'{"message":"join"}\n', b"x" * (3 << 20), b""):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            await reader.readline()
            writer.write(first)
            writer.write_eof()
            with contextlib.suppress(ConnectionError):  # reset, for the line beyond the limit
                await asyncio.wait_for(reader.read(), 20)
            writer.close()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await reader.readline()
        writer.write(protocol.encode(protocol.Hello(protocol.VERSION)))
        assert isinstance(protocol.from_scheduler(await reader.readline()), protocol.Accepted)
        for bad in (b"{}\n", json.dumps({"message": "leave", "server": "zz"}).encode() + b"\n"):
            writer.write(bad)
            assert isinstance(protocol.from_scheduler(await reader.readline()), protocol.Refused)
        writer.write(protocol.encode(protocol.Submit(1, "fno-pytorch")))
        assert isinstance(protocol.from_scheduler(await reader.readline()), protocol.Accepted)
        writer.close()
        await service.stop()

    asyncio.run(session())


def test_messages_keep_nan_out() -> None:
    line = msgspec.json.encode(
        {"message": "join", "server": {"name": "a", "gpu": "g", "memory_mb": -5, "links": []}}
    )
    with pytest.raises(LanInputError):
        protocol.to_scheduler(line)
