"""notify_user: which runs have it, and its limits."""

import asyncio

import pytest

from nova_workers.base.clock import SystemClock
from nova_workers.base.config import Settings
from nova_workers.base.errors import InvalidInput
from nova_workers.contracts.agents import AgentSpec, CapabilityGrant
from nova_workers.domain.capabilities.rules import default_registry
from nova_workers.domain.delivery.rules.from_agents import MAX_NOTIFICATION_CHARS, MAX_NOTIFICATIONS_PER_RUN
from nova_workers.ledger.database import Database
from tests.integration.capabilities.tool_caller import ToolCaller, add_tenants
from tests.requirements import proves


@pytest.fixture(autouse=True)
async def tenants(database: Database) -> None:
    await add_tenants(database)


async def _said(database: Database) -> list[str]:
    rows = await database.fetch("SELECT payload FROM deliveries WHERE kind = 'notification' ORDER BY id")
    return [row["payload"]["text"] for row in rows]


@proves("deliveries.background")
async def test_only_background_runs_have_it_and_it_cannot_be_granted(database: Database) -> None:
    assert "notifications" in await ToolCaller(database, queue="background", capabilities={}).servers()
    assert "notifications" not in await ToolCaller(database).servers()
    registry = default_registry(database, Settings(), SystemClock())
    with pytest.raises(InvalidInput, match="no capability 'notifications'"):
        registry.validate(AgentSpec(name="x", capabilities={"notifications": CapabilityGrant()}))


async def test_a_notification_is_a_row_of_the_outbox(database: Database) -> None:
    run = ToolCaller(database, queue="background")
    assert await run.call("notify_user", message=" Done\x00 ") == "The user will get it."
    (row,) = await database.fetch("SELECT * FROM deliveries")
    assert (row["tenant_id"], row["agent_id"], row["thread_id"], row["run_id"]) == ("ten_1", "a", "thr_1", "run_1")
    assert (row["kind"], row["target"], row["status"], row["payload"]) == (
        "notification",
        "user",
        "pending",
        {"text": "Done\ufffd"},
    )


async def test_an_equal_notification_is_sent_once_per_run(database: Database) -> None:
    said = await asyncio.gather(
        *(ToolCaller(database, queue="background").call("notify_user", message="Done") for _ in range(4))
    )
    assert sorted(said) == [*["The user will get it."], *["You have said that already; it was not sent again."] * 3]
    await ToolCaller(database, queue="background", run_id="run_2").call("notify_user", message="Done")
    assert await _said(database) == ["Done", "Done"]


@proves("deliveries.bounded")
async def test_the_notifications_of_a_run_are_limited(database: Database) -> None:
    run = ToolCaller(database, queue="background")
    said = await asyncio.gather(
        *(run.call("notify_user", message=str(number)) for number in range(MAX_NOTIFICATIONS_PER_RUN + 2))
    )
    assert sum(text.startswith("!This run has handed 10 of the kind 'notification'") for text in said) == 2
    assert len(await _said(database)) == MAX_NOTIFICATIONS_PER_RUN
    other = ToolCaller(database, queue="background", run_id="run_2")
    assert await other.call("notify_user", message="x") == "The user will get it."


@pytest.mark.parametrize("message", ["", "   ", "x" * (MAX_NOTIFICATION_CHARS + 1), None, 7])
async def test_an_invalid_message_is_explained_to_the_model(database: Database, message: object) -> None:
    said = await ToolCaller(database, queue="background").call("notify_user", message=message)
    assert said.startswith("!notify_user was called with arguments that it cannot use: message: ")
    assert await _said(database) == []
