"""What the failures of the driver and the server mean to callers: unavailable, or a value that cannot be stored."""

from __future__ import annotations

import asyncio
import re
from functools import lru_cache
from typing import Final

import asyncpg

from nova_workers.base.errors import OutcomeUnknown, Unavailable, Unstorable

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

_REASONS: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (asyncpg.TooManyConnectionsError, "The database has no free connection"),
    (asyncpg.DiskFullError, "The database has no free disk space"),
    (asyncpg.OutOfMemoryError, "The database has no free memory"),
    (asyncpg.InsufficientResourcesError, "The database lacks a resource, such as connections, memory or disk space"),
    (asyncpg.CannotConnectNowError, "The database is starting or stopping"),
    (asyncpg.QueryCanceledError, "The database canceled the statement, which took too long or was stopped"),
    (asyncpg.OperatorInterventionError, "The database ended the connection: it is stopping, or was restarted"),
    (asyncpg.LockNotAvailableError, "The database did not get a lock in time, which another transaction holds"),
    (asyncpg.ObjectNotInPrerequisiteStateError, "The database refuses this for now"),
    (asyncpg.ReadOnlySQLTransactionError, "The database takes no writes now: it is read-only"),
    (asyncpg.IdleInTransactionSessionTimeoutError, "The database ended the transaction, which took too long"),
    (asyncpg.TransactionTimeoutError, "The database ended the transaction, which took too long"),
    (asyncpg.InvalidAuthorizationSpecificationError, "The database refuses the user or password of the fleet"),
    (asyncpg.InvalidCatalogNameError, "The server of the database does not have it now"),
    (asyncpg.DeadlockDetectedError, "The database rolled the transaction back, in favor of one that was in its way"),
    (asyncpg.SerializationError, "The database rolled the transaction back, in favor of one that was in its way"),
    (asyncpg.PostgresSystemError, "The database failed to read or write its files"),
    (TimeoutError, "The database did not answer in time"),
    (ConnectionRefusedError, "The database accepts no connection"),
    (asyncpg.PostgresConnectionError, "The connection to the database was lost"),
    (asyncpg.InternalClientError, "The connection to the database was lost"),
    (asyncpg.InterfaceError, "The connection to the database was lost"),
    (OSError, "The database cannot be reached, or its connection was lost"),
)
"""What a caller reads. The first that applies; a class comes before its base."""

_SURE_ENDS: Final = asyncpg.IdleInTransactionSessionTimeoutError
"""The server ended the session while it waited for the next message of a transaction."""


def is_refusal(error: BaseException) -> bool:
    """Return whether the server answered that it did not execute the statement.

    One that ends the session (a shutdown, say) may do so between a commit and its reply.
    """
    if not isinstance(error, asyncpg.PostgresError) or isinstance(error, asyncpg.PostgresConnectionError):
        return False
    # Attributes that the driver's types do not declare; the first is not translated.
    severity: str | None = getattr(error, "severity_en", None) or getattr(error, "severity", None)
    ends_session = severity in {"FATAL", "PANIC"}
    return not ends_session or isinstance(error, _SURE_ENDS)


@lru_cache(maxsize=4_096)
def writes(statement: str) -> bool:
    """Return whether a statement may write, or lock rows in order to."""
    return _WRITES.search(statement) is not None


def unavailable(error: BaseException, *, may_be_written: bool) -> Unavailable:
    """Return the error for callers.

    Args:
        error: The driver's, or one whose message says what an operator is to do.
        may_be_written: Whether what the caller sent may have been committed.
    """
    reason = next((words for kind, words in _REASONS if isinstance(error, kind)), "The database cannot be used") + "."
    cause = f"{type(error).__name__}: {error}"
    if may_be_written:
        advice = "It may have been written: repeat it with the same Idempotency-Key, or look before you repeat it."
        return OutcomeUnknown(
            f"{reason} {advice}", reason=reason, cause=cause, server="postgres", may_be_written=may_be_written
        )
    return Unavailable(
        f"{reason} Nothing was written; try again.", reason=reason, cause=cause, server="postgres", may_be_written=False
    )


def unstorable(error: BaseException) -> Unstorable:
    """Return the error for callers."""
    # The driver quotes the value, which may be long or secret: the traceback has it, the message does not.
    return Unstorable(f"The database refuses a value of the statement ({type(error).__name__}), which wrote nothing.")
