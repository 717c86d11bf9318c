"""What a request may have written, over all of its statements and transactions.

A statement knows of itself only. A request that committed one transaction, and fails in the next or in a read, has not
"written nothing". So the ledger notes here each commit that happened or may have happened, and the one place that
answers a failed request reads it (`api/errors.py`). A context without a record, such as a worker's, notes nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from nova_workers.ledger.failures import writes


class WriteRecord:
    """Whether a request may have written. Tasks that it starts share its record.

    Attributes:
        may_be_written: Whether a statement that writes was committed, or may have been.
        names: What to look at, if so: ids, and `look_up`, the path of a GET.
    """

    __slots__ = ("may_be_written", "names")

    def __init__(self) -> None:
        self.may_be_written = False
        self.names: Mapping[str, str] = _NO_NAMES


_NO_NAMES: Mapping[str, str] = {}

_record: ContextVar[WriteRecord | None] = ContextVar("write_record", default=None)


def start_record() -> WriteRecord:
    """Record the writes of this context, from now on."""
    record = WriteRecord()
    _record.set(record)
    return record


@contextmanager
def own_record() -> Generator[WriteRecord]:
    """Record the writes of a block by themselves, for a part of a request with its own outcome; then add them."""
    whole, record = _record.get(), WriteRecord()
    token = _record.set(record)
    try:
        yield record
    finally:
        _record.reset(token)
        if whole is not None:
            whole.may_be_written = whole.may_be_written or record.may_be_written


def current_record() -> WriteRecord | None:
    """Return the record of this context; None without one."""
    return _record.get()


def name_outcome(look_up: str, **ids: str) -> None:
    """Name what shows whether the request was carried out, should its outcome be unknown.

    Args:
        look_up: The path of a GET.
        ids: Of what is made or changed.
    """
    if (record := _record.get()) is not None:
        record.names = {**ids, "look_up": look_up}


def note_sent(statements: Sequence[str]) -> bool:
    """Note statements whose commit happened, or may have happened; return whether one of them writes."""
    may_be_written = any(map(writes, statements))
    if may_be_written and (record := _record.get()) is not None:
        record.may_be_written = True
    return may_be_written
