"""Streams of runs, and waits for their end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

from nova_workers.contracts.events import EventCursor
from nova_workers.contracts.http.wire import RunView, StatelessRunCreate
from nova_workers.contracts.runs import RequestKey
from nova_workers.domain.runs.rules.submit import MakeThread
from nova_workers.domain.runs.sql.reads import RunState

from ...acceptance import longest_wait_s, view_at_end
from ...streaming.following import Ending, Follower, Target
from ...streaming.stream_permits import StreamPermit
from ..streams import DoorStream, Followed, Writer, followed_run
from .submitting import Begun, Submitting

_LEAST_WAIT_S: Final = 0.001
"""The wait of a request whose time is over: 0 would be no limit of its own."""


class Following(Submitting):
    """What follows runs."""

    __slots__ = ()

    async def submit_and_follow(
        self,
        message: StatelessRunCreate,
        writer_of: Callable[[Begun], Writer],
        *,
        key: RequestKey | None = None,
        make_thread: MakeThread | None = None,
    ) -> DoorStream:
        """Accept a message as `submit` does, and respond with what its run does.

        A refusal for too many streams creates no run.

        Raises:
            NovaError: It is refused; then there is no run.
        """
        async with self.stream_permit() as permit:
            begun = await self.submit(message, key=key, make_thread=make_thread)
            return await self.follow(begun.run_id, writer_of(begun), found=begun.state, permit=permit)

    def stream_permit(self) -> AbstractAsyncContextManager[StreamPermit]:
        """Hold a permit of a stream, for a request that changes something before its stream begins: see `follow`.

        Raises:
            TooManyStreams: All permits of the key are in use.
        """
        return self.state.permits.hold(self.caller.key_id)

    async def follow(
        self,
        run_id: str,
        writer: Writer,
        *,
        after: EventCursor | None = None,
        found: RunState | None = None,
        permit: StreamPermit | None = None,
    ) -> DoorStream:
        """Respond with what a run does, from its beginning or after an event that the client has.

        Of a message that joins another run's turn, it is what that turn has from the message on.

        Args:
            run_id: Whose events are sent.
            writer: Writes the response.
            after: The event.
            found: The run's state, where it is known.
            permit: Is handed over to the stream. None to take one.

        Raises:
            NotFound: No such run in this tenant.
            CursorFromTheFuture: The cursor is beyond the run's newest event.
            TooManyStreams: All permits of the key are in use.
        """
        target = Target(self.caller.tenant_id, run_id, after or EventCursor())
        followed = await followed_run(self.state, target) if found is None else Followed(target, found)
        if permit is not None:
            return DoorStream(self.state, run_id, followed, writer=writer, permit=permit.handed_over())
        async with self.stream_permit() as own:
            return DoorStream(self.state, run_id, followed, writer=writer, permit=own.handed_over())

    async def watch(self, run_id: str, follower: Follower) -> Ending:
        """Pass the events of a run to a follower up to the final one, and return why it ended.

        The follower's response holds the permit of a stream.

        Raises:
            NotFound: No such run in this tenant.
        """
        target = Target(self.caller.tenant_id, run_id)
        return await self.state.follower.follow(target, await self.state.follower.find(target), follower)

    async def wait(self, run_id: str, *, timeout_s: float | None = None) -> RunView:
        """Return a run when it has ended or asks its caller or a person; as it is then, if that takes too long.

        Of a message that joins another run's turn, it is that run, which answers it.

        Raises:
            NotFound: No such run in this tenant.
        """
        clock = self.state.services.clock
        until_s = clock.monotonic_s() + longest_wait_s(self.state, timeout_s)
        while True:
            left_s = max(until_s - clock.monotonic_s(), _LEAST_WAIT_S)
            run = await view_at_end(self.state, self.caller, self.request, run_id, timeout_s=left_s)
            if run.merged_into is None:
                return run
            run_id = run.merged_into
