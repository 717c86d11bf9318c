"""The client's calls of orchestrations: trees of agents that work on one task."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from pydantic import ValidationError

from nova_workers.base.errors import NovaError, Unavailable
from nova_workers.client.connection import sleep
from nova_workers.client.resources.orchestration_calls import OrchestrationCalls
from nova_workers.client.transport import EventSource
from nova_workers.contracts.orchestration.events import (
    OrchestrationEnd,
    TreeCursor,
    TreeRecord,
    tree_record_adapter,
)

_PATH = "/v1/orchestrations"
_NO_MORE_EVENTS = 204


class Orchestrations(OrchestrationCalls):
    """``/v1/orchestrations``."""

    async def events(
        self, orchestration_id: str, *, after: TreeCursor | None = None
    ) -> AsyncGenerator[tuple[TreeCursor, TreeRecord]]:
        """Yield the events of all agents from `after` on, in order, each once, until the orchestration ends.

        A dropped connection is resumed after the last event. Event types that this client does not know are skipped.
        Close the generator (`contextlib.aclosing`) when leaving it early.

        Raises:
            Unavailable: The connection was lost more often in a row than `Retry` allows.
            NotFound: No such orchestration.
        """
        seen = after or TreeCursor()
        failures, over = 0, False
        while True:
            cause: NovaError | None = None
            headers = {"Last-Event-ID": str(seen)} if seen.key() > (0, 0, 0) else None
            try:
                async with self._transport.listen(
                    "GET", f"{_PATH}/{orchestration_id}/events", headers=headers
                ) as source:
                    if source.response.status_code == _NO_MORE_EVENTS:
                        return
                    async with aclosing(_read(source)) as feed:
                        async for cursor, record in feed:
                            seen, failures = cursor, 0
                            if record is not None:
                                over = isinstance(record.event, OrchestrationEnd)
                                yield cursor, record
                    if over:
                        return
            except Unavailable as error:
                cause = error
            failures += 1
            if failures > self._transport.retry.attempts:
                raise Unavailable(
                    f"The event stream of {orchestration_id} was lost {failures} times in a row. The orchestration "
                    f"goes on; follow it again with `nova orchestrations tree {orchestration_id} --follow`.",
                    orchestration_id=orchestration_id,
                ) from cause
            await sleep(self._transport.retry.delay_s(failures))


async def _read(source: EventSource) -> AsyncGenerator[tuple[TreeCursor, TreeRecord | None]]:
    """Yield the events of an open stream; None stands for one of an unknown type."""
    async for frame in source:
        if frame.data and frame.id:
            yield TreeCursor.parse(frame.id), _parse(frame.data)


def _parse(data: str) -> TreeRecord | None:
    try:
        return tree_record_adapter.validate_json(data)
    except ValidationError as error:
        if {item["type"] for item in error.errors()} == {"union_tag_invalid"}:
            return None
        raise
