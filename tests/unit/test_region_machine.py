"""Any order of turns, verbs, kept views and finished work: never old data, never a lost or early free."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import umsh
from umsh.errors import RegionBusy, WaitTimeout


class Turns(RuleBasedStateMachine):
    """What each side should see is kept beside the region: one value fills it all."""

    mechanism = ""
    stream_type: Any = None

    def __init__(self) -> None:
        super().__init__()
        self.region: Any = umsh.bind(8, "u1", mechanism=self.mechanism)
        self.memory: Any = self.region._keeper.memory
        self.value = 0
        self.kept: list[Any] = []
        self.stream = self.stream_type(held=True)

    def begin(self, turn: Any) -> Any:
        """The lent object, or None when the turn was refused, which must be for a reason that holds."""
        try:
            lent = turn.__enter__()
        except RegionBusy:
            assert self.kept
        except WaitTimeout:
            assert not all(event.is_done for event in self.stream.events)
        else:
            assert not self.kept
            return lent
        return None

    @rule(value=st.integers(0, 255), keep=st.booleans())
    def cpu_writes(self, value: int, keep: bool) -> None:
        turn = self.region.on_cpu(write=True, timeout_s=0)
        if (a := self.begin(turn)) is not None:
            assert (a == self.value).all()
            a[:] = self.value = value
            if keep:
                self.kept.append(a[2:])
            turn.__exit__(None, None, None)

    @rule(value=st.integers(0, 255), told=st.booleans(), keep=st.booleans())
    def gpu_writes(self, value: int, told: bool, keep: bool) -> None:
        turn = self.region.on_gpu(stream=self.stream if told else None, timeout_s=0)
        if (g := self.begin(turn)) is not None:
            if not told or all(event.is_done for event in self.stream.events):
                assert (self.memory.gpu[:8] == self.value).all()
            self.memory.gpu[:8] = self.value = value
            if keep:
                self.kept.append(np.from_dlpack(g))
            del g
            turn.__exit__(None, None, None)

    @rule(value=st.integers(0, 255))
    def verb_writes(self, value: int) -> None:
        try:
            umsh.write(self.region, np.full(8, value, "u1"), timeout_s=0)
            self.value = value
        except RegionBusy:
            assert self.kept
        except WaitTimeout:
            assert not all(event.is_done for event in self.stream.events)

    @rule()
    def verb_reads(self) -> None:
        try:
            assert (umsh.read(self.region, timeout_s=0) == self.value).all()
        except RegionBusy:
            assert self.kept
        except WaitTimeout:
            assert not all(event.is_done for event in self.stream.events)

    @rule()
    def work_completes(self) -> None:
        self.stream.complete()

    @precondition(lambda self: self.kept)
    @rule()
    def views_go(self) -> None:
        self.kept.clear()

    @invariant()
    def memory_lives(self) -> None:
        assert self.memory.freed == 0

    def teardown(self) -> None:
        self.stream.complete()
        self.region = None
        gc.collect()
        assert self.memory.freed == (0 if self.kept else 1)
        self.kept.clear()
        assert self.memory.freed == 1


@pytest.mark.parametrize("mechanism", ["pinned.driver:WA/RA", "pinned.driver:WBp/RI", "copy.4k:copy/copy"])
def test_any_order_of_turns(fake: Any, held_stream: Any, mechanism: str) -> None:
    run_state_machine_as_test(
        type("Chosen", (Turns,), {"mechanism": mechanism, "stream_type": type(held_stream)}),
        settings=settings(
            max_examples=30, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
