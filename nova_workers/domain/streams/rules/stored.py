"""Reads the stored entries of a run's stream."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, cast

from redis.asyncio import Redis

from nova_workers.base.keys import run_events
from nova_workers.contracts.events import EventCursor
from nova_workers.domain.streams.rules.wire import FIELD

_PAGE_ENTRIES = 500


async def stored_pages(redis: Redis, run_id: str, at: EventCursor) -> AsyncGenerator[list[bytes]]:
    """Yield the payloads of a run's stream in pages, from the entry at a cursor on.

    This entry is read too since it shows whether an attempt ended there.

    Raises:
        RedisError: Redis does not answer.
    """
    first = "-" if at.key() == EventCursor().key() else f"{at.attempt}-{at.seq}"
    while True:
        # Typed by hand: the client's own type allows for text answers, which `decode_responses` would give.
        entries: list[tuple[bytes, dict[bytes, bytes]]] = cast(
            Any, await redis.xrange(run_events(run_id), min=first, max="+", count=_PAGE_ENTRIES)
        )
        yield [fields.get(FIELD, b"") for _, fields in entries]
        if len(entries) < _PAGE_ENTRIES:
            return
        first = f"({entries[-1][0].decode()}"
