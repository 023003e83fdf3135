"""Typed errors: each message says the state, the consequence and the next step."""

from __future__ import annotations


class UmshError(Exception):
    """Base of every error umsh raises on purpose.

    The message has three parts: what is so (state), what that means for the caller
    (consequence) and what to do (next step).
    """

    def __init__(self, state: str, consequence: str = "", next_step: str = "") -> None:
        self.state = state
        self.consequence = consequence
        self.next_step = next_step
        super().__init__(" ".join(part for part in (state, consequence, next_step) if part))

    def __reduce__(self) -> tuple[type[UmshError], tuple[str, str, str]]:
        return type(self), (self.state, self.consequence, self.next_step)


class NeedError(UmshError, ValueError):
    """A need that no machine could meet: a wrong size, dtype, direction, source or boundary."""


class UnsupportedError(UmshError, NotImplementedError):
    """A mechanism, method or platform control this machine lacks; names the missing fact."""


class DeviceError(UmshError, RuntimeError):
    """No device, a device lost in mid-run, or a driver call that failed."""


class OutOfMemory(UmshError, MemoryError):
    """The region does not fit; nothing was left allocated."""


class AdoptError(UmshError, ValueError):
    """Existing memory that does not qualify as a region; names the reason."""


class RegionBusy(UmshError, BufferError):
    """The other side, or an array made from the region, still holds it; names the holder."""


class TurnError(UmshError, RuntimeError):
    """An access out of turn: the region is with the other agent, unbound, or in a forked child."""


class WaitTimeout(UmshError, TimeoutError):
    """A bounded wait ran out; nothing was changed."""


class LockHolderDied(UmshError, RuntimeError):
    """The thread or process that held the lock is gone; the data under it may be half written."""


class FileError(UmshError, OSError):
    """A file that cannot be read whole: truncated, growing, refused by the file system."""


class Cancelled(UmshError, RuntimeError):
    """The caller asked to stop; what had been done was given back."""


class RecordError(UmshError, ValueError):
    """A profile or choice file that is unreadable, truncated, foreign or of a future version."""


class NoisyMachine(UmshError, RuntimeError):
    """Timings spread too far to rank mechanisms; no choice was written."""


class UmshWarning(UserWarning):
    """Base of every warning umsh gives."""


class StaleChoiceWarning(UmshWarning):
    """The choice in use was measured under another driver or kernel version."""


class FallbackWarning(UmshWarning):
    """What was asked for was not given (huge pages, direct I/O); says what is in use instead."""
