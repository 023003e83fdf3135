"""Run one scenario under one named policy."""

from __future__ import annotations

from collections import Counter

from umsh.lan.policies import make
from umsh.lan.scheduler import Scheduler
from umsh.lan.sim.metrics import Summary, summarise
from umsh.lan.sim.parts import Outcome
from umsh.lan.sim.scenario import Scenario
from umsh.lan.sim.world import World
from umsh.lan.tracker import Tracker


def world(scenario: Scenario, policy: str) -> World:
    """The simulated LAN with the policy in its scheduler, at time 0."""
    counts = Counter(name for client in scenario.clients for name in client)
    total = sum(counts.values())
    named = make(policy, scenario.seed, {name: count / total for name, count in counts.items()})
    tracker = Tracker(scenario.types, {link.name: link for link in scenario.links})
    return World(scenario, Scheduler(named.policy, tracker, named.correct))


def run(scenario: Scenario, policy: str) -> tuple[Summary, Outcome]:
    """Simulate to the end."""
    lan = world(scenario, policy)
    outcome = lan.run()
    return summarise(scenario, outcome, lan.scheduler.requeued), outcome
