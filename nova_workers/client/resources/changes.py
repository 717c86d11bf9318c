"""The client's stream of what changes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from pydantic import ValidationError

from nova_workers.base.errors import NovaError, Unavailable
from nova_workers.base.vocabulary import ChangeSubject
from nova_workers.client.connection import sleep
from nova_workers.client.transport import EventSource, Transport
from nova_workers.contracts.changes import ChangeEvent, change_event_adapter


class Changes:
    """``/v1/events``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def follow(
        self, *subjects: ChangeSubject, after: str | None = None
    ) -> AsyncGenerator[tuple[str, ChangeEvent]]:
        """Yield changes with their cursors, in order and each once: from now on, after a `Ready`, or after a cursor.

        It does not end by itself. A dropped connection is resumed where it was; where that is not possible, `Reset`
        says that changes were missed. Event types that this client does not know are skipped. Close the generator
        (`contextlib.aclosing`) when leaving it early.

        Args:
            subjects: Only changes of these; without any, of all that the key may read.
            after: The cursor of the last event that was seen, at most 24 hours ago.

        Raises:
            Unavailable: The connection was lost more often in a row than `Retry` allows.
            Forbidden: The key may not read a subject.
        """
        seen, failures = after, 0
        while True:
            cause: NovaError | None = None
            headers = None if seen is None else {"Last-Event-ID": seen}
            try:
                async with self._transport.listen(
                    "GET", "/v1/events", params={"subject": subjects}, headers=headers
                ) as source:
                    async with aclosing(_read(source)) as feed:
                        async for cursor, event in feed:
                            seen, failures = cursor, 0
                            if event is not None:
                                yield cursor, event
            except Unavailable as error:
                cause = error
            failures += 1
            if failures > self._transport.retry.attempts:
                raise Unavailable(
                    f"The stream of changes was lost {failures} times in a row. Follow it again"
                    + (f" after {seen!r}." if seen else "."),
                    after=seen,
                ) from cause
            await sleep(self._transport.retry.delay_s(failures))


async def _read(source: EventSource) -> AsyncGenerator[tuple[str, ChangeEvent | None]]:
    """Yield the events of an open stream; None stands for a heartbeat, and for one of an unknown type."""
    async for frame in source:
        if frame.id:
            yield frame.id, _parse(frame.data) if frame.data else None


def _parse(data: str) -> ChangeEvent | None:
    try:
        return change_event_adapter.validate_json(data)
    except ValidationError as error:
        # Of a later release: an event, or a subject.
        if {item["type"] for item in error.errors()} <= {"union_tag_invalid", "literal_error"}:
            return None
        raise
