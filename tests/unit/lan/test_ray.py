"""Ray registry: a local cluster of several nodes on one machine; skipped by name where Ray is absent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from umsh.lan.cluster import Link, Placement, Request, Server
from umsh.lan.errors import RegistryError, UnknownServerError
from umsh.lan.policies import make
from umsh.lan.profiles import load_profiles
from umsh.lan.ray_registry import RayRegistry
from umsh.lan.scheduler import Scheduler
from umsh.lan.tracker import Tracker

ray = pytest.importorskip("ray", reason="Ray is not installed (umsh[ray])")

NAMES = ("s0", "s1", "s3")


@pytest.fixture
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    workers = {name: nodes.add_node(num_cpus=1, resources={f"umsh:{name}": 1}) for name in NAMES}
    ray.init(address=nodes.address, log_to_driver=False)
    nodes.wait_for_nodes()
    yield nodes, workers
    ray.shutdown()
    nodes.shutdown()


def eventually(check: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Poll until true; fails after `timeout_s`."""
    end_s = time.monotonic() + timeout_s
    while time.monotonic() < end_s:
        if check():
            return
        time.sleep(0.2)
    pytest.fail(f"not true after {timeout_s:g} s")


def joined() -> tuple[RayRegistry, dict[str, Server]]:
    registry = RayRegistry(answer_s=10.0)
    servers = {server.name: server for server in load_profiles().servers if server.name in NAMES}
    for server in servers.values():
        registry.join(server)
    eventually(lambda: len(registry.heartbeats()) == len(NAMES))
    return registry, servers


@pytest.mark.timeout(240)
def test_membership_placement_restart_and_loss_of_a_node(cluster: Any) -> None:
    nodes, workers = cluster
    registry, servers = joined()

    # Membership and placement: every actor runs on the node that offers its resource.
    assert {name: registry.node(name) for name in NAMES} == {
        name: node.node_id for name, node in workers.items()
    }
    with pytest.raises(RegistryError, match="already"):
        registry.join(servers["s0"])
    with pytest.raises(UnknownServerError):
        registry.leave("nobody")

    # A placed request reaches the actor, and its heartbeat lists it.
    tracker = Tracker(load_profiles().types, {"router": Link("router", 1000.0)}, dead_after_s=3.0)
    loop = Scheduler(make("umsh").policy, tracker)
    for server in servers.values():
        tracker.join(server, 0.0)
    loop.submit(Request(1, 1, "llava7B-pytorch", 0.0))
    placement = loop.step(1.0).placed[0]
    registry.dispatch(placement)
    beat = next(beat for beat in registry.heartbeats() if beat.server == placement.server)
    assert [task.request for task in beat.tasks] == [1]
    for every in registry.heartbeats():
        loop.beat(every, 2.0)

    # Restart: Ray brings the actor back empty, with a later boot; the request is queued again.
    ray.kill(registry.actor(placement.server), no_restart=False)

    def restarted() -> bool:
        return any(b.server == placement.server and b.boot > beat.boot for b in registry.heartbeats())

    eventually(restarted)
    again = next(b for b in registry.heartbeats() if b.server == placement.server)
    assert again.tasks == ()
    for every in registry.heartbeats():
        loop.beat(every, 3.0)
    assert 1 in loop.queue
    assert loop.requeued == 1

    # A lost node is absent; its server falls silent, is dropped, and the request goes elsewhere.
    second = loop.step(3.5).placed[0]
    nodes.remove_node(workers[second.server])
    eventually(lambda: second.server not in {b.server for b in registry.heartbeats()})
    for alive in registry.heartbeats():
        loop.beat(alive, 6.0)
    moved = loop.step(6.5).placed
    assert [(item.request.id, item.server != second.server) for item in moved] == [(1, True)]
    with pytest.raises(RegistryError, match="does not answer"):
        RayRegistry.dispatch(
            registry, Placement(Request(2, 1, "fno-pytorch", 0.0), second.server, "load", 1.0, "")
        )
    registry.leave(moved[0].server)
    assert moved[0].server not in registry.members()
