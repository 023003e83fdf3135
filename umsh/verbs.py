"""The verbs on control memory: wait and set, lock and unlock, acquire and release."""

from __future__ import annotations

from umsh.control import TIMEOUT_S, Flag, Lock, Word, bad_number
from umsh.errors import NeedError
from umsh.native import lib

_WORDS = (Word, Flag)
_load_acquire = lib.umsh_load_acquire
_store_release = lib.umsh_store_release


def wait(flag: Flag, value: int, timeout_s: float = TIMEOUT_S) -> None:
    """Return once the flag has reached `value` (contract S1-S4). NeedError, TurnError, WaitTimeout."""
    if not isinstance(flag, Flag):
        raise _not_a("flag", flag)
    flag.wait(value, timeout_s)


def set(flag: Flag, value: int) -> None:
    """Publish `value` by one store-release (contract S1-S4). NeedError, TurnError."""
    if not isinstance(flag, Flag):
        raise _not_a("flag", flag)
    flag.set(value)


def lock(mutex: Lock, timeout_s: float = TIMEOUT_S) -> None:
    """Take the lock (contract L1-L5). NeedError, TurnError, WaitTimeout, LockHolderDied."""
    if not isinstance(mutex, Lock):
        raise _not_a("lock", mutex)
    mutex.lock(timeout_s)


def unlock(mutex: Lock) -> None:
    """Give the lock back (contract L1-L5). NeedError, TurnError."""
    if not isinstance(mutex, Lock):
        raise _not_a("lock", mutex)
    mutex.unlock()


def acquire(word: Word | Flag) -> int:
    """Exactly one 32-bit load-acquire of a control word (contract A1, A2). NeedError, TurnError."""
    if not isinstance(word, _WORDS):
        raise _not_a("word", word)
    return _load_acquire(word._address)


def release(word: Word | Flag, value: int) -> None:
    """Exactly one 32-bit store-release; publishes what was written before (A1, A2). NeedError, TurnError."""
    if not isinstance(word, _WORDS):
        raise _not_a("word", word)
    try:
        _store_release(word._address, value)
    except (TypeError, OverflowError) as error:
        raise bad_number(error, value=value) from error


def _not_a(what: str, given: object) -> NeedError:
    makers = {"flag": "umsh.Flag()", "lock": "umsh.Lock()", "word": "region.word(i) or umsh.Flag()"}
    return NeedError(f"A {type(given).__name__} is no {what}.", "Nothing was done.", f"Use {makers[what]}.")
