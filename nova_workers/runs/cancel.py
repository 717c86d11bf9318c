"""Cancels, withdraws and edits runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nova_workers.contracts.content import ContentBlock
from nova_workers.contracts.events import StreamEnd
from nova_workers.contracts.http.wire import MAX_BULK_CANCEL, BulkCancel, BulkCanceled
from nova_workers.contracts.orchestration.events import TreeNews
from nova_workers.contracts.ports import Dispatcher
from nova_workers.errors import IllegalTransition, InvalidInput, NotFound
from nova_workers.ledger.database import Database
from nova_workers.ledger.runs import cancel as ledger
from nova_workers.ledger.runs.filters import RunFilter
from nova_workers.ledger.threads.records import delete_thread
from nova_workers.ledger.waits.release import find_awaited_children, find_stuck, release_waiting
from nova_workers.ledger.workspace.former_ids import refuse_former_id
from nova_workers.runs.control import ControlChannel
from nova_workers.runs.parents import resolve_parents
from nova_workers.streams.publisher import EventPublisher

__all__ = ["Canceller"]

_FILTERS = [name for name in BulkCancel.model_fields if name != "dry_run"]


class _Requested(NamedTuple):
    canceled: int
    requested: int

    @property
    def total(self) -> int:
        return self.canceled + self.requested


class Canceller:
    """Cancels, withdraws and edits runs: commits the request to Postgres, then notifies workers for speed."""

    def __init__(
        self, database: Database, control: ControlChannel, publisher: EventPublisher, dispatcher: Dispatcher
    ) -> None:
        self._database = database
        self._control = control
        self._publisher = publisher
        self._dispatcher = dispatcher

    async def cancel(self, tenant_id: str, run_id: str) -> None:
        """Cancel a run. Repeating the request changes nothing.

        Raises:
            NotFound: No such run in this tenant.
            IllegalTransition: The run ended otherwise.
        """
        if (await self._request(tenant_id, [run_id])).total:
            return
        async with self._database.connection() as connection:
            status = await ledger.run_status(connection, tenant_id, run_id)
        if status is None:
            raise NotFound(f"No run {run_id!r}.", kind="run")
        if status != "canceled":
            raise IllegalTransition(f"Run {run_id!r} has {status}; it can no longer be canceled.", status=status)

    async def cancel_many(self, tenant_id: str, which: BulkCancel) -> BulkCanceled:
        """Cancel all open runs that match, up to 1,000 a call; or only count them (`dry_run`).

        Raises:
            InvalidInput: No filter is given.
            AgentRenamed: The agent has another id now.
        """
        if not any(which.model_dump(exclude={"dry_run"}).values()):
            raise InvalidInput(
                f"Give at least one of {', '.join(_FILTERS)}: an empty filter would cancel every run.", field="body"
            )
        wanted = _filter(which)
        async with self._database.connection() as connection:
            await refuse_former_id(connection, tenant_id, which.agent_id)
            runs = await ledger.select_open(connection, tenant_id, wanted, limit=MAX_BULK_CANCEL)
            if which.dry_run:
                unbegun = sum(run.unbegun for run in runs)
                return BulkCanceled(canceled=unbegun, requested=len(runs) - unbegun)
            requests = await ledger.request_cancel_of(connection, tenant_id, runs, wanted)
        done = await self._apply(requests)
        return BulkCanceled(canceled=done.canceled, requested=done.requested)

    async def withdraw(self, tenant_id: str, run_id: str) -> None:
        """Remove a queued run from its queue.

        Raises:
            NotFound: No such run in this tenant.
            IllegalTransition: A worker has begun it; cancel it instead.
        """
        async with self._database.connection() as connection:
            ended = await ledger.withdraw_queued(connection, tenant_id, run_id)
        if not ended:
            await self._refuse_past_queue(tenant_id, run_id, "withdrawn; cancel it instead")
        self._announce([ledger.CancelRequest(ended[0], ended=True, running=False)])
        await self._resolve_parents([run_id])

    async def delete_thread(self, tenant_id: str, thread_id: str) -> None:
        """Delete a thread, and cancel its open runs.

        Raises:
            NotFound: There is no such thread.
            Gone: It was deleted before.
        """
        async with self._database.transaction() as connection:
            requests = await delete_thread(connection, tenant_id, thread_id)
        await self.apply_requests(requests)

    async def edit(self, tenant_id: str, run_id: str, content: Sequence[ContentBlock]) -> None:
        """Replace the message of a queued run.

        Raises:
            NotFound: No such run in this tenant.
            IllegalTransition: A worker has begun it.
        """
        async with self._database.connection() as connection:
            edited = await ledger.edit_queued(connection, tenant_id, run_id, content)
        if not edited:
            await self._refuse_past_queue(tenant_id, run_id, "edited; send another message instead")

    async def _refuse_past_queue(self, tenant_id: str, run_id: str, verb: str) -> None:
        async with self._database.connection() as connection:
            status = await ledger.run_status(connection, tenant_id, run_id)
        if status is None:
            raise NotFound(f"No run {run_id!r}.", kind="run")
        raise IllegalTransition(f"Run {run_id!r} is no longer queued ({status}); it cannot be {verb}.", status=status)

    async def _request(self, tenant_id: str, run_ids: Sequence[str]) -> _Requested:
        async with self._database.connection() as connection:
            requests = await ledger.request_cancel(connection, tenant_id, run_ids)
        return await self._apply(requests)

    async def _apply(self, requests: Sequence[ledger.CancelRequest]) -> _Requested:
        await self.apply_requests(requests)
        ended = sum(request.ended for request in requests)
        return _Requested(ended, len(requests) - ended)

    def announce_tree(self, news: TreeNews) -> None:
        """Publish what a transaction changed in an orchestration."""
        self._publisher.announce_tree(news)

    async def apply_requests(self, requests: Sequence[ledger.CancelRequest]) -> None:
        """Apply committed cancel requests at once. After a crash before this, leases and the reconciler apply them."""
        await self._control.notify_cancel([r.doorbell.run_id for r in requests if r.running], "cancel")
        self._announce(requests)
        await self._resolve_parents([request.doorbell.run_id for request in requests if request.ended])
        await self._release([request.doorbell.run_id for request in requests if request.waiting])

    async def apply_interrupt(self, run_id: str) -> None:
        """Interrupt the active run at once, as a committed message requested."""
        await self._control.notify_cancel([run_id], "interrupt")
        await self._release([run_id])

    async def release_stuck(self) -> int:
        """Release waiting runs whose cancellation was requested but not applied; return how many."""
        async with self._database.connection() as connection:
            stuck = await find_stuck(connection, limit=MAX_BULK_CANCEL)
        await self._release(stuck)
        return len(stuck)

    async def _release(self, run_ids: Sequence[str]) -> None:
        """Requeue waiting runs that are to be canceled, and cancel the child runs that they waited for."""
        if not run_ids:
            return
        # The children first: after a crash the run still waits, and the reconciler finds it. A transaction of its own,
        # since a child's end locks its own rows before those of its parent.
        async with self._database.connection() as connection:
            children = await find_awaited_children(connection, run_ids)
            requests = [
                request
                for tenant_id, child_ids in children.items()
                for request in await ledger.request_cancel(connection, tenant_id, child_ids)
            ]
        async with self._database.transaction() as connection:
            bells = await release_waiting(connection, run_ids)
        self._dispatcher.ring_runs(bells)
        if requests:
            await self.apply_requests(requests)

    async def _resolve_parents(self, run_ids: Sequence[str]) -> None:
        if not run_ids:
            return
        async with self._database.transaction() as connection:
            bells = await resolve_parents(connection, run_ids)
        self._dispatcher.ring_runs(bells)

    def _announce(self, requests: Sequence[ledger.CancelRequest]) -> None:
        """End the streams of runs that were canceled while queued, and ring for the next run of each thread."""
        for request in requests:
            if request.ended:
                run_id = request.doorbell.run_id
                end = StreamEnd(run_id=run_id, final=True, status="canceled", stop_reason="aborted")
                self._publisher.announce_end(run_id, end)
        # A canceled run may have blocked the next one; a run that had begun is ended by its next claim.
        self._dispatcher.ring_runs(
            [request.doorbell for request in requests if not request.running and not request.waiting]
        )


def _filter(which: BulkCancel) -> RunFilter:
    statuses = (which.status,) if isinstance(which.status, str) else which.status or ()
    fields = which.model_dump(exclude={"dry_run", "status"})
    return RunFilter(**fields, statuses=frozenset(statuses))
