"""Questions of waiting runs: delivered while the run waits, closed when the wait ends, once each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest

from nova_workers.contracts.deliveries import DeliveryItem
from nova_workers.contracts.runs import Accepted
from nova_workers.contracts.waits import Answer
from nova_workers.domain.delivery.rules.channels import ChannelRoutes
from nova_workers.domain.delivery.rules.routing import InboxRouter
from nova_workers.domain.delivery.sql.deliveries import list_deliveries
from nova_workers.domain.tasks.sql.records import list_tasks
from nova_workers.domain.threads.sql.lists import ThreadFilter, list_threads
from nova_workers.domain.threads.sql.records import get_thread
from nova_workers.domain.upkeep.sql.retention import delete_aged
from tests.requirements import proves
from tests.support.harness.fault_injection import Fault
from tests.support.harness.workers import Harness

_ASK: dict[str, Any] = {
    "name": "ask_user",
    "input": {"question": "Tea or coffee?", "options": ["tea", "coffee"], "expires_in_s": 600},
}


class _Channel:
    """A channel that sends nothing: only its rows are looked at."""

    name = "recording"

    async def deliver(self, item: DeliveryItem) -> None:
        raise NotImplementedError(item.id)

    async def close(self) -> None:
        pass


@pytest.fixture
async def fleet(harness: Harness) -> Harness:
    """A fleet with an agent that may ask, and one that needs permission."""
    grants = {"user": {}, "memory": {}}
    await harness.add_agent("a", {"name": "a", "engine": "scripted", "capabilities": grants})
    careful = {"approvals": [{"tool": "memory_*", "decision": "ask"}]}
    await harness.add_agent(
        "careful", {"name": "careful", "engine": "scripted", "capabilities": grants, "permissions": careful}
    )
    return harness


async def _begin(fleet: Harness, call: dict[str, Any], agent_id: str = "a", **fields: Any) -> Accepted:
    message = orjson.dumps({"script": [{"tool": call}, {"say": "done"}]}).decode()
    run = await fleet.submit(message, agent_id=agent_id, **fields)
    await fleet.settle(*(fleet.workers or [fleet.worker()]))
    return run


async def _items(fleet: Harness) -> list[tuple[str, str]]:
    async with fleet.database.connection() as connection:
        return [(one.kind, one.status) for one in await list_deliveries(connection, fleet.tenant_id, limit=10)]


async def _answer(fleet: Harness, run: Accepted) -> None:
    await fleet.waiting.answer(fleet.tenant_id, run.run_id, None, Answer(text="tea"))


async def _expire(fleet: Harness, _: Accepted) -> None:
    await fleet.database.execute("UPDATE run_waits SET due_at = now() WHERE status = 'open'")
    await fleet.reconciler.reconcile()


async def _cancel(fleet: Harness, run: Accepted) -> None:
    await fleet.canceller.cancel(fleet.tenant_id, run.run_id)


@proves("questions.delivered")
async def test_a_question_is_an_inbox_item_and_rings_for_its_delivery(fleet: Harness) -> None:
    run = await _begin(fleet, _ASK, queue="background")
    async with fleet.database.connection() as connection:
        (item,) = await list_deliveries(connection, fleet.tenant_id, limit=10)
    assert (item.kind, item.status, item.run_id, item.thread_id, item.agent_id) == (
        *("question", "pending", run.run_id, run.thread_id, "a"),
    )
    wait_id = await fleet.database.fetchval("SELECT id FROM run_waits")
    due_at = item.payload.pop("due_at")
    assert due_at is not None
    question = {"text": "Tea or coffee?", "options": ["tea", "coffee"], "only_options": False}
    assert item.payload == {"wait_id": wait_id, **question}
    assert fleet.bells.deliveries_rung == 1


@proves("questions.delivered")
async def test_a_call_that_needs_permission_is_an_inbox_item_with_its_input_cut(fleet: Harness) -> None:
    await _begin(fleet, {"name": "memory_save", "input": {"content": "x" * 3_000}}, agent_id="careful")
    async with fleet.database.connection() as connection:
        (item,) = await list_deliveries(connection, fleet.tenant_id, limit=10)
    assert (item.kind, item.payload["tool_name"], item.payload["params_truncated"]) == ("approval", "memory_save", True)
    assert item.payload["params"].startswith('{"content": "xxx')
    assert len(item.payload["params"]) == 2_000


@proves("questions.closed")
@pytest.mark.parametrize("end", [_answer, _expire, _cancel])
async def test_the_item_and_its_unsent_copies_are_closed_when_the_wait_ends(
    fleet: Harness, end: Callable[[Harness, Accepted], Awaitable[None]]
) -> None:
    run = await _begin(fleet, _ASK)
    routes = ChannelRoutes([_Channel()], {"*": ["recording"]})
    await InboxRouter(fleet.database, routes).route_due()
    rows = await fleet.database.fetch("SELECT target, status, kind FROM deliveries ORDER BY id")
    assert [tuple(row) for row in rows] == [("user", "pending", "question"), ("recording", "pending", "question")]
    await end(fleet, run)
    assert {row["status"] for row in await fleet.database.fetch("SELECT status FROM deliveries")} == {"closed"}


@proves("questions.closed")
async def test_of_two_questions_only_the_answered_one_is_closed(fleet: Harness) -> None:
    message = orjson.dumps({"script": [{"tool": [_ASK, _ASK]}, {"say": "done"}]}).decode()
    run = await fleet.submit(message, agent_id="a")
    await fleet.settle(fleet.worker())
    first = await fleet.database.fetchval("SELECT min(id) FROM run_waits")
    await fleet.waiting.answer(fleet.tenant_id, run.run_id, first, Answer(text="tea"))
    assert sorted(await _items(fleet)) == [("question", "closed"), ("question", "pending")]


@proves("questions.once")
@pytest.mark.parametrize("fault", ["crash_before", "crash_after", "lose_reply", "refuse"])
async def test_a_question_is_one_item_whatever_fault_hits_the_suspension(fleet: Harness, fault: Fault) -> None:
    worker = fleet.worker()
    worker.faults.plan(fault, "suspend")
    message = orjson.dumps({"script": [{"tool": _ASK}, {"say": "done"}]}).decode()
    run = await fleet.submit(message, agent_id="a")
    await fleet.settle(worker)
    await worker.stop()
    await fleet.recover()
    await fleet.settle(fleet.worker())
    assert await fleet.status(run.run_id) == "waiting"
    assert await _items(fleet) == [("question", "pending")]


@proves("questions.shown")
async def test_the_thread_and_its_task_show_what_they_wait_for(fleet: Harness) -> None:
    run = await _begin(fleet, _ASK)
    await fleet.database.execute(
        "INSERT INTO tasks (tenant_id, id, title, owner_agent_id, created_by, thread_id, status)"
        " VALUES (:tenant_id, 1, 'Breakfast', 'a', 'person', :thread_id, 'active')",
        tenant_id=fleet.tenant_id,
        thread_id=run.thread_id,
    )

    async def shown() -> set[str | None]:
        async with fleet.database.connection() as connection:
            thread = await get_thread(connection, fleet.tenant_id, run.thread_id)
            (listed,) = await list_threads(connection, fleet.tenant_id, ThreadFilter(), limit=5)
            (task,) = await list_tasks(connection, fleet.tenant_id, limit=5)
        return {thread.waiting_for, listed.waiting_for, task.waiting_for}

    assert await shown() == {"a person's answer"}
    await _answer(fleet, run)
    assert await shown() == {None}


async def test_retention_keeps_a_question_until_it_is_answered(fleet: Harness) -> None:
    run = await _begin(fleet, _ASK)
    await fleet.database.execute("UPDATE deliveries SET created_at = now() - interval '9 days', routed = true")

    async def swept() -> int:
        async with fleet.database.transaction() as connection:
            return await delete_aged(connection, "inbox", days=1, limit=10)

    assert await swept() == 0
    await _answer(fleet, run)
    assert await swept() == 1
