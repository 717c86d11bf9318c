"""What handlers do with runs: the calls of the service, with what this protocol adds."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from starlette.requests import Request

from nova_workers.base.errors import IllegalTransition, InvalidInput
from nova_workers.base.stopping import stop_tasks
from nova_workers.base.vocabulary import ENDED_RUNS
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.scopes import Scope
from nova_workers.contracts.http.wire import AgentView, RunView, StatelessRunCreate

from ...auth import Caller, caller_of
from ...pagination import PageRequest
from ...state import ApiState, state_of
from ...workers import name_missing_worker
from ..items import FileItem, ToolCallItem, ToolResultItem
from ..questions import is_settled
from ..service import Door
from .protocol import Context

PROGRESS_EVERY_S = 10.0
"""Clients end a call of which they hear nothing for 60 s, by default."""


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
            request_id: Names the request of this key: a repetition returns the first run.

        Raises:
            NotFound: There is no such agent, or no such thread.
            InvalidInput: The thread is another agent's.
        """
        self.need("runs")
        addressee = {"agent_id": agent_id}
        if thread_id is not None:
            if (thread := await self.door.thread(thread_id)).agent_id != agent_id:
                raise InvalidInput(
                    f"The thread {thread_id!r} is one of {thread.agent_id!r}. Use its tool, or leave out thread_id.",
                    field="thread_id",
                )
            addressee = {"thread_id": thread_id}
        body = StatelessRunCreate.model_validate({"message": message, **addressee})
        # Models choose names such as "1": another person's in the same tenant are other requests.
        named = None if request_id is None else f"{self.caller.key_id} {request_id}"
        begun = await self.door.submit(body, key=self.door.key(named, body))
        return await self.get(begun.run_id)

    async def agents(self, paging: PageRequest) -> Page[AgentView]:
        """Return a page of the agents that the key may send messages to, by their ids.

        Raises:
            InvalidCursor: The cursor is none of this list.
        """
        self.need("runs")
        listing = paging.of(self.caller.tenant_id, "mcp_agents", str)
        rows = await self.state.services.agents.list(self.caller.tenant_id, after=listing.key, limit=listing.rows)
        return listing.page(rows, lambda agent: agent.id)

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

    async def files(self, run: RunView) -> Sequence[FileItem]:
        """Return the files that a run sent, if it has ended and the key may read files."""
        if run.status not in ENDED_RUNS or not self.may("workspace"):
            return ()
        return [item for item in await self.door.items(run.id) if isinstance(item, FileItem)]

    async def activity(self, run: RunView) -> str | None:
        """Return the tool that a run executes, if there is one."""
        if run.status != "running":
            return None
        items = await self.door.items(run.id)
        done = {item.call_id for item in items if isinstance(item, ToolResultItem)}
        calls = [item.tool_name for item in items if isinstance(item, ToolCallItem) and item.call_id not in done]
        return calls[-1] if calls else None

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


async def never() -> NoReturn:
    """Wait until canceled. The SDK cancels a handler whose client disconnects."""
    await asyncio.Event().wait()
    raise AssertionError("unreachable: nothing sets the event")
