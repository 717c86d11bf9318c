"""People and operators change what orders depend on while they are open: every order still ends well."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import replace
from typing import Any

import orjson
import pytest

from nova_workers.base.master_keys import FixedKeys
from nova_workers.contracts.engine import EngineResult
from nova_workers.contracts.usage import TokenUsage
from nova_workers.domain.orders.rules.advance import finish_without_content
from nova_workers.domain.orders.rules.cancel import OrderCanceller
from nova_workers.domain.orders.rules.sealing import OrderKeys
from nova_workers.domain.orders.rules.secrets import OrderSecrets
from nova_workers.domain.orders.rules.tick import OrderTicker
from nova_workers.domain.orders.sql.records import lock_order
from nova_workers.domain.secrets.rules.vault import Vault
from tests.support.harness.logs import recorded_logs
from tests.support.harness.orders import AnsweringEngine, OrderDesk, policy, proposal

OTHER_KEY = f"other:{base64.b64encode(bytes(range(1, 33))).decode()}"
ESCALATING = {"stopReasons": [], "belowConfidence": 0.95}


def _desk_keys(desk: OrderDesk) -> list[str]:
    return list(desk.settings.secrets.source.texts())


async def test_an_order_is_executed_although_its_reserved_agent_was_given_another_engine(desk: OrderDesk) -> None:
    await desk.harness.add_agent("work-orders", {"name": "Mine", "engine": "scripted"})
    assert (await desk.run(policy())).stop_reason == "ok"
    assert [call.model for call in desk.engine.calls] == ["craft"]


async def test_an_answer_that_is_nested_too_deep_is_sent_back(desk: OrderDesk) -> None:
    for depth in (100, 252, 300, 900):
        desk.engine.calls.clear()
        document = orjson.loads(proposal())
        text = orjson.dumps({**document, "value": ["deep"]}).decode().replace('["deep"]', "[" * depth + "]" * depth)
        desk.engine.answers = {"craft": [text, proposal("Shallow")]}
        result = await desk.run(policy(), desk.order({"depth": depth}))
        assert result.stop_reason == "ok", depth
        assert len(desk.engine.calls) == 2


async def test_orders_in_review_stay_readable_after_the_master_key_was_replaced(desk: OrderDesk) -> None:
    accepted = await desk.accept(desk.order(), policy(escalation=ESCALATING))
    await desk.settle()
    assert (await desk.row(accepted.trace_id)).state == "review"
    rotated = await OrderSecrets(desk.database, Vault.of(FixedKeys([OTHER_KEY, *_desk_keys(desk)]))).reseal()
    assert (rotated.rotated, rotated.remaining, rotated.unreadable) == (1, 0, 0)
    row = await desk.row(accepted.trace_id)
    assert row.data_key_id == "other"
    OrderKeys(Vault.of(FixedKeys([OTHER_KEY]))).open(row.tenant_id, row.id, row.data_key_id, row.data_key)


async def test_a_process_without_the_master_key_ends_no_order_whose_time_is_not_over(desk: OrderDesk) -> None:
    accepted = await desk.accept(desk.order(), policy({"craft": "craft", "second": "craft"}))
    (lost, _) = await desk.parts(accepted.trace_id)
    await desk.harness.canceller.cancel(desk.tenant_id, lost.run_id)
    other = OrderTicker(desk.harness.work, OrderKeys(Vault.of(FixedKeys([OTHER_KEY]))))
    await other.tick()
    assert (await desk.row(accepted.trace_id)).state == "running"
    await desk.ticker.tick()
    await desk.settle()
    assert (await desk.result(accepted.trace_id)).stop_reason == "ok"


@pytest.mark.parametrize("state", ["running", "review"])
async def test_an_order_is_canceled_by_a_process_without_the_master_key(desk: OrderDesk, state: str) -> None:
    accepted = await desk.accept(desk.order(), policy(escalation=ESCALATING))
    if state == "review":
        await desk.settle()
    assert (await desk.row(accepted.trace_id)).state == state
    keys = OrderKeys(Vault.of(FixedKeys([OTHER_KEY])))
    canceller = OrderCanceller(desk.harness.work, keys)
    canceled = await canceller.cancel(desk.tenant_id, accepted.trace_id, by="key_1")
    assert (canceled.status, canceled.stop_reason, canceled.needs_human) == ("failed", "needs_human", False)
    assert canceled.extensions is not None
    assert canceled.extensions.message == "The order was canceled."
    # The same again, from a process with the key too, and for readers of whichever mode.
    for each in (canceller, OrderCanceller(desk.harness.work, desk.keys)):
        assert await each.cancel(desk.tenant_id, accepted.trace_id, by="key_2") == canceled
    assert await desk.result(accepted.trace_id) == canceled
    row = await desk.row(accepted.trace_id)
    assert (row.reviewed, row.data_key, row.sealed) == ("canceled", None, None)
    await desk.settle()
    assert await desk.result(accepted.trace_id) == canceled


async def test_a_process_without_the_master_key_leaves_an_overdue_order_to_one_that_has_it(desk: OrderDesk) -> None:
    accepted = await desk.accept(desk.order(), policy({"craft": "craft", "critic": "review"}))
    worker = desk.harness.worker()
    await worker.answer(desk.harness.bells.take()[0])
    await desk.database.execute("UPDATE work_orders SET deadline_at = now() - interval '1 second'")
    await OrderTicker(desk.harness.work, OrderKeys(Vault.of(FixedKeys([OTHER_KEY])))).tick()
    assert (await desk.row(accepted.trace_id)).state == "running"
    await desk.ticker.tick()
    result = await desk.result(accepted.trace_id)
    assert (result.stop_reason, len(result.artifacts)) == ("round_cap_exceeded", 1)


async def test_an_order_that_ends_without_its_content_is_in_its_trail(desk: OrderDesk) -> None:
    accepted = await desk.accept(desk.order(), policy())
    await desk.database.execute(
        "UPDATE work_orders SET data_key_id = 'lost', deadline_at = now() - interval '2 minutes'"
    )
    await desk.ticker.tick()
    rows = await desk.database.fetch(
        "SELECT audience FROM work_order_trail WHERE order_id = :id AND event = 'ended'", id=accepted.trace_id
    )
    assert sorted(row["audience"] for row in rows) == ["customer", "internal"]


async def test_an_order_that_another_process_ended_meanwhile_keeps_its_result(desk: OrderDesk) -> None:
    before = await desk.run(policy())
    rung = desk.harness.bells.deliveries_rung
    async with desk.harness.work.begin() as tx:
        row = await lock_order(tx.connection, before.trace_id)
        assert row is not None
        await finish_without_content(tx, row)
    assert desk.harness.bells.deliveries_rung == rung
    assert await desk.result(before.trace_id) == before


async def test_another_document_with_the_same_version_is_executed_anew(desk: OrderDesk) -> None:
    await desk.run(policy())
    again = await desk.accept(desk.order(), policy(satisfied={"minConfidence": 0.99}))
    assert not again.shared


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE threads SET deleted_at = now() WHERE agent_id = 'work-orders'",
        "DELETE FROM threads WHERE agent_id = 'work-orders'",
        "UPDATE agents SET deleted_at = now() WHERE id = 'work-orders'",
    ],
)
async def test_an_order_ends_although_its_threads_or_agent_were_deleted(desk: OrderDesk, statement: str) -> None:
    accepted = await desk.accept(desk.order(), policy())
    await desk.database.execute(statement)
    await desk.settle()
    await desk.database.execute("UPDATE work_orders SET deadline_at = now() - interval '1 second'")
    await desk.ticker.tick()
    row = await desk.row(accepted.trace_id)
    assert row.state == "ended"


class StoppedEngine(AnsweringEngine):
    """Is stopped in the middle of its first call, whose tokens the provider charges."""

    async def run(self, *args: Any, **named: Any) -> EngineResult:
        """Answer, or report the call that was stopped."""
        result = await super().run(*args, **named)
        return replace(result, text="", stop_reason="aborted") if named["abort"].aborted else result


async def test_calls_of_an_attempt_that_was_stopped_count_for_the_caps(desk: OrderDesk) -> None:
    desk.engine = StoppedEngine({}, usage=TokenUsage(input_tokens=10, output_tokens=10, cost_usd=0.9))
    desk.harness.engines["scripted"] = desk.engine
    stopped, healthy = desk.harness.worker(), desk.harness.worker()

    async def stop() -> None:
        stopped.drain()
        stopped.stop_in_mid_step()

    desk.engine.before = stop
    accepted = await desk.accept(desk.order(), policy(roles={"craft": "craft", "critic": "review"}))
    bells = desk.harness.bells.take()
    await asyncio.gather(*[stopped.answer(bell) for bell in bells])
    (part,) = await desk.parts(accepted.trace_id)
    assert (part.used_usd, part.used_tokens, part.stop_reason) == (0.9, 20, None)
    desk.engine.before = None
    desk.harness.bells.waiting.extend(bells)
    await desk.settle(healthy)
    result = await desk.result(accepted.trace_id)
    assert result.stop_reason == "cost_cap_exceeded"


async def test_what_the_database_says_of_a_result_that_it_refuses_is_not_logged(desk: OrderDesk) -> None:
    await desk.database.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'refused: %', NEW.outcome; END $$"
    )
    await desk.database.execute(
        "CREATE TRIGGER refuse BEFORE UPDATE ON work_orders FOR EACH ROW WHEN (NEW.outcome IS NOT NULL)"
        " EXECUTE FUNCTION refuse()"
    )
    desk.engine.answers = {"craft": proposal("xanthic-quokka")}
    with recorded_logs() as lines:
        accepted = await desk.accept(desk.order(), policy())
        await desk.settle()
        await desk.ticker.tick()
    assert "order.part_not_stored" in lines.getvalue()
    assert "xanthic-quokka" not in lines.getvalue()
    assert "xanthic-quokka" not in str(await desk.database.fetch("SELECT * FROM runs"))
    await desk.database.execute("DROP TRIGGER refuse ON work_orders")
    await desk.ticker.tick()
    assert (await desk.row(accepted.trace_id)).state == "ended"
