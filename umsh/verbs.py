"""The verbs on control memory: wait and set, lock and unlock, acquire and release."""

from __future__ import annotations

from umsh.control import Flag, Lock, Word, bad_number, not_a
from umsh.native import lib

_WORDS = (Word, Flag)
_load_acquire = lib.umsh_load_acquire
_store_release = lib.umsh_store_release

# The methods themselves: one call from Python less.
wait, set = Flag.wait, Flag.set
lock, unlock = Lock.lock, Lock.unlock


def acquire(word: Word | Flag) -> int:
    """Exactly one 32-bit load-acquire of a control word (contract A1, A2). NeedError, TurnError."""
    if not isinstance(word, _WORDS):
        raise not_a("word", word)
    return _load_acquire(word._address)


def release(word: Word | Flag, value: int) -> None:
    """Exactly one 32-bit store-release; publishes what was written before (A1, A2). NeedError, TurnError."""
    if not isinstance(word, _WORDS):
        raise not_a("word", word)
    try:
        _store_release(word._address, value)
    except (TypeError, OverflowError) as error:
        raise bad_number(error, value=value) from error
