"""The stream of a tenant's changes: complete, in order, resumed, and only what the key may read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager

import httpx2

from nova_workers.base.clock import SystemClock
from nova_workers.base.config import Settings
from nova_workers.base.ids import new_id
from nova_workers.contracts.changes import SCOPE_OF
from nova_workers.contracts.waits import AskUser
from nova_workers.domain.changes.rules import ChangeFeed, ChangeHub
from nova_workers.domain.changes.sql import Position, RecordedChange
from nova_workers.domain.upkeep.sql.retention import delete_old_changes
from nova_workers.domain.waits.sql.suspend import NewWait
from nova_workers.ledger.database import Database
from nova_workers.ledger.visibility import all_tenants
from tests.integration.api.conftest import Api, Serve
from tests.integration.api.manual_worker import ManualWorker, Tenant
from tests.integration.api.runs.event_streams import Frame, frames
from tests.requirements import proves
from tests.support.waiting import stays, until

ITEM = """
INSERT INTO deliveries (id, tenant_id, kind, target, payload) VALUES (:id, :tenant_id, 'notification', 'user', '{}')
"""


@asynccontextmanager
async def following(
    http: httpx2.AsyncClient, *subjects: str, after: str | None = None
) -> AsyncGenerator[AsyncGenerator[Frame]]:
    """Open the stream; the block's events come from the value."""
    headers = {} if after is None else {"Last-Event-ID": after}
    async with (
        asyncio.timeout(60),
        http.stream("GET", "/v1/events", params={"subject": list(subjects)}, headers=headers) as response,
    ):
        assert response.status_code == 200, await response.aread()
        async with aclosing(frames(response)) as feed:
            yield feed


def said(frame: Frame) -> tuple[object, ...]:
    return frame.data["subject"], frame.data["id"], frame.data["change"]


@proves("changes.complete")
async def test_each_transition_of_a_run_is_one_change_in_order(api: Api, worker: ManualWorker) -> None:
    async with following(api.http, "run") as feed:
        assert (await anext(feed)).type == "ready"
        thread_id = await api.thread()
        run_id = await api.run(thread_id)
        await worker.play(thread_id)
        changes = [await anext(feed) for _ in range(3)]
        assert [said(change) for change in changes] == [
            ("run", run_id, "queued"),
            ("run", run_id, "running"),
            ("run", run_id, "succeeded"),
        ]
        assert {(change.data["agent_id"], change.data["thread_id"]) for change in changes} == {("nova", thread_id)}


@proves("changes.complete")
async def test_what_people_keep_and_decide_is_followed_too(api: Api, worker: ManualWorker) -> None:
    async with following(api.http) as feed:
        await anext(feed)
        thread_id = await api.thread()
        run_id = await api.run(thread_id)
        turn = await worker.claim(thread_id)
        await turn.suspend("", NewWait("call_1", AskUser(question="Which one?")))
        task = (await api.http.post("/v1/tasks", json={"title": "Look", "owner_agent_id": "nova"})).json()
        body = {"agent_id": "nova", "kind": "every", "schedule": "3600", "prompt": "Look."}
        trigger = (await api.http.post("/v1/triggers", json=body)).json()
        fired = (await api.http.post(f"/v1/triggers/{trigger['id']}/fire")).json()
        await api.http.post("/v1/fleet/pause", json={"scope": "agent", "agent_id": "nova"})
        await api.http.delete(f"/v1/threads/{thread_id}")
        expected = [
            ("run", run_id, "queued"),
            ("run", run_id, "running"),
            ("run", run_id, "waiting"),
            ("wait", run_id, "open"),
            ("task", str(task["id"]), "created"),
            ("trigger", trigger["id"], "created"),
            ("trigger", trigger["id"], "fired"),
            ("run", fired["run_id"], "queued"),
            ("pause", "agent", "paused"),
            ("thread", thread_id, "deleted"),
        ]
        missing = set(expected)
        while missing:
            missing.discard(said(await anext(feed)))  # type: ignore[arg-type]  # of three texts


@proves("changes.late-commit")
async def test_a_transaction_that_commits_late_is_not_passed_over(api: Api, database: Database, tenant: Tenant) -> None:
    early, late = new_id("dlv"), new_id("dlv")
    seen: list[tuple[object, ...]] = []
    async with following(api.http, "delivery") as feed:
        await anext(feed)

        async def note() -> None:
            while True:
                seen.append(said(await anext(feed)))

        noting = asyncio.create_task(note())
        async with database.transaction() as connection:
            await connection.execute(ITEM, id=early, tenant_id=tenant.id)
            # Begins later, and commits first.
            await database.execute(ITEM, id=late, tenant_id=tenant.id)
            await stays(lambda: not seen, for_s=1.0)
        await until(lambda: len(seen) == 2, "both changes")
        noting.cancel()
        await asyncio.gather(noting, return_exceptions=True)
    assert seen == [("delivery", early, "created"), ("delivery", late, "created")]


@proves("changes.resume")
async def test_a_client_resumes_at_any_process_with_what_it_missed(
    serve: Serve, settings: Settings, worker: ManualWorker
) -> None:
    one, other = await serve(settings), await serve(settings)
    async with following(one.http) as feed:
        ready = await anext(feed)
    thread_id = await one.thread()
    run_id = await one.run(thread_id)
    await worker.play(thread_id)
    async with following(other.http, after=ready.id) as feed:
        queued = await anext(feed)
        assert said(queued) == ("run", run_id, "queued")
    async with following(one.http, after=queued.id) as feed, following(other.http, after=queued.id) as theirs:
        for each in (feed, theirs):
            assert [said(await anext(each))[2] for _ in range(2)] == ["running", "succeeded"]
        assert await one.http.get("/v1/runs/" + run_id)
        later = await one.run(thread_id)
        assert said(await anext(feed)) == said(await anext(theirs)) == ("run", later, "queued")


async def test_a_cursor_that_is_too_old_or_of_another_database_begins_again(api: Api) -> None:
    async with following(api.http) as feed:
        ready = await anext(feed)
    database, xact, id, at_s = ready.id.split("-")
    for cursor, reason in (
        (f"{database}-{xact}-{id}-{int(at_s) - 25 * 3600}", "expired"),
        (f"00000000-{xact}-{id}-{at_s}", "unknown"),
        (f"{database}-{int(xact) + 10**9}-{id}-{at_s}", "unknown"),
    ):
        async with following(api.http, after=cursor) as feed:
            reset = await anext(feed)
            assert (reset.type, reset.data["reason"]) == ("reset", reason)
            assert reset.id.startswith(database)
    refused = await api.http.get("/v1/events", headers={"Last-Event-ID": "1-42"})
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_cursor")


@proves("changes.own")
async def test_a_key_gets_what_it_may_read_of_its_own_tenant(api: Api, other_tenant: Tenant) -> None:
    made = await api.http.post("/v1/keys", json={"name": "narrow", "scopes": ["workspace"]})
    async with api.client(made.json()["key"]) as narrow, api.client(other_tenant.key) as other:
        refused = await narrow.get("/v1/events", params={"subject": "run"})
        assert (refused.status_code, refused.json()["context"]["needed"]) == (403, "runs:read")
        async with following(narrow) as feed, following(other) as theirs:
            await anext(feed)
            await anext(theirs)
            await api.run(await api.thread())
            task = (await api.http.post("/v1/tasks", json={"title": "Look", "owner_agent_id": "nova"})).json()
            assert said(await anext(feed)) == ("task", str(task["id"]), "created")
            own = (await other.post("/v1/tasks", json={"title": "Mine", "owner_agent_id": "nova"})).json()
            assert said(await anext(theirs)) == ("task", str(own["id"]), "created")
    assert {"runs:read", "workspace:read", "workspace", "agents:read", None} == set(SCOPE_OF.values())


async def test_a_heartbeat_moves_the_cursor_and_ends_the_stream_of_a_revoked_key(
    serve: Serve, settings: Settings
) -> None:
    api = await serve(settings.model_copy(update={"api": settings.api.model_copy(update={"heartbeat_s": 0.05})}))
    made = (await api.http.post("/v1/keys", json={"name": "short", "scopes": ["workspace"]})).json()
    async with (
        asyncio.timeout(60),
        api.client(made["key"]) as short,
        short.stream("GET", "/v1/events") as response,
    ):
        lines = response.aiter_lines()
        first = await anext(lines)
        # A change that this key may not read: only a heartbeat says that the stream has passed it.
        await api.run(await api.thread())
        await until(lambda: _next_id(lines, beyond=first), "an id of a heartbeat beyond the first")
        await api.http.delete(f"/v1/keys/{made['id']}")
        assert not [line async for line in lines if line.startswith("data")]


async def _next_id(lines: AsyncIterator[str], *, beyond: str) -> bool:
    line = await anext(lines)
    return line.startswith("id: ") and line.rsplit("-", 1)[0] != beyond.rsplit("-", 1)[0]


class _CountingHub(ChangeHub):
    reads = 0

    async def _read(self) -> bool:
        self.reads += 1
        return await super()._read()


@proves("changes.one-reader")
async def test_one_reader_serves_all_streams_of_a_process_and_rests_without_any(
    api: Api, own_api: Api, database: Database
) -> None:
    with all_tenants():
        hub = _CountingHub(database, SystemClock(), every_s=0.01)
        running = asyncio.create_task(hub.run())
        horizon = await hub.horizon()
        await stays(lambda: hub.reads == 0, for_s=0.2)
        async with hub.follow(api.tenant.id, horizon) as (one, _), hub.follow(api.tenant.id, horizon) as (two, _):
            await api.run(await api.thread())
            taken = await one.take(), await two.take()
            assert taken[0] is not None
            assert taken[1] is not None
            assert len(taken[0]) == 1
            assert taken[0][0] is taken[1][0]
        seen = hub.reads
        await stays(lambda: hub.reads <= seen + 1, for_s=0.2)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@proves("changes.complete")
async def test_a_client_that_comes_within_a_large_transaction_gets_its_first_changes_too(
    api: Api, database: Database
) -> None:
    with all_tenants():
        hub = ChangeHub(database, SystemClock())
        begins = (await hub.horizon()).position
        async with database.transaction() as connection:
            for _ in range(3):
                await connection.execute(ITEM, id=new_id("dlv"), tenant_id=api.tenant.id)

        async def all_of_it() -> bool:
            return len(await hub.page(api.tenant.id, begins, (await hub.horizon()).position)) == 3

        await until(all_of_it, "the transaction to be older than all that run")
        whole = await hub.page(api.tenant.id, begins, (await hub.horizon()).position)
        # The reader's bound on one statement ended here, between changes of one transaction.
        reached = whole[1].position
        assert reached.xact == whole[2].position.xact
        assert [*await hub.page(api.tenant.id, begins, reached)] == [*whole[:2]]


async def test_a_client_that_is_too_slow_is_ended_after_what_it_can_still_get() -> None:
    feed, change = ChangeFeed(Position(1, 0)), RecordedChange(Position(2, 1), None)  # type: ignore[arg-type]
    feed.push([change] * 3_000, Position(2, 1))
    feed.push([change] * 3_000, Position(3, 1))
    feed.push([change], Position(4, 1))
    taken = await feed.take()
    assert taken is not None
    assert len(taken) == 3_000
    assert feed.quiet_since is None
    assert await feed.take() is None


async def test_changes_of_the_last_day_are_kept(api: Api, database: Database) -> None:
    await api.run(await api.thread())
    await database.execute("UPDATE changes SET at = now() - interval '24 hours 30 minutes'")
    await api.run(await api.thread())
    async with database.connection() as connection:
        assert await delete_old_changes(connection, limit=100) == 0
        await connection.execute(
            "UPDATE changes SET at = now() - interval '26 hours' WHERE at < now() - interval '1 day'"
        )
        assert await delete_old_changes(connection, limit=100) == 1
    assert await database.fetchval("SELECT count(*) FROM changes") == 1
