"""The interpreter of umsh/device/steps.h on the CPU: values, bounds, its end without a partner."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from umsh.native import ffi, lib

Row = tuple[int, int, int, int]
CONTROL_NBYTES = lib.UMSH_CONTROL_HEADER + 4096
PAIR, WIDE = lib.UMSH_WIDTH_16_PAIR, lib.UMSH_WIDTH_64


def row(
    op: str, location: int = 0, order: str = "relaxed", width: int = 0, register: int = 0, value: int = 0
) -> Row:
    how = getattr(lib, f"UMSH_ORDER_{order.upper()}")
    return getattr(lib, f"UMSH_STEP_{op.upper()}") | how << 8 | width << 16, location, register, value


class Bench:
    """Memory for both roles. `play` runs one role in this thread and returns the instances completed."""

    def __init__(self, slots: int = 1, spins: int = 2000, grace: int = 10) -> None:
        self.words = np.zeros(4096, np.uint32)
        self.control = np.zeros(CONTROL_NBYTES, np.uint8)
        self.settings = np.zeros(lib.UMSH_SET_COUNT, np.uint32)
        self.settings[lib.UMSH_SET_SLOTS] = slots
        self.settings[lib.UMSH_SET_WORDS_SLOT] = 256
        self.settings[lib.UMSH_SET_SPINS] = spins
        self.settings[lib.UMSH_SET_GRACE] = grace
        self.settings[lib.UMSH_SET_SCRATCH] = 8192
        self.settings[lib.UMSH_SET_SCRATCH_LINES] = 16

    def play(
        self, rows: Sequence[Row], instances: int = 1, role: int = 0, registers: int = 4
    ) -> NDArray[np.uint32]:
        program = np.array(rows, np.int32).reshape(-1, 4)
        settings = self.settings.copy()
        settings[lib.UMSH_SET_STEPS] = len(rows)
        settings[lib.UMSH_SET_REGISTERS] = registers
        seen = np.zeros((instances, registers), np.uint32)
        place = [
            int(ffi.cast("uintptr_t", ffi.from_buffer(a))) for a in (program, self.words, seen, self.control)
        ]
        last = int(ffi.cast("uintptr_t", ffi.from_buffer(settings)))
        self.completed = lib.umsh_steps(*place, role, instances, last)
        return seen


def test_values_are_relative_to_the_instance() -> None:
    bench = Bench()
    bench.settings[lib.UMSH_SET_BASE] = 32
    seen = bench.play([row("load"), row("store", value=3), row("load", register=1)])
    assert seen[0, :2].tolist() == [0, 3]
    assert bench.words[0] == 35


def test_what_an_older_instance_left_reads_as_initial() -> None:
    bench = Bench(slots=1)
    seen = bench.play([row("load"), row("store", value=5), row("load", register=1)], instances=3)
    assert seen[:, :2].tolist() == [[0, 5]] * 3


def test_slots_take_turns() -> None:
    bench = Bench(slots=2)
    bench.play([row("store", value=1)], instances=3)
    assert bench.words[0] == 1 + lib.UMSH_EPOCH  # instance 2 used slot 0 again
    assert bench.words[64] == 1


def test_both_halves_of_a_wide_access_are_observed() -> None:
    for width in (WIDE, PAIR):
        for order in ("relaxed", "split"):
            seen = Bench().play([row("store", 8, order, width, value=2), row("load", 8, "relaxed", width)])
            assert seen[0, :2].tolist() == [2, 2]


def test_halves_wrap_around_sixteen_bits() -> None:
    bench = Bench()
    bench.settings[lib.UMSH_SET_BASE] = 0xFFF0 + lib.UMSH_EPOCH
    seen = bench.play([row("store", 0, "relaxed", PAIR, value=2), row("load", 0, "relaxed", PAIR)])
    assert seen[0, :2].tolist() == [2, 2]


def test_read_modify_writes_return_the_old_value() -> None:
    seen = Bench().play(
        [
            row("add", 0, "seq_cst", value=2),
            row("exchange", 0, "seq_cst", register=1, value=7),
            row("cas", 0, "seq_cst", register=2, value=7 | 9 << 8),
            row("cas", 0, "seq_cst", register=3, value=7 | 1 << 8),
        ]
    )
    assert seen[0].tolist() == [0, 2, 7, 9]


def test_a_block_checks_only_after_it_was_filled_for_this_instance() -> None:
    check = (lib.UMSH_STEP_CHECK, 0, 0, 128)
    seen = Bench().play(
        [check, (lib.UMSH_STEP_FILL, 0, 0, 128), (lib.UMSH_STEP_CHECK, 0, 1, 128)], instances=2
    )
    assert seen[:, :2].tolist() == [[1, 0], [1, 0]]


def test_a_rendezvous_without_partner_ends_and_tells_the_other() -> None:
    bench = Bench(spins=500)
    bench.play([row("rendezvous")], instances=5)
    assert bench.completed == 0
    assert bench.control[lib.UMSH_CONTROL_STOP] == 1


def test_a_wait_gives_up_only_after_its_partner_ended() -> None:
    bench = Bench(spins=500, grace=20)
    bench.play([row("wait", 0, "acquire", value=1)])
    assert bench.completed == 0, "the partner never ended, so the bound decides"
    bench = Bench(spins=500, grace=20)
    bench.play([], role=1)
    seen = bench.play([row("wait", 0, "acquire", value=1)])
    assert bench.completed == 1
    assert seen[0, 0] == 0


def test_an_unknown_opcode_stops_the_role() -> None:
    bench = Bench()
    bench.play([(99, 0, 0, 0)])
    assert bench.completed == 0


def test_traffic_and_delays_touch_nothing_of_the_test() -> None:
    bench = Bench()
    bench.play([row("traffic", value=50), row("delay", value=50)], instances=3)
    assert not bench.words[:2048].any()


def test_two_threads_lose_no_increment_under_each_lock() -> None:
    for name in ("CAS", "TICKET", "PETERSON"):
        bench = Bench(spins=1 << 22)
        code = getattr(lib, f"UMSH_LOCK_{name}") << 8
        rows = [
            (lib.UMSH_STEP_LOCK | code, 512, 0, 0), (lib.UMSH_STEP_INCREMENT, 0, 0, 0),
            (lib.UMSH_STEP_UNLOCK | code, 512, 0, 0),
        ]  # fmt: skip
        bench.settings[lib.UMSH_SET_SLOTS] = 1 << 20
        bench.settings[lib.UMSH_SET_WORDS_SLOT] = 0
        threads = [threading.Thread(target=bench.play, args=(rows, 2000, role)) for role in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert bench.words[0] == 4000, name
