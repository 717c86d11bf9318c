"""Filters of lists that people narrow down: runs, threads, triggers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from nova_workers.base.vocabulary import FinishStatus
from nova_workers.client.client import NovaClient
from nova_workers.contracts.http.wire import ThreadCreate, ThreadPatch
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import ManualWorker, Tenant


async def test_runs_are_listed_by_several_statuses_in_pages(api: Api, worker: ManualWorker) -> None:
    ended: dict[str, str] = {}
    statuses: tuple[FinishStatus, ...] = ("succeeded", "failed", "canceled")
    for status in statuses:
        thread_id = await api.thread()
        ended[status] = await api.run(thread_id)
        await (await worker.claim(thread_id)).finish(status=status)
    queued = await api.run(await api.thread())
    async with NovaClient(api.url, api.tenant.key) as nova:
        found = await nova.runs.list(status=("queued", "failed"))
        assert [run.id for run in found.items] == [queued, ended["failed"]]
        assert [run.id for run in (await nova.runs.list(status="succeeded")).items] == [ended["succeeded"]]
        first = await nova.runs.list(status=["failed", "canceled"], limit=1)
        # The order of the statuses is not part of the filter; the statuses are.
        second = await nova.runs.list(status=["canceled", "failed"], limit=1, cursor=first.next_cursor)
        assert [run.id for run in (*first.items, *second.items)] == [ended["canceled"], ended["failed"]]
        assert second.next_cursor is None
    wrong = await api.http.get("/v1/runs", params={"status": ["failed"], "cursor": first.next_cursor or ""})
    assert wrong.json()["code"] == "invalid_cursor"
    assert (await api.http.get("/v1/runs", params={"status": ["failed", "broken"]})).status_code == 422


async def test_runs_are_listed_by_time_parent_and_trigger(api: Api, database: Database) -> None:
    run_id, child, fired = [await api.run(await api.thread()) for _ in range(3)]
    await database.execute("UPDATE runs SET parent_run_id = :run_id WHERE id = :child", run_id=run_id, child=child)
    await database.execute("UPDATE runs SET trigger_id = 'trg_1' WHERE id = :fired", fired=fired)
    now = datetime.now(UTC)
    async with NovaClient(api.url, api.tenant.key) as nova:
        assert [run.id for run in (await nova.runs.list(parent_run_id=run_id)).items] == [child]
        assert [run.id for run in (await nova.runs.list(trigger_id="trg_1")).items] == [fired]
        recent = await nova.runs.list(since=now - timedelta(hours=1), until=now + timedelta(hours=1))
        assert [run.id for run in recent.items] == [fired, child, run_id]
        assert (await nova.runs.list(since=now + timedelta(hours=1))).items == []
        assert (await nova.runs.list(until=now - timedelta(hours=1))).items == []
    for query in ({"since": "yesterday"}, {"since": "1780000000"}, {"trigger_id": "a b"}, {"until": "2026-01-01"}):
        assert (await api.http.get("/v1/runs", params=query)).status_code == 422


async def test_the_forks_of_a_thread_are_listed(api: Api, worker: ManualWorker, other_tenant: Tenant) -> None:
    thread_id = await api.thread()
    await api.run(thread_id)
    await worker.play(thread_id)
    forks = [(await api.http.post(f"/v1/threads/{thread_id}/fork", json={})).json()["id"] for _ in range(3)]
    await api.http.delete(f"/v1/threads/{forks[0]}")
    async with NovaClient(api.url, api.tenant.key) as nova:
        first = await nova.threads.list(forked_from=thread_id, limit=1)
        second = await nova.threads.list(forked_from=thread_id, limit=1, cursor=first.next_cursor)
        assert [thread.id for thread in (*first.items, *second.items)] == [forks[2], forks[1]]
        assert second.next_cursor is None
        assert (await nova.threads.list(forked_from=forks[1])).items == []
    async with api.client(other_tenant.key) as other:
        assert (await other.get("/v1/threads", params={"forked_from": thread_id})).json()["items"] == []


async def test_paused_triggers_are_listed(api: Api, database: Database) -> None:
    body = {"agent_id": "nova", "kind": "every", "schedule": "3600", "prompt": "Look"}
    ids = [(await api.http.post("/v1/triggers", json=body)).json()["id"] for _ in range(2)]
    await database.execute("UPDATE triggers SET paused_reason = 'Failed.' WHERE id = :id", id=ids[0])
    async with NovaClient(api.url, api.tenant.key) as nova:
        assert [trigger.id for trigger in (await nova.triggers.list(paused=True)).items] == [ids[0]]
        assert (await nova.triggers.list(paused=True, agent_id="agent-builder")).items == []
        assert len((await nova.triggers.list()).items) == 2


@pytest.mark.parametrize(
    ("query", "index"),
    [
        ("status IN ('failed') ORDER BY id DESC LIMIT 50", "ix_runs__not_succeeded"),
        ("parent_run_id = 'run_1' ORDER BY id DESC LIMIT 50", "ix_runs__parent"),
        ("trigger_id = 'trg_1' ORDER BY id DESC LIMIT 50", "ix_runs__trigger_id_id"),
    ],
)
async def test_filters_of_runs_have_an_index(api: Api, database: Database, query: str, index: str) -> None:
    thread_id = await api.thread()
    await database.execute(
        "INSERT INTO runs (id, tenant_id, thread_id, agent_id, seq, content, status, parent_run_id, trigger_id)"
        " SELECT 'run_' || n, :tenant_id, :thread_id, 'nova', n + 10, '[]',"
        "        CASE WHEN n % 100 = 0 THEN 'failed' ELSE 'succeeded' END,"
        "        CASE WHEN n % 100 = 1 THEN 'run_' || n % 7 END, CASE WHEN n % 100 = 2 THEN 'trg_' || n % 7 END"
        "   FROM generate_series(1, 10000) n",
        tenant_id=api.tenant.id,
        thread_id=thread_id,
    )
    await database.execute("ANALYZE runs")
    plan = await database.fetch(
        f"EXPLAIN SELECT id FROM runs WHERE tenant_id = :tenant_id AND {query}", tenant_id=api.tenant.id
    )
    assert any(index in line[0] for line in plan), [line[0] for line in plan]


async def test_threads_are_listed_by_what_began_them_and_by_their_creator(api: Api, database: Database) -> None:
    made = await api.thread()
    sent = (await api.http.post("/v1/runs", json={"message": "hello"})).json()["thread_id"]
    channel = await api.thread(metadata={"channel": "telegram", "to": "1"})
    first = {"message": "hello", "metadata": {"channel": "mail"}}
    channel_sent = (await api.http.post("/v1/runs", json=first)).json()["thread_id"]
    others_key = (await api.http.post("/v1/keys", json={"name": "other", "scopes": ["runs"]})).json()
    fired = await api.thread()
    await database.execute(
        "UPDATE threads SET origin = 'trigger', created_by = NULL WHERE id = :thread_id", thread_id=fired
    )
    async with NovaClient(api.url, api.tenant.key) as nova, NovaClient(api.url, others_key["key"]) as other:
        theirs = (await other.threads.create(ThreadCreate())).id
        me = (await nova.whoami()).key_id

        async def ids(client: NovaClient = nova, **which: Any) -> list[str]:
            return [thread.id for thread in (await client.threads.list(**which)).items]

        assert await ids(origin="api") == [theirs, sent, made]
        assert await ids(origin="channel") == [channel_sent, channel]
        assert await ids(origin="trigger") == [fired]
        assert await ids(created_by="me") == await ids(created_by=me) == [channel_sent, channel, sent, made]
        assert await ids(other, created_by="me") == await ids(created_by=others_key["id"]) == [theirs]
        assert await ids(created_by="me", origin="channel") == [channel_sent, channel]
        assert (await nova.threads.get(made)).created_by == me
        assert (await nova.threads.get(fired)).created_by is None
        page = await nova.threads.list(created_by="me", limit=1)
        refused = await api.http.get("/v1/threads", params={"origin": "channel", "cursor": page.next_cursor or ""})
    assert refused.json()["code"] == "invalid_cursor"
    for query in ({"origin": "space"}, {"created_by": "a b"}, {"pinned": "yes"}, {"archived": "1"}):
        assert (await api.http.get("/v1/threads", params=query)).status_code == 422, query


async def test_threads_are_pinned_and_archived_and_listed_by_it(api: Api) -> None:
    plain, pinned, archived = [await api.thread(label=f"l{n}") for n in range(3)]
    async with NovaClient(api.url, api.tenant.key) as nova:
        assert (await nova.threads.patch(pinned, ThreadPatch(pinned=True))).pinned
        assert (await nova.threads.patch(archived, ThreadPatch(archived=True))).archived

        async def ids(**which: Any) -> list[str]:
            return [thread.id for thread in (await nova.threads.list(**which)).items]

        assert await ids() == [archived, pinned, plain]
        assert await ids(pinned=True) == [pinned]
        assert await ids(archived=True) == [archived]
        assert await ids(archived=False) == [pinned, plain]
        assert await ids(archived=False, pinned=False) == [plain]
        # Programs find their thread by its label, archived or not; a message leaves it there.
        assert await ids(label="l2") == [archived]
        await api.run(archived)
        assert (await nova.threads.patch(archived, ThreadPatch(title="still"))).archived
        assert not (await nova.threads.patch(archived, ThreadPatch(archived=False))).archived
    for wrong in ({"pinned": None}, {"archived": "true"}):
        assert (await api.http.patch(f"/v1/threads/{plain}", json=wrong)).status_code == 422
