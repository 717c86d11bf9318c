"""A response that follows a run in the form of a door's protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from nova_workers.contracts.events import EventCursor
from nova_workers.domain.runs.sql.reads import RunState
from nova_workers.domain.streams.rules.wire import LiveEvent
from nova_workers.domain.threads.sql.items import TurnContents, load_run_contents

from ..state import ApiState
from ..streaming.following import Ending, Target, check_cursor
from ..streaming.sse import EventStream, StreamClient
from ..streaming.stream_permits import StreamPermit
from .feed import Change, ItemFeed, Resumed
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

        A client that resumes has the changes up to the cursor that it has: the writer takes note of them, and returns
        of them only what the client lacks.

        Args:
            changes: In order.
            cursor: A client that resumes here misses nothing after these changes.
        """
        ...


class _Over(Exception):
    """The protocol's stream has its last event."""


class Followed(NamedTuple):
    """A run whose events are sent, and its state."""

    target: Target
    found: RunState


class DoorStream(EventStream):
    """What a run does, until its end or until the writer is over.

    A message that joins another run's turn is answered by that run: its stream goes on with what comes after it there.
    """

    def __init__(
        self,
        state: ApiState,
        run_id: str,
        followed: Followed,
        *,
        writer: Writer,
        permit: StreamPermit,
    ) -> None:
        """Take the run, the one that answers it, which is the same unless it joined that, and what writes it."""
        super().__init__(
            permit=permit,
            metrics=state.services.metrics,
            heartbeat_s=state.services.settings.api.heartbeat_s,
            about={"run_id": run_id},
        )
        self._state = state
        self._run_id = run_id
        self._followed = followed
        self._writer = writer

    async def follow(self, client: StreamClient) -> Ending:
        """Send the changes of the run's items."""
        followed = self._followed
        feed, resumed = await self._feed(followed.target)
        if body := await self._writer.begin(followed.found, resumed.before):
            await client.send(body)
        while True:
            listener = _Client(client, feed, self._writer, held=followed.target.after)
            target = replace(followed.target, after=resumed.after)
            try:
                ending = await self._state.follower.follow(target, followed.found, listener)
            except _Over:
                return "over"
            if ending != "over" or listener.joined is None:
                return ending
            followed = await followed_run(self._state, replace(followed.target, run_id=listener.joined))
            feed, resumed = await self._feed(followed.target)

    async def _feed(self, target: Target) -> tuple[ItemFeed, Resumed]:
        async def read(from_step: int | None) -> TurnContents | None:
            async with self._state.services.database.connection() as connection:
                return await load_run_contents(connection, target.tenant_id, target.run_id, from_step=from_step)

        feed = ItemFeed(target.run_id, read)
        joined_by = None if target.run_id == self._run_id else self._run_id
        return feed, await feed.resume(target.after, joined_by=joined_by)


async def followed_run(state: ApiState, target: Target) -> Followed:
    """Return the run whose events a stream has: the one that answers, if the message of the target's joined its turn.

    Raises:
        NotFound: No such run in this tenant.
        CursorFromTheFuture: The cursor is beyond the run's newest event.
    """
    while True:
        found = await state.follower.read_state(target)
        if found.merged_into is None:
            check_cursor(target, found)
            return Followed(target, found)
        target = replace(target, run_id=found.merged_into)


class _Client:
    """The client side of a response of a door.

    Attributes:
        joined: The run whose turn the message joined, once it did.
    """

    def __init__(self, client: StreamClient, feed: ItemFeed, writer: Writer, *, held: EventCursor) -> None:
        self.idle_every_s = client.idle_every_s
        self.joined: str | None = None
        self._client = client
        self._feed = feed
        self._writer = writer
        self._held = held

    async def on_events(self, events: Sequence[LiveEvent]) -> None:
        # What the client has is a part of its own: a piece of text is not joined to one that it lacks.
        new = next((at for at, each in enumerate(events) if each.cursor.key() > self._held.key()), len(events))
        for part in (events[:new], events[new:]):
            if part:
                await self._pass(part)

    async def _pass(self, events: Sequence[LiveEvent]) -> None:
        self.joined = events[-1].event.get("merged_into")
        changes = await self._feed.take(events) if self.joined is None else []
        if changes and (body := await self._writer.write(changes, events[-1].cursor)):
            await self._client.send(body)
        if self._writer.is_over:
            raise _Over

    async def on_idle(self) -> None:
        await self._client.on_idle()

    async def until_gone(self) -> None:
        await self._client.until_gone()
