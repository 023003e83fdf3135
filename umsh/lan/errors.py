"""Errors of LAN scheduling; each says the state, the consequence and the next step."""

from __future__ import annotations

import math

from umsh.errors import UmshError


class LanInputError(UmshError, ValueError):
    """A profile, state, request or message with a value that no LAN could have."""


class UnknownServerError(UmshError, LookupError):
    """A message or placement that names a server nobody registered."""


class StaleHeartbeatError(UmshError, ValueError):
    """A heartbeat that was seen before, is older than the last one, or comes from a clock that went back."""


class QueueFullError(UmshError, RuntimeError):
    """The waiting queue reached its bound; the request was not taken."""


class RegistryError(UmshError, RuntimeError):
    """Membership that cannot be changed as asked: no such engine, a server registered twice, a lost actor."""


def check_number(value: float, what: str, low: float = 0.0, high: float = math.inf) -> float:
    """Return `value` as float if it is a finite number in [low, high]; else raise LanInputError."""
    if type(value) is float and low <= value <= high and value != math.inf:
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise LanInputError(f"{what} is {value!r}, not a number.", "The input was refused.", "Give a number.")
    number = float(value)
    if not math.isfinite(number) or not low <= number <= high:
        wanted = f"in [{low:g}, {high:g}]" if math.isfinite(high) else f"finite and at least {low:g}"
        raise LanInputError(
            f"{what} is {number!r}.", "The input was refused.", f"It has to be {wanted}; measure it again."
        )
    return number
