"""Runs, as they are and as the ledger has them."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Final, NamedTuple

from nova_workers.base.errors import missing
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.events import EventCursor
from nova_workers.contracts.http.wire import RunView
from nova_workers.domain.delivery.rules.task_status import changed_at
from nova_workers.domain.runs.sql.changes import ChangedRuns, count_changed_runs, list_changed_runs
from nova_workers.domain.runs.sql.reads import get_run
from nova_workers.domain.threads.sql.items import (
    RunFacts,
    get_run_facts,
    load_contents_of_runs,
    load_run_contents,
    load_run_message,
)
from nova_workers.ledger.database import Connection

from ...pagination import PageRequest
from ..items import Item, input_item, items_of, items_since, newest_event
from .request import DoorRequest

_OF_TURN: Final = (
    *("status", "attempt", "waiting_for", "waits", "cancel_requested_at", "finished_at"),
    *("stop_reason", "limit_reached", "text", "output", "error"),
)
"""What a message that joined another run's turn has from that run. The turn's tokens are that run's."""


class RecordedRun(NamedTuple):
    """A run with what the ledger has of it. Of a message that joined another run's turn, its outcome is that run's."""

    run: RunView
    facts: RunFacts
    items: tuple[Item, ...]


class Runs(DoorRequest):
    """What reads and deletes runs."""

    __slots__ = ()

    async def run(self, run_id: str) -> RunView:
        """Return a run as it is now. Of a message that joined another run's turn, that run, which answers it.

        Raises:
            NotFound: No such run in this tenant.
        """
        async with self.state.services.database.connection() as connection:
            run = await get_run(connection, self.caller.tenant_id, run_id)
            return await answering_run(connection, self.caller.tenant_id, run)

    async def shown_run(self, run_id: str) -> RunView:
        """Return a run as it is now. Of a message that joined another run's turn, its outcome is that run's.

        Raises:
            NotFound: No such run in this tenant.
        """
        tenant_id = self.caller.tenant_id
        async with self.state.services.database.connection() as connection:
            run = await get_run(connection, tenant_id, run_id)
            return as_answered(run, await answering_run(connection, tenant_id, run))

    async def changed_runs(self, which: ChangedRuns, paging: PageRequest) -> Page[RunView]:
        """Return a page of an agent's runs, those that changed last first.

        Raises:
            InvalidCursor: The cursor is none of this list.
        """
        tenant_id = self.caller.tenant_id
        # A set has another order in each process.
        filters = (which.agent_id, which.thread_id, sorted(which.statuses), which.since)
        listing = paging.of_pairs(tenant_id, "changed_runs", str, str, *filters)
        before = None if listing.key is None else (datetime.fromisoformat(listing.key[0]), listing.key[1])
        async with self.state.services.database.connection() as connection:
            rows = await list_changed_runs(connection, tenant_id, which, before=before, limit=listing.rows)
        return listing.page(rows, lambda run: (changed_at(run).isoformat(), run.id))

    async def count_changed_runs(self, which: ChangedRuns, *, at_most: int) -> int:
        """Return how many of an agent's runs there are, up to `at_most`."""
        async with self.state.services.database.connection() as connection:
            return await count_changed_runs(connection, self.caller.tenant_id, which, at_most=at_most)

    async def facts(self, run_id: str) -> RunFacts:
        """Return the options of a run, the run before it and its tokens by step.

        Raises:
            NotFound: No such run in this tenant, or its thread was deleted.
        """
        async with self.state.services.database.connection() as connection:
            return await get_run_facts(connection, self.caller.tenant_id, run_id)

    async def recorded(self, run_id: str, *, with_items: bool = True) -> RecordedRun:
        """Return a run with what the ledger has of it, by one connection.

        Raises:
            NotFound: No such run in this tenant, or its thread was deleted.
        """
        tenant_id = self.caller.tenant_id
        async with self.state.services.database.connection() as connection:
            facts = await get_run_facts(connection, tenant_id, run_id)
            run = await get_run(connection, tenant_id, run_id)
            run = as_answered(run, await answering_run(connection, tenant_id, run))
            items = await _items_of_run(connection, tenant_id, run_id) if with_items else ()
            return RecordedRun(run, facts, items)

    async def items(self, run_id: str) -> tuple[Item, ...]:
        """Return the committed items of a run, in order, with its message first.

        Of a message that joined another run's turn, it is what that turn has from the message on.

        Raises:
            NotFound: No such run in this tenant.
        """
        async with self.state.services.database.connection() as connection:
            return await _items_of_run(connection, self.caller.tenant_id, run_id)

    async def newest_event(self, run_id: str) -> EventCursor:
        """Return the event after which a client that knows the committed items of a run follows the rest of it."""
        async with self.state.services.database.connection() as connection:
            turn = await load_run_contents(connection, self.caller.tenant_id, run_id)
        return EventCursor() if turn is None else newest_event(turn)

    async def items_of_runs(self, run_ids: Collection[str]) -> list[tuple[Item, ...]]:
        """Return the committed items of the runs that there are and whose turns have begun, in one read."""
        async with self.state.services.database.connection() as connection:
            turns = await load_contents_of_runs(connection, self.caller.tenant_id, run_ids)
        return [items_of(turn) for turn in turns]

    async def delete_run(self, run_id: str) -> None:
        """Delete the thread of a run that is alone in it, and cancel the run if it is open.

        Raises:
            NotFound: No such run in this tenant.
            Gone: The thread was deleted before.
            Conflict: Other runs are in the thread.
        """
        await self.state.services.canceller.delete_only_run(self.caller.tenant_id, run_id)


async def answering_run(connection: Connection, tenant_id: str, run: RunView) -> RunView:
    """Return the run whose turn answers a run's message: another one, if it joined that."""
    while run.merged_into is not None:
        run = await get_run(connection, tenant_id, run.merged_into)
    return run


def as_answered(run: RunView, by: RunView) -> RunView:
    """Return a run with the outcome of the one that answers it."""
    return run if by is run else run.model_copy(update={name: getattr(by, name) for name in _OF_TURN})


async def _items_of_run(connection: Connection, tenant_id: str, run_id: str) -> tuple[Item, ...]:
    turn = await load_run_contents(connection, tenant_id, run_id)
    found = () if turn is None else items_of(turn)
    if found and found[0].step < 0:
        return found
    message = await load_run_message(connection, tenant_id, run_id)
    if message is None:
        raise missing("run", run_id)
    if message.merged_into is not None:
        by = await answering_run(connection, tenant_id, await get_run(connection, tenant_id, message.merged_into))
        turn = await load_run_contents(connection, tenant_id, by.id)
        found = () if turn is None else items_since(items_of(turn), run_id)
    return (input_item(run_id, message.content), *found)
