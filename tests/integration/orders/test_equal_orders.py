"""Equal orders that come at the same moment are executed once."""

from __future__ import annotations

import asyncio

from nova_workers.ledger.database import Database
from tests.requirements import proves
from tests.support.harness.orders import OrderDesk, policy

_ORDERS = 1_000


@proves("order.once")
async def test_a_thousand_equal_orders_at_once_are_executed_once(desk: OrderDesk, database: Database) -> None:
    order, document = desk.order(), policy()
    accepted = await asyncio.gather(*(desk.accept(order, document) for _ in range(_ORDERS)))
    assert len({each.trace_id for each in accepted}) == 1
    assert sum(not each.shared for each in accepted) == 1
    await desk.settle()
    results = await asyncio.gather(*(desk.result(each.trace_id, shared=each.shared) for each in accepted))
    assert {result.stop_reason for result in results} == {"ok"}
    assert len(desk.engine.calls) == 1
    assert await database.fetchval("SELECT count(*) FROM work_orders") == 1
    assert await database.fetchval("SELECT count(*) FROM runs") == 1
