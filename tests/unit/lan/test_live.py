"""Live parts: heartbeats, tracker, scheduler loop, in-process registry, served protocol, explain, CLI."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from umsh.lan import protocol
from umsh.lan.cli import app
from umsh.lan.cluster import Link, Placement, Request, Server
from umsh.lan.correct import Correction
from umsh.lan.errors import LanInputError, QueueFullError, RegistryError, UnknownServerError
from umsh.lan.heartbeat import decode, encode
from umsh.lan.policies import make
from umsh.lan.profiles import load_profiles
from umsh.lan.registry import LocalRegistry
from umsh.lan.scheduler import Scheduler
from umsh.lan.serve import Service
from umsh.lan.tracker import Tracker

TYPES = load_profiles().types
LINKS = {"router": Link("router", 1000.0)}
S1 = Server("s1", "4090", 24576, ("router",))


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def scheduler(**more: object) -> Scheduler:
    return Scheduler(make("umsh").policy, Tracker(TYPES, LINKS), **more)  # type: ignore[arg-type]


def pump(registry: LocalRegistry, loop: Scheduler, now_s: float) -> list[Placement]:
    """What a live loop does once a second: heartbeats in, a step, placements out."""
    for beat in registry.heartbeats():
        loop.beat(decode(encode(beat)), now_s)
    placed = loop.step(now_s).placed
    for placement in placed:
        registry.dispatch(placement)
    return list(placed)


def test_a_request_goes_from_queue_to_agent_and_its_weights_are_used_again() -> None:
    clock, loop = Clock(), scheduler()
    registry = LocalRegistry(clock)
    registry.join(S1)
    loop.tracker.join(S1, 0.0)
    loop.submit(Request(1, 1, "llama3B-ggml", 0.0))
    assert [item.phase for item in pump(registry, loop, 1.0)] == ["load"]
    agent = registry.agent("s1")
    agent.progress(1, 3e9, 6e9, 0, 100)
    clock.now_s = 30.0
    pump(registry, loop, 30.0)
    running = loop.tracker.state().servers[0].running[0]
    assert running.load_left_s == pytest.approx(63.85 / 2)
    agent.progress(1, 6e9, 6e9, 40, 100)
    clock.now_s = 60.0
    pump(registry, loop, 60.0)
    running = loop.tracker.state().servers[0].running[0]
    assert (running.stage, running.infer_left_s) == ("infer", pytest.approx(4.2 * 0.6))
    agent.end(1)
    loop.ended(1, 61.0)
    loop.submit(Request(2, 1, "llama3B-ggml", 61.0))
    clock.now_s = 62.0
    assert [item.phase for item in pump(registry, loop, 62.0)] == ["infer"]


def test_a_silent_server_is_dropped_and_its_request_queued_with_its_old_time() -> None:
    loop = scheduler()
    loop.tracker.join(S1, 0.0)
    loop.submit(Request(1, 1, "fno-pytorch", 0.0))
    assert loop.step(1.0).placed
    decision = loop.step(20.0)
    assert [request.submit_s for request, _ in decision.waiting] == [0.0]
    assert "no server is present" in decision.waiting[0][1]
    assert loop.requeued == 1


def test_a_restarted_daemon_gives_its_requests_back() -> None:
    clock, loop = Clock(), scheduler()
    registry = LocalRegistry(clock)
    registry.join(S1)
    loop.tracker.join(S1, 0.0)
    loop.submit(Request(1, 1, "fno-pytorch", 0.0))
    pump(registry, loop, 1.0)
    pump(registry, loop, 2.0)
    registry.leave("s1")
    registry.join(S1)  # the same server, a new start with nothing running
    placed = pump(registry, loop, 3.0)
    assert [item.request.id for item in placed] == [1]


def test_the_queue_is_bounded() -> None:
    loop = scheduler(queue_max=2)
    loop.submit(Request(1, 1, "fno-pytorch", 0.0))
    loop.submit(Request(2, 1, "fno-pytorch", 0.0))
    with pytest.raises(QueueFullError):
        loop.submit(Request(3, 1, "fno-pytorch", 0.0))


def test_registry_misuse_is_named() -> None:
    registry = LocalRegistry(Clock())
    registry.join(S1)
    with pytest.raises(RegistryError, match="already"):
        registry.join(S1)
    with pytest.raises(UnknownServerError):
        registry.dispatch(Placement(Request(1, 1, "fno-pytorch", 0.0), "s9", "load", 1.0, ""))
    with pytest.raises(RegistryError, match="is for"):
        registry.agent("s1").start(Placement(Request(1, 1, "fno-pytorch", 0.0), "s9", "load", 1.0, ""))
    with pytest.raises(LanInputError, match="does not run"):
        registry.agent("s1").end(77)


async def _talk(port: int, key: bytes, *messages: protocol.ToScheduler) -> list[protocol.FromScheduler]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    challenge = protocol.from_scheduler(await reader.readline())
    assert isinstance(challenge, protocol.Challenge)
    answers = []
    for message in (protocol.Hello(protocol.VERSION, protocol.prove(key, challenge.nonce)), *messages):
        writer.write(protocol.encode(message))
        line = await asyncio.wait_for(reader.readline(), 10)
        if not line:
            break
        answers.append(protocol.from_scheduler(line))
    writer.close()
    return answers


def test_the_service_places_a_submitted_request() -> None:
    async def session() -> None:
        service = Service(scheduler(), tick_s=3600.0)
        port = await service.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await reader.readline()
        for message in (protocol.Hello(1), protocol.Join(S1), protocol.Submit(5, "fno-pytorch")):
            writer.write(protocol.encode(message))
            answer = protocol.from_scheduler(await asyncio.wait_for(reader.readline(), 10))
            assert isinstance(answer, protocol.Accepted)
        service.step()
        placed = protocol.from_scheduler(await asyncio.wait_for(reader.readline(), 10))
        assert isinstance(placed, protocol.Placed)
        assert placed.placement.server == "s1"
        writer.close()
        await service.stop()

    asyncio.run(session())


def test_the_service_refuses_a_wrong_key_and_an_open_address_without_one() -> None:
    async def session() -> None:
        service = Service(scheduler(), key=b"right", tick_s=3600.0)
        port = await service.start("127.0.0.1", 0)
        wrong = await _talk(port, b"wrong", protocol.Join(S1))
        assert [type(answer) for answer in wrong] == [protocol.Refused]
        right = await _talk(port, b"right", protocol.Join(S1))
        assert [type(answer) for answer in right] == [protocol.Accepted, protocol.Accepted]
        await service.stop()
        with pytest.raises(LanInputError, match="no key"):
            await Service(scheduler()).start("0.0.0.0", 0)

    asyncio.run(session())


def test_explain_gives_the_reason_for_every_request(tmp_path: Path) -> None:
    state = {
        "links": {"router": 1000},
        "servers": [
            {
                "name": "a",
                "gpu": "4070",
                "memory_mb": 12288,
                "links": ["router"],
                "cached": ["whisper-large-v3"],
                "running": [
                    {"type": "whisper-large-v3", "stage": "infer", "infer_left_s": 3.0, "warm": True}
                ],
            }
        ],
        "queue": [{"type": "whisper-large-v3"}, {"type": "llava7B-pytorch"}, {"type": "llama3B-ggml"}],
    }
    path = tmp_path / "state.json"
    path.write_text(json.dumps(state))
    result = CliRunner().invoke(app, ["explain", str(path), "--json"])
    assert result.exit_code == 0
    data = json.loads(result.stdout)
    assert {item["request"]["type"] for item in data["placed"]} == {"whisper-large-v3", "llama3B-ggml"}
    assert "largest server has 12288 MiB" in data["refused"][0][1]
    table = CliRunner().invoke(app, ["explain", str(path)])
    assert "drains" in table.stdout
    assert "refused" in table.stdout


def test_explain_shows_a_simulated_moment() -> None:
    result = CliRunner().invoke(app, ["explain", "--gpus", "1", "--at", "20", "--policy", "gleam", "--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["waiting"]


def test_simulate_compares_policies() -> None:
    result = CliRunner().invoke(
        app, ["simulate", "--gpus", "1", "--seeds", "1", "--policy", "umsh", "--policy", "fgd", "--json"]
    )
    assert result.exit_code == 0
    data = json.loads(result.stdout)
    assert "simulated" in data["title"]
    assert [row["policy"] for row in data["rows"]] == ["umsh", "fgd"]


def test_a_policy_is_a_pure_function_of_its_input() -> None:
    loop = scheduler()
    loop.tracker.join(S1, 0.0)
    state, queue = loop.tracker.state(), [Request(1, 1, "fno-pytorch", 0.0)]
    first = loop.policy(state, queue, 1.0, Correction())
    assert first == loop.policy(state, queue, 1.0, Correction())
    assert queue == [Request(1, 1, "fno-pytorch", 0.0)]
