"""Equal orders that come at the same moment are executed once."""

from __future__ import annotations

import asyncio
from pathlib import Path

from redis.asyncio import Redis

from nova_workers.ledger.database import Database, PostgresDatabase
from tests.requirements import proves
from tests.support.harness.orders import OrderDesk, policy
from tests.support.servers.fault_proxy import FaultProxy

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


@proves("unavailable.finds-out")
async def test_an_order_whose_commit_is_not_confirmed_is_accepted_once_as_its_own(
    desk: OrderDesk, redis: Redis, database_url: str, tmp_path: Path
) -> None:
    async with FaultProxy.to_postgres(database_url, tmp_path) as link:
        far = PostgresDatabase(link.url, pool_size=2)
        there = OrderDesk(far, redis, desk.settings)
        link.loses_answer_to = b"COMMIT"
        accepted = await there.accept(desk.order(), policy({"craft": "craft"}))
        await far.close()
    assert (link.loses_answer_to, accepted.shared) == (None, False)
    assert await desk.database.fetchval("SELECT array_agg(id) FROM work_orders") == [accepted.trace_id]
    assert (await desk.accept(desk.order(), policy({"craft": "craft"}))).shared
