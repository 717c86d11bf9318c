"""Cancels orders: their open runs stop, their drafts are destroyed, and nothing of them is in the result."""

from __future__ import annotations

from typing import Final

from nova_workers.base.errors import Conflict, IllegalTransition, missing
from nova_workers.base.vocabulary import WorkStopReason
from nova_workers.contracts.orders import AiWorkResultV1
from nova_workers.domain.orders.rules.advance import finish, finish_without_content, open_order
from nova_workers.domain.orders.rules.sealing import OrderKeys
from nova_workers.domain.orders.rules.views import OrderViews
from nova_workers.domain.orders.sql.records import OrderRow, get_order, lock_order, open_runs
from nova_workers.domain.runs.sql.cancel import request_cancel
from nova_workers.ledger.work import UnitOfWork, Work

_CANCELED: Final = "canceled"
_REASON: Final[WorkStopReason] = "needs_human"
_MESSAGE: Final = "The order was canceled."


class OrderCanceller:
    """Applies requests to cancel."""

    def __init__(self, work: Work, keys: OrderKeys) -> None:
        self._work = work
        self._keys = keys
        self._views = OrderViews(keys)

    async def cancel(self, tenant_id: str, trace_id: str, *, by: str) -> AiWorkResultV1:
        """Cancel an order that runs or is in review, and return its result. Repeating the request changes nothing.

        Equal orders that share the execution get this result, too; later ones are executed anew.

        Args:
            trace_id: The order.
            by: The key of the caller.

        Raises:
            NotFound: No such order in this tenant.
            IllegalTransition: It ended otherwise.
        """
        async with self._work.begin() as tx:
            row = await lock_order(tx.connection, trace_id)
            if row is None or row.tenant_id != tenant_id:
                raise missing("work_order", trace_id)
            if row.state != "ended":
                runs = await open_runs(tx.connection, trace_id)
                await self._end(tx, row, by)
                tx.cancel(await request_cancel(tx.connection, tenant_id, runs))
            elif row.reviewed != _CANCELED:
                raise IllegalTransition(
                    f"Work order {trace_id!r} has ended; it can no longer be canceled.", status=row.state
                )
            ended = await get_order(tx.connection, tenant_id, trace_id)
            return await self._views.result(tx.connection, ended, mode=None, shared=False, internal=False, drafts=False)

    async def _end(self, tx: UnitOfWork, row: OrderRow, by: str) -> None:
        try:
            order = await open_order(tx.connection, row, self._keys)
        except Conflict:
            # This process lacks the master key. Nothing of the content is needed: the result only lacks its figures.
            await finish_without_content(
                tx,
                row,
                reason=_REASON,
                needs_human=False,
                reviewed=_CANCELED,
                reviewed_by=by,
                message=_MESSAGE,
            )
            return
        await finish(
            tx,
            order,
            [],
            _REASON,
            cached=False,
            needs_human=False,
            reviewed=_CANCELED,
            reviewed_by=by,
            message=_MESSAGE,
        )
