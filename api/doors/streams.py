"""A response that follows a run in the form of a door's protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from nova_workers.contracts.events import EventCursor
from nova_workers.domain.runs.sql.reads import RunState
from nova_workers.domain.streams.rules.wire import LiveEvent
from nova_workers.domain.threads.sql.items import TurnContents, load_run_contents

from ..state import ApiState
from ..streaming.following import Ending, Target
from ..streaming.sse import EventStream, StreamClient
from ..streaming.stream_permits import StreamPermit
from .feed import Change, ItemFeed
from .items import Item


class Writer(Protocol):
    """Writes what a run does in a protocol's form, for one response."""

    is_over: bool
    """Whether the protocol's stream has its last event. The run may go on."""

    async def begin(self, run: RunState, before: Sequence[Item]) -> bytes:
        """Return the beginning of the stream.

        Args:
            run: The run as it was found.
            before: What a client that resumes has already.
        """
        ...

    async def write(self, changes: Sequence[Change], cursor: EventCursor) -> bytes:
        """Return the form of changes; empty if the protocol has none for them.

        Args:
            changes: In order.
            cursor: A client that resumes here misses nothing after these changes.
        """
        ...


class _Over(Exception):
    """The protocol's stream has its last event."""


class DoorStream(EventStream):
    """What a run does, until its end or until the writer is over."""

    def __init__(
        self,
        state: ApiState,
        target: Target,
        found: RunState,
        *,
        writer: Writer,
        permit: StreamPermit,
    ) -> None:
        """Take the run as it was found, and what writes it."""
        super().__init__(
            permit=permit,
            metrics=state.services.metrics,
            heartbeat_s=state.services.settings.api.heartbeat_s,
            about={"run_id": target.run_id},
        )
        self._state = state
        self._target = target
        self._found = found
        self._writer = writer

    async def follow(self, client: StreamClient) -> Ending:
        """Send the changes of the run's items."""
        feed = ItemFeed(self._target.run_id, self._read)
        before = await feed.resume(self._target.after)
        if body := await self._writer.begin(self._found, before):
            await client.send(body)
        try:
            return await self._state.follower.follow(self._target, self._found, _Client(client, feed, self._writer))
        except _Over:
            return "over"

    async def _read(self, from_step: int | None) -> TurnContents | None:
        async with self._state.services.database.connection() as connection:
            return await load_run_contents(connection, self._target.tenant_id, self._target.run_id, from_step=from_step)


class _Client:
    """The client side of a response of a door."""

    def __init__(self, client: StreamClient, feed: ItemFeed, writer: Writer) -> None:
        self.idle_every_s = client.idle_every_s
        self._client = client
        self._feed = feed
        self._writer = writer

    async def on_events(self, events: Sequence[LiveEvent]) -> None:
        changes = await self._feed.take(events)
        if changes and (body := await self._writer.write(changes, events[-1].cursor)):
            await self._client.send(body)
        if self._writer.is_over:
            raise _Over

    async def on_idle(self) -> None:
        await self._client.on_idle()

    async def until_gone(self) -> None:
        await self._client.until_gone()
