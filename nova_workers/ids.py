"""Prefixed ULIDs: the text primary keys of every table.

A ULID sorts by the time it was made, so a primary key doubles as a creation order for keyset
pagination, and inserts land at the right edge of the index. The prefix says what an id names, in
logs and in error messages, and lets an endpoint refuse the wrong kind before it asks the database.
"""

from datetime import datetime
from typing import Final, Literal

from ulid import ULID

__all__ = ["IdKind", "id_at", "new_id"]

_TIME_CHARS: Final = 10
"""First characters of a ULID: milliseconds since 1970."""

IdKind = Literal[
    "cmp",
    "dlv",
    "eff",
    "emb",
    "evt",
    "fir",
    "file",
    "key",
    "mem",
    "msg",
    "note",
    "oag",
    "omsg",
    "orc",
    "run",
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

    Args:
        kind: The prefix that says what the id names.
    """
    return f"{kind}_{ULID()}"


def id_at(kind: IdKind, moment: datetime) -> str:
    """Return the lower bound of the ids of a kind that are made at a moment, exact to a millisecond."""
    return f"{kind}_{str(ULID.from_datetime(moment))[:_TIME_CHARS]}"
