"""Applies committed cancel requests and interrupts at once.

After a crash before this, leases and the reconciler apply them.
"""

from __future__ import annotations

from collections.abc import Sequence

from nova_workers.contracts.events import StreamEnd
from nova_workers.contracts.http.wire import MAX_BULK_CANCEL
from nova_workers.contracts.orchestration.events import TreeNews
from nova_workers.contracts.runs import CancelRequest
from nova_workers.domain.runs.rules.control import ControlChannel
from nova_workers.domain.runs.rules.parents import resolve_parents
from nova_workers.domain.runs.sql.cancel import request_cancel
from nova_workers.domain.streams.rules.publisher import EventPublisher
from nova_workers.domain.waits.sql.release import find_awaited_children, find_stuck, release_waiting
from nova_workers.ledger.work import Work


class CancelApplier:
    """Stops what was canceled, and ends what follows from it. Implements `contracts.ports.CancelNotifier`."""

    def __init__(self, work: Work, control: ControlChannel, publisher: EventPublisher) -> None:
        """Take the channel to workers, and `work` without a notifier: this is it."""
        self._work = work
        self._control = control
        self._publisher = publisher

    def announce_tree(self, news: TreeNews) -> None:
        """Publish what a transaction changed in an orchestration."""
        self._publisher.announce_tree(news)

    async def notify_order(self, order_id: str) -> None:
        """Notify the requests that wait for a work order."""
        await self._control.notify_order(order_id)

    async def apply_requests(self, requests: Sequence[CancelRequest]) -> None:
        """Notify the workers that hold the runs, announce the runs that ended at once, and end what waited for them."""
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
        async with self._work.database.connection() as connection:
            stuck = await find_stuck(connection, limit=MAX_BULK_CANCEL)
        await self._release(stuck)
        return len(stuck)

    async def _release(self, run_ids: Sequence[str]) -> None:
        """Requeue waiting runs that are to be canceled, and cancel the child runs that they waited for."""
        if not run_ids:
            return
        # The children first: after a crash the run still waits, and the reconciler finds it. A transaction of its own,
        # since a child's end locks its own rows before those of its parent.
        async with self._work.database.connection() as connection:
            children = await find_awaited_children(connection, run_ids)
            requests = [
                request
                for tenant_id, child_ids in children.items()
                for request in await request_cancel(connection, tenant_id, child_ids)
            ]
        async with self._work.begin() as tx:
            tx.ring(await release_waiting(tx.connection, run_ids))
        if requests:
            await self.apply_requests(requests)

    async def _resolve_parents(self, run_ids: Sequence[str]) -> None:
        if not run_ids:
            return
        async with self._work.begin() as tx:
            tx.ring(await resolve_parents(tx.connection, run_ids))

    def _announce(self, requests: Sequence[CancelRequest]) -> None:
        """End the streams of runs that were canceled while queued, and ring for the next run of each thread."""
        for request in requests:
            if request.ended:
                run_id = request.doorbell.run_id
                end = StreamEnd(run_id=run_id, final=True, status="canceled", stop_reason="aborted")
                self._publisher.announce_end(run_id, end)
        # A canceled run may have blocked the next one; a run that had begun is ended by its next claim.
        self._work.ring([each.doorbell for each in requests if not each.running and not each.waiting])
