"""What handlers do with runs: the calls of the service, with what this protocol adds."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from starlette.requests import Request

from nova_workers.base.errors import IllegalTransition, InvalidInput
from nova_workers.base.stopping import stop_tasks
from nova_workers.base.vocabulary import ENDED_RUNS, EXTERNAL_WAITS
from nova_workers.contracts.deliveries import SentFileView
from nova_workers.contracts.http.keys import Scope
from nova_workers.contracts.http.wire import RunView, StatelessRunCreate
from nova_workers.contracts.waits import RunAnswer
from nova_workers.domain.files.sql import list_files
from nova_workers.domain.threads.sql.records import get_thread

from ...auth import Caller, caller_of
from ...state import ApiState, state_of
from ...streaming.following import Ending, Follower
from ...workers import name_missing_worker
from ..items import ToolCallItem, ToolResultItem
from ..service import Door
from .protocol import Context

PROGRESS_EVERY_S = 10.0
"""Clients end a call of which they hear nothing for 60 s, by default."""

MAX_FILES = 50
"""Most files that a result links to."""


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs that a request may use."""

    door: Door

    @property
    def state(self) -> ApiState:
        """The application's state."""
        return self.door.state

    @property
    def caller(self) -> Caller:
        """Who makes the request."""
        return self.door.caller

    def may(self, scope: Scope) -> bool:
        """Return whether the key has a scope."""
        return self.door.caller.may(scope)

    def need(self, scope: Scope) -> None:
        """Refuse unless the key has a scope.

        Raises:
            Forbidden: The key lacks the scope.
        """
        self.door.caller.need(scope)

    async def submit(
        self, message: str, *, agent_id: str, thread_id: str | None = None, request_id: str | None = None
    ) -> RunView:
        """Send a message to an agent, and return its run.

        Args:
            message: The text.
            agent_id: Who gets it.
            thread_id: The conversation to continue; a new one without it.
            request_id: Names the request: a repetition returns the first run.

        Raises:
            NotFound: There is no such agent, or no such thread.
            InvalidInput: The thread is another agent's.
        """
        self.need("runs")
        addressee = {"agent_id": agent_id}
        if thread_id is not None:
            await self._check_agent(thread_id, agent_id)
            addressee = {"thread_id": thread_id}
        body = StatelessRunCreate.model_validate({"message": message, **addressee})
        begun = await self.door.submit(body, key=self.door.key(request_id, body))
        return await self.get(begun.run_id)

    async def get(self, run_id: str) -> RunView:
        """Return a run, or the one that it joined.

        Raises:
            NotFound: There is no such run.
        """
        self.need("runs")
        return await name_missing_worker(self.state.services.redis, await self.door.run(run_id))

    async def settled(
        self, run: RunView, *, wait_s: float, on_wait: Callable[[RunView, float], Awaitable[None]] | None = None
    ) -> RunView:
        """Return a run once it has ended or asks for something outside the fleet, or after `wait_s` as it is then.

        Args:
            run: As it was last read.
            wait_s: Longest wait.
            on_wait: Is called every ten seconds, with the run and for how long it was waited.
        """
        if is_settled(run) or wait_s <= 0:
            return run
        waiting = asyncio.create_task(self.door.wait(run.id, timeout_s=wait_s))
        waited_s = 0.0
        try:
            while not (await asyncio.wait((waiting,), timeout=PROGRESS_EVERY_S))[0]:
                waited_s += PROGRESS_EVERY_S
                if on_wait is not None:
                    await on_wait(await self.get(run.id), waited_s)
            found = waiting.result()
        finally:
            await stop_tasks((waiting,))
        return found if is_settled(found) else await self.get(run.id)

    async def files(self, run: RunView) -> Sequence[SentFileView]:
        """Return the files that a run sent, if it has ended and the key may read files; the newest of very many."""
        if run.status not in ENDED_RUNS or not self.may("workspace"):
            return ()
        async with self.state.services.database.connection() as connection:
            sent = await list_files(connection, self.caller.tenant_id, thread_id=run.thread_id, limit=MAX_FILES)
        return [file for file in reversed(sent) if file.run_id == run.id]

    async def activity(self, run: RunView) -> str | None:
        """Return the tool that a run executes, if there is one."""
        if run.status != "running":
            return None
        items = await self.door.items(run.id)
        done = {item.call_id for item in items if isinstance(item, ToolResultItem)}
        calls = [item.tool_name for item in items if isinstance(item, ToolCallItem) and item.call_id not in done]
        return calls[-1] if calls else None

    async def answer(self, run_id: str, answer: RunAnswer) -> RunView:
        """Answer a question of a run, or permit or refuse a call, and return the run.

        Raises:
            NotFound: There is no such run.
            Conflict: It was answered before, the run does not wait, or it waits for several and none is named.
            InvalidInput: The answer does not fit.
        """
        self.need("runs")
        return await self.door.answer(run_id, answer)

    async def cancel(self, run_id: str) -> RunView:
        """Cancel a run, and return it. One that has ended stays as it is.

        Raises:
            NotFound: There is no such run.
        """
        run = await self.get(run_id)
        if run.status in ENDED_RUNS:
            return run
        try:
            return await self.door.cancel(run.id)
        except IllegalTransition:
            # It has ended meanwhile.
            return await self.get(run_id)

    async def follow(self, run_id: str, follower: Follower) -> Ending:
        """Pass the events of a run to a follower, until the final one. Return why it ended.

        Raises:
            NotFound: There is no such run.
        """
        return await self.door.watch(run_id, follower)

    async def _check_agent(self, thread_id: str, agent_id: str) -> None:
        async with self.state.services.database.connection() as connection:
            thread = await get_thread(connection, self.caller.tenant_id, thread_id)
        if thread.agent_id != agent_id:
            raise InvalidInput(
                f"The thread {thread_id!r} is one of {thread.agent_id!r}. Use its tool, or leave out thread_id.",
                field="thread_id",
            )


def runs_of(context: Context) -> Runs:
    """Return the runs of who makes a request.

    Raises:
        RuntimeError: The request has not passed the guard.
    """
    request = context.request
    caller = None if request is None else caller_of(request.scope)
    if request is None or caller is None:
        raise RuntimeError("A request came here without a caller.")
    # The SDK reads what comes from the client, and cancels the handler of one that has left.
    return Runs(Door(state_of(request), caller, Request(request.scope, never)))


def is_settled(run: RunView) -> bool:
    """Return whether a run has ended, or waits for something outside the fleet."""
    return run.status in ENDED_RUNS or any(wait.request.kind in EXTERNAL_WAITS for wait in run.waits)


async def never() -> NoReturn:
    """Wait until canceled. The SDK cancels a handler whose client disconnects."""
    await asyncio.Event().wait()
    raise AssertionError("unreachable: nothing sets the event")
