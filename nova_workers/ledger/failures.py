"""What the failures of the driver and the server mean to callers: unavailable, or a value that cannot be stored."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

import asyncpg

from nova_workers.errors import Unavailable, Unstorable

__all__ = ["UNAVAILABLE", "UNSTORABLE", "is_refusal", "unavailable", "unstorable", "write_something", "writes"]

_WRITES = re.compile(r"\b(?:INSERT|UPDATE|DELETE|TRUNCATE)\b", re.IGNORECASE)
"""A statement that only reads cannot leave a write in doubt. `FOR UPDATE` counts as a write: one follows it."""

UNAVAILABLE = (
    OSError,
    asyncio.TimeoutError,
    asyncpg.InterfaceError,
    # The driver raises this if the server died while a statement was in flight.
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    # Whole classes, since a failing server may raise any of them: shutdown, startup or crash (57); no connections,
    # memory or disk (53); I/O errors (58); no connections accepted now (55000).
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.PostgresSystemError,
    asyncpg.ObjectNotInPrerequisiteStateError,
    # The server takes no writes: it became a standby, or an operator protects it.
    asyncpg.ReadOnlySQLTransactionError,
    # It ended the session, since a transaction took too long: the process was stopped for a while, or the server slow.
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.TransactionTimeoutError,
    # When connecting only: it is being restored, or passwords are being replaced.
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    # Postgres rolled back this whole transaction because of a deadlock or a conflict, so it can be retried.
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
)

UNSTORABLE = (
    # The parameter's type or the encoding cannot hold the value.
    asyncpg.DataError,
    # The document or text exceeds a server limit.
    asyncpg.ProgramLimitExceededError,
    # One statement would write the same row twice.
    asyncpg.CardinalityViolationError,
)


def is_refusal(error: BaseException) -> bool:
    """Whether the server answered that it did not execute the statement."""
    return isinstance(error, asyncpg.PostgresError) and not isinstance(error, asyncpg.PostgresConnectionError)


def writes(statement: str) -> bool:
    """Return whether a statement may write, or lock rows in order to."""
    return _WRITES.search(statement) is not None


def write_something(statements: Sequence[str]) -> bool:
    """Return whether one of several statements may write."""
    return any(map(writes, statements))


def unavailable(error: BaseException, *, may_be_written: bool) -> Unavailable:
    """Return the error for callers."""
    advice = (
        "It may have been written: repeat it with the same Idempotency-Key, or look before you repeat it."
        if may_be_written
        else "Nothing was written; try again."
    )
    return Unavailable(
        f"The database did not answer ({type(error).__name__}: {error}). {advice}",
        server="postgres",
        may_be_written=may_be_written,
    )


def unstorable(error: BaseException) -> Unstorable:
    """Return the error for callers."""
    # The driver quotes the value, which may be long or secret: the traceback has it, the message does not.
    return Unstorable(f"The database refuses a value of the statement ({type(error).__name__}), which wrote nothing.")
