"""What needs a person: one request counts it and has the newest."""

from __future__ import annotations

from typing import Any

import pytest

from nova_workers.base.clock import SystemClock
from nova_workers.client.client import NovaClient
from nova_workers.contracts.runs import TurnFacts
from nova_workers.contracts.usage import TokenUsage
from nova_workers.contracts.waits import AskApproval, AskUser, Pause, WaitRequest
from nova_workers.domain.overview.sql.attention import find_attention
from nova_workers.domain.waits.sql.suspend import NewWait, suspend_run
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import ManualWorker, Tenant, make_tenant

GROUPS = {"questions", "approvals", "orchestrations", "orders", "triggers", "tasks", "webhooks"}


async def _asks(api: Api, worker: ManualWorker, *requests: WaitRequest) -> str:
    thread_id = await api.thread()
    run_id = await api.run(thread_id)
    turn = await worker.claim(thread_id)
    waits = [NewWait(f"call_{at}", request) for at, request in enumerate(requests)]
    async with worker.database.connection() as connection:
        await suspend_run(connection, turn.claim, waits, TokenUsage(), TurnFacts("unified", "sandbox", {}))
    return run_id


async def test_nothing_needs_a_person_at_first(api: Api) -> None:
    found = (await api.http.get("/v1/attention")).json()
    assert found == {**{group: {"count": 0, "items": []} for group in GROUPS}, "running": 0}


async def test_questions_and_approvals_show_the_run_and_what_is_asked(api: Api, worker: ManualWorker) -> None:
    first = await _asks(api, worker, AskUser(question="Tea?"), Pause(until=SystemClock().now()))
    second = await _asks(api, worker, AskUser(question="Milk?"), AskApproval(tool_name="Bash", params={}, reason="rm"))
    async with NovaClient(api.url, api.tenant.key) as nova:
        found = await nova.overview.attention()
    assert found.questions is not None
    assert found.approvals is not None
    assert found.questions.count == 2
    assert [(item.title, item.run_id) for item in found.questions.items] == [("Milk?", second), ("Tea?", first)]
    (approval,) = found.approvals.items
    assert (approval.title, approval.reason, approval.agent_id, approval.run_id) == ("Bash", "rm", "nova", second)
    body = {"text": "yes", "wait_id": found.questions.items[1].id}
    assert (await api.http.post(f"/v1/runs/{first}/answers", json=body)).status_code == 200
    left = (await api.http.get("/v1/attention", params={"limit": 0})).json()
    assert left["questions"] == {"count": 1, "items": []}


async def test_an_orchestration_whose_agent_asks_is_named(api: Api, worker: ManualWorker) -> None:
    tree = (await api.http.post("/v1/orchestrations", json={"task": "Build it"})).json()
    turn = await worker.claim(tree["thread_id"])
    async with worker.database.connection() as connection:
        wait = NewWait("call_1", AskUser(question="Which colour?"))
        await suspend_run(connection, turn.claim, [wait], TokenUsage(), TurnFacts("unified", "sandbox", {}))
    found = (await api.http.get("/v1/attention")).json()
    (item,) = found["orchestrations"]["items"]
    assert (item["id"], item["title"], item["orchestration_id"]) == (tree["id"], "Build it", tree["id"])
    assert found["questions"]["items"][0]["orchestration_id"] == tree["id"]


async def test_paused_triggers_parked_tasks_failing_webhooks_and_orders_in_review_are_named(
    api: Api, database: Database
) -> None:
    trigger = {"agent_id": "nova", "kind": "every", "schedule": "3600", "prompt": "Look", "title": "Watch"}
    trigger_id = (await api.http.post("/v1/triggers", json=trigger)).json()["id"]
    task = (
        await api.http.post("/v1/tasks", json={"title": "Move", "owner_agent_id": "nova", "status": "active"})
    ).json()
    await database.execute(
        """
WITH paused AS (
    UPDATE triggers SET paused_reason = 'Five runs failed.'
), parked AS (
    UPDATE tasks SET parked_reason = 'No progress.'
), webhook AS (
    INSERT INTO webhooks (id, tenant_id, url, secret, key_id, failures)
    VALUES ('whk_1', :tenant_id, 'https://example.com', 'secret', 'k', 3),
           ('whk_2', :tenant_id, 'https://example.org', 'secret', 'k', 0)
)
INSERT INTO work_orders (id, tenant_id, scope, policy_id, policy_version, schema_version, trace, fingerprint, state,
                         max_rounds, max_tokens, max_cost_usd, least_output_tokens, ttl_hours, deadline_at)
VALUES ('trc_1', :tenant_id, 's', 'copy', '1', '1', '{}', 'f', 'review', 1, 1, 1, 1, 1, now()),
       ('trc_2', :tenant_id, 's', 'copy', '1', '1', '{}', 'f', 'ended', 1, 1, 1, 1, 1, now())
""",
        tenant_id=api.tenant.id,
    )
    found = (await api.http.get("/v1/attention")).json()
    named = {
        group: (found[group]["count"], *((item["id"], item["title"], item["reason"]) for item in found[group]["items"]))
        for group in ("triggers", "tasks", "webhooks", "orders")
    }
    assert named == {
        "triggers": (1, (trigger_id, "Watch", "Five runs failed.")),
        "tasks": (1, (str(task["id"]), "Move", "No progress.")),
        "webhooks": (1, ("whk_1", "https://example.com", "3 attempts failed one after the other.")),
        "orders": (1, ("trc_1", "copy", None)),
    }


@pytest.mark.parametrize(
    ("scopes", "shown"),
    [
        (("runs",), {"questions", "approvals", "orchestrations", "orders", "running"}),
        (("workspace",), {"triggers", "tasks", "webhooks"}),
        (("keys",), set[str]()),
    ],
)
async def test_a_key_gets_the_groups_of_its_scopes(
    api: Api, database: Database, scopes: tuple[str, ...], shown: set[str]
) -> None:
    key = (await make_tenant(database, scopes, api.tenant.id)).key
    async with api.client(key) as narrow:
        found: dict[str, Any] = (await narrow.get("/v1/attention")).json()
    assert {group for group, value in found.items() if value is not None} == shown


async def test_the_running_runs_of_a_key_s_own_tenant_are_counted(
    api: Api, other_tenant: Tenant, worker: ManualWorker
) -> None:
    thread_id = await api.thread()
    await api.run(thread_id)
    await api.run(thread_id, "it waits for the first")
    await worker.claim(thread_id)
    # Its key has all scopes: for `operator`, the page of the fleet counts the runs of all tenants.
    assert (await api.http.get("/v1/attention")).json()["running"] == 1
    async with api.client(other_tenant.key) as other:
        assert (await other.get("/v1/attention")).json()["running"] == 0


async def test_another_tenant_s_questions_are_not_counted(api: Api, other_tenant: Tenant, worker: ManualWorker) -> None:
    await _asks(api, worker, AskUser(question="Tea?"))
    async with api.client(other_tenant.key) as other:
        assert (await other.get("/v1/attention")).json()["questions"] == {"count": 0, "items": []}


async def test_a_question_is_counted_however_many_approvals_are_newer(
    api: Api, database: Database, worker: ManualWorker
) -> None:
    run_id = await _asks(api, worker, AskUser(question="Tea?"))
    await database.execute(
        "INSERT INTO run_waits (id, tenant_id, run_id, tool_call_id, kind, request)"
        " SELECT 'wait_Z' || n, :tenant_id, :run_id, 'call_Z' || n, 'approval', '{\"tool_name\": \"Bash\"}'"
        " FROM generate_series(1, 1001) n",
        tenant_id=api.tenant.id,
        run_id=run_id,
    )
    found = (await api.http.get("/v1/attention")).json()
    assert [item["title"] for item in found["questions"]["items"]] == ["Tea?"]
    assert (found["questions"]["count"], found["approvals"]["count"]) == (1, 1000)


async def test_many_open_timers_are_not_read(api: Api, database: Database, worker: ManualWorker) -> None:
    run_id = await _asks(api, worker, AskUser(question="Tea?"))
    await database.execute(
        "INSERT INTO run_waits (id, tenant_id, run_id, tool_call_id, kind, request)"
        " SELECT 'wait_' || n, :tenant_id, :run_id, 'call_' || n, 'timer', '{}' FROM generate_series(1, 5000) n",
        tenant_id=api.tenant.id,
        run_id=run_id,
    )
    await database.execute("VACUUM ANALYZE run_waits")
    async with database.connection() as connection:
        found = await find_attention(connection, api.tenant.id, {"runs:read"}, limit=5)
    assert found.questions is not None
    assert found.questions.count == 1
    plan = await database.fetch(
        "EXPLAIN SELECT id FROM run_waits WHERE tenant_id = :tenant_id AND status = 'open'"
        " AND kind = 'user' ORDER BY id DESC LIMIT 1000",
        tenant_id=api.tenant.id,
    )
    assert any("ix_run_waits__asks" in line[0] for line in plan), [line[0] for line in plan]
