"""Seeded stress settings: where locations lie, how far roles drift apart, what else moves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SCRATCH_LINES = 256
SPINS = 1 << 15  # bound of one wait: seconds on a CPU
GRACE = 256
DELAYS = (32, 0, 128, 8)  # turns of arithmetic, some ns each; a long one early, as short runs end soon
TRAFFIC = (0, 0, 2, 8)  # accesses to other lines before each instance
SLOTS = (64, 128, 256)


@dataclass(frozen=True, slots=True)
class Stress:
    """The settings of one chunk. seed: of delays and traffic. delay, traffic: see DELAYS, TRAFFIC."""

    seed: int
    delay: int
    traffic: int
    spins: int = SPINS
    grace: int = GRACE


@dataclass(frozen=True, slots=True)
class Plan:
    """The settings of one run: the place of locations in their line, the slots in turn, each chunk's."""

    seed: int
    offset_nbytes: int
    slots: int

    def chunk(self, number: int) -> Stress:
        """The settings of the chunk of that number; every combination of delay and traffic comes by."""
        random = np.random.default_rng([self.seed, number])
        turn = number % (len(DELAYS) * len(TRAFFIC))
        return Stress(
            seed=int(random.integers(1 << 31)),
            delay=DELAYS[turn % len(DELAYS)],
            traffic=TRAFFIC[(turn + turn // len(DELAYS)) % len(TRAFFIC)],
        )


def plan(seed: int) -> Plan:
    """The plan of a seed."""
    random = np.random.default_rng(seed)
    return Plan(seed, 8 * int(random.integers(16)), int(random.choice(SLOTS)))
