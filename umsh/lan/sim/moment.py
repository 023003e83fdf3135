"""A moment of a simulation as input for `umsh-sched explain`."""

from __future__ import annotations

from umsh.lan.cluster import LanState, Request
from umsh.lan.correct import Correction
from umsh.lan.errors import LanInputError, check_number
from umsh.lan.profiles import load_profiles
from umsh.lan.sim.run import world
from umsh.lan.sim.scenario import paper_setup


class _Reached(Exception):  # control flow out of the event loop, never seen by users
    pass


def moment(
    gpus: int, seed: int, at_s: float, policy: str
) -> tuple[LanState, list[Request], float, Correction]:
    """State, queue, time and correction at the first step at or after `at_s` that has a queue.

    Raises LanInputError if the simulation ends before that.
    """
    check_number(at_s, "the moment")
    lan = world(paper_setup(load_profiles(), gpus, seed), policy)
    scheduler, found = lan.scheduler, []
    decide = scheduler.policy

    def watch(state, queue, now_s, correction):  # type: ignore[no-untyped-def]
        if now_s >= at_s and queue:
            found.append((state, list(queue), now_s, correction))
            raise _Reached
        return decide(state, queue, now_s, correction)

    scheduler.policy = watch
    try:
        lan.run()
    except _Reached:
        return found[0]
    raise LanInputError(
        f"no request waits at or after {at_s:g} s.", "There is nothing to explain.", "Take an earlier moment."
    )
