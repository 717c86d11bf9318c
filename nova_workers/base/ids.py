"""Prefixed ULIDs: the text primary keys of every table.

A ULID sorts by the time it was made, so a primary key doubles as a creation order for keyset
pagination, and inserts land at the right edge of the index. The prefix says what an id names, in
logs and in error messages, and lets an endpoint refuse the wrong kind before it asks the database.
"""

import os
import time
from datetime import datetime
from functools import lru_cache
from itertools import pairwise
from threading import Lock
from typing import Final, Literal

_DIGITS: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Base 32 of ULIDs: 10 digits of milliseconds since 1970, then 16 random ones, 80 bits."""
_PAIRS: Final = tuple(first + second for first in _DIGITS for second in _DIGITS)
_RANDOM_DIGITS: Final = 16
_DRAWN_AT_ONCE: Final = 256
_DIGIT_OF_BYTE: Final = _DIGITS.encode("ascii") * 8
"""The table of `bytes.translate`: each digit stands for 8 of the 256 bytes, so a random byte is a uniformly random
digit."""
_FOLLOWING: Final = dict(pairwise(_DIGITS))

IdKind = Literal[
    "cmp",
    "dlv",
    "dst",
    "eff",
    "emb",
    "evl",
    "evt",
    "exm",
    "fbk",
    "fir",
    "file",
    "key",
    "mem",
    "msg",
    "note",
    "oag",
    "omsg",
    "orc",
    "par",
    "per",
    "psh",
    "rls",
    "rol",
    "run",
    "sgn",
    "tch",
    "ten",
    "thr",
    "tlc",
    "trc",
    "tre",
    "trg",
    "tst",
    "turn",
    "use",
    "wait",
    "whk",
    "wkr",
    "wop",
    "wos",
    "wot",
]


def new_id(kind: IdKind) -> str:
    """Return a fresh id such as ``run_01JD3X5V0Q6Q8ZK3N5T9R2M4WB``.

    Ids of one process sort in the order in which they were made, also within a millisecond.

    Args:
        kind: The prefix that says what the id names.
    """
    return f"{kind}_{_ulids.make()}"


def new_ulid() -> str:
    """Return a fresh ULID without a prefix, for a token that need only be unique."""
    return _ulids.make()


def id_at(kind: IdKind, moment: datetime) -> str:
    """Return the lower bound of the ids of a kind that are made at a moment, exact to a millisecond."""
    return f"{kind}_{_time_digits(int(moment.timestamp() * 1000))}"


def second_of(id_: str) -> int:
    """Return the second since 1970 in which an id was made.

    Raises:
        ValueError: It is no id that was made here.
    """
    ms = 0
    for digit in id_.rpartition("_")[2][:10]:
        ms = (ms << 5) | _DIGITS.index(digit)
    return ms // 1000


class _Ulids:
    """Makes the ULIDs of this process.

    Randomness is read from the kernel for many ULIDs at once: a system call for each would release the interpreter's
    lock, and wait for it again. Within a millisecond a ULID is the successor of the one before.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._ms = -1
        self._random = ""
        self._drawn: list[str] = []

    def make(self) -> str:
        """Return the next ULID."""
        with self._lock:
            ms = time.time_ns() // 1_000_000
            if ms == self._ms:
                self._random = _successor(self._random)
            else:
                if not self._drawn:
                    self._drawn = _draw()
                self._ms, self._random = ms, self._drawn.pop()
            return _time_digits(ms) + self._random

    def forget(self) -> None:
        """Forget everything, in a child process that was forked: its parent goes on with the same randomness."""
        self._lock, self._ms, self._drawn = Lock(), -1, []


def _draw() -> list[str]:
    digits = os.urandom(_RANDOM_DIGITS * _DRAWN_AT_ONCE).translate(_DIGIT_OF_BYTE).decode("ascii")
    return [digits[start : start + _RANDOM_DIGITS] for start in range(0, len(digits), _RANDOM_DIGITS)]


def _successor(digits: str) -> str:
    following = _FOLLOWING.get(digits[-1])
    return digits[:-1] + following if following else _successor(digits[:-1]) + _DIGITS[0]


def _time_digits(ms: int) -> str:
    return _digits_of_second(ms >> 10) + _PAIRS[ms & 1023]


@lru_cache(maxsize=16)
def _digits_of_second(second: int) -> str:
    """Return the first 8 digits of the time, which are the same for 1024 milliseconds."""
    return "".join(_PAIRS[second >> shift & 1023] for shift in (30, 20, 10, 0))


# The one generator of the process: two would not keep the order within a millisecond.
_ulids: Final = _Ulids()
os.register_at_fork(after_in_child=_ulids.forget)
