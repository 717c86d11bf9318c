"""Writes whose commit was not confirmed: the connection broke before the reply, so they may or may not have happened.

Each has an id that was chosen before it began. On a fresh connection what it made is looked for, or it is written again
with the same id: if the first one is still being committed, the second waits for it and finds the id taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import asyncpg
import structlog

from nova_workers.base.errors import OutcomeUnknown, Rejected, Unavailable

_log = structlog.get_logger(__name__)

T = TypeVar("T")

PATIENCE_S: Final = 5.0
"""How long a caller waits for the answer. A restart of Postgres takes about as long."""
_PAUSE_S: Final = 0.2


def doubtful(what: str, key: object, **named: str) -> OutcomeUnknown:
    """Return the error of a request whose commit is not confirmed, and could not be found out.

    Args:
        what: What was to be made.
        key: The request's Idempotency-Key, if it has one.
        named: The ids that it has if it was made.
    """
    again = (
        "Repeat the request with the same Idempotency-Key."
        if key is not None
        else "Look before you repeat the request. With an Idempotency-Key, repeating it is always safe."
    )
    return OutcomeUnknown(
        f"The database did not confirm {what}. It may have been accepted. {again}",
        server="postgres",
        may_be_written=True,
        **named,
    )


async def write_once(
    write: Callable[[], Awaitable[T]], find: Callable[[], Awaitable[T | None]], *, doubt: Callable[[], OutcomeUnknown]
) -> T:
    """Write, and find out whether an unconfirmed commit happened.

    Args:
        write: Writes in one transaction, under an id that is the same in each call and unique in the database.
        find: Returns what `write` made, if it is in the database.
        doubt: Returns the error for the caller if that cannot be found out.

    Raises:
        Unavailable: The database does not answer. As `write` raised it, if nothing was written; else that of `doubt`.
    """
    try:
        return await write()
    except Unavailable as error:
        if not isinstance(error, OutcomeUnknown):
            raise
        first = error
    _log.warning("commit.unconfirmed", error=str(first))
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await _settle(write, find)
    except TimeoutError:
        raise doubt() from first


async def _settle(write: Callable[[], Awaitable[T]], find: Callable[[], Awaitable[T | None]]) -> T:
    while True:
        try:
            found = await find()
            return await _write_again(write, find) if found is None else found
        except (Unavailable, asyncpg.UniqueViolationError) as error:
            # A taken id: the first one was committed after we looked.
            _log.info("commit.unsettled", error=str(error))
        await asyncio.sleep(_PAUSE_S)


async def _write_again(write: Callable[[], Awaitable[T]], find: Callable[[], Awaitable[T | None]]) -> T:
    try:
        return await write()
    except Rejected:
        # Perhaps because of what the first one did meanwhile.
        found = await find()
        if found is None:
            raise
        return found
