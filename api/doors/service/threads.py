"""Conversations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from nova_workers.contracts.http.thread_states import ThreadStateView
from nova_workers.contracts.http.wire import RunView, ThreadView
from nova_workers.domain.runs.sql.reads import find_open_run, list_thread_runs
from nova_workers.domain.threads.sql.items import (
    load_turn_contents,
)
from nova_workers.domain.threads.sql.lineage import TurnPlace, list_turn_places, list_turn_places_upwards
from nova_workers.domain.threads.sql.lists import ThreadFilter, list_threads
from nova_workers.domain.threads.sql.records import (
    create_thread,
    fork_thread,
    get_thread,
    merge_thread_metadata,
    readdress_thread,
)
from nova_workers.domain.threads.sql.states import read_state

from ..items import Item, items_of
from .request import DoorRequest
from .runs import answering_run, as_answered


class ItemPage(NamedTuple):
    """Items of a conversation, oldest first.

    Attributes:
        goes_on_at: The depth with which the next page in the order of reading begins; None at the end.
    """

    items: tuple[Item, ...]
    goes_on_at: int | None


class Threads(DoorRequest):
    """What makes, reads and changes conversations."""

    __slots__ = ()

    async def new_thread(self, agent_id: str, metadata: Mapping[str, Any], *, label: str | None = None) -> ThreadView:
        """Make an empty conversation with an agent.

        Raises:
            NotFound: No such agent in this tenant.
            AgentRenamed: It has another id now.
            Conflict: Another thread has the label.
        """
        async with self.state.services.database.connection() as connection:
            return await create_thread(
                connection,
                self.caller.tenant_id,
                agent_id,
                label=label,
                metadata=metadata,
                created_by=self.caller.principal,
            )

    async def readdress(self, thread_id: str, agent_id: str) -> ThreadView | None:
        """Make a conversation that has no run yet that of another agent. None if it has one, or there is no such agent.

        For protocols whose clients name the agent with the first message only.
        """
        async with self.state.services.database.connection() as connection:
            return await readdress_thread(connection, self.caller.tenant_id, thread_id, agent_id)

    async def merge_metadata(self, thread_id: str, metadata: Mapping[str, Any]) -> ThreadView:
        """Set keys of a conversation's metadata; the others stay.

        Raises:
            NotFound: No such thread in this tenant.
            Gone: It was deleted.
        """
        async with self.state.services.database.connection() as connection:
            return await merge_thread_metadata(connection, self.caller.tenant_id, thread_id, metadata)

    async def fork(self, thread_id: str, *, label: str | None = None) -> ThreadView:
        """Make a conversation that continues after the last finished turn of this one.

        Raises:
            NotFound: No such thread in this tenant.
            Gone: It was deleted.
            Conflict: It has no finished turn, or another thread has the label.
        """
        async with self.state.services.database.connection() as connection:
            return await fork_thread(
                connection, self.caller.tenant_id, thread_id, label=label, created_by=self.caller.principal
            )

    async def thread(self, thread_id: str) -> ThreadView:
        """Return a conversation.

        Raises:
            NotFound: No such thread in this tenant.
            Gone: It was deleted.
        """
        async with self.state.services.database.connection() as connection:
            return await get_thread(connection, self.caller.tenant_id, thread_id)

    async def threads(self, *, agent_id: str | None, before: str | None, limit: int) -> list[ThreadView]:
        """Return conversations, newest first, from before the thread `before`: of one agent, or of all."""
        async with self.state.services.database.connection() as connection:
            which = ThreadFilter(agent_id=agent_id)
            return await list_threads(connection, self.caller.tenant_id, which, before=before, limit=limit)

    async def labelled_thread(self, label: str) -> ThreadView | None:
        """Return the thread with a label: a protocol's own name of a conversation is one."""
        async with self.state.services.database.connection() as connection:
            found = await list_threads(connection, self.caller.tenant_id, ThreadFilter(label=label), limit=1)
        return found[0] if found else None

    async def runs_of_thread(self, thread_id: str, *, limit: int) -> list[RunView]:
        """Return the newest runs of a conversation in reverse order of its queue, without the data of images.

        A message that joined another run's turn has the outcome of that run.

        Raises:
            NotFound: No such thread in this tenant.
            Gone: It was deleted.
        """
        tenant_id = self.caller.tenant_id
        async with self.state.services.database.connection() as connection:
            await get_thread(connection, tenant_id, thread_id)
            rows = await list_thread_runs(connection, tenant_id, thread_id, before_seq=None, limit=limit, media=False)
            return [as_answered(run, await answering_run(connection, tenant_id, run)) for run, _ in rows]

    async def open_run(self, thread_id: str) -> RunView | None:
        """Return the run that goes on in a conversation, or goes on next: one that lost its worker is queued.

        None if there is none.
        """
        async with self.state.services.database.connection() as connection:
            return await find_open_run(connection, self.caller.tenant_id, thread_id)

    async def items_of_thread(
        self, thread_id: str, *, at: int | None = None, turns: int = 20, oldest_first: bool = False
    ) -> ItemPage:
        """Return the items of turns of a conversation, with those that a fork inherited.

        Args:
            thread_id: The conversation.
            at: Where an earlier page goes on; None to begin.
            turns: Most turns of a page.
            oldest_first: Whether it is read from its beginning on, and not from its newest turn back.

        Raises:
            NotFound: No such thread in this tenant.
            Gone: It was deleted.
        """
        tenant_id = self.caller.tenant_id
        async with self.state.services.database.connection() as connection:
            await get_thread(connection, tenant_id, thread_id)
            page: list[TurnPlace]
            if oldest_first:
                page = await list_turn_places_upwards(
                    connection, tenant_id, thread_id, from_depth=at or 0, limit=turns + 1
                )
            else:
                below = None if at is None else at + 1
                page = await list_turn_places(connection, tenant_id, thread_id, below_depth=below, limit=turns + 1)
            contents = await load_turn_contents(connection, tenant_id, [turn.id for turn in page[:turns]])
        items = tuple(item for turn in contents for item in items_of(turn))
        return ItemPage(items, page[turns].depth if len(page) > turns else None)

    async def thread_state(self, thread_id: str) -> ThreadStateView:
        """Return the state document of a thread.

        Raises:
            NotFound: No such thread in this tenant.
            Gone: It was deleted.
        """
        async with self.state.services.database.connection() as connection:
            return await read_state(connection, self.caller.tenant_id, thread_id)

    async def delete_thread(self, thread_id: str) -> None:
        """Delete a conversation, and cancel its open runs.

        Raises:
            NotFound: No such thread in this tenant.
            Gone: It was deleted before.
        """
        await self.state.services.canceller.delete_thread(self.caller.tenant_id, thread_id)
